package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Failed;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.bookkeeper.bookie.ExitCode;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * One real bookie. It registers again by itself after ZooKeeper was away; when it ends, {@code
 * died} is told.
 */
public final class BookieNode {
  private static final long NAME_MAX_MS = 30_000;
  private static final long NAME_POLL_MS = 200;

  private final LifecycleComponentStack stack;
  private final BookieSettings settings;

  private BookieNode(LifecycleComponentStack stack, BookieSettings settings) {
    this.stack = stack;
    this.settings = settings;
  }

  /** Starts and returns once the bookie is registered and serves. */
  public static BookieNode start(BookieSettings settings, Consumer<String> died) throws Exception {
    awaitName(settings.advertisedAddress());
    ServerConfiguration config = settings.configuration();
    if (TableStorage.isSet(config)) {
      TableStorage.load(settings.folder());
    }
    EmbeddedServer server = EmbeddedServer.builder(new BookieConfiguration(config)).build();
    BookieServer bookie = server.getBookieService().getServer();
    LifecycleComponentStack stack = server.getLifecycleComponentStack();
    stack.setExceptionHandler(
        (thread, failure) ->
            died.accept(
                "bookie "
                    + settings.identity()
                    + " ended: "
                    + reason(bookie.getBookie().getExitCode())
                    + " ("
                    + Failed.inOneLine(failure)
                    + ")"));
    stack.start();
    // A bookie that cannot replay its journal or register says so in its log only, and starts
    // nothing.
    if (!bookie.isRunning()) {
      throw new IllegalStateException(
          "bookie "
              + settings.identity()
              + " did not start: "
              + reason(bookie.getBookie().getExitCode()));
    }
    return new BookieNode(stack, settings);
  }

  public String address() {
    return settings.identity();
  }

  public void stop() {
    stack.close();
  }

  private static String reason(int code) {
    return switch (code) {
      case ExitCode.BOOKIE_EXCEPTION ->
          "its disk cannot be written or read; is there room, and what do the lines above say?";
      case ExitCode.ZK_REG_FAIL ->
          "it could not be registered in ZooKeeper; does another bookie use its identity?";
      default -> "code " + code;
    };
  }

  // A new container's or pod's own name may be known to the resolver some seconds later than to
  // itself.
  private static void awaitName(String name) throws Exception {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(NAME_MAX_MS);
    while (!name.isEmpty()) {
      try {
        InetAddress.getByName(name);
        return;
      } catch (UnknownHostException unknown) {
        if (System.nanoTime() > until) {
          throw new IllegalStateException(
              "--advertised-address "
                  + name
                  + " does not resolve here; it must be the "
                  + "name of this machine, container or pod in a network that all clients share",
              unknown);
        }
      }
      Thread.sleep(NAME_POLL_MS);
    }
  }
}
