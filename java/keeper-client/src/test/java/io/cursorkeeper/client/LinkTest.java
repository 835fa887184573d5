package io.cursorkeeper.client;

import static io.cursorkeeper.client.Testing.ANSWERS;
import static io.cursorkeeper.client.Testing.entries;
import static io.cursorkeeper.client.Testing.failure;
import static io.cursorkeeper.client.Testing.get;
import static io.cursorkeeper.client.Testing.missing;
import static io.cursorkeeper.client.Testing.settings;
import static io.cursorkeeper.client.Testing.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.client.KeeperException.Code;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What only a fake keeper can be told to do. */
class LinkTest {

  private static final OpenRequest REQUEST =
      OpenRequest.of("t", "s").withLayout(List.of(DataLedger.open(12)));

  private final FakeKeeper fake = new FakeKeeper().start();
  private final Recorder listener = new Recorder();
  private KeeperLink link;

  @BeforeEach
  void connect() {
    link = KeeperLink.connect(settings(fake.address()));
  }

  @AfterEach
  void close() {
    link.close();
    fake.close();
  }

  private KeptCursor open() {
    return get(link.open(REQUEST, listener)).cursor();
  }

  @Test
  void aBrokenStreamIsResumedAndWhatIsUnconfirmedIsSentAgain() {
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    long sent = fake.messages();
    CompletableFuture<Void> first = cursor.ack(entries(1, 12, 1).properties(Map.of("p", 1L)));
    until(() -> fake.messages() > sent);
    fake.breakStreams();
    listener.await("down");
    CompletableFuture<Void> second = cursor.ack(entries(1, 12, 2).properties(Map.of("p", 2L)));
    listener.await("up");
    assertFalse(first.isDone());
    fake.release();
    get(first);
    get(second);
    assertEquals(1, fake.resumes());
    assertEquals(List.of("down", "up"), listener.heard());
    assertEquals(List.of(1L, 2L), entries(fake.stored("t", "s"), 12));
    assertEquals(Map.of("p", 2L), fake.stored("t", "s").markDeleteProperties());
  }

  @Test
  void filesOfTlsThatAreBeingWrittenAreReadAgain(@TempDir Path folder) throws Exception {
    Path trust =
        Files.writeString(folder.resolve("trust.pem"), "-----BEGIN CERTIFICATE-----\nhalf");
    LinkTls tls = new LinkTls(Optional.of(trust), Optional.empty(), Optional.empty(), "");
    List<String> told = new CopyOnWriteArrayList<>();
    try (KeeperLink other =
        KeeperLink.connect(settings(fake.address()).withTls(Optional.of(tls)), told::add)) {
      until(() -> told.toString().contains("the files of TLS cannot be used"));
      assertEquals(1, told.size());
      Files.writeString(trust, someAuthority());
      // this keeper speaks plain text: now it is dialled, and does not understand
      until(() -> told.size() > 1);
      assertFalse(told.get(1).contains("the files of TLS"), told.toString());
    }
  }

  /** One that this JVM believes. */
  private static String someAuthority() throws Exception {
    TrustManagerFactory believed =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    believed.init((KeyStore) null);
    byte[] one =
        ((X509TrustManager) believed.getTrustManagers()[0]).getAcceptedIssuers()[0].getEncoded();
    return "-----BEGIN CERTIFICATE-----\n"
        + Base64.getMimeEncoder().encodeToString(one)
        + "\n-----END CERTIFICATE-----\n";
  }

  @Test
  void whyThereIsNoLinkIsToldOnceForEachReason() {
    List<String> told = new CopyOnWriteArrayList<>();
    LinkSettings nobody =
        settings("127.0.0.1:1").withTimeouts(Duration.ofSeconds(1), Duration.ofSeconds(30));
    try (KeeperLink other = KeeperLink.connect(nobody, told::add)) {
      assertEquals(Code.AWAY, failure(other.open(OpenRequest.of("t", "s"), new Recorder())).code());
      assertEquals(Set.copyOf(told).size(), told.size());
      assertFalse(told.contains(""));
    }
    told.clear();
    try (KeeperLink other = KeeperLink.connect(settings(fake.address()), told::add)) {
      until(() -> told.contains(""));
      int before = told.size();
      fake.breakStreams();
      until(() -> told.size() > before + 1 && told.get(told.size() - 1).isEmpty());
      assertFalse(told.get(before).isEmpty());
    }
  }

  @Test
  void whatWaitsForCreditIsNewerThanWhatIsInFlight() {
    link.close();
    fake.faults().creditBytes = 4_096;
    link = KeeperLink.connect(settings(fake.address()));
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    long sent = fake.messages();
    cursor.ack(entries(1, 12, 1).properties(Map.of("p", 1L)));
    until(() -> fake.messages() > sent);
    Acks large = new Acks(1).properties(Map.of("p", 2L));
    for (long ledger = 12; ledger < 500; ledger++) {
      large.entry(ledger, 2);
    }
    CompletableFuture<Void> answer = cursor.ack(large);
    until(
        () -> fake.messages() > sent + 1); // the credit is spent, and the properties are behind it
    fake.breakStreams();
    listener.await("down");
    fake.release();
    get(answer);
    assertEquals(Map.of("p", 2L), fake.stored("t", "s").markDeleteProperties());
    assertEquals(488, fake.stored("t", "s").acked().size());
  }

  @Test
  void acksThatWaitAreJoinedAndShareTheirAnswer() {
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    fake.faults().holdOpens = true;
    fake.breakStreams();
    listener.await("down");
    CompletableFuture<Void> answer = cursor.ack(entries(1, 12, 0));
    long bytes = cursor.pendingBytes();
    for (int round = 0; round < 100; round++) {
      for (int entry = 0; entry < 2_000; entry++) {
        assertSame(answer, cursor.ack(entries(1, 12, entry)));
      }
    }
    assertTrue(
        bytes > 0 && cursor.pendingBytes() <= bytes + 8_300, cursor.pendingBytes() + " bytes");
    assertFalse(answer.complete(null) || answer.cancel(true) || answer.isDone());
    cursor.ack(new Acks(1).markDelete(new Position(12, 1_999)));
    assertTrue(cursor.pendingBytes() <= bytes);
    fake.faults().holdOpens = false;
    fake.faults().holdDurable = false;
    fake.breakStreams();
    get(answer);
    assertEquals(0, cursor.pendingBytes());
    assertEquals(0, link.status().pendingBytes());
    assertEquals(new Position(12, 1_999), fake.stored("t", "s").markDelete());
  }

  @Test
  void whatNobodyWaitsForIsJoinedUntilSomebodyDoes() {
    link.close();
    link = KeeperLink.connect(settings(fake.address()).withPatience(Duration.ofHours(1)));
    KeptCursor cursor = open();
    KeptCursor other =
        get(link.open(
                OpenRequest.of("t", "other").withLayout(List.of(DataLedger.open(12))),
                new Recorder()))
            .cursor();
    CompletableFuture<Void> patient = cursor.ack(entries(1, 12, 1).patient());
    for (int round = 0; round < 3; round++) {
      get(other.ack(entries(1, 12, round)));
      assertSame(patient, cursor.ack(entries(1, 12, 2 + round).patient()));
    }
    assertTrue(fake.stored("t", "s").acked().isEmpty());
    cursor.hurry();
    get(patient);
    assertEquals(4, fake.stored("t", "s").acked().get(12L).count());
    cursor.hurry(); // nothing waits
    CompletableFuture<Void> again = cursor.ack(entries(1, 12, 7).patient());
    assertSame(again, cursor.ack(entries(1, 12, 8)));
    get(again);
    cursor.ack(entries(1, 12, 9).patient());
    get(cursor.close());
    assertEquals(7, fake.stored("t", "s").acked().get(12L).count());
  }

  @Test
  void whatNobodyWaitsForIsSentAllTheSame() {
    get(open().ack(entries(1, 12, 1).patient()));
  }

  @Test
  void aFullMemoryPausesAndStillTakesAcks() {
    link.close();
    link = KeeperLink.connect(settings(fake.address()).withMemoryBytesMax(20_000));
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    List<CompletableFuture<Void>> answers = new ArrayList<>();
    for (long ledger = 12; ledger < 300; ledger++) {
      answers.add(cursor.ack(entries(1, ledger, 5, 7)));
    }
    listener.await("paused: the link's memory");
    assertFalse(cursor.persistable());
    answers.add(cursor.ack(entries(1, 300, 1)));
    fake.release();
    answers.forEach(Testing::get);
    listener.await("resumed");
    until(cursor::persistable);
    assertEquals(0, link.status().pendingBytes());
  }

  /** Who holds something back for one of the two hears of the end of it. */
  @Test
  void aFullMemoryIsToldThoughTheKeeperPauses() {
    link.close();
    link = KeeperLink.connect(settings(fake.address()).withMemoryBytesMax(20_000));
    KeptCursor cursor = open();
    fake.pause("away");
    listener.await("paused: away");
    fake.faults().holdDurable = true;
    List<CompletableFuture<Void>> answers = new ArrayList<>();
    for (long ledger = 12; ledger < 300; ledger++) {
      answers.add(cursor.ack(entries(1, ledger, 5, 7)));
    }
    listener.await("paused: away; the link's memory");
    assertTrue(link.status().memoryFull());
    fake.release();
    answers.forEach(Testing::get);
    until(
        () ->
            listener
                .heard()
                .equals(
                    List.of(
                        "paused: away",
                        "paused: away; the link's memory is full of unconfirmed acks",
                        "paused: away")));
    assertFalse(link.status().memoryFull());
    fake.resume();
    listener.await("resumed");
  }

  @Test
  void noMoreIsUnconfirmedThanTheKeeperTakes() {
    link.close();
    fake.faults().partsMax = 100;
    fake.faults().ledgersMax = 40;
    link = KeeperLink.connect(settings(fake.address()));
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    Acks acks = new Acks(1);
    for (long ledger = 12; ledger < 312; ledger++) {
      acks.entry(ledger, 5).batch(ledger, 7, 3, missing(1));
    }
    long sent = fake.messages();
    CompletableFuture<Void> answer = cursor.ack(acks);
    until(() -> fake.messages() >= sent + 2);
    fake.release();
    get(answer);
    assertEquals(300, fake.stored("t", "s").partials().size());
  }

  @Test
  void aKeeperThatAsksToPauseIsHeard() {
    KeptCursor cursor = open();
    fake.pause("away");
    listener.await("paused: away");
    assertFalse(cursor.persistable());
    get(cursor.ack(entries(1, 12, 1)));
    fake.resume();
    listener.await("resumed");
    assertTrue(cursor.persistable());
  }

  @Test
  void whatAPauseMayCureIsTriedAgain() {
    fake.faults().refuseOpens = 3;
    KeptCursor cursor = open();
    fake.refuse("t", "s", Code.UNAVAILABLE);
    get(cursor.ack(entries(1, 12, 1)));
    assertTrue(listener.heard().contains("reopened"));
    assertEquals(List.of(1L), entries(fake.stored("t", "s"), 12));
  }

  @Test
  void partsOfAnOpeningThatFailsAreDropped() {
    get(open().ack(entries(1, 12, 1)));
    link.close();
    until(() -> fake.held().isEmpty());
    link = KeeperLink.connect(settings(fake.address()));
    fake.faults().refuseBehindParts = Integer.MAX_VALUE;
    assertEquals(Code.UNAVAILABLE, failure(link.open(REQUEST, listener)).code());
    fake.faults().refuseBehindParts = 2;
    CursorState state = get(link.open(REQUEST, listener)).state();
    assertTrue(state.isAcked(12, 1));
    assertFalse(state.isAcked(12, 2));
  }

  @Test
  void aStateThatIsBegunAgainIsOnlyTheSecond() {
    get(open().ack(entries(1, 12, 1)));
    link.close();
    until(() -> fake.held().isEmpty());
    link = KeeperLink.connect(settings(fake.address()));
    fake.faults().beginAgain = true;
    CursorState state = get(link.open(REQUEST, listener)).state();
    assertTrue(state.isAcked(12, 1));
    assertFalse(state.isAcked(12, 2));
  }

  @Test
  void anOpeningThatIsNotAnsweredEndsInTime() {
    link.close();
    link =
        KeeperLink.connect(
            settings(fake.address()).withTimeouts(Duration.ofMillis(50), Duration.ofMillis(50)));
    fake.faults().holdOpens = true;
    until(() -> link.status().up());
    assertEquals(Code.TIMED_OUT, failure(link.open(REQUEST, listener)).code());
    fake.faults().holdOpens = false;
    fake.faults().refuseOpens = Integer.MAX_VALUE;
    until(
        () ->
            failure(link.open(REQUEST, listener)).code()
                == Code.UNAVAILABLE); // not every machine refuses in 50 ms
    assertEquals(0, link.status().cursors());
    fake.kill();
    until(() -> !link.status().up());
    KeeperException away = failure(link.open(REQUEST, listener));
    assertEquals(Code.AWAY, away.code());
    assertTrue(away.retryable());
    assertEquals(Code.AWAY, failure(link.delete("t", "s", 0)).code());
    assertEquals(List.of(), listener.heard());
  }

  @Test
  void aCloseThatIsNotAnsweredEndsInTime() {
    link.close();
    link =
        KeeperLink.connect(
            settings(fake.address()).withTimeouts(Duration.ofSeconds(30), Duration.ofMillis(50)));
    KeptCursor cursor = open();
    fake.kill();
    listener.await("down");
    CompletableFuture<Void> acked = cursor.ack(entries(1, 12, 1));
    assertEquals(Code.TIMED_OUT, failure(cursor.close()).code());
    assertEquals(Code.TIMED_OUT, failure(acked).code());
    assertEquals(Code.TIMED_OUT, listener.awaitEnd().code());
  }

  @Test
  void aCloseWithoutAStreamNeedsNoneIfAllIsConfirmed() {
    KeptCursor cursor = open();
    get(cursor.ack(entries(1, 12, 1)));
    fake.faults().holdOpens = true;
    fake.kill();
    listener.await("down");
    CompletableFuture<Void> closed = cursor.close();
    fake.faults().holdOpens = false;
    fake.start();
    get(closed);
    assertEquals(List.of(1L), entries(fake.stored("t", "s"), 12));
  }

  @Test
  void aKilledKeeperIsToldOnce() {
    KeptCursor cursor = open();
    get(cursor.ack(entries(1, 12, 1)));
    fake.kill();
    listener.await("down");
    CompletableFuture<Void> kept = cursor.ack(entries(1, 12, 2));
    fake.start();
    get(kept);
    assertEquals(List.of("down", "reopened", "up"), listener.heard());
    assertEquals(List.of(1L, 2L), entries(fake.stored("t", "s"), 12));
  }

  @Test
  void aDeletionHoldsOverABrokenStream() {
    KeptCursor cursor = open();
    fake.kill();
    listener.await("down");
    CompletableFuture<Void> deleted = cursor.delete();
    fake.start();
    get(deleted);
    assertEquals(null, fake.stored("t", "s"));
  }

  @Test
  void whoIsDeposedWithATokenOpensAgain() {
    KeptCursor cursor = get(link.open(REQUEST.withFencingToken(5), listener)).cursor();
    fake.depose("t", "s");
    get(cursor.ack(entries(1, 12, 4)));
    assertEquals(List.of("reopened"), listener.heard());
    fake.fence("t", "s", 6);
    assertEquals(Code.FENCED, listener.awaitEnd().code());
  }

  @Test
  void aResetElsewhereIsTheEnd() {
    KeptCursor cursor = open();
    get(cursor.ack(entries(1, 12, 1)));
    fake.faults().holdDurable = true;
    long sent = fake.messages();
    CompletableFuture<Void> lost = cursor.ack(entries(1, 12, 2));
    until(() -> fake.messages() > sent);
    fake.resetElsewhere("t", "s", new Position(12, 0));
    assertEquals(Code.DEPOSED, failure(lost).code());
    assertEquals(Code.DEPOSED, listener.awaitEnd().code());
    fake.release();
    assertTrue(fake.stored("t", "s").acked().isEmpty());
  }

  @Test
  void aResetIsRepeatedUntilItIsConfirmed() {
    KeptCursor cursor = open();
    fake.faults().holdOpens = true;
    fake.breakStreams();
    listener.await("down");
    CompletableFuture<Integer> overtaken = cursor.reset(new Position(12, 7));
    CompletableFuture<Integer> reset = cursor.reset(new Position(12, 4));
    CompletableFuture<Void> dropped = cursor.ack(entries(1, 12, 9));
    fake.faults().holdOpens = false;
    fake.breakStreams();
    int generation = get(reset);
    assertEquals(generation, get(overtaken));
    get(dropped);
    get(cursor.ack(entries(generation, 12, 6)));
    assertEquals(List.of(6L), entries(fake.stored("t", "s"), 12));
    assertEquals(new Position(12, 4), fake.stored("t", "s").markDelete());
  }

  @Test
  void anAckThatAResetDropsIsAnsweredBehindTheReset() {
    KeptCursor cursor = open();
    fake.faults().holdOpens = true;
    fake.faults().holdResets = true;
    fake.breakStreams();
    listener.await("down");
    CompletableFuture<Void> dropped = cursor.ack(entries(1, 12, 9));
    cursor.layout(List.of(DataLedger.closed(12, 20), DataLedger.open(13)));
    CompletableFuture<Integer> reset = cursor.reset(new Position(13, -1));
    long sent = fake.messages();
    fake.faults().holdOpens = false;
    fake.breakStreams();
    until(
        () ->
            fake.messages() >= sent + 4
                && cursor.pendingBytes() == 0); // Hello, the opening, the layout, the reset
    assertFalse(dropped.isDone() || reset.isDone());
    fake.faults().holdResets = false;
    fake.breakStreams();
    get(reset);
    get(dropped);
    assertTrue(fake.stored("t", "s").acked().isEmpty());
    assertEquals(new Position(13, -1), fake.stored("t", "s").markDelete());
  }

  @Test
  void wrongCredentialsAreSaidAndRightOnesHelp() {
    fake.faults().credentials = "secret";
    byte[][] mine = {"wrong".getBytes(StandardCharsets.UTF_8)};
    link.close();
    link = KeeperLink.connect(settings(fake.address()).withCredentials(() -> mine[0]));
    KeeperException why = failure(link.open(REQUEST, listener));
    assertEquals(Code.LINK_REFUSED, why.code());
    assertTrue(why.getMessage().contains("credentials"), why.getMessage());
    mine[0] = "secret".getBytes(StandardCharsets.UTF_8);
    until(() -> link.status().up());
    open();
    assertEquals(1, get(link.read(REQUEST.topic(), REQUEST.subscription())).generation());
    mine[0] = "wrong".getBytes(StandardCharsets.UTF_8);
    assertEquals(
        Code.LINK_REFUSED, failure(link.read(REQUEST.topic(), REQUEST.subscription())).code());
  }

  @Test
  void aKeeperOfAnotherProtocolIsRefusedWithBothVersions() {
    fake.faults().protocolVersion = 7;
    link.close();
    link = KeeperLink.connect(settings(fake.address()));
    String text = failure(link.open(REQUEST, listener)).getMessage();
    assertTrue(text.contains("[7]") && text.contains("this client 1"), text);
  }

  @Test
  void aKeeperThatKnowsNoFencingTokensIsRefused() {
    fake.faults().layoutLedgersMax = 0;
    link.close();
    link = KeeperLink.connect(settings(fake.address()));
    KeeperException why = failure(link.open(REQUEST, listener));
    assertEquals(Code.LINK_REFUSED, why.code());
    assertTrue(why.getMessage().contains("no fencing tokens"), why.getMessage());
  }

  @Test
  void anOpeningThatEndsBetweenTwoRefusalsOfTheLinkIsRefusedToo() {
    fake.faults().protocolVersion = 7;
    link.close();
    link =
        KeeperLink.connect(
            settings(fake.address())
                .withBackOff(Duration.ofMinutes(2), Duration.ofMinutes(2))
                .withTimeouts(Duration.ofMillis(50), Duration.ofSeconds(30)));
    until(() -> link.status().problem().orElse("").contains("[7]"));
    assertEquals(Code.LINK_REFUSED, failure(link.open(REQUEST, listener)).code());
  }

  @Test
  void nobodyWaitsForAListenerThatSleeps() throws Exception {
    CountDownLatch wakes = new CountDownLatch(1);
    KeptCursor slow =
        get(link.open(
                OpenRequest.of("t", "slow"),
                new CursorListener() {
                  @Override
                  public void paused(String reason) {
                    try {
                      wakes.await(5 * Testing.WAIT_MAX_S, TimeUnit.SECONDS);
                    } catch (InterruptedException e) {
                      Thread.currentThread().interrupt();
                    }
                  }

                  @Override
                  public void ended(KeeperException why) {}
                }))
            .cursor();
    KeptCursor other = open();
    fake.pause("sleep");
    CompletableFuture<Void> behind = slow.ack(entries(1, 1, 1));
    until(() -> slow.pendingBytes() == 0); // durable, and not told yet
    get(other.ack(entries(1, 12, 1)));
    assertFalse(behind.isDone());
    wakes.countDown();
    get(behind);
  }

  @Test
  void aClosedLinkEndsEverything() {
    KeptCursor cursor = open();
    fake.faults().holdDurable = true;
    CompletableFuture<Void> acked = cursor.ack(entries(1, 12, 1));
    link.close();
    assertEquals(Code.LINK_CLOSED, failure(acked).code());
    assertEquals(Code.LINK_CLOSED, listener.awaitEnd().code());
    assertEquals(Code.LINK_CLOSED, failure(link.open(REQUEST, listener)).code());
    assertEquals(Code.LINK_CLOSED, failure(link.delete("t", "s", 0)).code());
  }

  @Test
  void linksLeaveNoThreadsBehind() {
    link.close();
    for (int at = 0; at < 20; at++) {
      try (KeeperLink each = KeeperLink.connect(settings(fake.address()))) {
        get(each.open(OpenRequest.of("t", "s" + at), new Recorder()));
      }
    }
    until(
        () ->
            Thread.getAllStackTraces().keySet().stream()
                .noneMatch(each -> each.getName().equals("cursorkeeper-link")));
  }

  @Test
  void wrongValuesAreRefusedAtOnce() {
    assertThrows(IllegalArgumentException.class, () -> LinkSettings.of("nowhere", ANSWERS));
    assertThrows(IllegalArgumentException.class, () -> LinkSettings.of("h:70000", ANSWERS));
    assertThrows(IllegalArgumentException.class, () -> settings("h:1").withMemoryBytesMax(0));
    assertThrows(
        IllegalArgumentException.class,
        () -> settings("h:1").withBackOff(Duration.ofSeconds(2), Duration.ofSeconds(1)));
    assertThrows(IllegalArgumentException.class, () -> REQUEST.withFencingToken(-1));
    assertThrows(IllegalArgumentException.class, () -> new Acks(1).range(1, 5, 4));
    assertThrows(IllegalArgumentException.class, () -> new Acks(1).entry(1, 1L << 32));
    assertThrows(IllegalArgumentException.class, () -> new Acks(1).batch(1, -1, 2, missing(1)));
    assertThrows(IllegalArgumentException.class, () -> new Acks(1).markDelete(new Position(1, -2)));
  }
}
