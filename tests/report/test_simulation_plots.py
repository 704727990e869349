from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from excess import simulation_agreement
from excess.report import plot_simulation_agreement
from excess.report.style import OFF, ON


@pytest.fixture(scope="module")
def found():
    """Five features, one of them positive and skewed, one of whole numbers."""
    rng = np.random.default_rng(0)

    def draw(n, shift=0.0):
        normal = rng.normal([shift, 0, 0], size=(n, 3))
        return np.column_stack([normal, rng.lognormal(1, 1.5, n), rng.poisson(3, n)])

    X, y = np.concatenate([draw(3600), draw(400, -2.0)]), np.repeat([0, 1], [3000, 1000])
    gammas = draw(5000, -2.0) + np.array([0, 0.6, 0, 0, 0])
    names = ["width", "length", "price in $", "size", "islands"]
    return simulation_agreement(
        X,
        y,
        gammas,
        draw(5000),
        alpha=0.2,
        estimator=LogisticRegression(max_iter=1000),
        feature_names=names,
        random_state=0,
    )


def test_panels_show_the_distributions_worst_first(found):
    axes = plot_simulation_agreement(found, n_features=5)
    assert len(axes) == 10
    assert len({ax.figure for ax in axes}) == 1
    for ax, one in zip(axes, found.comparisons, strict=True):
        assert ax.get_xlabel() == one.feature.replace("$", r"\$")
        points, _, errors = ax.containers[0]
        np.testing.assert_array_equal(points.get_ydata(), one.observed)
        bars = np.array(errors[0].get_segments())
        np.testing.assert_allclose((bars[:, 1, 1] - bars[:, 0, 1]) / 2, one.observed_error)
        band, steps = (patch.get_data() for patch in ax.patches)
        np.testing.assert_array_equal(steps.values, one.simulated)
        np.testing.assert_array_equal(steps.edges, one.edges)
        np.testing.assert_allclose(band.values - band.baseline, 2 * one.simulated_error)
        assert points.get_color() == (ON if one.sample == "signal" else OFF)
        assert ax.get_xscale() == ("log" if one.logarithmic else "linear")
        assert f"shift {one.shift:+.2f}" in ax.get_title()
        assert f"(adjusted {one.adjusted_p_value:.1g})" in ax.get_title()
        assert ax.get_title().startswith("differs") == one.flagged
    assert [ax.get_title().startswith("differs") for ax in axes] == [True] + [False] * 9
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        r"On - $\alpha$ Off, by P(signal)",
        "simulated gammas, by P(signal)",
        "Off",
        "simulated protons",
    ]


def test_whole_numbers_have_bins_of_their_own(found):
    (islands,) = (one for one in found.of_sample("background") if one.feature == "islands")
    np.testing.assert_allclose(islands.edges % 1, 0.5)


def test_number_of_features_and_file(found, tmp_path):
    axes = plot_simulation_agreement(found, n_features=2, path=tmp_path / "check.svg")
    assert len(axes) == 4
    assert (tmp_path / "check.svg").read_text().startswith("<?xml")
    alone = replace(found, comparisons=found.of_sample("background"))
    assert len(plot_simulation_agreement(alone, n_features=1)) == 1


def test_nothing_overlaps(found):
    """Titles, labels and tick labels of neighbouring panels stay apart."""
    axes = plot_simulation_agreement(found)
    figure = axes[0].figure
    figure.draw_without_rendering()
    boxes = [ax.get_tightbbox() for ax in axes]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        for tick, other in zip(axes[number].get_xticklabels()[:-1], axes[number].get_xticklabels()[1:], strict=True):
            assert not tick.get_window_extent().overlaps(other.get_window_extent()) or not other.get_text()


def test_bad_arguments_are_named(found, tmp_path):
    with pytest.raises(TypeError, match="agreement must be a SimulationAgreement, got dict"):
        plot_simulation_agreement(found.to_dict())
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        plot_simulation_agreement(found, n_features=0)
    with pytest.raises(ValueError, match="a plot is saved as"):
        plot_simulation_agreement(found, path=tmp_path / "check.bmp")
    nothing = replace(found, comparisons=(), remark="No excess.")
    with pytest.raises(ValueError, match="the agreement has nothing to plot: No excess"):
        plot_simulation_agreement(nothing)
