"""Build hook: a wheel or an editable install generates the protobuf code first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtoHook(BuildHookInterface):  # type: ignore[type-arg]
    """Calls `tools/build_protos.py`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(Path(self.root) / "tools"))
        from build_protos import build

        build()
