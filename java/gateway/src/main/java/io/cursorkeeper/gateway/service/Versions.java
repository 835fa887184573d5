package io.cursorkeeper.gateway.service;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The versions this jar was built from. */
record Versions(String gateway, String bookkeeper) {
  static Versions built() {
    Properties versions = new Properties();
    try (InputStream file =
        Versions.class.getResourceAsStream("/cursorkeeper-version.properties")) {
      versions.load(file);
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
    return new Versions(versions.getProperty("gateway"), versions.getProperty("bookkeeper"));
  }
}
