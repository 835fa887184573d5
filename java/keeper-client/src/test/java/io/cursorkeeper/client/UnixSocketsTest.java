package io.cursorkeeper.client;

import static io.cursorkeeper.client.Testing.failure;
import static io.cursorkeeper.client.Testing.settings;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.client.KeeperException.Code;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Sockets of the file system, as a transport uses them, and what is said where none can be had. */
@Timeout(value = Testing.WAIT_MAX_S, unit = TimeUnit.SECONDS)
class UnixSocketsTest {

  @TempDir private Path folder;
  private final List<AutoCloseable> open = new ArrayList<>();

  @AfterEach
  void close() throws Exception {
    for (AutoCloseable each : open) {
      each.close();
    }
  }

  private UnixAddress address(String name) {
    return new UnixAddress(folder.resolve(name).toString());
  }

  private ServerSocketChannel listen(UnixAddress address, int backlog) throws IOException {
    ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    open.add(server);
    return server.bind(UnixDomainSocketAddress.of(address.path()), backlog);
  }

  private Socket dial(UnixAddress address) throws IOException {
    Socket made = new UnixSockets(address).createSocket("anything", 1);
    open.add(made);
    return made;
  }

  private IOException refused(UnixAddress address) {
    return assertThrows(IOException.class, () -> dial(address));
  }

  @Test
  void anAddressIsAnAbsolutePathOfAFewBytes() {
    assertEquals("/a/b.sock", UnixAddress.of("unix:/a/b.sock").path());
    assertEquals("unix:/a/b.sock", UnixAddress.of("unix:///a/b.sock").toString());
    assertTrue(UnixAddress.is("unix:b.sock") && !UnixAddress.is("localhost:1"));
    String longest = "unix:/" + "é".repeat(53);
    assertEquals(longest, UnixAddress.of(longest).toString());
    for (String wrong :
        List.of("unix:", "unix:b.sock", "unix://host/b.sock", longest + "x", "unix:/a\0b")) {
      String said =
          assertThrows(
                  IllegalArgumentException.class, () -> LinkSettings.of(wrong, Testing.ANSWERS))
              .getMessage();
      assertTrue(said.contains(wrong) && said.contains("write unix: and the absolute path"), said);
    }
  }

  @Test
  void whoReadsDoesNotHoldUpWhoWrites() throws Exception {
    ServerSocketChannel server = listen(address("s"), 1);
    Socket here = dial(address("s"));
    SocketChannel there = server.accept();
    open.add(there);
    byte[] sent = new byte[3 << 20];
    new Random(1).nextBytes(sent);
    CompletableFuture<byte[]> answer =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return here.getInputStream().readNBytes(sent.length);
              } catch (IOException e) {
                throw new AssertionError(e);
              }
            },
            Testing.ANSWERS);
    CompletableFuture<Void> writing =
        CompletableFuture.runAsync(
            () -> {
              try {
                here.getOutputStream().write(sent);
                here.getOutputStream().write(7);
              } catch (IOException e) {
                throw new AssertionError(e);
              }
            },
            Testing.ANSWERS);
    byte[] heard = Channels.newInputStream(there).readNBytes(sent.length + 1);
    writing.get();
    assertFalse(answer.isDone());
    assertEquals(7, heard[sent.length]);
    ByteBuffer back = ByteBuffer.wrap(heard, 0, sent.length);
    while (back.hasRemaining()) {
      there.write(back);
    }
    assertArrayEquals(sent, answer.get());
    there.write(ByteBuffer.wrap(new byte[] {-1}));
    there.close();
    assertEquals(255, here.getInputStream().read());
    assertEquals(-1, here.getInputStream().read());
  }

  @Test
  void toCloseEndsARead() throws Exception {
    listen(address("s"), 1);
    Socket here = dial(address("s"));
    CompletableFuture<IOException> ended =
        CompletableFuture.supplyAsync(
            () -> assertThrows(IOException.class, () -> here.getInputStream().read()),
            Testing.ANSWERS);
    Thread.sleep(50); // it may not have begun: then it ends all the same
    assertFalse(ended.isDone());
    here.close();
    // the transport tells it from a fault by this word
    assertEquals("Socket closed", ended.get().getMessage());
    assertTrue(here.isClosed());
    assertThrows(SocketException.class, here::getOutputStream);
  }

  @Test
  void aTransportMayAskForItsOptions() throws Exception {
    listen(address("s"), 1);
    Socket here = dial(address("s"));
    here.setTcpNoDelay(true);
    here.setSoTimeout(0);
    here.setKeepAlive(true);
    assertEquals(0, here.getSoTimeout());
    assertEquals(-1, here.getSoLinger());
    assertTrue(here.getRemoteSocketAddress() != null && here.getLocalSocketAddress() != null);
    assertTrue(
        assertThrows(SocketException.class, () -> here.setSoTimeout(1))
            .getMessage()
            .contains("close ends a read"));
  }

  @Test
  void whoTakesNobodyIsGivenUp() throws Exception {
    listen(address("s"), 1);
    UnixSockets impatient = new UnixSockets(address("s"), Duration.ofMillis(200));
    SocketTimeoutException late =
        assertThrows(
            SocketTimeoutException.class,
            () -> {
              for (int waiting = 0; waiting < 10; waiting++) {
                open.add(impatient.createSocket("anything", 1));
              }
            });
    assertTrue(late.getMessage().contains("not connected within 200 ms"), late.getMessage());
  }

  @Test
  void whatIsWrongWithAPathIsSaid() throws Exception {
    assertTrue(refused(address("none")).getMessage().contains("no socket is there: start"));
    assertTrue(refused(address("none/below")).getMessage().contains("in a folder that both see"));
    Files.writeString(folder.resolve("file"), "");
    assertTrue(refused(address("file")).getMessage().contains("it is no socket: name"));
    assertTrue(refused(new UnixAddress(folder.toString())).getMessage().contains("no socket: "));
    listen(address("left"), 1).close();
    String left = refused(address("left")).getMessage();
    assertTrue(left.contains("unix:" + folder) && left.contains("has ended; start it"), left);
  }

  @Test
  void aLinkSaysWhatIsWrongWithItsSocket() {
    LinkSettings nobody =
        settings(address("none").toString())
            .withTimeouts(Duration.ofSeconds(1), Duration.ofSeconds(30));
    try (KeeperLink link = KeeperLink.connect(nobody)) {
      KeeperException away = failure(link.open(OpenRequest.of("t", "s"), new Recorder()));
      assertEquals(Code.AWAY, away.code());
      assertTrue(away.getMessage().contains("no socket is there: start the daemon"), away + "");
      assertTrue(link.status().problem().orElseThrow().contains(address("none").toString()));
    }
  }
}
