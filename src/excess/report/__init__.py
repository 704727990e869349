"""The report: one HTML page with a detection, and plots for papers."""

from excess.report._figures import (
    plot_bins,
    plot_efficiency,
    plot_feature_histograms,
    plot_feature_importances,
    plot_light_curve,
    plot_likelihood,
    plot_null_test,
    plot_score_histogram,
    plot_significance_over_time,
    plot_simulation_agreement,
    plot_sky_map,
    plot_theta_squared,
    plot_threshold_curve,
)
from excess.report._page import write_plots, write_report

__all__ = [
    "plot_bins",
    "plot_efficiency",
    "plot_feature_histograms",
    "plot_feature_importances",
    "plot_light_curve",
    "plot_likelihood",
    "plot_null_test",
    "plot_score_histogram",
    "plot_significance_over_time",
    "plot_simulation_agreement",
    "plot_sky_map",
    "plot_theta_squared",
    "plot_threshold_curve",
    "write_plots",
    "write_report",
]
