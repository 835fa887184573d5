package io.cursorkeeper.gateway;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.security.Security;
import java.util.Arrays;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Entry of the jar: picks the command, and turns a failing start into one line on stderr and a
 * halt.
 *
 * <p>Halt, not exit: a half-started server leaves threads that would keep the process alive.
 */
public final class Main {
  // Held, or the JDK forgets the level with the logger.
  private static final Logger GRPC_LOG = Logger.getLogger("io.grpc");

  static {
    // The JDK keeps a name's address for 30 s and a missing name for 10 s; a restarted container
    // has a new address.
    Security.setProperty("networkaddress.cache.ttl", "1");
    Security.setProperty("networkaddress.cache.negative.ttl", "0");
    // Before any class of the servers is loaded: with IPv6 the interface `lo` resolves to an
    // address bookies refuse.
    preset("java.net.preferIPv4Stack", "true");
    preset("io.netty.tryReflectionSetAccessible", "true");
    // Whether a name must be in a certificate is a setting of BookKeeper's and ZooKeeper's clients;
    // Netty would want it whatever they say.
    preset("io.netty.handler.ssl.defaultEndpointVerificationAlgorithm", "NONE");
    preset("log4j2.configurationFile", "cursorkeeper-log4j2.xml");
    preset("log4j2.disable.jmx", "true");
    preset("zookeeper.jmx.log4j.disable", "true");
    preset("zookeeper.admin.enableServer", "false");
    // grpc logs through the JDK, with a stack for every client that sends too large a message.
    GRPC_LOG.setLevel(Level.SEVERE);
  }

  private Main() {}

  /** Usage: {@code COMMAND [--flag value]...}; {@code COMMAND --help} lists the flags. */
  public static void main(String[] args) {
    Command command = null;
    try {
      command = Command.named(args.length == 0 ? "" : args[0]);
      String[] rest = Arrays.copyOfRange(args, 1, args.length);
      if (Arrays.asList(rest).contains("--help")) {
        System.out.print(Flag.help(command.word(), command.flags()));
        return;
      }
      command.run(Flags.parse(command.flags(), rest));
    } catch (IllegalArgumentException wrong) {
      halt(2, command, wrong);
    } catch (Throwable failure) {
      halt(1, command, failure);
    }
  }

  private static void halt(int status, Command command, Throwable failure) {
    System.err.println(
        "cursorkeeper-gateway"
            + (command == null ? "" : " " + command.word())
            + ": "
            + Failed.inOneLine(failure));
    System.err.flush();
    Runtime.getRuntime().halt(status);
  }

  private static void preset(String property, String value) {
    if (System.getProperty(property) == null) {
      System.setProperty(property, value);
    }
  }
}
