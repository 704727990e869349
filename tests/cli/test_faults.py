"""Faults: full disks, signals, folders that are taken or cannot be written. No fault loses or replaces a result."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from helpers import run_command as run
from helpers import unmeasured_environment

import excess
from excess._utils import files
from excess._utils.files import locked
from excess.analysis import TrainedModel, claim_run_folder, detect, load_model
from excess.analysis._apply import FOLD_MODELS
from excess.analysis._results import RUN_FILES
from excess.dataset import OnOffDataset
from excess.dataset._simulate import simulate_observation
from excess.estimators._model_file import ModelFileError, save
from excess.io import EventFileError, read_events, write_events

pytest.importorskip("h5py")


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def table():
    return simulate_observation(20_000, 600, random_state=0)


@pytest.fixture(scope="module")
def found(table):
    """A finished search."""
    return detect(OnOffDataset.from_files(table), "tree")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Events, and a model."""
    folder = tmp_path_factory.mktemp("faults")
    assert run("simulate", "-o", folder, "--events", 20_000, "--signal", 600, "--labelled", 100, "--json") == 0
    assert run("train", folder / "observation.hdf5", "-o", folder / "tree.excess", "-m", "tree", "--json") == 0
    return folder


# Results that are there already.


def test_a_finished_run_is_replaced_only_when_asked_to(folder, tmp_path, capsys):
    target = tmp_path / "run"
    arguments = ("detect", folder / "observation.hdf5", "-o", target, "-m", "tree", "--json")
    assert run(*arguments) == 0
    before = contents(target)
    capsys.readouterr()
    assert run(*arguments, "--seed", 1, "--title", "another") == 1
    assert f"{target}: contains a finished run; choose another folder, or replace it with --overwrite" in said(capsys)
    assert run("demo", "--events", 20_000, "--signal", 300, "-o", target) == 1
    assert contents(target) == before
    assert run(*arguments, "--title", "another", "--overwrite") == 0
    assert json.loads((target / "result.json").read_text())["run"]["title"] == "another"
    assert run("report", target) == 0  # its own report is written again


def test_write_replaces_a_run_only_when_asked_to(found, tmp_path):
    found.write(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(EventFileError, match="contains a finished run"):
        found.write(tmp_path)
    found.write(tmp_path, overwrite=True)
    assert contents(tmp_path) == before
    assert sorted(before) == sorted(set(RUN_FILES) - {FOLD_MODELS, "sky_map.fits", "report.html"})


def test_simulated_files_are_replaced_only_when_asked_to(tmp_path, capsys):
    (tmp_path / "observation.hdf5").write_bytes(b"mine")
    arguments = ("simulate", "-o", tmp_path, "--events", 100, "--signal", 1, "--labelled", 1, "--json")
    assert run(*arguments) == 1
    assert f"{tmp_path / 'observation.hdf5'}: already exists" in said(capsys)
    assert contents(tmp_path) == {"observation.hdf5": b"mine"}
    assert run(*arguments, "--overwrite") == 0
    assert sorted(contents(tmp_path)) == ["gamma.hdf5", "observation.hdf5", "proton.hdf5"]
    assert run(*arguments) == 1


@pytest.mark.parametrize("name", RUN_FILES)
def test_files_of_another_origin_stay(name, folder, tmp_path, capsys):
    (tmp_path / name).write_text("mine")
    assert run("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path) == 1
    assert f"{tmp_path / name}: already exists" in said(capsys)
    assert contents(tmp_path) == {name: b"mine"}


# Inputs as outputs.


def _links(path: Path, way: str) -> Path:
    """Return another name of a file."""
    if way == "itself":
        return path
    link = path.with_name(f"{way}{path.suffix}")
    link.symlink_to(path) if way == "symbolic" else link.hardlink_to(path)
    return link


@pytest.mark.parametrize("way", ["itself", "symbolic", "hard"])
def test_no_command_writes_over_its_input(way, folder, table, tmp_path, capsys):
    """Even with --overwrite."""
    events, config = tmp_path / "run" / "events.parquet", tmp_path / "other" / "config.yaml"
    for path in (events, config):
        path.parent.mkdir()
    table.to_parquet(events, index=False)
    config.write_text("groups: night\n")
    model = tmp_path / "model.excess"
    shutil.copy(folder / "tree.excess", model)
    for name in ("on.csv", "join.csv", "list.yaml"):
        (tmp_path / name).write_text(f"crab: {{events: {events}}}\n")
    other = folder / "observation.hdf5"
    cases = [
        (("train", events, "-m", "tree"), _links(events, way)),
        (("train", other, "-m", "tree", "-c", config), _links(config, way)),
        (("train", tmp_path / "list.yaml", "-m", "tree"), events),
        (("train", other, "--simulated", tmp_path / "on.csv", events), events),
        (("train", other, "--reference", model), model),
        (("detect", _links(events, "itself"), "-m", "tree"), events.parent),
        (("detect", other, "-m", "tree", "-c", config), config.parent),
        (("detect", tmp_path / "on.csv", "--off", events, "--alpha", 0.2), events.parent),
        (("detect", tmp_path / "on.csv", "--join", events), events.parent),
        (("detect", tmp_path / "list.yaml", "-m", "tree"), events.parent),
        (("apply", model, events), events),
        (("apply", model, events), model),
        (("apply", model, events, other), events.parent),
    ]
    before = contents(tmp_path)
    for arguments, output in cases:
        assert run(*arguments, "-o", output, "--overwrite") == 1, arguments
        assert "would overwrite the input" in said(capsys), arguments
        assert contents(tmp_path) == before, arguments


def test_a_report_does_not_replace_the_run(found, tmp_path, capsys):
    found.write(tmp_path / "run")
    (tmp_path / "notes.html").write_text("mine")
    before = contents(tmp_path)
    assert run("report", tmp_path / "run", "-o", tmp_path / "run" / "events.parquet", "--overwrite") == 1
    assert "would overwrite the input" in said(capsys)
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html") == 1
    assert "notes.html: already exists" in said(capsys)
    assert contents(tmp_path) == before
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html", "--overwrite") == 0
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html") == 0  # now it is a report


def test_a_model_replaces_models_only(folder, tmp_path, capsys):
    arguments = ("train", folder / "observation.hdf5", "-m", "tree", "--json")
    (tmp_path / "notes").write_text("mine")
    assert run(*arguments, "-o", tmp_path / "notes") == 1
    assert f"{tmp_path / 'notes'}: already exists" in said(capsys)
    shutil.copy(folder / "tree.excess", tmp_path / "tree.excess")
    assert run(*arguments, "-o", tmp_path / "tree.excess", "--seed", 3) == 0
    assert (tmp_path / "notes").read_text() == "mine"


def test_apply_replaces_what_it_has_written_only(folder, tmp_path, capsys):
    arguments = ("apply", folder / "tree.excess", folder / "gamma.hdf5", "--json")
    write_events(read_events(folder / "gamma.hdf5"), tmp_path / "mine.hdf5")
    assert run(*arguments, "-o", tmp_path / "mine.hdf5") == 1
    assert "already exists" in said(capsys)
    for _ in range(2):
        assert run(*arguments, "-o", tmp_path / "scored.hdf5") == 0


# Full disks.


def _full(*arguments, **settings):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_full_disk_leaves_a_run_whole_or_not_at_all(name, old, found, tmp_path, monkeypatch):
    """At each file of a run."""
    if old:
        found.write(tmp_path, report=True)
    before = contents(tmp_path)
    usual = type(found)._writers
    monkeypatch.setattr(type(found), "_writers", lambda self, report: usual(self, report) | {name: _full})
    with pytest.raises(EventFileError) as refused:
        found.write(tmp_path, report=True, overwrite=True)
    message = f"{tmp_path / name}: cannot be written: No space left on device; {tmp_path} is unchanged"
    assert str(refused.value) == message
    assert contents(tmp_path) == before
    assert old or not list(tmp_path.iterdir())


@pytest.mark.parametrize("killed", [False, True], ids=["failing", "killed"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_files_take_their_places_together_or_not_at_all(old, killed, found, tmp_path, monkeypatch):
    """Each step fails in turn; where the process was killed there, the next run undoes it."""
    expected = contents(found.write(tmp_path / "expected"))
    if old:
        for name, content in contents(found.write(tmp_path / "old")).items():
            (tmp_path / "old" / name).write_bytes(content + b"\n")
    before = contents(tmp_path / "old") if old else {}
    usual = {name: getattr(Path, name) for name in ("mkdir", "rename", "touch")}
    for failing in range(40):
        target = tmp_path / f"{failing}"
        shutil.copytree(tmp_path / "old", target) if old else target.mkdir()
        steps = []

        def step(name, path, *arguments, failing=failing, steps=steps, **settings):
            if files.UNFINISHED in f"{path} {arguments}":
                steps.append(name)
                if len(steps) > failing and (killed or len(steps) == failing + 1):
                    _full()
            return usual[name](path, *arguments, **settings)

        with monkeypatch.context() as patch:
            for name in usual:
                patch.setattr(Path, name, lambda *a, name=name, **s: step(name, *a, **s))
            if killed:
                patch.setattr(files, "undo_unfinished", lambda *arguments: None)
            try:
                found.write(target, overwrite=True)
            except EventFileError:
                refused = True
            else:
                refused = False
        with claim_run_folder(target, overwrite=True):
            left = contents(target)
        left.pop(".lock")
        assert left == (before if refused else expected), failing
        assert not (target / files.UNFINISHED).exists()
        if len(steps) <= failing:
            break
    assert failing >= 3 + len(expected) * (3 if old else 1)


@pytest.mark.parametrize(
    ("command", "file", "writer"),
    [
        ("detect", "", "excess.analysis._results.Run._write_result"),
        ("simulate", "", "excess.io._fact.FactFile.append"),
        ("apply", "/scored.hdf5", "excess.io._fact.FactFile.append"),
        ("train", "/tree.excess", "excess.estimators._model_file.save_file"),
        ("efficiency", "", "excess.analysis._efficiency.Efficiency.plot"),
    ],
)
def test_a_command_on_a_full_disk_names_file_and_folder(command, file, writer, folder, tmp_path, monkeypatch, capsys):
    events = folder / "observation.hdf5"
    arguments = {
        "detect": (events, "-m", "tree", "-j", 1),
        "simulate": ("--events", 2000, "--signal", 10, "--labelled", 10),
        "apply": (folder / "tree.excess", events),
        "train": (events, "-m", "tree"),
        "efficiency": (folder / "tree.excess", folder / "gamma.hdf5", "--energy", "size / 1000"),
    }
    words = (command, *arguments[command], "-o", f"{tmp_path}{file}", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(writer, _full)
        assert run(*words) == 1
    text = said(capsys)
    assert text.startswith(f"excess: {tmp_path}")
    assert "No space left on device" in text
    assert not list(tmp_path.iterdir())
    if command == "efficiency":  # which has several files, and must not take those of the first attempt for its own
        assert run(*words) == 0
        assert sorted(contents(tmp_path)) == ["efficiency.csv", "efficiency.fits", "efficiency.png"]


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    left, used, other = (tmp_path / f".{name}" for name in ("a.md.01234567.md", "a.md.89abcdef.md", "b.md.01234567.md"))
    for path in (left, used, other):
        path.write_text("half of it")
    with used.open() as file:  # by a process that is still there
        fcntl.flock(file, fcntl.LOCK_EX)
        files.write_text(tmp_path / "a.md", "whole")
        assert sorted(tmp_path.iterdir()) == [used, other, tmp_path / "a.md"]
    with files.replacing(tmp_path / "a.md") as temporary:
        files.write_text(tmp_path / "a.md", "of another one")
        assert temporary.exists()
        temporary.write_text("whole")
    assert contents(tmp_path) == {"a.md": b"whole", other.name: b"half of it"}


def test_a_full_disk_names_the_file_to_be_written(tmp_path):
    message = re.escape(f"No space left on device: '{tmp_path / 'page.md'}'")
    with pytest.raises(OSError, match=message), files.replacing(tmp_path / "page.md"):
        _full()
    assert not list(tmp_path.iterdir())


# Interrupts.

INTERRUPTED = """
import os, sys, time
from excess.analysis._results import Run
from excess.cli import main

sent = int(sys.argv.pop())

def interrupted(self, path):
    path.write_text("half of it")
    os.kill(os.getpid(), sent)
    time.sleep(60)

Run._write_result = interrupted
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_or_all(sent, folder, tmp_path):
    """While files are written; studies/faults.py has other moments and commands."""
    arguments = ("detect", folder / "observation.hdf5", "-m", "tree", "-j", 1, "--json", "-o", tmp_path / "run")
    command = [sys.executable, "-c", INTERRUPTED, *map(str, arguments), str(int(sent))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if sent == signal.SIGKILL:
        assert ended.returncode == -sent
        assert "result.json" not in contents(tmp_path / "run")
    else:
        word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[sent]
        assert (ended.returncode, ended.stderr) == (128 + sent, f"excess: {word}; no partial file remains\n")
        assert not list(tmp_path.iterdir())
    assert run(*arguments) == 0
    assert sorted(contents(tmp_path / "run")) == sorted(set(RUN_FILES) - {FOLD_MODELS, "sky_map.fits"})


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("raised", [SystemError, ImportError, KeyboardInterrupt])
def test_an_interrupt_that_arrives_as_another_exception_is_an_interrupt(
    raised, sent, folder, tmp_path, capsys, monkeypatch
):
    """Libraries that are interrupted may raise SystemError; a second signal ends the process."""
    handlers = []

    def interrupted(*arguments, **settings):
        try:
            signal.raise_signal(sent)
        except KeyboardInterrupt as error:
            handlers.extend(map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)))
            raise raised("a result with an exception set") from error

    usual = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr("excess.analysis._train.fit_forest", interrupted)
    arguments = ("train", folder / "observation.hdf5", "--chunk-rows", 5000, "-o", tmp_path / "model", "--json")
    assert run(*arguments) == 128 + sent
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[sent]
    assert said(capsys) == f"excess: {word}; no partial file remains"
    assert not list(tmp_path.iterdir())
    assert handlers == [signal.SIG_DFL] * 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == usual


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_python_drops_is_raised_again(sent, folder, tmp_path, capsys, monkeypatch):
    """Python prints exceptions of destructors and of callbacks of weak references, and goes on."""

    class Interrupted:
        def __del__(self):
            signal.raise_signal(sent)

    def fit(*arguments, **settings):
        Interrupted()
        for _ in range(600):
            time.sleep(0.1)

    usual = sys.unraisablehook
    monkeypatch.setattr("excess.analysis._train.fit_forest", fit)
    arguments = ("train", folder / "observation.hdf5", "--chunk-rows", 5000, "-o", tmp_path / "model", "--json")
    assert run(*arguments) == 128 + sent
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[sent]
    assert said(capsys) == f"excess: {word}; no partial file remains"
    assert sys.unraisablehook is usual


STUCK = """
import os
from collections import deque
from contextlib import nullcontext
from itertools import chain, repeat
from excess.cli import _app, main
from excess.io._files import defer_signals

def stuck(words, **settings):
    with defer_signals() if "writing" in words else nullcontext():
        # neither writing nor what follows is Python, which would handle a signal
        deque(chain(map(os.write, [1], [b"stuck\\n"]), repeat(None)), maxlen=0)

_app.app = stuck
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the C library of GNU")
@pytest.mark.parametrize(("sent", "doing"), [(signal.SIGINT, "reading"), (signal.SIGTERM, "writing")])
def test_the_second_signal_ends_a_library_that_does_not_return(sent, doing):
    with subprocess.Popen([sys.executable, "-c", STUCK, doing], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "stuck\n"
            process.send_signal(sent)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(sent)
            assert process.wait(30) == -sent
        finally:
            process.kill()


@pytest.mark.slow
def test_a_signal_after_the_work_does_not_change_the_exit_code():
    """Python ends some tenths of a second after a command."""
    code = "import atexit, os; from excess.cli import main; atexit.register(os.kill, os.getpid(), 15); main()"
    ended = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


# Two runs at once, and folders that cannot be written.


def test_a_folder_is_for_one_run_at_a_time(folder, tmp_path, capsys):
    arguments = ("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path, "--overwrite", "--json")
    with locked(tmp_path):
        assert run(*arguments) == 1
    assert f"{tmp_path}: another run is writing into this folder; wait until it ends" in said(capsys)
    assert run(*arguments) == 0
    assert ".lock" not in contents(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("temporary", [True, False])
def test_kernels_without_a_folder_that_can_be_written(temporary, tmp_path):
    """Neither beside the source nor in the home folder, and then not even among temporary files."""
    package = tmp_path / "package" / "excess"
    shutil.copytree(Path(excess.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for source in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (source / "__pycache__").write_text("in the way of a folder")
    environment = {
        **{name: value for name, value in unmeasured_environment().items() if not name.startswith(("NUMBA", "XDG"))},
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/dev/null",
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    code = "import excess; excess.OnOffTreeClassifier; print(excess.__file__)"
    if not temporary:
        code = f"import tempfile; tempfile.tempdir = '/dev/null'; {code}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(package / "__init__.py")
    assert ("Compiled kernels are cached in" if temporary else "Compiled kernels are not cached") in done.stderr
    assert "set NUMBA_CACHE_DIR to a writable folder" in done.stderr
    assert done.stderr.count("Compiled kernels") == 1


# Damaged files, and files that mean harm.


@pytest.mark.parametrize(
    "metadata",
    [
        {"config": 3},
        {"config": None},
        {"groups": 3},
        {"groups": [[1]]},
        {"groups": {"a": 1}},
        {"run": 3},
        {"run": {"files": 3}},
        {"run": {"files": [3]}},
        {"run": {"files": [{"path": "x"}]}},
    ],
    ids=str,
)
def test_wrong_types_in_the_metadata_of_a_model_are_refused(metadata, folder, tmp_path, capsys):
    model = load_model(folder / "tree.excess")
    assert isinstance(model, TrainedModel)
    good = {"config": model.config.to_yaml(), "groups": model.groups, "run": model.record}
    path = tmp_path / "model.excess"
    save(model.model, path, metadata={**good, **metadata})
    with pytest.raises(ModelFileError, match=r"model\.excess: has .* in its metadata"):
        load_model(path)
    for arguments in (("apply", path, folder / "gamma.hdf5"), ("detect", folder / "gamma.hdf5", "--model-file", path)):
        assert run(*arguments, "-o", tmp_path / "out") == 1
        assert said(capsys).startswith(f"excess: {path}: has ")


def test_info_writes_control_characters_out(tmp_path, capsys):
    table = pd.DataFrame({"width": [1.0], "\x1b[2Jred\x1b[31m": [2.0], "back\x9bwards\u202e": [3.0]})
    table.to_parquet(tmp_path / "events.parquet")
    assert run("info", tmp_path / "events.parquet") == 0
    shown = "".join(capsys.readouterr().out.split())
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert r"\x1b[2Jred\x1b[31m" in shown
    assert r"back\x9bwards\u202e" in shown
    assert run("detect", tmp_path / "events.parquet", "-m", "tree", "-o", tmp_path / "out") == 1
    assert "\x1b" not in capsys.readouterr().err
