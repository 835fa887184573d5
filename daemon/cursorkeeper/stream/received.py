"""Serves every message of acks: the classes that a source's messages are read with.

They are those of `acks.proto`, but that an `ack_batch` is left as bytes: `plain_acks` reads most
of them. A field of bytes and one of a message look alike on the wire.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cursorkeeper_client._proto import acks_pb2 as pb

PACKAGE: Final = "cursorkeeper.received.v1"
_NAMES: Final = ("SourceMessage", "SourceGroup")
_AS_BYTES: Final = "ack_batch"


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
        for field in message.field:
            if field.name == _AS_BYTES:
                field.type = field.TYPE_BYTES
                field.ClearField("type_name")
            elif field.type_name.removeprefix(f"{theirs}.") in _NAMES:
                field.type_name = field.type_name.replace(theirs, f".{PACKAGE}", 1)
    return file


_pool = descriptor_pool.Default()
_pool.AddSerializedFile(_file().SerializeToString())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


SourceMessage: Final = _class("SourceMessage")
