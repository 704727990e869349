"""The exact assignment of cells, against brute force over all subsets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excess import assign_cells, li_ma_significance


def _significance(assignment, n_on, n_off, alpha):
    return li_ma_significance(n_on[assignment].sum(), n_off[assignment].sum(), alpha)


def _best_over_all_subsets(n_on, n_off, alpha):
    subsets = np.array(list(itertools.product([0, 1], repeat=len(n_on))))
    return li_ma_significance(subsets @ n_on, subsets @ n_off, alpha).max()


@pytest.mark.slow
@pytest.mark.parametrize("k", range(1, 13))
def test_equals_brute_force(k):
    """1,008 random tables in all, with empty cells, pure cells and ties among them."""
    rng = np.random.default_rng(k)
    for trial in range(84):
        scale = (2, 20, 200)[trial % 3]
        n_on, n_off = rng.integers(0, scale, (2, k)) * rng.integers(0, 2, (2, k))
        alpha = (0.05, 0.2, 1.0, 7.0)[trial % 4]
        best = _best_over_all_subsets(n_on, n_off, alpha)
        assignment = assign_cells(n_on, n_off, alpha)
        assert _significance(assignment, n_on, n_off, alpha) == pytest.approx(best, rel=1e-12, abs=1e-12)


CELLS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=30)


@given(CELLS, st.sampled_from([0.1, 1.0, 3.0]), st.randoms(use_true_random=False))
def test_does_not_depend_on_the_order_of_cells(cells, alpha, random):
    n_on, n_off = np.array(cells).T
    order = list(range(len(cells)))
    random.shuffle(order)
    np.testing.assert_array_equal(
        assign_cells(n_on[order], n_off[order], alpha), assign_cells(n_on, n_off, alpha)[order]
    )


@given(CELLS, st.sampled_from([0.1, 1.0, 3.0]))
def test_splitting_a_cell_into_equal_ones_changes_nothing(cells, alpha):
    n_on, n_off = np.array(cells).T
    whole = assign_cells(2 * n_on, 2 * n_off, alpha)
    halves = assign_cells(np.tile(n_on, 2), np.tile(n_off, 2), alpha)
    np.testing.assert_array_equal(halves, np.tile(whole, 2))


def test_nothing_is_selected_without_an_excess():
    assert not assign_cells([0, 1, 2], [0, 50, 80], alpha=0.2).any()
    assert not assign_cells([1, 2], [5, 10], alpha=0.2).any()


def test_empty_cells_are_never_selected():
    np.testing.assert_array_equal(assign_cells([5, 0], [1, 0], 1.0), [True, False])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1], 1.0), r"n_on and n_off must have the same length, got len\(n_on\) = 2, len\(n_off\) = 1"),
        (([1, -2], [1, 1], 1.0), "n_on must not be negative"),
        (([1, 2], [1, 1], 0.0), "alpha must be positive"),
        (([1, 2], [1, 1], [0.1, 0.2]), "alpha must be one number"),
        (([[1, 2]], [[1, 1]], 1.0), "n_on must be one-dimensional"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        assign_cells(*arguments)
