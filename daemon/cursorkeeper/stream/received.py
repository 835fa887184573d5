"""Serves every message of acks: the classes that a source's messages are read with.

They are those of `acks.proto`, but that an `ack_batch` is left as bytes, and of its ledgers the
column `entries`, too: an array of u32 is taken as it is, where protobuf would make an object for it
and one for each number. A field of bytes and one of a message, or of packed numbers, look alike on
the wire. `AckBatch` here knows the plainest acks only; `codec` sees from the size whether there is
more.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cursorkeeper_client._proto import acks_pb2 as pb

PACKAGE: Final = "cursorkeeper.received.v1"
_NAMES: Final = ("SourceMessage", "SourceGroup", "AckBatch", "LedgerAcks")
_KEPT: Final = {
    "AckBatch": ("handle", "seq", "generation", "mark_delete", "ledgers"),
    "LedgerAcks": ("ledger_id", "entries"),
}
_AS_BYTES: Final = ("ack_batch", "entries")


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
                field.type, field.label = field.TYPE_BYTES, field.LABEL_OPTIONAL
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
