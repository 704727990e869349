"""A fitted model on many files, one worker per file."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from excess._core.progress import progress_bar
from excess.analysis.application import Applied, apply_model
from excess.distributed.fit import open_executor
from excess.estimators.base import n_threads
from excess.events import AnalysisConfig

__all__ = ["apply_to_files"]

_START_AGAIN = "files that are there are whole, the others were not written; apply the model again"


def apply_to_files(
    model: Any,
    config: AnalysisConfig,
    targets: Mapping[Path, Path],
    *,
    executor: Any = None,
    chunk_rows: int = 200_000,
    verbose: int = 0,
) -> dict[Path, Applied]:
    """Write copies of files with the columns ``gamma_prediction`` and ``selected``, on workers; see `apply_model`.

    Parameters
    ----------
    model : fitted classifier
        With ``predict_proba`` and ``threshold_``.
    config : AnalysisConfig
        Features and cuts, as the model was trained with.
    targets : mapping of Path to Path
        File to write for each file to read. Workers on other machines must see both under these names.
    executor : None, dask.distributed.Client, str or Executor, default=None
        What runs the work; as for `fit_forest`.
    chunk_rows : int, default=200_000
        Events in the memory of a worker at a time.
    verbose : int, default=0
        With 1, show a progress bar.

    Returns
    -------
    dict of Path to Applied
        What was done to each file.
    """
    threads = n_threads(getattr(model, "n_jobs", None))
    # workers have folders of their own
    arguments = [(config, Path(path).resolve(), Path(to).resolve(), chunk_rows) for path, to in targets.items()]
    bar = progress_bar("Applying to files", len(targets), shown=verbose > 0)
    with open_executor(executor, threads, _START_AGAIN) as executor, bar as tick:
        if executor.remote and "n_jobs" in model.get_params():  # the threads of workers are for other files
            model = copy(model).set_params(n_jobs=1)
        return dict(zip(targets, executor.run(_apply, arguments, tick, shared=(model,)), strict=True))


def _apply(model: Any, config: AnalysisConfig, path: Path, target: Path, chunk_rows: int) -> Applied:
    return apply_model(model, config, path, target, chunk_rows=chunk_rows)
