"""Bytes of a source to its messages, for the stream.

Owns what is looked at before they are taken apart, because taking apart is what costs: a first
message of any size proves nothing yet, and a map of properties is a table that takes seconds to
fill although no limit of properties allows so many.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cursorkeeper.stream import received
from cursorkeeper.stream.session import ProtocolViolation, too_many_grouped
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX

HELLO_BYTES_MAX: Final = 16 << 10
PROPERTIES_BYTES_MAX: Final = 1 << 20
"""Of all property maps of one message. A map of so many bytes takes tens of milliseconds, one of 3
MiB seconds.
"""

PACKAGE: Final = pb.DESCRIPTOR.package
_KEPT: Final = {
    "SourceMessage": ("group", "open_cursor", "ack_batch", "set_cursor_properties"),
    "SourceGroup": ("messages",),
    "OpenCursor": ("cursor_properties",),
    "AckBatch": ("properties",),
    "SetCursorProperties": ("properties",),
}


async def messages_of(stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Raises ProtocolViolation, DecodeError."""
    is_first = True
    async for data in stream:
        if is_first and len(data) > HELLO_BYTES_MAX:
            raise ProtocolViolation(
                f"a Hello of {len(data)} bytes: {HELLO_BYTES_MAX} are allowed, and the first "
                f"message must be one"
            )
        is_first = False
        yield source_message(data)


def source_message(data: bytes) -> Any:
    """As `received` has it. Raises ProtocolViolation, DecodeError.

    A message that stands there twice, which no library writes, is joined with the first one, and
    bytes are not: then protobuf joins them.
    """
    if (
        len(data) > PROPERTIES_BYTES_MAX
        and (size := _properties_bytes(_Outline.FromString(data))) > PROPERTIES_BYTES_MAX
    ):
        raise ProtocolViolation(
            f"properties of {size} bytes in one message: {PROPERTIES_BYTES_MAX} are allowed; "
            f"send fewer"
        )
    message = received.SourceMessage.FromString(data)
    if message.ByteSize() != len(data):
        joined = pb.SourceMessage.FromString(data).SerializeToString()
        message = received.SourceMessage.FromString(joined)
    return message


def _properties_bytes(outline: Any) -> int:
    grouped = outline.group.messages
    if len(grouped) > GROUP_MESSAGES_MAX:
        raise too_many_grouped(len(grouped))
    maps = (
        outline.open_cursor.cursor_properties,
        outline.ack_batch.properties,
        outline.set_cursor_properties.properties,
    )
    return sum(len(part) for parts in maps for part in parts) + sum(
        _properties_bytes(one) for one in grouped
    )


def _outline() -> Any:
    """SourceMessage with its maps as plain bytes, and nothing else."""
    file = descriptor_pb2.FileDescriptorProto(name="outline", package=PACKAGE, syntax="proto3")
    for name, kept in _KEPT.items():
        theirs = descriptor_pb2.DescriptorProto()
        pb.DESCRIPTOR.message_types_by_name[name].CopyToProto(theirs)
        message = file.message_type.add(name=name)
        message.field.extend(field for field in theirs.field if field.name in kept)
        for field in message.field:
            field.ClearField("oneof_index")
            if field.name.endswith("properties") and name != "SourceMessage":
                field.type, field.label = field.TYPE_BYTES, field.LABEL_REPEATED
                field.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.SourceMessage"))


_Outline = _outline()
