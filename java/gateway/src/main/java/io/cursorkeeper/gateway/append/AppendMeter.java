package io.cursorkeeper.gateway.append;

/** Hears of every answered entry, for metrics. */
@FunctionalInterface
public interface AppendMeter {
  void answered(int entryBytes, long nanos, boolean acknowledged);
}
