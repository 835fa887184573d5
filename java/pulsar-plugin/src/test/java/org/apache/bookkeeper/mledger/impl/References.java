package org.apache.bookkeeper.mledger.impl;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.Handle;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Reads our class files: which members of Pulsar they use, and which methods of Pulsar they
 * override. As lines of {@link Members}.
 */
final class References {

  /** Checks by itself what it works with, and is not loaded unless broker.conf names it. */
  private static final String RECEIPTS = "io/cursorkeeper/pulsar/receipts/";

  private static final List<String> PULSAR =
      List.of("org/apache/bookkeeper/mledger/", "org/apache/pulsar/");

  private final SortedSet<String> found = new TreeSet<>();
  private final SortedSet<String> ours = new TreeSet<>();

  static SortedSet<String> of(Path classes) throws Exception {
    References references = new References();
    List<Path> files;
    try (Stream<Path> all = Files.walk(classes)) {
      files =
          all.filter(
                  each -> each.toString().endsWith(".class") && !each.toString().contains(RECEIPTS))
              .sorted()
              .toList();
    }
    for (Path each : files) {
      references.ours.add(classes.relativize(each).toString().replace(".class", ""));
    }
    files.forEach(references::read);
    for (String each : references.ours) {
      references.overridden(type(each));
    }
    return references.found;
  }

  private static Class<?> type(String name) {
    try {
      return Class.forName(name.replace('/', '.'), false, References.class.getClassLoader());
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e);
    }
  }

  /** By the class that declares it, which a call by way of a subclass does not name. */
  private void add(String kind, String owner, String name, String descriptor) {
    if (owner.startsWith("[")
        || (!ours.contains(owner) && PULSAR.stream().noneMatch(owner::startsWith))) {
      return;
    }
    Member member = Members.find(type(owner), kind, name, descriptor);
    if (member == null) {
      throw new IllegalStateException("no " + owner + "." + name + descriptor);
    }
    String declarer = member.getDeclaringClass().getName();
    String path = declarer.replace('.', '/');
    if (!ours.contains(path) && PULSAR.stream().anyMatch(path::startsWith)) {
      found.add(String.join(" ", kind, declarer, name, descriptor));
    }
  }

  private void overridden(Class<?> type) {
    for (Method method : type.getDeclaredMethods()) {
      if (Modifier.isStatic(method.getModifiers())
          || Modifier.isPrivate(method.getModifiers())
          || method.isSynthetic()) {
        continue;
      }
      String descriptor = Type.getMethodDescriptor(method);
      if (type.getSuperclass() == null) {
        continue;
      }
      Member above = Members.find(type.getSuperclass(), "method", method.getName(), descriptor);
      if (above != null && !Modifier.isPrivate(above.getModifiers())) {
        add(
            "override",
            type.getSuperclass().getName().replace('.', '/'),
            method.getName(),
            descriptor);
      }
    }
  }

  private void read(Path file) {
    try {
      new ClassReader(Files.readAllBytes(file))
          .accept(
              new ClassVisitor(Opcodes.ASM9) {
                @Override
                public MethodVisitor visitMethod(
                    int access,
                    String name,
                    String descriptor,
                    String signature,
                    String[] exceptions) {
                  return new MethodVisitor(Opcodes.ASM9) {
                    @Override
                    public void visitFieldInsn(
                        int opcode, String owner, String field, String type) {
                      add("field", owner, field, type);
                    }

                    @Override
                    public void visitMethodInsn(
                        int opcode, String owner, String method, String type, boolean isInterface) {
                      add("method", owner, method, type);
                    }

                    @Override
                    public void visitInvokeDynamicInsn(
                        String method, String type, Handle bootstrap, Object... arguments) {
                      for (Object each : arguments) {
                        if (each instanceof Handle handle
                            && handle.getTag() >= Opcodes.H_INVOKEVIRTUAL) {
                          add("method", handle.getOwner(), handle.getName(), handle.getDesc());
                        }
                      }
                    }
                  };
                }
              },
              0);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
