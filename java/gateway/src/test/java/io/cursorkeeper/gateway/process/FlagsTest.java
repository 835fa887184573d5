package io.cursorkeeper.gateway.process;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FlagsTest {
  private static final List<Flag> KNOWN =
      List.of(Flag.required("where", "a place"), Flag.number("port", 7, "a port"), Flags.CONFIG);

  private static String complaint(String... args) {
    return assertThrows(IllegalArgumentException.class, () -> Flags.parse(KNOWN, args))
        .getMessage();
  }

  @Test
  void bothSpellingsAndDefaults() {
    assertEquals("here", Flags.parse(KNOWN, "--where", "here").text("where"));
    assertEquals("a=b", Flags.parse(KNOWN, "--where=a=b").text("where"));
    assertEquals(7, Flags.parse(KNOWN, "--where", "here").integer("port", 0, 10));
    assertEquals(-1, Flags.parse(KNOWN, "--where", "here", "--port", "-1").integer("port", -1, 10));
  }

  @Test
  void mistakesAreNamed() {
    assertTrue(complaint().contains("--where is missing"));
    assertTrue(complaint("--where").contains("no value"));
    assertTrue(complaint("--where", "a", "--where", "b").contains("twice"));
    assertTrue(complaint("--where", "a", "--wear", "b").contains("unknown flag --wear"));
    assertTrue(complaint("where", "a").contains("expected --flag"));
  }

  @Test
  void numbersHaveBounds() {
    Flags flags = Flags.parse(KNOWN, "--where", "x1", "--port", "70000");
    assertThrows(IllegalArgumentException.class, () -> flags.integer("port", 0, 65_535));
    assertThrows(IllegalArgumentException.class, () -> flags.integer("where", 0, 65_535));
  }

  @Test
  void yesIsTrueAndNothingElse() {
    assertTrue(Flags.parse(KNOWN, "--where", "true").yes("where"));
    assertFalse(Flags.parse(KNOWN, "--where", "false").yes("where"));
    Flags flags = Flags.parse(KNOWN, "--where", "yes");
    assertTrue(
        assertThrows(IllegalArgumentException.class, () -> flags.yes("where"))
            .getMessage()
            .contains("is yes"));
  }

  @Test
  void theCommandLineWinsOverTheFile(@TempDir Path folder) throws Exception {
    Path file = Files.writeString(folder.resolve("p"), "where = file\nport=9\n");
    Flags flags = Flags.parse(KNOWN, "--config", file.toString(), "--port", "8");
    assertEquals("file", flags.text("where"));
    assertEquals(8, flags.integer("port", 0, 10));
    Files.writeString(file, "wear = file\n");
    assertTrue(
        complaint("--config", file.toString(), "--where", "x").contains("unknown flag --wear"));
  }

  @Test
  void theReadyLineIsJson() {
    assertEquals(
        "{\"ready\":\"x\",\"a\":\"q\\\"\\\\\",\"n\":3}",
        new Ready("x").with("a", "q\"\\").with("n", 3).json());
  }
}
