"""Serves every module that declares data: how values and parts are made, said once."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from msgspec import ValidationError

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr  # what `extended` becomes

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass whose values never change. They are pickled and copied by their fields, so that
    compiled ones and those of the source can be exchanged.
    """
    made = dataclass(frozen=True, slots=True)(cls)
    copyreg.pickle(made, by_fields)
    return made


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def component(cls: type[T]) -> type[T]:
    """A dataclass that owns its fields and is itself alone: two of them are never equal. What it
    is made of is given by position; the rest begins as it is declared.
    """
    return dataclass(slots=True, eq=False, repr=False)(cls)


def extended(cls: type[T]) -> type[T]:
    """A class that has subclasses which are not compiled."""
    return cls


def by_fields(value: Any) -> tuple[type, tuple[Any, ...]]:
    """How a value that never changes is pickled and copied."""
    return type(value), tuple(getattr(value, each.name) for each in fields(value))


def direct(cls: type[E]) -> type[E]:
    """An enumeration whose members are found as other attributes are: before Python 3.12 each time
    is a call, which costs five times as much.
    """
    for name, member in cls.__members__.items():
        type.__setattr__(cls, name, member)
    return cls


def worded(error: ValidationError) -> str:
    """What is wrong with a value that was read, the member first."""
    said, _, place = str(error).partition(" - at `$")
    return ": ".join(filter(None, (place.strip(".`"), said)))
