package io.cursorkeeper.client;

import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;

/** The contract, with a keeper at a socket of the file system. */
class FakeAtSocketContractTest extends FakeContractTest {

  @TempDir private Path folder;
  private SocketRelay relay;

  @Override
  Keeper keeper() {
    Keeper there = super.keeper();
    relay = new SocketRelay(folder.resolve("acks.sock"), there.address());
    return new Keeper() {
      @Override
      public String address() {
        return relay.address();
      }

      @Override
      public void kill() {
        there.kill();
      }

      @Override
      public void start() {
        there.start();
      }
    };
  }

  @AfterEach
  void end() {
    relay.close();
  }
}
