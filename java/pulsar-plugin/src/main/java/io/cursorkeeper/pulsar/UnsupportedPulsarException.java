package io.cursorkeeper.pulsar;

import java.util.List;

/**
 * The broker's Pulsar lacks members that this plugin works with: the message names its version and
 * them.
 */
public final class UnsupportedPulsarException extends RuntimeException {

  private static final long serialVersionUID = 1;

  public UnsupportedPulsarException(String version, List<String> missing) {
    super(
        "This jar of the CursorKeeper plugin does not fit Pulsar "
            + version
            + ", which lacks "
            + String.join(", ", missing)
            + ". What to do: use the jar made for this line of Pulsar, or set "
            + Settings.ON_UNSUPPORTED
            + "=stock to start with Pulsar's own cursors");
  }
}
