package io.cursorkeeper.gateway.servers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The members of a ZooKeeper ensemble and which of them this one is; no members: the server is
 * alone.
 *
 * <p>Limits are given in time and converted, because ZooKeeper counts ticks. A folder belongs to
 * one member for good.
 *
 * @param serverId 0: alone
 * @param members by number, as HOST:PEER_PORT:ELECTION_PORT
 */
record Ensemble(int serverId, Map<Integer, String> members) {
  static final Ensemble NONE = new Ensemble(0, Map.of());
  static final int ID_MAX = 255;

  private static final Pattern MEMBER =
      Pattern.compile("(\\d{1,3})=([A-Za-z0-9._-]+:\\d{1,5}:\\d{1,5})");
  private static final int INIT_MAX_MS = 15_000;
  private static final int SYNC_MAX_MS = 5_000;

  /** ZooKeeper's own 60 s keep a member waiting that long after its peers became reachable. */
  private static final int ELECTION_RETRY_MAX_MS = 1_000;

  private static final int CONNECT_MAX_MS = 2_000;

  /** The two flags; throws IllegalArgumentException with a message for people. */
  static Ensemble of(int serverId, String servers) {
    Map<Integer, String> members = new TreeMap<>();
    for (String member : servers.isBlank() ? new String[0] : servers.split(",")) {
      Matcher parts = MEMBER.matcher(member.trim());
      require(
          parts.matches(),
          "--servers has " + member + ", expected NUMBER=HOST:PEER_PORT:ELECTION_PORT");
      int id = Integer.parseInt(parts.group(1));
      require(
          id >= 1 && id <= ID_MAX, "--servers has number " + id + ", allowed is 1 to " + ID_MAX);
      require(members.put(id, parts.group(2)) == null, "--servers has number " + id + " twice");
    }
    require(members.isEmpty() == (serverId == 0), "--servers and --server-id belong together");
    require(serverId == 0 || members.containsKey(serverId), "--servers has no member " + serverId);
    return new Ensemble(serverId, members);
  }

  /**
   * Marks the data folder as this member's; throws if it is another's, whose votes it would then
   * give twice.
   */
  void claim(Path data) throws IOException {
    if (serverId == 0) {
      return;
    }
    Path file = data.resolve("myid");
    String mine = Integer.toString(serverId);
    if (!Files.exists(file)) {
      Files.writeString(file, mine + "\n");
    } else if (!Files.readString(file).trim().equals(mine)) {
      throw new IllegalStateException(
          data
              + " belongs to member "
              + Files.readString(file).trim()
              + " of its ensemble, not to "
              + mine);
    }
  }

  /** Adds what a member needs to the configuration of a server. */
  void configure(Properties config, String host, int tickMs) {
    if (serverId == 0) {
      return;
    }
    members.forEach((id, address) -> config.setProperty("server." + id, address));
    config.setProperty("initLimit", Integer.toString(ticks(INIT_MAX_MS, tickMs)));
    config.setProperty("syncLimit", Integer.toString(ticks(SYNC_MAX_MS, tickMs)));
    // Who serves clients everywhere listens to peers everywhere: a container's own name need not
    // resolve to an address
    // of its own. Otherwise it is the address in the list.
    config.setProperty("quorumListenOnAllIPs", Boolean.toString(host.equals("0.0.0.0")));
    // Only to be had as properties of the JVM.
    System.setProperty(
        "zookeeper.fastleader.maxNotificationInterval", Integer.toString(ELECTION_RETRY_MAX_MS));
    System.setProperty("zookeeper.cnxTimeout", Integer.toString(CONNECT_MAX_MS));
  }

  private static int ticks(int ms, int tickMs) {
    return Math.max(2, (ms + tickMs - 1) / tickMs);
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
