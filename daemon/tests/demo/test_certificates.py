"""Certificates of a demo, by the command that makes them: once, and for whom it was said."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

MAX_S = 60


def made(*words: str) -> None:
    command = [sys.executable, "-m", "cursorkeeper.demo.certificates", *words]
    subprocess.run(command, check=True, timeout=MAX_S)


@pytest.mark.parametrize(("flags", "others"), [((), 0), (("--readable",), 0o044)])
def test_they_are_made_once_and_can_be_used(
    flags: tuple[str, ...], others: int, tmp_path: Path
) -> None:
    made(*flags, str(tmp_path), "daemon", "source")
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    names = {f"{name}{end}.pem" for name in ("daemon", "source") for end in ("", "-key")}
    assert set(files) == names | {"authority.pem"}
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == others
    context = ssl.create_default_context(cafile=tmp_path / "authority.pem")
    context.load_cert_chain(tmp_path / "daemon.pem", tmp_path / "daemon-key.pem")
    made(*flags, str(tmp_path), "daemon", "source")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files
