"""Identities of the attack suite, with everything that they prove themselves with."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cursorkeeper.demo.certificates import Authority
from cursorkeeper_client.tls import TlsFiles

OWN, OTHER = "persistent://acme/ns/topic", "persistent://other/ns/topic"
AUDIENCE = "this cluster"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: what its connection shows, and its token."""

    files: TlsFiles
    token: str = ""


def digest(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


class Cast:
    """A file of identities, a key pair, and the callers of the page's table by their row."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.file, self.key_file = folder / "identities.json", folder / "public.der"
        key = rsa.generate_private_key(65_537, 2_048)
        self.secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.key_file.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        other_key = rsa.generate_private_key(65_537, 2_048)
        mine = ["persistent://acme/"]
        theirs = ["persistent://acme-evil/", "persistent://other/", "persistent://acme/ns/top"]
        self.identities: list[dict[str, Any]] = [
            self._identity("source", mine, certificates=["CN=source"], token_subjects=["source"]),
            self._identity("reader", mine),
            self._identity("operator", mine),
            self._identity("writer", ["*"]),
            self._identity("migrator", ["*"]),
            *(
                self._identity(role, theirs, name=f"other-{role}")
                for role in ("source", "reader", "operator")
            ),
        ]
        self.write()
        plain, sources = self.authority.issue("nobody"), self.authority.issue("source")
        nobody = TlsFiles("", "", plain.trust_certs)
        self.callers = {
            "nobody: neither token nor certificate": Caller(nobody),
            "a wrong token": Caller(nobody, "guessed"),
            "a wrong token, with a source's certificate": Caller(sources, "guessed"),
            "a signed token that has expired": Caller(nobody, self.signed(exp=time.time() - 1)),
            "a token that another key has signed": Caller(
                nobody, jwt.encode(self._claims(), other_key, "RS256")
            ),
            "a token without a signature": Caller(nobody, jwt.encode(self._claims(), None, "none")),
            "a token for another audience": Caller(nobody, self.signed(aud="another")),
            "a certificate that no identity names": Caller(plain),
            "source, by certificate": Caller(sources),
            "source, by token": Caller(nobody, "token of source"),
            "source, by signed token": Caller(nobody, self.signed()),
            "source of another prefix": Caller(nobody, "token of other-source"),
            "reader": Caller(nobody, "token of reader"),
            "reader of another prefix": Caller(nobody, "token of other-reader"),
            "operator": Caller(nobody, "token of operator"),
            "operator of another prefix": Caller(nobody, "token of other-operator"),
            "writer, of a gateway": Caller(nobody, "token of writer"),
            "migrator, of a gateway": Caller(nobody, "token of migrator"),
        }

    @staticmethod
    def _identity(role: str, topics: list[str], *, name: str = "", **more: Any) -> dict[str, Any]:
        name = name or role
        return {
            "name": name,
            "roles": [role],
            "topics": topics,
            "token_hashes": [digest(f"token of {name}")],
            **more,
        }

    def write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"identities": self.identities}))
        new.rename(self.file)

    @staticmethod
    def _claims(**more: Any) -> dict[str, Any]:
        return {"sub": "source", "aud": [AUDIENCE], **more}

    def signed(self, **more: Any) -> str:
        return jwt.encode(self._claims(**more), self.secret, "RS256")
