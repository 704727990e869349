"""Diagnostics of a detection: verdict and warnings, agreement of classifiers, histograms of features, sky map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import convolve
from scipy.optimize import brentq, minimize_scalar
from scipy.special import chdtrc, expit
from scipy.stats import rankdata

from excess._utils.checks import BoolArray, FloatArray, as_array, as_column, as_floats, check_same_length
from excess.estimators._base import groups_are_apart
from excess.stats._significance import OnOffCounts, li_ma_significance

if TYPE_CHECKING:
    from excess.detection._null_test import NullTest
    from excess.detection._result import Detection, Outcome


STATUSES = ("detected", "not confirmed", "no detection", "doubtful")
"""Statuses of a verdict, the best first; doubtful if there are warnings, for any significance."""
_REQUIRED_IMPROVEMENT = 2.0  # by how many errors learning must improve upon all events without a cut
_REQUIRED_CONTRAST = 2.0
"""Significance with which features must separate On from Off, if only alpha supports an excess of all events."""
_LARGEST_DEFICIT = -4.0  # signed significance below which a deficit is not chance
_LARGE_EXCESS = 12.0
"""Significance of all events from which features, or angles, show a source as well (studies/verdicts.py)."""
_SMALLEST_CONTRAST = 3.0  # significance from which features and angles separate the excess from the background
_SWAPPED_FACTOR = 1.25  # how far On/Off may be from 1/alpha where the two are swapped
_CERTAIN = 5.0  # significance from which selected events have more than 1/alpha On events for each Off event
_P_OF_GROUPS = 1e-5  # probability below which groups contradict one ratio of On to Off
_P_OF_VARIABILITY = 1e-3  # probability below which a source is reported as variable
_LARGEST_FACTOR = 20.0  # by which alpha is changed to bring a significance below the required one
_LARGEST_DEVIATION = 4.0  # between the given alpha and that of the background, in standard errors
_LARGEST_LEAK = 0.25  # signal among the background by inexact likelihood ratios, as a fraction of the signal
_MAX_CELLS = 40  # groups that are compared; neighbours are merged where there are more
_MIN_EXPECTED = 10.0  # expected On events from which a group, or several neighbours together, enter the chi-squared


class WarningSign(NamedTuple):
    """Something that no source explains: a code for scripts, a sentence, and the numbers behind it."""

    code: str
    sentence: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """The meaning of a search: one of `STATUSES`, a sentence with the numbers, and warnings."""

    status: str
    sentence: str
    warnings: tuple[WarningSign, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether a source is detected without warnings."""
        return self.status == "detected"

    def summary(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        warnings = [one._asdict() for one in self.warnings]
        return {"status": self.status, "verdict": self.sentence, "feasible": self.feasible, "warnings": warnings}

    def __str__(self) -> str:
        """Return the warnings, and the sentence after them."""
        return "\n".join([*(f"Warning: {one.sentence}" for one in self.warnings), self.sentence])


def assess(detection: Detection, forward: Outcome | None = None, null_test: NullTest | None = None) -> Verdict:
    """Return the verdict on a search.

    Parameters
    ----------
    detection : Detection
        Result of the search.
    forward : Outcome or None, default=None
        Forward result next to a pooled detection, which must reach the required significance as well.
    null_test : NullTest or None, default=None
        Result of searches where there is no source. A suspicious one makes the verdict doubtful; any other one confirms
        alpha, so counts alone may be a detection.

    Returns
    -------
    Verdict
        A status, a sentence, and warnings.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess import assess
    >>> X, y = make_classification(3000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> tree = OnOffTreeClassifier(max_depth=3, random_state=0)
    >>> found = cross_val_detect(tree, X, on, alpha=1 / 5, random_state=0)
    >>> assess(found).status
    'detected'
    >>> assess(cross_val_detect(tree, X, on, alpha=1, random_state=0)).warnings[0].code
    'deficit'
    """
    warnings = _find_warnings(detection)
    if null_test is not None and null_test.suspicious:
        farthest = float(np.abs(null_test.significances).max())
        numbers = {"p_value": null_test.p_value, "largest_significance": farthest}
        warnings += (WarningSign("null-test", null_test.verdict, numbers),)
    required, uncut = detection.required_significance, detection.uncut.significance
    quoted = detection.significance if forward is None else forward.significance
    by = "by the likelihood of all" if detection.statistic == "likelihood" else "in the selected"
    ahead = "" if forward is None else f", {forward.significance:.1f} forward"
    found = f"{detection.significance:.1f} sigma {by} hold-out events{ahead}, {required:g} required"
    if warnings:
        why = "the warning is" if len(warnings) == 1 else f"the {len(warnings)} warnings are"
        return Verdict("doubtful", f"{found}: doubtful. Claim nothing before {why} explained.", warnings)
    if not (quoted >= required or detection.significance >= required):
        what = "nothing was selected" if detection.outcome.empty else "no detection"
        return Verdict(
            "no detection",
            f"{found}: {what}. Learning from these labels is not shown to be feasible: On may have no more signal than "
            "Off, or too few events.",
        )
    if not quoted >= required:
        return Verdict(
            "not confirmed",
            f"{found}: not confirmed. The forward value is the one to quote, and it does not reach what is required.",
        )
    contrast = _weigh_source(detection)
    if null_test is None and uncut >= required and contrast < _REQUIRED_CONTRAST:
        return Verdict(
            "not confirmed",
            f"{found}: not confirmed. All events without a cut have {uncut:.1f} sigma, but the features do not tell it "
            f"from the background ({max(contrast, 0.0):.1f} sigma), as with a wrong alpha: check it, or make a null "
            "test.",
        )
    more = _describe_learning(detection), _describe_variability(detection), _describe_alpha(detection)
    return Verdict("detected", f"{found}: On has more signal than Off{''.join(more)}")


def assess_models(
    detections: Mapping[str, Detection], forward: Mapping[str, Outcome], null_tests: Mapping[str, NullTest]
) -> dict[str, Verdict]:
    """Return the verdict on each model; one without a null test takes the first, for models share the regions."""
    first = next(iter(null_tests.values()), None)
    return {name: assess(found, forward.get(name), null_tests.get(name, first)) for name, found in detections.items()}


def _describe_learning(detection: Detection) -> str:
    """Describe whether learning improved upon all events without a cut by more than chance does."""
    if detection.strategy == "applied":
        return "."
    uncut = detection.uncut.significance
    gain, error = detection.significance - uncut, _improvement_error(detection)
    if gain > _REQUIRED_IMPROVEMENT * error:
        return ", and it could be learned from these labels."
    return (
        f", but learning added nothing beyond its error: all events without a cut have {uncut:.1f} sigma, and the "
        f"difference is {gain:.1f} +- {error:.1f}."
    )


def _describe_variability(detection: Detection) -> str:
    """Return a sentence if the source varies from group to group by more than chance."""
    constancy = None if detection.ratio is None else detection.constancy
    if constancy is None or constancy.p_value >= _P_OF_VARIABILITY:
        return ""
    return f" It varies from group to group (probability of a steady source {constancy.p_value:.1g})."


def _describe_alpha(detection: Detection) -> str:
    """Return a sentence about the error of alpha that would bring the significance below the required one."""
    required, ratio = detection.required_significance, detection.exposure_ratio

    def significance(factor: float) -> float:
        found = detection.likelihood_of(detection.in_likelihood, ratio * factor)
        by_cut = detection.statistic == "cut" or found is None
        counts = detection.count(detection.selected, ratio * factor) if by_cut else None
        return (counts.significance if counts is not None else found.significance) - required  # type: ignore[union-attr]

    if not significance(1.0) > 0:
        return ""
    if significance(_LARGEST_FACTOR) > 0:
        return f" No alpha up to {_LARGEST_FACTOR:g} times the given one brings it below {required:g} sigma."
    factor = brentq(significance, 1.0, _LARGEST_FACTOR, xtol=1e-3)
    return f" Alpha would have to be {100 * (factor - 1):.0f} % larger to bring it below {required:g} sigma."


class AlphaFit(NamedTuple):
    """Exposure ratio from the events themselves, in units of the given one, where signal of any strength is allowed."""

    factor: float
    error: float  # of its logarithm
    n_signal: float
    significance: float  # of a signal where alpha is not known


def fit_alpha(found: Detection) -> AlphaFit | None:
    """Fit the exposure ratio together with the signal; None if there are no likelihood ratios, or one class only."""
    mask = found.in_likelihood
    if found.ratio is None or not 0 < np.count_nonzero(found.on & mask) < np.count_nonzero(mask):
        return None
    at, best = _best_scale(lambda scale: _profile(found, mask, scale))
    n_on, odds = int(np.count_nonzero(found.on & mask)), np.broadcast_to(found.exposure_ratio, mask.shape)[mask]
    # without a signal, all events are in balance
    balance = brentq(lambda t: float(expit(np.log(odds) + t).sum()) - n_on, -20.0, 20.0)
    without = _background_log_likelihood(found, mask, balance)
    step = 0.02
    curvature = (2 * best - _profile(found, mask, at - step) - _profile(found, mask, at + step)) / step**2
    fitted = found.likelihood_of(mask, found.exposure_ratio * np.exp(at))
    assert fitted is not None
    error = curvature**-0.5 if curvature > 0 else np.inf
    return AlphaFit(
        float(np.exp(at)), float(error), max(fitted.n_signal, 0.0), float(np.sqrt(2 * max(best - without, 0)))
    )


def _profile(found: Detection, mask: BoolArray, scale: float) -> float:
    """Return the log-likelihood of labels with alpha times exp(scale), at the best signal strength from 0."""
    fitted = found.likelihood_of(mask, found.exposure_ratio * np.exp(scale))
    assert fitted is not None
    return 0.5 * max(fitted.significance, 0.0) ** 2 + _background_log_likelihood(found, mask, scale)


def _background_log_likelihood(found: Detection, mask: BoolArray, scale: float) -> float:
    """Return the log-likelihood of labels without a signal, with alpha times exp(scale)."""
    log_odds = np.broadcast_to(np.log(found.exposure_ratio), mask.shape)[mask] + scale
    return float(log_odds[found.on[mask]].sum() - np.logaddexp(0.0, log_odds).sum())


def _best_scale(profile: Callable[[float], float]) -> tuple[float, float]:
    """Return the logarithm of the factor of alpha with the largest log-likelihood, and this."""
    found = minimize_scalar(
        lambda scale: -profile(scale), bounds=(-4.0, 4.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(found.x), -float(found.fun)


def _improvement_error(detection: Detection) -> float:
    """Return the error of the difference between the significance and that of all events without a cut."""
    weights = detection.selected if detection.statistic == "cut" or detection.ratio is None else detection.ratio
    own = np.asarray(weights[detection.held_out], dtype=np.float64)
    own = own[np.isfinite(own)]
    square = float(np.mean(own**2)) if len(own) else 0.0
    correlation = float(own.mean()) / square**0.5 if square > 0 else 0.0
    return float((2 * max(0.0, 1 - correlation)) ** 0.5)


def _find_warnings(found: Detection) -> tuple[WarningSign, ...]:
    """Return what no source explains in the hold-out events of a detection; usually nothing."""
    totals = _check_totals(found)
    # where there are too few On events as a whole, too few of them are rejected as well
    too_few = totals is not None and totals.numbers["excess"] < 0
    rejected, groups = None if too_few else _check_rejected(found), _check_groups(found)
    signs = [totals, rejected, groups]
    if not any(signs):  # each of them is also a reason for another alpha
        signs = [_check_alpha(found)]
    return tuple(sign for sign in signs if sign is not None)


def _check_totals(found: Detection) -> WarningSign | None:
    """Check all events: On and Off swapped, a deficit, or an excess that is distributed like the background."""
    counts = found.uncut
    significance = counts.significance
    if counts.n_on + counts.n_off == 0:
        return None
    ratio = counts.n_on / counts.n_off if counts.n_off else float("inf")
    numbers = {**counts.summary(), "alpha": counts.alpha, "on_off_ratio": ratio}
    width = np.log(_SWAPPED_FACTOR)
    swapped = 0 < ratio < np.inf and (
        abs(np.log(ratio * counts.alpha)) < width < abs(np.log(ratio / counts.alpha)) / 2  # 1/alpha rather than alpha
    )
    if swapped and abs(significance) > _LARGE_EXCESS and not _is_strong_source(found):
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
    if significance <= _LARGE_EXCESS or (contrast := _weigh_source(found)) >= _SMALLEST_CONTRAST:
        return None
    known = "feature" if found.theta is None else "feature or angle"
    return WarningSign(
        "unexplained-excess",
        f"All events together have an excess of {significance:.1f} sigma, but no {known} tells it from the "
        f"background ({max(contrast, 0.0):.1f} sigma): a wrong alpha looks like that. Check alpha, which is "
        f"{counts.alpha:.3g}, where On/Off is {ratio:.3g}.",
        {**numbers, "contrast": contrast},
    )


def _check_alpha(found: Detection) -> WarningSign | None:
    """Check alpha against the events that are no signal by their features and angles."""
    fit = found.alpha_fit
    if fit is None or not fit.error > 0:
        return None
    deviation = np.log(fit.factor) / fit.error
    expected = np.broadcast_to(found.exposure_ratio, found.on.shape)[found.in_likelihood & ~found.on].sum()
    # likelihood ratios that are not exact leave some signal among the background
    leaked = (fit.factor - 1) * float(expected) <= _LARGEST_LEAK * fit.n_signal
    # without a visible signal, a source like the background is as good an explanation
    unclear = fit.significance < _SMALLEST_CONTRAST or leaked
    # inexact likelihood ratios also change the fit, but not the counts of events that are least like signal
    counted = found.count(_background_like(found) & found.held_out).significance
    if min(deviation * np.sign(counted), abs(counted)) < _LARGEST_DEVIATION or (deviation > 0 and unclear):
        return None
    given = found.alpha
    return WarningSign(
        "alpha",
        f"Events that are no signal by their features and angles suggest alpha = {given * fit.factor:.3g} +- "
        f"{given * fit.factor * fit.error:.2g}, and {given:.3g} is given: they differ by {abs(deviation):.0f} sigma. "
        "Check the exposure of On and Off, and whether both passed the same cuts.",
        {**found.uncut.summary(), "alpha": given, "fitted_alpha": given * fit.factor, "deviation": float(deviation)},
    )


def _is_strong_source(found: Detection) -> bool:
    """Return whether a strong source explains that On/Off is 1/alpha: its events are On, and the others in balance."""
    inverse = 1 / found.exposure_ratio
    if not any(found.count(own, inverse).significance > _CERTAIN for own in _signal_like(found).values()):
        return False
    others = found.count(_background_like(found))
    return (others.n_on < others.n_off) == (others.alpha < 1)  # 1 is midway between alpha and its inverse


def _signal_like(found: Detection) -> dict[str, BoolArray]:
    """Return the selected events, and those of a likelihood ratio above 1, by what they are called in a sentence."""
    chosen = {"the cut selects": found.selected}
    if found.ratio is not None:
        chosen["are more likely signal than background"] = found.held_out & (found.ratio > 1)
    return chosen


def _check_rejected(found: Detection) -> WarningSign | None:
    """Check the rejected events: where they have a deficit, more excess was selected than there is."""
    worst = None
    for what, mask in _signal_like(found).items():
        selected, rejected = found.count(mask), found.count(found.held_out & ~mask)
        limit = _LARGEST_DEFICIT if worst is None else worst[2].significance
        if selected.excess > 0 and rejected.significance < limit:
            worst = what, selected, rejected
    if worst is None:
        return None
    what, selected, rejected = worst
    return WarningSign(
        "rejected-deficit",
        f"Events that {what} have an excess of {_excess_text(selected)}, all events together only "
        f"{_excess_text(found.uncut)}: the others have a deficit of {-rejected.significance:.1f} sigma, and no source "
        "makes one. A feature differs between On and Off for another reason than a source: compare its distributions, "
        "and leave it out.",
        {
            "selected_excess": selected.excess,
            "selected_excess_error": selected.excess_error,
            "rejected_significance": rejected.significance,
            **found.uncut.summary(),
        },
    )


def _excess_text(counts: OnOffCounts) -> str:
    return f"{counts.excess:,.0f} +- {counts.excess_error:,.0f}"


def _check_groups(found: Detection) -> WarningSign | None:
    """Check the ratio of On to Off events from group to group, where each group may have its own signal."""
    if found.groups is None or groups_are_apart(found.groups, found.on):
        return None
    quiet = found.held_out
    if float(np.nanmax(list(found.contrasts.values()))) >= _SMALLEST_CONTRAST:
        quiet = quiet & _background_like(found)
    total, n_free, relative = _sum_observations(_compare_groups, found, quiet)
    if found.ratio is not None and chdtrc(max(n_free, 1), total) < _P_OF_GROUPS:
        # a variable source may also be among the events that are least like signal
        total, n_free, relative = _sum_observations(_compare_alphas, found, found.in_likelihood)
    p_value = float(chdtrc(n_free, total)) if n_free else 1.0
    if p_value >= _P_OF_GROUPS:
        return None
    low, high = min(relative, key=relative.__getitem__), max(relative, key=relative.__getitem__)
    which = "" if found.ratio is None else "background "
    return WarningSign(
        "alpha-by-group",
        f"The ratio of {which}On to Off events differs by group: it is {relative[low]:.2f} times the common one "
        f"in {low} and {relative[high]:.2f} times in {high} (chi-squared {total:.0f} for {n_free} degrees of freedom, "
        f"p = {p_value:.1g}), so one alpha is not right for all: give the exposure ratio of each group, or leave out "
        "groups where the regions were not equally exposed.",
        {
            "chi_squared": total,
            "n_degrees_of_freedom": n_free,
            "p_value": p_value,
            "smallest_ratio": relative[low],
            "largest_ratio": relative[high],
        },
    )


def _sum_observations(
    compare: Callable[..., tuple[float, int, dict[Any, float]]], found: Detection, used: BoolArray
) -> tuple[float, int, dict[Any, float]]:
    """Return the sums of chi-squared and degrees of freedom over observations, and the ratios of all groups."""
    names = found.observations
    parts = [used] if names is None else [used & (names == one) for one in np.unique(names)]
    compared = [compare(found, found.groups, part) for part in parts]
    relative = {name: value for *_, own in reversed(compared) for name, value in own.items()}
    return sum(one[0] for one in compared), sum(one[1] for one in compared), relative


def _background_like(found: Detection) -> BoolArray:
    """Return the lower half of the events of each fold, by score; all of them where scores are equal."""
    chosen = np.zeros(len(found.on), dtype=np.bool_)
    for number in range(len(found.folds)):
        own = found.fold == number
        known = found.score[own & np.isfinite(found.score)]
        if len(known):
            chosen |= own & (found.score <= np.median(known))
    return chosen


def _compare_groups(found: Detection, groups: NDArray[Any], used: BoolArray) -> tuple[float, int, dict[Any, float]]:
    """Return chi-squared and degrees of freedom of a common On/Off ratio in units of alpha, and the ratio by group."""
    if not used.any():
        return 0.0, 0, {}
    names, number = np.unique(groups[used], return_inverse=True)
    on, alpha = found.on[used], np.broadcast_to(found.exposure_ratio, len(found.on))[used]
    n_on = np.bincount(number[on], minlength=len(names)).astype(np.float64)
    n_all = np.bincount(number, minlength=len(names)).astype(np.float64)
    mean_alpha = np.bincount(number, alpha, minlength=len(names)) / n_all
    if not 0 < n_on.sum() < n_all.sum():
        return 0.0, 0, {}
    log_alpha = np.log(mean_alpha)
    shift = brentq(lambda t: float((n_all * expit(log_alpha + t)).sum() - n_on.sum()), -50.0, 50.0)
    p_on = expit(log_alpha + shift)  # of an event of each group, given all of its events
    cell = _merge_small(n_all * p_on)
    off = np.maximum(n_all - n_on, 1.0)
    relative = dict(zip(names.tolist(), (n_on / off / (mean_alpha * np.exp(shift))).tolist(), strict=True))
    difference, spread = np.bincount(cell, n_on - n_all * p_on), np.bincount(cell, n_all * p_on * (1 - p_on))
    return float((difference**2 / spread).sum()), len(spread) - 1, relative


def _compare_alphas(found: Detection, groups: NDArray[Any], used: BoolArray) -> tuple[float, int, dict[Any, float]]:
    """Return the same for the exposure ratio of the background, where the signal of each group is free."""
    names, number = np.unique(groups[used], return_inverse=True)
    n_on = np.bincount(number[found.on[used]], minlength=len(names)).astype(np.float64)
    cell = _merge_small(n_on, max(_MIN_EXPECTED, n_on.sum() / _MAX_CELLS))
    rows, of_event = np.flatnonzero(used), cell[number]
    masks = []
    for one in range(int(cell.max()) + 1):
        mask = np.zeros(len(used), dtype=np.bool_)
        mask[rows[of_event == one]] = True
        if 0 < np.count_nonzero(found.on & mask) < np.count_nonzero(mask):
            masks.append((one, mask))
    if len(masks) < 2:
        return 0.0, 0, {}
    common, value = _best_scale(lambda scale: sum(_profile(found, mask, scale) for _, mask in masks))
    own = {one: _best_scale(partial(_profile, found, mask)) for one, mask in masks}
    relative = {
        name: float(np.exp(own[one][0] - common))
        for name, one in zip(names.tolist(), cell.tolist(), strict=True)
        if one in own
    }
    return 2 * max(sum(best for _, best in own.values()) - value, 0.0), len(masks) - 1, relative


def _merge_small(expected: FloatArray, least: float = _MIN_EXPECTED) -> NDArray[np.int64]:
    """Return the number of the cell of each group; neighbours share one until enough On events are expected."""
    cell, current, filled = np.zeros(len(expected), dtype=np.int64), 0, 0.0
    for number, own in enumerate(expected):
        cell[number] = current
        filled += own
        if filled >= least:
            current, filled = current + 1, 0.0
    if filled and current:  # the remaining groups belong to the last full cell
        cell[cell == current] = current - 1
    return cell


def _weigh_source(found: Detection) -> float:
    """Return the significance with which features, and angles where they are known, separate On from Off."""
    features, angles = float(np.nanmax(list(found.contrasts.values()))), _inner_contrast(found)
    free = 0.0 if found.alpha_fit is None else found.alpha_fit.significance
    return max(free, features if np.isnan(angles) else max(features, (features + angles) / 2**0.5))


def _inner_contrast(found: Detection) -> float:
    """Return the significance with which On events are nearer to their centre than Off events; NaN if unknown.

    Where Off events have no centre, as in a ring, half of the On events would be in the inner half of the region.
    """
    angle, cut = found.own_theta, found.theta_squared_cut
    if angle is None and found.theta is not None:
        # not every pointing has every Off region, and its angle is NaN then
        angle = np.where(found.on, found.theta[:, 0], np.fmin.reduce(found.theta[:, 1:], axis=1))
    if angle is None or cut is None:
        return float("nan")
    inner = found.held_out & (angle**2 < cut / 2)
    if np.isnan(angle[found.held_out & ~found.on]).any():
        n_on = found.uncut.n_on
        return float((2 * np.count_nonzero(inner & found.on) - n_on) / n_on**0.5) if n_on else float("nan")
    return found.count(inner, found.balanced_alpha).significance


class Agreement(NamedTuple):
    """Correlations between two scores.

    Attributes
    ----------
    pearson : float
        Linear correlation; NaN where a score is constant.
    spearman : float
        Correlation of ranks, ties averaged; NaN where a score is constant.
    n_events : int
        Events with both scores.

    Examples
    --------
    >>> from excess import agreement
    >>> agreement([0.1, 0.4, float("nan")], [1, 2, 3]).n_events
    2
    """

    pearson: float
    spearman: float
    n_events: int


def agreement(score: ArrayLike, reference: ArrayLike) -> Agreement:
    """Pearson and Spearman correlation of two classifiers' outputs (appendix B of the paper).

    Parameters
    ----------
    score, reference : array-like of shape (n_events,)
        Scores, such as ``Detection.score``, or selections, such as ``Detection.selected``; NaN is left out.

    Returns
    -------
    Agreement
        The correlations, and the number of events.

    Examples
    --------
    >>> from excess import agreement
    >>> found = agreement([0.1, 0.4, 0.5, 0.9], [0.0, 0.5, 0.4, 0.8])
    >>> print(f"{found.pearson:.2f} {found.spearman:.2f}")
    0.95 0.80
    """
    first, second = _as_scores("score", score), _as_scores("reference", reference)
    check_same_length(score=first, reference=second)
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    return Agreement(_correlation(first, second), _correlation(rankdata(first), rankdata(second)), len(first))


def _as_scores(name: str, value: Any) -> FloatArray:
    """Return scores as float64; NaN is an event without a score."""
    array = as_column(name, as_array(name, value))
    if array.dtype.kind == "f":
        as_floats(name, array[~np.isnan(array)])
        return array.astype(np.float64, copy=False)
    return as_floats(name, array)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Return the linear correlation; NaN where a score is constant to within rounding."""
    if len(first) < 2:
        return float("nan")
    a, b = first - first.mean(), second - second.mean()
    # sums, not products of vectors, whose last digits depend on the number of threads
    scale = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    tiny = 1e-14 * len(first) * (np.abs(first).max() * np.abs(second).max())
    return float("nan") if scale <= tiny else float(np.clip(np.sum(a * b) / scale, -1.0, 1.0))


MAX_FEATURES = 200  # largest number of features whose histograms are kept; of more, those with the largest importance
_N_BINS = 30
_TAIL = 0.002  # share of events on either side that may be beyond the drawn range
_SKEWED = 4.0  # ratio of the two halves of a range from which positive values are drawn on a logarithmic axis
_N_PIXELS = 61  # pixels in each direction; odd, so the source is in the middle of one
_MIN_EVENTS = 100  # smallest number of events of a map, for a background to compare with
_EXCLUDED = 2.0  # radius around the source, in units of that of a region, whose events are no background
_BINS_PER_RADIUS = 2  # bins of the distance from the pointing within the radius of a region
_MIN_COVERED = 0.2  # smallest share of a ring around the pointing in the field for which its background is known
_SAME_POINTING = 0.1  # distance in deg below which pointings count as one
_MAX_POINTINGS = 50
_N_ANGLES = 720  # points on a ring by which the share of it is found that is background


def choose_edges(low: float, middle: float, high: float, *, whole: bool, n_bins: int) -> tuple[FloatArray, bool]:
    """Return edges of bins from three quantiles, and whether they are logarithmic; whole numbers are bin centres."""
    if low == high:
        return np.array([low - 0.5, low + 0.5]), False
    if whole:
        step = max(1, -int(-(high - low + 1) // n_bins))
        n_steps = -int(-(high - low + 1) // step)
        return low - 0.5 + step * np.arange(n_steps + 1, dtype=np.float64), False
    if low > 0 and high - middle > _SKEWED * (middle - low):
        return low * (high / low) ** (np.arange(n_bins + 1, dtype=np.float64) / n_bins), True
    return low + (high - low) * np.arange(n_bins + 1, dtype=np.float64) / n_bins, False


class OnOffBins(NamedTuple):
    """On events in each bin, and Off events times alpha with the standard error of this sum."""

    n_on: NDArray[np.int64]
    background: FloatArray
    background_error: FloatArray


@dataclass(frozen=True, eq=False)
class FeatureHistogram:
    """Histogram of one feature of hold-out events, On and scaled Off."""

    feature: str
    edges: FloatArray
    logarithmic: bool
    before: OnOffBins
    after: OnOffBins

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram as JSON, rounded to visible digits; `from_dict` reads it."""
        return {
            "feature": self.feature,
            "edges": [float(f"{edge:.7g}") for edge in self.edges.tolist()],
            "logarithmic": self.logarithmic,
            **{
                stage: {name: values.round(3).tolist() for name, values in bins._asdict().items()}
                for stage, bins in (("before", self.before), ("after", self.after))
            },
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> FeatureHistogram:
        """Return the histogram that `to_dict` was called on."""
        edges = np.array(given["edges"], dtype=np.float64)
        stages = []
        for stage in ("before", "after"):
            n_on, *others = (np.array(given[stage][name], dtype=np.float64) for name in OnOffBins._fields)
            if any(len(column) != len(edges) - 1 for column in (n_on, *others)):
                raise ValueError(f"the histogram of {given['feature']!r} has another number of bins than its edges")
            stages.append(OnOffBins(n_on.astype(np.int64), *others))
        return cls(str(given["feature"]), edges, bool(given["logarithmic"]), *stages)


class FeatureBinning:
    """The bin of every event in every feature, computed once for the histograms of several models."""

    def __init__(self, X: Any, names: Sequence[str]) -> None:
        if hasattr(X, "to_numpy"):
            X = X.to_numpy(dtype=np.float64)
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(f"features must have one column for each of {len(names)} names, got shape {values.shape}")
        self.names = tuple(map(str, names))
        self.n_events = len(values)
        self._bins: list[tuple[FloatArray, bool]] = []
        # a byte per event and feature; the last number is that of missing values
        self._place = np.empty((len(names), len(values)), dtype=np.uint8)
        for number, column in enumerate(values.T):
            edges, logarithmic = _edges_of(column)
            self._bins.append((edges, logarithmic))
            n_bins = len(edges) - 1
            place = np.searchsorted(edges[1:-1], column, side="right")
            self._place[number] = np.where(np.isnan(column), n_bins, place)

    @classmethod
    def of(cls, features: Any, names: Sequence[str] | None) -> FeatureBinning:
        """Return the bins of an array of features, named x0, x1, ... by default; a binning is returned as it is."""
        if isinstance(features, FeatureBinning):
            return features
        n_features = features.shape[1] if hasattr(features, "shape") else len(features[0])
        return cls(features, names or [f"x{number}" for number in range(n_features)])

    def histograms(
        self,
        on: BoolArray,
        held_out: BoolArray,
        selected: BoolArray,
        alpha: FloatArray | float,
        importances: FloatArray | None = None,
    ) -> tuple[FeatureHistogram, ...]:
        """Count On and Off events in the bins; of too many features, keep the most important, or the first ones."""
        chosen = np.arange(len(self.names))
        if len(chosen) > MAX_FEATURES:
            known = importances is not None and len(importances) == len(chosen)
            order = np.argsort(-importances, kind="stable") if known and importances is not None else chosen
            chosen = np.sort(order[:MAX_FEATURES])
        scale = np.broadcast_to(np.asarray(alpha, dtype=np.float64), on.shape)
        stages = []
        for mask in (held_out, selected & held_out):
            own, other = np.flatnonzero(mask & on), np.flatnonzero(mask & ~on)
            stages.append([self._count(number, own, other, scale[other]) for number in chosen.tolist()])
        return tuple(
            FeatureHistogram(self.names[number], self._bins[number][0], self._bins[number][1], before, after)
            for number, before, after in zip(chosen.tolist(), *stages, strict=True)
        )

    def _count(self, number: int, own: NDArray[np.intp], other: NDArray[np.intp], alpha: FloatArray) -> OnOffBins:
        n_bins, place = len(self._bins[number][0]) - 1, self._place[number]
        n_on = np.bincount(place[own], minlength=n_bins + 1)[:n_bins]
        background, variance = (np.bincount(place[other], alpha**k, n_bins + 1)[:n_bins] for k in (1, 2))
        return OnOffBins(n_on.astype(np.int64), background.astype(np.float64), np.sqrt(variance))


def _edges_of(column: FloatArray) -> tuple[FloatArray, bool]:
    """Return bins that enclose almost all values of a feature."""
    known = column[np.isfinite(column)]
    if len(known) == 0:
        return np.array([0.0, 1.0]), False
    as_floats("features", known)
    low, middle, high = np.quantile(known, [_TAIL, 0.5, 1 - _TAIL], method="inverted_cdf").tolist()
    return choose_edges(low, middle, high, whole=bool((known == np.rint(known)).all()), n_bins=_N_BINS)


class SkyLayer(NamedTuple):
    """Maps of some events; rows run from south to north, columns from west to east, NaN is outside of the field."""

    counts: FloatArray
    excess: FloatArray
    significance: FloatArray
    mean: float
    spread: float


_MAPS = ("counts", "excess", "significance")  # of a layer; in JSON, rounded to 0, 1 and 2 digits


@dataclass(frozen=True, eq=False)
class SkyMap:
    """Map of the sky around the source."""

    axis: FloatArray
    region_radius: float
    pointings: FloatArray
    off_centers: FloatArray
    share: float
    layers: dict[str, SkyLayer]
    center: tuple[float, float] | None = None  # right ascension and declination of the source in deg

    def to_dict(self) -> dict[str, Any]:
        """Return the map as JSON, rounded to visible digits; `from_dict` reads it."""
        return {
            "half_width": float(self.axis[-1]),
            "n_pixels": len(self.axis),
            "region_radius": self.region_radius,
            "pointings": self.pointings.round(4).tolist(),
            "off_centers": self.off_centers.round(4).tolist(),
            "share": self.share,
            "center": self.center,
            "layers": {
                name: {what: _as_list(getattr(layer, what), digits) for digits, what in enumerate(_MAPS)}
                | {"mean": round(layer.mean, 4), "spread": round(layer.spread, 4)}
                for name, layer in self.layers.items()
            },
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> SkyMap:
        """Return the map that `to_dict` was called on."""
        n = int(given["n_pixels"])
        layers = {}
        for name, own in given["layers"].items():
            maps = [np.array(own[what], dtype=np.float64) for what in _MAPS]
            if any(one.shape != (n * n,) for one in maps):
                raise ValueError(f"the sky map of {name} events does not have {n} x {n} pixels")
            counts, excess, significance = (one.reshape(n, n) for one in maps)
            layers[str(name)] = SkyLayer(counts, excess, significance, float(own["mean"]), float(own["spread"]))
        pointings, centers = (
            np.array(given[name], dtype=np.float64).reshape(-1, 2) for name in ("pointings", "off_centers")
        )
        half = float(given["half_width"])
        radius, share, at = float(given["region_radius"]), float(given["share"]), given.get("center")
        center = None if at is None else (float(at[0]), float(at[1]))
        return cls(np.linspace(-half, half, n), radius, pointings, centers, share, layers, center)


def _as_list(values: FloatArray, digits: int) -> list[float | int | None]:
    """Return the pixels of a map row by row, None outside of the field."""
    rounded = values.round(digits).ravel().tolist()
    return [None if one != one else int(one) if digits == 0 else one for one in rounded]


def map_sky(
    position: FloatArray,
    pointing: FloatArray,
    selected: BoolArray,
    *,
    field_radius: float,
    region_radius: float,
    off_centers: FloatArray | None = None,
    exclusions: FloatArray | None = None,
    share: float = 1.0,
) -> SkyMap | None:
    """Map events around the source, all of them and selected ones; None where there are too few."""
    inside = np.isfinite(position).all(axis=1) & np.isfinite(pointing).all(axis=1)
    inside &= np.hypot(*np.where(np.isfinite(position), position, 0.0).T) < field_radius
    position, pointing, selected = position[inside], pointing[inside], selected[inside]
    if len(position) < _MIN_EVENTS:
        return None
    centers, weight, _ = cluster_pointings(pointing)
    excluded = min(_EXCLUDED * region_radius, field_radius / 2)
    circles = np.concatenate([[[0.0, 0.0, excluded]], np.empty((0, 3)) if exclusions is None else exclusions])
    acceptance = _Acceptance.of(centers, weight, field_radius, region_radius, circles)
    distance = np.hypot(*(position - pointing).T)
    layers = {
        name: acceptance.layer(position[mask], distance[mask])
        for name, mask in (("all", np.ones(len(position), dtype=np.bool_)), ("selected", selected))
        if np.count_nonzero(mask) >= _MIN_EVENTS
    }
    # where no event is away from the source, there is no background to compare with
    layers = {name: layer for name, layer in layers.items() if np.isfinite(layer.spread)}
    drawn = np.empty((0, 2)) if off_centers is None else off_centers
    return SkyMap(acceptance.axis, region_radius, centers, drawn, share, layers)


def cluster_pointings(pointing: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Return distinct pointings (at least 0.1 deg apart), the share of events of each, and each event's pointing."""
    values, number, counts = np.unique(pointing.round(2), axis=0, return_inverse=True, return_counts=True)
    kept: list[FloatArray] = []
    cluster = np.zeros(len(values), dtype=np.intp)
    for place in np.argsort(-counts, kind="stable").tolist():
        near = np.hypot(*(np.array(kept).reshape(-1, 2) - values[place]).T)
        if len(near) and (near.min() < _SAME_POINTING or len(kept) == _MAX_POINTINGS):
            cluster[place] = near.argmin()
        else:
            cluster[place] = len(kept)
            kept.append(values[place])
    of_event = cluster[number.ravel()]
    return np.array(kept).reshape(-1, 2), np.bincount(of_event, minlength=len(kept)) / max(len(pointing), 1), of_event


class _Acceptance(NamedTuple):
    """Background of each pixel as a sum over rings around the pointings."""

    axis: FloatArray
    in_field: BoolArray  # (pixels, pixels)
    edges: FloatArray  # (rings + 1,), distances from the pointing
    per_event: FloatArray  # (pixels, pixels, rings), background events of a pixel's circle for each event of a ring
    known: BoolArray  # (pixels, pixels), pixels all of whose rings are known
    circle: FloatArray  # kernel of the pixels within the radius of a region
    excluded: FloatArray  # (exclusions, 3), the source first

    @classmethod
    def of(
        cls, centers: FloatArray, weight: FloatArray, field_radius: float, region_radius: float, excluded: FloatArray
    ) -> _Acceptance:
        """Find how the events of rings around the pointings are spread over the field."""
        axis = np.linspace(-field_radius, field_radius, _N_PIXELS)
        pixel = axis[1] - axis[0]
        east, north = np.meshgrid(axis, axis)
        in_field = np.hypot(east, north) <= field_radius
        step = float(region_radius / _BINS_PER_RADIUS)
        offset = np.hypot(*centers.T)
        edges = step * np.arange(int(np.ceil((field_radius + offset.max()) / step)) + 1, dtype=np.float64)
        middle = (edges[1:] + edges[:-1]) / 2
        share = weight @ _share_allowed(middle, centers, field_radius, excluded)
        area = 2 * np.pi * middle * step * share
        reach = int(np.ceil(region_radius / pixel))
        grid = np.arange(-reach, reach + 1) * pixel
        circle = (np.hypot(*np.meshgrid(grid, grid)) <= region_radius).astype(np.float64)
        per_event = np.zeros((*east.shape, len(middle)))
        for (x, y), one in zip(centers, weight.tolist(), strict=True):
            place = np.clip(np.hypot(east - x, north - y) / step - 0.5, 0, len(middle) - 1.001)
            lower = place.astype(np.intp)
            rows = np.indices(east.shape)
            np.add.at(per_event, (*rows, lower), one * (1 - place + lower))
            np.add.at(per_event, (*rows, lower + 1), one * (place - lower))
        unknown = (per_event[..., share < _MIN_COVERED] > 0).any(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_event *= np.where(share < _MIN_COVERED, 0.0, pixel**2 / area)
        per_event[~in_field | unknown] = 0.0
        for ring in range(len(middle)):
            per_event[..., ring] = convolve(per_event[..., ring], circle, mode="constant")
        return cls(axis, in_field, edges, per_event, in_field & ~unknown, circle, excluded)

    def layer(self, position: FloatArray, distance: FloatArray) -> SkyLayer:
        """Map some events, whose distances from their pointings are given."""
        half = (self.axis[1] - self.axis[0]) / 2
        edges = np.append(self.axis - half, self.axis[-1] + half)
        counts = np.histogram2d(position[:, 1], position[:, 0], bins=(edges, edges))[0]
        away = _outside(position, self.excluded)
        rings: NDArray[Any] = np.histogram(distance[away], self.edges)[0]
        background, variance = self.per_event @ rings, self.per_event**2 @ rings
        n_on = convolve(np.where(self.known, counts, 0.0), self.circle, mode="constant").round()
        usable = self.known & (background > 0)
        significance = np.full(counts.shape, np.nan)
        # the number of Off events whose relative error is that of this background
        significance[usable] = li_ma_significance(
            n_on[usable], (background**2)[usable] / variance[usable], variance[usable] / background[usable], signed=True
        )
        excess = np.where(usable, n_on - background, np.nan)
        radius = self.circle.shape[0] * half
        pixels = np.stack(np.meshgrid(self.axis, self.axis), axis=-1)
        elsewhere = usable & _outside(pixels, self.excluded + np.array([0.0, 0.0, radius]))
        values = significance[elsewhere]
        mean, spread = (float(values.mean()), float(values.std())) if len(values) > 1 else (float("nan"),) * 2
        return SkyLayer(np.where(self.in_field, counts, np.nan), excess, significance, mean, spread)


def _outside(position: FloatArray, circles: FloatArray) -> BoolArray:
    """Return which positions are in none of some circles."""
    outside = np.ones(position.shape[:-1], dtype=np.bool_)
    for east, north, radius in circles.tolist():
        outside &= np.hypot(position[..., 0] - east, position[..., 1] - north) > radius
    return outside


def _share_allowed(ring: FloatArray, centers: FloatArray, field_radius: float, excluded: FloatArray) -> FloatArray:
    """Return the share of each ring around each pointing that is in the field and in no excluded circle."""
    angle = 2 * np.pi * (np.arange(_N_ANGLES) + 0.5) / _N_ANGLES
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    shares = []
    for center in centers:  # one pointing at a time, which saves memory
        points = center + ring[:, None, None] * direction
        allowed = (np.hypot(points[..., 0], points[..., 1]) < field_radius) & _outside(points, excluded)
        shares.append(allowed.mean(axis=1))
    return np.array(shares)
