"""Classifiers of On and Off events, and the files that hold them."""

from excess.estimators.binned import OnOffBinnedClassifier
from excess.estimators.calibration import SignalCalibration
from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators.event_weights import exposure_weights
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.hybrid import HybridMember, OnOffHybridClassifier
from excess.estimators.model_file import ModelFileError, load
from excess.estimators.onnx_export import export_onnx
from excess.estimators.onnx_model import OnnxClassifier
from excess.estimators.supervised import supervised_reference
from excess.estimators.threshold import SignificanceThresholdClassifier
from excess.estimators.tree import OnOffTreeClassifier

__all__ = [
    "HybridMember",
    "ModelFileError",
    "OnOffBinnedClassifier",
    "OnOffForestClassifier",
    "OnOffHybridClassifier",
    "OnOffKMeansClassifier",
    "OnOffKMeansEnsembleClassifier",
    "OnOffTreeClassifier",
    "OnnxClassifier",
    "SignalCalibration",
    "SignificanceThresholdClassifier",
    "export_onnx",
    "exposure_weights",
    "load",
    "supervised_reference",
]
