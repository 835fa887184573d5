package io.cursorkeeper.client;

/** The contract, with a keeper that knows no groups and grants little. */
class FakeWithoutGroupsContractTest extends FakeContractTest {

  @Override
  Keeper keeper() {
    fake.faults().groupMessagesMax = 0;
    fake.faults().creditBytes = 16 << 10;
    fake.faults().partsMax = 1_000;
    return super.keeper();
  }
}
