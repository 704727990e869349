"""The call path of ``excess detect`` stays short enough to be read."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 70


@pytest.mark.slow
def test_detect_changes_files_seldom():
    """In a process of its own, where nothing is imported before."""
    script = Path(__file__).with_name("call_path.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    pairs = [line for line in done.stderr.splitlines() if " -> " in line]
    assert 0 < len(pairs) <= LIMIT, "\n".join(pairs)
