"""Where Pulsar keeps a topic and its cursors in the metadata store, and under which names.

Owns the mapping both ways. Topics are `persistent://tenant/namespace/topic`, or with the cluster of
the first naming scheme `persistent://tenant/cluster/namespace/topic`; a partition's local name ends
in `-partition-<n>` and is nothing special here. Segments of scalable topics (Pulsar 5) have paths
of another shape and are refused.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_plus, unquote_plus

ROOT: Final = "/managed-ledgers"
DOMAIN: Final = "persistent"


def encode_name(name: str) -> str:
    """As Java's `URLEncoder` does with UTF-8: letters, digits and `.-*_` stay, a space becomes `+`,
    all else `%XX`.
    """
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """The inverse of `encode_name`. Raises ValueError where the text is not what `encode_name`
    gives.
    """
    name = unquote_plus(encoded, errors="strict")
    if encode_name(name) != encoded:
        raise ValueError(f"{encoded!r} is not an encoded name")
    return name


def managed_ledger_name(topic: str) -> str:
    """`persistent://t/ns/topic` -> `t/ns/persistent/topic`: the name in a ledger's custom metadata.
    Raises ValueError.
    """
    scheme, colon, rest = topic.partition("://")
    if not colon or scheme != DOMAIN:
        raise ValueError(
            f"{topic!r} is no topic with durable cursors: it must begin with {DOMAIN}://"
        )
    parts = rest.split("/", 3)
    if len(parts) < 3 or not all(parts):
        raise ValueError(f"{topic!r} is not {DOMAIN}://tenant/namespace/topic")
    return "/".join([*parts[:-1], DOMAIN, encode_name(parts[-1])])


def topic_path(topic: str) -> str:
    """`persistent://t/ns/topic` -> `/managed-ledgers/t/ns/persistent/topic`, the topic znode.
    Raises ValueError.
    """
    return f"{ROOT}/{managed_ledger_name(topic)}"


def cursor_path(topic: str, subscription: str) -> str:
    """The cursor znode of a subscription. Raises ValueError."""
    if not subscription:
        raise ValueError(f"a subscription of {topic} has no name")
    return f"{topic_path(topic)}/{encode_name(subscription)}"


def topic_of_managed_ledger(name: str) -> str:
    """The inverse of `managed_ledger_name`. Raises ValueError."""
    parts = name.split("/")
    if len(parts) not in (4, 5) or parts[-2] != DOMAIN or not all(parts):
        raise ValueError(f"{name!r} is not the managed ledger of a {DOMAIN} topic")
    return f"{DOMAIN}://{'/'.join([*parts[:-2], decode_name(parts[-1])])}"


def topic_of_path(path: str) -> str:
    """The inverse of `topic_path`. Raises ValueError."""
    root, slash, name = path.partition(f"{ROOT}/")
    if root or not slash:
        raise ValueError(f"{path!r} is not below {ROOT}")
    return topic_of_managed_ledger(name)


def cursor_of_path(path: str) -> tuple[str, str]:
    """The inverse of `cursor_path`: topic and subscription. Raises ValueError."""
    topic, _, subscription = path.rpartition("/")
    if not subscription:
        raise ValueError(f"{path!r} is not a cursor's path")
    return topic_of_path(topic), decode_name(subscription)
