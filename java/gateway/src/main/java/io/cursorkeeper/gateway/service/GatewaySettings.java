package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.access.AccessSettings;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The gateway's numbers, checked together at the start: every queue, size, age and concurrency has
 * its limit here.
 */
public record GatewaySettings(
    String host,
    int port,
    String metricsHost,
    int metricsPort,
    int entryBytesMax,
    int messageBytesMax,
    int bookieFrameBytesMax,
    int messageEntriesMax,
    int messageLedgersMax,
    int streamsMax,
    int stallMaxMs,
    long inFlightBytesMax,
    int inFlightEntriesMax,
    int appendLingerMs,
    int readChunkBytes,
    int readChunkBytesMax,
    long readBytesMax,
    int readsMax,
    int openHandlesMax,
    int uselessHandleAgeMaxMs,
    int listInFlightMax,
    int ensembleChangesMax,
    int addTimeoutS,
    int addQuorumTimeoutS,
    int readTimeoutS,
    int zooKeeperTimeoutMs,
    int keepaliveMs,
    int keepalivePermitMs,
    int writableBookiesMin,
    int warmUpEntries,
    AccessSettings access,
    Optional<Tls> tls) {

  /** Room that the frame around one entry needs in a message, and in a frame of a bookie. */
  private static final int ENVELOPE_BYTES = 64 << 10;

  /**
   * What a bookie accepts unless told otherwise (nettyMaxFrameSizeBytes); Pulsar's bookies accept
   * 10 KiB more.
   */
  private static final int BOOKIE_FRAME_BYTES = 5 << 20;

  private static final int PULSAR_FRAME_BYTES = BOOKIE_FRAME_BYTES + (10 << 10);
  private static final int MIB = 1 << 20;

  /** The flags, with their defaults. */
  public static final List<Flag> FLAGS =
      Stream.of(ownFlags(), AccessSettings.FLAGS, Tls.FLAGS).flatMap(List::stream).toList();

  private static List<Flag> ownFlags() {
    return List.of(
        Flag.text("host", "127.0.0.1", "address to bind"),
        Flag.number("port", 0, "0: a free one"),
        Flag.text("metrics-host", "", "address to bind for /metrics and /health; empty: --host"),
        Flag.number("metrics-port", 0, "of /metrics and /health; 0: a free one, -1: none"),
        Flag.number(
            "entry-bytes-max", BOOKIE_FRAME_BYTES - ENVELOPE_BYTES, "larger entries are refused"),
        Flag.number("message-bytes-max", 6 * MIB, "a larger message ends its stream"),
        Flag.number(
            "bookie-frame-bytes-max",
            PULSAR_FRAME_BYTES,
            "the bookies' nettyMaxFrameSizeBytes, if raised there"),
        Flag.number("message-entries-max", 4_096, "of one append message"),
        Flag.number("message-ledgers-max", 4_096, "of one append message"),
        Flag.number("streams-max", 256, "append streams at once"),
        Flag.number(
            "stall-max-ms",
            30_000,
            "a peer that stands still so long in a message or an answer is cut off"),
        Flag.number(
            "in-flight-bytes-max",
            0,
            "of all streams; 0: an eighth of the JVM's memory, 64 MiB at most"),
        Flag.number("in-flight-entries-max", 16_384, "of all streams"),
        Flag.number("append-linger-ms", 2, "gather replies this long"),
        Flag.number("read-chunk-bytes", MIB, "when the request names none"),
        Flag.number("read-chunk-bytes-max", 4 * MIB, "whatever the request names"),
        Flag.number(
            "read-bytes-max",
            0,
            "of writers' reads, and as much of all others; 0: an eighth, 256 MiB at most"),
        Flag.number("reads-max", 64, "Read calls of writers at once, and as many of all others"),
        Flag.number("open-handles-max", 20_000, "ledgers open for writing"),
        Flag.number("useless-handle-age-max-ms", 300_000, "release handles never used or failed"),
        Flag.number("list-in-flight-max", 64, "metadata reads at once of one List"),
        Flag.number("ensemble-changes-max", 10, "of one ledger"),
        Flag.number("add-timeout-s", 5, "one bookie's answer to an add"),
        Flag.number("add-quorum-timeout-s", 15, "the ack quorum's answers to an add"),
        Flag.number("read-timeout-s", 5, "one bookie's answer to a read"),
        Flag.number("zookeeper-timeout-ms", 10_000, "session"),
        Flag.number("keepalive-ms", 30_000, "ping an idle client"),
        Flag.number("keepalive-permit-ms", 1_000, "clients may ping this often"),
        Flag.number("writable-bookies-min", 1, "fewer: health says NOT_SERVING"),
        Flag.number("warm-up-entries", 300, "appended and deleted before readiness; 0: none"));
  }

  public GatewaySettings {
    require(
        entryBytesMax + ENVELOPE_BYTES <= messageBytesMax,
        "--entry-bytes-max "
            + entryBytesMax
            + " plus "
            + ENVELOPE_BYTES
            + " must fit --message-bytes-max "
            + messageBytesMax);
    require(
        entryBytesMax + ENVELOPE_BYTES <= bookieFrameBytesMax,
        "--entry-bytes-max "
            + entryBytesMax
            + " plus "
            + ENVELOPE_BYTES
            + " must fit --bookie-frame-bytes-max "
            + bookieFrameBytesMax);
    require(
        readChunkBytes <= readChunkBytesMax,
        "--read-chunk-bytes must not exceed --read-chunk-bytes-max");
    require(inFlightBytesMax >= entryBytesMax, "--in-flight-bytes-max must hold one entry");
  }

  /** The settings of a command line; throws IllegalArgumentException with a message for people. */
  public static GatewaySettings of(Flags flags) {
    AccessSettings access = AccessSettings.of(flags, Tls.refreshSeconds(flags));
    Optional<Tls> tls = Tls.of(flags, access.namesCallers());
    access.requireSafe(
        flags.text("host"),
        tls.isPresent(),
        tls.map(Tls::callersMust).orElse(false),
        flags.yes("insecure"));
    return new GatewaySettings(
        flags.text("host"),
        flags.integer("port", 0, 65_535),
        flags.text("metrics-host").isEmpty() ? flags.text("host") : flags.text("metrics-host"),
        flags.integer("metrics-port", -1, 65_535),
        flags.integer("entry-bytes-max", 1, 64 * MIB),
        flags.integer("message-bytes-max", 1, 64 * MIB),
        flags.integer("bookie-frame-bytes-max", MIB, 256 * MIB),
        flags.integer("message-entries-max", 1, 1 << 20),
        flags.integer("message-ledgers-max", 1, 1 << 20),
        flags.integer("streams-max", 1, 100_000),
        flags.integer("stall-max-ms", 1_000, 3_600_000),
        or(flags.number("in-flight-bytes-max", 0, 1L << 40), Memory.appendBytes()),
        flags.integer("in-flight-entries-max", 1, 1 << 24),
        flags.integer("append-linger-ms", 0, 1_000),
        flags.integer("read-chunk-bytes", 1, 64 * MIB),
        flags.integer("read-chunk-bytes-max", 1, 64 * MIB),
        or(flags.number("read-bytes-max", 0, 1L << 40), Memory.readBytes()),
        flags.integer("reads-max", 1, 10_000),
        flags.integer("open-handles-max", 1, 1_000_000),
        flags.integer("useless-handle-age-max-ms", 100, Integer.MAX_VALUE),
        flags.integer("list-in-flight-max", 1, 1_000),
        flags.integer("ensemble-changes-max", 0, 1_000),
        flags.integer("add-timeout-s", 1, 3_600),
        flags.integer("add-quorum-timeout-s", 1, 3_600),
        flags.integer("read-timeout-s", 1, 3_600),
        flags.integer("zookeeper-timeout-ms", 200, 120_000),
        flags.integer("keepalive-ms", 1_000, 3_600_000),
        flags.integer("keepalive-permit-ms", 1, 3_600_000),
        flags.integer("writable-bookies-min", 1, 1_000),
        flags.integer("warm-up-entries", 0, 100_000),
        access,
        tls);
  }

  /** The same on other ports. */
  public GatewaySettings at(int gatewayPort, int gatewayMetricsPort) {
    return new GatewaySettings(
        host,
        gatewayPort,
        metricsHost,
        gatewayMetricsPort,
        entryBytesMax,
        messageBytesMax,
        bookieFrameBytesMax,
        messageEntriesMax,
        messageLedgersMax,
        streamsMax,
        stallMaxMs,
        inFlightBytesMax,
        inFlightEntriesMax,
        appendLingerMs,
        readChunkBytes,
        readChunkBytesMax,
        readBytesMax,
        readsMax,
        openHandlesMax,
        uselessHandleAgeMaxMs,
        listInFlightMax,
        ensembleChangesMax,
        addTimeoutS,
        addQuorumTimeoutS,
        readTimeoutS,
        zooKeeperTimeoutMs,
        keepaliveMs,
        keepalivePermitMs,
        writableBookiesMin,
        warmUpEntries,
        access,
        tls);
  }

  private static long or(long given, long otherwise) {
    return given == 0 ? otherwise : given;
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
