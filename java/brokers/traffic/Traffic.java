import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * A real producer and a real consumer, by Pulsar's own client, for the demo and for tests on real
 * brokers. Every message carries its number. Run from its source: {@code java -cp CLASS_PATH
 * Traffic.java COMMAND URL TOPIC SUBSCRIPTION MESSAGES}.
 *
 * <ul>
 *   <li>{@code produce}: makes the subscription, then sends the numbers from 0. Nine tenths alone,
 *       a tenth in batches of 10.
 *   <li>{@code consume}: receives all of them and acks those that are not {@link #kept}, each with
 *       a receipt; waits for the last receipt, says so, and stays connected until it is killed.
 *   <li>{@code count}: sends one more message, then receives and acks whatever is delivered up to
 *       it, and says what that was.
 * </ul>
 *
 * <p>The output is JSON lines: progress, with the acks that wait for their receipts, and a last one
 * with {@code done}. The process ends when its input does. The Python client cannot do this: it has
 * no ack receipts.
 */
public final class Traffic {

  /** The JSON lines alone; what anything else prints is log. */
  private static final PrintStream OUT = System.out;

  /** Properties of the JVM that are settings of Pulsar's client begin so. */
  private static final String CONF = "pulsar.client.";

  private static final boolean EVERY_SECOND = Boolean.getBoolean("traffic.every-second");

  private static final int BATCH = 10;
  private static final int PAYLOAD_BYTES = 100;
  private static final int ACKS_IN_FLIGHT_MAX = 1_000;

  /** Acks of so long go into one command. */
  private static final int ACK_GROUP_MS = 1;

  private static final int RECEIVE_MAX_S = 60;
  private static final int SILENCE_MS = 1_000;
  private static final int PROGRESS_MS = 200;

  private final PulsarClient client;
  private final String topic;
  private final String subscription;
  private final int messages;
  private final AtomicInteger progress = new AtomicInteger();

  /** Permits of acks that may still be sent before a receipt comes. */
  private final Semaphore inFlight = new Semaphore(ACKS_IN_FLIGHT_MAX);

  private Traffic(String url, String topic, String subscription, int messages)
      throws PulsarClientException {
    this.client = PulsarClient.builder().loadConf(conf()).serviceUrl(url).build();
    this.topic = topic;
    this.subscription = subscription;
    this.messages = messages;
  }

  public static void main(String[] args) {
    System.setOut(System.err);
    endWithInput();
    try {
      Traffic traffic = new Traffic(args[1], args[2], args[3], Integer.parseInt(args[4]));
      traffic.showProgress();
      switch (args[0]) {
        case "produce" -> traffic.produce();
        case "consume" -> traffic.consume();
        case "count" -> traffic.count();
        default -> throw new IllegalArgumentException("no command " + args[0]);
      }
    } catch (Exception e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1); // the client's threads would go on without this one
    }
  }

  /** Settings of Pulsar's client, by its own names: what TLS and logins of a broker need. */
  private static Map<String, Object> conf() {
    Map<String, Object> conf = new HashMap<>();
    System.getProperties()
        .forEach(
            (name, value) -> {
              if (name.toString().startsWith(CONF)) {
                conf.put(name.toString().substring(CONF.length()), value);
              }
            });
    return conf;
  }

  /** Whether this message is one of a batch. */
  private static boolean isBatched(int number) {
    return number / BATCH % 10 == 9;
  }

  /** Whether it stays un-acked: every second; or the oldest, a sprinkle, and two of every batch. */
  private static boolean kept(int number) {
    if (EVERY_SECOND) {
      return number % 2 == 0;
    }
    return number == 0
        || (isBatched(number) ? number % BATCH == 3 || number % BATCH == 7 : number % 1_000 == 501);
  }

  private void produce() throws Exception {
    consumer().close();
    try (Producer<byte[]> alone =
            client
                .newProducer()
                .topic(topic)
                .enableBatching(false)
                .blockIfQueueFull(true)
                .create();
        Producer<byte[]> batched =
            client
                .newProducer()
                .topic(topic)
                .enableBatching(true)
                .batchingMaxMessages(BATCH)
                .batchingMaxPublishDelay(1, TimeUnit.HOURS)
                .blockIfQueueFull(true)
                .create()) {
      long began = System.nanoTime();
      AtomicReference<Throwable> failure = new AtomicReference<>();
      CompletableFuture<?> last = null;
      for (int number = 0; number < messages; number++) {
        last =
            (isBatched(number) ? batched : alone)
                .sendAsync(payload(number))
                .whenComplete(
                    (id, error) -> {
                      progress.incrementAndGet();
                      failure.compareAndSet(null, error);
                    });
      }
      batched.flush();
      alone.flush();
      last.get(RECEIVE_MAX_S, TimeUnit.SECONDS);
      check(failure);
      say("{\"done\":true,\"count\":%d,\"seconds\":%.3f}", progress.get(), secondsSince(began));
    }
    System.exit(0);
  }

  private void consume() throws Exception {
    Consumer<byte[]> consumer = consumer();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    int[] waits = new int[messages];
    AtomicInteger receipts = new AtomicInteger();
    BitSet seen = new BitSet(messages);
    BitSet acked = new BitSet(messages);
    long began = 0;
    while (progress.get() < messages) {
      Message<byte[]> message = receive(consumer, RECEIVE_MAX_S * 1_000);
      began = began == 0 ? System.nanoTime() : began;
      int number = number(message);
      if (!seen.get(number)) {
        progress.incrementAndGet();
        seen.set(number);
      }
      if (!kept(number)) {
        acked.set(number);
        acquire(1);
        long asked = System.nanoTime();
        consumer
            .acknowledgeAsync(message.getMessageId())
            .whenComplete(
                (nothing, error) -> {
                  waits[receipts.getAndIncrement() % messages] =
                      (int) ((System.nanoTime() - asked) / 1_000);
                  failure.compareAndSet(null, error);
                  inFlight.release();
                });
      }
    }
    acquire(ACKS_IN_FLIGHT_MAX);
    double seconds = secondsSince(began);
    check(failure);
    int count = Math.min(receipts.get(), messages);
    int[] sorted = Arrays.copyOf(waits, count);
    Arrays.sort(sorted);
    say(
        "{\"done\":true,\"count\":%d,\"acked\":%d,\"seconds\":%.3f,\"receipt_ms_p50\":%.3f,\"receipt_ms_p99\":%.3f}",
        messages,
        acked.cardinality(),
        seconds,
        sorted[count / 2] / 1e3,
        sorted[count * 99 / 100] / 1e3);
  }

  private void count() throws Exception {
    Consumer<byte[]> consumer = consumer();
    try (Producer<byte[]> producer =
        client.newProducer().topic(topic).enableBatching(false).create()) {
      producer.send(payload(messages));
    }
    AtomicReference<Throwable> failure = new AtomicReference<>();
    BitSet seen = new BitSet(messages + 1);
    // The one more comes last; what might come behind it, by a reconnection, is waited for.
    for (Message<byte[]> message;
        (message = receive(consumer, seen.get(messages) ? SILENCE_MS : RECEIVE_MAX_S * 1_000))
            != null; ) {
      seen.set(number(message));
      progress.incrementAndGet();
      acquire(1);
      consumer
          .acknowledgeAsync(message.getMessageId())
          .whenComplete(
              (nothing, error) -> {
                failure.compareAndSet(null, error);
                inFlight.release();
              });
    }
    acquire(ACKS_IN_FLIGHT_MAX);
    check(failure);
    int again = 0;
    int keptCount = 0;
    int missing = 0;
    for (int number = 0; number < messages; number++) {
      again += !kept(number) && seen.get(number) ? 1 : 0;
      keptCount += kept(number) ? 1 : 0;
      missing += kept(number) && !seen.get(number) ? 1 : 0;
    }
    say(
        "{\"done\":true,\"count\":%d,\"confirmed_again\":%d,\"unacked\":%d,\"unacked_not_delivered\":%d}",
        progress.get(), again, keptCount, missing);
    System.exit(0);
  }

  private Consumer<byte[]> consumer() throws PulsarClientException {
    return client
        .newConsumer()
        .topic(topic)
        .subscriptionName(subscription)
        .subscriptionType(SubscriptionType.Shared)
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
        .isAckReceiptEnabled(true)
        .enableBatchIndexAcknowledgment(true)
        .acknowledgmentGroupTime(ACK_GROUP_MS, TimeUnit.MILLISECONDS)
        .subscribe();
  }

  /** Null after a second of silence; any longer silence is a failure. */
  private static Message<byte[]> receive(Consumer<byte[]> consumer, int ms)
      throws PulsarClientException {
    Message<byte[]> message = consumer.receive(ms, TimeUnit.MILLISECONDS);
    if (message == null && ms > SILENCE_MS) {
      throw new IllegalStateException("nothing was delivered for " + ms / 1_000 + " s");
    }
    return message;
  }

  private void acquire(int count) throws InterruptedException {
    if (!inFlight.tryAcquire(count, RECEIVE_MAX_S, TimeUnit.SECONDS)) {
      throw new IllegalStateException(
          "receipts of acks did not come within " + RECEIVE_MAX_S + " s");
    }
  }

  private static void check(AtomicReference<Throwable> failure) {
    if (failure.get() != null) {
      throw new IllegalStateException("refused by the broker", failure.get());
    }
  }

  private static byte[] payload(int number) {
    return ByteBuffer.allocate(PAYLOAD_BYTES).putInt(number).array();
  }

  private static int number(Message<byte[]> message) {
    return ByteBuffer.wrap(message.getData()).getInt();
  }

  private static double secondsSince(long nanos) {
    return (System.nanoTime() - nanos) / 1e9;
  }

  private void showProgress() {
    daemon(
        () -> {
          while (true) {
            TimeUnit.MILLISECONDS.sleep(PROGRESS_MS);
            say(
                "{\"count\":%d,\"waiting\":%d}",
                progress.get(), ACKS_IN_FLIGHT_MAX - inFlight.availablePermits());
          }
        });
  }

  private static void endWithInput() {
    daemon(
        () -> {
          while (System.in.read() >= 0) {
            // Nobody says anything.
          }
          Runtime.getRuntime().halt(0);
        });
  }

  private interface Work {
    void run() throws IOException, InterruptedException;
  }

  private static void daemon(Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (IOException | InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  private static synchronized void say(String format, Object... values) {
    OUT.println(String.format(Locale.ROOT, format, values));
    OUT.flush();
  }
}
