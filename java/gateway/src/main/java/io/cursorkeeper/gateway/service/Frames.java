package io.cursorkeeper.gateway.service;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;

/**
 * Passes each frame of HTTP/2 on in a buffer of its own. A frame that waits, for the rest of its
 * message or for somebody who asks for it, would else keep the whole buffer that it arrived in: a
 * byte of a message, repeated, 64 KiB each.
 *
 * <p>What is not HTTP/2, or larger than a frame may be, is passed on as it comes: whoever reads it
 * ends the connection.
 */
final class Frames extends ChannelInboundHandlerAdapter {
  private static final int HEAD_BYTES = 9;
  private static final int PREFACE_BYTES = 24;

  /** What HTTP/2 allows unless somebody says otherwise, and the gateway does not. */
  private static final int BODY_BYTES_MAX = 16 << 10;

  /**
   * Larger ones are in no pool: one that messages leave in any order keeps up to three times their
   * bytes.
   */
  private static final int POOLED_BYTES_MAX = 4 << 10;

  private final ByteBuf head = Unpooled.buffer(HEAD_BYTES, HEAD_BYTES);
  private int prefaceLeft = PREFACE_BYTES;
  private ByteBuf frame;
  private boolean isOther;

  @Override
  public void channelRead(ChannelHandlerContext context, Object message) {
    if (isOther || !(message instanceof ByteBuf bytes)) {
      context.fireChannelRead(message);
      return;
    }
    try {
      int preface = Math.min(prefaceLeft, bytes.readableBytes());
      prefaceLeft -= preface;
      if (preface > 0) {
        context.fireChannelRead(bytes.readRetainedSlice(preface));
      }
      while (bytes.isReadable() && !isOther) {
        split(context, bytes);
      }
      if (bytes.isReadable()) {
        context.fireChannelRead(bytes.readRetainedSlice(bytes.readableBytes()));
      }
    } finally {
      bytes.release();
    }
  }

  @Override
  public void handlerRemoved(ChannelHandlerContext context) {
    if (frame != null) {
      frame.release();
      frame = null;
    }
  }

  private void split(ChannelHandlerContext context, ByteBuf bytes) {
    if (frame == null) {
      bytes.readBytes(head, Math.min(head.writableBytes(), bytes.readableBytes()));
      if (head.isWritable()) {
        return;
      }
      int body = head.getUnsignedMedium(0);
      isOther = body > BODY_BYTES_MAX;
      int size = HEAD_BYTES + (isOther ? 0 : body);
      frame = (size > POOLED_BYTES_MAX ? Memory.exact() : context.alloc()).directBuffer(size, size);
      frame.writeBytes(head, 0, HEAD_BYTES);
      head.clear();
    }
    bytes.readBytes(frame, Math.min(frame.writableBytes(), bytes.readableBytes()));
    if (!frame.isWritable()) {
      ByteBuf whole = frame;
      frame = null;
      context.fireChannelRead(whole);
    }
  }
}
