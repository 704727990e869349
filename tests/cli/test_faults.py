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

import numpy as np
import pandas as pd
import pytest
from helpers import run_command as run
from helpers import unmeasured_environment

import excess
from excess._core import files
from excess._core.locks import locked
from excess.analysis import TrainedModel, claim_run_folder, load_model, observe, read_run, search
from excess.analysis.output_paths import RUN_FILES
from excess.estimators.model_file import ModelFileError, save
from excess.events import EventFileError, read_events, write_events
from excess.observation.simulation import simulate_observation

pytest.importorskip("h5py")

COMMAND = [sys.executable, "-c", "from excess.cli import main; main()"]


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
    return search(observe(table), "tree")


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
    assert f"{target}: holds a finished run; give another folder, or replace it by overwrite=True" in said(capsys)
    assert run("demo", "--events", 20_000, "--signal", 300, "-o", target) == 1
    assert contents(target) == before
    assert run(*arguments, "--title", "another", "--overwrite") == 0
    assert json.loads((target / "result.json").read_text())["run"]["title"] == "another"
    assert run("report", target) == 0  # its own report is written again


def test_write_replaces_a_run_only_when_asked_to(found, tmp_path):
    found.write(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(EventFileError, match="holds a finished run"):
        found.write(tmp_path)
    found.write(tmp_path, overwrite=True)
    assert contents(tmp_path) == before
    assert sorted(before) == sorted(set(RUN_FILES) - {"report.html", "observations.csv", "bins.csv"})


def test_simulated_files_are_replaced_only_when_asked_to(tmp_path, capsys):
    (tmp_path / "observation.hdf5").write_bytes(b"mine")
    arguments = ("simulate", "-o", tmp_path, "--events", 100, "--signal", 1, "--labelled", 1, "--json")
    assert run(*arguments) == 1
    assert f"{tmp_path / 'observation.hdf5'}: is there already, and was not written by this command" in said(capsys)
    assert contents(tmp_path) == {"observation.hdf5": b"mine"}
    assert run(*arguments, "--overwrite") == 0
    assert sorted(contents(tmp_path)) == ["gamma.hdf5", "observation.hdf5", "proton.hdf5"]
    assert run(*arguments) == 1


@pytest.mark.parametrize("name", RUN_FILES)
def test_files_of_another_origin_stay(name, folder, tmp_path, capsys):
    (tmp_path / name).write_text("mine")
    assert run("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path) == 1
    assert f"{tmp_path / name}: is there already, and was not written by this command" in said(capsys)
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
    events, config = tmp_path / "run" / "events.csv", tmp_path / "other" / "config.yaml"
    for path in (events, config):
        path.parent.mkdir()
    table.to_csv(events, index=False)
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
        assert "would be written over the input" in said(capsys), arguments
        assert contents(tmp_path) == before, arguments


def test_a_report_does_not_replace_the_run(found, tmp_path, capsys):
    found.write(tmp_path / "run")
    (tmp_path / "notes.html").write_text("mine")
    before = contents(tmp_path)
    assert run("report", tmp_path / "run", "-o", tmp_path / "run" / "events.csv", "--overwrite") == 1
    assert "would be written over the input" in said(capsys)
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html") == 1
    assert "notes.html: is there already" in said(capsys)
    assert contents(tmp_path) == before
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html", "--overwrite") == 0
    assert run("report", tmp_path / "run", "-o", tmp_path / "notes.html") == 0  # now it is a report


def test_a_model_replaces_models_only(folder, tmp_path, capsys):
    arguments = ("train", folder / "observation.hdf5", "-m", "tree", "--json")
    (tmp_path / "notes").write_text("mine")
    assert run(*arguments, "-o", tmp_path / "notes") == 1
    assert f"{tmp_path / 'notes'}: is there already, and was not written by this command" in said(capsys)
    shutil.copy(folder / "tree.excess", tmp_path / "tree.excess")
    assert run(*arguments, "-o", tmp_path / "tree.excess", "--seed", 3) == 0
    assert (tmp_path / "notes").read_text() == "mine"


def test_apply_replaces_what_it_has_written_only(folder, tmp_path, capsys):
    arguments = ("apply", folder / "tree.excess", folder / "gamma.hdf5", "--json")
    write_events(read_events(folder / "gamma.hdf5"), tmp_path / "mine.hdf5")
    assert run(*arguments, "-o", tmp_path / "mine.hdf5") == 1
    assert "is there already, and was not written by this command" in said(capsys)
    for _ in range(2):
        assert run(*arguments, "-o", tmp_path / "scored.hdf5") == 0


# Full disks.


def _full(*arguments, **settings):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("name", [name for name in RUN_FILES if name != "observations.csv"])
def test_a_full_disk_leaves_a_run_whole_or_not_at_all(name, old, found, tmp_path, monkeypatch):
    """At each file of a run."""
    if old:
        found.write(tmp_path, report=True)
    before = contents(tmp_path)
    usual = type(found)._writers
    monkeypatch.setattr(type(found), "_writers", lambda self, report: usual(self, report) | {name: _full})
    with pytest.raises(EventFileError) as refused:
        found.write(tmp_path, report=True, overwrite=True)
    message = f"{tmp_path / name}: cannot be written: No space left on device; {tmp_path} is as it was before"
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
        del left[".lock"]
        assert left == (before if refused else expected), failing
        assert not (target / files.UNFINISHED).exists()
        if len(steps) <= failing:
            break
    assert failing >= (14 if old else 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "file", "limit"),
    [
        ("detect", "", 5_000),
        ("simulate", "", 50_000),
        ("apply", "/scored.hdf5", 50_000),
        ("train", "/tree.excess", 500),
    ],
    ids=["detect", "simulate", "apply", "train"],
)
def test_a_command_on_a_full_disk_names_file_and_folder(command, file, limit, folder, tmp_path):
    """A limit on the size of files lets the system refuse a write."""
    resource = pytest.importorskip("resource")
    events = folder / "observation.hdf5"
    arguments = {
        "detect": (events, "-m", "tree", "-j", 1),
        "simulate": ("--events", 2000, "--signal", 10, "--labelled", 10),
        "apply": (folder / "tree.excess", events),
        "train": (events, "-m", "tree"),
    }
    done = subprocess.run(
        [*COMMAND, command, *map(str, arguments[command]), "-o", f"{tmp_path}{file}"],
        env=unmeasured_environment(),  # which would write a file, too
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"excess: {tmp_path}/"), last
    assert "File too large" in last
    assert not list(tmp_path.iterdir())


def test_a_reproduction_on_a_full_disk_names_the_file(tmp_path):
    message = re.escape(f"No space left on device: '{tmp_path / 'page.md'}'")
    with pytest.raises(OSError, match=message), files.replacing(tmp_path / "page.md"):
        _full()
    assert not list(tmp_path.iterdir())


def test_a_reproduction_does_not_replace_files_of_another_origin(tmp_path, capsys):
    (tmp_path / "roc").mkdir()
    (tmp_path / "roc" / "page.html").write_text("mine")
    assert run("reproduce", "roc", "--small", "--trials", 1, "-o", tmp_path, "--json") == 1
    assert f"{tmp_path / 'roc' / 'page.html'}: is there already, and was not written by this command" in said(capsys)
    assert contents(tmp_path) == {"roc/page.html": b"mine"}


# Interrupts.


def _send(number: int, seconds: float, *arguments) -> tuple[int, list[str]]:
    """Run a command, send it a signal after some seconds; return its exit code and what it said."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    return process.returncode, errors.strip().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["interrupted", "terminated"])
def test_a_signal_during_imports_is_one_line(sent, folder, tmp_path, request):
    """Each import tells that it begins, so that the signal comes while libraries are imported."""
    begun = tmp_path / "begun"
    for module in ("typer", "numpy", "pandas", "numba", "sklearn.base"):
        code = (
            "import importlib.abc, sys, pathlib, time\n"
            "class Watch(importlib.abc.MetaPathFinder):\n"
            "    def find_spec(self, name, path, target=None):\n"
            f"        if name == {module!r}:\n"
            f"            pathlib.Path({str(begun)!r}).touch(); time.sleep(5)\n"
            "sys.meta_path.insert(0, Watch())\n"
            "from excess.cli import main; main()"
        )
        arguments = ["detect", str(folder / "observation.hdf5"), "-o", str(tmp_path / "run"), "-m", "tree", "--json"]
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
        word = request.node.callspec.id
        assert (process.returncode, errors) == (128 + sent, f"excess: {word}; no half-written file is left\n"), module
        begun.unlink()
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_nothing_or_all(sent, folder, tmp_path):
    """A few moments; benchmarks/faults.py has many, of more commands."""
    arguments = ("detect", folder / "observation.hdf5", "-m", "tree", "-j", 1, "--json")
    assert run(*arguments, "-o", tmp_path / "expected") == 0
    expected = contents(tmp_path / "expected")
    for seconds in (0.7, 1.6, 3.0):
        target = tmp_path / f"{seconds}"
        code, lines = _send(sent, seconds, *arguments, "-o", target)
        left = contents(target) if target.exists() else {}
        if code == 0:
            assert left == expected
            continue
        if sent == signal.SIGKILL:
            assert "result.json" not in left or all(left[name] == expected[name] for name in expected)
        else:
            assert (code, len(lines)) == (128 + sent, 1), lines
            assert not left
        assert run(*arguments, "-o", target, "--overwrite") == 0
        assert contents(target) == expected


@pytest.mark.parametrize("raised", [SystemError, ImportError, KeyboardInterrupt])
def test_an_interrupt_that_arrives_as_another_exception_is_an_interrupt(raised, folder, tmp_path, capsys, monkeypatch):
    """Libraries that are interrupted raise SystemError now and then."""

    def interrupted(*arguments, **settings):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise raised("a result with an exception set") from error

    monkeypatch.setattr("excess.analysis.training.fit_forest", interrupted)
    arguments = ("train", folder / "observation.hdf5", "--chunk-rows", 5000, "-o", tmp_path / "model", "--json")
    assert run(*arguments) == 130
    assert said(capsys) == "excess: interrupted; no half-written file is left"
    assert not list(tmp_path.iterdir())


def test_an_interrupt_that_a_library_swallows_is_raised_again(folder, tmp_path, capsys, monkeypatch):
    class Swallows:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def swallow(*arguments, **settings):
        Swallows()
        time.sleep(30)

    monkeypatch.setattr("excess.analysis.training.fit_forest", swallow)
    arguments = ("train", folder / "observation.hdf5", "--chunk-rows", 5000, "-o", tmp_path / "model", "--json")
    assert run(*arguments) == 130
    assert said(capsys) == "excess: interrupted; no half-written file is left"


# Two runs at once, and folders that cannot be written.


def test_a_folder_is_for_one_run_at_a_time(folder, tmp_path, capsys):
    arguments = ("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path, "--overwrite", "--json")
    with locked(tmp_path):
        assert run(*arguments) == 1
    assert f"{tmp_path}: another run is writing into this folder; wait for it to end" in said(capsys)
    assert run(*arguments) == 0
    assert ".lock" not in contents(tmp_path)


@pytest.mark.slow
def test_two_runs_at_once_do_not_mix(folder, tmp_path):
    target = tmp_path / "run"
    started = [
        subprocess.Popen(
            [*COMMAND, "detect", str(folder / "observation.hdf5"), "-o", str(target), "-m", model, "-j", "1", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for model in ("tree", "li-ma-tree")
    ]
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 1]
    assert any("another run is writing into this folder" in one or "holds a finished run" in one for one in errors)
    [model] = read_run(target).detections
    assert started[("tree", "li-ma-tree").index(model)].returncode == 0


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
    assert ("Compiled kernels are kept in" if temporary else "Compiled kernels are not kept") in done.stderr
    assert "set NUMBA_CACHE_DIR to a folder that can" in done.stderr
    assert done.stderr.count("Compiled kernels") == 1


# Damaged files, and files that mean harm.


@pytest.mark.parametrize(
    "damage",
    [
        b"PK\x03\x04 no archive",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (" + b" " * 70 + b"\n",
        b"\x93NUMPY\x01\x00F\x00{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000000,)} \n",
        b"\x80\x04K\x01.",
        b"",
    ],
    ids=["archive", "header", "huge", "pickle", "empty"],
)
def test_damaged_nearby_events_are_refused(damage, found, tmp_path, capsys):
    found.write(tmp_path)
    (tmp_path / "nearby.npy").write_bytes(damage)
    with pytest.raises(EventFileError, match="cannot be read as those of one run"):
        read_run(tmp_path)
    assert run("report", tmp_path) == 1
    assert "cannot be read as those of one run" in said(capsys)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run", "files"), 3),
        (("run", "files"), [3]),
        (("run", "versions"), "1"),
        (("run", "options"), []),
        (("run", "title"), {}),
        (("run", "seed"), "x"),
        (("run",), 3),
        (("models",), []),
        (("null_tests",), 3),
        (("no_forward",), 3),
        (("observation", "features"), 3),
        (("observation", "n_nearby"), "many"),
        (("observation",), None),
    ],
)
def test_wrong_types_in_a_result_are_refused(place, value, found, tmp_path, capsys):
    found.write(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    holder = result
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert run("report", tmp_path) == 1
    text = said(capsys)
    assert text.startswith(f"excess: {tmp_path}: its files cannot be read as those of one run")


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


def test_cells_are_no_formulas(table, tmp_path):
    names = np.array(["=HYPERLINK(1)", "+1", "-1", "@x", "'=2", "plain"], dtype=object)
    thetas = [name for name in table if name.startswith("theta_deg")]
    inside = table[(table[thetas] ** 2 < 0.025).any(axis=1)].reset_index(drop=True)
    inside = inside.assign(session=names[np.arange(len(inside)) % len(names)])
    found = search(observe(inside, groups="session"), "tree")
    found.write(tmp_path)
    groups = pd.read_csv(tmp_path / "groups.csv", dtype=str)
    assert set(groups["group"]) == {"'=HYPERLINK(1)", "'+1", "'-1", "'@x", "''=2", "plain"}
    for name in ("events.csv", "groups.csv", "folds.csv"):
        cells = pd.read_csv(tmp_path / name, dtype=str).select_dtypes(include=["object", "string"])
        texts = [cell for column in cells for cell in {column, *cells[column].dropna()}]
        assert not [cell for cell in texts if cell.startswith(("=", "@", "\t", "\r"))]
    again = read_run(tmp_path)
    assert set(again.detections["tree"].groups) == set(names)
    again.write(tmp_path / "again")
    assert (tmp_path / "again" / "events.csv").read_bytes() == (tmp_path / "events.csv").read_bytes()


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


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_work_does_not_change_the_exit_code(sent):
    """Python ends some tenths of a second after a command, without handlers of its own."""
    code = (
        "import atexit, os, signal, sys\n"
        "from excess.cli import main\n"
        f"atexit.register(os.kill, os.getpid(), {int(sent)})\n"
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_exit_during_imports_leaves_no_lock(tmp_path, number):
    code = (
        "import os, pathlib\n"
        "from excess._core.interrupts import exit_at_interrupts\n"
        "from excess._core.locks import locked\n"
        f"with locked(pathlib.Path({str(tmp_path)!r})), exit_at_interrupts():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []
