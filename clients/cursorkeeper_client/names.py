"""What a topic and a subscription may be called, for everybody who names a cursor."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

TOPIC = re.compile(r"(non-)?persistent://[^/]+/[^/]+/.+", re.DOTALL)


def check(topic: str, subscription: str) -> None:
    """Raises TypeError or ValueError, with a sentence."""
    for value, what in ((topic, "a topic"), (subscription, "a subscription")):
        if not isinstance(value, str):
            raise TypeError(f"{what} is a text, and this is {value!r}, a {type(value).__name__}")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError(f"{what} is {value!r}, which has half a character")
    if not TOPIC.fullmatch(topic):
        raise ValueError(
            f"{topic!r} is no full name of a topic; write tenant and namespace, too, as in "
            f"persistent://public/default/orders"
        )
    if not subscription:
        raise ValueError(f"the subscription of {topic} is empty; give its name")


def worker_of(topic: str, subscription: str, workers: int) -> int:
    """Which of so many workers of a daemon a cursor belongs to: the first 8 bytes of the SHA-256 of
    its canonical name, as a little-endian number, modulo their number.
    """
    canonical = f"{quote(topic, safe=':/')}|{quote(subscription, safe=':/')}"
    digest = hashlib.sha256(canonical.encode()).digest()
    return int.from_bytes(digest[:8], "little") % workers
