package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.process.OutOfMemory;
import io.netty.buffer.ByteBufAllocator;
import io.netty.util.internal.PlatformDependent;
import org.apache.bookkeeper.common.allocator.ByteBufAllocatorBuilder;
import org.apache.bookkeeper.common.allocator.OutOfMemoryPolicy;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;

/**
 * The one byte budget of the process, by what the JVM was given, and the allocator of everything
 * that travels. Shares are fixed, so that no kind of work can take another's room: appends wait for
 * appends, reads for reads.
 *
 * <p>An append is in memory once on the heap and once for each of its copies beside it; a read once
 * where it arrives and once where it leaves. So an eighth is what each of them may announce, and a
 * quarter what messages may hold that are not taken yet.
 */
final class Memory {
  private static final long APPEND_BYTES_MAX = 64L << 20;
  private static final long READ_BYTES_MAX = 256L << 20;
  private static final int CONNECTIONS_MIN = 64;
  private static final int CONNECTIONS_MAX = 1_024;

  /** What a connection may send ahead of what is asked for; HTTP/2 keeps to it. */
  static final int CONNECTION_WINDOW_BYTES = 512 << 10;

  private static final ByteBufAllocator EXACT = allocator(PoolingPolicy.UnpooledHeap);

  private Memory() {}

  /** The smaller of the heap and of Netty's memory beside it. */
  static long bytes() {
    return Math.min(Runtime.getRuntime().maxMemory(), PlatformDependent.maxDirectMemory());
  }

  /** Bytes of entries between append streams and bookies. */
  static long appendBytes() {
    return Math.min(APPEND_BYTES_MAX, bytes() / 8);
  }

  /** Bytes between bookies and writers that read, and as much again for everybody else. */
  static long readBytes() {
    return Math.min(READ_BYTES_MAX, bytes() / 8);
  }

  /** Bytes of messages that have arrived, wholly or in part, and are not taken yet. */
  static long heldBytes() {
    return bytes() / 4;
  }

  /** Bytes of answers of lone calls that their callers have not taken yet. */
  static long replyBytes() {
    return bytes() / 16;
  }

  static int connections() {
    return (int)
        Math.max(CONNECTIONS_MIN, Math.min(CONNECTIONS_MAX, bytes() / 4 / CONNECTION_WINDOW_BYTES));
  }

  /**
   * For all buffers of calls and of the BookKeeper client: one that cannot be had ends the process.
   */
  static ByteBufAllocator allocator() {
    return allocator(PoolingPolicy.PooledDirect);
  }

  /** For what messages that wait are made of: no pool keeps more than they hold. */
  static ByteBufAllocator exact() {
    return EXACT;
  }

  private static ByteBufAllocator allocator(PoolingPolicy pooling) {
    return ByteBufAllocatorBuilder.create()
        .poolingPolicy(pooling)
        .outOfMemoryPolicy(OutOfMemoryPolicy.ThrowException)
        .outOfMemoryListener(OutOfMemory::look)
        .build();
  }
}
