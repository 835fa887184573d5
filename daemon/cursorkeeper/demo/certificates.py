"""Certificates of an authority of one's own: for demos, tests and benchmarks, never for a cluster
that is to be kept. The secured compose stack runs it as `python -m cursorkeeper.demo.certificates
FOLDER NAME...`: each name gets a folder with its own files, so that nobody has another's key. What
is there stays until it ends within 30 days; then all are made anew, because no authority's own key
is ever written down.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cursorkeeper_client.tls import TlsFiles

DAY, YEAR = timedelta(days=1), timedelta(days=365)
RENEWED = timedelta(days=30)
"""So long before their end the command makes new ones."""
AUTHORITY = "authority"
"""The name of the folder for who only asks and shows nothing."""
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
PEM = serialization.Encoding.PEM


class Authority:
    """Issues certificates into a folder; `trust` is the file of its own."""

    def __init__(self, folder: Path, name: str = "authority", ends: timedelta = DAY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.trust = folder, folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        own = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.trust.write_bytes(own.public_bytes(PEM))

    def issue(
        self,
        name: str,
        *hosts: str,
        uses: tuple[x509.ObjectIdentifier, ...] = (SERVER, CLIENT),
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        password: bytes = b"",
        folder: Path | None = None,
    ) -> TlsFiles:
        """`name`.pem and `name`-key.pem; what was there is replaced, each file at once. `folder`:
        one of the name's own, which gets the authority's certificate, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts or (name,)]
        if not hosts:
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        hidden: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        stored = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, hidden)
        trust = str(self.trust)
        if folder is not None:
            folder.mkdir(exist_ok=True)
            trust = _put(folder / self.trust.name, self.trust.read_bytes())
        place = folder or self.folder
        return TlsFiles(
            _put(place / f"{name}.pem", made.public_bytes(PEM)),
            _put(place / f"{name}-key.pem", stored),
            trust,
        )


def _put(file: Path, content: bytes) -> str:
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.rename(file)
    return str(file)


def make(folder: Path, names: Sequence[str], ends: timedelta = YEAR) -> None:
    """For each name a folder with its certificate, its key and the authority's certificate."""
    authority = Authority(folder / AUTHORITY, ends=ends)
    for name in names:
        authority.issue(name, ends=ends, folder=folder / name)


def good_until(folder: Path, names: Sequence[str]) -> datetime | None:
    """When the first of them ends. None: not all are there, or they do not belong together, as
    after a run that was cut off.
    """
    try:
        trust = (folder / AUTHORITY / "authority.pem").read_bytes()
        authority = x509.load_pem_x509_certificate(trust)
        first = authority.not_valid_after_utc
        for name in names:
            own = folder / name
            shown = x509.load_pem_x509_certificate((own / f"{name}.pem").read_bytes())
            key = serialization.load_pem_private_key((own / f"{name}-key.pem").read_bytes(), None)
            shown.verify_directly_issued_by(authority)
            is_whole = key.public_key() == shown.public_key()
            if not is_whole or (own / "authority.pem").read_bytes() != trust:
                return None
            first = min(first, shown.not_valid_after_utc)
    except (OSError, TypeError, ValueError, InvalidSignature):
        return None
    return first


def main() -> None:
    """For each name a certificate with it, good for a year, unless there is one that is good."""
    parser = argparse.ArgumentParser(description="certificates of an authority of a demo's own")
    parser.add_argument("folder", type=Path, help="gets a folder NAME with its files")
    parser.add_argument("name", nargs="+", help="of whoever shows it, as others dial it")
    parser.add_argument(
        "--readable", action="store_true", help="for every user; else files are this one's alone"
    )
    given = parser.parse_args()
    last = good_until(given.folder, given.name)
    if last is not None and last > datetime.now(UTC) + RENEWED:
        return
    os.umask(0o022 if given.readable else 0o077)
    make(given.folder, given.name)


if __name__ == "__main__":
    main()
