"""Statistics of On and Off counts and of scores: significance, noise, curves, thresholds, assignment and metrics."""

from excess.stats.assignment import assign_cells
from excess.stats.baselines import default_threshold, menon_threshold, mithal_threshold, yao_threshold
from excess.stats.counts import OnOffCounts
from excess.stats.curve import ThresholdCurve, significance_curve
from excess.stats.fractions import EventFraction, event_fraction
from excess.stats.likelihood import OnOffLikelihood, on_off_likelihood
from excess.stats.metrics import (
    corrected_f1_score,
    corrected_g_score,
    corrected_precision_score,
    corrected_recall_score,
    count_selected,
    significance_score,
    significance_scorer,
)
from excess.stats.noise import alpha_from_p_minus, clean_counts, inject_label_noise, p_minus_from_alpha
from excess.stats.significance import joint_significance, li_ma_p_value, li_ma_significance, n_on_for_significance
from excess.stats.thresholds import THRESHOLD_METHODS, f1_threshold, significance_threshold, tune_threshold

__all__ = [
    "THRESHOLD_METHODS",
    "EventFraction",
    "OnOffCounts",
    "OnOffLikelihood",
    "ThresholdCurve",
    "alpha_from_p_minus",
    "assign_cells",
    "clean_counts",
    "corrected_f1_score",
    "corrected_g_score",
    "corrected_precision_score",
    "corrected_recall_score",
    "count_selected",
    "default_threshold",
    "event_fraction",
    "f1_threshold",
    "inject_label_noise",
    "joint_significance",
    "li_ma_p_value",
    "li_ma_significance",
    "menon_threshold",
    "mithal_threshold",
    "n_on_for_significance",
    "on_off_likelihood",
    "p_minus_from_alpha",
    "significance_curve",
    "significance_score",
    "significance_scorer",
    "significance_threshold",
    "tune_threshold",
    "yao_threshold",
]
