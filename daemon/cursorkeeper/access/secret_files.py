"""Files that hold a secret: a token, a password. Serves every setting that names one."""

from __future__ import annotations

from pathlib import Path

from cursorkeeper.settings import Daemon, SettingsError, Systems

PLACEHOLDER = b"change-me"
"""How the tokens of our examples end."""
_READ_BY_OTHERS = 0o007


def read_secret(file: str, name: str, what: str) -> bytes:
    """Raises SettingsError, also for an empty file."""
    try:
        content = Path(file).read_bytes().strip()
    except OSError as e:
        raise SettingsError(
            f"{name} = {file!r}: {e.strerror or e}",
            "make it readable for this user, or name another",
        ) from e
    if not content:
        raise SettingsError(f"{name} = {file!r} holds no {what}", "write one into it")
    return content


def read_token(group: Daemon | Systems, name: str) -> bytes:
    """The content of the token file that setting `name` of the group names; nothing if it names
    none. Raises SettingsError, also for an empty file: whoever names one wants to be asked for a
    token.
    """
    file = getattr(group, name)
    if not file:
        return b""
    token = read_secret(file, name, "token")
    if token.endswith(PLACEHOLDER):
        remedy = "write one of your own into it, for example with `openssl rand -hex 32`"
        raise SettingsError(
            f"{name} = {file!r} holds the placeholder of our examples, which everybody knows",
            remedy,
        )
    return token


def is_readable_by_others(file: str) -> bool:
    """Whether everybody on this machine can read it."""
    try:
        return bool(Path(file).stat().st_mode & _READ_BY_OTHERS)
    except OSError:
        return False
