package io.cursorkeeper.client;

import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** The contract, with the daemon of the process that started this one; see {@link ContractMain}. */
@EnabledIfSystemProperty(named = "cursorkeeper.address", matches = ".+")
class RealContractTest extends KeeperContract {

  private static final Keeper PARENT = Keeper.ofParent(System.getProperty("cursorkeeper.address"));

  @Override
  Keeper keeper() {
    return PARENT;
  }
}
