"""A secured cluster whose users are Kerberos's: a key distribution center in a container of its
own, principals of servers and clients, and their keytabs.

Owns: what is different from a cluster with passwords. Does not own: certificates and identities,
which are as there (`secrets`). Invariant: the center runs, and the keytabs are there, before any
other node starts.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

from testcontainers.core.network import Network

from cursorkeeper_client.tls import TlsFiles
from testcontainers_tests.cluster.images import ROOT, Images, build, once_a_run
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.secrets import LEDGERS_USER, Credentials, Secrets

REALM = "CURSORS.TEST"
CENTER, CENTER_PORT = "center", 8888
CURSORS = f"cursors@{REALM}"
"""The principal by which daemons log in to ZooKeeper."""
CENTER_IMAGE, DAEMON_IMAGE = "cursorkeeper-center:test", "cursorkeeper-kerberos:test"
KEYTABS = {
    "servers": ["zookeeper/zk-1", *(f"bookkeeper/bookie-{n}" for n in (1, 2, 3)), LEDGERS_USER],
    "broker": [LEDGERS_USER, "broker"],
    "daemon": ["cursors"],
}
# Docker's names for addresses are those of containers, and no server is dialled by them
CONF = f"""
[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
{REALM} = {{
  kdc = {CENTER}:{CENTER_PORT}
}}
"""
LOGIN = """
{section} {{
  com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
    useTicketCache=false keyTab="{keytab}" principal="{principal}@{realm}";
}};
"""


def build_images(images: Images) -> None:
    """Those that only a cluster with Kerberos needs. Raises ImageError."""
    with once_a_run("images-kerberos") as is_done:
        if not is_done:
            build(CENTER_IMAGE, ROOT / "testcontainers_tests/images", "center.Dockerfile")
            build(DAEMON_IMAGE, ROOT / "deploy/kerberos", "Dockerfile", DAEMON_IMAGE=images.daemon)


class Realm(Secrets):
    """See the module."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written("krb5.conf", CONF)
        # where both libraries of Kerberos look for it
        self.volumes = {
            **self.volumes,
            str(folder / "krb5.conf"): {"bind": "/etc/krb5.conf", "mode": "ro"},
        }

    async def begin(self, network: Network) -> list[Node]:
        center = Node(
            CENTER,
            CENTER_IMAGE,
            [
                *(REALM, str(CENTER_PORT)),
                *(f"{name}={','.join(principals)}" for name, principals in KEYTABS.items()),
            ],
            network,
            volumes={name: how for name, how in self.volumes.items() if "krb5" in how["bind"]},
            # its principals outlive a kill
            read_only=False,
        )
        await asyncio.to_thread(center.start)
        await center.ready()
        for name in KEYTABS:
            code, said = center.run("base64", "-w0", f"/var/lib/krb5kdc/keytabs/{name}")
            assert code == 0, said
            (self.folder / f"{name}.keytab").write_bytes(base64.b64decode(said))
        return [center]

    def keytab(self, name: str) -> str:
        return self.inside(self.folder / f"{name}.keytab")

    def _sections(self, name: str, keytab: str, **principals: str) -> tuple[str]:
        text = "".join(
            LOGIN.format(
                section=section, keytab=self.keytab(keytab), principal=principal, realm=REALM
            )
            for section, principal in principals.items()
        )
        return (self._logs_in(self.written(f"{name}.jaas", text)),)

    def zookeeper_client(self, files: TlsFiles) -> dict[str, str]:
        return {
            **super().zookeeper_client(files),
            "zookeeper.sasl.client.canonicalize.hostname": "false",
        }

    def of_zookeeper(self, name: str) -> Credentials:
        made = super().of_zookeeper(name)
        return replace(made, java=self._sections(name, "servers", Server=f"zookeeper/{name}"))

    def of_bookie(self, name: str) -> Credentials:
        made = super().of_bookie(name)
        conf = self.folder / f"{name}.conf"
        self.written(conf.name, conf.read_text().replace("Ids=broker", "Ids=broker@.*"))
        logins = {"Client": LEDGERS_USER, "Bookie": f"bookkeeper/{name}"}
        return replace(made, java=(*self._sections(name, "servers", **logins), *made.java[1:]))

    def of_gateway(
        self, name: str, zookeeper: str, *, jaas: str = "", **changed: str | None
    ) -> Credentials:
        made = super().of_gateway(name, zookeeper, jaas=jaas, **changed)
        logins = {"Client": LEDGERS_USER, "BookKeeper": "broker"}
        return replace(made, java=self._sections(name, "broker", **logins))

    def of_daemon(self, name: str, *, password: str = "") -> dict[str, object]:
        made = super().of_daemon(name)
        del made["zookeeper_auth_file"]
        return {
            **made,
            "zookeeper_sasl_principal": CURSORS,
            "zookeeper_sasl_keytab_file": self.keytab("daemon"),
        }
