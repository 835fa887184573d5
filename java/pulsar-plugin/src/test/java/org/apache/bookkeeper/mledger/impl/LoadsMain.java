package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.shaded.google.protobuf.UnknownFieldSet;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import javax.management.ObjectName;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;
import org.apache.pulsar.metadata.api.GetResult;

/**
 * What the loads of topics take, and leave behind, in one JVM. Arguments: ZooKeeper, keeper, and
 * one of
 *
 * <ul>
 *   <li>{@code loads TOPICS LOADS...}: topics are loaded and unloaded; at each of these numbers of
 *       loads, with everything unloaded, what is there: threads, classes, heap and our objects
 *       after a collection; and how many cursors' states an open cursor keeps.
 *   <li>{@code full ENTRIES LEDGER_ENTRIES TIMES}: the load of a topic of so many entries, of which
 *       a tenth, by chance, are not acked, by turns with that of an empty one.
 *   <li>{@code memory CURSORS}: heap of so many more cursors of one topic, Pulsar's own and kept.
 * </ul>
 *
 * <p>The output is JSON lines. The closed data ledgers of {@code full} hold one entry each, and
 * their number of entries is written into the topic's znode: a load reads the znode and the last
 * data ledger only. With {@code ENTRIES} below 0 all entries are written.
 */
public final class LoadsMain {

  private static final String SUBSCRIPTION = "sub";
  private static final int WAIT_S = 60;
  private static final int GONE_MAX_S = 90;
  private static final int ACKS_AT_ONCE = 2_000;
  private static final int ADDS_AT_ONCE = 10_000;
  private static final int HOLE_EVERY = 10;

  private final String zooKeeper;
  private final String keeper;

  private LoadsMain(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  public static void main(String[] arguments) throws Exception {
    LoadsMain main = new LoadsMain(arguments[0], arguments[1]);
    List<Integer> numbers = Arrays.stream(arguments).skip(3).map(Integer::valueOf).toList();
    try {
      switch (arguments[2]) {
        case "loads" -> main.loads(numbers.get(0), numbers.subList(1, numbers.size()));
        case "full" -> main.full(numbers.get(0), numbers.get(1), numbers.get(2));
        case "memory" -> main.memory(numbers.get(0));
        default -> throw new IllegalArgumentException("no command " + arguments[2]);
      }
      say("{\"done\":1}");
    } catch (Exception | AssertionError e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    Runtime.getRuntime().halt(0);
  }

  private static void say(String format, Object... values) {
    System.out.println(String.format(Locale.ROOT, format, values));
    System.out.flush();
  }

  private static String name(String what) {
    return "public/default/persistent/" + what + "-" + Long.toHexString(System.nanoTime());
  }

  private LiveTopic live(String by, String name, Consumer<ManagedLedgerConfig> with)
      throws Exception {
    return new LiveTopic(zooKeeper, by, name, Map.of(), with);
  }

  private static void trims(ManagedLedgerConfig config) {
    config.setRetentionTime(0, TimeUnit.SECONDS);
    config.setRetentionSizeInMB(0);
  }

  // ---- loads and unloads

  /**
   * Every second topic lies idle with one message that is not acked; of the others each load has
   * messages and acks.
   */
  private void loads(int topics, List<Integer> marks) throws Exception {
    LiveTopic live = live(keeper, name("loads"), LoadsMain::trims);
    ExecutorService threads = Executors.newFixedThreadPool(topics);
    List<String> names = new ArrayList<>();
    for (int topic = 0; topic < topics; topic++) {
      names.add(name("loads-" + topic));
    }
    live.unload();
    live.ledger = null;
    int done = 0;
    for (int mark : marks) {
      int more = (mark - done) / topics;
      long began = System.nanoTime();
      List<Future<?>> all = new ArrayList<>();
      for (int topic = 0; topic < topics; topic++) {
        String name = names.get(topic);
        boolean idle = topic % 2 == 1;
        all.add(
            threads.submit(
                () -> {
                  for (int load = 0; load < more; load++) {
                    load(live, name, idle);
                  }
                  return null;
                }));
      }
      for (Future<?> each : all) {
        each.get();
      }
      done += more * topics;
      double seconds = (System.nanoTime() - began) / 1e9;
      Map<String, Long> ours = gone("KeptLedger", "KeptManagedCursor", "Cursor");
      int threadCount = ManagementFactory.getThreadMXBean().getThreadCount();
      int classes = ManagementFactory.getClassLoadingMXBean().getLoadedClassCount();
      long heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
      ManagedLedgerImpl open = live.another(names.get(0));
      long states = count(gone("CursorState"), "CursorState");
      open.close();
      say(
          "{\"loads\":%d,\"load_ms\":%.2f,\"threads\":%d,\"own_threads\":%d,\"classes\":%d,\"heap_bytes\":%d,\"ledgers\":%d,"
              + "\"cursors\":%d,\"states\":%d,\"objects\":%d}",
          done,
          1e3 * seconds / Math.max(1, more),
          threadCount,
          Thread.getAllStackTraces().keySet().stream()
              .filter(each -> each.getName().startsWith("cursorkeeper"))
              .count(),
          classes,
          heap,
          count(ours, "KeptLedger"),
          count(ours, "KeptManagedCursor") + count(ours, "Cursor"),
          states,
          ours.values().stream().mapToLong(Long::longValue).sum());
    }
  }

  /**
   * Our objects when those of these classes are gone, which is seen at a collection; or not, after
   * a time that is enough.
   */
  private static Map<String, Long> gone(String... classes) throws Exception {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(GONE_MAX_S);
    Map<String, Long> ours = ours();
    while (Arrays.stream(classes).anyMatch(ours::containsKey) && System.nanoTime() < until) {
      TimeUnit.MILLISECONDS.sleep(500);
      ours = ours();
    }
    return ours;
  }

  private static void load(LiveTopic live, String name, boolean idle) throws Exception {
    ManagedLedgerImpl ledger = live.another(name);
    ManagedCursor cursor = ledger.openCursor(SUBSCRIPTION, InitialPosition.Earliest);
    if (!idle) {
      Position first = ledger.addEntry(new byte[1]);
      ledger.addEntry(new byte[1]);
      Position third = ledger.addEntry(new byte[1]);
      LiveTopic.markDelete(cursor, first, Map.of()).get(WAIT_S, TimeUnit.SECONDS);
      LiveTopic.ack(cursor, List.of(third)).get(WAIT_S, TimeUnit.SECONDS);
    } else if (ledger.getNumberOfEntries() == 0) {
      ledger.addEntry(new byte[1]);
    }
    ledger.close();
  }

  /** What lives after a collection, by class: objects and bytes. */
  private static Map<String, long[]> living() throws Exception {
    String histogram =
        (String)
            ManagementFactory.getPlatformMBeanServer()
                .invoke(
                    new ObjectName("com.sun.management:type=DiagnosticCommand"),
                    "gcClassHistogram",
                    new Object[] {new String[0]},
                    new String[] {String[].class.getName()});
    Map<String, long[]> found = new TreeMap<>();
    for (String line : histogram.split("\n")) {
      String[] words = line.strip().split("\\s+");
      if (words.length >= 4 && words[0].endsWith(":")) {
        found.put(words[3], new long[] {Long.parseLong(words[1]), Long.parseLong(words[2])});
      }
    }
    return found;
  }

  /** Objects of ours that live, by class without its package. */
  private static Map<String, Long> ours() throws Exception {
    Map<String, Long> found = new TreeMap<>();
    living()
        .forEach(
            (name, counts) -> {
              if (name.startsWith("io.cursorkeeper.client.")
                  || name.startsWith("io.cursorkeeper.pulsar.")
                  || name.startsWith("org.apache.bookkeeper.mledger.impl.Kept")) {
                found.merge(name.substring(name.lastIndexOf('.') + 1), counts[0], Long::sum);
              }
            });
    return found;
  }

  private static long count(Map<String, Long> ours, String name) {
    return ours.getOrDefault(name, 0L);
  }

  // ---- the load of a large state

  private void full(int entries, int ledgerEntries, int times) throws Exception {
    boolean written = entries < 0;
    int count = Math.abs(entries);
    String full = name("full");
    String empty = name("empty");
    LiveTopic live =
        live(keeper, full, config -> config.setMaxEntriesPerLedger(written ? ledgerEntries : 1));
    write(live.ledger, written ? count : (count + ledgerEntries - 1) / ledgerEntries);
    live.unload();
    live.shutdown();
    if (!written) {
      fill(full, ledgerEntries);
    }
    live = live(keeper, full, config -> config.setMaxEntriesPerLedger(ledgerEntries));
    long acked = ackAllButHoles(live);
    say(
        "{\"acked\":%d,\"ranges\":%d,\"ledgers\":%d}",
        acked,
        live.cursor(SUBSCRIPTION).getTotalNonContiguousDeletedMessagesRange(),
        live.ledger.getLedgersInfo().size());
    live.unload();
    ManagedLedgerImpl other = live.another(empty);
    other.openCursor(SUBSCRIPTION, InitialPosition.Earliest);
    other.close();
    for (int time = 0; time < times; time++) {
      double of = load(live, empty, 0);
      say("{\"empty_s\":%.4f,\"full_s\":%.4f}", of, load(live, full, acked));
    }
  }

  /** Seconds of a load; then it is unloaded. */
  private static double load(LiveTopic live, String name, long acked) throws Exception {
    long began = System.nanoTime();
    ManagedLedgerImpl ledger = live.another(name);
    double seconds = (System.nanoTime() - began) / 1e9;
    ManagedCursor cursor = ledger.getCursors().get(SUBSCRIPTION);
    long backlog = cursor.getNumberOfEntriesInBacklog(true);
    if (backlog != ledger.getNumberOfEntries() - acked) {
      throw new AssertionError(
          name + " has a backlog of " + backlog + " of " + ledger.getNumberOfEntries());
    }
    ledger.close();
    return seconds;
  }

  private static void write(ManagedLedgerImpl ledger, int entries) throws Exception {
    java.util.concurrent.Semaphore room = new java.util.concurrent.Semaphore(ADDS_AT_ONCE);
    CompletableFuture<Void> failed = new CompletableFuture<>();
    for (int entry = 0; entry < entries; entry++) {
      room.acquire();
      ledger.asyncAddEntry(
          new byte[1],
          new org.apache.bookkeeper.mledger.AsyncCallbacks.AddEntryCallback() {
            @Override
            public void addComplete(Position position, io.netty.buffer.ByteBuf data, Object ctx) {
              room.release();
            }

            @Override
            public void addFailed(
                org.apache.bookkeeper.mledger.ManagedLedgerException exception, Object ctx) {
              failed.completeExceptionally(exception);
              room.release();
            }
          },
          null);
    }
    room.acquire(ADDS_AT_ONCE);
    if (failed.isCompletedExceptionally()) {
      failed.get();
    }
  }

  /**
   * ManagedLedgerInfo of Pulsar's: field 1 are its data ledgers, of which 2 are the entries and 3
   * the bytes.
   */
  private void fill(String name, int entries) throws Exception {
    LiveTopic live = live("", name("fills"), config -> {});
    String path = "/managed-ledgers/" + name;
    GetResult before = live.store().get(path).get(WAIT_S, TimeUnit.SECONDS).orElseThrow();
    UnknownFieldSet info = UnknownFieldSet.parseFrom(before.getValue());
    UnknownFieldSet.Field.Builder ledgers = UnknownFieldSet.Field.newBuilder();
    for (var each : info.getField(1).getLengthDelimitedList()) {
      UnknownFieldSet ledger = UnknownFieldSet.parseFrom(each);
      List<Long> written = ledger.getField(2).getVarintList();
      if (!written.isEmpty() && written.get(0) > 0) {
        UnknownFieldSet.Field now = UnknownFieldSet.Field.newBuilder().addVarint(entries).build();
        ledger = UnknownFieldSet.newBuilder(ledger).addField(2, now).addField(3, now).build();
      }
      ledgers.addLengthDelimited(ledger.toByteString());
    }
    byte[] after =
        UnknownFieldSet.newBuilder(info).addField(1, ledgers.build()).build().toByteArray();
    live.store()
        .put(path, after, Optional.of(before.getStat().getVersion()))
        .get(WAIT_S, TimeUnit.SECONDS);
    live.unload();
    live.shutdown();
  }

  private static long ackAllButHoles(LiveTopic live) throws Exception {
    ManagedCursor cursor = live.cursor(SUBSCRIPTION);
    Random chance = new Random(1);
    List<Position> positions = new ArrayList<>();
    long acked = 0;
    CompletableFuture<Void> last = CompletableFuture.completedFuture(null);
    for (var info : live.ledger.getLedgersInfo().entrySet()) {
      long entries = info.getValue().getEntries();
      for (long entry = 0; entry < entries; entry++) {
        if (chance.nextInt(HOLE_EVERY) == 0 || (acked + positions.size() == 0 && entry == 0)) {
          continue;
        }
        positions.add(PositionFactory.create(info.getKey(), entry));
        if (positions.size() == ACKS_AT_ONCE) {
          acked += positions.size();
          last = LiveTopic.ack(cursor, positions);
          positions = new ArrayList<>();
        }
      }
      last.get(WAIT_S, TimeUnit.SECONDS);
    }
    acked += positions.size();
    LiveTopic.ack(cursor, positions).get(WAIT_S, TimeUnit.SECONDS);
    return acked;
  }

  // ---- memory

  /**
   * Of the classes of which at least one object a cursor came: what else comes and goes in the heap
   * is larger than a few cursors.
   */
  private void memory(int cursors) throws Exception {
    for (String by : List.of("", keeper)) {
      LiveTopic live = live(by, name("memory"), config -> {});
      live.publish();
      List<Map<String, long[]>> halves = new ArrayList<>();
      for (int half = 0; half < 2; half++) {
        for (int cursor = 0; cursor < cursors; cursor++) {
          live.cursor(SUBSCRIPTION + half + "-" + cursor);
        }
        halves.add(living());
      }
      long bytes = 0;
      for (Map.Entry<String, long[]> each : halves.get(1).entrySet()) {
        long[] before = halves.get(0).getOrDefault(each.getKey(), new long[2]);
        if (each.getValue()[0] - before[0] >= cursors) {
          bytes += each.getValue()[1] - before[1];
        }
      }
      say("{\"kept\":%b,\"bytes_a_cursor\":%d}", !by.isEmpty(), bytes / cursors);
      live.unload();
      live.shutdown();
    }
  }
}
