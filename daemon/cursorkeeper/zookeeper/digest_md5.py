"""The login DIGEST-MD5 (RFC 2831), as ZooKeeper's servers want it of brokers: serves clusters whose
ZooKeeper asks for SASL. Pure; the nonce is the caller's.

Owns: reading a challenge, the response to it, and looking whether the server knows the password,
too. Does not own: carrying them (`handshake`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from cursorkeeper.zookeeper.errors import AccessDenied, ProtocolBroken

URI = b"zookeeper/zk-sasl-md5"
"""Service and host: ZooKeeper has one name for all of its servers."""
_PAIR = re.compile(rb'\s*([A-Za-z-]+)\s*=\s*("((?:[^"\\]|\\.)*)"|[^",\s]*)\s*(?:,|\Z)')
_COUNT = b"00000001"


@dataclass(frozen=True, slots=True)
class Answer:
    """To a challenge: what is sent, and what the server must say then."""

    response: bytes
    proof: bytes


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def directives(text: bytes) -> dict[bytes, bytes]:
    """`name=value, name="value", ...`. Raises ProtocolBroken."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ProtocolBroken(f"the server's challenge makes no sense: {text[:80]!r}")
        quoted = pair[3]
        found.setdefault(
            pair[1].lower(), pair[2] if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)
        )
        at = pair.end()
    return found


def _encoded(text: str) -> bytes:
    """As RFC 2831 hashes it: Latin-1 where that is enough."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(value: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", value) + b'"'


def answer(challenge: bytes, user: str, password: str, nonce: bytes, uri: bytes = URI) -> Answer:
    """`nonce`: ours, new for every login. Raises ProtocolBroken, or AccessDenied for a server that
    wants what is not offered here.
    """
    said = directives(challenge)
    theirs = said.get(b"nonce")
    if not theirs or said.get(b"algorithm") != b"md5-sess":
        raise ProtocolBroken(f"the server's challenge is not of DIGEST-MD5: {challenge[:80]!r}")
    if b"auth" not in re.split(rb"[,\s]+", said.get(b"qop", b"auth")):
        raise AccessDenied(
            f"the server wants the quality of protection {said[b'qop'].decode(errors='replace')}, "
            f"and auth alone is offered"
        )
    realm = said.get(b"realm", b"")
    first = _md5(b":".join([_encoded(user), realm, _encoded(password)]))
    secret = _md5(b":".join([first, theirs, nonce])).hex().encode()

    def proof(method: bytes) -> bytes:
        asked = _md5(method + b":" + uri).hex().encode()
        whole = b":".join([secret, theirs, _COUNT, nonce, b"auth", asked])
        return _md5(whole).hex().encode()

    parts = [
        b"charset=utf-8",
        b"username=" + _quoted(user.encode()),
        b"realm=" + _quoted(realm),
        b"nonce=" + _quoted(theirs),
        b"nc=" + _COUNT,
        b"cnonce=" + _quoted(nonce),
        b"digest-uri=" + _quoted(uri),
        b"maxbuf=65536",
        b"response=" + proof(b"AUTHENTICATE"),
        b"qop=auth",
    ]
    return Answer(b",".join(parts), proof(b""))


def check(said: bytes, expected: Answer) -> None:
    """Raises AccessDenied unless the server knows the password, too."""
    given = directives(said).get(b"rspauth", b"")
    if not hmac.compare_digest(given, expected.proof):
        raise AccessDenied("the server does not know the password of zookeeper_auth_file")
