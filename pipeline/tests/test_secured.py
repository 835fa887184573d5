"""Jobs and tables where nothing is open: ZooKeeper and the gateway speak TLS with those alone who
have a certificate, footers are one user's, and each role of the gateway has a token.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cursorkeeper import connections
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.certificates import CLIENT, SERVER
from cursorkeeper.demo.stack import QUICK, Standalone
from cursorkeeper.format.pulsar import ledger_info
from cursorkeeper.format.pulsar.values import LedgerInfo, ManagedLedgerInfo
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.acl import OPEN, Acl
from cursorkeeper.zookeeper.errors import AccessDenied
from cursorkeeper_pipeline import cli
from cursorkeeper_pipeline.failures import OptionError, problem_of_job
from cursorkeeper_pipeline.jobs import audit, export, import_
from cursorkeeper_pipeline.jobs.frame import CLEAN
from cursorkeeper_pipeline.jobs.migration import Run
from cursorkeeper_pipeline.sinks.tasks import Places, Task
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Table
from cursorkeeper_pipeline.source.tables import table_of
from daemon.tests.support.secured_zookeeper import NAME as ZOOKEEPER
from daemon.tests.support.secured_zookeeper import Secured
from pipeline.tests.real_cursors import fleet_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm
GATEWAY, ROOT = "gateway.example.com", "/secured/cursors"
ONE = CursorName("persistent://secured/ns/topic", "sub")
SECRET = "of-nobody-but-keeper"
ROLES = ("reader", "writer", "migrator")


class Cluster:
    """Everything that is secured, and one closed cursor in it."""

    def __init__(self, folder: Path, zookeeper: Secured) -> None:
        self.folder, self.zookeeper = folder, zookeeper
        server = zookeeper.authority.issue("gateway", GATEWAY, uses=(SERVER,))
        self.user = self.written("user", f"digest:keeper:{SECRET}")
        self.tokens = {role: self.written(role, f"{SECRET}-{role}") for role in ROLES}
        self.stack = Standalone(
            folder / "stack",
            java_options=QUICK,
            arguments=[
                *("--tls-certificate-file-path", server.certificate),
                *("--tls-key-file-path", server.key),
                *("--tls-trust-certs-file-path", server.trust_certs),
                "--tls-require-trusted-client-cert-on-connect",
                *(word for role in ROLES for word in (f"--{role}-token-file", self.tokens[role])),
            ],
        )

    def written(self, name: str, text: str) -> str:
        file = self.folder / name
        file.write_text(text)
        return str(file)

    def settings(self, role: str) -> dict[str, Any]:
        """By the daemon's names. Each role has a certificate of its own: ZooKeeper takes one for a
        user, and what is kept is the digest's.
        """
        files = self.zookeeper.authority.issue(f"of-{role}", uses=(CLIENT,))
        return {
            "zookeeper": f"127.0.0.1:{self.zookeeper.secure}",
            "root": ROOT,
            "gateway": self.stack.gateway,
            "gateway_token_file": self.tokens[role],
            "gateway_tls_enabled": True,
            "gateway_tls_server_name": GATEWAY,
            "zookeeper_tls_enabled": True,
            "zookeeper_tls_server_name": ZOOKEEPER,
            "zookeeper_auth_file": self.user,
            "zookeeper_acl": "creator",
            "tls_certificate_file_path": files.certificate,
            "tls_key_file_path": files.key,
            "tls_trust_certs_file_path": files.trust_certs,
        }

    def options(self, table: str, **more: str) -> dict[str, str]:
        """As `spark.read` takes them."""
        given = Options(**self.settings("reader"), table=table).as_text()
        return {"table": table, "waitS": "20", **given, **more}

    def toml(self, role: str) -> Path:
        lines = (f"{name} = {_toml(value)}" for name, value in self.settings(role).items())
        return Path(self.written(f"{role}.toml", "\n".join(lines)))


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as running:
        zookeeper = running.enter_context(Secured(tmp_path_factory.mktemp("zookeeper")))
        made = Cluster(tmp_path_factory.mktemp("secured"), zookeeper)
        running.enter_context(made.stack)

        async def work() -> None:
            settings = Settings.of(**made.settings("writer"))
            async with fleet_of(settings) as fleet:
                await fleet.closed(ONE)

        asyncio.run(work())
        yield made


def rows_of(table: Table, options: Options) -> list[dict[str, Any]]:
    """Without Spark."""
    parts = table.plan(options)
    return [
        row for part in parts for batch in table.read(options, part) for row in batch.to_pylist()
    ]


def test_tables_are_read_through_tls_as_the_user_of_the_nodes(cluster: Cluster) -> None:
    for table in ("cursors", "checks"):
        options = Options.parse(cluster.options(table))
        rows = rows_of(table_of(table), pickle.loads(pickle.dumps(options)))
        assert len(rows) == 1, rows
    assert SECRET not in repr(options) and SECRET.encode() not in pickle.dumps(options)


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ({"zookeeperTlsEnabled": "false"}, "does not answer"),
        ({"zookeeperAuthFile": ""}, "ACL does not allow"),
        ({"gatewayTlsEnabled": "false"}, "does not answer"),
        ({"gatewayTlsServerName": "other.example.com"}, "does not answer"),
        ({"gatewayTokenFile": ""}, "BAD_TOKEN"),
    ],
)
def test_who_leaves_one_of_them_out_is_told(
    cluster: Cluster, without: dict[str, str], said: str
) -> None:
    given = cluster.options("checks", waitS="3") | without
    if "zookeeperAuthFile" in without:  # the certificate is no user of the nodes
        given |= {"zookeeperAcl": "open"}
    table = table_of("checks")
    with pytest.raises(ProblemError) as caught:
        rows_of(table, Options.parse(given))
    assert said in caught.value.problem.told and SECRET not in caught.value.problem.told


def test_a_file_that_is_not_on_this_host_is_told_with_the_host(
    cluster: Cluster, tmp_path: Path
) -> None:
    for option in ("zookeeperAuthFile", "gatewayTokenFile", "tlsKeyFilePath"):
        given = cluster.options("checks")
        file = tmp_path / option
        file.write_bytes(Path(given[option]).read_bytes())
        options = Options.parse({**given, option: str(file)})
        parts = table_of("checks").plan(options)
        file.unlink()
        with pytest.raises(ProblemError, match="cannot be read on host") as caught:
            list(table_of("checks").read(options, parts[0]))
        told = caught.value.problem.told
        assert f"{option} = '{file}'" in told and socket.gethostname() in told
        assert "on the driver's host and on every executor's" in told


@pytest.mark.parametrize("role", ["writer", "migrator"])
def test_one_token_is_good_for_both_sides_of_a_migration(cluster: Cluster, role: str) -> None:
    """An import writes ours as writer, an export Pulsar's as migrator; what is made in Pulsar's
    store is its brokers', too.
    """
    ours = Settings.of(**cluster.settings(role))
    source = Options.parse({"zookeeper": ours.systems.zookeeper, "root": ROOT})
    places = cli_places(cluster, role, source)

    async def work() -> None:
        roles = ("writer", "reader") if role == "writer" else ("reader", "migrator")
        async with places.opened(*roles) as (ports, theirs):
            assert await anext(ports.ledgers.list({"application": b"cursorkeeper"}))
            assert [_ async for _ in theirs.ledgers.list({"application": b"pulsar"})] == []
            await theirs.zookeeper.create(f"/made-by-{role}", b"")
            await ports.zookeeper.ensure_path(f"{ROOT}-{role}/one")
        other = cluster.settings("reader") | {"zookeeper_auth_file": "", "zookeeper_acl": "open"}
        async with connections.zookeeper(Settings.of(**other).systems) as anybody:
            assert (await anybody.get(f"/made-by-{role}")).data == b""
            with pytest.raises(AccessDenied):
                await anybody.get(f"{ROOT}-{role}/one")

    asyncio.run(work())


def test_a_cursor_goes_to_pulsar_and_is_found_there(cluster: Cluster) -> None:
    """Tasks of an export, and of imports of the same, as the command line prepares them."""
    ref = PulsarCursorRef(ONE.topic, ONE.subscription)
    topic = ledger_info.encode(ManagedLedgerInfo((LedgerInfo(7, 200), LedgerInfo(8))))
    plan = pa.RecordBatch.from_pylist([{"topic": ref.topic, "subscription": ref.subscription}])
    plain = cluster.settings("reader") | {"zookeeper_auth_file": "", "zookeeper_acl": "open"}

    async def pulsar_has_the_topic() -> None:
        async with connections.zookeeper(Settings.of(**plain).systems) as keeper:
            await keeper.ensure_path(ref.topic_path)
            await keeper.set(ref.topic_path, topic, 0)

    async def acl_of_the_cursor() -> Acl:
        async with connections.zookeeper(Settings.of(**plain).systems) as keeper:
            assert (await keeper.get(ref.path)).data
            with pytest.raises(AccessDenied):
                await keeper.get(ONE.path("/imported/cursors"))
            return (await keeper.acl(ref.path))[0]

    asyncio.run(pulsar_has_the_topic())
    for name, role, root, status in (
        ("export", "migrator", ROOT, "exported"),
        ("import", "writer", "/imported/cursors", "imported"),
        ("import", "writer", "/imported/cursors", "already there"),
    ):
        given = {"config": str(cluster.toml(role)), "id": f"{name}-of-one", "topic": ref.topic}
        given["root"] = root
        call = cli.prepare(name, cli.job_of(name), given)
        run = (export if name == "export" else import_).run_of(call.source, call.arguments)

        async def begun(run: Run = run) -> None:
            await run._with_record(lambda record: record.begin(run.kind, run._about))

        asyncio.run(begun())
        task = pickle.loads(pickle.dumps(Task(run.work(), run.name)))
        (row,) = [row for batch in task([plan]) for row in batch.to_pylist()]
        assert (row["status"], row["problem"]) == (status, None)
        assert SECRET not in repr(row)
    assert asyncio.run(acl_of_the_cursor()) == OPEN


def cli_places(cluster: Cluster, role: str, source: Options) -> Places:
    """As the command line makes them from the daemon's file."""
    name = "import" if role == "writer" else "export"
    job = cli.job_of(name)
    given = {"config": str(cluster.toml(role)), "print_submit": None, "debug": False}
    call = cli.prepare(name, job, given)
    assert call.source.zookeeper_auth_file == cluster.user
    made: Places = call.arguments.places(call.source)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def test_options_hold_paths_and_say_nothing_of_a_file_s_content(cluster: Cluster) -> None:
    for option, content in (
        ("zookeeperAuthFile", f"digest:keeper:{SECRET}"),
        ("tlsKeyFilePath", f"-----BEGIN PRIVATE KEY-----{SECRET}"),
    ):
        with pytest.raises(OptionError, match=f"{option} is the path of a file") as caught:
            Options.parse({**cluster.options("cursors"), option: content})
        assert SECRET not in str(caught.value)


def test_a_job_and_a_plan_in_spark(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The job as the command line prepares it from the daemon's file, in tasks; and what Spark
    shows of it.
    """
    given = {
        "config": str(cluster.toml("reader")),
        "out": str(tmp_path / "out"),
        "option": ["waitS=20"],
    }
    call = cli.prepare("audit", cli.job_of("audit"), given)
    assert audit.run(spark, call.source, call.arguments, call.out) == CLEAN
    assert SECRET not in (tmp_path / "out/audit.json").read_text()

    options = cluster.options("checks")
    gone = tmp_path / "user"
    gone.write_bytes(Path(cluster.user).read_bytes())
    shown = spark.read.format("cursorkeeper").options(**options).load()
    moved = spark.read.format("cursorkeeper").options(**options | {"zookeeperAuthFile": str(gone)})
    loaded = moved.load()
    assert [row.kind for row in shown.collect()] == ["checked"]
    with_password = options | {"password": f"{SECRET}-password"}
    words = ", ".join(f"{key} '{value}'" for key, value in with_password.items())
    view = f"CREATE OR REPLACE TEMPORARY VIEW secured USING cursorkeeper OPTIONS ({words})"
    explained = spark.sql(f"EXPLAIN EXTENDED {view}").collect()[0][0]
    kept = spark.read.format("cursorkeeper").options(**with_password).load()
    with redirect_stdout(StringIO()) as formatted:
        kept.explain("formatted")
    said = (kept._jdf.queryExecution().toString(), explained, formatted.getvalue())  # type: ignore[operator]
    for plan in said:
        assert SECRET not in plan, plan
    assert loaded.rdd.getNumPartitions()
    gone.unlink()
    with pytest.raises(Exception, match="Traceback") as caught:
        loaded.collect()
    problem = problem_of_job(caught.value)
    assert f"zookeeperAuthFile = '{gone}' cannot be read on host {socket.gethostname()}" in (
        problem.message
    )
    assert "every executor's" in problem.remedy and SECRET not in problem.told


def test_a_gateway_s_own_files_are_not_asked_of_who_reads_footers(cluster: Cluster) -> None:
    call = cli.prepare("report", cli.job_of("report"), {"config": str(cluster.toml("reader"))})
    assert (call.source.gateway_token_file, call.source.gateway_tls_enabled) == ("", False)
    with Systems(call.source) as systems:
        names = systems.iterate(systems.run(systems.footers()).names())
        assert list(names) == [ONE]
