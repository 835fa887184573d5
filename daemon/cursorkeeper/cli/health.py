"""`cursorkeeper health`: one question to a daemon or a gateway, by gRPC's own health protocol
(grpc.health.v1).

It is a container's health check, asked every few seconds: it loads neither settings nor numpy nor
rich, and so reads the variables that it needs, those of `listen` and of TLS, itself.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from cursorkeeper.probe import (
    DEFAULT_ADDRESS,
    LISTEN_VARIABLE,
    TIMEOUT_MAX_S,
    Shown,
    address_to_ask,
    ask,
)
from cursorkeeper.terminal import options


def _of(setting: str) -> dict[str, object]:
    return {"metavar": "FILE" if "FILE" in setting else "NAME", "envvar": f"CURSORKEEPER_{setting}"}


@options.command
def health(
    address: Annotated[
        str | None,
        f"host:port of a daemon or a gateway, or unix: and the path of a daemon's socket (default: "
        f"${LISTEN_VARIABLE}, else {DEFAULT_ADDRESS}).",
        {"metavar": "ADDRESS", "show_default": False},
    ] = None,
    service: Annotated[
        str,
        "Full name of one gRPC service; left out: the whole.",
        {"metavar": "NAME", "show_default": False},
    ] = "",
    timeout_s: Annotated[
        float, "Limit of connection and answer together.", {"min": 0.05, "max": TIMEOUT_MAX_S}
    ] = 3.0,
    tls: Annotated[
        bool, "Ask with TLS.", {"envvar": "CURSORKEEPER_TLS_ENABLED", "show_default": False}
    ] = False,
    tls_trust_certs_file_path: Annotated[
        str, "The authorities that are believed, PEM.", _of("TLS_TRUST_CERTS_FILE_PATH")
    ] = "",
    tls_certificate_file_path: Annotated[
        str, "The certificate that is shown, PEM.", _of("TLS_CERTIFICATE_FILE_PATH")
    ] = "",
    tls_key_file_path: Annotated[str, "Its key, PEM.", _of("TLS_KEY_FILE_PATH")] = "",
    tls_server_name: Annotated[
        str, "A name in the other's certificate, if not the host's.", _of("TLS_SERVER_NAME")
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Ask a daemon or a gateway whether it serves, by gRPC health (grpc.health.v1).

    Exit codes: 0 SERVING; 1 any other answer, or a service that it does not know; 2 usage; 3 no
    answer. Of a daemon that listens on every address (0.0.0.0 or [::]) it asks at 127.0.0.1.
    """
    shown = Shown(
        tls_trust_certs_file_path, tls_certificate_file_path, tls_key_file_path, tls_server_name
    )
    where = address_to_ask(address, os.environ.get(LISTEN_VARIABLE))
    answer = ask(where, service, timeout_s, shown if tls else None)
    if as_json:
        told = {name: value for name, value in asdict(answer).items() if name != "remedy"}
        sys.stdout.write(json.dumps(told) + "\n")
    if answer.status != "SERVING":
        raise answer.as_error()
    if not as_json:
        typer.echo(f"{answer.address}: {answer.status}")
