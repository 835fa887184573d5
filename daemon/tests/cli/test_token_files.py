"""Token files are read before anything is waited for: a daemon that was told to ask for a token
never runs without one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cursorkeeper.app import check
from cursorkeeper.cli import main as program
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.settings import Settings, SettingsError

NOBODY = ["--zookeeper", "127.0.0.1:1", "--gateway", "127.0.0.1:1", "--start-timeout-s", "60"]
"""It would wait for these for a minute."""


@pytest.mark.parametrize(
    "setting", ["source_token_file", "gateway_token_file", "reader_token_file"]
)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        ("\n", "holds no token"),
        ("example-token-change-me\n", "placeholder"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_refused_at_once(
    tmp_path: Path, setting: str, content: str | None, says: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    (tmp_path / "source").write_text("a token")
    # a reader's alone is refused for that
    given = {"source_token_file": tmp_path / "source"} | {setting: file}
    flags = [
        word
        for name, where in given.items()
        for word in (f"--{name.replace('_', '-')}", str(where))
    ]
    ended = CliRunner().invoke(program.app, ["run", *flags, *NOBODY])
    assert ended.exit_code == 2, ended.output
    assert (
        f"{setting} = {str(file)!r}" in ended.output
        and says in ended.output
        and "What to do: " in ended.output
    )


EVERYWHERE = ["0.0.0.0:7650", "[::]:7650", "192.0.2.1:7650", "nobody.invalid:7650"]


@pytest.mark.parametrize("listen", EVERYWHERE)
def test_without_a_token_only_this_machine_is_listened_to(listen: str) -> None:
    with pytest.raises(SettingsError, match="source_token_file, or set insecure"):
        check(Settings.of(listen=listen))
    check(Settings.of(listen=listen, insecure=True))


@pytest.mark.parametrize("listen", EVERYWHERE)
def test_a_token_is_not_told_to_a_network(tmp_path: Path, listen: str) -> None:
    token = tmp_path / "token"
    token.write_text("a token")
    files = Authority(tmp_path).issue("keeper")
    named = Settings.of(listen=listen, source_token_file=str(token))
    with pytest.raises(SettingsError, match="in plain text"):
        check(named)
    check(named.but(insecure=True))
    secured = named.but(
        tls_enabled=True,
        tls_certificate_file_path=files.certificate,
        tls_key_file_path=files.key,
    )
    check(secured)
    with pytest.raises(SettingsError, match="lets everybody"):
        check(secured.but(source_token_file=""))


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:7650", "localhost:7650", "127.3.2.1:0", "unix:/run/keeper/acks.sock"]
)
def test_this_machines_own_addresses_need_none(listen: str) -> None:
    check(Settings.of(listen=listen))


def test_a_readers_token_alone_is_refused() -> None:
    with pytest.raises(SettingsError, match="leaves sources open"):
        check(Settings.of(reader_token_file="/named"))
