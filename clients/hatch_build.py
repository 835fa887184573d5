"""Build hook: a distribution holds the message code, which no checkout does.

In a checkout it is generated first; an sdist brings it along, so that a wheel can be built from the
sdist alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MessageCodeHook(BuildHookInterface):  # type: ignore[type-arg]
    """Of the targets wheel and sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        tools = Path(self.root).parent / "tools"
        if (tools / "build_protos.py").is_file():
            sys.path.insert(0, str(tools))
            from build_protos import build

            build()
