package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.append.AppendMessage;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.MethodDescriptor;
import io.grpc.ServerMethodDefinition;
import io.grpc.ServerServiceDefinition;
import io.grpc.ServiceDescriptor;
import io.grpc.stub.ServerCalls;

/**
 * The service as it is offered: all of the contract, but for appends, whose messages are counted as
 * they are read.
 */
final class Bound {
  private Bound() {}

  static ServerServiceDefinition of(LedgersService service, GatewaySettings settings) {
    MethodDescriptor<AppendRequest, AppendReply> append = LedgersGrpc.getAppendMethod();
    MethodDescriptor<AppendMessage, AppendReply> counted =
        append.toBuilder(
                AppendMessage.marshaller(
                    settings.messageEntriesMax(), settings.messageLedgersMax()),
                append.getResponseMarshaller())
            .build();
    ServerServiceDefinition plain = service.bindService();
    ServiceDescriptor.Builder described =
        ServiceDescriptor.newBuilder(LedgersGrpc.SERVICE_NAME)
            .setSchemaDescriptor(plain.getServiceDescriptor().getSchemaDescriptor());
    plain
        .getMethods()
        .forEach(
            method ->
                described.addMethod(isAppend(method) ? counted : method.getMethodDescriptor()));
    ServerServiceDefinition.Builder bound = ServerServiceDefinition.builder(described.build());
    for (ServerMethodDefinition<?, ?> method : plain.getMethods()) {
      if (!isAppend(method)) {
        bound.addMethod(method);
      }
    }
    return bound.addMethod(counted, ServerCalls.asyncBidiStreamingCall(service::appends)).build();
  }

  private static boolean isAppend(ServerMethodDefinition<?, ?> method) {
    return method
        .getMethodDescriptor()
        .getFullMethodName()
        .equals(LedgersGrpc.getAppendMethod().getFullMethodName());
  }
}
