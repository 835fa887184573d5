package io.cursorkeeper.reader;

/** Why a cursor is not read. */
final class Refused extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /**
   * What a reader reports; {@code FOREIGN} is damage, too, but not such as may be skipped at entry
   * 0.
   */
  enum Kind {
    DAMAGED,
    FOREIGN,
    TOO_NEW,
    TOO_LARGE,
    MISSING,
    REPLACED
  }

  final Kind kind;

  private Refused(Kind kind, String why) {
    super(why);
    this.kind = kind;
  }

  static Refused damage(String why) {
    return new Refused(Kind.DAMAGED, why);
  }

  static Refused foreign(String why) {
    return new Refused(Kind.FOREIGN, why);
  }

  static Refused tooNew(String why) {
    return new Refused(Kind.TOO_NEW, why);
  }

  static Refused tooLarge(String why) {
    return new Refused(Kind.TOO_LARGE, why);
  }

  static Refused replaced(String why) {
    return new Refused(Kind.REPLACED, why);
  }

  static Refused missing(String why) {
    return new Refused(Kind.MISSING, why);
  }

  /** Never skipped, and never a reason to fall back. */
  boolean isFinal() {
    return kind == Kind.TOO_NEW || kind == Kind.TOO_LARGE;
  }
}
