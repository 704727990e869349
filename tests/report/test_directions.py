"""Events beyond the cut on theta^2: in the likelihood, but in no count; and the fitted point spread function."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import run_command

from excess import OnOffTreeClassifier, cross_val_detect, on_off_likelihood
from excess.analysis import read_run
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.report import plot_theta_squared
from excess.report._content import ModelContent
from excess.report._page import explore
from excess.report._series import (
    detection_steps,
    fitted_profile,
    likelihood_bins,
    score_histogram,
    significance_over_time,
    theta_squared_histogram,
)


@pytest.fixture(scope="module")
def wide(observation):
    """A detection with events beyond the cut."""
    events, nearby = observation.widen(), observation.nearby
    found = cross_val_detect(
        OnOffTreeClassifier(max_depth=3, min_samples_leaf=30),
        events.X,
        events.on,
        alpha=events.exposure_ratio,
        groups=events.groups,
        nearby=(nearby.X, nearby.groups),
        direction=events.direction,
    )
    found = events.annotate(found)
    assert np.count_nonzero(~found.core) > 1000
    return found


def test_events_beyond_the_cut_are_in_no_count(wide, observation):
    uncut = (np.count_nonzero(observation.on == 1), np.count_nonzero(observation.on == 0))
    assert (wide.uncut.n_on, wide.uncut.n_off) == uncut
    assert not wide.selected[~wide.core].any()
    for threshold in (None, -np.inf):
        shown = theta_squared_histogram(wide, threshold)
        counts = wide.counts if threshold is None else wide.uncut
        assert (shown.on[:10].sum(), shown.off[:10].sum()) == (counts.n_on, counts.n_off)
    # each nearby event is once in the histogram, also if it is beyond the cut and in the likelihood
    near = wide.nearby.theta[:, 0] ** 2
    assert shown.on[10:].sum() == np.count_nonzero((near >= shown.edges[10]) & (near < shown.edges[-1]))
    assert (score_histogram(wide).on.sum(), score_histogram(wide).off.sum()) == uncut
    assert explore(wide)["n_on"][0] == f"{uncut[0]:,}"
    assert detection_steps(wide)[1][0] == pytest.approx(wide.uncut.significance)
    assert wide.features[0].before.n_on.sum() == uncut[0]
    assert wide.summary()["n_events"] == wide.summary()["n_held_out"] == sum(uncut)
    assert wide.summary()["n_beyond_cut"] == np.count_nonzero(~wide.core)
    assert sum(fold.n_held_out for fold in wide.folds) == sum(uncut)
    assert wide.to_frame()["core"].sum() == sum(uncut)


def test_plots_of_the_likelihood_have_all_of_its_events(wide):
    shown = likelihood_bins(wide)
    assert (shown.n_on.sum(), shown.n_off.sum()) == (wide.on.sum(), (~wide.on).sum())
    assert shown.signal.sum() == pytest.approx(wide.likelihood.n_signal)
    curve = significance_over_time(wide)
    first = np.argsort(wide.time, kind="stable")
    steps = np.diff(wide.time[first], prepend=wide.time[first[0]])
    hours = np.cumsum(np.where(steps > 900, 0.0, steps)) / 3600
    so_far = first[: np.searchsorted(hours, curve.exposure[24], side="right")]
    expected = on_off_likelihood(wide.on[so_far].astype(int), wide.ratio[so_far], alpha=wide.alpha)
    assert curve.significance[24] == pytest.approx(expected.significance, abs=1e-6)
    assert curve.significance[-1] == wide.significance
    by_cut = significance_over_time(replace(wide, statistic="cut"))
    assert by_cut.significance[-1] == wide.counts.significance


def test_the_fitted_profile_has_the_on_events_of_the_cut(wide):
    shown = theta_squared_histogram(wide)
    squared, height = fitted_profile(wide, wide.counts, shown.edges)
    inside = squared <= wide.theta_squared_cut * (1 + 1e-9)
    total = np.trapezoid(height[inside], squared[inside]) / (shown.edges[1] - shown.edges[0])
    assert total == pytest.approx(wide.counts.n_on, rel=0.01)
    assert height[0] > height[-1] > wide.counts.background / 10
    ax = plot_theta_squared(wide)
    [line] = [one for one in ax.get_lines() if one.get_label() == "fitted profile"]
    np.testing.assert_array_equal(line.get_ydata(), height)
    assert ax.get_ylim()[1] > height.max()
    radius, error = wide.containment_radius
    assert abs(radius - 0.151) < 3 * error  # as simulated
    box = ax.get_legend().get_title().get_text()
    for number in (
        f"{wide.counts.significance:.1f} σ inside the cut (pooled)",
        f"excess {wide.counts.excess:,.1f} ± {wide.counts.excess_error:,.1f}",
        f"On {wide.counts.n_on:,}, Off {wide.counts.n_off:,}, α = 0.2",
        f"within {radius:.3f} ± {error:.3f} deg",
    ):
        assert number in box


def test_nothing_is_drawn_of_a_profile_that_was_not_fitted(wide):
    expected = replace(wide, point_spread=replace(wide.point_spread, n_events=0))
    for other in (expected, replace(wide, point_spread=None), replace(wide, selected=wide.selected & ~wide.on)):
        ax = plot_theta_squared(other)
        assert "fitted profile" not in [one.get_label() for one in ax.get_lines()]
        assert "within" not in ax.get_legend().get_title().get_text()
    assert expected.containment_radius is None


def test_numbers_of_the_page(wide):
    content = ModelContent("", wide)
    values = {row.label: row.value for group in content.numbers for row in group["rows"]}
    radius, error = wide.containment_radius
    assert values["Containment radius"] == f"{radius:.3f} ± {error:.3f} deg"
    assert values["Hold-out events"] == f"{np.count_nonzero(wide.core):,}"
    assert values["Beyond the cut in θ²"] == f"{np.count_nonzero(~wide.core):,}"
    assert not any("training only" in sentence for sentence in content.missing)
    weak = ModelContent("", replace(wide, required_significance=1000.0))
    assert "Containment radius" not in {row.label for group in weak.numbers for row in group["rows"]}


def test_blocks_without_a_model_are_named(wide):
    first = replace(wide, strategy="forward", folds=(wide.folds[0]._replace(n_train=0), *wide.folds[1:]))
    assert ModelContent("", first).tables["folds"].rows[0][1] == "no model yet"
    applied = ModelContent("", replace(first, strategy="applied"))
    assert applied.tables["folds"].rows[0][1] == "elsewhere"


def test_a_run_stores_and_prints_the_radius(tmp_path, capsys):
    simulate_observation(40_000, 500, random_state=2).to_parquet(tmp_path / "events.parquet")
    folder = tmp_path / "run"
    options = ("-m", "tree", "--no-null-test", "-o", folder)
    assert run_command("detect", tmp_path / "events.parquet", *options) == 0
    found = json.loads((folder / "result.json").read_text())["models"]["tree"]
    radius, error = found["point_spread"]["radius"], found["point_spread"]["radius_error"]
    out = " ".join(capsys.readouterr().out.split())
    assert f"68 % of the signal within {radius:.3f} +- {error:.3f} deg." in out
    assert "only for training" not in out
    written = (folder / "report.html").read_bytes()
    assert run_command("report", folder, "--csv", tmp_path / "tables", "--plots", "svg") == 0
    assert (folder / "report.html").read_bytes() == written
    again = read_run(folder).detections["tree"]
    assert again.containment_radius == (radius, error)
    assert (again.significance, again.counts.n_on) == (found["significance"], found["n_on"])
    table = pd.read_csv(tmp_path / "tables" / "events.csv")
    assert table["core"].sum() == found["n_held_out"] == found["n_events"]
    assert not table.loc[~table["core"], "tree_selected"].any()
    groups = pd.read_csv(tmp_path / "tables" / "groups.csv")
    assert groups["n_on"].sum() == found["n_on"]


def test_a_ring_has_a_note():
    crab = (83.6333, 22.0133)
    table = simulate_observation(20_000, 100, source=crab, random_state=0)
    settings = {"source_ra": crab[0], "source_dec": crab[1]}
    regions = {
        method: OnOffDataset.from_files(table, AnalysisConfig(regions={"method": method, **settings}))
        for method in ("ring", "reflected")
    }
    assert regions["ring"].direction is None
    assert "have no centre" in str(regions["ring"])
    assert any("have no centre" in note for note in regions["ring"].summary()["notes"])
    assert "centre" not in str(regions["reflected"])
