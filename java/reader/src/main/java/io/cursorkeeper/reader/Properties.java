package io.cursorkeeper.reader;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A property map with its stamp; the values are longs or texts. */
record Properties(long epoch, long sequence, TreeMap<String, Object> values) {
  static TreeMap<String, Object> sorted() {
    return new TreeMap<>(Properties::compareTexts);
  }

  /** The one that a join keeps. */
  static Properties later(Properties a, Properties b) {
    if (a == null || b == null) {
      return a == null ? b : a;
    }
    int order = Long.compareUnsigned(a.epoch, b.epoch);
    order = order != 0 ? order : Long.compareUnsigned(a.sequence, b.sequence);
    order =
        order != 0
            ? order
            : compareMaps(List.copyOf(a.values.entrySet()), List.copyOf(b.values.entrySet()));
    return order < 0 ? b : a;
  }

  private static int compareMaps(
      List<Map.Entry<String, Object>> a, List<Map.Entry<String, Object>> b) {
    for (int i = 0; i < Math.min(a.size(), b.size()); i++) {
      int order = compareTexts(a.get(i).getKey(), b.get(i).getKey());
      Object mine = a.get(i).getValue();
      Object its = b.get(i).getValue();
      order =
          order != 0
              ? order
              : mine instanceof Long n
                  ? n.compareTo((Long) its)
                  : compareTexts((String) mine, (String) its);
      if (order != 0) {
        return order;
      }
    }
    return a.size() - b.size();
  }

  private static int compareTexts(String a, String b) {
    return Arrays.compareUnsigned(
        a.getBytes(StandardCharsets.UTF_8), b.getBytes(StandardCharsets.UTF_8));
  }

  Map<String, Object> told() {
    return Map.of("stamp", List.of(unsigned(epoch), unsigned(sequence)), "values", values);
  }

  private static BigInteger unsigned(long number) {
    return new BigInteger(Long.toUnsignedString(number));
  }
}
