"""Comparison of On and Off events in their features: differences that no source explains, and repeated events.

A source adds events to On. It neither ends the distribution of Off where On continues, nor removes On from a part
of a feature, nor gives On events a value that all Off events lack. Its events are independent, without near-copies.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import rankdata

from excess._utils.checks import BoolArray, FloatArray
from excess._utils.rng import bottom_rows, share_sketched
from excess.detection._diagnostics import WarningSign
from excess.stats._significance import li_ma_significance

_MAX_EVENTS = 200_000  # maximum number of events compared; more would only resolve smaller differences
_MAX_COMPARED_FEATURES = 500
_LIMIT = 5.0  # significance of a value, or of a bin, above which it is not a fluctuation
_MIN_ON = 10  # minimum number of On events with the same value to compare it
_FACTOR = 10.0  # minimum ratio of On to alpha times Off at a value not expected from a source
_FREQUENT = 0.01  # fraction of events with the same value above which it is excluded when densities are compared
_MIN_RANGE = 500  # minimum number of Off events whose range is compared with On events
_DISTINCT = 0.9  # minimum fraction of distinct values among the others for a continuous feature
_N_BINS = 20
_EXPECTED_ON = (15.0, 30.0, 60.0)  # expected On events on the inner side of an edge
_HARD = 0.63  # mean distance from an edge relative to the window: 1/2 for a step, at least 0.75 for a tail
_CONTINUES = 0.4  # On events beyond an edge, relative to its inner side
_MAX_CHANCE = 1e-7  # probability that background events beyond an edge are all On
_LONG_GAP = 25.0  # expected Off events in a gap

_LARGEST_OVERLAP = 0.02  # maximum fraction of the training events of a model among new events
_MAX_NEIGHBOURS = 5_000  # maximum number of On and of Off events among which neighbours are searched
_N_QUERIES = 1_000
_N_NEAREST = 30
_MAX_DIMENSIONS = 12
_NEAR = 0.02  # distance to the nearest neighbour relative to the 30th below which it is a copy (minimum)
_NEAR_SHARE = 0.01  # fraction of Off events with a neighbour at this distance
_COPIED_SHARE, _COPIED_SIGNIFICANCE = 0.05, 6.0  # difference of the fractions of On and Off


def check_features(
    X: Any, on: BoolArray, alpha: FloatArray | float, names: Sequence[str] | None = None
) -> tuple[WarningSign, ...]:
    """Return differences between On and Off features that no source explains; none for non-numeric features."""
    values, names = _as_numbers(X, names)
    if values is None or not 0 < np.count_nonzero(on) < len(on):
        return ()
    rows = bottom_rows(len(on), _MAX_EVENTS)
    values, on = values[rows], on[rows]
    ratio = float(alpha) if np.ndim(alpha) == 0 else float(np.asarray(alpha)[rows][~on].mean())
    worst: dict[str, _Sign] = {}
    for name, column in zip(names[:_MAX_COMPARED_FEATURES], values.T, strict=False):
        for sign in _compare(name, column[on], column[~on], ratio):
            if sign.code not in worst or sign.weight > worst[sign.code].weight:
                worst[sign.code] = sign
    found = [WarningSign(sign.code, sign.sentence, sign.numbers) for sign in worst.values()]
    return (*found, *_find_copies(values, on))


def recognise_events(sketch: NDArray[np.uint64], X: Any) -> tuple[WarningSign, ...]:
    """Return a warning if new events contain events of the sketch of a model's training events."""
    if (share := share_sketched(sketch, X)) < _LARGEST_OVERLAP:
        return ()
    what = (
        f"The model was trained on these events: they contain {100 * share:.0f} % of a sample of its training events."
    )
    remedy = "Use events of other nights, or use cross_val_detect."
    return (WarningSign("training-events", f"{what} {remedy}", {"share": share}),)


def _as_numbers(X: Any, names: Sequence[str] | None) -> tuple[FloatArray | None, list[str]]:
    """Return the numeric columns of events with their names; None if there are none."""
    if hasattr(X, "select_dtypes"):
        X = X.select_dtypes(["number", "bool"])
        names, X = list(map(str, X.columns)), X.to_numpy(dtype=np.float64, na_value=np.nan)
    if not isinstance(X, np.ndarray):
        try:
            X = np.asarray(X)
        except ValueError:
            return None, []
    if X.ndim != 2 or X.dtype.kind not in "biuf" or X.shape[1] == 0:
        return None, []
    known = names is not None and len(names) == X.shape[1]
    return X.astype(np.float64, copy=False), list(names) if known and names else [f"x{j}" for j in range(X.shape[1])]


class _Sign(NamedTuple):
    """A warning about one feature, and its deviation."""

    code: str
    weight: float
    sentence: str
    numbers: dict[str, float]


def _compare(name: str, on: FloatArray, off: FloatArray, alpha: float) -> Iterator[_Sign]:
    """Compare one feature of On and Off events."""
    known_on, known_off = on[np.isfinite(on)], off[np.isfinite(off)]
    atoms, number = np.unique(np.concatenate([known_on, known_off]), return_inverse=True)
    n_on, n_off = (np.bincount(part, minlength=len(atoms)) for part in np.split(number, [len(known_on)]))
    frequent = n_on + n_off >= max(_MIN_ON, _FREQUENT * len(number))
    rest = n_off[~frequent & (n_off > 0)]
    continuous = len(rest) > _DISTINCT * rest.sum() > _MIN_ON
    # values shared by On events, but absent among the Off events
    own = np.r_[n_on[n_on >= _MIN_ON], len(on) - len(known_on)]
    other = np.r_[n_off[n_on >= _MIN_ON], len(off) - len(known_off)]
    value = np.r_[atoms[n_on >= _MIN_ON], np.nan]
    # for a wrong alpha, or a strong source, every value has an excess
    largest = max(alpha, len(on) / len(off))
    significance = np.atleast_1d(li_ma_significance(own, other, largest, signed=True))
    usual = np.zeros(len(value), dtype=np.bool_)
    if not continuous and len(known_off):
        low, high = float(known_off.min()), float(known_off.max())
        usual = (value >= low - (high - low)) & (value <= high + (high - low))
    alone = (own >= _MIN_ON) & (own > _FACTOR * largest * (other + 1)) & (significance > _LIMIT) & ~usual
    if alone.any():
        best = int(np.argmax(np.where(alone, significance, -np.inf)))
        what = "no value" if np.isnan(value[best]) else f"the value {value[best]:.6g}"
        share = 100 * own[best] / len(on)
        sentence = (
            f"{own[best]:,} On events ({share:.1f} %) and {other[best]:,} Off events have {what} in feature {name!r}: "
            "a missing measurement, a dead channel or a rounded number in On only; signal values would vary. "
            "Process both alike, or exclude these events or the feature."
        )
        numbers = {"n_on": float(own[best]), "n_off": float(other[best]), "significance": float(significance[best])}
        yield _Sign("value-of-on", float(significance[best]), sentence, numbers)
    yield from _find_missing(name, on, off, atoms[frequent], alpha)
    if continuous:
        atoms = atoms[frequent]
        on, off = (np.sort(part[~np.isin(part, atoms)]) for part in (known_on, known_off))
        yield from _find_far(name, on, off)
        yield from _find_edge(name, on, off, alpha)


def _find_far(name: str, on: FloatArray, off: FloatArray) -> Iterator[_Sign]:
    """Find On events far outside the range of many Off events, on a logarithmic scale if all values are positive."""
    low, high = float(off[0]), float(off[-1])
    if low > 0 and (on > 0).all():  # the tail of a hard spectrum extends beyond a softer one
        on, off = np.log(on), np.log(off)
    margin = off[-1] - off[0]
    n_far = np.count_nonzero((on < off[0] - margin) | (on > off[-1] + margin))
    if len(off) < _MIN_RANGE or n_far < max(_MIN_ON, _FREQUENT / 2 * len(on)):
        return
    what = f"{n_far:,} On events ({100 * n_far / len(on):.1f} %) have values of feature {name!r} far outside the range"
    why = f"of all Off events, {low:.6g} to {high:.6g}, as in another unit. Process both alike, or exclude them."
    yield _Sign("value-of-on", 0.0, f"{what} {why}", {"n_on": float(n_far), "n_off": 0.0})


def _find_missing(name: str, on: FloatArray, off: FloatArray, atoms: FloatArray, alpha: float) -> Iterator[_Sign]:
    """Find a frequent value, or a bin between such values, with missing On events."""
    scaled = min(alpha, len(on) / len(off))
    finite = off[np.isfinite(off)]
    if len(finite) == 0:
        return
    edges = np.unique(np.r_[np.quantile(finite, np.arange(1, _N_BINS) / _N_BINS), atoms, np.nextafter(atoms, np.inf)])
    # the last bin is for missing values
    places = [np.searchsorted(edges, part, side="right") + np.isnan(part) for part in (on, off)]
    n_on, n_off = (np.bincount(place, minlength=len(edges) + 2) for place in places)
    significance = np.atleast_1d(li_ma_significance(n_on, n_off, scaled, signed=True))
    worst = int(np.argmin(significance))
    if significance[worst] >= -_LIMIT:
        return
    borders = np.r_[-np.inf, edges, np.inf, np.nan]
    low, high = borders[worst], borders[min(worst + 1, len(borders) - 1)]
    where = "where it is missing" if worst == len(edges) + 1 else f"from {low:.6g} to {high:.6g}"
    sentence = (
        f"On events are missing in feature {name!r} {where}: {n_on[worst]:,} On events, where "
        f"{scaled * n_off[worst]:,.0f} are expected from Off ({significance[worst]:.1f} sigma), and no source removes "
        "events. On and Off passed different cuts, or the feature is scaled differently."
    )
    numbers = {"n_on": float(n_on[worst]), "n_off": float(n_off[worst]), "significance": float(significance[worst])}
    yield _Sign("missing-on", float(-significance[worst]), sentence, numbers)


def _find_edge(name: str, on: FloatArray, off: FloatArray, alpha: float) -> Iterator[_Sign]:
    """Find a value at which Off events end abruptly, or a gap in Off, where On events continue."""
    largest = max(alpha, len(on) / len(off))
    chance = np.log(largest / (1 + largest))
    for expected_on in _EXPECTED_ON:
        n = int(np.ceil(expected_on / alpha))
        for side, own, other in (("above", on, off), ("below", -on[::-1], -off[::-1])):
            if len(off) < 4 * n or (width := _window(other[-n - 1 :])) == 0:
                continue
            edge = other[-1]
            low, at, high = np.searchsorted(own, [edge - width, np.nextafter(edge, np.inf), edge + width]).tolist()
            # a source at the edge of the background also has an excess on the inner side
            balanced = at - low <= expected_on + 2.5 * expected_on**0.5
            if balanced and (high - at) * chance < np.log(_MAX_CHANCE) and high - at >= _CONTINUES * (at - low):
                where = f"{side} {edge if side == 'above' else -edge:.6g}"
                yield _edge_sign(name, where, len(own) - at, float((at - high) * chance))
    n = int(np.ceil(_EXPECTED_ON[0] / alpha))
    if len(off) < 4 * n:
        return
    # gaps with equal numbers of Off events on both sides
    left, right = off[n : -n - 1], off[n + 1 : -n]
    local = np.maximum(left - off[: len(left)], off[2 * n + 1 :] - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(local > 0, (right - left) / local, 0.0) * n
    best = int(np.argmax(expected)) if len(expected) else 0
    if len(expected) == 0 or expected[best] < _LONG_GAP:
        return
    low, high = left[best], right[best]
    sides = _window(off[best : best + n + 1]), _window(-off[best + n + 1 : best + 2 * n + 2][::-1])
    inside = int(np.searchsorted(on, high) - np.searchsorted(on, low, side="right"))
    continues = _CONTINUES < inside / (alpha * expected[best]) < 2
    if min(sides) > 0 and inside * chance < np.log(_MAX_CHANCE) and continues:
        yield _edge_sign(name, f"between {low:.6g} and {high:.6g}", inside, float(-inside * chance))


def _window(values: FloatArray) -> float:
    """Return the width of sorted values if they end with a step; 0 if their density decreases to the end."""
    width = float(values[-1] - values[0])
    return width if width > 0 and float(np.mean(values[-1] - values[1:])) < _HARD * width else 0.0


def _edge_sign(name: str, where: str, n_on: int, weight: float) -> _Sign:
    what = f"Off events are missing in feature {name!r} {where}, where {n_on:,} On events continue without a step, and"
    remedy = "no source removes Off events. Apply the same cuts, trigger and list of dead channels to On and Off."
    return _Sign("missing-off", weight, f"{what} {remedy}", {"n_on": float(n_on), "n_off": 0.0})


def _find_copies(values: FloatArray, on: BoolArray) -> tuple[WarningSign, ...]:
    """Compare the distances of On events to their nearest On neighbours with those of Off events to Off neighbours.

    Relative to the distance to the 30th neighbour, they do not depend on the density, so a source does not change them.
    """
    n_distinct = np.array([len(np.unique(column[~on])) for column in values.T])
    fine = np.flatnonzero((n_distinct > np.count_nonzero(~on) / 2) & np.isfinite(values).all(axis=0))
    fine = fine[np.argsort(-n_distinct[fine], kind="stable")[:_MAX_DIMENSIONS]]
    n = min(int(np.count_nonzero(on)), int(np.count_nonzero(~on)), _MAX_NEIGHBOURS)
    if len(fine) < 2 or n < 10 * _N_NEAREST:
        return ()
    ratios = []
    for own in (values[on][:, fine], values[~on][:, fine]):
        # neighbours in the first feature, so an event and its copy are both included or not
        middle = (len(own) - n) // 2
        own = own[np.argsort(own[:, 0], kind="stable")[middle : middle + n]]
        # ranks among as many events in On and Off, whose spacing is the same if one feature is a function of another
        own = rankdata(own, method="dense", axis=0) / n
        distance = cKDTree(own).query(own[bottom_rows(n, _N_QUERIES)], _N_NEAREST + 1)[0]
        far = distance[:, -1] > 0
        ratios.append(distance[far, 1] / distance[far, -1])
    if min(map(len, ratios)) < _N_QUERIES / 10:
        return ()
    limit = max(float(np.quantile(ratios[1], _NEAR_SHARE)), _NEAR)
    shares = [float(np.mean(own <= limit)) for own in ratios]
    common = np.mean(np.concatenate(ratios) <= limit)
    error = float(np.sqrt(common * (1 - common) * sum(1 / len(own) for own in ratios)))
    if not shares[0] - shares[1] > max(_COPIED_SHARE, _COPIED_SIGNIFICANCE * error):
        return ()
    sentence = (
        f"{100 * shares[0]:.0f} % of On events have a near-copy among the On events, {100 * shares[1]:.0f} % of Off "
        "events among the Off events: On events were repeated, resampled or interpolated, and are not independent. "
        "Pass every event once, without oversampling; alpha accounts for different numbers of On and Off events."
    )
    numbers = {"share_on": shares[0], "share_off": shares[1], "n_compared": float(n)}
    return (WarningSign("copies", sentence, numbers),)
