package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.Digest;
import io.cursorkeeper.ledgers.v1.LedgerMetadata;
import io.cursorkeeper.ledgers.v1.LedgerState;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.client.api.DigestType;

/**
 * Translates ledger metadata between the client library and the contract, and knows which ledgers are ours, and which
 * are Pulsar's cursor ledgers. A message ledger of Pulsar has no {@code pulsar/cursor}, so it is neither.
 */
final class Metadatas {
  static final String APPLICATION = "application";
  private static final byte[] OURS = "cursorkeeper".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] PULSAR = "pulsar".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] MANAGED_LEDGER = "managed-ledger".getBytes(StandardCharsets.US_ASCII);

  private Metadatas() {}

  static LedgerMetadata of(org.apache.bookkeeper.client.api.LedgerMetadata metadata) {
    LedgerMetadata.Builder built = LedgerMetadata.newBuilder()
        .setLedgerId(metadata.getLedgerId())
        .setEnsemble(metadata.getEnsembleSize())
        .setWriteQuorum(metadata.getWriteQuorumSize())
        .setAckQuorum(metadata.getAckQuorumSize())
        .setDigest(Digest.valueOf(metadata.getDigestType().name()))
        .setState(LedgerState.valueOf(metadata.getState().name()))
        .setLastEntryId(metadata.isClosed() ? metadata.getLastEntryId() : -1)
        .setLength(metadata.isClosed() ? metadata.getLength() : 0)
        .setCreatedMs(Math.max(0, metadata.getCtime()));
    metadata.getCustomMetadata().forEach((key, value) -> built.putCustomMetadata(key, ByteString.copyFrom(value)));
    return built.build();
  }

  static DigestType digest(Digest digest) {
    return switch (digest) {
      case DIGEST_UNSPECIFIED, CRC32C -> DigestType.CRC32C;
      case CRC32 -> DigestType.CRC32;
      case MAC -> DigestType.MAC;
      case DUMMY -> DigestType.DUMMY;
      case UNRECOGNIZED -> throw LedgerFailure.refused(
          Status.Code.INVALID_ARGUMENT, "BAD_REQUEST", "unknown digest type");
    };
  }

  static Map<String, byte[]> custom(Map<String, ByteString> given) {
    Map<String, byte[]> custom = new HashMap<>();
    given.forEach((key, value) -> custom.put(key, value.toByteArray()));
    return custom;
  }

  /** Whether the metadata holds every pair of the filter. */
  static boolean matches(Map<String, byte[]> custom, Map<String, byte[]> filter) {
    return filter.entrySet().stream().allMatch(pair -> Arrays.equals(custom.get(pair.getKey()), pair.getValue()));
  }

  /** Throws NOT_OURS unless the ledger belongs to this application. */
  static void requireOurs(long ledgerId, Map<String, byte[]> custom) {
    if (!isOurs(custom)) {
      throw notOurs("ledger " + ledgerId + " needs custom metadata application=cursorkeeper to be fenced here"
          + (isPulsarCursor(custom) ? ": fencing a Pulsar cursor's ledger could depose a live broker" : ""));
    }
  }

  /** Throws NOT_OURS unless the ledger belongs to this application or is a Pulsar cursor's; -1: a new one. */
  static void requireOursOrPulsarCursor(long ledgerId, Map<String, byte[]> custom) {
    if (!isOurs(custom) && !isPulsarCursor(custom)) {
      throw notOurs((ledgerId < 0 ? "a new ledger" : "ledger " + ledgerId)
          + " needs custom metadata application=cursorkeeper, or all of a Pulsar cursor's (application=pulsar,"
          + " component=managed-ledger, pulsar/managed-ledger, pulsar/cursor), to be written or deleted here");
    }
  }

  private static boolean isOurs(Map<String, byte[]> custom) {
    return Arrays.equals(custom.get(APPLICATION), OURS);
  }

  static boolean isPulsarCursor(Map<String, byte[]> custom) {
    return Arrays.equals(custom.get(APPLICATION), PULSAR)
        && Arrays.equals(custom.get("component"), MANAGED_LEDGER)
        && isGiven(custom.get("pulsar/managed-ledger"))
        && isGiven(custom.get("pulsar/cursor"));
  }

  private static boolean isGiven(byte[] value) {
    return value != null && value.length > 0;
  }

  private static LedgerFailure notOurs(String message) {
    return LedgerFailure.refused(Status.Code.PERMISSION_DENIED, "NOT_OURS", message);
  }
}
