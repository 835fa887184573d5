"""Guards of tests: everybody may do everything, unless a table says who may what."""

from __future__ import annotations

from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Callers, Table
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.guard import Guard
from cursorkeeper.stream.usage import Usage


def guard(
    pool: CreditPool | None = None, table: Table | None = None, audit: Audit | None = None
) -> Guard:
    return Guard(Callers(table or Table()), Usage(pool or CreditPool()), audit or Audit())
