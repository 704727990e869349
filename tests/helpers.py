"""What several test files share."""

import pytest

from excess.cli import main


def run_command(*arguments) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as finished:
        main([str(argument) for argument in arguments])
    return finished.value.code or 0
