"""Validation: the significance of hold-out events, null tests, and the agreement of classifiers."""

from excess.validation.agreement import Agreement, agreement
from excess.validation.cross_validation import cross_val_detect, cross_val_thresholds, detect
from excess.validation.detection import Detection, Fold, Nearby
from excess.validation.null_tests import NullTest, null_test
from excess.validation.outcome import Outcome

__all__ = [
    "Agreement",
    "Detection",
    "Fold",
    "Nearby",
    "NullTest",
    "Outcome",
    "agreement",
    "cross_val_detect",
    "cross_val_thresholds",
    "detect",
    "null_test",
]
