package io.cursorkeeper.gateway.append;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.DiscardUnknownFieldsParser;
import com.google.protobuf.Parser;
import com.google.protobuf.WireFormat;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;

/**
 * One message of an append stream, counted before it is taken apart: an empty append of two bytes
 * becomes an object of a hundred, so a message that is small as bytes may be larger than the heap.
 *
 * @param request null if it is refused
 * @param refusal null if it is taken
 * @param bytes of the message as it came
 * @param entries in it
 */
public record AppendMessage(AppendRequest request, LedgerFailure refusal, int bytes, int entries) {
  private static final Parser<AppendRequest> PARSER =
      DiscardUnknownFieldsParser.wrap(AppendRequest.parser());

  /**
   * Reads messages; one beyond a limit comes out as a refusal, not as an error of the transport.
   */
  public static MethodDescriptor.Marshaller<AppendMessage> marshaller(
      int entriesMax, int ledgersMax) {
    return new MethodDescriptor.Marshaller<>() {
      @Override
      public InputStream stream(AppendMessage message) {
        throw new UnsupportedOperationException("append messages are only received");
      }

      @Override
      public AppendMessage parse(InputStream stream) {
        try {
          return of(stream.readAllBytes(), entriesMax, ledgersMax);
        } catch (IOException broken) {
          return refused(
              "BAD_REQUEST", "the message is not an AppendRequest: " + broken.getMessage());
        }
      }
    };
  }

  static AppendMessage of(byte[] bytes, int entriesMax, int ledgersMax) throws IOException {
    int ledgers = 0;
    int entries = 0;
    CodedInputStream message = CodedInputStream.newInstance(bytes);
    for (int tag = message.readTag(); tag != 0; tag = message.readTag()) {
      if (WireFormat.getTagFieldNumber(tag) != AppendRequest.APPENDS_FIELD_NUMBER
          || WireFormat.getTagWireType(tag) != WireFormat.WIRETYPE_LENGTH_DELIMITED) {
        message.skipField(tag);
        continue;
      }
      ledgers++;
      int outer = message.pushLimit(message.readRawVarint32());
      for (int inner = message.readTag(); inner != 0; inner = message.readTag()) {
        entries +=
            WireFormat.getTagFieldNumber(inner) == LedgerAppend.PAYLOADS_FIELD_NUMBER ? 1 : 0;
        message.skipField(inner);
      }
      message.popLimit(outer);
      if (ledgers > ledgersMax || entries > entriesMax) {
        return refused(
            "MESSAGE_TOO_MANY",
            "a message holds more than "
                + (ledgers > ledgersMax
                    ? ledgersMax + " ledgers (message_ledgers_max)"
                    : entriesMax + " entries (message_entries_max)")
                + "; Describe tells the limits: send smaller messages");
      }
    }
    return new AppendMessage(PARSER.parseFrom(bytes), null, bytes.length, entries);
  }

  private static AppendMessage refused(String code, String why) {
    return new AppendMessage(
        null, LedgerFailure.refused(Status.Code.INVALID_ARGUMENT, code, why), 0, 0);
  }
}
