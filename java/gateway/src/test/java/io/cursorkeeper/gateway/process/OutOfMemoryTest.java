package io.cursorkeeper.gateway.process;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class OutOfMemoryTest {
  @Test
  void whoeverFindsOutAndHoweverItEndsTheProcess() {
    List<String> ends = new ArrayList<>();
    OutOfMemory.endWith(ends::add);
    OutOfMemory.look(null);
    OutOfMemory.look(new IllegalStateException("something else"));
    assertEquals(List.of(), ends);
    OutOfMemoryError beside =
        new OutOfMemoryError("failed to allocate 4194304 byte(s) of direct memory");
    OutOfMemory.look(new IllegalStateException("wrapped", new RuntimeException(beside)));
    Logger.getLogger("io.grpc.Some").log(Level.SEVERE, "kept to itself", beside);
    LoggerFactory.getLogger("io.netty.Some").error("kept to itself", beside);
    assertEquals(3, ends.size(), ends.toString());
    assertTrue(
        ends.stream().allMatch(end -> end.contains("out of memory: failed to allocate")),
        ends.toString());
  }
}
