package io.cursorkeeper.pulsar;

import java.util.LinkedHashSet;
import java.util.Set;

/**
 * Whose topics are kept: all, or those of some namespaces ({@code tenant/namespace}) and tenants
 * ({@code tenant/*}).
 */
public final class Namespaces {

  private final Set<String> patterns;

  private Namespaces(Set<String> patterns) {
    this.patterns = patterns;
  }

  /** Of a list with commas; empty: all. Raises SettingsException. */
  static Namespaces of(String setting, String list) {
    Set<String> patterns = new LinkedHashSet<>();
    for (String each : list.isEmpty() ? new String[0] : list.split(",", -1)) {
      String pattern = each.trim();
      if (!pattern.matches("[^/*\\s]+/([^/*\\s]+|\\*)")) {
        throw new SettingsException(
            setting,
            list,
            "\"" + pattern + "\" is neither tenant/namespace nor tenant/*",
            "leave the setting out for all namespaces");
      }
      patterns.add(pattern);
    }
    return new Namespaces(patterns);
  }

  /** Of a managed ledger, {@code tenant/namespace/persistent/topic}. */
  public boolean contains(String managedLedger) {
    if (patterns.isEmpty()) {
      return true;
    }
    int tenant = managedLedger.indexOf('/');
    int namespace = managedLedger.indexOf('/', tenant + 1);
    if (tenant < 0 || namespace < 0) {
      return false;
    }
    return patterns.contains(managedLedger.substring(0, namespace))
        || patterns.contains(managedLedger.substring(0, tenant) + "/*");
  }

  @Override
  public String toString() {
    return patterns.isEmpty() ? "all" : String.join(", ", patterns);
  }
}
