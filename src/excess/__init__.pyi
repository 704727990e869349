from . import analysis as analysis
from . import distributed as distributed
from . import estimators as estimators
from . import events as events
from . import observation as observation
from . import report as report
from . import reproduction as reproduction
from . import stats as stats
from . import validation as validation
from ._core.version import __version__
from .estimators import (
    ModelFileError,
    OnOffForestClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    load,
    supervised_reference,
)
from .stats import (
    THRESHOLD_METHODS,
    OnOffCounts,
    ThresholdCurve,
    alpha_from_p_minus,
    assign_cells,
    clean_counts,
    corrected_f1_score,
    corrected_g_score,
    corrected_precision_score,
    corrected_recall_score,
    count_selected,
    default_threshold,
    inject_label_noise,
    li_ma_p_value,
    li_ma_significance,
    menon_threshold,
    mithal_threshold,
    n_on_for_significance,
    p_minus_from_alpha,
    significance_curve,
    significance_score,
    significance_scorer,
    significance_threshold,
    tune_threshold,
    yao_threshold,
)
from .validation import Agreement, Detection, NullTest, agreement, cross_val_detect, detect, null_test

__all__ = [
    "THRESHOLD_METHODS",
    "Agreement",
    "Detection",
    "ModelFileError",
    "NullTest",
    "OnOffCounts",
    "OnOffForestClassifier",
    "OnOffKMeansClassifier",
    "OnOffKMeansEnsembleClassifier",
    "OnOffTreeClassifier",
    "SignificanceThresholdClassifier",
    "ThresholdCurve",
    "__version__",
    "agreement",
    "alpha_from_p_minus",
    "assign_cells",
    "clean_counts",
    "corrected_f1_score",
    "corrected_g_score",
    "corrected_precision_score",
    "corrected_recall_score",
    "count_selected",
    "cross_val_detect",
    "default_threshold",
    "detect",
    "inject_label_noise",
    "li_ma_p_value",
    "li_ma_significance",
    "load",
    "menon_threshold",
    "mithal_threshold",
    "n_on_for_significance",
    "null_test",
    "p_minus_from_alpha",
    "significance_curve",
    "significance_score",
    "significance_scorer",
    "significance_threshold",
    "supervised_reference",
    "tune_threshold",
    "yao_threshold",
]
