"""Trials of a study: pure functions of a few parameters, each of them a line of a file as soon as it is finished.

A run that was interrupted or killed is resumed by the same command, and finished trials are not repeated. The first
line of the file has the settings and checksums of the data, so trials of different settings are never mixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config
from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

from excess import __version__

Row = dict[str, Any]
Trial = Mapping[str, Any]
"""Parameters of a trial: numbers and text. No two trials of a study have the same ones."""


@dataclass(frozen=True)
class Settings:
    """What the numbers depend on, besides the number of trials."""

    seed: int = 0  # of everything random
    data: Path | None = None  # folder of local data; None downloads what can be downloaded, and simulates the rest
    small: bool = False  # small substitutes for all data and models, to test that everything runs

    def trial_seed(self, *numbers: int) -> int:
        """Return the seed of a trial, or of a part of it."""
        return int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class Study:
    """Trials of the same type. ``run`` is a function of a module, which other processes can import."""

    name: str
    n_trials: int  # default number of repetitions
    plan: Callable[[Settings, int], list[Trial]]  # from a number of repetitions, in the order in which they are run
    run: Callable[[Settings, Trial], list[Row]]
    describe_data: Callable[[Mapping[str, Any]], str]  # from the header of the trials
    identify: Callable[[Settings], dict[str, Any]] = lambda settings: {}  # checksums of the data
    revision: int = 1  # to be raised when trials return other rows than before

    def header(self, settings: Settings) -> dict[str, Any]:
        """Return the settings as they are stored with the trials, without the data."""
        own = {"study": self.name, "revision": self.revision, "excess": __version__}
        return own | {"seed": settings.seed, "small": settings.small}


def run_study(study: Study, trials: Sequence[Trial], settings: Settings, path: Path, *, n_jobs: int = -1) -> None:
    """Run the trials that are not in the file yet, in processes of one thread each, and append them to it."""
    header, finished = read_file(path)
    wanted = json.loads(json.dumps(study.header(settings) | study.identify(settings)))
    path.parent.mkdir(parents=True, exist_ok=True)
    if finished:
        check_header(path, header, wanted)
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)  # a killed run may leave an unfinished line
    else:
        path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
    missing = [trial for trial in trials if _key(trial) not in finished]
    # one thread for a single process, too: sums over several threads may differ in their last bits
    with (
        path.open("a", encoding="utf-8") as file,
        threadpool_limits(1),
        parallel_config(backend="loky", inner_max_num_threads=1),
    ):
        parallel = Parallel(n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
        results = parallel(delayed(_run_one)(study.run, settings, trial) for trial in missing)
        title = f"{study.name}, {len(trials) - len(missing)} of {len(trials)} trials finished before"
        for line in track(results, title, total=len(missing), console=Console(stderr=True)):
            file.write(line)
            file.flush()


def _run_one(run: Callable[[Settings, Trial], list[Row]], settings: Settings, trial: Trial) -> str:
    return json.dumps({"trial": trial, "rows": run(settings, trial)}, allow_nan=False) + "\n"


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Return the settings of a file and the rows of its finished trials; both are empty without a file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    header, *finished = [json.loads(line) for line in lines if line.endswith("\n")] or [{}]
    return header, {_key(found["trial"]): found["rows"] for found in finished}


def read_rows(path: Path, trials: Sequence[Trial]) -> pd.DataFrame:
    """Return the rows of the finished ones among some trials, in the order of the trials, with their parameters."""
    _, finished = read_file(path)
    return pd.DataFrame([{**trial, **row} for trial in trials for row in finished.get(_key(trial), ())])


def check_header(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ValueError if trials were run with other settings."""
    for key, value in wanted.items():
        if found.get(key) != value:
            raise ValueError(
                f"{path} has trials of other settings: {key} is {found.get(key)!r} there and {value!r} now; give "
                "another folder, or delete the file"
            )


def _key(trial: Trial) -> str:
    return json.dumps(dict(trial), sort_keys=True)
