"""The targets of ``excess reproduce``: one registry, from a name to the trials it needs and the page it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from excess.reproduction import published
from excess.reproduction.calibration import CALIBRATION, calibration_page
from excess.reproduction.crab import CRAB, CRAB_NULL, label_of
from excess.reproduction.crab_page import agreement_page, crab_page, null_page, roc_page
from excess.reproduction.imbalanced import IMBALANCED, MORE_NOISE
from excess.reproduction.imbalanced_page import critical_difference_page, imbalanced_page
from excess.reproduction.pages import Page
from excess.reproduction.roc import ROC
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Study, Trial

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """One table or figure. Targets that share a study share its trials.

    ``page`` is a function of the rows of each study, by name, the settings, and what the trials are made from.
    """

    description: str
    studies: tuple[Study, ...]
    page: Callable[[Mapping[str, pd.DataFrame], Settings, Mapping[str, Any]], Page]
    wants: Callable[[Trial], bool] = lambda trial: True
    needs_labels: bool = False  # labelled events beside the Crab


def _is_in_agreement_table(trial: Trial) -> bool:
    line = label_of(trial.parameters["model"], trial.parameters["size"])
    return line.startswith("default") or any(line == published_line for published_line, _ in published.AGREEMENT["1"])


TARGETS: dict[str, Target] = {
    "roc": Target("ROC curves on simulated truth", (ROC,), roc_page, needs_labels=True),
    "agreement": Target(
        "correlation with the supervised forest", (CRAB,), agreement_page, _is_in_agreement_table, needs_labels=True
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
