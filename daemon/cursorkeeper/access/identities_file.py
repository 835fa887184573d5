"""The file of identities: what a daemon and a gateway read of who may call them. Serves operators;
they find its form in `docs/run/rights.md`.

Invariant: a credential belongs to one identity. What is wrong with a file is said with the entry
and the remedy.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from cursorkeeper.access.identity import ALL, Identity, Quotas, Role, Topics
from cursorkeeper.core.setting import SettingsError
from cursorkeeper.core.shape import worded

BYTES_MAX = 1 << 20
_LISTS = ("roles", "certificates", "token_hashes", "token_subjects", "topics", "deployments")
_REMEDY = "docs/run/rights.md shows its form"
_TOPIC = re.compile(r"[a-z-]+://([^/*]+/){0,2}|[a-z-]+://[^/*]+/[^/*]+/[^*]+", re.DOTALL)
_ATTRIBUTES = {
    "EMAILADDRESS": NameOID.EMAIL_ADDRESS,
    "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    "SN": NameOID.SURNAME,
    "SURNAME": NameOID.SURNAME,
    "GN": NameOID.GIVEN_NAME,
    "GIVENNAME": NameOID.GIVEN_NAME,
    "TITLE": NameOID.TITLE,
}
_PART = re.compile(r"(^|(?<!\\)[,+])\s*([A-Za-z][A-Za-z0-9.-]*|[0-9][0-9.]*)\s*=")
_KNOWN_TO_ALL = frozenset(
    hashlib.sha256(token).hexdigest()
    for token in (b"", b"test", b"TOKEN", b"token", b"secret", b"password", b"change-me")
)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 62))]


class _Quotas(msgspec.Struct, forbid_unknown_fields=True):
    streams: _Positive | None = None
    cursors: _Positive | None = None
    bytes_in_flight: _Positive | None = None
    reads: _Positive | None = None
    read_bytes: _Positive | None = None
    lists: _Positive | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._@-]{1,128}\Z")]
    roles: Annotated[list[Role], msgspec.Meta(min_length=1)]
    certificates: list[str] = []
    token_hashes: list[str] = []
    token_subjects: list[Annotated[str, msgspec.Meta(min_length=1)]] = []
    topics: list[Annotated[str, msgspec.Meta(min_length=1)]] = []
    deployments: list[Annotated[str, msgspec.Meta(min_length=1)]] = []
    quotas: _Quotas = msgspec.field(default_factory=_Quotas)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    identities: list[_Entry]


Subject = tuple[frozenset[tuple[str, str]], ...]
"""A certificate's, as subjects are compared: capitals and repeated spaces do not matter."""


@dataclass(frozen=True, slots=True)
class Known:
    """The identities by what they prove themselves with. `hashes` are SHA-256, in hex."""

    hashes: dict[str, Identity]
    subjects: dict[str, Identity]
    certificates: dict[Subject, Identity]


class FileProblem(Exception):
    """What is wrong with the content."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. What to do: {remedy}")
        self.message, self.remedy = message, remedy


def read(file: str) -> Known:
    """Raises SettingsError."""
    said = f"identities_file = {file!r}"
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except OSError as e:
        raise SettingsError(
            f"{said}: {e.strerror or e}", "make it readable for this user, or name another"
        ) from e
    try:
        return parse(content)
    except FileProblem as e:
        raise SettingsError(f"{said}: {e.message}", e.remedy) from None


def parse(content: bytes) -> Known:
    """Raises FileProblem."""
    if len(content) > BYTES_MAX:
        raise FileProblem(f"it has more than {BYTES_MAX} bytes", "name a smaller file")
    try:
        read = json.loads(content, object_pairs_hook=_members)
        entries = msgspec.convert(read, _File).identities
    except msgspec.ValidationError as e:
        raise FileProblem(worded(e), _REMEDY) from None
    except (ValueError, RecursionError) as e:
        raise FileProblem(f"it is no JSON: {e}", _REMEDY) from None
    known, names = Known({}, {}, {}), set()
    for entry in entries:
        if entry.name in names:
            raise FileProblem(f"{entry.name}: there are two of it", "give each its own name")
        names.add(entry.name)
        _add(entry, known)
    return known


def _add(entry: _Entry, known: Known) -> None:
    for member in _LISTS:
        given = getattr(entry, member)
        if len(set(given)) < len(given):
            raise FileProblem(f"{entry.name}: {member} has something twice", "name it once")
    identity = Identity(
        entry.name, frozenset(entry.roles), Topics(tuple(entry.topics)), _quotas(entry.quotas)
    )
    for topic in entry.topics:
        if topic != ALL and not _TOPIC.fullmatch(topic):
            raise FileProblem(
                f"{entry.name}: topics holds {topic[:200]!r}, which is no topic",
                "write *, a prefix that ends in /, or a whole topic, as in "
                "persistent://tenant/namespace/topic",
            )
    if not (entry.certificates or entry.token_hashes or entry.token_subjects):
        raise FileProblem(
            f"{entry.name}: nobody can prove to be it",
            "add certificates, token_hashes or token_subjects",
        )
    for given, where, key in (
        *((one, known.hashes, _hash(entry.name, one)) for one in entry.token_hashes),
        *((one, known.subjects, one) for one in entry.token_subjects),
        *((one, known.certificates, _subject(entry.name, one)) for one in entry.certificates),
    ):
        _put(identity, given, where, key)  # type: ignore[arg-type]


def _put(identity: Identity, given: str, where: dict[object, Identity], key: object) -> None:
    other = where.get(key)
    if other is not None:
        raise FileProblem(
            f"{identity.name}: {given} is already that of {other.name}",
            "give each identity credentials of its own, each once",
        )
    where[key] = identity


def _hash(name: str, given: str) -> str:
    found = _HASH.fullmatch(given)
    if found is None:
        raise FileProblem(
            f"{name}: token_hashes holds {given[:80]!r}",
            "write sha256: and 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints them",
        )
    if found[1] in _KNOWN_TO_ALL:
        raise FileProblem(
            f"{name}: token_hashes holds the hash of an example's token, which everybody knows",
            "make a token, for example with `openssl rand -hex 32`, and write its hash",
        )
    return found[1]


def subject_of(name: x509.Name) -> Subject:
    """For comparing. It is empty for a certificate without a subject."""
    return tuple(
        frozenset(
            (one.oid.dotted_string, " ".join(str(one.value).split()).casefold()) for one in part
        )
        for part in name.rdns
    )


def _subject(name: str, given: str) -> Subject:
    spelt = _PART.sub(lambda part: f"{part[1]}{part[2].upper()}=", given)
    try:
        subject = subject_of(x509.Name.from_rfc4514_string(spelt, _ATTRIBUTES))
    except ValueError:
        subject = ()
    if not subject:
        raise FileProblem(
            f"{name}: certificates holds {given[:200]!r}, which is no subject (RFC 4514)",
            "write what `openssl x509 -noout -subject -nameopt RFC2253 -in FILE` prints",
        )
    return subject


def _quotas(given: _Quotas) -> Quotas:
    return Quotas(
        given.streams or 0,
        given.cursors or 0,
        given.bytes_in_flight or 0,
        given.reads or 0,
        given.lists or 0,
    )


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a member is there twice")
    return made
