"""A reproduction: the trials of some targets, run or read, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess._core.errors import nearest, require
from excess.reproduction.crab_data import are_labelled
from excess.reproduction.datasets import MissingDataError
from excess.reproduction.pages import PAGE_FILES, write_page
from excess.reproduction.settings import Settings
from excess.reproduction.targets import TARGETS
from excess.reproduction.trials import Trial, is_finished, locked, read_origin, read_rows, run_study

__all__ = ["chosen_targets", "reproduce_targets"]


def chosen_targets(names: Sequence[str]) -> list[str]:
    """Return known names in the order of the registry; ``"all"`` is all of them.

    Examples
    --------
    >>> from excess.reproduction.running import chosen_targets
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
    show_progress: bool = False,
    only_finished: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Path]:
    """Run what some targets need and is not there yet, write their pages, and return the HTML page of each.

    ``"all"`` leaves out what the data do not allow for, and ``report`` is called with a sentence on it. A run that was
    interrupted is resumed. By default there are as many repetitions as in the paper. The results do not depend on the
    number of processes. With ``only_finished`` nothing is run, and pages are made of the trials that are finished; that
    needs no data, and works during a run.
    """
    chosen = chosen_targets(names)
    # report what is missing before hours of work, not after
    for module in ("pyarrow", "matplotlib"):
        require(module, "reproducing tables and figures")
    _refuse_foreign_pages(chosen, folder)
    studies = {study: folder / "trials" / study.name for name in chosen for study in TARGETS[name].studies}
    # what the trials are made from: empty where nothing is finished, and nothing will be run
    origins = {
        study.name: (read_origin(study, settings, own) or {}) if only_finished else study.identify(settings)
        for study, own in studies.items()
    }
    for name in [name for name in chosen if TARGETS[name].needs_labels]:
        if all(are_labelled(origins[study.name]) for study in TARGETS[name].studies if origins[study.name]):
            continue
        sentence = f"{name}: needs files gamma*.hdf5 and proton*.hdf5 (or *.h5) of labelled events beside FACT's sample"
        if "all" not in names:
            raise MissingDataError(sentence)
        report(f"{sentence}; left out")
        chosen.remove(name)
    targets = {name: TARGETS[name] for name in chosen}
    trials = {}
    for study, own in studies.items():
        wanted = [target for target in targets.values() if study in target.studies]
        plan = study.plan(settings, study.n_trials if n_trials is None else n_trials)
        trials[study.name] = [trial for trial in plan if any(target.wants(trial) for target in wanted)]
        if only_finished and wanted:
            finished = [trial for trial in trials[study.name] if is_finished(own, trial)]
            report(f"{study.name}: {len(finished)} of {len(trials[study.name])} trials are finished")
            trials[study.name] = finished
    if only_finished:
        return _write_pages(chosen, trials, folder, settings, origins, report)
    with locked(folder):
        for study, own in studies.items():
            if trials[study.name]:
                run_study(study, trials[study.name], settings, own, n_jobs=n_jobs, show_progress=show_progress)
        return _write_pages(chosen, trials, folder, settings, origins, report)


def _refuse_foreign_pages(names: Sequence[str], folder: Path) -> None:
    """Raise ValueError if pages would replace files of a folder that holds no trials."""
    if (folder / "trials").is_dir():
        return
    for path in (folder / name / file for name in names for file in PAGE_FILES):
        if path.exists():
            raise ValueError(f"{path}: is there already, and was not written by this command; give another folder")


def _write_pages(
    names: Sequence[str],
    trials: Mapping[str, Sequence[Trial]],
    folder: Path,
    settings: Settings,
    origins: Mapping[str, Mapping[str, Any]],
    report: Callable[[str], None],
) -> dict[str, Path]:
    """Write the pages of targets of which all studies have trials."""
    pages = {}
    for name in names:
        target = TARGETS[name]
        wanted = {study.name: [t for t in trials[study.name] if target.wants(t)] for study in target.studies}
        if not all(wanted.values()):
            report(f"{name}: no trial is finished, so there is no page")
            continue
        frames = {own: pd.DataFrame(read_rows(folder / "trials" / own, found)) for own, found in wanted.items()}
        page = target.page(frames, settings, origins[target.studies[0].name])
        # a run may be writing trials meanwhile; pages of another process are finished in seconds
        with locked(folder, ".pages.lock", patience=60.0):
            write_page(page, pd.concat(frames.values(), ignore_index=True), folder / name)
        pages[name] = folder / name / "page.html"
    return pages
