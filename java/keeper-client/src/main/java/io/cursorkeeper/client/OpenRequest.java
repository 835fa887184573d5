package io.cursorkeeper.client;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * Which cursor is opened, and how. Made by {@link #of} and the methods that return a changed copy.
 *
 * @param fencingToken grows with every load of the topic: lower than one that the keeper has seen =
 *     {@code FENCED}; 0: none
 * @param create false: the cursor must exist
 * @param start mark-delete of a cursor that is created now
 * @param takeover depose whoever holds it. With a token it says nothing: the token decides. Without
 *     one, a cursor that lost its stream is taken over when it is opened again, whatever this says
 * @param layout a consecutive run of the topic's data ledgers, ascending
 * @param cursorProperties of a cursor that is created now
 */
public record OpenRequest(
    String topic,
    String subscription,
    long fencingToken,
    boolean create,
    Optional<Position> start,
    boolean takeover,
    List<DataLedger> layout,
    Map<String, String> cursorProperties) {

  public OpenRequest {
    Objects.requireNonNull(topic);
    Objects.requireNonNull(subscription);
    Objects.requireNonNull(start);
    layout = List.copyOf(layout);
    cursorProperties = Map.copyOf(cursorProperties);
    if (fencingToken < 0) {
      throw new IllegalArgumentException(
          "fencingToken is " + fencingToken + ", must be 0 (none) or above");
    }
  }

  /** Creates the cursor if there is none; no token, no takeover. */
  public static OpenRequest of(String topic, String subscription) {
    return new OpenRequest(
        topic, subscription, 0, true, Optional.empty(), false, List.of(), Map.of());
  }

  public OpenRequest withFencingToken(long token) {
    return new OpenRequest(
        topic, subscription, token, create, start, takeover, layout, cursorProperties);
  }

  public OpenRequest withCreate(boolean wanted) {
    return new OpenRequest(
        topic, subscription, fencingToken, wanted, start, takeover, layout, cursorProperties);
  }

  public OpenRequest withStart(Position position) {
    return new OpenRequest(
        topic,
        subscription,
        fencingToken,
        create,
        Optional.of(position),
        takeover,
        layout,
        cursorProperties);
  }

  public OpenRequest withTakeover(boolean wanted) {
    return new OpenRequest(
        topic, subscription, fencingToken, create, start, wanted, layout, cursorProperties);
  }

  public OpenRequest withLayout(List<DataLedger> run) {
    return new OpenRequest(
        topic, subscription, fencingToken, create, start, takeover, run, cursorProperties);
  }

  public OpenRequest withCursorProperties(Map<String, String> properties) {
    return new OpenRequest(
        topic, subscription, fencingToken, create, start, takeover, layout, properties);
  }
}
