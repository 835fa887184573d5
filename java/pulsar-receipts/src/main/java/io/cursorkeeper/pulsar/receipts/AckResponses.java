package io.cursorkeeper.pulsar.receipts;

import io.cursorkeeper.pulsar.ReceiptPolicy;
import io.netty.buffer.ByteBuf;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.CommandAckResponse;
import org.apache.pulsar.common.api.proto.ServerError;
import org.apache.pulsar.common.protocol.Commands;

/**
 * Serves {@link ReceiptGate}: receipts as they lie in a frame: four bytes of the frame's size, four
 * of the command's, and the command, whose first field is its type.
 */
final class AckResponses {

  private static final int TYPE_AT = 2 * Integer.BYTES;
  private static final int TYPE_TAG = 1 << 3;
  private static final int TYPE = BaseCommand.Type.ACK_RESPONSE.getValue();

  private AckResponses() {}

  /** Looks at two bytes. */
  static boolean is(ByteBuf frame) {
    int at = frame.readerIndex() + TYPE_AT;
    return frame.readableBytes() > TYPE_AT + 1
        && frame.getByte(at) == TYPE_TAG
        && frame.getByte(at + 1) == TYPE;
  }

  /** The answer to the same request that says that it failed. */
  static ByteBuf failed(ByteBuf frame, Throwable why) {
    BaseCommand command = new BaseCommand();
    ByteBuf bytes = frame.slice(frame.readerIndex() + TYPE_AT, frame.readableBytes() - TYPE_AT);
    command.parseFrom(bytes, bytes.readableBytes());
    CommandAckResponse response = command.getAckResponse();
    return Commands.newAckResponse(
        response.getRequestId(),
        ServerError.PersistenceError,
        "The ack is not confirmed: " + why.getMessage(),
        response.getConsumerId());
  }

  /** That this Pulsar writes frames so. Raises SettingsException. */
  static void check() {
    ByteBuf frame = null;
    try {
      frame = Commands.newAckResponse(1, null, null, 1);
      if (is(frame)) {
        return;
      }
    } catch (LinkageError e) {
      throw ReceiptPolicy.unfit("this Pulsar has no " + e.getMessage());
    } finally {
      if (frame != null) {
        frame.release();
      }
    }
    throw ReceiptPolicy.unfit("receipts of this Pulsar do not begin with their type");
  }
}
