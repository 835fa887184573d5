"""One frozen, validated value for everything that can be set: TOML file, environment, flags, and
Pulsar's `broker.conf`.

A setting is declared once, with its default, its bounds, Pulsar's names for it and a sentence for
whoever asks: at its field in a group here, in `core.limits` or in `runtime.keeper`. `Settings` is
its groups; people give flat names, and no name is in two groups. Later sources win: defaults <
broker.conf < TOML < environment (`CURSORKEEPER_` + upper-case name) < flags. Every error names the
setting, its source and the remedy. Relations between settings are checked by `check()`. What Pulsar
has a name for may be given by that name in every source (`ALIASES`).
"""

from __future__ import annotations

import difflib
import os
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from cursorkeeper.bookkeeper.port import Digest, GatewayInfo
from cursorkeeper.broker_conf import read_broker_conf
from cursorkeeper.core import sizes
from cursorkeeper.core.footer import FORMAT_NATIVE, FORMAT_PULSAR
from cursorkeeper.core.limits import KIB, MIB, CursorLimits, Limits
from cursorkeeper.core.names import ROOT
from cursorkeeper.core.setting import Setting, SettingsError, byte_size, setting, settings_of
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format.codec import Codec
from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.zookeeper import acl as access
from cursorkeeper.zookeeper.paths import check_path
from cursorkeeper.zookeeper.settings import Kerberos
from cursorkeeper_client.tls import RenewedContext, TlsError, TlsFiles

__all__ = ["ALIASES", "GROUPS", "SETTINGS", "Settings", "SettingsError", "load"]

ENVIRONMENT, ENVIRONMENT_PREFIX = "the environment", "CURSORKEEPER_"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
OTHER_VARIABLES = frozenset(
    [
        "VERSION",
        "REVISION",
        "WHEEL_JAR",
        "WHEEL_COMPILED",
        "COMPILED",
        "GATEWAY_JAR",
        "PORT",
        "METRICS_PORT",
        "GATEWAY_METRICS_PORT",
        "TEST_RUN",
        "INTEROP_SEED",
    ]
)
"""Variables with our prefix that are no settings of the daemon: of builds, of compose, of tests."""
_OF_KUBERNETES = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes tells a pod of services whose names begin with our prefix."""
INT_MAX = (1 << 31) - 1
"""Of Java."""
PORT_MAX = 65_535
BOOKKEEPER_ENTRY_BYTES = 5 * MIB
"""What bookies take in one entry, unless told otherwise: so large may a whole state in one entry
be.
"""


@dataclass(frozen=True, kw_only=True)
class Daemon:
    name: str = setting("", "The daemon's name in footers and in Hello; default: the host's name.")
    listen: str = setting(
        "127.0.0.1:7650",
        "Where sources publish (`AckSink`) and tools ask (`CursorStore`): host:port, or unix: and "
        "the absolute path of a socket.",
    )
    sources: list[str] = setting([], "Sources to subscribe to (`AckSource`): host:port each.")
    metrics_listen: str = setting("127.0.0.1:7652", "Prometheus text at /metrics; empty: off.")
    source_token_file: str = setting(
        "",
        "If given, a source's Hello must carry this file's content, and so must who asks "
        "`CursorStore` (authorization: Bearer TOKEN).",
    )
    reader_token_file: str = setting(
        "", "A token that lets ask `CursorStore`, and nothing else; needs source_token_file."
    )
    identities_file: str = setting(
        "", "Who may call this daemon, and what they may: JSON; instead of the token files."
    )
    token_secret_key: str = setting(
        "",
        "Pulsar's secret key of signed tokens (JWT): file:///PATH, data:;base64,... or base64.",
        pulsar=("tokenSecretKey",),
    )
    token_public_key: str = setting(
        "", "Pulsar's public key of signed tokens, in the same forms.", pulsar=("tokenPublicKey",)
    )
    token_auth_claim: str = setting(
        "sub", "The claim of a signed token that says whose it is.", pulsar=("tokenAuthClaim",)
    )
    token_audience_claim: str = setting(
        "", "The claim that says for whom it is.", pulsar=("tokenAudienceClaim",)
    )
    token_audience: str = setting("", "What that claim must hold.", pulsar=("tokenAudience",))
    audit_log_file: str = setting(
        "",
        "A file of its own for who did what to which cursor, and who was refused, in JSON lines; "
        "-: standard error.",
    )
    insecure: bool = setting(
        False,
        "Listen for other machines in plain text, or without asking who calls: whoever reaches the "
        "port, or hears a token there, may ack, reset and delete.",
    )
    reflection: bool = setting(
        False, "Tell whoever asks which calls there are (gRPC server reflection)."
    )
    connection_age_max_s: float = setting(
        0.0,
        "A connection that is older is asked to go, and a source dials again and loses nothing; 0: "
        "it may stay.",
        0,
        1e9,
    )
    hello_timeout_s: float = setting(
        10.0,
        "A stream on which no Hello comes for so long ends; to a source that this daemon dials "
        "it begins anew.",
        0.01,
        3_600,
    )
    streams_max: int = setting(
        1_000, "Streams of sources at once; of workers each has so many.", 1, 1_000_000
    )
    workers: int = setting(
        1,
        "Processes that share the cursors, one for each core that the daemon may use; what counts "
        "for the daemon as a whole is divided among them.",
        1,
        64,
    )
    worker_port: int = setting(
        7_660,
        "Of several workers the first listens at `listen`, the second at this port of the same "
        "host, the third at the next; sources must reach them all. 0: any that is free.",
        0,
        PORT_MAX,
    )

    @property
    def identity(self) -> str:
        """host/pid: goes into every footer with the claim's nonce."""
        return f"{self.name or socket.gethostname()}/{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class Tls:
    tls_enabled: bool = setting(
        False,
        "Serve the ack stream, `CursorStore`, health and metrics with TLS only, and dial `sources` "
        "with TLS.",
    )
    tls_certificate_file_path: str = setting(
        "",
        "This daemon's certificate in PEM, and those between it and its authority; shown to who "
        "dials it, and to whom it dials.",
        pulsar=("tlsCertificateFilePath",),
    )
    tls_key_file_path: str = setting(
        "", "Its key in PEM, not encrypted.", pulsar=("tlsKeyFilePath",)
    )
    tls_trust_certs_file_path: str = setting(
        "",
        "The authorities, in PEM, whose certificates are believed; empty: those of this system.",
        pulsar=("tlsTrustCertsFilePath",),
    )
    tls_require_trusted_client_cert_on_connect: bool = setting(
        False,
        "Refuse who dials this daemon without a certificate of such an authority.",
        pulsar=("tlsRequireTrustedClientCertOnConnect",),
    )
    tls_cert_refresh_check_duration_sec: float = setting(
        300.0,
        "How often it is looked whether the files have changed: new connections are made with the "
        "new ones.",
        0.01,
        1e9,
        pulsar=("tlsCertRefreshCheckDurationSec",),
    )
    tls_server_name: str = setting(
        "",
        "A name in this daemon's certificate, for its own workers, its health command and the "
        "sources that it dials, if that is not the host that they dial.",
    )
    gateway_tls_enabled: bool = setting(False, "Dial the ledger gateway with TLS.")
    gateway_tls_server_name: str = setting(
        "", "A name in the gateway's certificate, if that is not the host that is dialled."
    )

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(
            self.tls_certificate_file_path, self.tls_key_file_path, self.tls_trust_certs_file_path
        )

    @property
    def of_sources(self) -> TlsFiles | None:
        """For the connections of the ack stream; None: they are plain text."""
        return self.files if self.tls_enabled else None

    @property
    def of_gateway(self) -> TlsFiles | None:
        return self.files if self.gateway_tls_enabled else None

    def of_pages(self, on_problem: Callable[[TlsError], None]) -> RenewedContext | None:
        """For the server of metrics; None: it is plain HTTP. Raises TlsError."""
        if not self.tls_enabled:
            return None
        return RenewedContext(
            self.files,
            refresh_s=self.tls_cert_refresh_check_duration_sec,
            on_problem=on_problem,
        )

    @property
    def is_used(self) -> bool:
        return self.tls_enabled or self.gateway_tls_enabled

    def check(self) -> None:
        """Raises SettingsError."""
        if not self.is_used:
            return
        try:
            self.files.check()
        except TlsError as e:
            raise SettingsError(f"{self._said(e.file)}: {e.reason}", e.remedy) from None
        if self.tls_enabled and not self.tls_certificate_file_path:
            raise SettingsError(
                "tls_enabled: a server needs a certificate",
                "set tls_certificate_file_path and tls_key_file_path",
            )
        if (
            self.tls_enabled
            and self.tls_require_trusted_client_cert_on_connect
            and not self.tls_trust_certs_file_path
        ):
            raise SettingsError(
                "tls_require_trusted_client_cert_on_connect: no authority is named",
                "set tls_trust_certs_file_path",
            )
        self._check_dates()

    def _said(self, file: str) -> str:
        """A file as messages name it: by its setting."""
        for name in (
            "tls_certificate_file_path",
            "tls_key_file_path",
            "tls_trust_certs_file_path",
        ):
            if getattr(self, name) == file:
                return f"{name} = {file!r}"
        return file

    def _check_dates(self) -> None:
        if not self.tls_certificate_file_path:
            return
        from datetime import UTC, datetime

        from cryptography import x509

        try:
            first = x509.load_pem_x509_certificates(
                Path(self.tls_certificate_file_path).read_bytes()
            )[0]
        except (OSError, ValueError) as e:
            raise SettingsError(
                f"{self._said(self.tls_certificate_file_path)}: {e}", "name a PEM file"
            ) from None
        now = datetime.now(UTC)
        if not first.not_valid_before_utc <= now <= first.not_valid_after_utc:
            raise SettingsError(
                f"{self._said(self.tls_certificate_file_path)}: it is valid from "
                f"{first.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                f"{first.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and it is "
                f"{now:%Y-%m-%d %H:%M} here",
                "renew it, or set this machine's clock",
            )


@dataclass(frozen=True, kw_only=True)
class Systems(Tls):
    gateway: str = setting("127.0.0.1:7651", "host:port of the ledger gateway.")
    gateway_token_file: str = setting("", "A file with the token that the gateway asks for.")
    zookeeper: str = setting("127.0.0.1:2181", "host:port[,host:port...][/chroot]")
    zookeeper_session_timeout_ms: int = setting(
        30_000,
        "How long ZooKeeper keeps the session of a daemon that it does not hear.",
        100,
        3_600_000,
        broker_conf=("zooKeeperSessionTimeoutMillis", "metadataStoreSessionTimeoutMillis"),
    )
    zookeeper_jute_maxbuffer_bytes: int = setting(
        0xFFFFF,
        "ZooKeeper's own jute.maxbuffer: how large a request or an answer may be.",
        256 * KIB,
        1024 * MIB,
    )
    zookeeper_tls_enabled: bool = setting(False, "Dial ZooKeeper with TLS (its secureClientPort).")
    zookeeper_tls_server_name: str = setting(
        "", "A name in ZooKeeper's certificate, if that is not the host that is dialled."
    )
    zookeeper_auth_file: str = setting(
        "",
        "A file with digest:USER:PASSWORD, or sasl:USER:PASSWORD for a login with DIGEST-MD5: who "
        "this daemon is to ZooKeeper.",
    )
    zookeeper_sasl_principal: str = setting(
        "",
        "NAME@REALM: who this daemon is to ZooKeeper, by a login with Kerberos, in the place of "
        "zookeeper_auth_file. It needs the extra cursorkeeper[kerberos].",
    )
    zookeeper_sasl_keytab_file: str = setting(
        "",
        "A file with the principal's key; without it the tickets or the keytab are used that "
        "KRB5CCNAME or KRB5_CLIENT_KTNAME name.",
    )
    zookeeper_sasl_service_name: str = setting(
        "zookeeper",
        "The service in the principals of ZooKeeper's servers, SERVICE/HOST; with a slash in it, "
        "one principal that all of them have.",
    )
    zookeeper_sasl_user: str = setting(
        "",
        "What ZooKeeper calls the principal, if it cuts off host or realm "
        "(kerberos.removeRealmFromPrincipal).",
    )
    zookeeper_acl: str = setting(
        "open",
        "Who may touch the nodes that are made: open, everybody; creator, who zookeeper_auth_file "
        "or zookeeper_sasl_principal says; or users, of whom it must be one: digest:USER:HASH for "
        "a digest, sasl:USER for a login, with commas between them.",
    )
    root: str = setting(ROOT, "Where in ZooKeeper the footers are.")

    @property
    def is_used(self) -> bool:
        return super().is_used or self.zookeeper_tls_enabled

    def check_login(self) -> None:
        """Raises SettingsError."""
        principal = self.zookeeper_sasl_principal
        if not principal:
            for name in ("zookeeper_sasl_keytab_file", "zookeeper_sasl_user"):
                if getattr(self, name):
                    raise SettingsError(
                        f"{name} = {getattr(self, name)!r}: there is no login that it is for",
                        "set zookeeper_sasl_principal",
                    )
            return
        if self.zookeeper_auth_file:
            raise SettingsError(
                f"zookeeper_sasl_principal = {principal!r} and zookeeper_auth_file = "
                f"{self.zookeeper_auth_file!r}: the daemon would be two users",
                "set one of them",
            )
        if not self.zookeeper_sasl_service_name:
            raise SettingsError("zookeeper_sasl_service_name is empty", "write zookeeper")
        try:
            Kerberos(principal)
        except ValueError as e:
            raise SettingsError(
                f"zookeeper_sasl_principal: {e}", "`klist -k` lists those of a keytab"
            ) from None

    @property
    def of_zookeeper(self) -> TlsFiles | None:
        return self.files if self.zookeeper_tls_enabled else None

    @property
    def where(self) -> str:
        """As messages name the place of the footers."""
        return f"{self.root} in ZooKeeper at {self.zookeeper}"


@dataclass(frozen=True, kw_only=True)
class CursorLedgers:
    ensemble: int = setting(
        3, "Bookies that share a cursor ledger.", broker_conf=("managedLedgerDefaultEnsembleSize",)
    )
    write_quorum: int = setting(
        3, "Copies of each entry.", broker_conf=("managedLedgerDefaultWriteQuorum",)
    )
    ack_quorum: int = setting(
        2,
        "Copies that are stored before an entry counts as written.",
        broker_conf=("managedLedgerDefaultAckQuorum",),
    )
    digest: str = setting(
        "CRC32C",
        "BookKeeper's checksum of entries: CRC32C, CRC32, MAC or DUMMY.",
        choices=Digest.__members__,
        broker_conf=("managedLedgerDigestType",),
    )
    password: str = setting(
        "", "The ledgers' password, as in BookKeeper.", broker_conf=("managedLedgerPassword",)
    )
    shrink_ensemble: bool = setting(
        True,
        "With a bookie missing, write with an ensemble of the ack quorum rather than not at all.",
    )
    codec: str = setting(
        "zstd",
        "How records are compressed: none, lz4 or zstd.",
        choices=tuple(map(str.lower, Codec.__members__)),
        any_case=True,
    )
    zstd_level: int = setting(1, "From 1, fast, to 22, small.", 1, 22)
    record_version: int = setting(
        1,
        "2: snapshots with few or clustered holes take a quarter to two thirds less. Releases "
        "before 0.2.0 refuse such cursors (FORMAT_TOO_NEW): set it when none of them is left.",
        1,
        2,
    )

    @property
    def policy(self) -> LedgerPolicy:
        return LedgerPolicy(
            self.ensemble,
            self.write_quorum,
            self.ack_quorum,
            Digest[self.digest],
            self.password.encode(),
            self.shrink_ensemble,
        )


@dataclass(frozen=True, kw_only=True)
class StateFormat:
    format: str = setting(
        FORMAT_NATIVE,
        "native, or pulsar: every flush writes the whole state in Pulsar's own bytes.",
        choices=(FORMAT_NATIVE, FORMAT_PULSAR),
    )
    persistent_unacked_ranges_with_multiple_entries_enabled: bool = setting(
        False,
        "Pulsar form: a state above max_entry_bytes becomes several entries and a footer "
        "(PIP-381).",
        pulsar=("persistentUnackedRangesWithMultipleEntriesEnabled",),
    )
    cursor_info_compression_type: str = setting(
        "NONE",
        "Pulsar form: codec of the state in BookKeeper: NONE, LZ4, ZLIB, ZSTD or SNAPPY.",
        choices=Compression.__members__,
        any_case=True,
        pulsar=("cursorInfoCompressionType",),
    )
    managed_ledger_persist_individual_ack_as_long_array: bool = setting(
        True,
        "Pulsar form: acked entries as long arrays; no: as message ranges.",
        pulsar=("managedLedgerPersistIndividualAckAsLongArray",),
    )
    managed_ledger_max_unacked_ranges_to_persist: int = setting(
        10_000,
        "Pulsar form: ranges (never entries) of acked entries that may be written; counts if it "
        "is set and the limit in bytes is not.",
        pulsar=("managedLedgerMaxUnackedRangesToPersist",),
    )
    managed_ledger_max_ack_state_in_bytes_to_persist: int = setting(
        5 * MIB,
        "Pulsar form: bytes of the encoded state that may be written, 1K to 5M; counts before "
        "the limit in ranges.",
        pulsar=("managedLedgerMaxAckStateInBytesToPersist",),
        is_size=True,
    )
    dispatcher_pause_on_ack_persistent_state_enabled: bool = setting(
        True,
        "Pulsar form: at a limit, tell the source to pause.",
        pulsar=(
            "dispatcherPauseOnAckPersistentStateEnabled",
            "dispatcherPauseOnAckStatePersistentEnabled",
        ),
    )
    truncate_ack_state: bool = setting(
        False,
        "Pulsar form: at a limit, leave the newest acks out of what is written, and confirm "
        "them all the same.",
    )
    managed_ledger_default_mark_delete_rate_limit: float = setting(
        1.0,
        "Pulsar form: flushes of a cursor per second, unless flush_interval_ms is set; 0: as "
        "flush_interval_ms says.",
        pulsar=("managedLedgerDefaultMarkDeleteRateLimit",),
    )
    managed_cursor_info_compression_type: str = setting(
        "NONE",
        "Pulsar form: codec of a state inside the footer.",
        choices=Compression.__members__,
        any_case=True,
        pulsar=("managedCursorInfoCompressionType",),
    )
    managed_cursor_info_compression_threshold_in_bytes: int = setting(
        16 * KIB,
        "Pulsar form: smaller states inside the footer are not compressed.",
        pulsar=("managedCursorInfoCompressionThresholdInBytes",),
    )
    batch_index_acknowledge_enable: bool = setting(
        True,
        "Any format: keep which indexes of a batch are acked; no: a partial ack records nothing.",
        pulsar=("batchIndexAcknowledgeEnable", "acknowledgmentAtBatchIndexLevelEnabled"),
    )

    @property
    def is_pulsar(self) -> bool:
        return self.format == FORMAT_PULSAR

    def check(self) -> None:
        """What counts only where the form is Pulsar's. Raises SettingsError."""
        _check_choice(self, "cursor_info_compression_type", "managed_cursor_info_compression_type")
        for name, low, high, said in (
            ("managed_ledger_max_ack_state_in_bytes_to_persist", KIB, 5 * MIB, "1K to 5M"),
            ("managed_ledger_max_unacked_ranges_to_persist", 0, INT_MAX, f"0 to {INT_MAX}"),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{SETTINGS[name].named} = {value}: use {said}")


@dataclass(frozen=True, kw_only=True)
class Start:
    start_timeout_s: float = setting(
        0.0,
        "How long `run` tries to reach ZooKeeper, and a gateway that can serve, before it gives "
        "up; 0: 30 s, and it need only answer.",
        0,
        1e6,
    )


@dataclass(frozen=True, kw_only=True)
class DaemonLimits(KeeperLimits, Start):
    credit_bytes: int = setting(
        4 * MIB, "Bytes of messages that one handle may have unconfirmed.", 4 * KIB, 1024 * MIB
    )
    daemon_credit_bytes: int = setting(
        256 * MIB,
        "Bytes of messages that all handles together may have unconfirmed.",
        4 * KIB,
        1 << 40,
        is_shared=True,
    )
    ack_message_bytes_max: int = setting(
        4 * MIB, "Bytes of the largest message that a source may send.", 4 * KIB, 256 * MIB
    )
    gc_interval_s: float = setting(
        3_600.0, "How often ledgers that no footer names are looked for; 0: never.", 0, 1e9
    )
    pulsar_metadata: str = setting(
        "",
        "host:port[,host:port...][/chroot] of Pulsar's own ZooKeeper: cursors that Pulsar has "
        "no more are looked for; empty: they are not.",
    )
    orphans_interval_s: float = setting(
        3_600.0, "How often cursors that Pulsar has no more are looked for.", 0.01, 1e9
    )
    orphans_delete_after_s: float = setting(
        0.0,
        "For how long this daemon must have seen that Pulsar does not have a closed cursor, to "
        "delete it; 0: it is only told.",
    )
    uvloop: bool = setting(False, "Use uvloop if it is installed.")
    log_level: str = setting(
        "info", "debug, info, warning, error or critical.", choices=LOG_LEVELS, any_case=True
    )


def _check_choice(group: object, *names: str) -> None:
    """Raises SettingsError."""
    for name in names:
        one, value = SETTINGS[name], getattr(group, name)
        choices = one.choices
        spelt = {value, value.lower(), value.upper()} if one.any_case else {value}
        if spelt.isdisjoint(choices):
            raise SettingsError(f"{one.named} = {value!r}: use one of {', '.join(choices)}")


GROUPS: dict[type, str] = {
    Daemon: "who and where",
    Systems: "TLS, and the systems it stands on",
    CursorLedgers: "cursor ledgers",
    CursorLimits: "per cursor",
    StateFormat: "the format, and what counts where it is Pulsar's",
    DaemonLimits: "per daemon",
}
"""Where settings are declared, in the order of `Settings`, and what each group is called in
helps.
"""
SETTINGS = {name: one for group in GROUPS for name, one in settings_of(group).items()}
ALIASES = {key: name for name, one in SETTINGS.items() for key in one.pulsar}
"""Pulsar's names -> ours."""


@dataclass(frozen=True)
class Settings:
    """See the module. Units are in the names."""

    given: Mapping[str, Any]
    """What it was made of. A default gives way where another limit was given."""
    daemon: Daemon
    systems: Systems
    ledgers: CursorLedgers
    cursor: CursorLimits
    state: StateFormat
    limits: DaemonLimits

    @classmethod
    def of(cls, **values: Any) -> Settings:
        """By the names that people give; what is left out has its default. Raises TypeError for
        another name. What was given so is not checked.
        """
        given = dict(values)
        groups = [
            group(**{name: values.pop(name) for name in settings_of(group) if name in values})
            for group in GROUPS
        ]
        return cls(given, *groups, **values)

    def but(self, **values: Any) -> Settings:
        """The same with these values, by the names that people give."""
        return self.of(**{**self.given, **values})

    @property
    def tls(self) -> Tls:
        return self.systems

    @property
    def machine_limits(self) -> Limits:
        """What bounds one cursor's machine."""
        state, cursor = self.state, self.cursor
        rate = state.managed_ledger_default_mark_delete_rate_limit
        properties_max = cursor.mark_delete_properties_bytes_max
        if not state.is_pulsar:
            room = sizes.property_map_bytes_max(cursor.max_entry_bytes)
            properties_max = min(properties_max, room)
        return Limits(
            **{**asdict(cursor), "mark_delete_properties_bytes_max": properties_max},
            whole_state_interval_ms=cursor.flush_interval_ms
            if "flush_interval_ms" in self.given or not rate
            else max(1, round(min(1000 / rate, 1e12))),
            pause_at_limit=state.dispatcher_pause_on_ack_persistent_state_enabled,
            batch_index_acks=state.batch_index_acknowledge_enable,
        )

    def state_writer(self, gateway: GatewayInfo) -> StateWriter | None:
        """How whole states are written; None: the format is native. One limit counts: bytes before
        ranges; of defaults only the bytes, and only for one entry.
        """
        state = self.state
        if not state.is_pulsar:
            return None
        multiple = state.persistent_unacked_ranges_with_multiple_entries_enabled
        by_bytes = "managed_ledger_max_ack_state_in_bytes_to_persist" in self.given
        by_ranges = not by_bytes and "managed_ledger_max_unacked_ranges_to_persist" in self.given
        by_bytes = by_bytes or not (by_ranges or multiple)
        whole = WholeStateSettings(
            form=Form.LONG_ARRAY
            if state.managed_ledger_persist_individual_ack_as_long_array
            else Form.RANGES,
            multiple=multiple,
            max_entry_bytes=self.cursor.max_entry_bytes,
            entry_bytes_max=min(gateway.entry_bytes_max, gateway.message_bytes_max - 64 * KIB),
            compression=Compression[state.cursor_info_compression_type.upper()],
            state_bytes_max=state.managed_ledger_max_ack_state_in_bytes_to_persist
            if by_bytes
            else None,
            ranges_max=state.managed_ledger_max_unacked_ranges_to_persist if by_ranges else None,
            truncate=state.truncate_ack_state,
            inline_compression=Compression[state.managed_cursor_info_compression_type.upper()],
            inline_threshold_bytes=state.managed_cursor_info_compression_threshold_in_bytes,
        )
        return PulsarStateWriter(whole)

    @property
    def append_window_bytes(self) -> int:
        """Of the gateway's client: twice what the daemon may have on its way, with what one cursor
        sends on top, so that no append is refused for want of room.
        """
        entry, state = self.cursor.max_entry_bytes, self.state
        if state.is_pulsar and not state.persistent_unacked_ranges_with_multiple_entries_enabled:
            entry = max(entry, BOOKKEEPER_ENTRY_BYTES)
        cursor = self.cursor
        on_top = cursor.appends_in_flight_max + cursor.snapshot_segments_in_flight_max
        sent = self.limits.daemon_append_bytes_in_flight_max + on_top * entry
        return max(64 * MIB, 2 * sent)

    @property
    def encode(self) -> EncodeSettings:
        return EncodeSettings(
            self.cursor.max_entry_bytes,
            Codec[self.ledgers.codec.upper()],
            self.ledgers.zstd_level,
            self.ledgers.record_version,
        )

    def of_worker(self, number: int, listen: str) -> Settings:
        """Those of one worker: its share of what counts for the daemon as a whole. What is done
        once for all cursors is the first one's.
        """
        own, limits = self.daemon, self.limits
        changed: dict[str, Any] = {}
        for one in self._shared():
            share, rest = divmod(getattr(limits, one.name), own.workers)
            changed[one.name] = share + (number < rest)
        if number:
            changed |= {"gc_interval_s": 0.0, "pulsar_metadata": "", "orphans_delete_after_s": 0.0}
        return self.but(
            **changed,
            name=f"{own.name or socket.gethostname()}#{number}",
            listen=listen,
            metrics_listen="127.0.0.1:0" if own.metrics_listen else "",
        )

    def check(self) -> None:
        """What is chosen, and relations between settings. Raises SettingsError."""
        systems, ledgers, cursor = self.systems, self.ledgers, self.cursor
        state, limits = self.state, self.limits
        try:
            check_path(systems.root)
        except ValueError as e:
            raise SettingsError(
                f"root = {systems.root!r}: {e}", f"write the whole path of a znode, as in {ROOT}"
            ) from e
        if systems.root == "/":
            raise SettingsError(
                "root = '/': other znodes are there, too", f"name one below it, as in {ROOT}"
            )
        _check_choice(limits, "log_level")
        _check_choice(ledgers, "digest", "codec")
        _check_choice(state, "format")
        for group, low, high in (
            (limits, "credit_bytes", "daemon_credit_bytes"),
            (cursor, "retry_min_ms", "retry_max_ms"),
        ):
            least, most = getattr(group, low), getattr(group, high)
            if least > most:
                raise SettingsError(f"{low} {least} must not be above {high} {most}")
        self._check_workers()
        systems.check()
        try:
            acl = access.parse(systems.zookeeper_acl)
        except ValueError as e:
            raise SettingsError(
                f"zookeeper_acl: {e}",
                "the hash is what `printf %s USER:PASSWORD | openssl dgst -sha1 -binary | "
                "openssl base64` prints",
            ) from None
        systems.check_login()
        if acl != access.OPEN and not (
            systems.zookeeper_auth_file or systems.zookeeper_sasl_principal
        ):
            said = systems.zookeeper_acl.partition(":")[0]
            raise SettingsError(
                f"zookeeper_acl = {said!r}: the daemon is nobody to ZooKeeper",
                "set zookeeper_auth_file, or zookeeper_sasl_principal",
            )
        if limits.orphans_delete_after_s and not limits.pulsar_metadata:
            raise SettingsError(
                f"orphans_delete_after_s = {limits.orphans_delete_after_s:g}: nobody looks for "
                f"orphans",
                "set pulsar_metadata",
            )
        if not ledgers.ensemble >= ledgers.write_quorum >= ledgers.ack_quorum >= 1:
            raise SettingsError(
                f"ensemble {ledgers.ensemble} >= write_quorum {ledgers.write_quorum} >= ack_quorum "
                f"{ledgers.ack_quorum} >= 1 does not hold"
            )
        if cursor.chain_ledgers_max >= cursor.chain_ledgers_hard_max:
            raise SettingsError(
                f"chain_ledgers_max {cursor.chain_ledgers_max} must be below "
                f"chain_ledgers_hard_max {cursor.chain_ledgers_hard_max}"
            )
        if not 64 * KIB <= cursor.max_entry_bytes <= 4 * MIB - 128 * KIB:
            raise SettingsError(
                f"max_entry_bytes = {cursor.max_entry_bytes}: use 64 KiB to 4 MiB less 128 KiB"
            )
        room = sizes.property_map_bytes_max(cursor.max_entry_bytes)
        for name in ("mark_delete_properties_bytes_max", "cursor_properties_bytes_max"):
            asked, default = getattr(cursor, name), SETTINGS[name].default
            if asked > room and not state.is_pulsar and asked != default:
                raise SettingsError(
                    f"{name} = {asked}: a record of max_entry_bytes = {cursor.max_entry_bytes} has "
                    f"room for {room}: lower the one or raise the other"
                )
        if state.is_pulsar:
            state.check()
        znode = 16 * KIB + cursor.inline_state_max_bytes * 4 // 3
        if state.is_pulsar:
            # they are in the footer there; JSON may take six bytes for one
            znode += 6 * cursor.cursor_properties_bytes_max
        if znode >= systems.zookeeper_jute_maxbuffer_bytes:
            raise SettingsError(
                f"inline_state_max_bytes = {cursor.inline_state_max_bytes}: a footer could have "
                f"{znode} bytes, "
                f"ZooKeeper's jute.maxbuffer is {systems.zookeeper_jute_maxbuffer_bytes}"
            )

    @staticmethod
    def _shared() -> list[Setting]:
        """The settings that the workers of a daemon divide among them: all are in `limits`."""
        return [one for one in SETTINGS.values() if one.is_shared]

    def _check_workers(self) -> None:
        workers, first = self.daemon.workers, self.daemon.worker_port
        for one in self._shared():
            value = getattr(self.limits, one.name)
            least = self.limits.credit_bytes if one.name == "daemon_credit_bytes" else one.bounds[0]
            if value // workers < least:
                raise SettingsError(
                    f"{one.name} = {value}: a share of {value // workers} for each of "
                    f"workers = {workers}, and {least:g} is the least",
                    f"raise {one.name}, or lower workers",
                )
        if first and first + workers - 2 > PORT_MAX:
            raise SettingsError(
                f"worker_port = {first}: workers = {workers} would need ports above {PORT_MAX}"
            )

    def check_gateway(self, gateway: GatewayInfo) -> None:
        """Our entries must fit the gateway's. Raises SettingsError."""
        entry = self.cursor.max_entry_bytes
        if entry + 64 * KIB > gateway.entry_bytes_max:
            raise SettingsError(
                f"max_entry_bytes = {entry} + 64 KiB is above the gateway's entry "
                f"limit of {gateway.entry_bytes_max}: lower the one or raise the other"
            )
        if entry >= gateway.message_bytes_max:
            raise SettingsError(
                f"max_entry_bytes = {entry}: the gateway takes messages of "
                f"{gateway.message_bytes_max} bytes"
            )


def load(
    *,
    file: Path | None = None,
    broker_conf: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """All sources together, checked. Raises SettingsError."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if broker_conf is not None:
        values, keys = read_broker_conf(broker_conf, SETTINGS.values())
        origins = {name: f"{key} of {broker_conf}" for name, key in keys.items()}
    for source, given in (
        (str(file), _toml(file) if file is not None else {}),
        (ENVIRONMENT, _environment(os.environ if environment is None else environment)),
        ("the command line", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for name, (said, value) in _named(given, source).items():
            values[name], origins[name] = (
                value,
                f"{said} of {source}" if source == str(file) else _spelt(said, source),
            )
    settings = Settings.of(
        **{name: _converted(SETTINGS[name], value, origins[name]) for name, value in values.items()}
    )
    try:
        for name, one in SETTINGS.items():
            if name in settings.given:
                _check_number(one, settings.given[name])
        settings.check()
    except SettingsError as e:
        theirs = [
            f"{name} is {where}"
            for name, where in origins.items()
            if where != name and re.search(rf"\b{name}\b", e.message)
        ]
        raise SettingsError("; ".join([e.message, *theirs]), e.remedy) from e
    return settings


def _named(values: Mapping[str, Any], source: str) -> dict[str, tuple[str, Any]]:
    """By our names: how it was said, and the value. Raises SettingsError for what is no setting,
    and when one is given twice, differently.
    """
    known = {*SETTINGS, *ALIASES}
    if unknown := [key for key in values if key not in known]:
        remedy = "correct the name, or remove it; `cursorkeeper run --help` lists all settings"
        raise SettingsError(
            f"{source}: there is no setting {_unknown(unknown, known, source)}", remedy
        )
    found: dict[str, tuple[str, Any]] = {}
    for key, value in values.items():
        name = ALIASES.get(key, key)
        if name in found and found[name][1] != value:
            raise SettingsError(
                f"{source}: {found[name][0]} and {key} are the same setting and differ: give one "
                f"of them"
            )
        found[name] = key, value
    return found


def _unknown(unknown: list[str], known: set[str], source: str) -> str:
    """All of them, each with the name that it may stand for."""
    said = []
    for key in sorted(unknown):
        by_lower = {_spelt(name, source).lower(): _spelt(name, source) for name in known}
        near = difflib.get_close_matches(_spelt(key, source).lower(), by_lower, n=1)
        said.append(
            f"{_spelt(key, source)}{f' (did you mean {by_lower[near[0]]}?)' if near else ''}"
        )
    return ", ".join(said)


def _spelt(name: str, source: str) -> str:
    """The setting's name as its source writes it."""
    return (
        ENVIRONMENT_PREFIX + (name.upper() if name.islower() else name)
        if source == ENVIRONMENT
        else name
    )


def _converted(one: Setting, value: Any, origin: str) -> Any:
    """The value as the setting's type; a number of bytes may have K or M behind it. Raises
    SettingsError.
    """
    if one.is_size and isinstance(value, str):
        size = byte_size(value)
        if size is None:
            raise SettingsError(
                f"{one.named} = {value!r}: write a number of bytes, as in 5242880, 5120K or 5M"
            )
        return size
    try:
        return msgspec.convert(value, one.kind, strict=False)
    except msgspec.ValidationError as e:
        where = f", which is {origin}," if origin != one.name else ""
        shown = "..." if one.name == "password" else repr(value)
        raise SettingsError(f"{one.name} = {shown}{where} cannot be taken: {e}") from e


def _check_number(one: Setting, value: Any) -> None:
    """Its bounds. Raises SettingsError."""
    low, high = one.bounds or (0, float("inf"))
    if one.kind not in (int, float) or low <= value <= high:  # nor NaN
        return
    asked = (
        f"use {low:,} to {high:,.0f}"
        if one.bounds
        else "must be a number, and must not be negative"
    )
    raise SettingsError(
        f"{one.name} = {value}: {asked}; leave it out for the default of {one.default:,}"
    )


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError as e:
        raise SettingsError(f"{file}: no such file") from e
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise SettingsError(f"{file}: {e}") from e


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """What has our prefix, by the names of settings where it is one."""
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        rest = variable.removeprefix(ENVIRONMENT_PREFIX)
        if rest == variable or rest in OTHER_VARIABLES or _OF_KUBERNETES.fullmatch(rest):
            continue
        name = rest.lower() if rest.isupper() else rest
        found[name] = text.split(",") if name == "sources" else text
    return found
