"""One task's share of a table: what a plan is made of. For whoever writes a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads; pickled and sent to it. Each table has its own kind."""
