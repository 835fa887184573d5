"""Serves whoever gives a command that fails: an error becomes a line and an exit code here."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class ExplainingGroup(TyperGroup):
    """What a command raises becomes a message with a remedy."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if (
                isinstance(error, typer.Exit | typer.Abort | BrokenPipeError)
                or hasattr(error, "format_message")
                or is_debugging(ctx)
            ):
                raise
            from cursorkeeper.problems import problem_of
            from cursorkeeper.terminal.failure import exit_code, show

            problem = problem_of(error)
            show(problem)
            raise typer.Exit(exit_code(problem)) from error


def is_debugging(ctx: Any) -> bool:
    """Whether `--debug` was given, to the program or to the command."""
    return bool(ctx.find_root().meta.get("cursorkeeper.debug"))
