"""A real key distribution center (MIT's krb5kdc) on this machine, with a database of its own: for
tests of logins with Kerberos, where the machine has it and `gssapi`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from cursorkeeper.demo.stack.ports import free_port

REALM = "EXAMPLE.COM"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_START_LIMIT_S = 20.0
_CLIENT = """
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
rdns = true
udp_preference_limit = 1
kdc_timeout = 3000
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_SERVER = """
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/none.acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
}}
"""


def is_here() -> bool:
    """Whether this machine has what these tests need."""
    return importlib.util.find_spec("gssapi") is not None and all(
        shutil.which(name, path=_PATH) for name in _PROGRAMS
    )


WHY_NOT = (
    "no Kerberos here: apt-get install krb5-kdc krb5-admin-server libkrb5-dev, then "
    "pip install gssapi"
)


def canonical(host: str = "127.0.0.1") -> str:
    """The name by which libraries of Kerberos look for a server."""
    return socket.getnameinfo((host, 0), 0)[0]


class Center:
    """One realm. What runs with `environment` uses it, and no other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.port = folder, free_port()
        self.conf = folder / "krb5.conf"
        self.conf.write_text(_CLIENT.format(realm=REALM, port=self.port))
        server = folder / "kdc.conf"
        server.write_text(_SERVER.format(realm=REALM, port=self.port, folder=folder))
        self.environment = {
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(server),
            # nothing of the machine's own
            "KRB5CCNAME": f"FILE:{folder}/no-tickets",
            "KRB5_CLIENT_KTNAME": f"{folder}/no-keys",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._run("kdb5_util", "create", "-s", "-W", "-r", REALM, "-P", "master")

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(shutil.which(program, path=_PATH)), *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, (program, words, done.stderr)

    def keytab(self, name: str, *principals: str, is_new: bool = True) -> str:
        """A file with the keys of principals; not `is_new`: they were made before, and get other
        keys, so that files with the earlier ones are of no use.
        """
        file = self._folder / f"{name}.keytab"
        for principal in principals:
            if is_new:
                self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(file), principal)
        return str(file)

    def start(self) -> None:
        with (self._folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(shutil.which("krb5kdc", path=_PATH)),
                    *("-n", "-r", REALM, "-P", str(self._folder / "pid")),
                ],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + _START_LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None and time.monotonic() < until, (
                    self._folder / "kdc.log"
                ).read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
