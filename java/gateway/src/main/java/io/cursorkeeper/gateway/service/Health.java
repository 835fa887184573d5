package io.cursorkeeper.gateway.service;

import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.BindableService;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.protobuf.services.HealthStatusManager;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether work can be done: connected to ZooKeeper and enough writable bookies, asked every second.
 * The first time it can, the gateway is warmed up before it says so. Where appends keep failing it
 * tries one of its own every few looks.
 */
final class Health implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(Health.class);
  private static final long ANSWER_MAX_MS = 2_000;
  private static final int PROBE_EVERY_LOOKS = 5;
  static final long POLL_MS = 1_000;

  private final HealthStatusManager manager = new HealthStatusManager();
  private final BookKeeperClient client;
  private final int writableBookiesMin;
  private final BooleanSupplier warmUp;
  private final AppendHealth appends;
  private boolean warm;
  private int looksFailing;
  private volatile boolean stopped;
  private volatile boolean serving;
  private volatile String reason = "the gateway starts";
  private volatile boolean connected;
  private volatile int writableBookies;

  /** {@code warmUp} appends something and says whether that came through. */
  Health(
      BookKeeperClient client,
      int writableBookiesMin,
      BooleanSupplier warmUp,
      AppendHealth appends) {
    this.appends = appends;
    this.client = client;
    this.writableBookiesMin = writableBookiesMin;
    this.warmUp = warmUp;
    say(ServingStatus.NOT_SERVING);
  }

  BindableService service() {
    return manager.getHealthService();
  }

  int writableBookies() {
    return writableBookies;
  }

  boolean connected() {
    return connected;
  }

  boolean serving() {
    return serving;
  }

  /** Empty while serving, else one line for people. */
  String whyNotServing() {
    return stopped ? "the gateway stops" : reason;
  }

  /** One look; never throws, because its timer would end with it. */
  @Override
  public void run() {
    try {
      look();
    } catch (RuntimeException unexpected) {
      LOG.error("health check failed", unexpected);
    }
  }

  /** For good: clients that watch go elsewhere. */
  void stop() {
    stopped = true;
    manager.enterTerminalState();
  }

  private void look() {
    boolean answered = false;
    int writable = 0;
    try {
      // The second question goes to ZooKeeper itself: a session may look alive for seconds after it
      // is not.
      answered = client.connected().get(ANSWER_MAX_MS, TimeUnit.MILLISECONDS);
      writable = client.writableBookies().get(ANSWER_MAX_MS, TimeUnit.MILLISECONDS);
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
      return;
    } catch (Exception noAnswer) {
      answered = false;
    }
    connected = answered;
    writableBookies = writable;
    boolean able = connected && writableBookies >= writableBookiesMin;
    if (able && !warm) {
      // Whatever comes of it: the next look shows what does not work.
      boolean unused = warmUp.getAsBoolean();
      warm = true;
    }
    String failing = able ? appends.whyNot(System.nanoTime()) : "";
    if (!failing.isEmpty() && ++looksFailing % PROBE_EVERY_LOOKS == 0 && warmUp.getAsBoolean()) {
      // Nobody may be sent here who could find out.
      appends.works();
      failing = "";
    }
    able = able && failing.isEmpty();
    if (able != serving) {
      LOG.info("serving {}: connected {}, writable bookies {}", able, connected, writableBookies);
      say(able ? ServingStatus.SERVING : ServingStatus.NOT_SERVING);
      serving = able;
    }
    reason = able ? "" : failing.isEmpty() ? why() : failing;
  }

  private String why() {
    return connected
        ? "writable bookies "
            + writableBookies
            + ", needed "
            + writableBookiesMin
            + " (--writable-bookies-min)"
        : "ZooKeeper does not answer";
  }

  private void say(ServingStatus status) {
    manager.setStatus(HealthStatusManager.SERVICE_NAME_ALL_SERVICES, status);
    manager.setStatus(LedgersGrpc.SERVICE_NAME, status);
  }
}
