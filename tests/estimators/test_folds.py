"""Folds: blocks of groups with both classes, and the order of groups forward in time."""

import numpy as np
import pytest

from excess import OnOffTreeClassifier, cross_val_detect
from excess._utils.checks import number_groups
from excess.estimators._base import block_groups, fold_maker, make_folds

LABELS = np.array([f"run_{number}" for number in range(1, 13)])


@pytest.mark.parametrize(("n_on", "n_off", "expected"), [(4, 4, 4), (2, 7, 2), (9, 9, 5), (12, 3, 3)])
def test_blocks_hold_equal_shares_of_both_classes(n_on, n_off, expected):
    size = np.random.default_rng(0).integers(150, 250, n_on + n_off)
    groups = np.repeat(np.arange(n_on + n_off), size)
    on = groups < n_on
    blocks = block_groups(groups, on)
    assert len(np.unique(blocks)) == expected
    for group in range(n_on + n_off):
        assert len(np.unique(blocks[groups == group])) == 1
    for own in (on, ~on):
        share = np.bincount(blocks[own]) / np.count_nonzero(own)
        assert share.min() > 0.5 / expected


def test_groups_that_lack_a_class_by_chance_stay():
    rng = np.random.default_rng(0)
    for _ in range(200):
        groups = np.repeat(np.arange(60), rng.integers(1, 40, 60))
        on = rng.random(len(groups)) < rng.choice([0.1, 0.17, 0.5])
        assert block_groups(groups, on) is groups


def test_small_runs_of_one_class_each_are_put_together():
    groups = np.repeat(np.arange(100), 5)
    on = groups % 2 == 0
    assert len(np.unique(block_groups(groups, on))) == 5
    for train, held_out in make_folds(3, groups[:, np.newaxis], on.astype(int), {"groups": groups}):
        assert 0.4 < on[held_out].mean() < 0.6
        assert 0.4 < on[train].mean() < 0.6


def test_more_folds_than_blocks_are_refused():
    groups = np.repeat(np.arange(8), 100)
    on = (groups < 3).astype(int)
    with pytest.raises(ValueError, match="cv must be at most 3, got 4"):
        fold_maker(4, "pooled", on[:, np.newaxis], on, 1, groups)


def test_texts_are_in_the_order_of_their_numbers():
    names, number = number_groups(LABELS[::-1])
    assert names.tolist() == LABELS.tolist()
    assert number.tolist() == list(range(11, -1, -1))
    assert number_groups(np.array([3, 1, 2]))[0].tolist() == [1, 2, 3]
    assert number_groups(np.array(["b", "a1c10", "a1c9"], dtype=object))[0].tolist() == ["a1c9", "a1c10", "b"]


def test_times_decide_unless_they_start_again_in_every_group():
    groups = np.repeat([2, 1, 3], 10)
    assert number_groups(groups, np.arange(30.0))[0].tolist() == [2, 1, 3]
    assert number_groups(groups, np.tile(np.arange(10.0), 3))[0].tolist() == [1, 2, 3]
    assert number_groups(groups, np.full(30, np.nan))[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("with_time", [True, False])
def test_forward_goes_through_texts_in_time(with_time):
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(12), 60)
    groups = np.array([f"night_{11 - one}" if with_time else f"night_{one}" for one in number])
    on = rng.integers(0, 2, len(number))
    found = cross_val_detect(
        OnOffTreeClassifier(max_depth=2, alpha=1.0),
        rng.normal(size=(len(number), 2)),
        on,
        alpha=1.0,
        groups=groups,
        time=np.arange(len(number)) if with_time else None,
        strategy="forward",
    )
    # the blocks follow each other, and each is a twentieth of the events
    assert (np.diff(found.fold) >= 0).all()
    assert np.bincount(found.fold).tolist() == 20 * [36]


@pytest.mark.parametrize("n_repeats", [1, 4])
def test_forward_draws_blocks_where_on_and_off_are_apart(n_repeats):
    on = np.tile(np.repeat([1, 0], 500 // n_repeats), n_repeats)
    X = np.random.default_rng(0).normal(size=(len(on), 2))
    found = cross_val_detect(OnOffTreeClassifier(max_depth=2, alpha=1.0), X, on, alpha=1.0, strategy="forward")
    assert any("drawn at random" in remark for remark in found.remarks)
    assert np.bincount(found.fold[on == 1], minlength=20).min() > 10


@pytest.mark.parametrize("n_groups", [20, 21, 4000])
def test_many_groups_share_folds(n_groups):
    groups = np.repeat(np.arange(n_groups), np.random.default_rng(0).integers(1, 9, n_groups))
    on = (np.arange(len(groups)) % 4 == 0).astype(int)
    folds = fold_maker(None, "pooled", on[:, np.newaxis], on, 1, groups)(on, 0)
    assert len(folds) == 20
    for train, held_out in folds:
        assert not set(groups[train]) & set(groups[held_out])
    sizes = [len(held_out) for _, held_out in folds]
    assert sum(sizes) == len(on)
    if n_groups == 4000:
        assert max(sizes) < 1.02 * min(sizes)
    # folds do not depend on labels
    other = fold_maker(None, "pooled", on[:, np.newaxis], on[::-1].copy(), 1, groups)(on[::-1].copy(), 0)
    assert all(np.array_equal(one[1], another[1]) for one, another in zip(folds, other, strict=True))
    assert len(fold_maker(7, "pooled", on[:, np.newaxis], on, 1, groups)(on, 0)) == 7
