"""Diagnostics of a detection: verdict, warnings, and agreement of classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import chdtrc, expit
from scipy.stats import rankdata

from excess._utils.checks import BoolArray, FloatArray, as_array, as_column, as_floats, check_same_length
from excess._utils.errors import with_error
from excess.estimators._base import groups_are_apart
from excess.stats._significance import BestOf, best_of

if TYPE_CHECKING:
    from excess.detection._null_test import NullTest
    from excess.detection._result import Detection, Outcome


STATUSES = ("detected", "not confirmed", "no detection", "doubtful")  # "doubtful" if there are warnings
_REQUIRED_IMPROVEMENT = 2.0  # minimum improvement over all events without a cut, in standard errors
_REQUIRED_CONTRAST = 2.0  # minimum significance with which features separate On from Off if alpha is not confirmed
_LARGEST_DEFICIT = -4.0  # signed significance below which a deficit is not a fluctuation
_LARGE_EXCESS = 12.0  # significance of all events above which features or angles reveal a source (studies/verdicts.py)
_SMALLEST_CONTRAST = 3.0  # minimum significance of the separation of excess and background by features and angles
_SWAPPED_FACTOR = 1.25  # maximum factor between On/Off and 1/alpha if the two are swapped
_CERTAIN = 5.0  # significance above which a fit of alpha shows a source, or selected events reverse On/Off
_P_OF_GROUPS = 1e-5  # p-value below which groups are inconsistent with a common ratio of On to Off
_LARGEST_FLARE = 0.6  # maximum excess among the lower half of the events of a group, relative to the upper half
_P_OF_FLARES = 0.01  # p-value above which the remainder is a fluctuation
_P_OF_VARIABILITY = 1e-3  # probability below which a source is reported as variable
_LARGEST_FACTOR = 20.0  # maximum factor on alpha in the search for the alpha with the required significance
_LOWEST = 0.2  # fraction of the events with the lowest scores
_LARGEST_TAIL = 0.13  # the same for events far from the centres of their regions
FAR = 0.8  # minimum angle to the centre of a region, relative to the largest one, of events beyond a point source
_LARGEST_DEVIATION = 4.0  # between the given alpha and the alpha of the least signal-like events, in sigma
_LARGEST_LEAK = 0.3  # maximum excess per Off event there, relative to all events, that a source explains
_MAX_CELLS = 40  # maximum number of groups compared; neighbours are merged beyond
_MIN_EXPECTED = 10.0  # minimum number of expected On events of a cell of the chi-squared


class WarningSign(NamedTuple):
    """An observation that no source explains: a code for scripts, a sentence, and its numbers."""

    code: str
    sentence: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """The conclusion of a search: one of `STATUSES`, a sentence with the numbers, and warnings."""

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
        """Return the warnings, followed by the sentence."""
        return "\n".join([*(f"Warning: {one.sentence}" for one in self.warnings), self.sentence])


def assess(detection: Detection, forward: Outcome | None = None, null_test: NullTest | None = None) -> Verdict:
    """Assess the result of a search.

    Parameters
    ----------
    detection : Detection
        Result of the search.
    forward : Outcome or None, default=None
        Forward result, which must also reach the required significance; by default ``detection.forward``.
    null_test : NullTest or None, default=None
        A suspicious null test makes the verdict doubtful; any other confirms alpha, so counts alone suffice.

    Returns
    -------
    Verdict
        A status, a sentence, and warnings.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, assess, cross_val_detect, inject_label_noise
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
    forward = detection.forward if forward is None else forward
    if null_test is not None and null_test.suspicious:
        numbers = {"p_value": null_test.p_value, "largest_significance": float(np.abs(null_test.significances).max())}
        warnings += (WarningSign("null-test", null_test.verdict, numbers),)
    required, uncut = detection.required_significance, detection.uncut.significance
    quoted = detection.significance if forward is None else forward.significance
    by = "by the likelihood of all" if detection.statistic == "likelihood" else "in the selected"
    ahead = "" if forward is None else f", {forward.significance:.1f} forward"
    found = f"{detection.significance:.1f} sigma {by} hold-out events{ahead}, {required:g} required"
    if warnings:
        why = "the warning is" if len(warnings) == 1 else f"the {len(warnings)} warnings are"
        return Verdict("doubtful", f"{found}: doubtful. Do not claim a detection before {why} explained.", warnings)
    if not (quoted >= required or detection.significance >= required):
        found += ": no event was selected" if detection.outcome.empty else ": no detection"
        why = "The labels do not suffice to learn a signal: On has too few events, or no more signal than Off."
        return Verdict("no detection", f"{found}. {why}")
    if not quoted >= required:
        why = "The forward significance, which is the one to quote, is below the required one."
        return Verdict("not confirmed", f"{found}: not confirmed. {why}")
    contrast = _weigh_source(detection)
    if null_test is None and detection.alpha_error != 0 and uncut >= required and contrast < _REQUIRED_CONTRAST:
        why = f"All events without a cut have {uncut:.1f} sigma, but the features do not separate it from background"
        remedy = f"({max(contrast, 0.0):.1f} sigma), as for a wrong alpha: check alpha, or run a null test."
        return Verdict("not confirmed", f"{found}: not confirmed. {why} {remedy}")
    more = _describe_learning(detection), _describe_variability(detection), _describe_alpha(detection)
    return Verdict("detected", f"{found}: On has more signal than Off{''.join(more)}")


def assess_models(
    detections: Mapping[str, Detection], forward: Mapping[str, Outcome], null_tests: Mapping[str, NullTest]
) -> dict[str, Verdict]:
    """Assess each model; models without a null test use the first one, since all models share the regions."""
    first = next(iter(null_tests.values()), None)
    found = {name: assess(one, forward.get(name), null_tests.get(name, first)) for name, one in detections.items()}
    if len(found) > 1:
        best, [declared, verdict] = best_model(detections, forward), next(iter(found.items()))
        first_of = f"This verdict refers to {declared}, the first of {best.n_trials} models. The best one, {best.name},"
        after = (
            f"has {best.significance:.1f} sigma, p = {best.p_value:.1g} after a correction for {best.n_trials} trials."
        )
        found[declared] = replace(verdict, sentence=f"{verdict.sentence} {first_of} {after}")
    return found


def best_model(detections: Mapping[str, Detection], forward: Mapping[str, Outcome]) -> BestOf:
    """Return the model with the largest significance to quote, and its p-value corrected for the number of models."""
    quoted = {name: forward.get(name) or found.forward or found for name, found in detections.items()}
    return best_of({name: one.significance for name, one in quoted.items()})


def _describe_learning(detection: Detection) -> str:
    """Describe whether learning improved significantly over all events without a cut."""
    if detection.strategy == "applied":
        return "."
    uncut = detection.uncut.significance
    gain, error = detection.significance - uncut, _improvement_error(detection)
    if gain > _REQUIRED_IMPROVEMENT * error:
        if detection.theta is not None and detection.contrasts["cut"] < _REQUIRED_CONTRAST:
            return ", and the directions of events separate it from the background."
        return ", and the classifier learned it from these labels."
    difference = f"it changes the {uncut:.1f} sigma of all events without a cut by {with_error(gain, error)}"
    return f", but learning did not improve significantly: {difference}."


def _describe_variability(detection: Detection) -> str:
    """Return a sentence if the source is significantly variable between groups."""
    constancy = None if detection.ratio is None else detection.constancy
    if constancy is None or constancy.p_value >= _P_OF_VARIABILITY:
        return ""
    return f" It varies between groups (p-value of a steady source {constancy.p_value:.1g})."


def _describe_alpha(detection: Detection) -> str:
    """Return a sentence on the error of alpha that would reduce the significance below the required one."""
    required, ratio = detection.required_significance, detection.exposure_ratio

    def significance(factor: float) -> float:
        found = detection.likelihood_of(detection.in_likelihood, ratio * factor)
        if detection.statistic == "cut" or found is None:
            return detection.count(detection.selected, ratio * factor).significance - required
        return found.significance - required

    if not significance(1.0) > 0:
        return ""
    if significance(_LARGEST_FACTOR) > 0:
        return f" No alpha up to {_LARGEST_FACTOR:g} times the given one reduces it below {required:g} sigma."
    factor = brentq(significance, 1.0, _LARGEST_FACTOR, xtol=1e-3)
    return f" Alpha would have to be {100 * (factor - 1):.0f} % larger to reduce it below {required:g} sigma."


class AlphaFit(NamedTuple):
    """Exposure ratio estimated from the events, relative to the given one, for any signal strength."""

    factor: float
    error: float  # of its logarithm
    n_signal: float
    significance: float  # of a signal with unknown alpha


def fit_alpha(found: Detection) -> AlphaFit | None:
    """Fit the exposure ratio and the signal jointly; None without likelihood ratios or with a single class."""
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
    error, significance = curvature**-0.5 if curvature > 0 else np.inf, np.sqrt(2 * max(best - without, 0))
    return AlphaFit(float(np.exp(at)), float(error), max(fitted.n_signal, 0.0), float(significance))


def _profile(found: Detection, mask: BoolArray, scale: float) -> float:
    """Return the log-likelihood of the labels with alpha times exp(scale), maximised over signal strengths >= 0."""
    fitted = found.likelihood_of(mask, found.exposure_ratio * np.exp(scale))
    assert fitted is not None
    return 0.5 * max(fitted.significance, 0.0) ** 2 + _background_log_likelihood(found, mask, scale)


def _background_log_likelihood(found: Detection, mask: BoolArray, scale: float) -> float:
    """Return the log-likelihood of the labels without a signal, with alpha times exp(scale)."""
    log_odds = np.broadcast_to(np.log(found.exposure_ratio), mask.shape)[mask] + scale
    return float(log_odds[found.on[mask]].sum() - np.logaddexp(0.0, log_odds).sum())


def _best_scale(profile: Callable[[float], float]) -> tuple[float, float]:
    """Return the logarithm of the factor on alpha that maximises the log-likelihood, and the maximum."""
    options = {"xatol": 1e-3}
    found = minimize_scalar(lambda scale: -profile(scale), bounds=(-4.0, 4.0), method="bounded", options=options)
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
    """Return warnings about the hold-out events of a detection that no source explains."""
    totals = _check_totals(found)
    # too few On events in total imply too few rejected ones
    too_few = totals is not None and totals.numbers["excess"] < 0
    rejected, groups = None if too_few else _check_rejected(found), _check_groups(found)
    signs = [totals, rejected, groups]
    if not any(signs) and found.alpha_error != 0:  # each of them also explains a different alpha
        signs = [_check_alpha(found)]
    return (*found.findings, *(sign for sign in signs if sign is not None))


def _check_totals(found: Detection) -> WarningSign | None:
    """Check all events for swapped labels, a deficit, or an excess distributed like the background."""
    counts, significance = found.uncut, found.uncut.significance
    if counts.n_on + counts.n_off == 0:
        return None
    ratio = counts.n_on / counts.n_off if counts.n_off else float("inf")
    numbers = {**counts.summary(), "alpha": counts.alpha, "on_off_ratio": ratio}
    exact = found.alpha_error == 0  # as for phases, where swapped intervals have a deficit
    swapped = False
    if not exact and 0 < ratio < np.inf:  # 1/alpha rather than alpha
        swapped = abs(np.log(ratio * counts.alpha)) < np.log(_SWAPPED_FACTOR) and abs(np.log(counts.alpha)) > np.log(2)
    if swapped and abs(significance) > _LARGE_EXCESS and not _is_strong_source(found):
        what = f"There are {counts.n_on:,} On and {counts.n_off:,} Off events, On/Off = {ratio:.3g}, where alpha is"
        why = f"{counts.alpha:.3g}: On and Off are swapped, or alpha is inverted. Swap them."
        return WarningSign("swapped", f"{what} {why}", numbers)
    check = f"Check alpha ({counts.alpha:.3g}; On/Off is {ratio:.3g})"
    if significance < _LARGEST_DEFICIT:
        what = f"All events together have a deficit of {-significance:.1f} sigma, {counts.n_on:,} On events where alpha"
        why = f"times Off is {counts.background:,.0f}, and no source causes a deficit."
        return WarningSign("deficit", f"{what} {why} {check}, and whether an Off region contains a source.", numbers)
    if exact or significance <= _LARGE_EXCESS or (contrast := _weigh_source(found, _CERTAIN)) >= _SMALLEST_CONTRAST:
        return None
    known = "feature" if found.theta is None else "feature or angle"
    what = f"All events together have an excess of {significance:.1f} sigma, but no {known} separates it from the"
    why = f"background ({max(contrast, 0.0):.1f} sigma): as for a wrong alpha."
    return WarningSign("unexplained-excess", f"{what} {why} {check}.", {**numbers, "contrast": contrast})


def _check_alpha(found: Detection) -> WarningSign | None:
    """Compare alpha with On/Off of the least signal-like events, including those beyond the cut on theta^2."""
    angle, features = found.own_theta, found.contrasts["cut"]
    if found.point_spread is None:  # otherwise, the likelihood includes the directions
        features = float(np.nanmax(list(found.contrasts.values())))
    far = np.zeros(0, dtype=np.bool_) if angle is None else angle > FAR * float(np.nanmax(angle))
    if found.core is None or not far.any() or (far & found.core).any():  # no events far beyond the cut on theta^2
        quiet, leak = _background_like(found, _LOWEST), _LARGEST_LEAK
        if features < _REQUIRED_CONTRAST <= _inner_contrast(found):  # only angles show the source
            return None
    else:  # far from the centres of the regions, a source has few events even if features do not separate it
        quiet, leak = _background_like(found) & far, _LARGEST_TAIL
    counts, everything = found.count(quiet), found.uncut
    leaked = counts.excess * everything.n_off <= leak * everything.excess * counts.n_off
    if counts.significance < _LARGEST_DEVIATION or leaked or _inner_contrast(found, quiet) >= _SMALLEST_CONTRAST:
        return None
    if _weigh_source(found) < _REQUIRED_CONTRAST:  # if no feature shows the excess, the null test decides
        return None
    if found.groups is not None:
        excess, variance = _excess_by_group(found, quiet)
        excess[excess.argmax()] = 0.0  # a flare of one group is no wrong alpha
        if len(excess) > 2 and excess.sum() < _SMALLEST_CONTRAST * variance.sum() ** 0.5:
            return None
    ratio, deviation = counts.n_on / max(counts.n_off, 1), counts.significance
    error = ratio * (1 / counts.n_on + 1 / max(counts.n_off, 1)) ** 0.5
    what = f"The least signal-like events suggest alpha = {with_error(ratio, error, '.3f')}, and"
    why = f"{counts.alpha:.3g} is given: they differ by {deviation:.0f} sigma, and few source events are among them."
    remedy = "Check the exposure of On and Off, and whether both passed the same cuts."
    numbers = {"alpha": counts.alpha, "background_alpha": ratio, "background_alpha_error": error}
    return WarningSign("alpha", f"{what} {why} {remedy}", everything.summary() | numbers | {"deviation": deviation})


def _is_strong_source(found: Detection) -> bool:
    """Return whether a strong source explains On/Off = 1/alpha: its events are On, and the others are balanced."""
    inverse = 1 / found.exposure_ratio
    if not any(found.count(own, inverse).significance > _CERTAIN for own in _signal_like(found).values()):
        return False
    others = found.count(_background_like(found))
    return (others.n_on < others.n_off) == (others.alpha < 1)  # 1 is midway between alpha and its inverse


def _signal_like(found: Detection) -> dict[str, BoolArray]:
    """Return selected events, and those with a likelihood ratio above 1, by their description in a sentence."""
    chosen = {"the cut selects": found.selected}
    if found.ratio is not None:
        chosen["are more likely signal than background"] = found.held_out & (found.ratio > 1)
    return chosen


def _check_rejected(found: Detection) -> WarningSign | None:
    """Check the rejected events: a deficit there means that more excess was selected than exists."""
    worst, shares = None, {"are above the lowest fifth of scores": _LOWEST, "are above the median score": 0.5}
    above = {name: found.held_out & ~_background_like(found, share) for name, share in shares.items()}
    for what, mask in (_signal_like(found) | above).items():
        selected, rejected = found.count(mask), found.count(found.held_out & ~mask)
        limit = _LARGEST_DEFICIT if worst is None else worst[2].significance
        if selected.excess > 0 and rejected.significance < limit:
            worst = what, selected, rejected
    if worst is None:
        return None
    what, selected, rejected = worst
    excess, total = (with_error(one.excess, one.excess_error) for one in (selected, found.uncut))
    sentence = (
        f"Events that {what} have an excess of {excess}, all events together only {total}: the others have a deficit "
        f"of {-rejected.significance:.1f} sigma, which no source causes. A feature differs between On and Off for "
        f"another reason: compare its distributions and leave it out; or alpha, {found.alpha:.3g}, is too large."
    )
    numbers = {"selected_excess": selected.excess, "selected_excess_error": selected.excess_error}
    numbers["rejected_significance"] = rejected.significance
    return WarningSign("rejected-deficit", sentence, numbers | found.uncut.summary())


def _check_groups(found: Detection) -> WarningSign | None:
    """Check the ratio of On to Off events between groups, allowing a different signal in each group."""
    if found.groups is None or groups_are_apart(found.groups, found.on):
        return None
    quiet = found.held_out
    if float(np.nanmax(list(found.contrasts.values()))) >= _SMALLEST_CONTRAST:
        quiet = quiet & _background_like(found)
    total, n_free, relative = _sum_observations(_compare_groups, found, quiet)
    if found.ratio is not None and chdtrc(max(n_free, 1), total) < _P_OF_GROUPS:
        # a variable source may also contribute to the least signal-like events
        total, n_free, relative = _sum_observations(_compare_alphas, found, found.in_likelihood)
    p_value = float(chdtrc(n_free, total)) if n_free else 1.0
    if p_value >= _P_OF_GROUPS or _explain_by_flares(found):
        return None
    low, high = min(relative, key=relative.__getitem__), max(relative, key=relative.__getitem__)
    which = "" if found.ratio is None else "background "
    sentence = (
        f"The ratio of {which}On to Off events differs by group: it is {relative[low]:.2f} times the common one in "
        f"{low} and {relative[high]:.2f} times in {high} (chi-squared {total:.0f} for {n_free} degrees of freedom, p = "
        f"{p_value:.1g}). Pass the exposure ratio of each group, or exclude groups with unequal exposure."
    )
    numbers = {"chi_squared": total, "n_degrees_of_freedom": n_free, "p_value": p_value}
    ends = {"smallest_ratio": relative[low], "largest_ratio": relative[high]}
    return WarningSign("alpha-by-group", sentence, numbers | ends)


def _excess_by_group(found: Detection, used: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the excess of some events in each group, and its variance, at least 1 since a group may be empty."""
    assert found.groups is not None
    names, number = np.unique(found.groups[used], return_inverse=True)
    on, alpha = found.on[used], np.broadcast_to(found.exposure_ratio, len(found.on))[used]
    excess, variance = (np.bincount(number, np.where(on, 1.0, off), len(names)) for off in (-alpha, alpha**2))
    return excess.astype(np.float64), np.maximum(variance, 1.0)


def _explain_by_flares(found: Detection) -> bool:
    """Return whether background-like events have an excess only in groups where the others have a larger one.

    Models trained without the group of a flare assign some of its signal to the background.
    """
    low = _background_like(found)
    counted = found.held_out & np.isfinite(found.score)
    (quiet, variance), (loud, _) = (_excess_by_group(found, counted & own) for own in (low, ~low))
    if len(quiet) != len(loud) or found.contrasts["cut"] < _SMALLEST_CONTRAST > found.contrasts["likelihood"]:
        return False
    rest = quiet - np.clip(quiet, 0.0, _LARGEST_FLARE * np.maximum(loud, 0.0))
    return bool(chdtrc(len(quiet), float((rest**2 / variance).sum())) > _P_OF_FLARES)


def _sum_observations(
    compare: Callable[..., tuple[float, int, dict[Any, float]]], found: Detection, used: BoolArray
) -> tuple[float, int, dict[Any, float]]:
    """Return the sums of chi-squared and degrees of freedom over observations, and the ratios of all groups."""
    names = found.observations
    parts = [used] if names is None else [used & (names == one) for one in np.unique(names)]
    compared = [compare(found, found.groups, part) for part in parts]
    relative = {name: value for *_, own in reversed(compared) for name, value in own.items()}
    return sum(one[0] for one in compared), sum(one[1] for one in compared), relative


def _background_like(found: Detection, share: float = 0.5) -> BoolArray:
    """Return the events of each fold in the lowest share of scores; all events if scores are equal."""
    chosen = np.zeros(len(found.on), dtype=np.bool_)
    for number in range(len(found.folds)):
        own = found.fold == number
        known = found.score[own & np.isfinite(found.score)]
        if len(known):
            chosen |= own & (found.score <= np.quantile(known, share))
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
    p_on = expit(log_alpha + shift)  # probability that an event of a group is On, given the number of its events
    cell = _merge_small(n_all * p_on)
    off = np.maximum(n_all - n_on, 1.0)
    relative = dict(zip(names.tolist(), (n_on / off / (mean_alpha * np.exp(shift))).tolist(), strict=True))
    difference, spread = np.bincount(cell, n_on - n_all * p_on), np.bincount(cell, n_all * p_on * (1 - p_on))
    return float((difference**2 / spread).sum()), len(spread) - 1, relative


def _compare_alphas(found: Detection, groups: NDArray[Any], used: BoolArray) -> tuple[float, int, dict[Any, float]]:
    """Return the same for the exposure ratio of the background, with a free signal in each group."""
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
    cells = zip(names.tolist(), cell.tolist(), strict=True)
    relative = {name: float(np.exp(own[one][0] - common)) for name, one in cells if one in own}
    return 2 * max(sum(best for _, best in own.values()) - value, 0.0), len(masks) - 1, relative


def _merge_small(expected: FloatArray, least: float = _MIN_EXPECTED) -> NDArray[np.int64]:
    """Return the cell of each group; neighbours are merged until enough On events are expected."""
    cell, current, filled = np.zeros(len(expected), dtype=np.int64), 0, 0.0
    for number, own in enumerate(expected):
        cell[number] = current
        filled += own
        if filled >= least:
            current, filled = current + 1, 0.0
    if filled and current:  # remaining groups are added to the last full cell
        cell[cell == current] = current - 1
    return cell


def _weigh_source(found: Detection, least: float = 0.0) -> float:
    """Return the significance with which features, angles, or a fit of alpha above ``least``, separate On from Off."""
    features, angles = float(np.nanmax(list(found.contrasts.values()))), _inner_contrast(found)
    free = 0.0 if found.alpha_fit is None else found.alpha_fit.significance
    free = free if free >= least else 0.0
    return max(free, features if np.isnan(angles) else max(features, (features + angles) / 2**0.5))


def _inner_contrast(found: Detection, among: BoolArray | None = None) -> float:
    """Return the significance with which On events are closer to their centre than Off events; NaN if unknown.

    If Off regions have no centre, as in a ring, half of the On events are expected in the inner half of the region.
    """
    used = found.held_out if among is None else found.held_out & among
    angle, cut = found.own_theta, found.theta_squared_cut
    if angle is None and found.theta is not None:
        # the angle is NaN if a pointing has no such Off region
        angle = np.where(found.on, found.theta[:, 0], np.fmin.reduce(found.theta[:, 1:], axis=1))
    counts = found.count(used)
    if angle is None or cut is None or not counts.n_on or not counts.n_off:
        return float("nan")
    inner = used & (angle**2 < cut / 2)
    if np.isnan(angle[used & ~found.on]).any():
        return float((2 * np.count_nonzero(inner & found.on) - counts.n_on) / counts.n_on**0.5)
    return found.count(inner, found.exposure_ratio * (counts.n_on / counts.background)).significance


class Agreement(NamedTuple):
    """Correlations between two scores.

    Attributes
    ----------
    pearson, spearman : float
        Linear and rank correlation, with average ranks of ties; NaN if a score is constant.
    n_events : int
        Number of events with both scores.

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
    """Compute the Pearson and Spearman correlation of the outputs of two classifiers (appendix B of the paper).

    Parameters
    ----------
    score, reference : array-like of shape (n_events,)
        Scores, such as ``Detection.score``, or selections, such as ``Detection.selected``; NaN is ignored.

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
    """Return scores as float64; NaN marks an event without a score."""
    array = as_column(name, as_array(name, value))
    if array.dtype.kind == "f":
        as_floats(name, array[~np.isnan(array)])
        return array.astype(np.float64, copy=False)
    return as_floats(name, array)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Return the linear correlation; NaN if a score is constant to within rounding."""
    if len(first) < 2:
        return float("nan")
    a, b = first - first.mean(), second - second.mean()
    # sums, since the rounding of vector products depends on the number of threads
    scale = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    tiny = 1e-14 * len(first) * (np.abs(first).max() * np.abs(second).max())
    return float("nan") if scale <= tiny else float(np.clip(np.sum(a * b) / scale, -1.0, 1.0))
