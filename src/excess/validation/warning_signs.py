"""Warning signs: what counts of On and Off show that no source explains, each in a sentence that says what to do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtrc, expit

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.folds import groups_are_apart
from excess.stats.counts import OnOffCounts
from excess.validation.judged import JudgedDetection, alphas_of
from excess.validation.outcome import count_events

__all__ = ["WarningSign", "find_warning_signs", "weigh_source"]

_LARGEST_DEFICIT = -4.0
"""Signed significance below which a deficit is not chance."""
_LARGE_EXCESS = 12.0
"""Significance of all events from which features, or angles, show a source as well (benchmarks/verdicts.py)."""
_SMALLEST_CONTRAST = 3.0
"""Significance from which features and angles tell the excess from the background."""
_SWAPPED_FACTOR = 1.25
"""How far On/Off may be from 1/alpha where the two are swapped."""
_CERTAIN = 5.0
"""Significance from which selected events have more than 1/alpha On events for each Off event."""
_P_OF_GROUPS = 1e-5
"""Probability below which groups contradict one ratio of On to Off."""
_MIN_EXPECTED = 10.0
"""Expected On events from which a group, or several neighbours together, enter the chi-squared."""


class WarningSign(NamedTuple):
    """Something that no source explains.

    Attributes
    ----------
    code : str
        What it is, for scripts: ``"swapped"``, ``"deficit"``, ``"unexplained-excess"``, ``"rejected-deficit"``,
        ``"alpha-by-group"`` or ``"null-test"``.
    sentence : str
        What was found, and what to do.
    numbers : dict of str to float
        The numbers behind it.
    """

    code: str
    sentence: str
    numbers: dict[str, float]


def find_warning_signs(found: JudgedDetection) -> tuple[WarningSign, ...]:
    """Return what no source explains in the hold-out events of a detection; usually nothing."""
    totals = _check_totals(found)
    # where there are too few On events as a whole, too few of them are rejected as well
    too_few = totals is not None and totals.numbers["excess"] < 0
    signs = (totals, None if too_few else _check_rejected(found), _check_groups(found))
    return tuple(sign for sign in signs if sign is not None)


def _check_totals(found: JudgedDetection) -> WarningSign | None:
    """Look at all events: On and Off swapped, a deficit, or an excess that is distributed like the background."""
    counts = found.uncut
    significance = counts.significance
    if counts.n_on + counts.n_off == 0:
        return None
    ratio = counts.n_on / counts.n_off if counts.n_off else float("inf")
    numbers = {**_numbers(counts), "alpha": counts.alpha, "on_off_ratio": ratio}
    if _look_swapped(ratio, counts.alpha) and abs(significance) > _LARGE_EXCESS and not _is_strong_source(found):
        return WarningSign(
            "swapped",
            f"There are {counts.n_on:,} On and {counts.n_off:,} Off events, On/Off = {ratio:.3g}, where alpha is "
            f"{counts.alpha:.3g}: On and Off are swapped, or alpha is the inverse of what it should be. Swap them.",
            numbers,
        )
    if significance < _LARGEST_DEFICIT:
        return WarningSign(
            "deficit",
            f"All events together have a deficit of {-significance:.1f} sigma, {counts.n_on:,} On events where alpha "
            f"times Off is {counts.background:,.0f}, and no source makes a deficit. Check alpha, which is "
            f"{counts.alpha:.3g}, where On/Off is {ratio:.3g}; and whether a source lies in an Off region.",
            numbers,
        )
    if significance <= _LARGE_EXCESS or weigh_source(found) >= _SMALLEST_CONTRAST:
        return None
    known = "feature" if found.theta is None else "feature or angle"
    return WarningSign(
        "unexplained-excess",
        f"All events together have an excess of {significance:.1f} sigma, but no {known} tells it from the "
        f"background ({max(weigh_source(found), 0.0):.1f} sigma): a wrong alpha looks like that. Check alpha, which is "
        f"{counts.alpha:.3g}, where On/Off is {ratio:.3g}.",
        {**numbers, "contrast": weigh_source(found)},
    )


def _look_swapped(ratio: float, alpha: float) -> bool:
    """Say whether On/Off is 1/alpha rather than alpha."""
    if not 0 < ratio < np.inf:
        return False
    width = np.log(_SWAPPED_FACTOR)
    return bool(abs(np.log(ratio * alpha)) < width < abs(np.log(ratio / alpha)) / 2)


def _is_strong_source(found: JudgedDetection) -> bool:
    """Say whether a strong source explains that On/Off is 1/alpha: its events are On, and the others are in balance.

    Where On and Off are swapped, what is called On is background alone, so that no events have more than 1/alpha On
    events for each Off event. Where alpha is the inverse of what it should be, background-like events have 1/alpha.
    """
    chosen = [found.selected] if found.ratio is None else [found.selected, found.held_out & (found.ratio > 1)]
    if not any(count_events(found.on, own, 1 / alphas_of(found)).significance > _CERTAIN for own in chosen):
        return False
    others = _count(found, _background_like(found))
    return (others.n_on < others.n_off) == (others.alpha < 1)  # 1 is midway between alpha and its inverse


def _check_rejected(found: JudgedDetection) -> WarningSign | None:
    """Look at the events that are not selected: where they have a deficit, more excess was selected than there is."""
    chosen = {"the cut selects": found.selected}
    if found.ratio is not None:
        chosen["are more likely signal than background"] = found.held_out & (found.ratio > 1)
    worst = None
    for what, mask in chosen.items():
        selected, rejected = _count(found, mask), _count(found, found.held_out & ~mask)
        limit = _LARGEST_DEFICIT if worst is None else worst[2].significance
        if selected.excess > 0 and rejected.significance < limit:
            worst = what, selected, rejected
    if worst is None:
        return None
    what, selected, rejected = worst
    every = found.uncut
    return WarningSign(
        "rejected-deficit",
        f"Events that {what} have an excess of {_excess_text(selected)}, all events together only "
        f"{_excess_text(every)}: the others have a deficit of {-rejected.significance:.1f} sigma, and no source makes "
        "one. A feature differs between On and Off for another reason than a source: compare its distributions, and "
        "leave it out.",
        {
            "selected_excess": selected.excess,
            "selected_excess_error": selected.excess_error,
            "rejected_significance": rejected.significance,
            **_numbers(every),
        },
    )


def _check_groups(found: JudgedDetection) -> WarningSign | None:
    """Look at the ratio of On to Off events from group to group.

    A source may vary. So where the features show one, the ratio of background-like events must be steady. Where On and
    Off were observed in different groups, a group has no such ratio.
    """
    if found.groups is None or groups_are_apart(found.groups, found.on):
        return None
    every = found.held_out
    used = every if _contrast(found) < _SMALLEST_CONTRAST else every & _background_like(found)
    parts = (
        [every] if found.observations is None else [found.observations == one for one in np.unique(found.observations)]
    )
    total, n_free = 0.0, 0
    relative: dict[Any, float] = {}
    for part in parts:
        chi_squared, free, own = _compare_groups(found, used & part)
        total, n_free, relative = total + chi_squared, n_free + free, {**own, **relative}
    p_value = float(chdtrc(n_free, total)) if n_free else 1.0
    if p_value >= _P_OF_GROUPS:
        return None
    low, high = min(relative, key=relative.__getitem__), max(relative, key=relative.__getitem__)
    which = "" if used is every else "background-like "
    return WarningSign(
        "alpha-by-group",
        f"The ratio of {which}On to Off events differs by group: it is {relative[low]:.2f} times the common one "
        f"in {low} and {relative[high]:.2f} times in {high} (chi-squared {total:.0f} for {n_free} degrees of freedom, "
        f"p = {p_value:.1g}). Unless the source varies so much, one alpha does not hold for all: give the "
        "exposure ratio of each group, or leave out groups where the regions were not equally exposed.",
        {
            "chi_squared": total,
            "n_degrees_of_freedom": n_free,
            "p_value": p_value,
            "smallest_ratio": relative[low],
            "largest_ratio": relative[high],
        },
    )


def _background_like(found: JudgedDetection) -> BoolArray:
    """Return the lower half of the events of each fold, by score; where a score says nothing, all of them."""
    chosen = np.zeros(len(found.on), dtype=np.bool_)
    for number in range(len(found.folds)):
        own = found.fold == number
        known = found.score[own & np.isfinite(found.score)]
        if len(known):
            chosen |= own & (found.score <= np.median(known))
    return chosen


def _compare_groups(found: JudgedDetection, used: BoolArray) -> tuple[float, int, dict[Any, float]]:
    """Return chi-squared and degrees of freedom of a common On/Off ratio in units of alpha, and the ratio by group."""
    if not used.any() or found.groups is None:
        return 0.0, 0, {}
    names, number = np.unique(found.groups[used], return_inverse=True)
    on, alpha = found.on[used], np.broadcast_to(alphas_of(found), len(found.on))[used]
    n_on = np.bincount(number[on], minlength=len(names)).astype(np.float64)
    n_all = np.bincount(number, minlength=len(names)).astype(np.float64)
    mean_alpha = np.bincount(number, alpha, minlength=len(names)) / n_all
    if not 0 < n_on.sum() < n_all.sum():
        return 0.0, 0, {}
    log_alpha = np.log(mean_alpha)
    shift = brentq(lambda t: float((n_all * expit(log_alpha + t)).sum() - n_on.sum()), -50.0, 50.0)
    expected, variance = _moments(n_all, log_alpha + shift)
    cell = _merge_small(expected)
    off = np.maximum(n_all - n_on, 1.0)
    relative = dict(zip(names.tolist(), (n_on / off / (mean_alpha * np.exp(shift))).tolist(), strict=True))
    difference, spread = np.bincount(cell, n_on - expected), np.bincount(cell, variance)
    return float((difference**2 / spread).sum()), len(spread) - 1, relative


def _moments(n_all: FloatArray, log_odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the number of On events in each group, given all of its events."""
    p = expit(log_odds)
    return n_all * p, n_all * p * (1 - p)


def _merge_small(expected: FloatArray) -> NDArray[np.int64]:
    """Return the number of the cell of each group; neighbours share one until enough On events are expected."""
    cell, filled = np.zeros(len(expected), dtype=np.int64), 0.0
    current = 0
    for number, own in enumerate(expected):
        cell[number] = current
        filled += own
        if filled >= _MIN_EXPECTED:
            current, filled = current + 1, 0.0
    if filled and current:  # what is left over belongs to the last full cell
        cell[cell == current] = current - 1
    return cell


def weigh_source(found: JudgedDetection) -> float:
    """Return the significance with which features, and angles where they are known, tell On from Off.

    It takes the ratio of On to Off events for alpha, so that an excess by a wrong alpha does not count.
    """
    features, angles = _contrast(found), _inner_contrast(found)
    return features if np.isnan(angles) else max(features, (features + angles) / 2**0.5)


def _contrast(found: JudgedDetection) -> float:
    """Return the larger of the significances with which features tell On from Off."""
    return float(np.nanmax(list(found.contrasts.values())))


def _inner_contrast(found: JudgedDetection) -> float:
    """Return the significance with which On events are nearer to their centre than Off events; NaN if unknown."""
    if found.theta is None or found.theta_squared_cut is None:
        return float("nan")
    # not every pointing has every Off region, and its angle is NaN then
    angle = np.where(found.on, found.theta[:, 0], np.fmin.reduce(found.theta[:, 1:], axis=1))
    counts = found.uncut
    without_excess = alphas_of(found) * (counts.n_on / counts.background)
    inner = found.held_out & (angle**2 < found.theta_squared_cut / 2)
    return count_events(found.on, inner, without_excess).significance


def _count(found: JudgedDetection, mask: BoolArray) -> OnOffCounts:
    return count_events(found.on, mask, alphas_of(found))


def _numbers(counts: OnOffCounts) -> dict[str, float]:
    """Return what all events together show."""
    return {
        "n_on": counts.n_on,
        "n_off": counts.n_off,
        "excess": counts.excess,
        "excess_error": counts.excess_error,
        "significance": counts.significance,
    }


def _excess_text(counts: OnOffCounts) -> str:
    return f"{counts.excess:,.0f} +- {counts.excess_error:,.0f}"
