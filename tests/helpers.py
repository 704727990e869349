"""What several test files share."""

from pathlib import Path

import pytest

from excess.cli import main

SHARED = Path(__file__).parents[2] / "shared"
"""Public data and figures beside the project; tests that want them are skipped where they are not."""


def run_command(*arguments) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as finished:
        main([str(argument) for argument in arguments])
    return finished.value.code or 0
