"""Classifiers of On and Off events and their model files; `excess` has the public names that are not listed here."""

from excess.estimators import _onnx as _onnx  # imports, and so registers, all classes of model files
from excess.estimators._base import SignalCalibration
from excess.estimators._hybrid import HybridMember

__all__ = ["HybridMember", "SignalCalibration"]
