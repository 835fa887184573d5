package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.Digest;
import io.cursorkeeper.ledgers.v1.LedgerMetadata;
import io.cursorkeeper.ledgers.v1.LedgerState;
import io.grpc.Status;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.client.api.DigestType;

/**
 * Translates ledger metadata between the client library and the contract; {@link Whose} reads what
 * it says.
 */
final class Metadatas {
  private Metadatas() {}

  static LedgerMetadata of(org.apache.bookkeeper.client.api.LedgerMetadata metadata) {
    LedgerMetadata.Builder built =
        LedgerMetadata.newBuilder()
            .setLedgerId(metadata.getLedgerId())
            .setEnsemble(metadata.getEnsembleSize())
            .setWriteQuorum(metadata.getWriteQuorumSize())
            .setAckQuorum(metadata.getAckQuorumSize())
            .setDigest(Digest.valueOf(metadata.getDigestType().name()))
            .setState(LedgerState.valueOf(metadata.getState().name()))
            .setLastEntryId(metadata.isClosed() ? metadata.getLastEntryId() : -1)
            .setLength(metadata.isClosed() ? metadata.getLength() : 0)
            .setCreatedMs(Math.max(0, metadata.getCtime()));
    metadata
        .getCustomMetadata()
        .forEach((key, value) -> built.putCustomMetadata(key, ByteString.copyFrom(value)));
    return built.build();
  }

  static DigestType digest(Digest digest) {
    return switch (digest) {
      case DIGEST_UNSPECIFIED, CRC32C -> DigestType.CRC32C;
      case CRC32 -> DigestType.CRC32;
      case MAC -> DigestType.MAC;
      case DUMMY -> DigestType.DUMMY;
      case UNRECOGNIZED ->
          throw LedgerFailure.refused(
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
    return filter.entrySet().stream()
        .allMatch(pair -> Arrays.equals(custom.get(pair.getKey()), pair.getValue()));
  }
}
