"""Tokens that Pulsar's own key has signed (JWT), by Pulsar's settings. Serves clusters that have
such tokens already.

Owns: reading the key, and whose a token is. Invariants: a token without a signature is nobody's;
one that has expired, or is not valid yet, is nobody's.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cursorkeeper.core.setting import SettingsError

TOKEN_BYTES_MAX: Final = 16 << 10
_OF_SECRET: Final = ["HS256", "HS384", "HS512"]
_OF_RSA: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
_OF_EC: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SECRET_BYTES_MIN: Final = 32


class TokenProblem(Exception):
    """The token proves nothing; why."""


def looks_signed(token: bytes) -> bool:
    """Whether it has a signed token's three parts."""
    return token.count(b".") == 2


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """The key, and what a token must say. `audience`: one of a token's must be it, if given."""

    key: Any
    algorithms: tuple[str, ...]
    claim: str = "sub"
    audience_claim: str = ""
    audience: str = ""

    def subject(self, token: bytes) -> str:
        """Raises TokenProblem."""
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenProblem(f"it has more than {TOKEN_BYTES_MAX} bytes")
        try:
            said = jwt.decode(
                token,
                self.key,
                algorithms=list(self.algorithms),
                options={"verify_aud": False, "verify_sub": False, "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise TokenProblem("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise TokenProblem("it is not valid yet") from None
        except (jwt.PyJWTError, ValueError, TypeError) as e:
            raise TokenProblem(f"it is not signed by the configured key ({e})") from None
        if self.audience:
            theirs = said.get(self.audience_claim)
            if self.audience not in (theirs if isinstance(theirs, list) else [theirs]):
                raise TokenProblem(f"it is for another audience than {self.audience}")
        subject = said.get(self.claim)
        if isinstance(subject, list) and subject:
            subject = subject[0]  # as in Pulsar
        if not isinstance(subject, str) or not subject:
            raise TokenProblem(f"it has no claim {self.claim}")
        return subject


def of_settings(
    secret_key: str, public_key: str, claim: str, audience_claim: str, audience: str
) -> SignedTokens | None:
    """By the values of Pulsar's settings; None without a key. Raises SettingsError."""
    if secret_key and public_key:
        raise SettingsError(
            "token_secret_key and token_public_key are both given",
            "name the one that signs your tokens",
        )
    if bool(audience_claim) != bool(audience):
        raise SettingsError(
            "token_audience_claim and token_audience belong together", "set both, or neither"
        )
    if secret_key:
        secret = _read(secret_key, "token_secret_key")
        if len(secret) < _SECRET_BYTES_MIN:
            raise SettingsError(
                f"token_secret_key: it has {len(secret)} bytes, {_SECRET_BYTES_MIN} are needed",
                "make one with `pulsar tokens create-secret-key`",
            )
        if secret.lstrip().startswith(b"-----"):
            raise SettingsError(
                "token_secret_key: it is a PEM file, and no secret key",
                "name the public one as token_public_key, or the file of `pulsar tokens "
                "create-secret-key`",
            )
        return SignedTokens(secret, tuple(_OF_SECRET), claim, audience_claim, audience)
    if public_key:
        key = _public(_read(public_key, "token_public_key"))
        algorithms = _OF_RSA if isinstance(key, rsa.RSAPublicKey) else [_OF_EC[key.curve.name]]
        return SignedTokens(key, tuple(algorithms), claim, audience_claim, audience)
    return None


def file_of(given: str) -> str:
    """The file that a key of Pulsar's names; empty if it is the key itself: what is no `file:` is a
    path only if a file is there.
    """
    if given.startswith("file:"):
        return unquote(urlsplit(given).path)
    try:
        return given if Path(given).is_file() else ""  # base64 may begin with a slash, too
    except (OSError, ValueError):
        return ""  # no path: it is too long, say


def _read(given: str, name: str) -> bytes:
    """As Pulsar reads it: `file:` and a path, `data:;base64,` and the bytes, a path, or base64."""
    file = file_of(given)
    said = f"{name} = {given[:80]!r}" if file else name
    try:
        if given.startswith("data:"):
            head, comma, body = given.partition(",")
            if not comma or not head.endswith(";base64"):
                raise SettingsError(f"{name}: it is no data URL in base64", "use data:;base64,...")
            return base64.b64decode(body, validate=True)
        if file:
            return Path(file).read_bytes()
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        raise SettingsError(
            f"{name}: it is neither a file nor base64", "use file:///PATH or data:;base64,..."
        ) from None
    except OSError as e:
        raise SettingsError(
            f"{said}: {e.strerror or e}", "make it readable for this user, or name another"
        ) from e


def _public(data: bytes) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    try:
        key = (
            serialization.load_pem_public_key(data)
            if data.lstrip().startswith(b"-----")
            else serialization.load_der_public_key(data)
        )
    except ValueError as e:
        raise SettingsError(
            f"token_public_key: it is no public key in DER or PEM ({e})",
            "name the file of `pulsar tokens create-key-pair --output-public-key`",
        ) from None
    is_usable = isinstance(key, rsa.RSAPublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _OF_EC
    )
    if not is_usable:
        raise SettingsError(
            "token_public_key: it is neither RSA nor EC of P-256, P-384 or P-521",
            "use one of these",
        )
    assert isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey)
    return key
