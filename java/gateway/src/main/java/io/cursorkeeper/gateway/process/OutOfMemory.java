package io.cursorkeeper.gateway.process;

import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/**
 * Memory that has run out ends the process, so that it is started again: what is left of it fails
 * calls for ever and looks alive. The JVM's own flag (-XX:+ExitOnOutOfMemoryError) knows the heap
 * only; Netty keeps accounts of its own beside it.
 *
 * <p>Whoever sees a failure asks {@link #look}; libraries that keep one to themselves at least log
 * it.
 */
public final class OutOfMemory {
  private static final int CAUSES_MAX = 10;
  private static volatile Consumer<String> end = reason -> {};

  private OutOfMemory() {}

  /** From now on {@code died} is told once memory has run out, whichever thread finds out. */
  public static void endWith(Consumer<String> died) {
    end = died;
    Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> look(thrown));
    Logger.getLogger("")
        .addHandler(
            new Handler() {
              @Override
              public void publish(LogRecord line) {
                look(line.getThrown());
              }

              @Override
              public void flush() {}

              @Override
              public void close() {}
            });
    AbstractAppender appender =
        new AbstractAppender("out-of-memory", null, null, true, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent line) {
            look(line.getThrown());
          }
        };
    appender.start();
    LoggerContext context = (LoggerContext) LogManager.getContext(false);
    context.getConfiguration().addAppender(appender);
    context.getRootLogger().addAppender(appender);
  }

  /** Ends the process if this is, or was caused by, memory that has run out; null is nothing. */
  public static void look(Throwable thrown) {
    Throwable at = thrown;
    for (int depth = 0; at != null && depth < CAUSES_MAX; depth++, at = at.getCause()) {
      if (at instanceof OutOfMemoryError) {
        end.accept(
            "out of memory: "
                + at.getMessage()
                + ". Give it more (-Xmx, -XX:MaxDirectMemorySize), or lower"
                + " --in-flight-bytes-max and --read-bytes-max");
      }
    }
  }
}
