package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.access.AuditLog;
import io.cursorkeeper.gateway.access.Callers;
import io.cursorkeeper.gateway.access.Role;
import io.cursorkeeper.gateway.append.AppendStream;
import io.cursorkeeper.gateway.append.OpenLedgers;
import io.cursorkeeper.gateway.append.Window;
import io.cursorkeeper.gateway.systems.Systems;
import io.cursorkeeper.ledgers.v1.DescribeReply;
import io.grpc.Server;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.services.ProtoReflectionService;
import io.grpc.protobuf.services.ProtoReflectionServiceV1;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.util.internal.PlatformDependent;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Puts the gateway together, starts and stops it. It owns nothing durable: when it dies, open write
 * handles are gone and everything else is in the bookies.
 */
public final class Gateway {
  private static final Logger LOG = LoggerFactory.getLogger(Gateway.class);
  private static final int READ_THREADS = 2;
  private static final int LIST_THREADS = 2;
  private static final int LISTS_WAITING_MAX = 64;
  private static final int CALLS_PER_CONNECTION_MAX = 1_024;
  private static final int CALLS_MAX = 8_192;
  private static final long HANDSHAKE_MAX_MS = 10_000;
  private static final long KEEPALIVE_ANSWER_MAX_MS = 10_000;

  /**
   * Of a connection that has its age: calls that run go on for so long. Short, because behind an
   * address may be several gateways: until its stream ends too, what a daemon creates may be on
   * another one than what it appends to.
   */
  private static final long CONNECTION_GRACE_S = 5;

  /**
   * Calls of one connection that its client takes back within {@link #RESETS_WINDOW_S}: four times
   * as many as a daemon can have at once.
   */
  private static final int RESETS_MAX = 4 * CALLS_PER_CONNECTION_MAX;

  private static final int RESETS_WINDOW_S = 30;
  private static final long DRAIN_MAX_MS = 500;
  private static final long DRAIN_POLL_MS = 5;
  private static final long CLIENT_CLOSE_MAX_MS = 250;

  private final GatewaySettings settings;
  private final BookKeeperClient client;
  private final Metrics metrics = new Metrics();
  private final Window window;
  private final OpenLedgers ledgers;
  private final ScheduledExecutorService replyThread =
      Executors.newSingleThreadScheduledExecutor(named("reply"));
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(named("health"));
  private final ExecutorService readThreads =
      Executors.newFixedThreadPool(READ_THREADS, named("read"));

  /**
   * Whether a caller is a writer, to the threads of its lists: readers cannot take those of
   * writers.
   */
  private final Map<Boolean, ExecutorService> listThreads = Map.of(true, lists(), false, lists());

  private final Connections connections = new Connections(Memory.connections());
  private final EventLoopGroup accepting =
      new MultiThreadIoEventLoopGroup(1, named("accept"), NioIoHandler.newFactory());
  private final EventLoopGroup network =
      new MultiThreadIoEventLoopGroup(named("network"), NioIoHandler.newFactory());
  private final AppendHealth appends = new AppendHealth(metrics);
  private final AppendStream.Shared streams;
  private final LedgersService service;
  private final Peers peers;
  private final AuditLog audit;
  private final Callers callers;
  private boolean isWarm;
  private final Health health;

  /** Null: plain text. */
  private final Tls.Contexts tls;

  private final Server server;
  private final MetricsServer metricsServer;

  private Gateway(GatewaySettings settings, Systems systems) throws Exception {
    this.settings = settings;
    ByteBufAllocator buffers = Memory.allocator();
    client = BookKeeperClient.connect(systems, settings, buffers);
    window = new Window(settings.inFlightBytesMax(), settings.inFlightEntriesMax());
    ledgers = new OpenLedgers(window, appends, settings.openHandlesMax(), settings.entryBytesMax());
    health = new Health(client, settings.writableBookiesMin(), this::warmUp, appends);
    streams =
        new AppendStream.Shared(
            ledgers,
            window,
            replyThread,
            settings.appendLingerMs(),
            metrics::failure,
            ConcurrentHashMap.newKeySet(),
            settings.streamsMax(),
            settings.stallMaxMs());
    audit =
        new AuditLog(
            settings.access().auditLogFile(),
            lost -> metrics.add(Metrics.Counter.AUDIT_LINES_LOST, lost));
    callers =
        new Callers(
            settings.access(), audit, metrics::failure, peer -> Peers.current().isKnown(peer));
    service =
        new LedgersService(
            client.api(),
            settings,
            ledgers,
            streams,
            metrics,
            readThreads,
            listThreads,
            audit,
            description(systems.metadataServiceUri()));
    peers =
        new Peers(
            connections,
            CALLS_MAX,
            Memory.heldBytes(),
            Memory.replyBytes(),
            settings.stallMaxMs(),
            metrics::failure);
    tls = settings.tls().isEmpty() ? null : settings.tls().get().contexts(timer);
    NettyServerBuilder building =
        NettyServerBuilder.forAddress(new InetSocketAddress(settings.host(), settings.port()))
            .channelFactory(() -> new BoundedServerChannel(connections, tls != null))
            .bossEventLoopGroup(accepting)
            .workerEventLoopGroup(network)
            .withChildOption(ChannelOption.ALLOCATOR, buffers)
            .flowControlWindow(Memory.CONNECTION_WINDOW_BYTES)
            .handshakeTimeout(HANDSHAKE_MAX_MS, TimeUnit.MILLISECONDS)
            .addStreamTracerFactory(peers)
            .directExecutor()
            .maxInboundMessageSize(settings.messageBytesMax())
            .maxConcurrentCallsPerConnection(CALLS_PER_CONNECTION_MAX)
            .keepAliveTime(settings.keepaliveMs(), TimeUnit.MILLISECONDS)
            .keepAliveTimeout(KEEPALIVE_ANSWER_MAX_MS, TimeUnit.MILLISECONDS)
            .permitKeepAliveTime(settings.keepalivePermitMs(), TimeUnit.MILLISECONDS)
            .permitKeepAliveWithoutCalls(true)
            .maxRstFramesPerWindow(RESETS_MAX, RESETS_WINDOW_S)
            .intercept(callers)
            .intercept(peers)
            .addService(Bound.of(service, settings))
            .addService(health.service());
    if (settings.access().reflection()) {
      building
          .addService(ProtoReflectionServiceV1.newInstance())
          .addService(ProtoReflectionService.newInstance());
    }
    if (settings.access().connectionAgeMaxSeconds() > 0) {
      building
          .maxConnectionAge(settings.access().connectionAgeMaxSeconds(), TimeUnit.SECONDS)
          .maxConnectionAgeGrace(CONNECTION_GRACE_S, TimeUnit.SECONDS);
    }
    if (tls != null) {
      building.sslContext(tls.ofCalls());
    }
    server = building.build();
    gauges();
    metricsServer =
        settings.metricsPort() < 0
            ? null
            : MetricsServer.start(
                settings.metricsHost(),
                settings.metricsPort(),
                tls == null ? null : tls.ofPages(),
                metrics::text,
                health::whyNotServing);
  }

  /** Starts, warms up if there are bookies already, and returns ready. */
  public static Gateway start(GatewaySettings settings, Systems systems) throws Exception {
    Gateway gateway = new Gateway(settings, systems);
    gateway.server.start();
    gateway.health.run();
    gateway.timer.scheduleWithFixedDelay(
        gateway.health, Health.POLL_MS, Health.POLL_MS, TimeUnit.MILLISECONDS);
    gateway.timer.scheduleWithFixedDelay(
        () -> gateway.ledgers.releaseUseless(settings.uselessHandleAgeMaxMs()),
        settings.uselessHandleAgeMaxMs(),
        Math.max(100, settings.uselessHandleAgeMaxMs() / 4),
        TimeUnit.MILLISECONDS);
    gateway.timer.scheduleWithFixedDelay(
        gateway::look, Health.POLL_MS, Health.POLL_MS, TimeUnit.MILLISECONDS);
    gateway.timer.scheduleWithFixedDelay(
        gateway.callers::reread,
        settings.access().refreshSeconds(),
        settings.access().refreshSeconds(),
        TimeUnit.SECONDS);
    return gateway;
  }

  // Never throws, because its timer would end with it.
  private void look() {
    try {
      peers.look();
      service.look();
      streams.look();
      callers.look();
      audit.look();
    } catch (RuntimeException unexpected) {
      LOG.error("looking after peers and callers failed", unexpected);
    }
  }

  public String address() {
    return settings.host() + ":" + server.getPort();
  }

  public Optional<String> metricsAddress() {
    return Optional.ofNullable(metricsServer)
        .map(running -> settings.metricsHost() + ":" + running.port());
  }

  /**
   * Takes no more calls, gives what is in flight a moment to be answered, and lets go of the rest.
   */
  public void stop() throws Exception {
    health.stop();
    server.shutdown();
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(DRAIN_MAX_MS);
    while (window.entries() > 0 && System.nanoTime() < until) {
      Thread.sleep(DRAIN_POLL_MS);
    }
    Thread.sleep(settings.appendLingerMs() + DRAIN_POLL_MS);
    server.shutdownNow();
    timer.shutdownNow();
    audit.stop();
    listThreads.values().forEach(ExecutorService::shutdownNow);
    accepting.shutdownGracefully(0, DRAIN_MAX_MS, TimeUnit.MILLISECONDS);
    network.shutdownGracefully(0, DRAIN_MAX_MS, TimeUnit.MILLISECONDS);
    if (metricsServer != null) {
      metricsServer.stop();
    }
    // The library waits seconds for its idle threads; it has nothing left to do that matters.
    Thread closing = new Thread(client::close, "client-close");
    closing.setDaemon(true);
    closing.start();
    closing.join(CLIENT_CLOSE_MAX_MS);
  }

  private boolean warmUp() {
    InetSocketAddress bound = new InetSocketAddress(settings.host(), server.getPort());
    InetAddress host = bound.getAddress();
    InetSocketAddress reachable =
        host != null && host.isAnyLocalAddress()
            ? new InetSocketAddress(InetAddress.getLoopbackAddress(), server.getPort())
            : bound;
    boolean through =
        new WarmUp(reachable, settings, tls, callers.own()).run(health.writableBookies());
    if (!isWarm) {
      metrics.reset();
      isWarm = true;
    }
    return through;
  }

  private java.util.function.Supplier<DescribeReply.Builder> description(
      String metadataServiceUri) {
    Versions versions = Versions.built();
    DescribeReply fixed =
        DescribeReply.newBuilder()
            .setInstance(UUID.randomUUID().toString())
            .setVersion(versions.gateway())
            .setBookkeeperVersion(versions.bookkeeper())
            .setEntryBytesMax(settings.entryBytesMax())
            .setMessageBytesMax(settings.messageBytesMax())
            .setMessageEntriesMax(settings.messageEntriesMax())
            .setMessageLedgersMax(settings.messageLedgersMax())
            .setMetadataServiceUri(metadataServiceUri)
            .addAllRoles(settings.access().roles().stream().map(Role::word).toList())
            .build();
    return () -> fixed.toBuilder().setWritableBookies(health.writableBookies());
  }

  private void gauges() {
    metrics.build(Versions.built());
    metrics.gauge("in_flight_bytes", "Bytes between streams and bookies", window::bytes);
    metrics.gauge("in_flight_entries", "Entries between streams and bookies", window::entries);
    metrics.gauge("streams_waiting", "Append streams held back by the window", window::waiting);
    metrics.gauge("streams", "Append streams", () -> streams.open().size());
    metrics.gauge("connections", "Connections of clients", connections::count);
    metrics.gauge("calls", "Calls of clients, also those that wait for something", peers::calls);
    metrics.gauge(
        "held_bytes",
        "Bytes of messages that have arrived, wholly or in part, and are not taken",
        peers::heldBytes);
    metrics.gauge(
        "reply_bytes",
        "Bytes of answers that are not taken, or that room is kept for",
        peers::replyBytes);
    metrics.gauge(
        "read_bytes",
        "Bytes that reads have asked for or hold for their callers",
        service::readBytes);
    metrics.gauge("reads_waiting", "Reads that wait for room in the budget", service::readsWaiting);
    metrics.gauge(
        "identified_calls", "Open calls of identities of the identities file", callers::open);
    metrics.gauge("open_handles", "Ledgers open for writing", ledgers::size);
    metrics.gauge("reads", "Read calls running", service::reads);
    metrics.gauge("writable_bookies", "Bookies registered as writable", health::writableBookies);
    metrics.gauge(
        "suspect_bookies",
        "Bookies that stood still and have not answered since",
        client::suspects);
    metrics.gauge(
        "direct_bytes",
        "Used memory beside the heap, of Netty",
        PlatformDependent::usedDirectMemory);
    metrics.gauge("zookeeper_connected", "1 while connected", () -> health.connected() ? 1 : 0);
    metrics.gauge("serving", "1 while health says SERVING", () -> health.serving() ? 1 : 0);
    metrics.gauge(
        "heap_bytes",
        "Used heap",
        () -> Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory());
  }

  private static ExecutorService lists() {
    return new ThreadPoolExecutor(
        LIST_THREADS,
        LIST_THREADS,
        0,
        TimeUnit.SECONDS,
        new ArrayBlockingQueue<>(LISTS_WAITING_MAX),
        named("list"));
  }

  private static ThreadFactory named(String name) {
    AtomicInteger number = new AtomicInteger();
    return work -> {
      Thread thread = new Thread(work, "gateway-" + name + "-" + number.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }
}
