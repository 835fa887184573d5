import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
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
 * A real producer and a real consumer as fast as they get, for the benchmark that pairs brokers:
 * one process for both brokers, so that the clients' own costs are the same. Run from its classes:
 * {@code java -cp CLASS_PATH Load}.
 *
 * <p>A line is a verb and {@code name=value}s:
 *
 * <ul>
 *   <li>{@code fill url= topic= messages=}: sends so many, each an entry of its own. A subscription
 *       without acks keeps them.
 *   <li>{@code flow url= topic= sub= lead_s= seconds= …}: producer and consumer at once on a topic
 *       of their own.
 *   <li>{@code drain url= topic= sub= messages= …}: a new subscription receives all of them.
 * </ul>
 *
 * <p>{@code ack=individual}: each message that is not one of every {@code keep}; {@code
 * ack=cumulative}: each is acked cumulatively. {@code receipts=1}: acks have receipts, and a
 * message counts when its receipt is there. {@code group_ms}: acks of so long go into one command.
 * The answer is two JSON lines: {@code began} where counting begins, then {@code messages}, {@code
 * seconds} and the waits for receipts.
 */
public final class Load {

  private static final PrintStream OUT = System.out;
  private static final int PAYLOAD_BYTES = 100;
  private static final int WAIT_MAX_S = 60;

  /**
   * The producer is so far before the consumer at most, so that nothing is left behind in bookies'
   * caches.
   */
  private static final int AHEAD_MAX = 5_000;

  private static final int ACKS_IN_FLIGHT_MAX = 10_000;
  private static final int SAMPLES_MAX = 1 << 20;

  private final Map<String, PulsarClient> clients = new HashMap<>();

  public static void main(String[] args) throws Exception {
    System.setOut(System.err);
    Load load = new Load();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      try {
        load.does(line);
      } catch (Exception | Error e) {
        e.printStackTrace();
        say(
            "{\"error\":\"%s\"}",
            String.valueOf(e).replace("\\", "/").replace("\"", "'").replaceAll("\\p{Cntrl}", " "));
      }
    }
    Runtime.getRuntime().halt(0);
  }

  private void does(String line) throws Exception {
    String[] words = line.strip().split(" +");
    Map<String, String> with = new HashMap<>();
    for (int i = 1; i < words.length; i++) {
      int at = words[i].indexOf('=');
      with.put(words[i].substring(0, at), words[i].substring(at + 1));
    }
    switch (words[0]) {
      case "fill" -> fill(with);
      case "flow" -> flow(with);
      case "drain" -> drain(with);
      default -> throw new IllegalArgumentException("no verb " + words[0]);
    }
  }

  private PulsarClient client(Map<String, String> with) throws PulsarClientException {
    PulsarClient known = clients.get(with.get("url"));
    if (known == null) {
      known =
          PulsarClient.builder()
              .serviceUrl(with.get("url"))
              .statsInterval(0, TimeUnit.SECONDS)
              .build();
      clients.put(with.get("url"), known);
    }
    return known;
  }

  private Producer<byte[]> producer(Map<String, String> with) throws PulsarClientException {
    return client(with)
        .newProducer()
        .topic(with.get("topic"))
        .enableBatching(false)
        .blockIfQueueFull(true)
        .create();
  }

  private Consumer<byte[]> consumer(Map<String, String> with) throws PulsarClientException {
    boolean cumulative = "cumulative".equals(with.get("ack"));
    return client(with)
        .newConsumer()
        .topic(with.get("topic"))
        .subscriptionName(with.get("sub"))
        .subscriptionType(cumulative ? SubscriptionType.Exclusive : SubscriptionType.Shared)
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
        .isAckReceiptEnabled(with.containsKey("receipts"))
        .acknowledgmentGroupTime(number(with, "group_ms", 100), TimeUnit.MILLISECONDS)
        .subscribe();
  }

  private void fill(Map<String, String> with) throws Exception {
    with.put("sub", "keeps");
    consumer(with).close();
    int messages = number(with, "messages", 0);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    long began = System.nanoTime();
    try (Producer<byte[]> producer = producer(with)) {
      for (int sent = 0; sent < messages; sent++) {
        producer
            .sendAsync(new byte[PAYLOAD_BYTES])
            .whenComplete((id, failed) -> failure.compareAndSet(null, failed));
      }
      producer.flush();
    }
    check(failure);
    say("{\"messages\":%d,\"seconds\":%.4f}", messages, (System.nanoTime() - began) / 1e9);
  }

  /** Receives and acks; what was received and, with receipts, confirmed. */
  private final class Acker {
    private final Consumer<byte[]> consumer;
    private final boolean cumulative;
    private final boolean receipts;
    private final int keep;
    private final Semaphore inFlight = new Semaphore(ACKS_IN_FLIGHT_MAX);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final AtomicInteger confirmed = new AtomicInteger();
    private final int[] waitsUs = new int[SAMPLES_MAX];
    private final AtomicInteger waits = new AtomicInteger();
    private int received;
    private int kept;

    Acker(Map<String, String> with) throws PulsarClientException {
      consumer = consumer(with);
      cumulative = "cumulative".equals(with.get("ack"));
      receipts = with.containsKey("receipts");
      keep = number(with, "keep", 1_000);
    }

    void one() throws Exception {
      Message<byte[]> message = consumer.receive(WAIT_MAX_S, TimeUnit.SECONDS);
      if (message == null) {
        throw new IllegalStateException("nothing was delivered for " + WAIT_MAX_S + " s");
      }
      if (!cumulative && received++ % keep == 0) {
        kept++;
        return;
      }
      if (!receipts) {
        asked(message);
        return;
      }
      inFlight.acquire();
      long asked = System.nanoTime();
      asked(message)
          .whenComplete(
              (nothing, failed) -> {
                waitsUs[waits.getAndIncrement() % SAMPLES_MAX] =
                    (int) ((System.nanoTime() - asked) / 1_000);
                failure.compareAndSet(null, failed);
                confirmed.incrementAndGet();
                inFlight.release();
              });
    }

    private CompletableFuture<Void> asked(Message<byte[]> message) {
      if (cumulative) {
        received++;
        return consumer.acknowledgeCumulativeAsync(message);
      }
      return consumer.acknowledgeAsync(message);
    }

    int done() {
      return receipts ? confirmed.get() + kept : received;
    }

    void settle() throws Exception {
      if (receipts && !inFlight.tryAcquire(ACKS_IN_FLIGHT_MAX, WAIT_MAX_S, TimeUnit.SECONDS)) {
        throw new IllegalStateException("receipts did not come within " + WAIT_MAX_S + " s");
      }
      check(failure);
    }

    void report(int messages, long ns) {
      int count = Math.min(waits.get(), SAMPLES_MAX);
      int[] sorted = Arrays.copyOf(waitsUs, count);
      Arrays.sort(sorted);
      say(
          "{\"messages\":%d,\"seconds\":%.4f,\"receipt_ms_p50\":%.3f,\"receipt_ms_p99\":%.3f}",
          messages,
          ns / 1e9,
          count == 0 ? 0 : sorted[count / 2] / 1e3,
          count == 0 ? 0 : sorted[(int) (count * 0.99)] / 1e3);
    }
  }

  private void flow(Map<String, String> with) throws Exception {
    Acker acker = new Acker(with);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Semaphore ahead = new Semaphore(AHEAD_MAX);
    AtomicReference<Boolean> over = new AtomicReference<>(false);
    Thread producing =
        new Thread(
            () -> {
              try (Producer<byte[]> producer = producer(with)) {
                while (!over.get()) {
                  if (ahead.tryAcquire(100, TimeUnit.MILLISECONDS)) {
                    producer
                        .sendAsync(new byte[PAYLOAD_BYTES])
                        .whenComplete((id, failed) -> failure.compareAndSet(null, failed));
                  }
                }
              } catch (Exception e) {
                failure.compareAndSet(null, e);
              }
            });
    producing.start();
    try {
      long lead =
          System.nanoTime()
              + TimeUnit.MILLISECONDS.toNanos(
                  (long) (1_000 * Double.parseDouble(with.get("lead_s"))));
      through(acker, ahead, lead);
      int before = acker.done();
      long began = System.nanoTime();
      say("{\"began\":1}");
      through(
          acker,
          ahead,
          began
              + TimeUnit.MILLISECONDS.toNanos(
                  (long) (1_000 * Double.parseDouble(with.get("seconds")))));
      int messages = acker.done() - before;
      long ns = System.nanoTime() - began;
      acker.report(messages, ns);
    } finally {
      over.set(true);
      producing.join();
    }
    acker.settle();
    acker.consumer.close();
    check(failure);
    say("{\"settled\":1}");
  }

  private static void through(Acker acker, Semaphore ahead, long until) throws Exception {
    while (System.nanoTime() < until) {
      acker.one();
      ahead.release();
    }
  }

  private void drain(Map<String, String> with) throws Exception {
    int messages = number(with, "messages", 0);
    Acker acker = new Acker(with);
    say("{\"began\":1}");
    long began = System.nanoTime();
    for (int at = 0; at < messages; at++) {
      acker.one();
    }
    acker.settle();
    acker.report(messages, System.nanoTime() - began);
    acker.consumer.close(); // sends what is grouped
    say("{\"settled\":1}");
  }

  private static void check(AtomicReference<Throwable> failure) {
    if (failure.get() != null) {
      throw new IllegalStateException("refused by the broker", failure.get());
    }
  }

  private static int number(Map<String, String> with, String name, int otherwise) {
    return with.containsKey(name) ? Integer.parseInt(with.get(name)) : otherwise;
  }

  private static synchronized void say(String format, Object... values) {
    OUT.println(String.format(Locale.ROOT, format, values));
    OUT.flush();
  }
}
