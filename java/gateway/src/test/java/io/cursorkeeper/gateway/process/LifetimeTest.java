package io.cursorkeeper.gateway.process;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** When the parent counts as gone. */
class LifetimeTest {
  @Test
  void aParentIsGoneWhenItHasEnded() throws IOException, InterruptedException {
    Process child = new ProcessBuilder("sleep", "60").start();
    ProcessHandle parent = child.toHandle();
    assertFalse(Lifetime.isGone(parent, ProcessHandle.current()));
    child.destroyForcibly();
    assertTrue(child.waitFor(30, TimeUnit.SECONDS));
    assertTrue(Lifetime.isGone(parent, ProcessHandle.current()));
  }

  @Test
  void aParentThatCannotBeLookedAtIsNotGone() {
    assertTrue(Lifetime.isGone(handle(false), handle(true)));
    assertFalse(Lifetime.isGone(handle(false), handle(false)));
  }

  private static ProcessHandle handle(boolean alive) {
    return (ProcessHandle)
        Proxy.newProxyInstance(
            LifetimeTest.class.getClassLoader(),
            new Class<?>[] {ProcessHandle.class},
            (proxy, method, arguments) -> alive);
  }
}
