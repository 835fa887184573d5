"""What a query asks of cursors' names, so that nothing is read for cursors that it would throw
away. Pure.

Owns which values the columns may have that follow from a cursor's name, by whatever way they are
asked for: an option, or filters of the query (`reader`). Invariant: a cursor that is left out is
none of those that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cursorkeeper.core.names import CursorName
from cursorkeeper_pipeline.decode.footer_rows import place_of
from cursorkeeper_pipeline.keys import bucket_of, cursor_key

OF_NAME: Final[Mapping[str, Callable[[CursorName], Any]]] = {
    "cursor_key": cursor_key,
    "cursor": lambda name: name.display,
    "tenant": lambda name: place_of(name.topic)[0],
    "namespace": lambda name: place_of(name.topic)[1],
    "topic": lambda name: name.topic,
    "subscription": lambda name: name.subscription,
}
"""Column -> what it is of a name."""
OF_TOPIC: Final = ("tenant", "namespace", "topic")
"""Those that follow from the topic alone."""
Values = tuple[tuple[str, frozenset[Any]], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`values`: for some columns, the values that they may have."""

    values: Values = ()

    @property
    def is_everything(self) -> bool:
        return not self.values

    @property
    def buckets(self) -> frozenset[str] | None:
        """Where such cursors can be; None: anywhere."""
        keys = dict(self.values).get("cursor_key")
        return (
            None
            if keys is None
            else frozenset(bucket_of(key) for key in keys if -(1 << 63) <= key < 1 << 63)
        )

    def also(self, other: Wanted) -> Wanted:
        joined = dict(self.values)
        for column, allowed in other.values:
            joined[column] = joined.get(column, allowed) & allowed
        return Wanted(tuple(sorted(joined.items())))

    def accepts(self, name: CursorName) -> bool:
        """Whether a cursor of this name may be in the answer."""
        return all(OF_NAME[column](name) in allowed for column, allowed in self.values)

    def accepts_topic(self, topic: str) -> bool:
        """Whether a cursor of this topic may be."""
        name = CursorName(topic, "")
        return all(
            OF_NAME[column](name) in allowed
            for column, allowed in self.values
            if column in OF_TOPIC
        )
