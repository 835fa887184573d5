package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.util.Codec;
import org.junit.jupiter.api.Test;

/**
 * As {@code import-pulsar} and {@code export-pulsar} name cursors, so that they and the plugin find
 * each other's.
 */
class NamesTest {

  @Test
  void aTopicHasTheNameThatItsUsersGaveIt() {
    for (String topic :
        new String[] {
          "persistent://public/default/orders", "persistent://t/ns/a b:ü%-partition-3"
        }) {
      assertEquals(topic, Names.topic(TopicName.get(topic).getPersistenceNamingEncoding()));
    }
    assertEquals("persistent://t/cluster/ns/old?", Names.topic("t/cluster/ns/persistent/old%3F"));
  }

  @Test
  void aLedgerOfNoTopicKeepsItsName() {
    for (String other :
        new String[] {
          "", "log", "t/persistent/x", "t/ns/persistent/", "t/ns/persistent/x/y", "/ns/persistent/x"
        }) {
      assertEquals(other, Names.topic(other));
    }
  }

  @Test
  void aLogOfPendingAcksIsOfATopicAndASubscription() {
    String of = "persistent://t/n-s/a-b-c__transaction_pending_ack";
    assertEquals(
        List.of(
            new Names.Owner("persistent://t/n-s/a", "b-c"),
            new Names.Owner("persistent://t/n-s/a-b", "c")),
        Names.ownersOfPendingAcks(of));
    for (String other :
        new String[] {
          "persistent://t/ns/a-b",
          "persistent://t/n-s/a__transaction_pending_ack",
          "persistent://t/ns/-b__transaction_pending_ack",
          "persistent://t/ns/a-__transaction_pending_ack",
          "persistent://pulsar/system/__transaction_log_0"
        }) {
      assertEquals(List.of(), Names.ownersOfPendingAcks(other));
    }
  }

  @Test
  void aSubscriptionHasTheNameThatItsUsersGaveIt() {
    for (String subscription : new String[] {"sub", "a/b c", "100 % sure", "ü|x"}) {
      assertEquals(subscription, Names.subscription(Codec.encode(subscription)));
    }
  }
}
