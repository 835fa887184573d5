import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.IntPredicate;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Real producers and consumers in one process, for tests on whole brokers: told line by line what
 * to do, they keep the ledger of what was sent, delivered and confirmed. Run from its source:
 * {@code java -cp CLASS_PATH Clients.java}.
 *
 * <p>A line is a verb and {@code name=value}s; its answer is one JSON line, with {@code error} if
 * it could not be done. A message carries its number in the topic. The ledger of a subscription
 * judges at every delivery, not only at the end: a message that was confirmed by a receipt and is
 * delivered after that is counted as {@code again}. Not so if the consumer was cut off between
 * delivery and receipt, because a valid redelivery may be on its way then; from the next {@code
 * mark} on that, too, must not come.
 */
public final class Clients {

  private static final PrintStream OUT = System.out;
  private static final int WAIT_MAX_S = 90;
  private static final int RECEIVE_MS = 50;
  private static final int SHOWN_MAX = 10;
  private static final long CUT_OFF = -1;

  /** Where a message is; a resent one is a second message with the same number. */
  private record Id(int partition, long ledger, long entry, int batch) implements Comparable<Id> {
    private static final Comparator<Id> ORDER =
        Comparator.comparingInt(Id::partition)
            .thenComparingLong(Id::ledger)
            .thenComparingLong(Id::entry)
            .thenComparingInt(Id::batch);

    static Id of(MessageId id) {
      MessageIdAdv of = (MessageIdAdv) id;
      return new Id(
          Math.max(0, of.getPartitionIndex()),
          of.getLedgerId(),
          of.getEntryId(),
          of.getBatchIndex());
    }

    @Override
    public int compareTo(Id other) {
      return ORDER.compare(this, other);
    }
  }

  /** What was sent to a topic. By number; null: no receipt yet. */
  private static final class Topic {
    final String name;
    final List<MessageId> sent = new ArrayList<>();
    int answered;
    Throwable failure;
    Producer<byte[]> alone;
    Producer<byte[]> batched;
    volatile Thread flow;

    Topic(String name) {
      this.name = name;
    }

    synchronized int number() {
      sent.add(null);
      return sent.size() - 1;
    }

    synchronized void answered(int number, MessageId id, Throwable failed) {
      sent.set(number, id);
      answered++;
      failure = failure == null ? failed : failure;
    }

    synchronized boolean allAnswered() {
      if (failure != null) {
        throw new IllegalStateException("a message was not taken: " + failure);
      }
      return answered == sent.size();
    }

    synchronized List<MessageId> known() {
      return new ArrayList<>(sent);
    }
  }

  private enum Word {
    ASKED,
    CONFIRMED,
    REFUSED
  }

  /** Of one subscription. Under its monitor. */
  private static final class Ledger {
    final Topic topic;
    final Map<String, Reader> readers = new ConcurrentHashMap<>();
    private final NavigableMap<Id, Word> words = new TreeMap<>();
    private final BitSet delivered = new BitSet();
    private final BitSet ever = new BitSet();
    private final Collection<Id> crossed = new java.util.HashSet<>();
    private final List<String> again = new ArrayList<>();
    private int deliveries;
    private int marks;

    Ledger(Topic topic) {
      this.topic = topic;
    }

    synchronized void delivered(Id id, int number) {
      deliveries++;
      delivered.set(number);
      ever.set(number);
      if (words.get(id) == Word.CONFIRMED && !crossed.contains(id)) {
        again.add(number + " at " + id + " after mark " + marks);
      }
    }

    synchronized void asks(Id id) {
      words.merge(id, Word.ASKED, (before, now) -> before == Word.CONFIRMED ? before : now);
    }

    synchronized void answered(Id id, boolean cumulative, boolean cutOff, Throwable failure) {
      if (failure != null) {
        words.merge(id, Word.REFUSED, (before, now) -> before == Word.CONFIRMED ? before : now);
        return;
      }
      for (Id each : cumulative ? of(id) : List.of(id)) {
        if (words.put(each, Word.CONFIRMED) != Word.CONFIRMED && cutOff) {
          crossed.add(each);
        }
      }
    }

    private List<Id> of(Id upTo) {
      return topic.known().stream()
          .filter(sent -> sent != null)
          .map(Id::of)
          .filter(each -> each.partition() == upTo.partition() && each.compareTo(upTo) <= 0)
          .toList();
    }

    /** From here on every delivery is a new one. */
    synchronized void mark() {
      marks++;
      delivered.clear();
      crossed.clear();
    }

    /** The broker was told to deliver (or not to deliver) some of the numbers. */
    synchronized void set(IntPredicate which, boolean gone) {
      List<MessageId> sent = topic.known();
      for (int number = 0; number < sent.size(); number++) {
        if (sent.get(number) != null && which.test(number)) {
          if (gone) {
            words.put(Id.of(sent.get(number)), Word.CONFIRMED);
          } else {
            words.remove(Id.of(sent.get(number)));
          }
        }
      }
    }

    /** Numbers that are neither confirmed nor asked for. */
    synchronized BitSet open() {
      BitSet open = new BitSet();
      List<MessageId> sent = topic.known();
      for (int number = 0; number < sent.size(); number++) {
        if (sent.get(number) != null && !words.containsKey(Id.of(sent.get(number)))) {
          open.set(number);
        }
      }
      return open;
    }

    synchronized BitSet missing() {
      BitSet missing = open();
      missing.andNot(delivered);
      return missing;
    }

    synchronized int confirmed() {
      return (int) words.values().stream().filter(each -> each == Word.CONFIRMED).count();
    }

    synchronized int deliveries() {
      return deliveries;
    }

    synchronized int count() {
      return delivered.cardinality();
    }

    synchronized boolean has(int number) {
      return delivered.get(number);
    }

    /** Acks without an answer, but for consumers that are looked at apart. */
    int asked() {
      return readers.values().stream()
          .filter(each -> !each.apart)
          .mapToInt(each -> each.asked.get())
          .sum();
    }

    /** Acks that were refused have changed nothing: their messages are to be delivered. */
    synchronized void forgetRefused() {
      words.values().removeIf(each -> each == Word.REFUSED);
    }

    /**
     * Every number below this was delivered at some time or needs not be, and no answer is
     * outstanding.
     */
    synchronized boolean through(int count) {
      BitSet seen = (BitSet) ever.clone();
      List<MessageId> sent = topic.known();
      for (int number = 0; number < count; number++) {
        if (!seen.get(number) && words.get(Id.of(sent.get(number))) != Word.CONFIRMED) {
          return false;
        }
      }
      return asked() == 0;
    }

    synchronized String report() {
      BitSet open = open();
      return json(
          "deliveries",
          deliveries,
          "numbers",
          ever.cardinality(),
          "confirmed",
          confirmed(),
          "refused",
          words.values().stream().filter(each -> each == Word.REFUSED).count(),
          "asked",
          asked(),
          "again",
          again.size(),
          "again_shown",
          again.stream().limit(SHOWN_MAX).toList(),
          "open",
          open.cardinality(),
          "missing",
          missing().cardinality(),
          "missing_shown",
          missing().stream().limit(SHOWN_MAX).boxed().toList());
    }
  }

  /**
   * One consumer, and what it does with what it receives. `ack`: each, cumulative, or none (held,
   * for transactions and late acks).
   */
  private final class Reader extends Thread {
    final Ledger ledger;
    final Consumer<byte[]> consumer;
    private final IntPredicate acked;
    private final String ack;
    private final List<Message<byte[]>> held = Collections.synchronizedList(new ArrayList<>());
    final boolean apart;
    final AtomicInteger asked = new AtomicInteger();
    final AtomicInteger confirmed = new AtomicInteger();
    final AtomicInteger refused = new AtomicInteger();
    volatile int idle;
    volatile boolean over;

    Reader(
        Ledger ledger, Consumer<byte[]> consumer, IntPredicate acked, String ack, boolean apart) {
      this.apart = apart;
      this.ledger = ledger;
      this.consumer = consumer;
      this.acked = acked;
      this.ack = ack;
      setDaemon(true);
    }

    @Override
    public void run() {
      while (!over) {
        try {
          synchronized (this) {
            // what is received while the consumer is cut off was delivered before, and may come a
            // second time
            long cut = consumer.isConnected() ? consumer.getLastDisconnectedTimestamp() : CUT_OFF;
            Message<byte[]> message = consumer.receive(RECEIVE_MS, TimeUnit.MILLISECONDS);
            if (message == null) {
              idle++;
            } else {
              idle = 0;
              take(message, cut);
            }
          }
        } catch (PulsarClientException e) {
          if (!over) {
            System.err.println("a consumer ended: " + e);
            return;
          }
        }
      }
    }

    private void take(Message<byte[]> message, long cut) {
      int number = ByteBuffer.wrap(message.getData()).getInt();
      boolean isAcked = !ack.equals("none") && acked.test(number);
      asked.addAndGet(
          isAcked
              ? 1
              : 0); // before it counts as delivered: who waits for that also waits for the answer
      ledger.delivered(Id.of(message.getMessageId()), number);
      if (isAcked) {
        ack(message, ack.equals("cumulative"), cut);
        asked.decrementAndGet();
      } else if (ack.equals("none")) {
        held.add(message);
      }
    }

    void ack(Message<byte[]> message, boolean cumulative, long cut) {
      Id id = Id.of(message.getMessageId());
      asked.incrementAndGet();
      ledger.asks(id);
      CompletableFuture<Void> done =
          cumulative
              ? consumer.acknowledgeCumulativeAsync(message)
              : consumer.acknowledgeAsync(message);
      done.whenComplete(
          (nothing, failure) -> {
            ledger.answered(
                id, cumulative, consumer.getLastDisconnectedTimestamp() != cut, failure);
            (failure == null ? confirmed : refused).incrementAndGet();
            asked.decrementAndGet();
          });
    }

    /** Takes it out of the receiving thread's hands. */
    synchronized void end() throws PulsarClientException {
      over = true;
      consumer.close();
    }
  }

  private final Map<String, PulsarClient> clients = new HashMap<>();
  private final Map<String, Topic> topics = new HashMap<>();
  private final Map<String, Ledger> ledgers = new LinkedHashMap<>();
  private final Map<String, Reader> readers = new HashMap<>();

  public static void main(String[] args) throws Exception {
    System.setOut(System.err);
    Clients clients = new Clients();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      String answer;
      try {
        answer = clients.does(line);
      } catch (Exception | Error e) {
        e.printStackTrace();
        answer = json("error", String.valueOf(e));
      }
      OUT.println(answer);
      OUT.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  private String does(String line) throws Exception {
    String[] words = line.strip().split(" +");
    Map<String, String> with = new HashMap<>();
    for (int i = 1; i < words.length; i++) {
      int at = words[i].indexOf('=');
      with.put(words[i].substring(0, at), words[i].substring(at + 1));
    }
    return switch (words[0]) {
      case "client" -> client(with);
      case "send" -> send(with);
      case "resend" -> resend(with);
      case "flow" -> flow(with);
      case "halt" -> halt(with);
      case "subscribe" -> subscribe(with);
      case "close" -> close(with);
      case "drop" -> drop();
      case "through" -> through(with);
      case "mark" -> mark();
      case "settle" -> settle(with);
      case "seek" -> seek(with);
      case "set" -> set(with);
      case "held" -> held(with);
      case "answered" -> answered(with);
      case "delivered" -> delivered(with);
      case "answers" -> answers(with);
      case "transact" -> transact(with);
      case "report" -> ledger(with).report();
      default -> throw new IllegalArgumentException("no verb " + words[0]);
    };
  }

  // ---- clients and producers

  private String client(Map<String, String> with) throws PulsarClientException {
    PulsarClient before =
        clients.put(
            with.get("name"),
            PulsarClient.builder()
                .serviceUrl(with.get("url"))
                .keepAliveInterval(number(with, "keep_alive_s", 30), TimeUnit.SECONDS)
                .operationTimeout(number(with, "operation_s", 30), TimeUnit.SECONDS)
                .connectionTimeout(5, TimeUnit.SECONDS)
                .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(1, TimeUnit.SECONDS)
                .serviceUrlQuarantineInitDuration(0, TimeUnit.SECONDS)
                .serviceUrlQuarantineMaxDuration(0, TimeUnit.SECONDS)
                .enableTransaction(with.containsKey("transactions"))
                .build());
    if (before != null) {
      before.shutdown();
    }
    return json();
  }

  private Topic topic(Map<String, String> with) {
    return topics.computeIfAbsent(with.get("topic"), Topic::new);
  }

  private Producer<byte[]> producer(Map<String, String> with, Topic topic)
      throws PulsarClientException {
    boolean batched = with.containsKey("batch");
    Producer<byte[]> known = batched ? topic.batched : topic.alone;
    if (known != null) {
      return known;
    }
    ProducerBuilder<byte[]> builder =
        clients
            .get(with.get("client"))
            .newProducer()
            .topic(topic.name)
            .sendTimeout(0, TimeUnit.SECONDS)
            .blockIfQueueFull(true);
    if (batched) {
      topic.batched =
          builder
              .enableBatching(true)
              .batchingMaxMessages(number(with, "batch", 10))
              .batchingMaxPublishDelay(1, TimeUnit.HOURS)
              .create();
      return topic.batched;
    }
    if (with.containsKey("named")) {
      builder.producerName(with.get("named"));
    }
    topic.alone = builder.enableBatching(false).create();
    return topic.alone;
  }

  private static byte[] payload(int number) {
    return ByteBuffer.allocate(64).putInt(number).array();
  }

  private void sendOne(Topic topic, Producer<byte[]> producer, Map<String, String> with) {
    int number = topic.number();
    TypedMessageBuilder<byte[]> message =
        producer.newMessage().value(payload(number)).sequenceId(number);
    if (with.containsKey("keys")) {
      message.key("key-" + number % number(with, "keys", 1));
    }
    if (with.containsKey("delay_ms")) {
      message.deliverAfter(number(with, "delay_ms", 0), TimeUnit.MILLISECONDS);
    }
    message.sendAsync().whenComplete((id, failure) -> topic.answered(number, id, failure));
  }

  private String send(Map<String, String> with) throws Exception {
    Topic topic = topic(with);
    Producer<byte[]> producer = producer(with, topic);
    int first = topic.known().size();
    for (int i = 0; i < number(with, "count", 1); i++) {
      sendOne(topic, producer, with);
    }
    producer.flush();
    await("messages are taken", topic::allAnswered);
    return json("first", first, "sent", topic.known().size());
  }

  /**
   * The same sequence ids once more, as a producer does that had no answer: how many the broker
   * knew already.
   */
  private String resend(Map<String, String> with) throws Exception {
    Topic topic = topic(with);
    int known = 0;
    for (int number = number(with, "from", 0); number < topic.known().size(); number++) {
      MessageIdAdv id =
          (MessageIdAdv) topic.alone.newMessage().value(payload(number)).sequenceId(number).send();
      known += id.getLedgerId() < 0 ? 1 : 0;
    }
    return json("known", known);
  }

  private String flow(Map<String, String> with) throws Exception {
    Topic topic = topic(with);
    Producer<byte[]> producer = producer(with, topic);
    Thread flow =
        new Thread(
            () -> {
              try {
                while (topic.flow == Thread.currentThread()) {
                  sendOne(topic, producer, with);
                  TimeUnit.MILLISECONDS.sleep(number(with, "pause_ms", 5));
                }
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
            });
    flow.setDaemon(true);
    topic.flow = flow;
    flow.start();
    return json();
  }

  private String halt(Map<String, String> with) throws Exception {
    Topic topic = topic(with);
    Thread flow = topic.flow;
    topic.flow = null;
    flow.join();
    await("messages are taken", topic::allAnswered);
    return json("sent", topic.known().size());
  }

  // ---- consumers

  private Ledger ledger(Map<String, String> with) {
    return ledgers.computeIfAbsent(
        with.get("topic") + " " + with.get("sub"), name -> new Ledger(topic(with)));
  }

  /**
   * `keep`: every so many numbers one stays un-acked, below 0: one is acked; 0: all are. `count`:
   * so many subscriptions, each with a number behind its name.
   */
  private String subscribe(Map<String, String> with) throws Exception {
    int count = number(with, "count", 0);
    if (count == 0) {
      subscribeOne(with);
      return json();
    }
    List<Thread> makers = new ArrayList<>();
    List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
    for (int maker = 0; maker < 8; maker++) {
      int from = maker;
      makers.add(
          new Thread(
              () -> {
                try {
                  for (int i = from; i < count; i += 8) {
                    Map<String, String> one = new HashMap<>(with);
                    one.put("name", with.get("name") + i);
                    one.put("sub", with.get("sub") + i);
                    subscribeOne(one);
                  }
                } catch (Exception e) {
                  failures.add(e);
                }
              }));
    }
    makers.forEach(Thread::start);
    for (Thread each : makers) {
      each.join();
    }
    if (!failures.isEmpty()) {
      throw new IllegalStateException(failures.get(0));
    }
    return json();
  }

  private void subscribeOne(Map<String, String> with) throws PulsarClientException {
    PulsarClient client;
    Ledger ledger;
    synchronized (this) {
      client = clients.get(with.get("client"));
      ledger = ledger(with);
    }
    Consumer<byte[]> consumer =
        client
            .newConsumer()
            .topic(ledger.topic.name)
            .subscriptionName(with.get("sub"))
            .subscriptionType(SubscriptionType.valueOf(with.getOrDefault("type", "Shared")))
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .isAckReceiptEnabled(true)
            .enableBatchIndexAcknowledgment(true)
            .acknowledgmentGroupTime(1, TimeUnit.MILLISECONDS)
            .replicateSubscriptionState(with.containsKey("replicated"))
            .receiverQueueSize(number(with, "queue", 100))
            .maxAcknowledgmentGroupSize(number(with, "queue", 100))
            .startMessageIdInclusive()
            .subscribe();
    int keep = number(with, "keep", 0);
    IntPredicate acked =
        number -> keep == 0 || (keep > 0 ? number % keep != 0 : number % keep == 0);
    Reader reader =
        new Reader(
            ledger, consumer, acked, with.getOrDefault("ack", "each"), with.containsKey("apart"));
    synchronized (this) {
      readers.put(with.get("name"), reader);
      ledger.readers.put(with.get("name"), reader);
    }
    reader.start();
  }

  /** Of a name, or, without one, all. */
  private String close(Map<String, String> with) throws Exception {
    for (String name :
        with.containsKey("name") ? List.of(with.get("name")) : List.copyOf(readers.keySet())) {
      Reader reader = readers.remove(name);
      reader.ledger.readers.remove(name);
      reader.end();
    }
    return json();
  }

  /** All clients go without a word; what the ledgers say from here on is of new deliveries. */
  private String drop() throws Exception {
    readers.values().forEach(each -> each.over = true);
    for (PulsarClient each : clients.values()) {
      each.shutdown();
    }
    for (Reader each : readers.values()) {
      each.join();
    }
    clients.clear();
    readers.clear();
    topics
        .values()
        .forEach(
            each -> {
              each.alone = null;
              each.batched = null;
            });
    ledgers.values().forEach(each -> each.readers.clear());
    return mark();
  }

  /** Waits until everything that was sent is delivered and what is to be acked has its answer. */
  private String through(Map<String, String> with) throws Exception {
    Ledger ledger = ledger(with);
    int count = ledger.topic.known().size();
    await("everything is through", () -> ledger.through(count));
    return ledger.report();
  }

  private String mark() {
    ledgers.values().forEach(Ledger::mark);
    return json();
  }

  /**
   * Since the mark: waits until all un-acked were delivered, and one more message that comes behind
   * them; of a prefix of names, all.
   */
  private String settle(Map<String, String> with) throws Exception {
    Topic topic = topic(with);
    int first = topic.known().size();
    for (int i = 0; i < number(with, "more", 1); i++) {
      sendOne(topic, producer(with, topic), Map.of());
    }
    await("one more is taken", topic::allAnswered);
    int last = topic.known().size();
    List<Ledger> all =
        with.containsKey("every")
            ? ledgers.values().stream().filter(each -> each.topic == topic).toList()
            : List.of(ledger(with));
    for (Ledger ledger : all) {
      try {
        await(
            "all come",
            () -> {
              for (int number = first; number < last; number++) {
                if (!ledger.has(number)) {
                  return false;
                }
              }
              return ledger.missing().isEmpty()
                  && ledger.asked() == 0
                  && ledger.readers.values().stream().allMatch(each -> each.idle > 2);
            });
      } catch (TimeoutException e) {
        System.err.println(topic.name + ": " + ledger.report());
      }
    }
    int again = 0;
    int missing = 0;
    int open = 0;
    int asked = 0;
    for (Ledger ledger : all) {
      again += ledger.again.size();
      missing += ledger.missing().cardinality();
      open += ledger.open().cardinality();
      asked += ledger.asked();
    }
    boolean oneMore = all.stream().allMatch(each -> each.has(last - 1));
    return all.size() == 1
        ? all.get(0).report()
        : json(
            "ledgers",
            all.size(),
            "again",
            again,
            "missing",
            missing,
            "open",
            open,
            "asked",
            asked,
            "one_more",
            oneMore);
  }

  /**
   * To a number, or to a time; `number` says in both cases which is delivered first. `close`:
   * before it receives any of them.
   */
  private String seek(Map<String, String> with) throws Exception {
    Reader reader = readers.get(with.get("name"));
    int from = number(with, "number", 0);
    synchronized (reader) {
      await("answers", () -> reader.ledger.asked() == 0);
      if (with.containsKey("to_ms")) {
        reader.consumer.seek(Long.parseLong(with.get("to_ms")));
      } else {
        reader.consumer.seek(reader.ledger.topic.known().get(from));
      }
      reader.ledger.set(number -> number >= from, false);
      reader.ledger.set(number -> number < from, true);
      return with.containsKey("close") ? close(with) : json();
    }
  }

  /**
   * What the broker was told by others: numbers `from` up to `to` (not included) are `gone` or to
   * be delivered; or those `refused`.
   */
  private String set(Map<String, String> with) {
    if (with.containsKey("refused")) {
      ledger(with).forgetRefused();
      return json();
    }
    int from = number(with, "from", 0);
    int to = number(with, "to", Integer.MAX_VALUE);
    ledger(with).set(number -> number >= from && number < to, with.containsKey("gone"));
    return json();
  }

  /** Acks of what a consumer holds, without waiting for the answers; or only how many it holds. */
  private String held(Map<String, String> with) throws Exception {
    Reader reader = readers.get(with.get("name"));
    await("so many are held", () -> reader.held.size() >= number(with, "count", 0));
    int held = reader.held.size();
    if (with.containsKey("ack")) {
      new ArrayList<>(reader.held).forEach(each -> reader.ack(each, false, CUT_OFF));
      reader.held.clear();
    }
    return json("held", held);
  }

  /**
   * Waits for so many deliveries `more` than now, or for `numbers` since the mark; with `answers`,
   * also for those of all acks.
   */
  private String delivered(Map<String, String> with) throws Exception {
    Ledger ledger = ledger(with);
    int until = ledger.deliveries() + number(with, "more", 0);
    await(
        "so many deliveries",
        () ->
            ledger.deliveries() >= until
                && ledger.count() >= number(with, "numbers", 0)
                && (!with.containsKey("answers") || ledger.asked() == 0));
    return json();
  }

  /** Waits for so many confirmations `more` than now. */
  private String answers(Map<String, String> with) throws Exception {
    Ledger ledger = ledger(with);
    int until = ledger.confirmed() + number(with, "more", 0);
    await("so many confirmations", () -> ledger.confirmed() >= until);
    return ledger.report();
  }

  /** What a consumer's acks were answered, when all are. */
  private String answered(Map<String, String> with) throws Exception {
    Reader reader = readers.get(with.get("name"));
    await("answers", () -> reader.asked.get() == 0);
    return json("confirmed", reader.confirmed.get(), "refused", reader.refused.get());
  }

  /** Acks of what a consumer holds in one transaction: `end` is commit, abort, or left. */
  private String transact(Map<String, String> with) throws Exception {
    Reader reader = readers.get(with.get("name"));
    int count = number(with, "count", 1);
    await("so many are held", () -> reader.held.size() >= count);
    Transaction transaction =
        clients
            .get(with.get("client"))
            .newTransaction()
            .withTransactionTimeout(number(with, "timeout_s", 60), TimeUnit.SECONDS)
            .build()
            .get(WAIT_MAX_S, TimeUnit.SECONDS);
    List<Id> ids = new ArrayList<>();
    List<CompletableFuture<Void>> acks = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Message<byte[]> message = reader.held.remove(0);
      ids.add(Id.of(message.getMessageId()));
      acks.add(reader.consumer.acknowledgeAsync(message.getMessageId(), transaction));
    }
    CompletableFuture.allOf(acks.toArray(new CompletableFuture<?>[0]))
        .get(WAIT_MAX_S, TimeUnit.SECONDS);
    switch (with.get("end")) {
      case "commit" -> {
        transaction.commit().get(WAIT_MAX_S, TimeUnit.SECONDS);
        for (Id id : ids) {
          reader.ledger.asks(id);
          reader.ledger.answered(id, false, true, null);
        }
      }
      case "abort" -> transaction.abort().get(WAIT_MAX_S, TimeUnit.SECONDS);
      default -> {}
    }
    return json();
  }

  // ---- small things

  private static int number(Map<String, String> with, String name, int otherwise) {
    return with.containsKey(name) ? Integer.parseInt(with.get(name)) : otherwise;
  }

  private static void await(String what, BooleanSupplier done)
      throws InterruptedException, TimeoutException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_MAX_S);
    while (!done.getAsBoolean()) {
      if (System.nanoTime() > until) {
        throw new TimeoutException("not within " + WAIT_MAX_S + " s: " + what);
      }
      TimeUnit.MILLISECONDS.sleep(10);
    }
  }

  private static String json(Object... namesAndValues) {
    StringBuilder text = new StringBuilder("{\"ok\":1");
    for (int i = 0; i < namesAndValues.length; i += 2) {
      text.append(",\"").append(namesAndValues[i]).append("\":");
      Object value = namesAndValues[i + 1];
      if (value instanceof Collection<?> many) {
        text.append('[')
            .append(
                String.join(",", many.stream().map(each -> quoted(String.valueOf(each))).toList()))
            .append(']');
      } else {
        text.append(value instanceof String said ? quoted(said) : value);
      }
    }
    return text.append('}').toString();
  }

  private static String quoted(String text) {
    return "\""
        + text.replace("\\", "\\\\").replace("\"", "'").replaceAll("\\p{Cntrl}", " ")
        + "\"";
  }
}
