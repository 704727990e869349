"""Learn to detect a source from On and Off events alone, by maximising the significance of detection.

>>> import excess
>>> print(excess.OnOffCounts(n_on=20, n_off=25, alpha=0.2))
On 20, Off 25, alpha 0.2: excess 15.0 +- 4.6, 4.4 sigma

What to use when:

- events with On/Off labels to learn from: `OnOffForestClassifier`, `OnOffTreeClassifier` to read the cuts,
  `OnOffKMeansEnsembleClassifier` to let clusters decide;
- counts at hand: `OnOffCounts`, `li_ma_significance`;
- scores at hand: `significance_threshold`, `significance_curve`;
- a scikit-learn classifier to train on On and Off events: `SignificanceThresholdClassifier`;
- a detection to be sure of: `cross_val_detect`, and `null_test` for where there is no source;
- clusters or leaves to label: `assign_cells`;
- predictions to judge: `significance_score`, `corrected_f1_score`.
"""

from excess._version import __version__
from excess.agreement import Agreement, agreement
from excess.assignment import assign_cells
from excess.baselines import (
    default_threshold,
    menon_threshold,
    mithal_threshold,
    yao_threshold,
)
from excess.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.curve import ThresholdCurve, significance_curve
from excess.detection import Detection
from excess.forest import OnOffForestClassifier
from excess.metrics import (
    corrected_f1_score,
    corrected_g_score,
    corrected_precision_score,
    corrected_recall_score,
    count_selected,
    significance_score,
    significance_scorer,
)
from excess.noise import (
    alpha_from_p_minus,
    clean_counts,
    inject_label_noise,
    p_minus_from_alpha,
)
from excess.null_tests import NullTest
from excess.persistence import ModelFileError, load
from excess.significance import (
    OnOffCounts,
    li_ma_p_value,
    li_ma_significance,
    n_on_for_significance,
)
from excess.supervised import supervised_reference
from excess.threshold import SignificanceThresholdClassifier
from excess.tree import OnOffTreeClassifier
from excess.tuning import THRESHOLD_METHODS, significance_threshold, tune_threshold
from excess.validation import cross_val_detect, detect, null_test

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
