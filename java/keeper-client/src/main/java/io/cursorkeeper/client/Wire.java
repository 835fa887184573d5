package io.cursorkeeper.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import com.google.protobuf.UnsafeByteOperations;
import io.cursorkeeper.acks.v1.AckBatch;
import io.cursorkeeper.acks.v1.CursorProperties;
import io.cursorkeeper.acks.v1.ExportRequest;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.acks.v1.LayoutRun;
import io.cursorkeeper.acks.v1.LedgerAcks;
import io.cursorkeeper.acks.v1.LedgerLayoutState;
import io.cursorkeeper.acks.v1.MarkDeleteProperties;
import io.cursorkeeper.acks.v1.PartialAck;
import io.cursorkeeper.acks.v1.SourceMessage;
import io.grpc.KnownLength;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.roaringbitmap.IntIterator;
import org.roaringbitmap.RoaringBitmap;

/** Values to messages and back, and what messages take at most. Pure. */
final class Wire {

  static final int PROTOCOL_VERSION = 1;

  /** What we take in one group, and send to who takes as many. */
  static final int GROUP_MESSAGES_MAX = 256;

  /** Of one group: what a large message costs, it costs by its bytes. */
  static final int GROUP_BYTES = 64 << 10;

  /** Of one message of acks. */
  static final int ACKS_BYTES_MAX = 256 << 10;

  static final int RECEIVE_BYTES_MAX = 16 << 20;

  static final int POSITION_BYTES_MAX = 32;

  /** Handle, seq and generation of a message of acks. */
  static final int HEAD_BYTES_MAX = 32;

  /** A data ledger in a message, beside its entries and batches. */
  static final int LEDGER_BYTES_MAX = 24;

  private static final int COLUMN_BYTES_MAX = 8;

  /** Tags, lengths and the number of a property, beside its name. */
  private static final int PROPERTY_BYTES_MAX = 20;

  /** Of all properties of a mark-delete. A keeper ends the stream of who sends more than a MiB. */
  static final int PROPERTIES_BYTES_MAX = 960 << 10;

  /** Up to so many entries travel as a column. */
  private static final int COLUMN_ENTRIES_MAX = 64;

  /** The stream that a source dials. */
  static final MethodDescriptor<SourceMessage, KeeperMessage> PUBLISH =
      MethodDescriptor.<SourceMessage, KeeperMessage>newBuilder()
          .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
          .setFullMethodName("cursorkeeper.acks.v1.AckSink/Publish")
          .setRequestMarshaller(new Marshaller<>(SourceMessage.parser()))
          .setResponseMarshaller(new Marshaller<>(KeeperMessage.parser()))
          .build();

  /** A question for the state of a cursor. */
  static final MethodDescriptor<ExportRequest, KeeperMessage> EXPORT =
      MethodDescriptor.<ExportRequest, KeeperMessage>newBuilder()
          .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
          .setFullMethodName("cursorkeeper.acks.v1.CursorStore/Export")
          .setRequestMarshaller(new Marshaller<>(ExportRequest.parser()))
          .setResponseMarshaller(new Marshaller<>(KeeperMessage.parser()))
          .build();

  private Wire() {}

  /** Instead of grpc-protobuf, which would bring a hundred kinds of messages that nobody needs. */
  private record Marshaller<M extends MessageLite>(Parser<M> parser)
      implements MethodDescriptor.Marshaller<M> {

    @Override
    public InputStream stream(M message) {
      return new Known(message.toByteArray());
    }

    @Override
    public M parse(InputStream stream) {
      try {
        CodedInputStream in = CodedInputStream.newInstance(stream);
        in.setSizeLimit(Integer.MAX_VALUE);
        return parser.parseFrom(in);
      } catch (IOException e) {
        throw Status.INTERNAL
            .withDescription("no message of acks.proto")
            .withCause(e)
            .asRuntimeException();
      }
    }
  }

  private static final class Known extends ByteArrayInputStream implements KnownLength {
    Known(byte[] bytes) {
      super(bytes);
    }
  }

  /** One message of acks; its serialised size is what it costs of the credit. */
  static AckBatch acks(int handle, long seq, int generation, AckSet acks) {
    AckBatch.Builder to =
        AckBatch.newBuilder().setHandle(handle).setSeq(seq).setGeneration(generation);
    acks.ledgers.forEach((id, ledger) -> to.addLedgers(ledger(id, ledger)));
    if (acks.markDelete != null) {
      to.setMarkDelete(position(acks.markDelete));
    }
    if (acks.properties != null) {
      to.setProperties(MarkDeleteProperties.newBuilder().putAllValues(acks.properties));
    }
    return to.build();
  }

  private static LedgerAcks ledger(long id, AckSet.Ledger ledger) {
    LedgerAcks.Builder to = LedgerAcks.newBuilder().setLedgerId(id);
    if (isColumn(ledger.acked)) {
      for (IntIterator each = ledger.acked.getIntIterator(); each.hasNext(); ) {
        to.addEntries(each.next());
      }
    } else {
      to.setRoaring(roaring(ledger.acked));
    }
    for (PartialBatch batch : ledger.batches.values()) {
      PartialAck.Builder partial =
          PartialAck.newBuilder().setEntry((int) batch.entry()).setBatchSize(batch.batchSize());
      for (long word : batch.ackSet()) {
        partial.addAckSet(word);
      }
      to.addPartial(partial);
    }
    return to.build();
  }

  private static boolean isColumn(RoaringBitmap acked) {
    return !acked.cardinalityExceeds(COLUMN_ENTRIES_MAX);
  }

  /** In a message, at most. */
  static int bytesMax(RoaringBitmap acked) {
    int bytes = isColumn(acked) ? 4 * acked.getCardinality() : acked.serializedSizeInBytes();
    return COLUMN_BYTES_MAX + bytes;
  }

  /** In a message, at most. */
  static int bytesMax(PartialBatch batch) {
    return 32 + 8 * batch.ackSet().length;
  }

  /** In a message, at most. */
  static int bytesMax(Map<String, Long> properties) {
    int bytes = COLUMN_BYTES_MAX;
    if (properties != null) {
      for (String each : properties.keySet()) {
        bytes += PROPERTY_BYTES_MAX + CodedOutputStream.computeStringSizeNoTag(each);
      }
    }
    return bytes;
  }

  /** As the keeper counts: one, and one more for every 128 words. */
  static int parts(PartialBatch batch) {
    return 1 + batch.ackSet().length / 128;
  }

  /** In the portable format. */
  static ByteString roaring(RoaringBitmap bitmap) {
    ByteBuffer bytes =
        ByteBuffer.allocate(bitmap.serializedSizeInBytes()).order(ByteOrder.LITTLE_ENDIAN);
    bitmap.serialize(bytes);
    return UnsafeByteOperations.unsafeWrap(bytes.array());
  }

  /** IllegalArgumentException if the bytes are no bitmap in the portable format. */
  static RoaringBitmap bitmap(ByteString bytes) {
    RoaringBitmap bitmap = new RoaringBitmap();
    if (!bytes.isEmpty()) {
      try {
        bitmap.deserialize(bytes.asReadOnlyByteBuffer());
      } catch (IOException | RuntimeException e) {
        throw new IllegalArgumentException(
            "no bitmap in the portable roaring format: " + e.getMessage(), e);
      }
    }
    return bitmap;
  }

  static io.cursorkeeper.acks.v1.Position position(Position position) {
    return io.cursorkeeper.acks.v1.Position.newBuilder()
        .setLedger(position.ledger())
        .setEntry(position.entry())
        .build();
  }

  static Position position(io.cursorkeeper.acks.v1.Position position) {
    return new Position(position.getLedger(), position.getEntry());
  }

  static CursorProperties properties(Map<String, String> values) {
    return CursorProperties.newBuilder().putAllValues(values).build();
  }

  static LayoutRun layout(Collection<DataLedger> run) {
    LayoutRun.Builder to = LayoutRun.newBuilder();
    for (DataLedger each : run) {
      to.addIds(each.ledger());
      to.addStates(
          switch (each.state()) {
            case CLOSED -> LedgerLayoutState.LAYOUT_CLOSED;
            case OPEN -> LedgerLayoutState.LAYOUT_OPEN;
            case TRIMMED -> LedgerLayoutState.LAYOUT_TRIMMED;
          });
      to.addEntries(each.state() == DataLedger.State.CLOSED ? each.entries() : 0);
    }
    return to.build();
  }

  /**
   * IllegalArgumentException if the columns differ in length, or have a state that this version
   * does not know.
   */
  static List<DataLedger> layout(LayoutRun run) {
    if (run.getIdsCount() != run.getStatesCount() || run.getIdsCount() != run.getEntriesCount()) {
      throw new IllegalArgumentException("a layout of columns that differ in length");
    }
    List<DataLedger> found = new ArrayList<>(run.getIdsCount());
    for (int at = 0; at < run.getIdsCount(); at++) {
      DataLedger.State state =
          switch (run.getStates(at)) {
            case LAYOUT_CLOSED -> DataLedger.State.CLOSED;
            case LAYOUT_OPEN -> DataLedger.State.OPEN;
            case LAYOUT_TRIMMED -> DataLedger.State.TRIMMED;
            default ->
                throw new IllegalArgumentException(
                    "a layout with the state " + run.getStatesValue(at));
          };
      found.add(new DataLedger(run.getIds(at), state, run.getEntries(at)));
    }
    return found;
  }

  /** What a message adds to a group, at most. */
  static int groupedBytes(SourceMessage message) {
    int size = message.getSerializedSize();
    return size + 1 + CodedOutputStream.computeUInt32SizeNoTag(size);
  }
}
