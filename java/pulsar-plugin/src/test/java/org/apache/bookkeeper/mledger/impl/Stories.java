package org.apache.bookkeeper.mledger.impl;

import java.util.Map;
import java.util.function.Consumer;

/**
 * Serves the mains of the plugin's tests that tell stories, one after the other, each on a topic of
 * its own.
 */
final class Stories {

  @FunctionalInterface
  interface Story {
    void tell() throws Exception;
  }

  private Stories() {}

  static void check(boolean right, String what) {
    if (!right) {
      throw new AssertionError(what);
    }
  }

  /** Ends the process: with 0 and one line, or with 1 and the story that failed. */
  static void tell(String kind, Map<String, Story> all, Consumer<String> onTopic) {
    for (Map.Entry<String, Story> each : all.entrySet()) {
      onTopic.accept(
          "public/default/persistent/" + kind + "-" + Long.toHexString(System.nanoTime()));
      try {
        each.getValue().tell();
      } catch (Exception | AssertionError e) {
        System.out.println(each.getKey() + ": " + e);
        e.printStackTrace(System.out);
        System.out.flush();
        Runtime.getRuntime().halt(1);
      }
    }
    System.out.println("stories " + all.size());
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
