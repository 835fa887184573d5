package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.ledgers.v1.FenceReply;
import io.cursorkeeper.ledgers.v1.FenceRequest;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerCall;
import io.grpc.Status;
import org.junit.jupiter.api.Test;

class PeersTest {
  private static final MethodDescriptor<FenceRequest, FenceReply> FENCE =
      LedgersGrpc.getFenceMethod();
  private static final FenceReply ANSWER = FenceReply.newBuilder().setLength(1_000).build();
  private static final int ROOM = 1_000;

  private final Peers peers = new Peers(new Connections(2), 8, 1_000, ROOM, 1_000, refused -> {});

  private Peers.Peer peer() {
    return (Peers.Peer) peers.newServerStreamTracer(FENCE.getFullMethodName(), new Metadata());
  }

  private static final class Silent extends ServerCall<FenceRequest, FenceReply> {
    @Override
    public void request(int count) {}

    @Override
    public void sendHeaders(Metadata headers) {}

    @Override
    public void sendMessage(FenceReply answer) {}

    @Override
    public void close(Status status, Metadata trailers) {}

    @Override
    public boolean isCancelled() {
      return false;
    }

    @Override
    public MethodDescriptor<FenceRequest, FenceReply> getMethodDescriptor() {
      return FENCE;
    }
  }

  // The call as the service sees it.
  private ServerCall<?, FenceReply> begun(Peers.Peer peer) throws Exception {
    ServerCall<?, FenceReply>[] seen = new ServerCall[1];
    peer.filterContext(Context.ROOT.withCancellation())
        .call(
            () ->
                peers.interceptCall(
                    new Silent(),
                    new Metadata(),
                    (call, headers) -> {
                      seen[0] = call;
                      return new ServerCall.Listener<>() {};
                    }));
    return seen[0];
  }

  @Test
  void anAnswerIsCountedUntilItsCallEnds() throws Exception {
    Peers.Peer peer = peer();
    begun(peer).sendMessage(ANSWER);
    assertEquals(ANSWER.getSerializedSize(), peers.replyBytes());
    peer.streamClosed(Status.OK);
    assertEquals(0, peers.replyBytes());
  }

  @Test
  void anAnswerToACallThatHasEndedIsNotCounted() throws Exception {
    Peers.Peer peer = peer();
    ServerCall<?, FenceReply> call = begun(peer);
    assertTrue(peer.reserves(100));
    peer.streamClosed(Status.CANCELLED);
    call.sendMessage(ANSWER);
    assertFalse(peer.reserves(1));
    assertEquals(0, peers.replyBytes());
  }

  @Test
  void whatIsReservedForAnAnswerIsNotCountedTwice() throws Exception {
    Peers.Peer peer = peer();
    ServerCall<?, FenceReply> call = begun(peer);
    assertTrue(peer.reserves(100));
    call.sendMessage(ANSWER);
    assertEquals(100, peers.replyBytes());
    peer.streamClosed(Status.OK);
    assertEquals(0, peers.replyBytes());
  }

  @Test
  void halfOfTheRoomIsKeptForAnswersThatMustBeGiven() {
    assertTrue(peer().reserves(ROOM / 2));
    assertFalse(peer().reserves(1));
    assertEquals(ROOM / 2, peers.replyBytes());
  }
}
