"""Command-line interface: from event files to a detection, and a model for other nights. No analysis code."""

from excess.cli._app import main

__all__ = ["main"]
