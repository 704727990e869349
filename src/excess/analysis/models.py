"""Models by name: one registry for the command line and the reproduced tables, from a name to an estimator."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NamedTuple

from sklearn.base import clone

from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.tree import OnOffTreeClassifier

__all__ = ["MODELS", "Model", "make_model"]


class Model(NamedTuple):
    """A named estimator, which is not fitted, and what it is in a few words."""

    description: str
    estimator: Any


_PAPER: dict[str, Any] = {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}
"""The paper's rule for the threshold: that of largest significance."""

MODELS: dict[str, Model] = {
    "forest": Model("the default forest", OnOffForestClassifier()),
    "li-ma-forest": Model(
        "100 trees of depth 6 that split by significance",
        OnOffForestClassifier(100, criterion="li_ma", max_depth=6, min_samples_leaf=1),
    ),
    "noisy-forest": Model(
        "100 trees of depth 8 that split by entropy",
        OnOffForestClassifier(100, criterion="information", max_depth=8, min_samples_leaf=1),
    ),
    "tree": Model("one tree of depth 4", OnOffTreeClassifier(max_depth=4)),
    "li-ma-tree": Model(
        "one tree of depth 4 that splits by significance", OnOffTreeClassifier(criterion="li_ma", max_depth=4)
    ),
    "k-means": Model("one clustering, 48 clusters", OnOffKMeansClassifier(48)),
    "k-means-ensemble": Model("the default ensemble of clusterings", OnOffKMeansEnsembleClassifier()),
    "paper-li-ma-forest": Model(
        "LiMa Forest of the paper: votes of trees, threshold of largest significance",
        OnOffForestClassifier(100, criterion="li_ma", output="assignment", max_depth=6, min_samples_leaf=1, **_PAPER),
    ),
    "paper-noisy-forest": Model(
        "Noisy Forest of the paper: threshold of largest significance",
        OnOffForestClassifier(100, criterion="information", max_depth=8, min_samples_leaf=1, **_PAPER),
    ),
    "paper-li-ma-tree": Model(
        "LiMa Tree of the paper: searches every distinct value",
        OnOffTreeClassifier(criterion="li_ma", max_depth=4, max_bins=None),
    ),
    "paper-noisy-tree": Model(
        "Noisy Tree of the paper: searches every distinct value",
        OnOffTreeClassifier(criterion="information", max_depth=4, max_bins=None),
    ),
    "paper-k-means-ensemble": Model(
        "k-means ensemble of the paper: votes of clusterings, threshold of largest significance",
        OnOffKMeansEnsembleClassifier(100, 256, output="assignment", **_PAPER),
    ),
    "open-crab-tree": Model(
        "tree of depth 15 by entropy, as in the open Crab analysis",
        OnOffTreeClassifier(criterion="information", max_depth=15),
    ),
    "open-crab-forest": Model(
        "200 trees of depth 15 by entropy with a cut at 0.5, as in the open Crab analysis",
        OnOffForestClassifier(200, criterion="information", max_depth=15, min_samples_leaf=1, threshold=0.5),
    ),
}
"""Models by name. Sizes and depths are the best ones of the paper.

The paper's single trees search every distinct value, as the paper says; all others search 255 bins. Those of the open
Crab analysis are for labelled events; they take seconds for 240,000 events where scikit-learn takes minutes.
"""


def make_model(name: str, *, random_state: int | None = None, n_jobs: int | None = None, **options: Any) -> Any:
    """Return a new estimator by its name.

    Parameters
    ----------
    name : str
        One of ``MODELS``, such as ``"forest"``, ``"li-ma-tree"`` or ``"paper-noisy-forest"``.
    random_state : int or None, default=None
        Its seed.
    n_jobs : int or None, default=None
        Threads, for those that have any use for them.
    **options
        Other parameters of the estimator, such as ``max_depth`` or ``n_clusters``.

    Returns
    -------
    classifier
        Not fitted.

    Examples
    --------
    >>> from excess.analysis.models import make_model
    >>> make_model("li-ma-tree", random_state=0)
    OnOffTreeClassifier(criterion='li_ma', max_depth=4, random_state=0)
    >>> make_model("k-means", n_clusters=8)
    OnOffKMeansClassifier(n_clusters=8)
    """
    if name not in MODELS:
        near = get_close_matches(str(name), MODELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}{hint}")
    model = clone(MODELS[name].estimator).set_params(random_state=random_state, **options)
    return model.set_params(n_jobs=n_jobs) if "n_jobs" in model.get_params() else model
