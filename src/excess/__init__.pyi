from . import analysis as analysis
from . import config as config
from . import dataset as dataset
from . import detection as detection
from . import estimators as estimators
from . import io as io
from . import out_of_core as out_of_core
from . import report as report
from . import stats as stats
from ._utils.version import __version__
from .dataset._dataset import OnOffDataset
from .detection._cross_validation import cross_val_detect, holdout_detect
from .detection._diagnostics import Agreement, agreement, assess
from .detection._null_test import NullTest, null_test
from .detection._result import Detection
from .detection._simulation_check import SimulationAgreement, simulation_agreement
from .estimators._base import exposure_weights
from .estimators._binned import OnOffBinnedClassifier
from .estimators._hybrid import OnOffHybridClassifier
from .estimators._kmeans import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from .estimators._model_file import ModelFileError, load
from .estimators._onnx import OnnxClassifier, export_onnx
from .estimators._random_forest import OnOffForestClassifier
from .estimators._threshold import SignificanceThresholdClassifier, likelihood_scorer, supervised_reference
from .estimators._tree import OnOffTreeClassifier
from .stats._direction import Direction
from .stats._likelihood import OnOffLikelihood, hours_to_significance, on_off_likelihood, sensitivity, signal_limits
from .stats._noise import (
    alpha_from_p_minus,
    clean_counts,
    corrected_f1_score,
    corrected_g_score,
    corrected_precision_score,
    corrected_recall_score,
    count_selected,
    inject_label_noise,
    p_minus_from_alpha,
    significance_score,
    significance_scorer,
)
from .stats._sideband import SidebandFit, fit_sidebands
from .stats._significance import (
    OnOffCounts,
    best_of,
    joint_significance,
    li_ma_p_value,
    li_ma_significance,
    n_on_for_significance,
)
from .stats._thresholds import (
    THRESHOLD_METHODS,
    ThresholdCurve,
    assign_cells,
    default_threshold,
    f1_threshold,
    menon_threshold,
    mithal_threshold,
    significance_curve,
    significance_threshold,
    tune_threshold,
    yao_threshold,
)

__all__ = [
    "THRESHOLD_METHODS",
    "Agreement",
    "Detection",
    "Direction",
    "ModelFileError",
    "NullTest",
    "OnOffBinnedClassifier",
    "OnOffCounts",
    "OnOffDataset",
    "OnOffForestClassifier",
    "OnOffHybridClassifier",
    "OnOffKMeansClassifier",
    "OnOffKMeansEnsembleClassifier",
    "OnOffLikelihood",
    "OnOffTreeClassifier",
    "OnnxClassifier",
    "SidebandFit",
    "SignificanceThresholdClassifier",
    "SimulationAgreement",
    "ThresholdCurve",
    "__version__",
    "agreement",
    "alpha_from_p_minus",
    "assess",
    "assign_cells",
    "best_of",
    "clean_counts",
    "corrected_f1_score",
    "corrected_g_score",
    "corrected_precision_score",
    "corrected_recall_score",
    "count_selected",
    "cross_val_detect",
    "default_threshold",
    "export_onnx",
    "exposure_weights",
    "f1_threshold",
    "fit_sidebands",
    "holdout_detect",
    "hours_to_significance",
    "inject_label_noise",
    "joint_significance",
    "li_ma_p_value",
    "li_ma_significance",
    "likelihood_scorer",
    "load",
    "menon_threshold",
    "mithal_threshold",
    "n_on_for_significance",
    "null_test",
    "on_off_likelihood",
    "p_minus_from_alpha",
    "sensitivity",
    "signal_limits",
    "significance_curve",
    "significance_score",
    "significance_scorer",
    "significance_threshold",
    "simulation_agreement",
    "supervised_reference",
    "tune_threshold",
    "yao_threshold",
]
