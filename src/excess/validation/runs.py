"""A run: all folds of one estimator; and the detection that several runs of it give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection, Fold, Nearby, contrast
from excess.validation.fold_result import FoldResult
from excess.validation.onoff_events import OnOffEvents


class Run(NamedTuple):
    """One cross-validation of one estimator."""

    folds: list[FoldResult]
    significance: float
    contrast: float

    @classmethod
    def of(cls, folds: list[FoldResult], alpha: float) -> Run:
        """Count the selected events of all folds together."""
        n_on, n_selected, n_on_in_all, n_all = (
            sum(getattr(fold, name) for fold in folds) for name in ("n_on", "n_selected", "n_on_in_all", "n_held_out")
        )
        selected = OnOffCounts(n_on, n_selected - n_on, alpha)
        everything = OnOffCounts(n_on_in_all, n_all - n_on_in_all, alpha)
        return cls(folds, selected.significance, contrast(selected, everything))


def make_detection(
    events: OnOffEvents, runs: list[Run], n_repeats: int, alpha: float, strategy: str, required_significance: float
) -> Detection:
    """Put the runs of one estimator together: repetitions first, then those of each permutation."""
    significances = np.array([run.significance for run in runs]).reshape(-1, n_repeats)
    median = np.argsort(significances, axis=1, kind="stable")[:, (n_repeats - 1) // 2]
    contrasts = np.array([run.contrast for run in runs]).reshape(-1, n_repeats)
    results = runs[median[0]].folds
    n = len(events.labels)
    score, selected, fold = np.full(n, np.nan), np.zeros(n, dtype=np.bool_), np.full(n, -1)
    folds = []
    for number, result in enumerate(results):
        if result.held_out is not None:
            rows = result.held_out.rows
            score[rows], selected[rows], fold[rows] = result.held_out.score, result.held_out.selected, number
        held_out = OnOffCounts(result.n_on, result.n_selected - result.n_on, alpha)
        folds.append(Fold(result.n_train, result.n_held_out, result.threshold, result.tuned, held_out))
    importances = [result.importances for result in results if result.importances is not None]
    return Detection(
        on=np.asarray(events.labels == events.on_class),
        score=score,
        selected=selected,
        fold=fold,
        groups=events.groups,
        folds=tuple(folds),
        alpha=alpha,
        strategy=strategy,
        significances=significances[0],
        permuted_contrasts=np.take_along_axis(contrasts, median[:, None], axis=1)[1:, 0],
        required_significance=required_significance,
        nearby=_nearby(events, results),
        importances=np.mean(importances, axis=0) if importances else None,
        feature_names=tuple(map(str, events.X.columns)) if hasattr(events.X, "columns") else None,
    )


def _nearby(events: OnOffEvents, results: list[FoldResult]) -> Nearby | None:
    """Put the nearby events of all folds together; those of no fold have no score."""
    if events.nearby is None:
        return None
    n = events.nearby.n_events
    score, selected = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
    for result in results:
        if result.nearby is not None:
            rows = result.nearby.rows
            score[rows], selected[rows] = result.nearby.score, result.nearby.selected
    return Nearby(score, selected)
