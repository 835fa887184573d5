package io.cursorkeeper.gateway.access;

import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * How often somebody's refusals are told: a few in each window, and of the others their number. So
 * who tries a million times fills no disk. The time is given.
 */
final class AuditRates {
  static final int LINES_MAX = 20;
  static final long WINDOW_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** More at once share one. */
  static final int KEYS_MAX = 1_024;

  static final String OTHERS = "others";

  private static final class Window {
    private long beganNanos;
    private int lines;
    private long leftOut;
  }

  private final Map<String, Window> windows = new HashMap<>();

  /** Negative: leave it out. Else tell it, and that so many were left out before. */
  synchronized long take(String key, long nowNanos) {
    Window window =
        windows.containsKey(key) || windows.size() < KEYS_MAX
            ? windows.computeIfAbsent(key, fresh -> began(nowNanos))
            : windows.computeIfAbsent(OTHERS, fresh -> began(nowNanos));
    if (nowNanos - window.beganNanos > WINDOW_NANOS) {
      window.beganNanos = nowNanos;
      window.lines = 0;
    }
    if (window.lines == LINES_MAX) {
      window.leftOut++;
      return -1;
    }
    window.lines++;
    long leftOut = window.leftOut;
    window.leftOut = 0;
    return leftOut;
  }

  /** Forgets windows that are over, and gives what was left out in them. */
  synchronized Map<String, Long> over(long nowNanos) {
    Map<String, Long> leftOut = new LinkedHashMap<>();
    Iterator<Map.Entry<String, Window>> all = windows.entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry<String, Window> one = all.next();
      if (nowNanos - one.getValue().beganNanos > WINDOW_NANOS) {
        if (one.getValue().leftOut > 0) {
          leftOut.put(one.getKey(), one.getValue().leftOut);
        }
        all.remove();
      }
    }
    return leftOut;
  }

  private static Window began(long nowNanos) {
    Window window = new Window();
    window.beganNanos = nowNanos;
    return window;
  }
}
