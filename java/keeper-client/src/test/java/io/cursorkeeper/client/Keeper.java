package io.cursorkeeper.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** A keeper that may be killed; the address stays. */
interface Keeper {

  String address();

  /** kill -9. */
  void kill();

  /** Up again, with what was durable. */
  void start();

  static Keeper of(FakeKeeper fake) {
    return new Keeper() {
      @Override
      public String address() {
        return fake.address();
      }

      @Override
      public void kill() {
        fake.kill();
      }

      @Override
      public void start() {
        fake.start();
      }
    };
  }

  /**
   * A daemon of the process that started this one: it does what it reads on its side, and answers
   * with a line.
   */
  static Keeper ofParent(String address) {
    BufferedReader answers =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    return new Keeper() {
      @Override
      public String address() {
        return address;
      }

      @Override
      public void kill() {
        ask("kill");
      }

      @Override
      public void start() {
        ask("start");
      }

      private void ask(String wish) {
        System.out.println(wish);
        System.out.flush();
        try {
          String answer = answers.readLine();
          if (!wish.equals(answer)) {
            throw new IllegalStateException("asked to " + wish + ", answered " + answer);
          }
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }
    };
  }
}
