"""The targets of ``excess reproduce``: one registry, from a name to the trials it needs and the page it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excess.reproduction.calibration import CALIBRATION, calibration_page
from excess.reproduction.crab import CRAB, CRAB_NULL
from excess.reproduction.crab_page import agreement_page, crab_page, null_page, roc_page
from excess.reproduction.imbalanced import IMBALANCED, MORE_NOISE
from excess.reproduction.imbalanced_page import critical_difference_page, imbalanced_page
from excess.reproduction.roc import ROC
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Study, Trial

if TYPE_CHECKING:
    import pandas as pd

    from excess.reproduction.pages import Page

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """One table or figure.

    Attributes
    ----------
    says : str
        What it is, in one line.
    studies : tuple of Study
        Whose trials it shows. Targets that share a study share its trials.
    page : callable
        From the rows of each study, by name, settings, and what the trials are made from, to a page.
    wants : callable
        Which of the trials it needs.
    needs_labels : bool
        Whether it needs labelled events beside the Crab.
    """

    says: str
    studies: tuple[Study, ...]
    page: Callable[[Mapping[str, pd.DataFrame], Settings, Mapping[str, Any]], Page]
    wants: Callable[[Trial], bool] = lambda trial: True
    needs_labels: bool = False


AGREEMENT_MODELS = {
    ("li-ma-tree", 4),
    ("li-ma-tree", 6),
    ("li-ma-forest", 4),
    ("li-ma-forest", 6),
    ("k-means", 32),
    ("k-means", 128),
    ("k-means-ensemble", 32),
    ("k-means-ensemble", 128),
    ("default-forest", 0),
    ("default-k-means-ensemble", 0),
}
"""Models and sizes of the paper's table of agreement, and our own."""


def _agreement_wants(trial: Trial) -> bool:
    return (trial.parameters["model"], trial.parameters["size"]) in AGREEMENT_MODELS


TARGETS: dict[str, Target] = {
    "roc": Target("ROC curves on simulated truth", (ROC,), roc_page, needs_labels=True),
    "agreement": Target(
        "correlation with the supervised forest", (CRAB,), agreement_page, _agreement_wants, needs_labels=True
    ),
    "crab": Target("Table I, full version: significance of the Crab Nebula", (CRAB,), crab_page),
    "crab-null": Target("the same with a fake On region", (CRAB_NULL,), null_page),
    "imbalanced": Target("F1 on ten imbalanced sets, p_plus = 0.1", (IMBALANCED,), imbalanced_page),
    "imbalanced-more-noise": Target("the same with p_plus = 0.25", (MORE_NOISE,), imbalanced_page),
    "critical-difference": Target(
        "ranks on these sets, and which methods differ", (IMBALANCED, MORE_NOISE), critical_difference_page
    ),
    "calibration": Target("do significances mean what they say?", (CALIBRATION,), calibration_page),
}
"""Targets by name, in the order in which ``all`` runs them."""
