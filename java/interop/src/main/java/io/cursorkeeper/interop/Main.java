package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Pulsar's managed-ledger classes behind JSON lines: one request a line on stdin, one answer a line
 * on stdout, in order, until stdin ends. An answer is {@code {"ok":...}} or {@code {"error":...,
 * "kind":..., "torn":...}}; whatever else is printed goes to stderr.
 */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    PrintStream answers =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    Commands commands = new Commands();
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.println(answer(commands, line));
      answers.flush();
    }
    Runtime.getRuntime()
        .halt(0); // the reader is gone; nothing is to be closed in order that was not asked for
  }

  private static String answer(Commands commands, String line) throws Exception {
    ObjectNode answer = Json.object();
    try {
      JsonNode body = Json.MAPPER.readTree(line);
      answer.set("ok", commands.run(new Request(body.path("op").asText(), body)));
    } catch (Exception | LinkageError e) {
      Throwable cause = Failures.cause(e);
      cause.printStackTrace();
      answer
          .put("error", String.valueOf(cause.getMessage()))
          .put("kind", cause.getClass().getSimpleName());
      answer.put("torn", Failures.isTorn(cause));
    }
    return Json.MAPPER.writeValueAsString(answer);
  }
}
