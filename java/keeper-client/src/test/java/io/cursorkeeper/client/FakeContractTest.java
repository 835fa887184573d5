package io.cursorkeeper.client;

import org.junit.jupiter.api.AfterEach;

/** The contract, with the fake. */
class FakeContractTest extends KeeperContract {

  final FakeKeeper fake = new FakeKeeper();

  @Override
  Keeper keeper() {
    return Keeper.of(fake.start());
  }

  @AfterEach
  void stop() {
    fake.close();
  }
}
