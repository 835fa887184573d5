package io.cursorkeeper.pulsar.receipts;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.pulsar.CommandScope;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.CommandAckResponse;
import org.apache.pulsar.common.api.proto.ServerError;
import org.apache.pulsar.common.protocol.Commands;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class ReceiptGateTest {

  private static final long CONSUMER = 7;

  /** Pulsar's handler: a command runs, and its receipt is written within it. */
  private static final class Cnx extends ChannelInboundHandlerAdapter {
    private ChannelHandlerContext context;

    @Override
    public void handlerAdded(ChannelHandlerContext ctx) {
      context = ctx;
    }

    @Override
    public void channelRead(ChannelHandlerContext ctx, Object command) {
      ((Runnable) command).run();
    }

    void write(ByteBuf frame) {
      context.writeAndFlush(frame, context.voidPromise());
    }
  }

  private static final class Reading implements ReadingSwitch.OfConnection {
    private final List<String> calls = new ArrayList<>();

    @Override
    public void stop() {
      calls.add("stop");
    }

    @Override
    public void goOn() {
      calls.add("go on");
    }
  }

  private final Cnx cnx = new Cnx();
  private final Reading reading = new Reading();
  private final EmbeddedChannel channel = new EmbeddedChannel(new ReceiptGate(reading), cnx);

  /** Requests of which the cursor heard late that they have a receipt. */
  private final List<Long> hurried = new ArrayList<>();

  private static ByteBuf receipt(long request) {
    return Commands.newAckResponse(request, null, null, CONSUMER);
  }

  /** A client's ack with a receipt; the cursors that it changes. */
  private void ack(long request, List<CompletableFuture<Void>> changes) {
    channel.writeInbound(
        (Runnable)
            () -> {
              changes.forEach(each -> CommandScope.waitsFor(each, () -> hurried.add(request)));
              cnx.write(receipt(request));
            });
  }

  private CommandAckResponse sent() {
    channel.runPendingTasks();
    ByteBuf frame = channel.readOutbound();
    if (frame == null) {
      return null;
    }
    byte[] bytes = new byte[frame.skipBytes(2 * Integer.BYTES).readableBytes()];
    frame.readBytes(bytes);
    frame.release();
    BaseCommand command = new BaseCommand();
    command.parseFrom(Unpooled.wrappedBuffer(bytes), bytes.length);
    return command.getAckResponse();
  }

  private List<Long> sentRequests() {
    List<Long> requests = new ArrayList<>();
    for (CommandAckResponse each; (each = sent()) != null; ) {
      assertFalse(each.hasError());
      assertEquals(CONSUMER, each.getConsumerId());
      requests.add(each.getRequestId());
    }
    return requests;
  }

  @AfterEach
  void ends() {
    channel.finishAndReleaseAll();
  }

  @Test
  void aReceiptLeavesWhenItsAckIsDurable() {
    CompletableFuture<Void> durable = new CompletableFuture<>();
    ack(1, List.of(durable));
    ack(2, List.of(durable));
    assertNull(sent());
    durable.complete(null);
    assertEquals(List.of(1L, 2L), sentRequests());
  }

  @Test
  void aReceiptWaitsForItsOwnCursorOnly() {
    CompletableFuture<Void> first = new CompletableFuture<>();
    CompletableFuture<Void> second = new CompletableFuture<>();
    ack(1, List.of(first));
    ack(2, List.of(second));
    ack(3, List.of(first));
    second.complete(null);
    assertEquals(List.of(2L), sentRequests());
    first.complete(null);
    assertEquals(List.of(1L, 3L), sentRequests());
  }

  @Test
  void aReceiptWaitsForAllThatItsCommandChanged() {
    CompletableFuture<Void> first = new CompletableFuture<>();
    CompletableFuture<Void> second = new CompletableFuture<>();
    ack(1, List.of(first, second));
    second.complete(null);
    assertNull(sent());
    first.complete(null);
    assertEquals(List.of(1L), sentRequests());
  }

  @Test
  void onlyAnUnexpectedReceiptIsHurried() {
    CompletableFuture<Void> durable = new CompletableFuture<>();
    ack(1, List.of(durable));
    channel.writeInbound(
        (Runnable) () -> cnx.write(Commands.newPong().retainedDuplicate())); // changes nothing
    ack(2, List.of(durable));
    channel.writeInbound(
        (Runnable) () -> CommandScope.waitsFor(durable, () -> {})); // an ack without one
    ack(3, List.of(durable, new CompletableFuture<>()));
    assertEquals(List.of(1L, 3L, 3L), hurried);
  }

  @Test
  void whatChangedNoKeptCursorLeavesAtOnce() {
    ack(1, List.of());
    assertEquals(List.of(1L), sentRequests());
  }

  @Test
  void anAckWithoutAReceiptMakesNoLaterReceiptWait() {
    channel.writeInbound(
        (Runnable) () -> CommandScope.waitsFor(new CompletableFuture<>(), () -> {}));
    cnx.write(receipt(1)); // of an ack within a transaction, whose log is durable
    assertEquals(List.of(1L), sentRequests());
  }

  @Test
  void aCommandThatIsReadWithinAnotherHasNothingOfIt() {
    CompletableFuture<Void> outer = new CompletableFuture<>();
    channel.writeInbound(
        (Runnable)
            () -> {
              CommandScope.waitsFor(outer, () -> {});
              channel.pipeline().firstContext().fireChannelRead((Runnable) () -> {});
              ack(1, List.of());
              cnx.write(receipt(2));
            });
    assertEquals(List.of(1L), sentRequests());
    outer.complete(null);
    assertEquals(List.of(2L), sentRequests());
  }

  @Test
  void everythingElsePasses() {
    channel.writeInbound(
        (Runnable)
            () -> {
              CommandScope.waitsFor(new CompletableFuture<>(), () -> {});
              cnx.write(Commands.newSuccess(5));
            });
    ByteBuf frame = channel.readOutbound();
    assertFalse(AckResponses.is(frame));
    frame.release();
  }

  @Test
  void whatIsNotDurableIsNotConfirmed() {
    CompletableFuture<Void> durable = new CompletableFuture<>();
    CompletableFuture<Void> other = new CompletableFuture<>();
    ack(1, List.of(durable));
    ack(2, List.of(durable, other));
    durable.completeExceptionally(new IllegalStateException("the cursor has ended"));
    other.complete(null);
    for (long request = 1; request <= 2; request++) {
      CommandAckResponse sent = sent();
      assertEquals(ServerError.PersistenceError, sent.getError());
      assertEquals("The ack is not confirmed: the cursor has ended", sent.getMessage());
      assertEquals(request, sent.getRequestId());
      assertEquals(CONSUMER, sent.getConsumerId());
    }
    assertNull(sent());
  }

  @Test
  void tooManyStopTheConnectionsReadingUntilHalfOfThemHaveLeft() {
    CompletableFuture<Void> early = new CompletableFuture<>();
    CompletableFuture<Void> late = new CompletableFuture<>();
    for (int request = 0; request < ReceiptGate.HELD_MAX; request++) {
      assertEquals(List.of(), reading.calls);
      ack(request, List.of(request % 2 == 0 ? early : late));
    }
    assertEquals(List.of("stop"), reading.calls);
    ack(ReceiptGate.HELD_MAX, List.of(early)); // was read before
    early.complete(null);
    assertEquals(ReceiptGate.HELD_MAX / 2 + 1, sentRequests().size());
    assertEquals(List.of("stop", "go on"), reading.calls);
    late.complete(null);
    assertEquals(ReceiptGate.HELD_MAX / 2, sentRequests().size());
    assertEquals(List.of("stop", "go on"), reading.calls);
  }

  @Test
  void aConnectionThatEndsForgetsItsReceipts() {
    CompletableFuture<Void> durable = new CompletableFuture<>();
    ByteBuf frame = receipt(1);
    channel.writeInbound(
        (Runnable)
            () -> {
              CommandScope.waitsFor(durable, () -> {});
              cnx.write(frame);
            });
    assertEquals(1, frame.refCnt());
    channel.close();
    assertEquals(0, frame.refCnt());
    durable.complete(null);
    assertNull(sent());
    assertEquals(List.of(), reading.calls);
  }

  @Test
  void thisPulsarsReceiptsAreKnown() {
    AckResponses.check();
  }

  /** Of the kind that 4.2 has. */
  public static class CountingTracker {
    public enum ThrottleType {
      Other,
      TopicPublishRate
    }

    private int count;

    public void markThrottled(ThrottleType type) {
      count += type == ThrottleType.TopicPublishRate ? 1 : 100;
    }

    public void unmarkThrottled(ThrottleType type) {
      count -= type == ThrottleType.TopicPublishRate ? 1 : 100;
    }
  }

  public static class Newer {
    private final CountingTracker tracker = new CountingTracker();

    public CountingTracker getThrottleTracker() {
      return tracker;
    }
  }

  public static class Older {
    private int count;

    public void incrementThrottleCount() {
      count++;
    }

    public void decrementThrottleCount() {
      count--;
    }
  }

  @Test
  void bothOfPulsarsSwitchesAreKnown() {
    Newer newer = new Newer();
    ReadingSwitch.OfConnection ofNewer = ReadingSwitch.find(Newer.class).of(newer);
    ofNewer.stop();
    assertEquals(1, newer.tracker.count);
    ofNewer.goOn();
    assertEquals(0, newer.tracker.count);
    Older older = new Older();
    ReadingSwitch.OfConnection ofOlder = ReadingSwitch.find(Older.class).of(older);
    ofOlder.stop();
    assertEquals(1, older.count);
    ofOlder.goOn();
    assertEquals(0, older.count);
  }

  @Test
  void aPulsarWithNeitherIsNamed() {
    RuntimeException refused =
        assertThrows(RuntimeException.class, () -> ReadingSwitch.find(String.class));
    assertTrue(
        refused.getMessage().contains("brokerInterceptors=cursorkeeper-receipts"),
        refused.getMessage());
    assertTrue(
        refused.getMessage().contains("leave cursorkeeper-receipts out"), refused.getMessage());
  }
}
