package io.cursorkeeper.gateway.systems;

import java.nio.file.Path;
import java.security.PrivilegedActionException;
import java.security.PrivilegedExceptionAction;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.security.auth.Subject;
import javax.security.auth.kerberos.KerberosPrincipal;
import javax.security.auth.kerberos.KeyTab;
import javax.security.auth.login.LoginContext;
import javax.security.auth.login.LoginException;
import org.ietf.jgss.GSSContext;
import org.ietf.jgss.GSSException;
import org.ietf.jgss.GSSManager;
import org.ietf.jgss.GSSName;
import org.ietf.jgss.Oid;

/**
 * Logins with Kerberos, tried before a server is dialled, for operators of clusters that have it:
 * ZooKeeper's client tells only its log that one failed, and goes on as nobody; BookKeeper's tells
 * only its log, too.
 */
final class Kerberos {
  static final String MODULE = "com.sun.security.auth.module.Krb5LoginModule";
  private static final String MECHANISM = "1.2.840.113554.1.2.2";

  /** The JDK asks a key distribution center that is silent for a minute and a half. */
  private static final long ANSWER_MAX_MS = 20_000;

  private Kerberos() {}

  /** Throws IllegalArgumentException with a message for people unless a section logs in. */
  static void check(Logins logins, String section) {
    String said = logins.said() + ", section " + section + ", " + logins.user(section);
    checkKeyTab(logins.options(section), said);
    try {
      bounded(
          () -> {
            logIn(logins, section);
            return "";
          });
    } catch (LoginException refused) {
      String why = Failures.text(refused);
      throw Failures.wrong(said, why, remedy(why));
    }
  }

  private static void checkKeyTab(Map<String, ?> options, String said) {
    if (!isTrue(options, "useKeyTab") || !(options.get("keyTab") instanceof String named)) {
      return;
    }
    String file = named.startsWith("file:") ? named.substring("file:".length()) : named;
    KeyFiles.requireReadable(said + ", keyTab " + file, file);
    if (options.get("principal") instanceof String principal
        && !principal.contains("*")
        && KeyTab.getInstance(Path.of(file).toFile())
                .getKeys(new KerberosPrincipal(principal))
                .length
            == 0) {
      throw Failures.wrong(
          said + ", keyTab " + file,
          "it holds no key of this principal",
          "`klist -k -e` lists what it holds; write this one's into it (kadmin: ktadd)");
    }
  }

  private static boolean isTrue(Map<String, ?> options, String name) {
    return String.valueOf(options.get(name)).toLowerCase(Locale.ROOT).equals("true");
  }

  /** Why a section gets no ticket for a service; empty: it gets one. */
  static String whyNoTicket(Logins logins, String section, String service, String host) {
    try {
      return bounded(
          () -> {
            Subject.doAs(
                logIn(logins, section),
                (PrivilegedExceptionAction<Void>)
                    () -> {
                      ask(service, host);
                      return null;
                    });
            return "";
          });
    } catch (LoginException refused) {
      String why = Failures.text(refused);
      return "there is no ticket for " + service + "/" + host + " (" + why + "): " + remedy(why);
    }
  }

  private static Subject logIn(Logins logins, String section) throws LoginException {
    LoginContext login = new LoginContext(section, new Subject(), null, logins);
    login.login();
    return login.getSubject();
  }

  private static void ask(String service, String host) throws GSSException {
    GSSManager manager = GSSManager.getInstance();
    GSSContext context =
        manager.createContext(
            manager.createName(service + "@" + host, GSSName.NT_HOSTBASED_SERVICE),
            new Oid(MECHANISM),
            null,
            GSSContext.DEFAULT_LIFETIME);
    try {
      context.initSecContext(new byte[0], 0, 0);
    } finally {
      context.dispose();
    }
  }

  /** What it gives; a failure, and no answer in time, is a LoginException. */
  private static String bounded(Callable<String> work) throws LoginException {
    FutureTask<String> task = new FutureTask<>(work);
    Thread thread = new Thread(task, "kerberos-login");
    thread.setDaemon(true);
    thread.start();
    try {
      return task.get(ANSWER_MAX_MS, TimeUnit.MILLISECONDS);
    } catch (TimeoutException silent) {
      throw new LoginException("no answer within " + ANSWER_MAX_MS / 1_000 + " s");
    } catch (ExecutionException failed) {
      Throwable cause = failed.getCause();
      if (cause instanceof PrivilegedActionException inside) {
        cause = inside.getCause();
      }
      throw new LoginException(Failures.text(cause));
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
      throw new LoginException("interrupted");
    }
  }

  /** The numbers are those of RFC 4120, which the JDK puts behind its words. */
  private static String remedy(String why) {
    if (why.contains("(6)")) {
      return "create this principal at the key distribution center, or correct its name";
    }
    if (why.contains("(7)")) {
      return "create the server's principal, or say its name as the server has it"
          + " (zookeeper.sasl.client.username, zookeeper.server.principal,"
          + " bookkeeper.sasl.servicename), and dial the server by that host";
    }
    if (why.contains("(24)") || why.contains("(31)") || why.contains("Checksum failed")) {
      return "its key is not the one that the key distribution center has: write the keytab again";
    }
    if (why.contains("(37)")) {
      return "set this machine's clock";
    }
    if (why.contains("Unable to obtain") || why.contains("No CallbackHandler")) {
      return "name a keyTab that holds the principal, or a ticketCache with a ticket (kinit)";
    }
    if (why.contains("realm") || why.contains("KDC")) {
      return "name a krb5.conf with this realm and its key distribution center"
          + " (-Djava.security.krb5.conf)";
    }
    return "is the key distribution center of -Djava.security.krb5.conf up and reachable?"
        + " -Dsun.security.krb5.debug=true tells more";
  }
}
