package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class FramesTest {
  private static final byte[] PREFACE =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

  private static byte[] frame(int body) {
    ByteBuf bytes = Unpooled.buffer().writeMedium(body).writeByte(0).writeByte(0).writeInt(1);
    for (int at = 0; at < body; at++) {
      bytes.writeByte(at);
    }
    byte[] made = new byte[bytes.readableBytes()];
    bytes.readBytes(made);
    return made;
  }

  private static byte[] joined(List<byte[]> parts) {
    ByteBuf all = Unpooled.buffer();
    parts.forEach(all::writeBytes);
    byte[] made = new byte[all.readableBytes()];
    all.readBytes(made);
    return made;
  }

  /** What comes out, taken from and released. */
  private static List<byte[]> out(EmbeddedChannel channel) {
    List<byte[]> found = new ArrayList<>();
    for (ByteBuf next = channel.readInbound(); next != null; next = channel.readInbound()) {
      byte[] bytes = new byte[next.readableBytes()];
      next.readBytes(bytes);
      found.add(bytes);
      next.release();
    }
    return found;
  }

  @Test
  void eachFrameComesInABufferOfItsOwnHoweverItArrives() {
    for (int seed = 0; seed < 50; seed++) {
      Random chance = new Random(seed);
      List<byte[]> sent = new ArrayList<>();
      for (int at = 0; at < 20; at++) {
        sent.add(frame(chance.nextInt(4) == 0 ? chance.nextInt(16_385) : chance.nextInt(20)));
      }
      byte[] all = joined(List.of(PREFACE, joined(sent)));
      EmbeddedChannel channel = new EmbeddedChannel(new Frames());
      for (int at = 0; at < all.length; ) {
        int length =
            Math.min(all.length - at, 1 + chance.nextInt(chance.nextBoolean() ? 12 : 40_000));
        ByteBuf piece = Unpooled.copiedBuffer(all, at, length);
        ByteBuf kept = piece.retainedDuplicate();
        channel.writeInbound(piece);
        if (at >= PREFACE.length) {
          assertEquals(1, kept.refCnt(), "nobody but this test keeps what arrived");
        }
        kept.release();
        at += length;
      }
      List<byte[]> got = out(channel);
      assertArrayEquals(all, joined(got));
      List<byte[]> frames = got.subList(got.size() - sent.size(), got.size());
      for (int at = 0; at < sent.size(); at++) {
        assertArrayEquals(sent.get(at), frames.get(at));
      }
    }
  }

  @Test
  void whatIsNoFrameIsPassedOnAsItIs() {
    byte[] large =
        Unpooled.buffer().writeMedium(16_385).writeByte(0).writeByte(0).writeInt(1).array();
    byte[] all =
        joined(List.of(PREFACE, frame(3), java.util.Arrays.copyOf(large, 9), new byte[50_000]));
    EmbeddedChannel channel = new EmbeddedChannel(new Frames());
    channel.writeInbound(Unpooled.copiedBuffer(all, 0, 40));
    channel.writeInbound(Unpooled.copiedBuffer(all, 40, all.length - 40));
    assertArrayEquals(all, joined(out(channel)));
  }

  @Test
  void halfAFrameIsLetGoWithItsConnection() {
    EmbeddedChannel channel = new EmbeddedChannel(new Frames());
    byte[] half = joined(List.of(PREFACE, frame(1_000)));
    ByteBuf piece = Unpooled.copiedBuffer(half, 0, 500);
    channel.writeInbound(piece);
    out(channel);
    assertEquals(0, piece.refCnt());
    assertFalse(channel.finish());
    assertTrue(out(channel).isEmpty());
  }
}
