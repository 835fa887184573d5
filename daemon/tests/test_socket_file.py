"""Who may listen at a socket of the file system, and what is said to who may not."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cursorkeeper.app import check
from cursorkeeper.settings import Settings, SettingsError
from cursorkeeper.socket_file import SocketFile, SocketFileError, path_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "acks.sock"


def listening(path: Path, backlog: int = 1) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(backlog)
    return made


def refused(path: Path) -> str:
    with pytest.raises(SocketFileError) as caught:
        SocketFile(f"unix:{path}").take()
    assert caught.value.remedy
    return caught.value.message


def test_an_address_is_an_absolute_path_of_a_few_bytes() -> None:
    assert path_of("unix:/a/b.sock") == path_of("unix:///a/b.sock") == "/a/b.sock"
    longest = "/" + "é" * 53
    assert path_of(f"unix:{longest}") == longest
    for wrong, why in (
        ("unix:", "not absolute"),
        ("unix:b.sock", "not absolute"),
        ("unix://host/b.sock", "no host"),
        (f"unix:{longest}x", "108 bytes"),
        ("unix:/a\0b", "names no file"),
        ("unix:/a/", "names no file"),
    ):
        with pytest.raises(SocketFileError, match=why):
            path_of(wrong)
        with pytest.raises(SettingsError, match=why) as caught:
            check(Settings.of(listen=wrong))
        assert caught.value.remedy


def test_one_of_two_may_listen_until_it_lets_go(path: Path) -> None:
    first, second = SocketFile(f"unix:{path}"), SocketFile(f"unix://{path}")
    first.take()
    with pytest.raises(SocketFileError, match="another process listens there"):
        second.take()
    second.let_go()
    assert "another process listens there" in refused(path)
    first.let_go()
    first.let_go()
    second.take()
    second.let_go()


def test_what_a_killed_one_left_does_not_hold(path: Path) -> None:
    code = (
        "import os, signal, socket, sys; from cursorkeeper.socket_file import SocketFile;"
        "SocketFile(f'unix:{sys.argv[1]}').take(); s = socket.socket(socket.AF_UNIX);"
        "s.bind(sys.argv[1]); s.listen(1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    assert ended.returncode == -9 and path.is_socket()
    taken = SocketFile(f"unix:{path}")
    taken.take()
    assert not path.exists()
    taken.let_go()


def test_who_listens_without_a_lock_is_not_replaced(path: Path) -> None:
    with listening(path, 0):
        for _ in range(3):  # who was asked once has no room for one more
            assert "another process listens there" in refused(path)
        assert path.is_socket()
    link = path.with_name("link.sock")
    link.symlink_to(path)
    taken = SocketFile(f"unix:{link}")
    taken.take()
    assert not link.is_symlink() and path.is_socket()
    taken.let_go()


def test_what_is_no_socket_stays(path: Path) -> None:
    path.write_text("precious")
    assert "is there, and no socket" in refused(path)
    assert path.read_text() == "precious"
    path.unlink()
    path.mkdir()
    assert "is there, and no socket" in refused(path)
    assert "No such file or directory" in refused(path.with_name("none") / "acks.sock")


def test_a_lock_that_is_a_link_is_not_followed(path: Path) -> None:
    path.with_name("acks.sock.lock").symlink_to(path.with_name("elsewhere"))
    assert "acks.sock.lock" in refused(path)
    assert not path.with_name("elsewhere").exists()


def test_a_socket_has_its_mode_from_the_first_moment(path: Path) -> None:
    before = os.umask(0o022)
    try:
        taken = SocketFile(f"unix:{path}")
        taken.take()
        with taken.mode(), listening(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert stat.S_IMODE(path.with_name("acks.sock.lock").stat().st_mode) == 0o600
        assert os.umask(0o022) == 0o022
        taken.let_go()
    finally:
        os.umask(before)
