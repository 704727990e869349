"""The loop of trials: each is a pure function of a few parameters, and a file on disk as soon as it is finished.

A study is a list of trials. A trial that has its file is not repeated, so that a run that was interrupted, or killed,
can be resumed; at most the trials under way are lost. Files hold nothing that depends on when or where they were
made, so that the bytes of all results are those of a run without interruption.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from excess._core import files
from excess._core.locks import locked
from excess._core.progress import progress_bar
from excess._core.threads import n_threads
from excess.reproduction.settings import Settings

__all__ = ["Study", "Trial", "is_finished", "locked", "read_origin", "read_rows", "run_study"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One trial; it is a function of its parameters, which are numbers and text, and the settings."""

    name: str  # of its file, without suffix; no two trials of a study share it
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """Trials of one kind.

    ``run`` is a function of a module, so that other processes find it; its rows are dicts of numbers and text.
    ``identify`` returns what tells the data from others, such as checksums. It fails, with a sentence that says what to
    do, where data are missing. ``has_data`` says whether the folder of data that settings name holds data of the study.
    ``revision`` is raised when trials get other rows than before, so that nobody mixes them with those of an old run.
    """

    name: str  # of its folder
    n_trials: int  # repetitions that the paper, or a sensible study, has
    plan: Callable[[Settings, int], list[Trial]]  # from a number of repetitions, in the order in which they are run
    run: Callable[[Settings, Mapping[str, Any]], list[Row]]
    identify: Callable[[Settings], dict[str, Any]]
    has_data: Callable[[Settings], Any] = lambda settings: False
    revision: int = 1


def run_study(
    study: Study,
    trials: Sequence[Trial],
    settings: Settings,
    folder: Path,
    *,
    n_jobs: int = 1,
    show_progress: bool = False,
) -> list[Row]:
    """Run the trials of a study that have no file in a folder yet, and return the rows of all, as `read_rows` does.

    The settings must be those of the trials that the folder holds already. The caller keeps other runs out of it, see
    `locked`. Each of the processes has one thread; the rows do not depend on their number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".*.json"):
        stale.unlink(missing_ok=True)  # half-written files of a run that was killed
    check_settings(study, settings, folder)
    missing = [trial for trial in trials if not is_finished(folder, trial)]
    n_processes = min(n_threads(n_jobs), max(len(missing), 1))
    n_done = len(trials) - len(missing)
    title = study.name if n_done == 0 else f"{study.name} ({n_done} of {len(trials)} trials were done before)"
    with progress_bar(title, len(missing), shown=show_progress) as tick:
        for _ in _run_all(study, missing, settings, folder, n_processes):
            tick(1)
    return read_rows(folder, trials)


def is_finished(folder: Path, trial: Trial) -> bool:
    """Say whether a trial is on disk."""
    return _file_of(folder, trial).exists()


def read_rows(folder: Path, trials: Sequence[Trial]) -> list[Row]:
    """Return the rows of finished trials, each with the parameters of its trial."""
    rows = []
    for trial in trials:
        path = _file_of(folder, trial)
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["parameters"] != dict(trial.parameters):
            raise ValueError(f"{path}: is not the trial of that name; was it copied there? Delete it, and run again")
        rows += [{**trial.parameters, **row} for row in found["rows"]]
    return rows


def _run_all(
    study: Study, trials: Sequence[Trial], settings: Settings, folder: Path, n_processes: int
) -> Iterator[None]:
    """Run trials in parallel; yield whenever one is on disk."""
    if n_processes == 1:
        # one thread as in the processes below: sums over several threads may differ in their last bits
        with ThreadpoolController().limit(limits=1):
            for trial in trials:
                _write(folder, trial, study.run(settings, trial.parameters))
                yield
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_processes, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
        yield from parallel(delayed(_run_one_of)(study.run, trial, settings, folder, os.getpid()) for trial in trials)


def _run_one_of(run: Any, trial: Trial, settings: Settings, folder: Path, parent: int) -> None:
    """Run a trial in a process of its own."""
    _end_with(parent)
    _write(folder, trial, run(settings, trial.parameters))


@cache
def _end_with(parent: int) -> None:
    """Let this process end when the run that started it is gone, killed for instance; it would wait for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _write(folder: Path, trial: Trial, rows: list[Row]) -> None:
    content = {"parameters": dict(trial.parameters), "rows": rows}
    files.write_text(_file_of(folder, trial), json.dumps(content, indent=1, sort_keys=True) + "\n")


def _file_of(folder: Path, trial: Trial) -> Path:
    return folder / f"{trial.name}.json"


def check_settings(study: Study, settings: Settings, folder: Path) -> None:
    """Write what the study depends on, or refuse a folder that holds trials of something else."""
    text = json.dumps({**_basic_settings(study, settings), **study.identify(settings)}, indent=1, sort_keys=True) + "\n"
    found, wanted, path = _read_settings(folder), json.loads(text), folder / "settings.json"
    if found is not None:
        _refuse_others(folder, found, wanted, {*found, *wanted})
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def read_origin(study: Study, settings: Settings, folder: Path) -> dict[str, Any] | None:
    """Return what the trials in a folder depend on, as it was written down with them; None where there are none.

    Nothing is written, and no data are needed: seed, size and version must be those of the settings, and the data only
    where the settings name a folder and they are in it.
    """
    found, wanted = _read_settings(folder), _basic_settings(study, settings)
    if found is not None:
        if settings.data is not None and study.has_data(settings):
            wanted |= json.loads(json.dumps(study.identify(settings)))
        _refuse_others(folder, found, wanted, wanted)
    return found


def _read_settings(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the trials in a folder; those of a run that ended before its first trial do not count."""
    path = folder / "settings.json"
    trials = (other for other in folder.glob("*.json") if other != path and not other.name.startswith("."))
    if not path.exists() or not any(trials):
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _basic_settings(study: Study, settings: Settings) -> dict[str, Any]:
    from excess._core.version import __version__

    # folders of the first revision do not say so
    revision = {"revision": study.revision} if study.revision > 1 else {}
    return {"excess": __version__, "study": study.name, "seed": settings.seed, "small": settings.small, **revision}


def _refuse_others(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in sorted(keys):
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"{folder}: holds trials of other settings, {key} is {_short(found.get(key))} there and "
                f"{_short(wanted.get(key))} now; give another folder, or delete this one to start anew"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
