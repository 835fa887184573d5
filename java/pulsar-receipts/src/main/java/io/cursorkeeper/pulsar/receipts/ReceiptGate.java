package io.cursorkeeper.pulsar.receipts;

import io.cursorkeeper.pulsar.CommandScope;
import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves clients that ask for receipts of their acks: in one connection, directly before Pulsar's
 * handler. Holds a receipt until what its ack changed is durable; then lets it go, or says that it
 * failed.
 *
 * <p>Invariants. Everything runs on the connection's event loop. A receipt waits for what its own
 * command changed and for nothing else: those that Pulsar writes later, of acks within
 * transactions, wait for the transaction's log by themselves. All that wait for the same future are
 * one group and leave together, in their order. {@link #HELD_MAX} receipts at most are held, and
 * those of commands that were read before the connection stopped: from there on nothing is read
 * until half of them have left. Those of a connection that is closed are dropped.
 */
final class ReceiptGate extends ChannelDuplexHandler {

  private static final Logger LOG = LoggerFactory.getLogger(ReceiptGate.class);

  static final int HELD_MAX = 10_000;

  private record Receipt(ByteBuf frame, ChannelPromise promise) {}

  private final ReadingSwitch.OfConnection reading;

  /** By what they wait for: that very future. */
  private final Map<CompletableFuture<Void>, List<Receipt>> groups = new IdentityHashMap<>();

  private final CommandScope ownScope = new CommandScope();
  private CommandScope scope;

  /** Whether the last ack of the connection had a receipt: so has the next one, about. */
  private boolean hasReceipts;

  private int held;
  private boolean stopped;
  private boolean closed;

  ReceiptGate(ReadingSwitch.OfConnection reading) {
    this.reading = reading;
  }

  @Override
  public void channelRead(ChannelHandlerContext ctx, Object command) {
    CommandScope outer = scope;
    scope = ownScope.open(hasReceipts);
    try {
      ctx.fireChannelRead(command);
    } finally {
      scope.close();
      hasReceipts = scope.durable() == null ? hasReceipts : scope.hasReceipt();
      scope = outer;
    }
  }

  @Override
  public void write(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
    CompletableFuture<Void> durable = scope == null ? null : scope.durable();
    if (durable == null
        || closed
        || !(message instanceof ByteBuf frame)
        || !AckResponses.is(frame)) {
      ctx.write(message, promise);
      return;
    }
    List<Receipt> group = groups.get(durable);
    if (group == null) {
      group = new ArrayList<>();
      groups.put(durable, group);
      durable.whenComplete(
          (nothing, failure) -> ctx.executor().execute(() -> release(ctx, durable, failure)));
    }
    group.add(new Receipt(frame, promise));
    held++;
    scope.expect();
    if (held >= HELD_MAX && !stopped) {
      stopped = true;
      LOG.warn(
          "[{}] {} receipts of acks wait for the CursorKeeper daemon: nothing more is read from"
              + " this connection until half of them have left",
          ctx.channel(),
          held);
      reading.stop();
    }
  }

  private void release(
      ChannelHandlerContext ctx, CompletableFuture<Void> durable, Throwable failure) {
    List<Receipt> group = groups.remove(durable);
    if (group == null) {
      return;
    }
    held -= group.size();
    for (Receipt each : group) {
      ctx.write(failure == null ? each.frame : failed(each.frame, failure), each.promise);
    }
    ctx.flush();
    if (stopped && held <= HELD_MAX / 2) {
      stopped = false;
      LOG.info("[{}] Reads on: {} receipts of acks wait", ctx.channel(), held);
      reading.goOn();
    }
  }

  private static ByteBuf failed(ByteBuf frame, Throwable failure) {
    try {
      return AckResponses.failed(
          frame,
          failure instanceof CompletionException && failure.getCause() != null
              ? failure.getCause()
              : failure);
    } finally {
      frame.release();
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    drop();
    ctx.fireChannelInactive();
  }

  @Override
  public void handlerRemoved(ChannelHandlerContext ctx) {
    drop();
  }

  /** Nobody hears them any more. */
  private void drop() {
    closed = true;
    groups.values().forEach(group -> group.forEach(each -> each.frame.release()));
    groups.clear();
    held = 0;
  }
}
