"""The loop of trials: resumed, not repeated; refused where settings differ or another run is at work; killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from excess.reproduction.settings import Settings
from excess.reproduction.trials import Study, Trial, locked, read_origin, read_rows, run_study


def plan(settings, n_trials):
    return [Trial(f"trial-{number}", {"trial": number}) for number in range(n_trials)]


def square(settings, parameters):
    return [{"value": parameters["trial"] ** 2 + settings.seed, "process": os.getpid()}]


def pure(settings, parameters):
    return [{"value": 0.1 * parameters["trial"], "seed": settings.trial_seed(parameters["trial"])}]


def fails_at_two(settings, parameters):
    if parameters["trial"] == 2:
        raise RuntimeError("no more")
    return pure(settings, parameters)


def study_of(run, identify=lambda settings: {}):
    return Study("squares", 3, plan, run, identify)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_rows_hold_parameters_and_results(tmp_path):
    study = study_of(square)
    rows = run_study(study, study.plan(Settings(), 3), Settings(), tmp_path)
    assert [(row["trial"], row["value"]) for row in rows] == [(0, 0), (1, 1), (2, 4)]


def test_finished_trials_are_not_repeated(tmp_path):
    study = study_of(square)
    run_study(study, study.plan(Settings(), 2), Settings(), tmp_path)
    (tmp_path / ".trial-9.json.x.json").write_text("half", encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trial-*.json")}
    rows = run_study(study, study.plan(Settings(), 4), Settings(), tmp_path)
    assert len(rows) == 4
    assert len(before) == 2
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert not list(tmp_path.glob(".*.json"))  # what a killed run leaves is cleared away


def test_a_failure_keeps_what_is_finished(tmp_path):
    study = study_of(fails_at_two)
    with pytest.raises(RuntimeError, match="no more"):
        run_study(study, study.plan(Settings(), 4), Settings(), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("trial*")) == ["trial-0.json", "trial-1.json"]


@pytest.mark.slow
def test_any_number_of_processes_gives_the_same_bytes(tmp_path):
    study = study_of(pure)
    for n_jobs in (1, 2):
        run_study(study, study.plan(Settings(), 6), Settings(), tmp_path / str(n_jobs), n_jobs=n_jobs)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(contents(tmp_path / "1")) == 7


@pytest.mark.parametrize(
    ("other", "identify", "said"),
    [
        (Settings(seed=1), lambda settings: {}, "seed is 0 there and 1 now"),
        (Settings(small=True), lambda settings: {}, "small is false there and true now"),
        (Settings(), lambda settings: {"sets": {"abalone": "ff"}}, "sets is null there"),
    ],
)
def test_other_settings_are_refused(tmp_path, other, identify, said):
    study = study_of(pure)
    run_study(study, study.plan(Settings(), 1), Settings(), tmp_path)
    with pytest.raises(ValueError, match=said):
        run_study(study_of(pure, identify), study.plan(other, 1), other, tmp_path)


def test_settings_without_a_trial_bind_nobody(tmp_path):
    study = study_of(fails_at_two)
    two = study.plan(Settings(), 3)[2:]
    with pytest.raises(RuntimeError, match="no more"):
        run_study(study, two, Settings(), tmp_path)
    assert (tmp_path / "settings.json").exists()
    other = Settings(seed=1)
    run_study(study, study.plan(other, 1), other, tmp_path)
    assert json.loads((tmp_path / "settings.json").read_text())["seed"] == 1


def test_looking_at_trials_writes_nothing(tmp_path):
    study = study_of(pure)
    assert read_origin(study, Settings(), tmp_path / "none") is None
    assert not (tmp_path / "none").exists()
    run_study(study, study.plan(Settings(), 1), Settings(), tmp_path)
    before = contents(tmp_path)
    assert read_origin(study, Settings(), tmp_path)["seed"] == 0
    with pytest.raises(ValueError, match="seed is 0 there and 1 now"):
        read_origin(study, Settings(seed=1), tmp_path)
    assert contents(tmp_path) == before


def test_a_lock_of_another_name_is_another_lock_and_can_be_waited_for(tmp_path):
    refused = pytest.raises(ValueError, match="another run")
    with locked(tmp_path), locked(tmp_path, ".pages.lock"), refused, locked(tmp_path, patience=0.3):
        pass
    holder, released = ExitStack(), threading.Event()
    holder.enter_context(locked(tmp_path))
    holder.callback(released.set)  # right before the lock is given up
    threading.Timer(0.3, holder.close).start()
    with locked(tmp_path, patience=60.0):
        assert released.is_set()


def test_another_version_is_refused(tmp_path):
    study = study_of(pure)
    run_study(study, study.plan(Settings(), 1), Settings(), tmp_path)
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "excess": "0.0.1"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r'excess is "0\.0\.1" there'):
        run_study(study, study.plan(Settings(), 1), Settings(), tmp_path)


def test_trials_of_another_revision_are_refused(tmp_path):
    first = study_of(pure)
    second = replace(first, revision=2)
    run_study(first, first.plan(Settings(), 1), Settings(), tmp_path / "first")
    run_study(second, second.plan(Settings(), 1), Settings(), tmp_path / "second")
    assert "revision" not in json.loads((tmp_path / "first" / "settings.json").read_text())
    for study, folder, said in ((second, "first", "revision is null there and 2 now"), (first, "second", "2 there")):
        with pytest.raises(ValueError, match=said):
            run_study(study, study.plan(Settings(), 1), Settings(), tmp_path / folder)
    with pytest.raises(ValueError, match="revision is null there and 2 now"):  # pages of finished trials
        read_origin(second, Settings(), tmp_path / "first")


def test_a_file_of_another_trial_is_refused(tmp_path):
    study = study_of(pure)
    run_study(study, study.plan(Settings(), 2), Settings(), tmp_path)
    (tmp_path / "trial-0.json").write_bytes((tmp_path / "trial-1.json").read_bytes())
    with pytest.raises(ValueError, match=r"trial-0\.json: is not the trial of that name"):
        read_rows(tmp_path, study.plan(Settings(), 2))


def test_a_folder_is_for_one_run_at_a_time(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match="another run is writing into this folder"), locked(tmp_path):
        pass
    with locked(tmp_path):  # free again
        pass


COMMAND = [sys.executable, "-c", "from excess.cli import main; main()", "reproduce"]


def started(*arguments, **options):
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def trials_in(folder: Path) -> list[Path]:
    """Trials that are on disk; files with a leading dot are not finished yet."""
    return [path for path in folder.glob("trials/imbalanced/*-*.json") if not path.name.startswith(".")]


def kill_after(n: int, folder: Path, process, kill) -> None:
    deadline = time.monotonic() + 120
    while len(trials_in(folder)) < n and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs signals of POSIX")
def test_killed_runs_end_in_the_bytes_of_a_whole_run(everything, tmp_path):
    """Kill -9 the run alone, then the run with all its processes; each time the next run resumes it."""
    arguments = ("imbalanced", "--small", "--trials", 1, "--jobs", 2)
    broken = tmp_path / "broken"
    kept: dict[Path, int] = {}
    for n, kill in ((2, os.kill), (8, os.killpg)):
        process = started(*arguments, "--out", broken, start_new_session=True)
        kill_after(n, broken, process, kill)
        assert not (broken / "imbalanced").exists()
        for path, written in kept.items():
            assert path.stat().st_mtime_ns == written, "a finished trial was repeated"
        kept = {path: path.stat().st_mtime_ns for path in trials_in(broken)}
    assert 8 <= len(kept) < 20
    done = subprocess.run([*COMMAND, *map(str, arguments), "--out", str(broken)], check=True, capture_output=True)
    assert b"trials were done before" in done.stderr
    for path, written in kept.items():
        assert path.stat().st_mtime_ns == written, "a finished trial was repeated"
    whole = contents(everything)  # which has other targets, too
    assert {name: whole.get(name) for name in contents(broken)} == contents(broken)
    assert len(trials_in(broken)) == 20


@pytest.mark.slow
def test_a_second_run_into_the_same_folder_is_refused(tmp_path):
    with locked(tmp_path):
        second = started("imbalanced", "--small", "--trials", 1, "--out", tmp_path)
        _, errors = second.communicate(timeout=120)
    assert second.returncode == 1
    assert "another run is writing into this folder" in errors
    assert trials_in(tmp_path) == []
