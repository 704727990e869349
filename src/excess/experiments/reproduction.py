"""A reproduction: the trials of some targets, run or read, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from excess.events._errors import nearest, require
from excess.experiments.pages import write_page
from excess.experiments.settings import Settings
from excess.experiments.targets import TARGETS
from excess.experiments.trials import Study, Trial, check_settings, finished, locked, read_rows, run_study

__all__ = ["chosen_targets", "reproduce_targets"]


def chosen_targets(names: Sequence[str]) -> list[str]:
    """Return known names in the order of the registry; ``"all"`` is all of them.

    Examples
    --------
    >>> from excess.experiments.reproduction import chosen_targets
    >>> chosen_targets(["crab", "roc"])
    ['roc', 'crab']
    >>> chosen_targets(["tab1"])
    Traceback (most recent call last):
        ...
    ValueError: unknown target 'tab1'; known are agreement, all, ...
    """
    for name in names:
        if name != "all" and name not in TARGETS:
            raise ValueError(f"unknown target {name!r}; {nearest(name, [*TARGETS, 'all'])}")
    return [name for name in TARGETS if name in names or "all" in names]


def reproduce_targets(
    names: Sequence[str],
    folder: Path,
    settings: Settings,
    *,
    n_trials: int | None = None,
    n_jobs: int = -1,
    shown: bool = False,
    only_finished: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Path]:
    """Run what some targets need and is not there yet, and write their pages.

    Parameters
    ----------
    names : sequence of str
        Names of ``TARGETS``, or ``"all"``.
    folder : Path
        Where trials and pages go. One run at a time; a run that was interrupted is continued.
    settings : Settings
        Seed and data.
    n_trials : int or None, default=None
        Repetitions; by default as many as the paper has.
    n_jobs : int, default=-1
        Processes; -1 is one per core. The results do not depend on it.
    shown : bool, default=False
        Show progress.
    only_finished : bool, default=False
        Run nothing; make pages of the trials that are finished.
    tell : callable
        Called with a sentence on the way.

    Returns
    -------
    dict of str to Path
        The HTML page of each target.
    """
    chosen = chosen_targets(names)
    # what is missing is to be said before hours of work, not after
    for module in ("pyarrow", "matplotlib"):
        require(module, "reproducing tables and figures", extra="experiments")
    studies = _studies(chosen)
    for study in studies.values():
        study.identify(settings)
    pages = {}
    with locked(folder):
        rows: dict[str, tuple[list[Trial], Path]] = {}
        for study in studies.values():
            own = folder / "trials" / study.name
            plan = study.plan(settings, study.n_trials if n_trials is None else n_trials)
            wanted = [trial for trial in plan if any(_wants(name, study, trial) for name in chosen)]
            if only_finished:
                check_settings(study, settings, own)  # a page must not say other data than the trials are from
                there = [trial for trial in wanted if finished(own, trial)]
                tell(f"{study.name}: {len(there)} of {len(wanted)} trials are finished")
                wanted = there
            else:
                run_study(study, wanted, settings, own, n_jobs=n_jobs, shown=shown)
            rows[study.name] = (wanted, own)
        for name in chosen:
            target = TARGETS[name]
            frames = {}
            for study in target.studies:
                trials, own = rows[study.name]
                frames[study.name] = pd.DataFrame(read_rows(own, [trial for trial in trials if target.wants(trial)]))
            if any(frame.empty for frame in frames.values()):
                tell(f"{name}: no trial is finished, so there is no page")
                continue
            write_page(target.page(frames, settings), pd.concat(frames.values(), ignore_index=True), folder / name)
            pages[name] = folder / name / "page.html"
    return pages


def _studies(names: Sequence[str]) -> dict[str, Study]:
    return {study.name: study for name in names for study in TARGETS[name].studies}


def _wants(name: str, study: Study, trial: Trial) -> bool:
    target = TARGETS[name]
    return study in target.studies and target.wants(trial)
