package io.cursorkeeper.gateway.systems;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.servers.ZooKeeperNode;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A session that was lost is followed by one of the same user. */
class DigestSessionsTest {
  private static final byte[] WHO = "me:secret".getBytes(StandardCharsets.UTF_8);
  private static final int SESSION_MS = 10_000;
  private static final byte[] CONTENT = {1};

  @Test
  void theNextSessionIsTheSameUsers(@TempDir Path folder) throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    ZooKeeperNode node =
        ZooKeeperNode.start(
            ZooKeeperNode.Settings.of(
                Flags.parse(
                    ZooKeeperNode.FLAGS,
                    "--data-dir",
                    folder.resolve("zookeeper").toString(),
                    "--port",
                    Integer.toString(port))));
    String at = "127.0.0.1:" + port;
    try (DigestSessions mine = DigestSessions.connect(at, SESSION_MS, WHO, 0)) {
      mine.create("/mine", CONTENT, ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
      try (ZooKeeper stranger = new ZooKeeper(at, SESSION_MS, event -> {})) {
        assertThrows(
            KeeperException.NoAuthException.class, () -> stranger.getData("/mine", false, null));
      }
      long first = mine.getSessionId();
      byte[] got = null;
      long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (got == null && System.nanoTime() < until) {
        try {
          if (mine.getSessionId() == first) {
            end(at, first, mine.getSessionPasswd());
          } else {
            got = mine.getData("/mine", false, null);
          }
        } catch (KeeperException.ConnectionLossException
            | KeeperException.SessionExpiredException notYet) {
          // Looked at again below.
        }
        Thread.sleep(50);
      }
      assertArrayEquals(CONTENT, got);
      assertNotEquals(first, mine.getSessionId());
      assertTrue(mine.getState().isConnected());
    } finally {
      node.stop();
    }
  }

  /** Who ends it from elsewhere makes it expire, unless its owner takes it back in between. */
  private static void end(String at, long session, byte[] password) throws Exception {
    CountDownLatch connected = new CountDownLatch(1);
    try (ZooKeeper same =
        new ZooKeeper(at, SESSION_MS, event -> connected.countDown(), session, password)) {
      assertTrue(connected.await(SESSION_MS, TimeUnit.MILLISECONDS));
    }
  }
}
