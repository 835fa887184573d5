"""What docs/run/broker tells an operator to install is true: lines of broker.conf, values for
Pulsar's Helm chart, gateways beside it.

The chart itself is not here. Its keys that the values use are listed below with the version that
has them; what its templates make of them (lists of a pod's spec as they are) is made again here, so
that Kubernetes' schemas and the software can judge it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from cursorkeeper import settings
from cursorkeeper.settings import Settings
from daemon.tests.deployment import code_facts
from daemon.tests.deployment.cluster import (
    CERTIFICATE_KEYS,
    CERTIFICATES,
    Cluster,
    environment,
    issued,
    loaded_of,
)
from daemon.tests.deployment.kustomize import build
from daemon.tests.deployment.places import DOCS, ROOT, Object, documents, version
from daemon.tests.deployment.quoted import Page, pieces
from daemon.tests.deployment.test_pod_security import broken
from daemon.tests.deployment.test_runbook import is_said
from daemon.tests.deployment.test_schemas import NEWEST, OLDEST, OLDEST_WITH_SIDECARS, problems

BROKER = ROOT / "deploy/broker"
PAGES = {path.stem: Page(path) for path in sorted((DOCS / "run/broker").glob("*.md"))} | {
    "plugin": Page(ROOT / "java/pulsar-plugin/README.md")
}
CHART = "apache/pulsar 4.7.0"
CHARTS_KEYS = {
    "gracePeriod",
    "configData",
    "extraEnvs",
    "extraVolumes",
    "extraVolumeMounts",
    "initContainers",
}
"""Of `broker` in the chart's values. Anything else would be ignored by it without a word."""
CHARTS_ZOOKEEPER = {"": "pulsar-zookeeper:2181", "secured": "pulsar-zookeeper:2281"}
"""How it names ZooKeeper of a release `pulsar`, by the form."""
PREFIX = "PULSAR_PREFIX_"
"""Pulsar's images write a variable with it into broker.conf, also if the file does not have the
setting.
"""
STORAGE = "io.cursorkeeper.pulsar.CursorKeeperStorage"
BROKERS_STOP_S, SPARE_S = 60, 5
"""brokerShutdownTimeoutMs, as Pulsar has it."""
PULSARS_SETTINGS = {
    "managedLedgerStorageClassName",
    "managedLedgerMaxUnackedRangesToPersist",
    "managedLedgerMaxBatchDeletedIndexToPersist",
    "acknowledgmentAtBatchIndexLevelEnabled",
    "managedLedgerDefaultMarkDeleteRateLimit",
    "managedCursorInfoCompressionType",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "brokerShutdownTimeoutMs",
    "managedLedgerUnackedRangesOpenCacheSetEnabled",
}
OTHERS = {
    "isAckReceiptEnabled",
    "cursorLedger",
    "cursorLedgerLastEntry",
    "defaultPulsarImageTag",
    "restartPodsOnConfigMapChange",
}
JAR = ROOT / "java/pulsar-plugin/pulsar-4.2/target/cursorkeeper-pulsar-plugin-4.2.jar"
NAR = ROOT / "java/pulsar-receipts/target/cursorkeeper-pulsar-receipts.nar"
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))


@pytest.fixture(scope="module", params=["", "secured"])
def form(request: pytest.FixtureRequest) -> str:
    """A folder in helm/: the plain one, or the secured one."""
    return str(request.param)


@pytest.fixture(scope="module")
def values(form: str) -> Object:
    (found,) = documents(BROKER / "helm" / form / "values.yaml")
    assert set(found) == {"broker"}
    broker: Object = found["broker"]
    return broker


@pytest.fixture(scope="module")
def pods(values: Object) -> Object:
    """The StatefulSet's part that the chart's templates make of them."""
    labels = {"app": "pulsar", "component": "broker"}
    broker = {
        "name": "pulsar-broker",
        "image": "apachepulsar/pulsar:4.2.4",
        "envFrom": [{"configMapRef": {"name": "pulsar-broker"}}],
        "env": values["extraEnvs"],
        "volumeMounts": values["extraVolumeMounts"],
    }
    spec = {
        "terminationGracePeriodSeconds": values["gracePeriod"],
        "securityContext": {"fsGroup": 0},
        "initContainers": values["initContainers"],
        "containers": [broker],
        "volumes": values["extraVolumes"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "pulsar-broker"},
        "spec": {
            "serviceName": "pulsar-broker",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def lines_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line.strip())


def conf_blocks() -> list[dict[str, str]]:
    """All lines of broker.conf on the pages, and those that the values make."""
    blocks = [
        lines_of(text)
        for page in PAGES.values()
        for text in re.findall(r"```properties\n(.*?)```", page.text, re.DOTALL)
    ]
    indented = re.findall(
        r"^    (managedLedgerStorageClassName=.*\n(?:    .*\n)*)",
        PAGES["plugin"].text,
        re.MULTILINE,
    )
    return [
        *blocks,
        *(lines_of(re.sub(r"^    ", "", text, flags=re.MULTILINE)) for text in indented),
    ]


def by_values(values: Object) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): value
        for name, value in values["configData"].items()
        if name.startswith(PREFIX)
    }


# ---- lines of broker.conf


def test_the_pages_have_lines_at_all() -> None:
    blocks = conf_blocks()
    assert len(blocks) >= 3 and all(
        block["managedLedgerStorageClassName"] == STORAGE for block in blocks
    )
    port = Settings.of().daemon.listen.rpartition(":")[2]
    assert {block["cursorKeeperAddress"] for block in blocks} == {f"127.0.0.1:{port}"}


@pytest.mark.jvm
def test_the_plugin_takes_every_line(values: Object, form: str, tmp_path: Path) -> None:
    token, shown = tmp_path / "token", issued(tmp_path / "tls", "pulsar-broker")
    token.write_text("secret")
    files = []
    for number, block in enumerate([*conf_blocks(), by_values(values)]):
        own = {
            **block,
            **({"cursorKeeperTokenFile": str(token)} if "cursorKeeperTokenFile" in block else {}),
        }
        files.append(tmp_path / f"{number}.conf")
        text = "".join(f"{name}={value}\n" for name, value in own.items())
        files[-1].write_text(text.replace("/etc/cursorkeeper/source-tls", str(shown)))
    program = Path(__file__).parent / "plugin_settings/ReadSettings.java"
    command = ["java", "-cp", str(JAR), str(program), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("mode=KEEP") + done.stdout.count("mode=SHADOW") == len(
        files
    ) and done.stdout.count(str(token)) == (2 if form else 3)


# ---- values for the chart


def test_the_values_use_what_the_chart_of_this_version_knows(values: Object) -> None:
    assert set(values) == CHARTS_KEYS
    assert all(
        name.startswith(PREFIX) and isinstance(value, str)
        for name, value in values["configData"].items()
    )
    for text in ((BROKER / "helm/values.yaml").read_text(), PAGES["index"].text):
        assert CHART in text
    assert f"apache/pulsar --version {CHART.split()[1]}" in PAGES["index"].text


def test_the_page_shows_the_values_as_they_are() -> None:
    values = documents(BROKER / "helm/secured/values.yaml")[0]["broker"]
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGES["index"].text, re.DOTALL)
    part = yaml.safe_load(shown)["broker"]
    assert len(part["configData"]) == 10 and part == {name: values[name] for name in part}


@pytest.mark.parametrize("kubernetes", [OLDEST_WITH_SIDECARS, "1.33", NEWEST])
def test_the_pods_are_what_kubernetes_takes(pods: Object, kubernetes: str) -> None:
    assert problems(pods, kubernetes) == []


def test_the_daemon_needs_native_sidecars(pods: Object) -> None:
    assert "restartPolicy" in str(problems(pods, OLDEST))
    assert [one["name"] for one in pods["spec"]["template"]["spec"]["initContainers"]] == [
        "cursorkeeper-plugin",
        "cursorkeeper",
    ]


def container(values: Object, name: str) -> Object:
    (found,) = [one for one in values["initContainers"] if one["name"] == name]
    return dict(found)


def test_the_daemon_is_the_one_of_the_component(values: Object, form: str) -> None:
    """But for its settings, which come from its environment here."""
    mine, theirs = container(values, "cursorkeeper"), Cluster.of(form or "example").daemon
    for name in (
        "restartPolicy",
        "ports",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
        "resources",
        "securityContext",
    ):
        assert mine[name] == theirs[name], name
    assert container(values, "cursorkeeper-plugin")["securityContext"] == theirs["securityContext"]


def test_what_is_added_is_restricted(pods: Object) -> None:
    ours = {"cursorkeeper", "cursorkeeper-plugin"}
    assert {problem for problem in broken(pods) if problem.partition(":")[0] in ours} == set()


def test_volumes_are_mounted_and_mounts_have_volumes(values: Object) -> None:
    mounted = [m["name"] for one in values["initContainers"] for m in one["volumeMounts"]]
    mounted += [m["name"] for m in values["extraVolumeMounts"]]
    assert set(mounted) == {volume["name"] for volume in values["extraVolumes"]}
    assert all(m["readOnly"] for m in values["extraVolumeMounts"])


def test_the_jar_is_copied_to_where_the_broker_looks(values: Object) -> None:
    plugin = container(values, "cursorkeeper-plugin")
    *sources, folder = plugin["args"]
    assert sources == [f"/plugin/{JAR.name}", f"/plugin/{NAR.name}"]
    (mount,) = plugin["volumeMounts"]
    assert f"{mount['mountPath']}/" == folder
    (brokers,) = [m for m in values["extraVolumeMounts"] if m["name"] == mount["name"]]
    (variable,) = values["extraEnvs"]
    assert variable == {"name": "PULSAR_EXTRA_CLASSPATH", "value": f"{brokers['mountPath']}/*"}
    dockerfile = (ROOT / "java/pulsar-plugin/Dockerfile").read_text()
    assert (
        f"{NAR.relative_to(ROOT)} /plugin/\n" in dockerfile
        and 'ENTRYPOINT ["/bin/cp"]' in dockerfile
    )
    for file in (JAR, NAR):
        assert f"!{file.relative_to(ROOT)}\n" in (ROOT / ".dockerignore").read_text()
        assert f" {file.relative_to(ROOT)} /opt/pulsar/" in PAGES["index"].text


def test_the_broker_finds_what_makes_receipts_wait(values: Object) -> None:
    named = (
        ROOT / "java/pulsar-receipts/src/main/nar/META-INF/services/broker_interceptor.yml"
    ).read_text()
    mounts = {mount["mountPath"] for mount in values["extraVolumeMounts"]}
    assert by_values(values)["brokerInterceptorsDirectory"] in mounts
    blocks = [
        block for block in [*conf_blocks(), by_values(values)] if "brokerInterceptors" in block
    ]
    assert len(blocks) >= 2
    for block in blocks:
        assert (
            f"name: {block['brokerInterceptors']}\n" in named
            and block["brokerInterceptorsDirectory"]
        )


@pytest.fixture
def daemon(values: Object, tmp_path: Path) -> Settings:
    """What it runs with, by its own loader."""
    return loaded_of("", environment(container(values, "cursorkeeper")), tmp_path)


def test_broker_and_daemon_find_each_other(values: Object, form: str, daemon: Settings) -> None:
    conf = by_values(values)
    assert conf["cursorKeeperAddress"] == daemon.daemon.listen
    if form:
        shown = {conf[f"brokerClient{each}FilePath"] for each in ("Certificate", "Key")}
        (mount,) = [m for m in values["extraVolumeMounts"] if "tls" in m["name"]]
        assert shown == {f"{mount['mountPath']}/{key}" for key in ("tls.crt", "tls.key")}
        assert (conf["cursorKeeperTlsEnabled"] == "true") is daemon.tls.tls_enabled
        assert conf["cursorKeeperTlsServerName"] == daemon.tls.tls_server_name
    else:
        assert conf["cursorKeeperTokenFile"] == daemon.daemon.source_token_file
    names = {env["name"] for env in container(values, "cursorkeeper")["env"]}
    assert names <= {settings.ENVIRONMENT_PREFIX + name.upper() for name in settings.SETTINGS}
    secrets = {volume["name"]: volume.get("secret") for volume in values["extraVolumes"]}
    places = {
        f"{mount['mountPath']}/{item['path']}": (secrets[mount["name"]]["secretName"], item["key"])
        for mount in container(values, "cursorkeeper")["volumeMounts"]
        if secrets[mount["name"]] is not None
        for item in secrets[mount["name"]]["items"]
    }
    if form:
        daemons = "cursorkeeper-daemon-tls"
        assert places == {
            daemon.systems.zookeeper_auth_file: ("cursorkeeper-users", "zookeeper-user-daemon"),
            **{f"{CERTIFICATES}{key}": (daemons, key) for key in CERTIFICATE_KEYS},
        }
        return
    assert places == {
        daemon.systems.gateway_token_file: ("cursorkeeper-gateway-tokens", "writer-token"),
        daemon.daemon.source_token_file: ("cursorkeeper-source-token", "source-token"),
    }
    for secret, key in places.values():
        assert re.search(
            rf"create secret generic {secret} (?:.|\n)*--from-literal={key}=", PAGES["index"].text
        )


def test_the_pod_gives_broker_and_daemon_time_to_stop(values: Object, daemon: Settings) -> None:
    assert values["gracePeriod"] >= BROKERS_STOP_S + daemon.limits.close_timeout_s + SPARE_S


# ---- gateways beside the chart


def gateways(form: str) -> list[Object]:
    return build(BROKER / "helm" / form / "gateways")


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_the_gateways_are_what_kubernetes_takes(form: str, kubernetes: str) -> None:
    assert [line for body in gateways(form) for line in problems(body, kubernetes)] == []


def test_daemon_and_gateways_belong_together(form: str, daemon: Settings) -> None:
    cluster, zookeeper = Cluster(gateways(form)), CHARTS_ZOOKEEPER[form]
    flags = cluster.gateway_flags()
    host, _, port = daemon.systems.gateway.rpartition(":")
    assert (
        int(port) in [p["port"] for p in cluster.one("Service", host)["spec"]["ports"]]
        and flags["port"] == port
    )
    assert (
        flags["metadata-service-uri"] == f"zk+hierarchical://{zookeeper}/ledgers"
        and daemon.systems.zookeeper == zookeeper
    )
    example = Cluster.of(form or "example").gateway_flags()
    assert {name: flags[name] for name in flags if name != "metadata-service-uri"} == {
        name: example[name] for name in example if name != "metadata-service-uri"
    }


def test_the_charts_brokers_reach_the_gateways(pods: Object, form: str) -> None:
    (policy,) = Cluster(gateways(form)).kind("NetworkPolicy")
    labels = pods["spec"]["template"]["metadata"]["labels"]
    peers = [peer["podSelector"]["matchLabels"] for peer in policy["spec"]["ingress"][0]["from"]]
    assert any(selector.items() <= labels.items() for selector in peers)


def test_every_image_is_of_this_release_and_is_built(values: Object, form: str) -> None:
    images = [one["image"] for one in values["initContainers"]]
    images += [
        one["image"]
        for body in gateways(form)
        if body["kind"] == "Deployment"
        for one in body["spec"]["template"]["spec"]["containers"]
    ]
    made = set(
        re.findall(r"-t (cursorkeeper[\w-]*):\$\(VERSION\)", (ROOT / "Makefile").read_text())
    )
    assert len(images) == 3
    for image in images:
        name, _, tag = image.rpartition("/")[2].partition(":")
        assert tag == version() and name in made and image.startswith("registry.example.com/")


# ---- the pages


@each_page
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links:
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings
            }, link


@each_page
async def test_names_in_backticks_exist(page: Page) -> None:
    metrics = (
        await code_facts.daemon_metrics()
        | code_facts.gateway_metrics()
        | code_facts.plugin_metrics()
    )
    for name in page.names - (
        set() if page is not PAGES["plugin"] else {"org.apache.bookkeeper.mledger.impl"}
    ):
        bare = re.split(r"[={ ]", name)[0]
        if bare.startswith("cursorKeeper"):
            assert bare in code_facts.plugin_settings(), (
                f"{page.path.name}: the plugin has no setting {bare}"
            )
        elif re.fullmatch(r"(pulsar_)?cursorkeeper_\w+", bare):
            assert bare in metrics, f"{page.path.name}: no metric {bare}"
        elif re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", bare) and not bare.startswith("pulsar_ml_"):
            assert bare in code_facts.settings(), f"{page.path.name}: no setting {bare}"
        elif re.fullmatch(r"[a-z]+[A-Z]\w*", bare) and page is not PAGES["plugin"]:
            assert bare in PULSARS_SETTINGS | CHARTS_KEYS | OTHERS, (
                f"{page.path.name}: {bare} is nobody's"
            )
        elif re.fullmatch(r"(daemon|testcontainers_tests|java|deploy)/[\w./-]+", name):
            assert (ROOT / name).exists(), f"{page.path.name}: no {name}"


def test_the_plugins_page_has_every_setting() -> None:
    table = dict(
        re.findall(r"^\| `(cursorKeeper\w+)` \| ([^|]*) \|", PAGES["plugin"].text, re.MULTILINE)
    )
    assert set(table) == code_facts.plugin_settings()


def test_what_the_broker_logs_is_what_it_logs() -> None:
    said = re.findall(r"grep '([^']+)' logs", PAGES["index"].text) + re.findall(
        r"no `([^`]+)`", PAGES["leaving"].text
    )
    assert len(said) == 2 and all(line in code_facts.broker_source() for line in said)


@each_page
def test_quoted_lines_are_the_plugins(page: Page) -> None:
    assert all(is_said(piece) for line in page.lines("broker") for piece in pieces(line))


def test_the_ranges_of_a_clean_stop_are_the_plugins() -> None:
    source = (
        ROOT / "java/pulsar-plugin/src/main/java/org/apache/bookkeeper/mledger/impl/KeptLedger.java"
    ).read_text()
    numbers: dict[str, int] = {
        name: int(n.replace("_", ""))
        for name, n in re.findall(r"int (\w+_MAX) = ([\d_]+);", source)
    }
    text = " ".join(PAGES["leaving"].text.split())
    ranges, small, batches = (
        numbers[f"{name}_MAX"]
        for name in ("ZNODE_RANGES", "COMPRESSED_ZNODE_RANGES", "COMPRESSED_ZNODE_BATCHES")
    )
    assert (
        f"up to {ranges:,} ranges of acked messages and {ranges:,} partly acked batches ({small} "
        f"and {batches} where" in text
    )


def test_numbers_of_the_daemon_are_its_own() -> None:
    defaults = Settings.of()
    assert (
        defaults.cursor.flush_interval_ms == 10
        and "`flush_interval_ms` (10 ms)" in PAGES["what-changes"].text
    )
    assert (
        defaults.limits.cursors_max == 10_000 and "`cursors_max` (10,000)" in PAGES["sizing"].text
    )
    assert (
        defaults.limits.detached_cursor_max_ms == 60_000
        and "`detached_cursor_max_ms` (a minute)" in PAGES["leaving"].text
    )
