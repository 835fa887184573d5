package io.cursorkeeper.pulsar;

/** A setting is wrong: its name, its value and what to write instead are in the message. */
public final class SettingsException extends RuntimeException {

  private static final long serialVersionUID = 1;

  public SettingsException(String name, String value, String wrong, String remedy) {
    super("broker.conf: " + name + "=" + value + ": " + wrong + ". What to do: " + remedy);
  }
}
