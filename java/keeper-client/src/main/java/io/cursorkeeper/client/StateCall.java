package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.ExportRequest;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.client.KeeperException.Code;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.Executor;

/** One question for the state of a cursor that the keeper has open. Of the link's thread. */
final class StateCall extends ClientCall.Listener<KeeperMessage> {

  private final ClientCall<ExportRequest, KeeperMessage> call;
  private final String display;
  private final Executor executor;
  private final Answer<CursorState> answer;
  private StateParts parts;
  private CursorState state;

  StateCall(
      ClientCall<ExportRequest, KeeperMessage> call,
      String display,
      Executor executor,
      Answer<CursorState> answer) {
    this.call = call;
    this.display = display;
    this.executor = executor;
    this.answer = answer;
  }

  void ask(ExportRequest request, Metadata headers) {
    call.start(this, headers);
    call.sendMessage(request);
    call.halfClose();
    call.request(2);
  }

  @Override
  public void onMessage(KeeperMessage message) {
    try {
      switch (message.getMessageCase()) {
        case OPENED -> parts = new StateParts(message.getOpened());
        case STATE_PART -> parts.add(message.getStatePart());
        case STATE_END -> state = parts.end(message.getStateEnd());
        default ->
            throw new IllegalArgumentException(
                "the keeper sent " + message.getMessageCase() + " out of place");
      }
      call.request(1);
    } catch (RuntimeException wrong) {
      call.cancel("it could not be read", wrong);
    }
  }

  @Override
  public void onClose(Status ended, Metadata trailers) {
    if (ended.isOk() && state != null) {
      executor.execute(() -> answer.settle(state));
      return;
    }
    Code code =
        switch (ended.getCode()) {
          case NOT_FOUND -> Code.NOT_FOUND;
          case UNAVAILABLE -> Code.UNAVAILABLE;
          case DEADLINE_EXCEEDED -> Code.TIMED_OUT;
          case UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED -> Code.LINK_REFUSED;
          default -> Code.UNKNOWN;
        };
    String text =
        ended.getDescription() == null ? ended.getCode().toString() : ended.getDescription();
    executor.execute(
        () ->
            answer.fail(
                new KeeperException(code, display, text, "ask again, or look at the daemon")));
  }
}
