package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/** A set of numbers below 2^32 as runs {first, last}: ascending, none touching the next. */
final class Runs {
  static final Runs NONE = new Runs(List.of());
  private final List<long[]> runs;

  /** Runs that are being found, mostly ascending: they are counted before they are kept. */
  static final class Growing {
    private final List<long[]> found = new ArrayList<>();
    private final Room room;

    Growing(Room room) {
      this.room = room;
    }

    void add(long first, long last) {
      long[] before = found.isEmpty() ? null : found.get(found.size() - 1);
      if (before != null && first >= before[0] && first <= before[1] + 1) {
        before[1] = Math.max(before[1], last);
      } else {
        room.take(Room.RUN);
        found.add(new long[] {first, last});
      }
    }

    boolean isEmpty() {
      return found.isEmpty();
    }

    Runs done() {
      return of(found);
    }
  }

  private Runs(List<long[]> runs) {
    this.runs = runs;
  }

  /** Of runs in any order, overlapping or not. */
  static Runs of(List<long[]> told) {
    List<long[]> sorted = new ArrayList<>(told);
    sorted.sort(Comparator.comparingLong(run -> run[0]));
    List<long[]> found = new ArrayList<>();
    for (long[] run : sorted) {
      long[] before = found.isEmpty() ? null : found.get(found.size() - 1);
      if (before != null && run[0] <= before[1] + 1) {
        before[1] = Math.max(before[1], run[1]);
      } else {
        found.add(run.clone());
      }
    }
    return new Runs(found);
  }

  static Runs one(long first, long last) {
    return first > last ? NONE : new Runs(List.of(new long[] {first, last}));
  }

  Runs or(Runs other) {
    List<long[]> all = new ArrayList<>(runs);
    all.addAll(other.runs);
    return of(all);
  }

  Runs and(Runs other) {
    List<long[]> found = new ArrayList<>();
    for (int mine = 0, its = 0; mine < runs.size() && its < other.runs.size(); ) {
      long[] a = runs.get(mine);
      long[] b = other.runs.get(its);
      long first = Math.max(a[0], b[0]);
      long last = Math.min(a[1], b[1]);
      if (first <= last) {
        found.add(new long[] {first, last});
      }
      if (a[1] < b[1]) {
        mine++;
      } else {
        its++;
      }
    }
    return new Runs(found);
  }

  /** Those of first..last that are not in this set. */
  Runs absentFrom(long first, long last) {
    List<long[]> found = new ArrayList<>();
    long at = first;
    for (long[] run : and(one(first, last)).runs) {
      if (at < run[0]) {
        found.add(new long[] {at, run[0] - 1});
      }
      at = run[1] + 1;
    }
    if (at <= last) {
      found.add(new long[] {at, last});
    }
    return new Runs(found);
  }

  boolean contains(long number) {
    return !and(one(number, number)).isEmpty();
  }

  boolean isEmpty() {
    return runs.isEmpty();
  }

  long first() {
    return runs.get(0)[0];
  }

  long last() {
    return runs.get(runs.size() - 1)[1];
  }

  long count() {
    return runs.stream().mapToLong(run -> run[1] - run[0] + 1).sum();
  }

  /** The last p such that 0..p are all here; -1 if 0 is not. */
  long prefix() {
    return isEmpty() || first() > 0 ? -1 : runs.get(0)[1];
  }

  int size() {
    return runs.size();
  }

  /** Runs of its own, which may be changed. */
  List<long[]> copies() {
    List<long[]> found = new ArrayList<>(runs.size());
    runs.forEach(run -> found.add(run.clone()));
    return found;
  }

  /** How many multiples of 65,536 begin containers that are wholly here. */
  long wholeContainers() {
    return runs.stream()
        .mapToLong(run -> Math.max(0, ((run[1] + 1) >> 16) - ((run[0] + 0xffff) >> 16)))
        .sum();
  }

  List<List<Long>> told() {
    return runs.stream().map(run -> Arrays.asList(run[0], run[1])).toList();
  }
}
