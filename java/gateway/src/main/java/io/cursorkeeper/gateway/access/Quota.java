package io.cursorkeeper.gateway.access;

/** What an identity may have of a gateway at once; a quota that the file leaves out is no limit. */
enum Quota {
  STREAMS("streams", "append streams at once"),
  READS("reads", "reads at once"),
  READ_BYTES("read_bytes", "bytes that its reads hold or have asked for"),
  LISTS("lists", "lists at once");

  private final String word;
  private final String about;

  Quota(String word, String about) {
    this.word = word;
    this.about = about;
  }

  /** As the file writes it. */
  String word() {
    return word;
  }

  String about() {
    return about;
  }
}
