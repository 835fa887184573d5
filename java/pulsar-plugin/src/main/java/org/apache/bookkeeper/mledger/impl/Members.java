package org.apache.bookkeeper.mledger.impl;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.pulsar.broker.service.Subscription;
import org.apache.pulsar.broker.service.Topic;

/**
 * Serves the broker's operator: every member of Pulsar that the plugin works with, checked at the
 * broker's start, because Pulsar promises none of them. The lines of the table say what is used, of
 * which class, with which descriptor; an {@code override} must be a method that Pulsar still calls
 * by that name. A test compares the table with our class files.
 */
final class Members {

  private static final String SUBSCRIPTION =
      "field org.apache.pulsar.broker.service.EntryFilterSupport subscription"
          + " Lorg/apache/pulsar/broker/service/Subscription;";

  /** What is used though it is not accessible. */
  static final List<String> BY_HANDLE =
      Stream.concat(Stream.of(SUBSCRIPTION), Line.BY_HANDLE.stream()).toList();

  static final List<String> TABLE = table();

  private Members() {}

  private static List<String> table() {
    try (BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(
                Members.class.getResourceAsStream("members.txt"), StandardCharsets.UTF_8))) {
      return lines.lines().filter(each -> !each.isBlank()).toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** What of the table this class loader's Pulsar lacks, for people. */
  static List<String> missing(ClassLoader loader) {
    return missing(TABLE, loader);
  }

  static List<String> missing(List<String> table, ClassLoader loader) {
    List<String> missing = new ArrayList<>();
    for (String line : table) {
      String[] words = line.split(" ");
      String wrong = wrong(words, loader, BY_HANDLE.contains(line));
      if (wrong != null) {
        missing.add(
            words[1].substring(words[1].lastIndexOf('.') + 1)
                + "."
                + words[2]
                + " "
                + words[3]
                + " ("
                + wrong
                + ")");
      }
    }
    return missing;
  }

  private static String wrong(String[] words, ClassLoader loader, boolean byHandle) {
    Member member;
    try {
      member = find(Class.forName(words[1], false, loader), words[0], words[2], words[3]);
    } catch (ClassNotFoundException | LinkageError e) {
      return "no such class";
    }
    if (member == null) {
      return "no such " + (words[0].equals("field") ? "field" : "method");
    }
    int modifiers = member.getModifiers();
    if (Modifier.isPrivate(modifiers) && !byHandle) {
      return "private";
    }
    boolean fixed = Modifier.isFinal(modifiers) || Modifier.isStatic(modifiers);
    return words[0].equals("override") && fixed ? "cannot be overridden" : null;
  }

  /** A member of a class, or of those above it; null: there is none. */
  static Member find(Class<?> owner, String kind, String name, String descriptor) {
    for (Class<?> type = owner; type != null; type = type.getSuperclass()) {
      if (kind.equals("field")) {
        for (Field each : type.getDeclaredFields()) {
          if (each.getName().equals(name) && each.getType().descriptorString().equals(descriptor)) {
            return each;
          }
        }
      } else {
        for (Executable each :
            name.equals("<init>") ? type.getDeclaredConstructors() : type.getDeclaredMethods()) {
          if ((each instanceof Constructor || each.getName().equals(name))
              && descriptor(each).equals(descriptor)) {
            return each;
          }
        }
        if (name.equals("<init>")) {
          return null;
        }
        for (Class<?> above : type.getInterfaces()) {
          Member inherited = find(above, kind, name, descriptor);
          if (inherited != null) {
            return inherited;
          }
        }
      }
    }
    return null;
  }

  private static String descriptor(Executable of) {
    Class<?> result = of instanceof Method method ? method.getReturnType() : void.class;
    return MethodType.methodType(result, of.getParameterTypes()).descriptorString();
  }

  /** The topic of a dispatcher; null if it cannot be had. */
  static Topic topicOf(Object dispatcher) {
    String[] words = SUBSCRIPTION.split(" ");
    try {
      Class<?> owner = Class.forName(words[1], false, Members.class.getClassLoader());
      if (!owner.isInstance(dispatcher)) {
        return null;
      }
      Field field = owner.getDeclaredField(words[2]);
      field.setAccessible(true);
      return ((Subscription) field.get(dispatcher)).getTopic();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
