"""Who may touch a node: values of ZooKeeper's access control lists, for the client that makes nodes
and for whoever gives existing ones another list.

Owns the words of the setting `zookeeper_acl`, ids of users, and when a list is as it should be.
Pure. Invariant: no password is in a value here, and no word that may be one in a message.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, NamedTuple, TypeAlias

ALL: Final = 31
"""Read, write, create, delete, admin."""
ADMIN: Final = 16
USERS_MAX: Final = 16
DIGEST: Final = "digest"
SASL: Final = "sasl"
_USER: Final = re.compile(r"(digest):([^:,\s]+:[A-Za-z0-9+/]{27}=)|(sasl):([^:,\s]+)")
_HIDDEN: Final = "x"
"""What ZooKeeper says in the place of a hash to who may not change the list."""


class Entry(NamedTuple):
    """What one id of a scheme may do. ZooKeeper's scheme `auth` is whoever the session is."""

    permissions: int
    scheme: str
    id: str

    @property
    def who(self) -> str:
        """For people: a digest without its hash."""
        return f"{self.scheme}:{self.id.partition(':')[0] if self.scheme == DIGEST else self.id}"


class User(NamedTuple):
    """Who a session is to ZooKeeper, as it stands in lists."""

    scheme: str
    id: str

    @property
    def who(self) -> str:
        return Entry(ALL, *self).who


Acl: TypeAlias = tuple[Entry, ...]
OPEN: Final[Acl] = (Entry(ALL, "world", "anyone"),)
CREATOR: Final[Acl] = (Entry(ALL, "auth", ""),)


def user_of(scheme: str, secret: bytes) -> User:
    """Whom `USER:PASSWORD` is: by its digest, or by a login with SASL."""
    name = secret.partition(b":")[0].decode()
    return User(SASL, name) if scheme == SASL else User(DIGEST, digest_id(secret))


def digest_id(secret: bytes) -> str:
    """The id of the user whom `USER:PASSWORD` is."""
    user = secret.partition(b":")[0].decode()
    return f"{user}:{base64.b64encode(hashlib.sha1(secret).digest()).decode()}"


def parse(text: str) -> Acl:
    """What `open`, `creator`, or users as `digest:USER:HASH` or `sasl:USER` with commas between
    them say. Raises ValueError, which does not repeat what may be a password.
    """
    if text == "open":
        return OPEN
    if text == "creator":
        return CREATOR
    entries = []
    for number, part in enumerate(text.split(","), 1):
        found = _USER.fullmatch(part.strip())
        if found is None:
            raise ValueError(
                f"its part {number} is none of open, creator, digest:USER:HASH and sasl:USER"
            )
        entries.append(Entry(ALL, *filter(None, found.groups())))
    if len(entries) > USERS_MAX:
        raise ValueError(f"{len(entries)} users, at most {USERS_MAX}")
    return tuple(dict.fromkeys(entries))


def has_all(found: Acl, user: User | None) -> bool:
    """Whether a user has every right by its own entry."""
    return any(one.permissions & ALL == ALL and (one.scheme, one.id) == user for one in found)


def is_as(found: Acl, wanted: Acl, user: User | None) -> bool:
    """Whether a node's list is the wanted one. `user`: who asks. What `creator` made also
    has the certificate of its maker, where ZooKeeper asks for one.
    """
    if wanted == CREATOR:
        others = [one for one in found if (one.scheme, one.id) != user]
        return has_all(found, user) and all(one.scheme == "x509" for one in others)
    return set(found) == set(wanted)


def may_change(found: Acl, user: User | None) -> bool | None:
    """Whether this user may give the node another list; None: it depends on a certificate, or on
    an address.
    """
    admins = [one for one in found if one.permissions & ADMIN]
    if any((one.scheme, one.id) in (("world", "anyone"), user) for one in admins):
        return True
    is_hidden = any(one.scheme == DIGEST and one.id.rpartition(":")[2] == _HIDDEN for one in found)
    return False if is_hidden or all(one.scheme in (DIGEST, SASL) for one in admins) else None
