package io.cursorkeeper.gateway.append;

import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.buffer.UnpooledHeapByteBuf;

/**
 * The bytes of one entry, counted in the window for as long as anybody holds them. The BookKeeper
 * client answers an add and may go on holding its bytes: in the connection to a bookie that takes
 * none, until that ends.
 */
final class Payload extends UnpooledHeapByteBuf {
  private final Window window;
  private final int bytes;

  /** Takes its room in the window; whoever lets go of it last gives that back. */
  Payload(byte[] entry, Window window) {
    super(UnpooledByteBufAllocator.DEFAULT, entry, entry.length);
    this.window = window;
    this.bytes = entry.length;
    window.take(bytes);
  }

  @Override
  protected void deallocate() {
    super.deallocate();
    window.release(bytes);
  }
}
