package io.cursorkeeper.gateway.append;

/** Hears of every answered entry, for metrics. */
@FunctionalInterface
public interface AppendMeter {
  /** {@code thrown} null: acknowledged. */
  void answered(int entryBytes, long nanos, Throwable thrown);
}
