"""Who may call a daemon, by its settings and the files that they name. Serves its start, and its
looking for changed files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cursorkeeper.access import identities_file, signed_tokens
from cursorkeeper.access.callers import Callers, Table, table_of_tokens
from cursorkeeper.access.secret_files import read_token
from cursorkeeper.settings import Daemon, Settings, SettingsError

_HOW = "send one that an identity has, in Hello or in the metadata `authorization: Bearer TOKEN`"


def callers_of(settings: Settings) -> Callers:
    """Raises SettingsError."""
    own = settings.daemon
    if not own.identities_file:
        tokens = [read_token(own, name) for name in ("source_token_file", "reader_token_file")]
        return Callers(table_of_tokens(*tokens))
    for name in ("source_token_file", "reader_token_file"):
        if getattr(own, name):
            raise SettingsError(
                f"{name} and identities_file are both given",
                f"leave {name} out, and add the hash of its token to an identity",
            )
    files = [own.identities_file]
    files += map(signed_tokens.file_of, (own.token_secret_key, own.token_public_key))
    stamp = _stamp(files)
    table = _read(own)
    if table.asks_for_certificates and not (
        settings.tls.tls_enabled and settings.tls.tls_require_trusted_client_cert_on_connect
    ):
        raise SettingsError(
            f"identities_file = {own.identities_file!r} has certificates, and nobody is asked for "
            f"one",
            "set tls_enabled and tls_require_trusted_client_cert_on_connect",
        )
    return Callers(table, lambda: _read(own), lambda: _stamp(files), stamp)


def _read(own: Daemon) -> Table:
    signed = signed_tokens.of_settings(
        own.token_secret_key,
        own.token_public_key,
        own.token_auth_claim,
        own.token_audience_claim,
        own.token_audience,
    )
    known = identities_file.read(own.identities_file)
    if known.subjects and signed is None:
        raise SettingsError(
            f"identities_file = {own.identities_file!r} has token_subjects, and no key says whose "
            f"a signed token is",
            "set token_public_key or token_secret_key, as in broker.conf",
        )
    return Table(known, signed, _HOW)


def files_of_secrets(settings: Settings) -> list[tuple[str, str]]:
    """The settings that name a file which nobody else should read, and that file."""
    own, systems = settings.daemon, settings.systems
    named = {
        "source_token_file": own.source_token_file,
        "reader_token_file": own.reader_token_file,
        "token_secret_key": signed_tokens.file_of(own.token_secret_key),
        "gateway_token_file": systems.gateway_token_file,
        "zookeeper_auth_file": systems.zookeeper_auth_file,
        "zookeeper_sasl_keytab_file": systems.zookeeper_sasl_keytab_file,
        "tls_key_file_path": systems.tls_key_file_path,
    }
    return [(name, file) for name, file in named.items() if file]


def _stamp(files: Sequence[str]) -> object:
    """It differs when a file was changed or replaced."""
    looked: list[object] = []
    for file in filter(None, files):
        try:
            found = Path(file).stat()
        except OSError as e:
            looked.append(e.errno)
        else:
            looked.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(looked)
