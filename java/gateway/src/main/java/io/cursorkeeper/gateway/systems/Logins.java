package io.cursorkeeper.gateway.systems;

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import javax.security.auth.login.Configuration;
import org.apache.zookeeper.server.auth.DigestLoginModule;

/**
 * How this process logs in by SASL: the sections of the operator's JAAS file, and those that are
 * made from files with a user and password. There is one such configuration for a whole JVM.
 */
final class Logins extends Configuration {
  private static final String FILE = "java.security.auth.login.config";
  private final Map<String, Secret> made;

  /** Null: there is no file. */
  private final Configuration file;

  private final String said;

  private Logins(Map<String, Secret> made, Configuration file, String said) {
    this.made = Map.copyOf(made);
    this.file = file;
    this.said = said;
  }

  /**
   * Makes it the JVM's. Throws IllegalArgumentException with a message for people.
   *
   * @param jaasFile empty: the one that the JVM was told, if any
   * @param made sections that win over those of the file
   */
  static Logins install(String jaasFile, Map<String, Secret> made) {
    String said = "--jaas-file " + jaasFile;
    if (!jaasFile.isEmpty()) {
      System.setProperty(FILE, Path.of(jaasFile).toAbsolutePath().toString());
    } else if (System.getProperty(FILE) != null) {
      said = "-D" + FILE + "=" + System.getProperty(FILE);
    } else {
      Logins none = new Logins(made, null, "no JAAS file");
      if (!made.isEmpty()) {
        Configuration.setConfiguration(none);
      }
      return none;
    }
    String path = System.getProperty(FILE);
    if (!path.startsWith("file:") && !Files.isReadable(Path.of(path))) {
      throw Failures.wrong(
          said,
          "it cannot be read",
          "name the file that a broker is given with -D" + FILE + ", readable for this user");
    }
    try {
      Logins logins =
          new Logins(new HashMap<>(made), Configuration.getInstance("JavaLoginConfig", null), said);
      Configuration.setConfiguration(logins);
      return logins;
    } catch (NoSuchAlgorithmException | SecurityException wrong) {
      throw Failures.wrong(
          said,
          Failures.text(Failures.innermost(wrong)),
          "correct it; it is a file of JAAS sections");
    }
  }

  boolean has(String section) {
    return getAppConfigurationEntry(section) != null;
  }

  /** Whether it logs in with a user and password, not with Kerberos. */
  boolean isPassword(String section) {
    AppConfigurationEntry[] entries = getAppConfigurationEntry(section);
    return entries != null
        && entries.length > 0
        && entries[0].getLoginModuleName().equals(DigestLoginModule.class.getName());
  }

  boolean isKerberos(String section) {
    AppConfigurationEntry[] entries = getAppConfigurationEntry(section);
    return entries != null
        && entries.length > 0
        && entries[0].getLoginModuleName().equals(Kerberos.MODULE);
  }

  /** As messages name who it is: the user or the principal of a section. */
  String user(String section) {
    Map<String, ?> options = options(section);
    if (isKerberos(section)) {
      Object principal = options.get("principal");
      return principal == null ? "the principal of its tickets" : "principal " + principal;
    }
    Object user = options.get("username");
    return user == null ? "section " + section : "user " + user;
  }

  /** What a section says to its module. */
  Map<String, ?> options(String section) {
    AppConfigurationEntry[] entries = getAppConfigurationEntry(section);
    return entries == null || entries.length == 0 ? Map.of() : entries[0].getOptions();
  }

  /** Where the sections are from, as messages name it. */
  String said() {
    return said;
  }

  @Override
  public AppConfigurationEntry[] getAppConfigurationEntry(String section) {
    Secret secret = made.get(section);
    if (secret != null) {
      return new AppConfigurationEntry[] {
        new AppConfigurationEntry(
            DigestLoginModule.class.getName(),
            LoginModuleControlFlag.REQUIRED,
            Map.of("username", secret.user(), "password", secret.password()))
      };
    }
    return file == null ? null : file.getAppConfigurationEntry(section);
  }
}
