"""Validation: the significance of hold-out events, null tests, the agreement of classifiers and of simulations."""

from excess.validation.agreement import Agreement, agreement
from excess.validation.cross_validation import cross_val_detect, cross_val_thresholds
from excess.validation.detection import Detection
from excess.validation.detection_bins import DetectionBins
from excess.validation.detection_parts import Fold, Nearby
from excess.validation.exposure import Exposure
from excess.validation.feature_comparison import FeatureComparison
from excess.validation.feature_histograms import FeatureHistogram
from excess.validation.fitted_models import detect
from excess.validation.null_tests import NullTest, null_test
from excess.validation.outcome import Outcome
from excess.validation.simulation_agreement import SimulationAgreement, simulation_agreement
from excess.validation.sky_map import SkyMap, map_sky
from excess.validation.verdict import Verdict, judge
from excess.validation.warning_signs import WarningSign

__all__ = [
    "Agreement",
    "Detection",
    "DetectionBins",
    "Exposure",
    "FeatureComparison",
    "FeatureHistogram",
    "Fold",
    "Nearby",
    "NullTest",
    "Outcome",
    "SimulationAgreement",
    "SkyMap",
    "Verdict",
    "WarningSign",
    "agreement",
    "cross_val_detect",
    "cross_val_thresholds",
    "detect",
    "judge",
    "map_sky",
    "null_test",
    "simulation_agreement",
]
