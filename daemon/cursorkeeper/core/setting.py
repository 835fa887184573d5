"""How something that a person may set is declared: once, at its field, with all that help texts,
bounds and other names need.

Serves operators: what they read of a setting and what is refused is what is declared here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from cursorkeeper.core.errors import ExplainedError
from cursorkeeper.core.shape import frozen

T = TypeVar("T")
_BYTE_SIZE = re.compile(r"(\d{1,19}) ?([KM]?)B?", re.IGNORECASE)


class SettingsError(ExplainedError):
    """A setting that cannot be used; the message says which, and from where."""


@frozen
class Setting:
    """What is said of a setting at its field. `name` and `kind`, its type, are the field's."""

    default: Any
    help: str
    bounds: tuple[float, ...] = ()
    """What a number may be, from and to: below, it would mean a busy loop or that nothing is ever
    taken; above, no limit at all. Where nothing is said: not negative.
    """
    pulsar: tuple[str, ...] = ()
    """Pulsar's names for it (PIP-381, PIP-299, PIP-54 and the released ones), taken in every
    source.
    """
    broker_conf: tuple[str, ...] = ()
    """Names in a `broker.conf` and nowhere else; of several that are given, the last counts."""
    choices: Collection[str] = ()
    any_case: bool = False
    """The choices may be written in any case."""
    is_size: bool = False
    """It may be written with K or M behind the number."""
    is_shared: bool = False
    """It bounds the daemon as a whole: the workers of one have equal shares of it."""
    name: str = ""
    kind: Any = None

    @property
    def named(self) -> str:
        """How messages call it: by our name, and by the one of Pulsar, if it has one."""
        return f"{self.name} (Pulsar's {self.pulsar[0]})" if self.pulsar else self.name


def setting(default: T, help: str, *bounds: float, **more: Any) -> T:
    """A field of a dataclass that a person may set; `more`: see `Setting`."""
    about = {"about": Setting(default, help, bounds, **more)}
    if isinstance(default, list):
        return cast("T", dataclasses.field(default_factory=default.copy, metadata=about))
    return dataclasses.field(default=default, metadata=about)


@cache
def settings_of(group: Any) -> dict[str, Setting]:
    """All that is declared in a dataclass, in order."""
    kinds = get_type_hints(group)
    return {
        one.name: dataclasses.replace(one.metadata["about"], name=one.name, kind=kinds[one.name])
        for one in dataclasses.fields(group)
        if "about" in one.metadata
    }


def byte_size(text: str) -> int | None:
    """5242880, 5120K or 5M as bytes; None: no such number."""
    form = _BYTE_SIZE.fullmatch(text.strip())
    return int(form[1]) << {"": 0, "K": 10, "M": 20}[form[2].upper()] if form is not None else None
