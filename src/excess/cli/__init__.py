"""The command line: from event files to a detection, and a model for the next night. It holds no science."""

from excess.cli._app import main

__all__ = ["main"]
