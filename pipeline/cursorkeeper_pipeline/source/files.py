"""Files that options name, as a driver or a task finds them: tokens, a user of ZooKeeper,
certificates and keys. Serves whoever runs jobs in a secured cluster.

Owns what is said of a file that is not there, or cannot be used, on this host. Invariant: options
hold paths, and what is in the files is in no option, plan, record or message.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cursorkeeper.settings import SettingsError, Systems
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.spelling import camel

SECRETS: Final = ("gateway_token_file", "zookeeper_auth_file", "zookeeper_sasl_keytab_file")
CERTIFICATES: Final = (
    "tls_certificate_file_path",
    "tls_key_file_path",
    "tls_trust_certs_file_path",
)
_CONTENTS: Final = ("digest:", "sasl:", "-----BEGIN")
"""How what belongs into a file begins."""


def check_path(name: str, value: str) -> None:
    """Raises OptionError for the content of a file in the place of its path, and does not say
    it.
    """
    if value.startswith(_CONTENTS):
        raise OptionError(
            f"{camel(name)} is the path of a file, and what was given is what such a file holds: "
            f"Spark shows options to others",
            "write it into a file that is on every host, and give its path",
        )


@contextmanager
def here(systems: Systems) -> Iterator[None]:
    """Around what reads the files of these settings. Raises OptionError, with this host's name, in
    the place of SettingsError.
    """
    for name in _read(systems):
        file = getattr(systems, name)
        try:
            with Path(file).open("rb"):
                pass
        except OSError as e:
            raise OptionError(
                f"{camel(name)} = {file!r} cannot be read on {_here()}: {e.strerror or e}",
                "put the file at this path on the driver's host and on every executor's, readable "
                "for this user",
            ) from None
    try:
        yield
    except SettingsError as e:
        where = f" (on {_here()})" if _read(systems) else ""
        raise OptionError(f"{e.message}{where}", e.remedy) from None


def _read(systems: Systems) -> list[str]:
    """The settings whose files are read."""
    certificates = CERTIFICATES if systems.of_gateway or systems.of_zookeeper else ()
    return [name for name in (*SECRETS, *certificates) if getattr(systems, name)]


def _here() -> str:
    user = f", user {os.geteuid()}" if hasattr(os, "geteuid") else ""
    return f"host {socket.gethostname()}{user}"
