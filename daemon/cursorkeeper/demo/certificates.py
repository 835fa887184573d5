"""Certificates of an authority of one's own: for demos, tests and benchmarks, never for a cluster
that is to be kept. The secured compose stack runs it as `python -m cursorkeeper.demo.certificates
FOLDER NAME...`; what is there already stays.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cursorkeeper_client.tls import TlsFiles

DAY, YEAR = timedelta(days=1), timedelta(days=365)
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
    ) -> TlsFiles:
        """`name`.pem and `name`-key.pem; what was there is replaced, each file at once."""
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
        return TlsFiles(
            self._put(f"{name}.pem", made.public_bytes(PEM)),
            self._put(f"{name}-key.pem", stored),
            str(self.trust),
        )

    def _put(self, name: str, content: bytes) -> str:
        new = self.folder / f"{name}.new"
        new.write_bytes(content)
        new.rename(self.folder / name)
        return str(self.folder / name)


def main() -> None:
    """For each name a certificate with it, good for a year."""
    parser = argparse.ArgumentParser(description="certificates of an authority of a demo's own")
    parser.add_argument("folder", type=Path, help="gets authority.pem, and NAME.pem, NAME-key.pem")
    parser.add_argument("name", nargs="+", help="of whoever shows it, as others dial it")
    parser.add_argument(
        "--readable", action="store_true", help="for every user; else files are this one's alone"
    )
    given = parser.parse_args()
    if (given.folder / f"{given.name[-1]}.pem").is_file():
        return
    os.umask(0o022 if given.readable else 0o077)
    authority = Authority(given.folder, ends=YEAR)
    for name in given.name:
        authority.issue(name, ends=YEAR)


if __name__ == "__main__":
    main()
