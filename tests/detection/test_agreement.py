import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from excess import agreement


@pytest.mark.parametrize("seed", range(5))
def test_against_scipy(seed):
    rng = np.random.default_rng(seed)
    soft, reference = rng.normal(size=200), rng.normal(size=200).round(1)
    for score in (soft, soft > 0.3, (soft > 0).astype(int)):
        found = agreement(score, reference)
        assert found.pearson == pytest.approx(pearsonr(score, reference).statistic, abs=1e-12)
        assert found.spearman == pytest.approx(spearmanr(score, reference).statistic, abs=1e-12)
        assert found.n_events == 200


def test_two_crisp_selections():
    a, b = np.array([1, 1, 0, 0, 1, 0], dtype=bool), np.array([1, 1, 0, 1, 0, 0], dtype=bool)
    found = agreement(a, b)
    assert found.pearson == pytest.approx(found.spearman) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert agreement(a, a).pearson == pytest.approx(1)
    assert agreement(a, ~a).spearman == pytest.approx(-1)


def test_unjudged_events_are_left_out_and_counted():
    found = agreement([np.nan, 0.1, 0.4, 0.9], [0.3, 0.2, np.nan, 0.8])
    assert found.n_events == 2
    assert found.pearson == pytest.approx(1)


@pytest.mark.parametrize("score", [[0.5, 0.5, 0.5], [np.nan, np.nan, 0.1], [1 / 3, 1 / 3, 1 / 3]])
def test_constant_scores_have_no_correlation(score):
    found = agreement(score, [0.1, 0.2, 0.3])
    assert np.isnan(found.pearson)
    assert np.isnan(found.spearman)


@pytest.mark.parametrize(
    ("score", "reference", "argument"),
    [
        ([0.1, np.inf], [0.1, 0.2], "score"),
        ([0.1, 0.2], [0.1], "score and reference"),
        ([["a"], ["b"]], [0.1, 0.2], "score"),
        ([0.1, 0.2], [[0.1, 0.2]], "reference"),
    ],
)
def test_bad_input(score, reference, argument):
    with pytest.raises(ValueError, match=argument):
        agreement(score, reference)
