package io.cursorkeeper.gateway.service;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.ssl.SslHandler;

/**
 * Puts {@link Frames} behind the handler of TLS, where frames of HTTP/2 come out. That handler is
 * there when the first bytes come, and not yet when the connection is accepted.
 */
final class FramesBehindTls extends ChannelInboundHandlerAdapter {
  @Override
  public void channelRead(ChannelHandlerContext context, Object message) {
    var pipeline = context.pipeline();
    SslHandler tls = pipeline.get(SslHandler.class);
    if (tls == null) {
      throw new IllegalStateException("a port of TLS has no handler of TLS");
    }
    pipeline.addAfter(pipeline.context(tls).name(), null, new Frames());
    context.fireChannelRead(message);
    pipeline.remove(this);
  }
}
