"""The source's options: a frozen value, checked before anything is asked of ZooKeeper or
BookKeeper.

Spark hands options over as text with case-insensitive keys. Every error names the option, its value
and the remedy. Invariant: what passes here can be pickled and means the same in every task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa

from cursorkeeper.core.names import ROOT
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.patience import Patience
from cursorkeeper.settings import Settings, Systems, load
from cursorkeeper.zookeeper.settings import parse_servers
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.source.files import CERTIFICATES, SECRETS, check_path, here
from cursorkeeper_pipeline.source.wanted import Wanted
from cursorkeeper_pipeline.source.window import Window
from cursorkeeper_pipeline.spelling import camel, guess

TABLES = tuple(schemas.TABLES)
"""In the order of the documentation."""
FOOTERS_ONLY = ("cursors", "segments")
"""These need no gateway."""
MIB = 1 << 20
TASKS_MAX = 4_096
"""A task has a bucket at least."""
READ_RATE_MIN_MIB_S, FOOTER_RATE_MIN_S = 0.01, 1.0
"""Of a task. Below it one read would pause for many minutes, and a task would never end."""
VIEW = "CREATE TEMPORARY VIEW name USING cursorkeeper OPTIONS (table '...', zookeeper '...')"
OF_ZOOKEEPER = (
    "zookeeper_tls_enabled",
    "zookeeper_tls_server_name",
    "zookeeper_auth_file",
    "zookeeper_sasl_principal",
    "zookeeper_sasl_keytab_file",
    "zookeeper_sasl_service_name",
    "zookeeper_sasl_user",
    "zookeeper_acl",
    *CERTIFICATES,
)
OF_GATEWAY = (
    "gateway_token_file",
    "password",
    "gateway_tls_enabled",
    "gateway_tls_server_name",
    *CERTIFICATES,
)
PROTECTION = tuple(dict.fromkeys((*OF_ZOOKEEPER, *OF_GATEWAY)))
"""The daemon's settings, by its names, that say how its systems are protected."""
INTERNAL = "internal"
"""Fields so marked are no options that a user gives."""


class Mode(StrEnum):
    """What a damaged cursor becomes: a row with status and error, or the end of the job."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


@dataclass(frozen=True, slots=True)
class Options:
    """See the module. Names are the options', in camel case there: `gatewayTokenFile`. Units are in
    the names.
    """

    table: str = "cursors"
    zookeeper: str = ""
    """host:port[,host:port...][/chroot]"""
    root: str = ROOT
    """Where in ZooKeeper the footers are; without a slash at its end, however it was given."""
    gateway: str = ""
    """host:port of the ledger gateway; tasks are its readers and never fence."""
    gateway_token_file: str = ""
    """A file on every node, as all files here."""
    password: str = ""
    """Of the cursor ledgers."""
    gateway_tls_enabled: bool = False
    gateway_tls_server_name: str = ""
    zookeeper_tls_enabled: bool = False
    zookeeper_tls_server_name: str = ""
    zookeeper_auth_file: str = ""
    """A file with digest:USER:PASSWORD, or sasl:USER:PASSWORD."""
    zookeeper_sasl_principal: str = ""
    """NAME@REALM, for a login with Kerberos in its place."""
    zookeeper_sasl_keytab_file: str = ""
    zookeeper_sasl_service_name: str = "zookeeper"
    zookeeper_sasl_user: str = ""
    zookeeper_acl: str = "open"
    """Of what the jobs `import` and `export` make."""
    tls_certificate_file_path: str = ""
    tls_key_file_path: str = ""
    tls_trust_certs_file_path: str = ""
    tenant: str = ""
    namespace: str = ""
    """tenant/namespace."""
    topic: str = ""
    subscription: str = ""
    keys: str = ""
    """Numbers of `cursor_key`, with commas between them: those cursors alone."""
    push_filters: bool = False
    """Filters of the query choose cursors before they are read; only for a DataFrame of one query,
    see `reader`.
    """
    mode: Mode = Mode.PERMISSIVE
    deleted: bool = False
    """Tombstones of deleted cursors too."""
    tasks: int = 0
    """How many tasks read; 0: as many as the work deserves."""
    slots: int = 0
    """How many tasks run at once, which divide the budgets for reading; 0: not known."""
    task_bytes: int = 64 * MIB
    """Memory for the states that a task of `checks` has at once, about."""
    split_bytes: int = 16 * MIB
    """A cursor whose unpacked state is larger, and that has a snapshot, is read piece by piece,
    each of about so much.
    """
    read_rate_mib_s: float = 0.0
    """Of the whole job, from BookKeeper; 0: as fast as it goes. Bookies serve live traffic too."""
    footer_rate_s: float = 0.0
    """Footers per second of the whole job, from ZooKeeper; 0: as fast as it goes."""
    wait_s: float = 30.0
    """How long a task waits for a system that is away before it fails; for the first connection no
    longer than 10 s.
    """
    since: str = ""
    """`deltas`: ISO 8601 or seconds since 1970; acks appended at or after it."""
    until: str = ""
    """`deltas`: acks appended before it."""
    pulsar_zookeeper: str = ""
    """`pulsar_cursors`: Pulsar's metadata store; empty: `zookeeper`."""
    wanted: Wanted = field(default=Wanted(), metadata={INTERNAL: True})
    """What the query's filters leave of the names."""
    columns: tuple[str, ...] = field(default=(), metadata={INTERNAL: True})
    """Those that a query's schema names; empty: the table's."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", self.root.rstrip("/") or self.root)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """From Spark's text. Unknown, missing and contradicting options are errors. Raises
        OptionError.
        """
        known = {camel(f.name).lower(): f for f in _given()}
        values: dict[str, Any] = {}
        for key, text in given.items():
            found = known.get(key.lower())
            if found is None:
                if key.lower() == "provider":  # a table of Spark's catalog is asked for
                    raise OptionError(
                        "a table of a catalog cannot be made of this source: Spark keeps its "
                        "options in a form that no Python source "
                        "can read",
                        VIEW,
                    )
                if key.lower() == "path":
                    raise OptionError(
                        f"path = {text!r}: this source reads no path", "use load() without one"
                    )
                names = [camel(f.name) for f in _given()]
                raise OptionError(
                    f"unknown option {key}",
                    f"{guess(key, names)}the options are {', '.join(names)}",
                )
            values[found.name] = _value(camel(found.name), found.type, text)
        options = cls(**values)
        options.check()
        return replace(options, wanted=options.of_keys)

    def check(self) -> None:
        """Raises OptionError."""
        if self.table not in TABLES:
            raise OptionError(
                f"table = {self.table!r}: there is no such table",
                f"{guess(self.table, TABLES)}the tables are {', '.join(TABLES)}",
            )
        if not self.zookeeper:
            of_catalog = (
                f"; instead of a table of Spark's catalog, which hands its options to "
                f"no Python source: {VIEW}"
            )
            raise OptionError(
                "zookeeper is not given",
                f'.option("zookeeper", "host:port[,host:port...][/chroot]"){of_catalog}',
            )
        if not self.gateway and self.table not in FOOTERS_ONLY:
            raise OptionError(
                f"table {self.table} reads BookKeeper and gateway is not given",
                '.option("gateway", "host:port")',
            )
        self._check_numbers()
        self._check_places()
        for name in (*SECRETS, *CERTIFICATES):
            check_path(name, getattr(self, name))
        if (self.since or self.until) and self.table != "deltas":
            raise OptionError(
                f"since and until are options of the table deltas, not of {self.table}"
            )
        _ = self.window
        _ = self.selection
        _ = self.settings
        _ = self.of_keys

    def _check_numbers(self) -> None:
        for name in ("task_bytes", "split_bytes", "wait_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise OptionError(f"{camel(name)} = {value}: it must be above 0, and finite")
        if not 0 <= self.tasks <= TASKS_MAX:
            raise OptionError(f"tasks = {self.tasks}: 0 to {TASKS_MAX:,} are allowed")
        if self.slots < 0:
            raise OptionError(
                f"slots = {self.slots} is negative",
                "give how many tasks run at once, or leave it out",
            )
        for name, least, unit in (
            ("read_rate_mib_s", READ_RATE_MIN_MIB_S, "MiB/s"),
            ("footer_rate_s", FOOTER_RATE_MIN_S, "footers/s"),
        ):
            rate, each = getattr(self, name), getattr(self, name) / max(1, self.slots)
            if not math.isfinite(rate) or rate < 0 or 0 < each < least:
                of = f", which is {each:g} for each of {self.slots} slots" if self.slots > 1 else ""
                raise OptionError(
                    f"{camel(name)} = {rate}{of}: it must not be negative, and be finite",
                    f"give at least {least} {unit} for each task, or 0 for as fast as it goes",
                )

    def _check_places(self) -> None:
        for name in ("zookeeper", "pulsar_zookeeper"):
            given = getattr(self, name)
            try:
                parse_servers(given or "127.0.0.1")
            except ValueError as e:
                raise OptionError(
                    f"{camel(name)} = {given!r}: {e}", "write host:port[,host:port...][/chroot]"
                ) from None
        host, _, port = self.gateway.rpartition(":")
        if self.gateway and not (host and port.isdecimal() and 0 < int(port) < 65_536):
            raise OptionError(f"gateway = {self.gateway!r} is not an address", "write host:port")
        if self.root == "/":
            raise OptionError(
                "root = '/': footers are below a node of their own",
                "write its path, as /cursorkeeper/cursors",
            )

    @property
    def window(self) -> Window:
        """What `since` and `until` say. Raises OptionError."""
        try:
            return Window.of(self.since, self.until)
        except ValueError as e:
            raise OptionError(str(e)) from None

    @property
    def of_keys(self) -> Wanted:
        """What `keys` says. Raises OptionError."""
        try:
            keys = (
                frozenset(int(key) for key in self.keys.split(",")) if self.keys.strip() else None
            )
        except ValueError:
            raise OptionError(
                f"keys = {self.keys[:80]!r}: write numbers of cursor_key, with commas between them"
            ) from None
        return Wanted() if keys is None else Wanted((("cursor_key", keys),))

    @property
    def selection(self) -> Selection:
        """Raises OptionError."""
        given = [name for name in ("tenant", "namespace", "topic") if getattr(self, name)]
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)} are given", "give one of them")
        if self.subscription and not self.topic:
            raise OptionError(
                "subscription is given without topic", "give both, or filter the rows"
            )
        try:
            if self.topic:
                return Selection.of_topic(self.topic, self.subscription)
            if self.namespace:
                return Selection.of_namespace(self.namespace)
            return Selection.of_tenant(self.tenant) if self.tenant else Selection.everything()
        except ValueError as e:
            raise OptionError(f"{given[0] if given else 'selection'}: {e}") from None

    @property
    def is_of_all(self) -> bool:
        """Whether every cursor is asked for."""
        return self.selection == Selection.everything() and self.wanted.is_everything

    @property
    def settings(self) -> Settings:
        """The daemon's settings that say where the systems are; what is not given there has the
        daemon's defaults, and nothing comes from a task's own environment. Raises OptionError,
        which names the host where a certificate's file is wrong.
        """
        names = ("zookeeper", "root", "gateway", *PROTECTION)
        given = {name: value for name in names if (value := getattr(self, name))}
        # at the planning a token may be missing; whoever connects says so
        systems = Systems(
            **{name: given[name] for name in given if name not in (*SECRETS, "password")}
        )
        with here(systems):
            return load(environment={}, flags=given)

    @property
    def patience(self) -> Patience:
        """With a system that is away."""
        return Patience(self.wait_s)

    @property
    def is_strict(self) -> bool:
        """Whether what is wrong with a cursor ends the job."""
        return self.mode is Mode.FAILFAST

    @property
    def is_paced(self) -> bool:
        """Whether the job has a budget for reading."""
        return bool(self.read_rate_mib_s or self.footer_rate_s)

    def of_tasks(self, parts: int) -> Options:
        """For one of so many tasks: its share of the job's budgets."""
        at_once = max(1, min(parts, self.slots or parts))
        return replace(
            self,
            read_rate_mib_s=self.read_rate_mib_s / at_once,
            footer_rate_s=self.footer_rate_s / at_once,
        )

    def names_in(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns of cursors' names that are asked for and that the table does not have by
        itself.
        """
        return tuple(
            name
            for name in schemas.NAMES.names
            if name in self.columns and name not in schema.names
        )

    def with_table(self, table: str) -> Options:
        """The same for another table."""
        return replace(self, table=table)

    def as_text(self) -> dict[str, str]:
        """What `parse` turns into an equal value; defaults are left out."""
        return {
            camel(f.name): text_of(value)
            for f in _given()
            if (value := getattr(self, f.name)) != f.default
        }


def _given() -> list[Any]:
    return [one for one in fields(Options) if INTERNAL not in one.metadata]


def text_of(value: object) -> str:
    """As Spark hands it over."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_READ: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "bool": (lambda text: {"true": True, "false": False}[text.lower()], "use true or false"),
    "int": (int, "it must be a number"),
    "float": (float, "it must be a number"),
    "Mode": (lambda text: Mode(text.lower()), f"use {' or '.join(Mode)}"),
    "str": (str, ""),
}
"""Kind of a field -> what reads its text, and what is said where it cannot."""


def _value(name: str, kind: Any, text: str) -> Any:
    read, said = _READ[kind]
    try:
        return read(text)
    except (KeyError, ValueError):
        raise OptionError(f"{name} = {text!r}: {said}") from None
