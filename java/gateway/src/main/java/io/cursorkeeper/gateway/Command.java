package io.cursorkeeper.gateway;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.process.Lifetime;
import io.cursorkeeper.gateway.process.OutOfMemory;
import io.cursorkeeper.gateway.process.Ready;
import io.cursorkeeper.gateway.servers.AutoRecoveryNode;
import io.cursorkeeper.gateway.servers.BookieNode;
import io.cursorkeeper.gateway.servers.BookieSettings;
import io.cursorkeeper.gateway.servers.Cluster;
import io.cursorkeeper.gateway.servers.Standalone;
import io.cursorkeeper.gateway.servers.ZooKeeperNode;
import io.cursorkeeper.gateway.service.Gateway;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.SettingsFile;
import io.cursorkeeper.gateway.systems.Systems;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The commands of the jar: a word, its flags, and what it starts. Every long-running one prints one
 * ready line.
 */
enum Command {
  GATEWAY("gateway") {
    @Override
    List<Flag> ownFlags() {
      List<Flag> flags = new ArrayList<>(GatewaySettings.FLAGS);
      flags.addAll(0, Systems.FLAGS);
      return flags;
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      Gateway gateway =
          Gateway.start(GatewaySettings.of(Systems.withBrokersTokens(flags)), Systems.of(flags));
      lifetime.add("gateway", gateway::stop);
      Ready ready = new Ready(word()).with("gateway", gateway.address());
      gateway.metricsAddress().ifPresent(address -> ready.with("metrics", address));
      ready.print();
    }
  },

  STANDALONE("standalone") {
    @Override
    List<Flag> ownFlags() {
      List<Flag> flags = new ArrayList<>(GatewaySettings.FLAGS);
      flags.addAll(0, Standalone.FLAGS);
      return flags;
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      Standalone.start(flags, lifetime).print();
    }
  },

  ZOOKEEPER("zookeeper") {
    @Override
    List<Flag> ownFlags() {
      return ZooKeeperNode.FLAGS;
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      ZooKeeperNode node = ZooKeeperNode.start(ZooKeeperNode.Settings.of(flags));
      lifetime.add("zookeeper", node::stop);
      node.onDeath(lifetime::died);
      node.awaitServing();
      new Ready(word()).with("zookeeper", node.address()).print();
    }
  },

  BOOKIE("bookie") {
    @Override
    List<Flag> ownFlags() {
      return BookieSettings.FLAGS;
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      BookieNode node = BookieNode.start(BookieSettings.of(flags), lifetime::died);
      lifetime.add("bookie", node::stop);
      new Ready(word()).with("bookie", node.address()).print();
    }
  },

  AUTORECOVERY("autorecovery") {
    @Override
    List<Flag> ownFlags() {
      return AutoRecoveryNode.FLAGS;
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      AutoRecoveryNode node = AutoRecoveryNode.start(flags, lifetime::died);
      lifetime.add("autorecovery", node::stop);
      new Ready(word()).with("autorecovery", node.identity()).print();
    }
  },

  INIT_CLUSTER("init-cluster") {
    @Override
    List<Flag> ownFlags() {
      return List.of(
          Flag.required("metadata-service-uri", "zk+hierarchical://HOST:PORT/ledgers"),
          Flag.number("wait-s", 0, "let ZooKeeper take this long to answer"),
          Flag.text("bookie-conf", "", "file of BookKeeper's own settings, as its bookies have"));
    }

    @Override
    void start(Flags flags, Lifetime lifetime) throws Exception {
      boolean created =
          Cluster.initialise(
              flags.text("metadata-service-uri"),
              SettingsFile.ofFlag(flags, "bookie-conf"),
              TimeUnit.SECONDS.toMillis(flags.integer("wait-s", 0, 86_400)));
      new Ready(word()).with("created", created).print();
      System.exit(0);
    }
  };

  private static final Flag PARENT =
      Flag.number("parent-pid", 0, "end when this process is gone; 0: never");

  private final String word;

  Command(String word) {
    this.word = word;
  }

  abstract List<Flag> ownFlags();

  abstract void start(Flags flags, Lifetime lifetime) throws Exception;

  final String word() {
    return word;
  }

  final List<Flag> flags() {
    List<Flag> flags = new ArrayList<>(ownFlags());
    flags.add(PARENT);
    flags.add(Flags.CONFIG);
    return flags;
  }

  final void run(Flags flags) throws Exception {
    Lifetime lifetime = new Lifetime();
    OutOfMemory.endWith(lifetime::died);
    lifetime.endWith(flags.number(PARENT.name(), 0, Long.MAX_VALUE));
    start(flags, lifetime);
    lifetime.await();
  }

  static Command named(String word) {
    return Arrays.stream(values())
        .filter(command -> command.word.equals(word))
        .findFirst()
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "commands are "
                        + Arrays.stream(values())
                            .map(Command::word)
                            .collect(Collectors.joining(", "))
                        + "; COMMAND --help lists the flags"));
  }
}
