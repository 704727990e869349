"""The report: one HTML page with a detection, and plots for papers."""

from excess.report.bin_plots import plot_bins
from excess.report.efficiency_plot import plot_efficiency
from excess.report.feature_plots import plot_feature_histograms, plot_feature_importances
from excess.report.files import PLOT_FORMATS, write_plots
from excess.report.group_plots import plot_excess_rate, plot_light_curve
from excess.report.likelihood_plots import plot_likelihood
from excess.report.null_plots import plot_null_test
from excess.report.page import write_report
from excess.report.plots import (
    plot_score_histogram,
    plot_significance_over_time,
    plot_theta_squared,
    plot_threshold_curve,
)
from excess.report.simulation_plots import plot_simulation_agreement
from excess.report.sky_plots import plot_sky_map

__all__ = [
    "PLOT_FORMATS",
    "plot_bins",
    "plot_efficiency",
    "plot_excess_rate",
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
