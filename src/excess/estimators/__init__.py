"""Classifiers of On and Off events and their model files; public names are exported by `excess`."""

from excess.estimators import _onnx as _onnx  # imports, and thereby registers, all classes of model files
from excess.estimators._base import SignalCalibration
from excess.estimators._hybrid import HybridMember

__all__ = ["HybridMember", "SignalCalibration"]
