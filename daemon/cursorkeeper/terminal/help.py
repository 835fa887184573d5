"""Serves who asks a command for help: plain text, in which nothing is cut."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption


class PlainCommand(TyperCommand):
    """Its help is plain text, in which a flag is never cut: what does not fit beside it goes below
    it. Options come by their panels.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """One section for each panel, in the order in which they are met."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Options" if isinstance(parameter, TyperOption) else "Arguments"
                sections.setdefault(
                    getattr(parameter, "rich_help_panel", None) or usual, []
                ).append(record)
        for panel, records in sections.items():
            with formatter.section(panel):
                formatter.write_dl(records)
