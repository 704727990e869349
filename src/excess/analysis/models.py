"""Models by the names that the command line knows them by: one registry, from a name to an estimator."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.tree import OnOffTreeClassifier

__all__ = ["MODELS", "make_model"]

MODELS: dict[str, Callable[..., Any]] = {
    "forest": lambda seed, n_jobs: OnOffForestClassifier(n_jobs=n_jobs, random_state=seed),
    "li-ma-forest": lambda seed, n_jobs: OnOffForestClassifier(
        100, criterion="li_ma", max_depth=6, min_samples_leaf=1, n_jobs=n_jobs, random_state=seed
    ),
    "noisy-forest": lambda seed, n_jobs: OnOffForestClassifier(
        100, criterion="information", max_depth=8, min_samples_leaf=1, n_jobs=n_jobs, random_state=seed
    ),
    "tree": lambda seed, n_jobs: OnOffTreeClassifier(max_depth=4, random_state=seed),
    "li-ma-tree": lambda seed, n_jobs: OnOffTreeClassifier(criterion="li_ma", max_depth=4, random_state=seed),
    "k-means": lambda seed, n_jobs: OnOffKMeansClassifier(48, random_state=seed),
    "k-means-ensemble": lambda seed, n_jobs: OnOffKMeansEnsembleClassifier(n_jobs=n_jobs, random_state=seed),
}
"""Makers of estimators, each called with a seed and a number of threads. Sizes and depths are the paper's best."""


def make_model(name: str, *, random_state: int | None = None, n_jobs: int | None = None) -> Any:
    """Return a new estimator by its name.

    Parameters
    ----------
    name : str
        One of ``MODELS``: ``"forest"``, ``"li-ma-forest"``, ``"noisy-forest"``, ``"tree"``, ``"li-ma-tree"``,
        ``"k-means"``, ``"k-means-ensemble"``.
    random_state : int or None, default=None
        Its seed.
    n_jobs : int or None, default=None
        Threads, for those that have any use for them.

    Returns
    -------
    classifier
        Not fitted.

    Examples
    --------
    >>> from excess.analysis.models import make_model
    >>> make_model("li-ma-tree", random_state=0)
    OnOffTreeClassifier(criterion='li_ma', max_depth=4, random_state=0)
    """
    if name not in MODELS:
        near = get_close_matches(str(name), MODELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        what = "which is no file either" if "." in str(name) or "/" in str(name) else "which is none of them"
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}, {what}{hint}")
    return MODELS[name](random_state, n_jobs)
