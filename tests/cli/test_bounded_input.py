"""Input that would never end, on the command line: one sentence, and a traceback where a library crashes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import run_command as run

import excess
from excess.analysis import split_references
from excess.cli._printing import LONGEST_TEXT
from excess.config import AnalysisConfig
from excess.estimators._model_file import save

PIPE = "is a pipe, but files are read more than once; save its content to a file"


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def write_csv(path):
    path.write_text("night,width\n1,2.5\n1,3.5\n")
    return path


def test_pipes_are_refused_wherever_a_file_is_given(pipe, tmp_path, capsys):
    events, output = write_csv(tmp_path / "events.csv"), tmp_path / "out"
    (tmp_path / "list.yaml").symlink_to(pipe)
    for words in (
        ("info", pipe),
        ("detect", pipe, "-o", output),
        ("detect", events, "--config", pipe, "-o", output),
        ("detect", events, "--off", pipe, "--alpha", 1, "-o", output),
        ("detect", events, "--model-file", pipe, "-o", output),
        ("detect", tmp_path / "list.yaml", "-o", output),
        ("apply", pipe, events, "-o", tmp_path / "out.csv"),
    ):
        assert run(*words) == 1, words
        assert PIPE in said(capsys), words
    with pytest.raises(ValueError, match="pipe: is neither a model file"):
        split_references([str(pipe)])


def test_a_folder_of_a_run_with_a_pipe_in_it(tmp_path, capsys):
    (tmp_path / "result.json").write_text("{}")
    os.mkfifo(tmp_path / "events.parquet")
    assert run("report", tmp_path) == 1
    assert f"events.parquet: {PIPE}" in said(capsys)


def test_the_configuration_in_a_model_is_bounded(tmp_path, capsys):
    """Derived features that use the two before them, and aliases that multiply what the text holds."""
    table = pd.DataFrame({"f79": np.arange(20.0)})
    model = excess.OnOffTreeClassifier(max_depth=1, alpha=1.0).fit(table, np.arange(20) > 12)
    derived = {"f1": "width", "f2": "width * 2"} | {f"f{k}": f"f{k - 1} + f{k - 2}" for k in range(3, 80)}
    config = AnalysisConfig(features=["f79"], derived_features=derived, quality_cuts=[]).to_yaml()
    events, output = write_csv(tmp_path / "events.csv"), tmp_path / "scored.csv"
    save(model, tmp_path / "model", metadata={"config": config})
    assert run("apply", tmp_path / "model", events, "-o", output, "--json") == 0
    aliases = "a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 40))
    save(model, tmp_path / "model", metadata={"config": aliases})
    capsys.readouterr()
    assert run("apply", tmp_path / "model", events, "-o", output, "--overwrite") == 1
    assert "model: has more than 50,000 values" in said(capsys)


def test_info_prints_texts_of_bounded_length(tmp_path, capsys):
    path = tmp_path / "wide.csv"
    names = [f"column_{k}_{'x' * 900}" for k in range(500)]
    path.write_text(f"{','.join(names)}\n{','.join(['1'] * len(names))}\n")
    assert run("info", path) == 0
    assert len(capsys.readouterr().out) < 3 * LONGEST_TEXT
    model = excess.OnOffTreeClassifier(max_depth=1, alpha=1.0).fit(np.arange(20.0)[:, None], np.arange(20) > 12)
    save(model, tmp_path / "model", metadata={"config": "x" * 3_000_000, "notes": {str(k): k for k in range(100_000)}})
    assert run("info", tmp_path / "model") == 0
    assert len(capsys.readouterr().out) < LONGEST_TEXT


def test_messages_have_a_bounded_length(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("features: [" + ", ".join(f"{'x' * 90}{k}: 1" for k in range(2_000)) + "]")
    assert run("info", write_csv(tmp_path / "events.csv"), "--config", config) == 1
    assert len(said(capsys)) <= LONGEST_TEXT + len("excess: ")


CRASH = """
from excess.cli import main
from excess.io import _csv
_csv.columns.__code__ = (lambda path: __import__("faulthandler")._sigsegv()).__code__
main()
"""


@pytest.mark.slow
def test_a_crash_of_a_library_shows_file_and_traceback(tmp_path):
    events = write_csv(tmp_path / "events.csv")
    command = [sys.executable, "-c", CRASH, "info", events, "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV
    log, traceback = done.stderr.split("Fatal Python error: Segmentation fault")
    assert f"excess: {events}: reading CSV" in log
    assert "describe" in traceback
