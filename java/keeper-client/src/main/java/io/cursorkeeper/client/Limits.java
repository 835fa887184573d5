package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.Hello;

/** What a keeper takes, as its Hello says. */
record Limits(int ledgers, int batches, int parts, int layoutLedgers, int groupMessages) {

  static final Limits NOT_TOLD = of(Hello.getDefaultInstance());

  static Limits of(Hello hello) {
    return new Limits(
        orAll(hello.getAckLedgersMax()),
        orAll(hello.getAckPartialsMax()),
        orAll(hello.getUnconfirmedPartsMax()),
        Math.max(2, orAll(hello.getLayoutLedgersMax())),
        Math.max(1, Math.min(hello.getGroupMessagesMax(), Wire.GROUP_MESSAGES_MAX)));
  }

  private static int orAll(int told) {
    return told <= 0 ? Integer.MAX_VALUE : told;
  }
}
