"""Detection: cross-validation, null tests, verdicts; `excess` has the public names that are not listed here."""

from excess.detection._diagnostics import Verdict, WarningSign, assess_models
from excess.detection._histograms import FeatureHistogram, SkyMap, map_sky
from excess.detection._result import DetectionBins, Exposure, Fold, Nearby, Outcome, models_table, quoted_significance
from excess.detection._simulation_check import FeatureComparison

__all__ = [
    "DetectionBins",
    "Exposure",
    "FeatureComparison",
    "FeatureHistogram",
    "Fold",
    "Nearby",
    "Outcome",
    "SkyMap",
    "Verdict",
    "WarningSign",
    "assess_models",
    "map_sky",
    "models_table",
    "quoted_significance",
]
