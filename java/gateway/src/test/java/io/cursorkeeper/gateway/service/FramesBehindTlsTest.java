package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandler;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.ssl.SslHandler;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import org.junit.jupiter.api.Test;

class FramesBehindTlsTest {

  @Test
  void framesAreLookedForInWhatComesOutOfTls() throws Exception {
    SSLEngine engine = SSLContext.getDefault().createSSLEngine();
    engine.setUseClientMode(false);
    EmbeddedChannel connection = new EmbeddedChannel(new FramesBehindTls());
    // as gRPC does, after the connection was accepted
    connection.pipeline().addLast(new SslHandler(engine));
    // the beginning of a record of TLS
    connection.writeInbound(Unpooled.wrappedBuffer(new byte[] {0x16, 3, 1, 2, 0}));
    List<Class<?>> handlers = new ArrayList<>();
    for (var handler : connection.pipeline()) {
      ChannelHandler made = handler.getValue();
      handlers.add(made.getClass());
    }
    assertTrue(
        handlers.subList(0, 2).equals(List.of(SslHandler.class, Frames.class)),
        handlers.toString());
    connection.close();
  }
}
