"""Serves who gives a command on a Pulsar cluster: which cursors, where it is, and how it is set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.outcome import JOBS_MAX
from cursorkeeper.migration.pulsar_systems import cluster_settings, pulsar_conf, pulsar_settings
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, PulsarSettings
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import cursor_name, options

_PULSAR = {"rich_help_panel": "How Pulsar is set"}
PANEL = {"rich_help_panel": "Which cursors"}
_WHERE = {"rich_help_panel": "Where"}

PulsarZookeeper = Annotated[
    str | None, "Pulsar's metadata store, host:port[/chroot]; default: as --zookeeper.", _WHERE
]
PulsarBrokerConf = Annotated[
    Path | None,
    "Pulsar's broker.conf: its ZooKeeper, password, limits; default: --broker-conf.",
    {"metavar": "FILE", **_WHERE},
]
DryRun = Annotated[bool, "Read and report everything, write nothing."]
Resume = Annotated[
    Path | None,
    "The journal of an earlier run, or of this one: what it says is done is not done again.",
    {"metavar": "FILE"},
]
Jobs = Annotated[int, "Cursors at once.", {"min": 1, "max": JOBS_MAX}]


def selection_of(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="persistent://tenant/namespace/topic; a partitioned one means all its partitions."
        ),
    ] = None,
    subscription: Annotated[
        str | None, typer.Argument(help="One of its subscriptions; default: all of them.")
    ] = None,
    tenant: Annotated[str | None, "All cursors of a tenant.", PANEL] = None,
    namespace: Annotated[str | None, "All cursors of tenant/namespace.", PANEL] = None,
    all: Annotated[bool, "All cursors of the cluster.", PANEL] = False,
) -> Selection:
    """Exactly one of them. Raises ProblemError."""
    given = [topic is not None, tenant is not None, namespace is not None, all]
    if sum(given) != 1:
        remedy = "give TOPIC [SUBSCRIPTION], or one of --tenant, --namespace and --all"
        raise ProblemError(
            "which cursors?" if not any(given) else "more than one choice of cursors",
            remedy,
            Kind.USAGE,
        )
    try:
        if topic is not None:
            name, *after = [topic] if subscription else cursor_name.split(topic)
            return Selection.of_topic(name, subscription or "".join(after))
        if tenant is not None:
            return Selection.of_tenant(tenant)
        return (
            Selection.of_namespace(namespace) if namespace is not None else Selection.everything()
        )
    except ValueError as e:
        raise ProblemError(
            str(e),
            "write persistent://tenant/namespace/topic; names of tenants and namespaces without it",
            Kind.USAGE,
        ) from None


Chosen = Annotated[Selection, selection_of]
"""A parameter of a command: which cursors."""


def systems_of(
    *,
    pulsar_zookeeper: PulsarZookeeper = None,
    pulsar_broker_conf: PulsarBrokerConf = None,
    settings: options.Here,
    broker_conf: options.BrokerConf = None,
) -> tuple[Settings, Settings, dict[str, str]]:
    """Our settings, the same pointed at Pulsar's cluster, and its broker.conf. Raises
    SettingsError.
    """
    conf = pulsar_conf(pulsar_broker_conf or broker_conf)
    return settings, pulsar_settings(settings, conf, pulsar_zookeeper), conf


Systems = Annotated[tuple[Settings, Settings, dict[str, str]], systems_of]
"""A parameter of a command: where we are, and where Pulsar is."""


def cluster_of(
    *,
    pulsar_zookeeper: PulsarZookeeper = None,
    zookeeper: options.Zookeeper = None,
    gateway: options.Gateway = None,
    config: options.Config = None,
    broker_conf: Annotated[
        Path | None,
        typer.Option(
            "--broker-conf",
            "--pulsar-broker-conf",
            help="Pulsar's broker.conf: its ZooKeeper, password, limits.",
            metavar="FILE",
            rich_help_panel=_PULSAR["rich_help_panel"],
        ),
    ] = None,
    pulsar_version: Annotated[
        str, "Whose defaults apply where broker.conf says nothing.", _PULSAR
    ] = DEFAULT_VERSION,
    frame_bytes: Annotated[
        int | None,
        "nettyMaxFrameSizeBytes of brokers and bookies, if raised.",
        {"min": 1_024, **_PULSAR},
    ] = None,
) -> tuple[Settings, PulsarSettings]:
    """Where the cluster is, and how its brokers are set. Raises SettingsError."""
    conf = pulsar_conf(broker_conf)
    ours = options.settings_of(
        zookeeper=zookeeper, gateway=gateway, config=config, broker_conf=broker_conf
    )
    settings = pulsar_settings(ours, conf, pulsar_zookeeper)
    return settings, cluster_settings(
        pulsar_version, conf, frame_bytes, settings.systems.zookeeper_jute_maxbuffer_bytes
    )


Cluster = Annotated[tuple[Settings, PulsarSettings], cluster_of]
"""A parameter of a command: its own settings, pointed at the cluster, and how the cluster is
set.
"""
