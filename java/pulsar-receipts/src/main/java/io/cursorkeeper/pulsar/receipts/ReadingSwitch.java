package io.cursorkeeper.pulsar.receipts;

import io.cursorkeeper.pulsar.ReceiptPolicy;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * Serves {@link ReceiptGate}: Pulsar's own switch that stops to read from a connection. It counts,
 * because limits of publishing use it, too; a bare change of Netty's autoRead would undo theirs.
 * Its name changed in patch releases, so it is looked up.
 */
final class ReadingSwitch {

  /** The same for one connection. */
  interface OfConnection {
    void stop();

    void goOn();
  }

  /** Of (connection) -> void. */
  private final MethodHandle stop;

  private final MethodHandle goOn;

  private ReadingSwitch(MethodHandle stop, MethodHandle goOn) {
    this.stop = stop;
    this.goOn = goOn;
  }

  /** Raises SettingsException. */
  static ReadingSwitch find(Class<?> connection) {
    MethodHandles.Lookup lookup = MethodHandles.publicLookup();
    try {
      Class<?> tracker = connection.getMethod("getThrottleTracker").getReturnType();
      MethodHandle ofConnection = lookup.unreflect(connection.getMethod("getThrottleTracker"));
      Class<?> type =
          Class.forName(tracker.getName() + "$ThrottleType", true, connection.getClassLoader());
      // One of the two that count.
      Object counted = type.getField("TopicPublishRate").get(null);
      MethodType signature = MethodType.methodType(void.class, type);
      return new ReadingSwitch(
          with(lookup.findVirtual(tracker, "markThrottled", signature), counted, ofConnection),
          with(lookup.findVirtual(tracker, "unmarkThrottled", signature), counted, ofConnection));
    } catch (ReflectiveOperationException newer) {
      try {
        MethodType signature = MethodType.methodType(void.class);
        return new ReadingSwitch(
            general(lookup.findVirtual(connection, "incrementThrottleCount", signature)),
            general(lookup.findVirtual(connection, "decrementThrottleCount", signature)));
      } catch (ReflectiveOperationException older) {
        throw ReceiptPolicy.unfit(
            "this Pulsar has no switch of reading that is known here (" + newer + ")");
      }
    }
  }

  private static MethodHandle with(MethodHandle method, Object type, MethodHandle tracker) {
    return general(
        MethodHandles.filterArguments(MethodHandles.insertArguments(method, 1, type), 0, tracker));
  }

  private static MethodHandle general(MethodHandle method) {
    return method.asType(MethodType.methodType(void.class, Object.class));
  }

  OfConnection of(Object connection) {
    return new OfConnection() {
      @Override
      public void stop() {
        call(stop, connection);
      }

      @Override
      public void goOn() {
        call(goOn, connection);
      }
    };
  }

  private static void call(MethodHandle method, Object connection) {
    try {
      method.invokeExact(connection);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }
}
