"""What a real Pulsar `broker.conf` says that applies to cursors: addresses, quorums, digest,
limits.

Names are Pulsar's, as the settings declare them. The limits of the state, its form and its codec
count only with `format = "pulsar"`: the native format has no ceiling to configure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cursorkeeper.core.setting import Setting, SettingsError, byte_size

ZOOKEEPER_CLIENT = "metadataStoreConfigPath"
"""Names a file with settings of ZooKeeper's own client. Of them it counts whether it speaks TLS;
keys and certificates are this daemon's own, because theirs are in forms of Java's.
"""


def read_properties(file: Path, advice: str = "") -> dict[str, str]:
    """A Java properties file, as Pulsar's are: `key=value` lines, `#` comments, the last of several
    counts. Raises SettingsError; `advice`: what it adds where the file is no text.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise SettingsError(f"{file}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise SettingsError(
            f"{file}: byte {e.start} is not UTF-8: is it a broker.conf?{advice}"
        ) from e
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, _, value = stripped.partition("=")
        found[key.strip()] = value.strip()
    return found


def read_broker_conf(
    file: Path, settings: Iterable[Setting]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What it says of `settings`, by our names, and by the same names Pulsar's keys that it comes
    from. Raises SettingsError.
    """
    conf = read_properties(file, " Save it as UTF-8 text")
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key in ("zookeeperServers", "metadataStoreUrl"):
        if conf.get(key):
            found["zookeeper"], keys["zookeeper"] = _address(file, key, conf[key]), key
    if client := conf.get(ZOOKEEPER_CLIENT):
        name = "zookeeper_tls_enabled"
        found[name], keys[name] = _is_secure(file, client), ZOOKEEPER_CLIENT
    for one in settings:
        for key in (*one.broker_conf, *one.pulsar):
            if not conf.get(key):
                continue
            value = _value(file, key, conf[key], one)
            if key in one.pulsar and one.name in found and found[one.name] != value:
                raise SettingsError(
                    f"{file}: {keys[one.name]} and {key} are the same setting and differ: give "
                    f"one of them"
                )
            found[one.name], keys[one.name] = value, key
    return found, keys


def _is_secure(file: Path, client: str) -> bool:
    """Whether a broker dials ZooKeeper with TLS. Raises SettingsError for a file that cannot be
    read: no broker starts without it, either.
    """
    try:
        said = read_properties(Path(client))
    except SettingsError as e:
        raise SettingsError(
            f"{file}: {ZOOKEEPER_CLIENT}={client}: {e.message}",
            "put it where this daemon may read it, too, or take the line out of this copy and set "
            "zookeeper_tls_enabled as it says in zookeeper.client.secure",
        ) from e
    return said.get("zookeeper.client.secure", "").lower() == "true"


def _address(file: Path, key: str, text: str) -> str:
    """The servers and chroot of ZooKeeper. Raises SettingsError for another metadata store."""
    scheme, colon, rest = text.partition(":")
    # the older name knows no scheme: a host may be called zk
    if colon and scheme == "zk" and key == "metadataStoreUrl":
        return rest
    if scheme in ("rocksdb", "etcd", "memory", "oxia"):
        raise SettingsError(
            f"{file}: {key}={text}: footers are kept in ZooKeeper; give its address with "
            f"--zookeeper"
        )
    return text


def _value(file: Path, key: str, text: str, one: Setting) -> Any:
    wrong = "not a number"
    try:
        if one.kind is bool:
            wrong = "use true or false"
            return {"true": True, "false": False}[text.lower()]
        if key in one.broker_conf and one.choices and text not in one.choices:
            wrong = f"use one of {', '.join(one.choices)}"
            raise ValueError(text)
        if not one.is_size:
            # Pulsar's own settings have no fractions.
            is_whole = one.kind is float and key in one.broker_conf
            return int(text) if is_whole else one.kind(text)
        wrong = "not a number (of bytes, K or M may follow)"
        if (size := byte_size(text)) is not None:
            return size
    except (KeyError, ValueError):
        pass
    raise SettingsError(f"{file}: {key}={text}: {wrong}")
