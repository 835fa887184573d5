package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.LiveTopic.WAIT_S;
import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.netty.buffer.ByteBuf;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.bookkeeper.mledger.AsyncCallbacks;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;

/**
 * Plays the scripts of {@link UpstreamMain}: one topic with its cursors, Pulsar's own or kept ones.
 * Entries go by their number, so that topics with other data ledgers can be compared.
 */
final class Player {

  static final int ENTRIES = 24;
  private static final Pattern LEDGER = Pattern.compile("(\\d+):");

  /** What the calls of the script came to, in their order. */
  final List<String> outcomes = new ArrayList<>();

  /** Those that were published, also if they are trimmed now. */
  final List<Position> entries;

  private final String name;
  private final Consumer<ManagedLedgerConfig> with;
  private final List<String> subscriptions = new ArrayList<>();
  private LiveTopic process;
  ManagedLedgerImpl ledger;
  ManagedCursorImpl cursor;

  /** Loads a new topic with the cursor {@code sub}, and publishes to it. */
  Player(LiveTopic process, String name, Consumer<ManagedLedgerConfig> with) throws Exception {
    this.name = name;
    this.with = with;
    this.process = process;
    ledger = process.another(name, with);
    use("sub");
    List<CompletableFuture<Position>> added = new ArrayList<>();
    for (int number = 0; number < ENTRIES; number++) {
      added.add(add(number));
    }
    entries = new ArrayList<>();
    for (CompletableFuture<Position> each : added) {
      entries.add(each.get(WAIT_S, TimeUnit.SECONDS));
    }
  }

  private CompletableFuture<Position> add(int number) {
    CompletableFuture<Position> added = new CompletableFuture<>();
    ledger.asyncAddEntry(
        content(number),
        new AsyncCallbacks.AddEntryCallback() {
          @Override
          public void addComplete(Position position, ByteBuf data, Object ctx) {
            added.complete(position);
          }

          @Override
          public void addFailed(ManagedLedgerException exception, Object ctx) {
            added.completeExceptionally(exception);
          }
        },
        null);
    return added;
  }

  private static byte[] content(int number) {
    return String.format(Locale.ROOT, "%04d", number).getBytes(StandardCharsets.UTF_8);
  }

  /** The number that an entry was published with. */
  static int content(Entry entry) {
    return Integer.parseInt(new String(entry.getData(), StandardCharsets.UTF_8));
  }

  /** The same topic by another process, whose cursors are maybe of the other kind. */
  void loadedBy(LiveTopic other) throws Exception {
    process = other;
    ledger = other.another(name, with);
  }

  /**
   * Of Pulsar's own cursor that made a second cursor ledger at its first ack ({@link
   * LiveTopic#unload}) another load is unloaded.
   */
  void unload() throws Exception {
    try {
      ledger.close();
    } catch (ManagedLedgerException.BadVersionException e) {
      if (ledger instanceof KeptLedger) {
        throw e;
      }
      loadedBy(process);
      ledger.close();
    }
  }

  /** Unloads and loads it. */
  void reload() throws Exception {
    reload(() -> {});
  }

  void reload(Stories.Story between) throws Exception {
    unload();
    between.tell();
    loadedBy(process);
    cursor = opened(cursor.getName());
  }

  LiveTopic process() {
    return process;
  }

  String name() {
    return name;
  }

  /** The script goes on with this subscription's cursor, which it makes if there is none. */
  void use(String subscription) throws Exception {
    if (!subscriptions.contains(subscription)) {
      subscriptions.add(subscription);
    }
    cursor = opened(subscription);
  }

  void delete(String subscription) throws Exception {
    ledger.deleteCursor(subscription);
    subscriptions.remove(subscription);
  }

  private ManagedCursorImpl opened(String subscription) throws Exception {
    return (ManagedCursorImpl) ledger.openCursor(subscription, InitialPosition.Earliest);
  }

  // ---- what a script does; its outcome is noted

  void ack(int... numbers) throws Exception {
    outcome(LiveTopic.ack(cursor, positions(numbers)));
  }

  /** Of a batch these messages are left. */
  void part(int number, int... left) throws Exception {
    BitSet bits = new BitSet();
    Arrays.stream(left).forEach(bits::set);
    outcome(LiveTopic.ack(cursor, List.of(LiveTopic.part(entries.get(number), bits))));
  }

  void markDelete(int number, Map<String, Long> properties) throws Exception {
    outcome(LiveTopic.markDelete(cursor, entries.get(number), properties));
  }

  void reset(Position to) throws Exception {
    outcome(LiveTopic.reset(cursor, to));
  }

  void outcome(CompletableFuture<?> of) throws Exception {
    try {
      of.get(WAIT_S, TimeUnit.SECONDS);
      note("ok");
    } catch (ExecutionException e) {
      note(e.getCause().getClass().getSimpleName());
    }
  }

  /** Notes how a call fails, or that it does not. */
  void outcome(Stories.Story call) throws Exception {
    try {
      call.tell();
      note("ok");
    } catch (ManagedLedgerException e) {
      note(e.getClass().getSimpleName());
    }
  }

  void note(Object what) {
    outcomes.add(String.valueOf(what));
  }

  /** Reads so many from where the cursor is. */
  void read(int count) throws Exception {
    note(
        cursor.hasMoreEntries() ? "read " + numbers(cursor.readEntries(count)) : "nothing to read");
  }

  /** What the broker shows of a cursor. */
  void figures() {
    note(
        cursor.getNumberOfEntries()
            + " entries, "
            + backlog(cursor)
            + " in the backlog, "
            + cursor.getEstimatedSizeSinceMarkDeletePosition()
            + " bytes, "
            + cursor.getNumberOfEntriesSinceFirstNotAckedMessage()
            + " since the first, "
            + cursor.getTotalNonContiguousDeletedMessagesRange()
            + " ranges, reads at "
            + number(cursor.getReadPosition())
            + ", slowest "
            + ledger.getSlowestConsumer().getName());
  }

  /**
   * Also a kept cursor's counters say it; those of Pulsar's own are wrong after a reset in 4.0, and
   * after losses.
   */
  private static long backlog(ManagedCursorImpl of) {
    long exact = of.getNumberOfEntriesInBacklog(true);
    long counted = of.getNumberOfEntriesInBacklog(false);
    check(
        !(of instanceof KeptManagedCursor) || counted == exact,
        "the backlog is " + exact + ", by its counters " + counted);
    return exact;
  }

  /** Data ledgers that no cursor needs go. */
  void trim() throws Exception {
    CompletableFuture<Void> trimmed = new CompletableFuture<>();
    ledger.trimConsumedLedgersInBackground(trimmed);
    outcome(trimmed);
    note("left " + numbersOf(LiveTopic.entries(ledger)));
  }

  // ---- by their numbers

  List<Position> positions(int... numbers) {
    return Arrays.stream(numbers).mapToObj(entries::get).toList();
  }

  int number(Position position) {
    return position == null
        ? -1
        : entries.indexOf(PositionFactory.create(position.getLedgerId(), position.getEntryId()));
  }

  List<Integer> numbersOf(Collection<? extends Position> positions) {
    return positions.stream().map(this::number).toList();
  }

  List<Integer> numbers(List<Entry> read) {
    List<Integer> numbers = new ArrayList<>();
    for (Entry each : read) {
      numbers.add(number(each.getPosition()));
      each.release();
    }
    return numbers;
  }

  /** All that a cursor would deliver from its mark-delete on. */
  List<Integer> readable(ManagedCursor of) throws Exception {
    List<Integer> numbers = new ArrayList<>();
    of.rewind();
    while (of.hasMoreEntries()) {
      List<Entry> read = of.readEntries(10);
      of.trimDeletedEntries(read);
      numbers.addAll(numbers(read));
    }
    of.rewind();
    return numbers;
  }

  /** What there is of each cursor, and must be there after any stop. */
  String view() throws Exception {
    StringBuilder view = new StringBuilder();
    for (String each : subscriptions) {
      ManagedCursorImpl of = opened(each);
      List<Integer> readable = readable(of);
      Naive state = Naive.of(of, entries);
      Map<Integer, String> left = new TreeMap<>();
      state.left.forEach((entry, bits) -> left.put(entries.indexOf(entry), bits.toString()));
      view.append(each)
          .append(": mark-delete ")
          .append(
              entries.stream()
                  .filter(entry -> entry.compareTo(of.getMarkDeletedPosition()) <= 0)
                  .count())
          .append(", acked ")
          .append(state.acked.stream().map(entries::indexOf).sorted().toList())
          .append(", parts ")
          .append(left)
          .append(", properties ")
          .append(new TreeMap<>(state.properties))
          .append(", string properties ")
          .append(new TreeMap<>(of.getCursorProperties()))
          .append(", backlog ")
          .append(backlog(of))
          .append(", more ")
          .append(of.hasMoreEntries())
          .append(", readable ")
          .append(readable)
          .append(", ranges ")
          .append(ranges(of))
          .append('\n');
    }
    return view.toString();
  }

  /** With the place of a ledger in the topic for its id. */
  private String ranges(ManagedCursorImpl of) {
    List<Long> ids = entries.stream().map(Position::getLedgerId).distinct().toList();
    Matcher ledgers = LEDGER.matcher(of.getIndividuallyDeletedMessages());
    return ledgers.replaceAll(found -> ids.indexOf(Long.parseLong(found.group(1))) + ":");
  }
}
