package org.apache.bookkeeper.mledger.impl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class MembersTest {

  @Test
  void theTableHoldsEveryMemberOfPulsarThatOurClassFilesUse() throws Exception {
    Path classes =
        Path.of(Members.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    TreeSet<String> used = new TreeSet<>(References.of(classes));
    used.addAll(Members.BY_HANDLE);
    String written = String.join("\n", used) + "\n";
    Files.writeString(classes.resolveSibling("members.txt"), written);
    assertEquals(
        written,
        String.join("\n", new TreeSet<>(Members.TABLE)) + "\n",
        "copy target/members.txt to src/line-*/resources, if what it adds is meant");
  }

  @Test
  void thisPulsarHasThemAll() {
    assertEquals(List.of(), Members.missing(Members.class.getClassLoader()));
  }

  @Test
  void theVersionThatLacksThemIsPulsars() {
    assertTrue(Keeping.version().matches("[45]\\.[0-9]+\\.[0-9]+.*"), Keeping.version());
  }

  @Test
  void whatIsMissingIsNamed() {
    String cursor = "org.apache.bookkeeper.mledger.impl.ManagedCursorImpl";
    List<String> wrong =
        List.of(
            "field " + cursor + " lock Ljava/lang/Object;",
            "method " + cursor + " recover ()V",
            "method "
                + cursor
                + " cursorImpl ()Lorg/apache/bookkeeper/mledger/impl/ManagedCursorImpl;",
            "override " + cursor + " isBkErrorNotRecoverable (I)Z",
            "method org.apache.bookkeeper.mledger.impl.Absent run ()V");
    List<String> missing = Members.missing(wrong, Members.class.getClassLoader());
    assertEquals(5, missing.size(), missing.toString());
    assertTrue(missing.get(0).contains("ManagedCursorImpl.lock"), missing.get(0));
    assertTrue(missing.get(2).contains("private"), missing.get(2));
    assertTrue(missing.get(3).contains("cannot be overridden"), missing.get(3));
  }
}
