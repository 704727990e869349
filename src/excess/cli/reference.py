"""The commands as an object of click, for the reference in the documentation."""

from __future__ import annotations

import typer

from excess.cli.commands import app

__all__ = ["command"]

command = typer.main.get_command(app)
