"""Examples have no deadline: this machine may be busy, and a slow example is not a wrong one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
