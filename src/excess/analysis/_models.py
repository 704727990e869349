"""Registry of models by name."""

from copy import copy
from difflib import get_close_matches
from typing import Any, NamedTuple

import excess
from excess._utils.errors import ArgumentError


class Model(NamedTuple):
    """A named estimator: description, class in `excess`, and parameters."""

    description: str
    estimator: str
    parameters: dict[str, Any]


_FOREST, _TREE = "OnOffForestClassifier", "OnOffTreeClassifier"
_HYBRID = "OnOffHybridClassifier"
_K_MEANS, _K_MEANS_ENSEMBLE = "OnOffKMeansClassifier", "OnOffKMeansEnsembleClassifier"
_LI_MA_FOREST = {"n_estimators": 100, "criterion": "li_ma", "max_depth": 6, "min_samples_leaf": 1}
_NOISY_FOREST = {"n_estimators": 100, "criterion": "information", "max_depth": 8, "min_samples_leaf": 1}
_LI_MA_TREE, _NOISY_TREE = ({"criterion": name, "max_depth": 4} for name in ("li_ma", "information"))
_OPEN_CRAB = {"criterion": "information", "max_depth": 15}
_OPEN_CRAB_FOREST = {**_OPEN_CRAB, "n_estimators": 200, "min_samples_leaf": 1, "threshold": 0.5}
_EXACT = {"max_bins": None}
_PAPER = {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}  # the threshold of maximum significance
_PAPER_K_MEANS = {"n_estimators": 100, "n_clusters": 256, "output": "assignment", **_PAPER}
# labels of simulated events are true, so no gamma is expected among protons; the cut is not tuned
_SIMULATION = {"n_estimators": 200, "alpha": 1.0, "criterion": "information", "min_samples_leaf": 10}

MODELS: dict[str, Model] = {
    "forest": Model("the default forest", _FOREST, {}),
    "hybrid": Model("forests and references, such as a simulation, weighted by their likelihood", _HYBRID, {}),
    "li-ma-forest": Model("100 trees of depth 6 that split by significance", _FOREST, _LI_MA_FOREST),
    "noisy-forest": Model("100 trees of depth 8 that split by entropy", _FOREST, _NOISY_FOREST),
    "tree": Model("one tree of depth 4", _TREE, {"max_depth": 4}),
    "li-ma-tree": Model("one tree of depth 4 that splits by significance", _TREE, _LI_MA_TREE),
    "k-means": Model("one clustering, 48 clusters", _K_MEANS, {"n_clusters": 48}),
    "k-means-ensemble": Model("the default ensemble of clusterings", _K_MEANS_ENSEMBLE, {}),
    "paper-li-ma-forest": Model(
        "LiMa Forest of the paper: votes of trees, threshold of maximum significance",
        _FOREST,
        {**_LI_MA_FOREST, **_PAPER, "output": "assignment"},
    ),
    "paper-noisy-forest": Model(
        "Noisy Forest of the paper: threshold of maximum significance", _FOREST, {**_NOISY_FOREST, **_PAPER}
    ),
    "paper-li-ma-tree": Model("LiMa Tree of the paper: searches every value", _TREE, {**_LI_MA_TREE, **_EXACT}),
    "paper-noisy-tree": Model("Noisy Tree of the paper: searches every value", _TREE, {**_NOISY_TREE, **_EXACT}),
    "paper-k-means-ensemble": Model(
        "k-means ensemble of the paper: votes of clusterings, threshold of maximum significance",
        _K_MEANS_ENSEMBLE,
        _PAPER_K_MEANS,
    ),
    "open-crab-tree": Model("tree of depth 15 by entropy, as in the open Crab analysis", _TREE, _OPEN_CRAB),
    "open-crab-forest": Model(
        "200 trees of depth 15 by entropy with a cut at 0.5, as in the open Crab analysis", _FOREST, _OPEN_CRAB_FOREST
    ),
    "simulation-forest": Model(
        "200 trees by entropy with leaves of 10 events, for simulated events",
        _FOREST,
        {**_SIMULATION, "max_features": "sqrt", "threshold": 0.5},
    ),
}
"""Models by name. Sizes and depths are the best ones of the paper.

The paper's single trees search every distinct value, as in the paper; all others search 255 bins. Those of the open
Crab analysis are for labelled events.
"""


def make_model(name: str, *, random_state: int | None = None, n_jobs: int | None = None, **options: Any) -> Any:
    """Create an estimator by name.

    Parameters
    ----------
    name : str
        One of ``MODELS``, such as ``"forest"``, ``"li-ma-tree"`` or ``"paper-noisy-forest"``.
    random_state : int or None, default=None
        Random seed.
    n_jobs : int or None, default=None
        Number of threads, for estimators that support it.
    **options
        Other parameters of the estimator, such as ``max_depth`` or ``n_clusters``.

    Returns
    -------
    classifier
        Unfitted estimator.

    Examples
    --------
    >>> from excess.analysis._models import make_model
    >>> make_model("li-ma-tree", random_state=0)
    OnOffTreeClassifier(criterion='li_ma', max_depth=4, random_state=0)
    >>> make_model("k-means", n_clusters=8)
    OnOffKMeansClassifier(n_clusters=8)
    """
    if name not in MODELS:
        hint = "".join(f"; did you mean {near!r}?" for near in get_close_matches(str(name), MODELS, n=1))
        raise ArgumentError("model", f"must be one of {', '.join(MODELS)}, got {name!r}{hint}")
    model = MODELS[name]
    estimator = getattr(excess, model.estimator)(**{**model.parameters, **options})
    settings = {"random_state": random_state, "n_jobs": n_jobs}
    return estimator.set_params(**{key: settings[key] for key in settings if key in estimator.get_params()})


def without_run_settings(estimator: Any) -> Any:
    """Return an estimator without parameters that do not change its results: cores and progress."""
    usual = {"verbose": 0, "n_jobs": None}
    known = estimator.get_params(deep=False)
    changed = {name: value for name, value in usual.items() if known.get(name, value) != value}
    return copy(estimator).set_params(**changed) if changed else estimator
