"""Reading many delta records at once: their join as one delta."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.joining import join
from cursorkeeper.core.values import Delta
from cursorkeeper.format import delta


def merge_deltas(bodies: Sequence[bytes], place_of: Callable[[int], str] = "delta body {}".format) -> Delta:
    """The join of many uncompressed delta bodies, in any order. `place_of(i)` names body i when it is damaged.

    Raises DamageError.
    """
    decoded = []
    for index, body in enumerate(bodies):
        try:
            decoded.append(delta.decode(body))
        except DamageError as error:
            raise error.at(place_of(index)) from None
    return join(decoded)
