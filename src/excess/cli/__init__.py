"""The command line: from event files to a detection, and a model for the next night. It holds no science."""

from excess.cli.commands import app, main

__all__ = ["app", "main"]
