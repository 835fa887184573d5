package io.cursorkeeper.client;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * The numbers and parts of a link. Made by {@link #of} and the methods that return a changed copy.
 * IllegalArgumentException, with name and value, if one is wrong.
 *
 * @param address {@code host:port} of the daemon's ack stream, or {@code unix:} and the path of its
 *     socket
 * @param name of this source, in the daemon's logs
 * @param incarnation new in every process
 * @param credentials asked at every connection: the content of the daemon's source token file, or
 *     empty
 * @param executor completes futures and calls listeners
 * @param memoryBytesMax unconfirmed acks of all cursors; beyond it {@link KeptCursor#persistable}
 *     is false until half of it is free. Acks are still taken, and joined
 * @param openTimeout an opening, the daemon's being away included, fails after it
 * @param answerTimeout of a close and a delete
 * @param backOffMin first pause before something is tried again; doubled each time
 * @param backOffMax longest pause
 * @param keepAlive a stream that is silent for so long is asked, and given up after half of it
 *     again
 * @param patience what nobody waits for ({@link Acks#patient}) is joined for so long before it is
 *     sent
 * @param tls empty: plain text
 */
public record LinkSettings(
    String address,
    String name,
    String incarnation,
    Supplier<byte[]> credentials,
    Executor executor,
    long memoryBytesMax,
    Duration openTimeout,
    Duration answerTimeout,
    Duration backOffMin,
    Duration backOffMax,
    Duration keepAlive,
    Duration patience,
    Optional<LinkTls> tls) {

  public LinkSettings {
    check(address);
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(incarnation, "incarnation");
    Objects.requireNonNull(credentials, "credentials");
    Objects.requireNonNull(executor, "executor");
    if (memoryBytesMax <= 0) {
      throw new IllegalArgumentException(
          "memoryBytesMax is " + memoryBytesMax + ", must be above 0");
    }
    positive("openTimeout", openTimeout);
    positive("answerTimeout", answerTimeout);
    positive("backOffMin", backOffMin);
    positive("backOffMax", backOffMax);
    positive("keepAlive", keepAlive);
    positive("patience", patience);
    if (backOffMin.compareTo(backOffMax) > 0) {
      throw new IllegalArgumentException(
          "backOffMin " + backOffMin + " is above backOffMax " + backOffMax);
    }
  }

  /**
   * 64 MiB of memory, 25 s for an opening, 10 s for an answer, pauses of 100 ms to 5 s, keep-alive
   * of 10 s, patience of 100 ms.
   */
  public static LinkSettings of(String address, Executor executor) {
    return new LinkSettings(
        address,
        "java-source",
        UUID.randomUUID().toString(),
        () -> new byte[0],
        executor,
        64L << 20,
        Duration.ofSeconds(25),
        Duration.ofSeconds(10),
        Duration.ofMillis(100),
        Duration.ofSeconds(5),
        Duration.ofSeconds(10),
        Duration.ofMillis(100),
        Optional.empty());
  }

  public LinkSettings withName(String value) {
    return with(draft -> draft.name = value);
  }

  public LinkSettings withIncarnation(String value) {
    return with(draft -> draft.incarnation = value);
  }

  public LinkSettings withCredentials(Supplier<byte[]> value) {
    return with(draft -> draft.credentials = value);
  }

  public LinkSettings withMemoryBytesMax(long value) {
    return with(draft -> draft.memoryBytesMax = value);
  }

  public LinkSettings withTimeouts(Duration open, Duration answer) {
    return with(
        draft -> {
          draft.openTimeout = open;
          draft.answerTimeout = answer;
        });
  }

  public LinkSettings withBackOff(Duration min, Duration max) {
    return with(
        draft -> {
          draft.backOffMin = min;
          draft.backOffMax = max;
        });
  }

  public LinkSettings withKeepAlive(Duration value) {
    return with(draft -> draft.keepAlive = value);
  }

  public LinkSettings withPatience(Duration value) {
    return with(draft -> draft.patience = value);
  }

  public LinkSettings withTls(Optional<LinkTls> value) {
    return with(draft -> draft.tls = value);
  }

  private LinkSettings with(Consumer<Draft> change) {
    Draft draft = new Draft(this);
    change.accept(draft);
    return draft.made();
  }

  /** What changes between two values. */
  private static final class Draft {
    private final String address;
    private String name;
    private String incarnation;
    private Supplier<byte[]> credentials;
    private final Executor executor;
    private long memoryBytesMax;
    private Duration openTimeout;
    private Duration answerTimeout;
    private Duration backOffMin;
    private Duration backOffMax;
    private Duration keepAlive;
    private Duration patience;
    private Optional<LinkTls> tls;

    Draft(LinkSettings of) {
      address = of.address;
      name = of.name;
      incarnation = of.incarnation;
      credentials = of.credentials;
      executor = of.executor;
      memoryBytesMax = of.memoryBytesMax;
      openTimeout = of.openTimeout;
      answerTimeout = of.answerTimeout;
      backOffMin = of.backOffMin;
      backOffMax = of.backOffMax;
      keepAlive = of.keepAlive;
      patience = of.patience;
      tls = of.tls;
    }

    LinkSettings made() {
      return new LinkSettings(
          address,
          name,
          incarnation,
          credentials,
          executor,
          memoryBytesMax,
          openTimeout,
          answerTimeout,
          backOffMin,
          backOffMax,
          keepAlive,
          patience,
          tls);
    }
  }

  private static void check(String address) {
    if (UnixAddress.is(address)) {
      try {
        UnixAddress.of(address);
      } catch (IllegalArgumentException wrong) {
        throw new IllegalArgumentException(
            "address is \""
                + address
                + "\": "
                + wrong.getMessage()
                + "; write unix: and the absolute path of the daemon's socket",
            wrong);
      }
      return;
    }
    int colon = address.lastIndexOf(':');
    if (colon < 1
        || !address.substring(colon + 1).matches("[0-9]{1,5}")
        || Integer.parseInt(address.substring(colon + 1)) > 65_535) {
      throw new IllegalArgumentException(
          "address is \"" + address + "\", must be host:port, or unix: and a path");
    }
  }

  private static void positive(String name, Duration value) {
    if (value.isNegative() || value.isZero()) {
      throw new IllegalArgumentException(name + " is " + value + ", must be above 0");
    }
  }
}
