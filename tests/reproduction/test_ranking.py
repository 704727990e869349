"""Ranks and tests against the published diagram, scipy and scikit-posthocs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from excess.reproduction.published import AVERAGES, FORESTS, IMBALANCED, MORE_NOISE
from excess.reproduction.ranking import compare_ranks, wilcoxon_p_value
from excess.stats.p_values import holm

NAMES = ("LiMa", "Noisy", "Menon", "Mithal")


def table_of(cells):
    sets = dict.fromkeys(name for name, _ in cells)
    return np.array([[cells[name, method].mean for method in FORESTS] for name in sets])


def test_published_table_gives_published_diagram():
    found = compare_ranks(table_of(IMBALANCED), NAMES, confidence=0.9)
    # the paper prints 2.5, 1.6, 2.8 and 3.1
    np.testing.assert_allclose(found.ranks, [2.5, 1.55, 2.85, 3.1])
    assert found.p_value_of("Noisy", "Mithal") == pytest.approx(0.082, abs=5e-4)
    assert found.p_value_of("Noisy", "Menon") == pytest.approx(0.098, abs=5e-4)
    assert set(map(frozenset, found.groups)) == {frozenset({"LiMa", "Menon", "Mithal"}), frozenset({"Noisy", "LiMa"})}
    assert found.groups[0] == ("Noisy", "LiMa")
    assert found.friedman_p_value == pytest.approx(0.0356, abs=5e-5)


def test_a_stricter_level_connects_all():
    assert compare_ranks(table_of(IMBALANCED), NAMES, confidence=0.95).groups == (("Noisy", "LiMa", "Menon", "Mithal"),)


def test_published_ranks_with_more_noise():
    found = compare_ranks(table_of(MORE_NOISE), NAMES)
    np.testing.assert_allclose(found.ranks, AVERAGES["imbalanced-more-noise"]["rank"])


def test_published_cells_are_complete():
    assert len(IMBALANCED) == len(MORE_NOISE) == 40
    # the averages that the paper prints follow from its cells, but for the LiMa Forest, where it prints 0.658 and 0.566
    means = table_of(IMBALANCED).mean(axis=0), table_of(MORE_NOISE).mean(axis=0)
    np.testing.assert_allclose(means[0], [0.6517, 0.667, 0.596, 0.554], atol=5e-4)
    np.testing.assert_allclose(means[1], [0.5600, 0.562, 0.426, 0.383], atol=5e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [3, 8, 12])
def test_wilcoxon_without_ties_is_scipys(n, seed):
    d = np.random.default_rng(seed).normal(0.3, 1.0, n)
    assert wilcoxon_p_value(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)


def test_wilcoxon_with_ties_counts_out_all_signs():
    d = np.array([0.1, 0.1, -0.1, 0.2, 0.2, 0.0, -0.3, 0.4])
    ranks = stats.rankdata(np.abs(d[d != 0]))
    observed = min(ranks[d[d != 0] > 0].sum(), ranks[d[d != 0] < 0].sum())
    sums = [sum(r for r, sign in zip(ranks, signs, strict=True) if sign) for signs in product([0, 1], repeat=7)]
    assert wilcoxon_p_value(d) == pytest.approx(min(1.0, 2 * np.mean(np.array(sums) <= observed + 1e-9)))


@pytest.mark.parametrize("decimals", [1, 9])
def test_wilcoxon_of_many_is_near_the_exact_one(monkeypatch, decimals):
    d = np.round(np.random.default_rng(3).normal(0.2, 1.0, 55), decimals)  # scipy is not exact beyond 50
    exact = wilcoxon_p_value(d)
    monkeypatch.setattr("excess.reproduction.ranking._MAX_EXACT", 10)
    near = wilcoxon_p_value(d)
    assert near == pytest.approx(exact, abs=0.01)
    assert near != exact


def test_wilcoxon_edges():
    assert wilcoxon_p_value([0.0, 0.0]) == 1.0
    assert wilcoxon_p_value([1.0]) == 1.0
    # 0.3 - 0.1 and 0.2 are the same difference but for rounding, and none of it is zero
    assert wilcoxon_p_value([0.3 - 0.1, -0.2, 0.1 + 0.2 - 0.3]) == 1.0


@pytest.mark.parametrize("scale", [1e-14, 1.0, 1e14])
def test_ties_do_not_depend_on_the_unit(scale):
    d = np.array([0.3 - 0.1, 0.2, -0.1, 0.5, 0.4, 0.7])
    assert wilcoxon_p_value(scale * d) == pytest.approx(wilcoxon_p_value([2, 2, -1, 5, 4, 7]))
    scores = np.array([[0.1 + 0.2, 0.3, 0.1], [0.5, 0.4, 0.1], [0.6, 0.7, 0.2]])
    np.testing.assert_allclose(compare_ranks(scale * scores, list("abc")).ranks, [1.5, 1.5, 3])


def test_holm_and_friedman_agree_with_outside_oracles():
    posthocs = pytest.importorskip("scikit_posthocs")
    scores = np.random.default_rng(0).normal(size=(12, 5)) + np.arange(5) * 0.4
    found = compare_ranks(scores, list("abcde"))
    pairs = posthocs.posthoc_wilcoxon(list(scores.T), p_adjust="holm").to_numpy()
    off_diagonal = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(found.p_values[off_diagonal], pairs[off_diagonal], rtol=1e-9)
    assert found.friedman_p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    np.testing.assert_allclose(holm([0.5, 0.9, 0.6]), [1.0, 1.0, 1.0])


def test_tied_friedman_is_scipys():
    scores = np.round(np.random.default_rng(1).normal(size=(9, 4)), 0)
    assert compare_ranks(scores, list("abcd")).friedman_p_value == pytest.approx(
        stats.friedmanchisquare(*scores.T).pvalue
    )


def test_equal_methods_are_one_group():
    found = compare_ranks(np.ones((5, 3)), list("abc"))
    assert found.groups == (("a", "b", "c"),)
    assert found.friedman_p_value == 1.0
    np.testing.assert_array_equal(found.ranks, [2, 2, 2])


@pytest.mark.parametrize(
    ("scores", "names", "said"),
    [
        ([[1.0, 2.0]], "ab", "two or more"),
        ([[1.0], [2.0]], "a", "two or more"),
        ([[1.0, 2.0], [1.0, 3.0]], "abc", "2 different names"),
        ([[1.0, 2.0], [1.0, 3.0]], "aa", "2 different names"),
        ([[1.0, np.nan], [1.0, 3.0]], "ab", "scores"),
    ],
)
def test_bad_scores_are_refused(scores, names, said):
    with pytest.raises(ValueError, match=said):
        compare_ranks(scores, list(names))
