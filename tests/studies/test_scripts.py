"""Scripts of design questions: they can be imported, and their headers have command, date and commit."""

import importlib
import re
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("[a-z]*.py")))
def test_a_script_has_command_date_and_commit(name):
    pytest.importorskip("scikit_posthocs")
    header = importlib.import_module(f"studies.{name}").__doc__
    assert f"python -m studies.{name}" in header
    assert re.search(r"^Result of \d{4}-\d\d-\d\d \(commits? [0-9a-f]{7}", header, re.MULTILINE)
