"""What can be wrong with Pulsar's bytes. Owns the two error kinds of this package and how they are
worded.

`PulsarFormatError`: the bytes are damaged or are not what they are taken for. `TooNewError` (of
`core.errors`): a newer Pulsar, or a fork, wrote something whose loss would lose acks. Neither ever
turns into a smaller state.
"""

from __future__ import annotations

from cursorkeeper.core.errors import DamageError, TooNewError


class PulsarFormatError(DamageError):
    """Bytes that are not the Pulsar message they should be. `at(place)` gives the same error with
    its place.
    """


def too_new(what: str) -> TooNewError:
    """`what` a newer writer left. The message says what to do."""
    return TooNewError(
        f"{what}: a newer Pulsar (or a fork) wrote this, and without it acks would be lost; read "
        f"it with a release that knows it"
    )
