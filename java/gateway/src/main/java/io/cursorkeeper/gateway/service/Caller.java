package io.cursorkeeper.gateway.service;

import io.grpc.Context;

/**
 * Who makes this call, as {@link Roles} found out, and the deployment that it acts for.
 *
 * @param deployment empty: the caller names none
 */
record Caller(Role role, String deployment) {
  private static final Context.Key<Caller> KEY =
      Context.keyWithDefault("caller", new Caller(Role.READER, ""));

  /** Of the call whose thread this is: to be asked before anything is handed to another thread. */
  static Caller current() {
    return KEY.get();
  }

  /** The context of a call of this caller. */
  Context in(Context context) {
    return context.withValue(KEY, this);
  }
}
