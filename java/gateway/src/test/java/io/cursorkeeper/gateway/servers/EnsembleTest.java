package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class EnsembleTest {
  private static final String THREE = "1=zk-1:2888:3888, 2=zk-2:2888:3888,3=10.0.0.3:2889:3889";

  private static String complaint(int serverId, String servers) {
    return assertThrows(IllegalArgumentException.class, () -> Ensemble.of(serverId, servers))
        .getMessage();
  }

  @Test
  void membersAreRead() {
    assertEquals(Ensemble.NONE, Ensemble.of(0, ""));
    assertEquals(
        new Ensemble(3, Map.of(1, "zk-1:2888:3888", 2, "zk-2:2888:3888", 3, "10.0.0.3:2889:3889")),
        Ensemble.of(3, THREE));
  }

  @Test
  void mistakesAreNamed() {
    assertTrue(complaint(4, THREE).contains("no member 4"));
    assertTrue(complaint(0, THREE).contains("belong together"));
    assertTrue(complaint(1, "").contains("belong together"));
    assertTrue(complaint(1, "1=zk-1:2888:3888,1=zk-2:2888:3888").contains("number 1 twice"));
    assertTrue(complaint(1, "1=zk-1:2888").contains("has 1=zk-1:2888, expected NUMBER=HOST"));
    assertTrue(complaint(1, "300=zk-1:2888:3888").contains("allowed is 1 to 255"));
  }

  @Test
  void aFolderBelongsToOneMember(@TempDir Path data) throws Exception {
    Ensemble.of(2, THREE).claim(data);
    Ensemble.of(2, THREE).claim(data);
    assertEquals("2", Files.readString(data.resolve("myid")).trim());
    String refused =
        assertThrows(IllegalStateException.class, () -> Ensemble.of(1, THREE).claim(data))
            .getMessage();
    assertTrue(refused.contains("belongs to member 2"), refused);
  }

  @Test
  void limitsAreTimesWhateverATickIs() {
    Properties fast = new Properties();
    Ensemble.of(1, THREE).configure(fast, "0.0.0.0", 100);
    Properties slow = new Properties();
    Ensemble.of(1, THREE).configure(slow, "127.0.0.1", 4_000);
    assertEquals("150", fast.getProperty("initLimit"));
    assertEquals("50", fast.getProperty("syncLimit"));
    assertEquals("4", slow.getProperty("initLimit"));
    assertEquals("2", slow.getProperty("syncLimit"));
    assertEquals("true", fast.getProperty("quorumListenOnAllIPs"));
    assertEquals("false", slow.getProperty("quorumListenOnAllIPs"));
    Properties alone = new Properties();
    Ensemble.NONE.configure(alone, "0.0.0.0", 500);
    assertTrue(alone.isEmpty());
  }
}
