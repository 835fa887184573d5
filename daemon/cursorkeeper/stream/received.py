"""Serves every message of acks: the classes that a source's messages are read with.

They are those of `acks.proto`, but that an `ack_batch` is left as bytes, which `plain_acks` reads.
For what it leaves to protobuf there is `AckBatch`: what is asked before anything is taken apart,
because that is what costs. A field of bytes and one of a message look alike on the wire.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cursorkeeper_client._proto import acks_pb2 as pb

PACKAGE: Final = "cursorkeeper.received.v1"
_NAMES: Final = ("SourceMessage", "SourceGroup", "AckBatch")
_KEPT: Final = {"AckBatch": ("handle", "seq", "generation", "ledgers")}
_AS_BYTES: Final = ("ack_batch", "ledgers")


def _file() -> descriptor_pb2.FileDescriptorProto:
    theirs = f".{pb.DESCRIPTOR.package}"
    file = descriptor_pb2.FileDescriptorProto(
        name="cursorkeeper/received.proto",
        package=PACKAGE,
        syntax="proto3",
        dependency=[pb.DESCRIPTOR.name],
    )
    for name in _NAMES:
        message = file.message_type.add()
        pb.DESCRIPTOR.message_types_by_name[name].CopyToProto(message)
        fields = [f for f in message.field if f.name in _KEPT.get(name, (f.name,))]
        del message.field[:]
        for field in fields:
            if field.name in _AS_BYTES:
                field.type = field.TYPE_BYTES
                field.ClearField("type_name")
            elif field.type_name.removeprefix(f"{theirs}.") in _NAMES:
                field.type_name = field.type_name.replace(theirs, f".{PACKAGE}", 1)
        message.field.extend(fields)
    return file


_pool = descriptor_pool.Default()
_pool.AddSerializedFile(_file().SerializeToString())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


SourceMessage: Final = _class("SourceMessage")
AckBatch: Final = _class("AckBatch")
