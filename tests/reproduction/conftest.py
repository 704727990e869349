"""Reproduced targets, made once for all tests."""

import os

import pytest
from helpers import run_command

from excess.reproduction.trials import locked


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """All targets, made once; workers of a parallel test run share them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reproduction"
    with locked(folder, ".test.lock", patience=900):
        if not (folder / "is-finished").exists():
            assert run_command("reproduce", "all", "--trials", 1, "--small", "--jobs", 1, "--out", folder) == 0
            (folder / "is-finished").touch()
    return folder
