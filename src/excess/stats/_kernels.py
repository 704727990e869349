"""Kernels of the On/Off likelihood, of point spread functions, and of counts of scored events."""

import math

import numpy as np

from excess._utils.compilation import njit
from excess._utils.rng import bootstrap_weights

_SERIES_BELOW = 0.02  # maximum argument for which a difference of logarithms is replaced by its series


@njit(cache=True, nogil=True)
def merge_sorted(ratio, alpha, on):
    """Return ratio, alpha, On and Off counts of the cells of events sorted by alpha, then by ratio."""
    cells = np.empty((4, len(ratio)))
    n = -1
    for i in range(len(ratio)):
        if i == 0 or ratio[i] != ratio[i - 1] or alpha[i] != alpha[i - 1]:
            n += 1
            cells[0, n], cells[1, n] = ratio[i], alpha[i]
            cells[2, n] = cells[3, n] = 0.0
        if on[i]:
            cells[2, n] += 1.0
        else:
            cells[3, n] += 1.0
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def merge_sorted_keys(keys, alpha):
    """Return the same for events with equal alpha, from sorted keys: bits of the ratio, and the label as bit 0."""
    cells = np.empty((4, len(keys)))
    bits_of = cells[0].view(np.uint64)
    n = -1
    for i in range(len(keys)):
        bits = keys[i] >> np.uint64(1)
        if i == 0 or bits != bits_of[n]:
            n += 1
            bits_of[n] = bits
            cells[1, n] = alpha
            cells[2, n] = cells[3, n] = 0.0
        cells[3 - np.int64(keys[i] & np.uint64(1)), n] += 1.0
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def merge_similar(ratio, alpha, n_on, n_off):
    """Merge sorted cells with ratios equal to 1 %, except those that bound the signal strength from below."""
    smallest = np.inf
    for i in range(len(ratio)):
        smallest = min(smallest, alpha[i] / ratio[i])
    bits = ratio.view(np.uint64)
    cells = np.empty((4, len(ratio)))
    n = -1
    was_bounding = True
    for i in range(len(ratio)):
        bounding = alpha[i] / ratio[i] <= smallest * (1.0 + 1e-15)
        # sign, exponent, and seven bits of the fraction
        similar = i > 0 and bits[i] >> np.uint64(45) == bits[i - 1] >> np.uint64(45) and alpha[i] == alpha[i - 1]
        if bounding or was_bounding or not similar:
            n += 1
            cells[1, n] = alpha[i]
            cells[0, n] = cells[2, n] = cells[3, n] = 0.0
        cells[0, n] += (n_on[i] + n_off[i]) * ratio[i]
        cells[2, n] += n_on[i]
        cells[3, n] += n_off[i]
        was_bounding = bounding
    for k in range(n + 1):
        cells[0, k] /= cells[2, k] + cells[3, k]
    return cells[:, : n + 1]


@njit(cache=True, nogil=True)
def number_distinct(values, most):
    """Return the distinct values (none if more than ``most``) in order of first use, and the index of each event."""
    found = np.empty(most)
    numbers = np.empty(len(values), dtype=np.uint8)
    n = 0
    k = 0
    for i in range(len(values)):
        if n == 0 or found[k] != values[i]:  # events of a run are mostly consecutive
            k = 0
            while k < n and found[k] != values[i]:
                k += 1
            if k == n:
                if n == most:
                    return found[:0], numbers
                found[n] = values[i]
                n += 1
        numbers[i] = k
    return found[:n], numbers


@njit(cache=True, nogil=True)
def divide_keys(keys, numbers, n_parts):
    """Return the keys of all parts concatenated, and the end of each part."""
    ends = np.zeros(n_parts + 1, dtype=np.int64)
    for i in range(len(keys)):
        ends[numbers[i] + 1] += 1
    ends = np.cumsum(ends)
    place = ends[:-1].copy()
    divided = np.empty_like(keys)
    for i in range(len(keys)):
        divided[place[numbers[i]]] = keys[i]
        place[numbers[i]] += 1
    return divided, ends


@njit(cache=True, nogil=True)
def derivatives(m, ratio, alpha, n_on, n_off):
    """Return both derivatives of the log-likelihood by the signal strength; infinite if an On event is impossible."""
    first = second = 0.0
    for i in range(len(ratio)):
        odds = m * ratio[i] + alpha[i]
        either = ratio[i] / (odds + 1.0)
        # of On: 1 / odds - 1 / (odds + 1) as one fraction, which avoids cancellation
        if n_on[i] > 0.0:
            if odds <= 0.0:
                return np.inf, -np.inf
            of_on = ratio[i] / odds
            first += n_on[i] * of_on / (odds + 1.0) - n_off[i] * either
            second += (n_on[i] + n_off[i]) * either * either - n_on[i] * of_on * of_on
        else:
            first -= n_off[i] * either
            second += n_off[i] * either * either
    return first, second


@njit(cache=True, nogil=True)
def value_and_slope(m, ratio, alpha, n_on, n_off):
    """Return the log-likelihood relative to no signal, and its derivative."""
    value = slope = 0.0
    for i in range(len(ratio)):
        odds = m * ratio[i] + alpha[i]
        either = ratio[i] / (odds + 1.0)
        value -= (n_on[i] + n_off[i]) * math.log1p(m * ratio[i] / (1.0 + alpha[i]))
        slope -= n_off[i] * either
        if n_on[i] > 0.0:
            if odds <= 0.0:  # the boundary of the allowed range, including rounding below it
                return -np.inf, np.inf
            value += n_on[i] * math.log1p(m * ratio[i] / alpha[i])
            slope += n_on[i] * ratio[i] / odds / (odds + 1.0)
    return value, slope


@njit(cache=True, nogil=True)
def slopes_on_grid(grid, ratio, alpha, n_on, n_off):
    """Return the derivative of the log-likelihood at each signal strength of a grid."""
    slopes = np.empty(len(grid))
    for k in range(len(grid)):
        slopes[k] = derivatives(grid[k], ratio, alpha, n_on, n_off)[0]
    return slopes


@njit(cache=True, nogil=True)
def sums_at_maximum(m, ratio, alpha, n_on, n_off):
    """Return the log-likelihood ratio to no signal, and the number of signal events, at the best signal strength."""
    value = n_signal = 0.0
    for i in range(len(ratio)):
        r, a = ratio[i], alpha[i]
        n = n_on[i] + n_off[i]
        odds = m * r + a
        either = 1.0 / (odds + 1.0)
        # the derivative is 0 at a maximum; its terms are subtracted here to avoid cancellation of small values
        value -= n * _log_above_tangent(m * r / (1.0 + a))
        n_signal += n * (m * r * either)
        if odds > 0.0 and n_on[i] > 0.0:
            value += n_on[i] * _log_above_tangent(m * r / a)
    return value, n_signal


@njit(cache=True, nogil=True)
def fit_nuisances(m, k, ratio, alpha, n_on, n_off, starts, errors):
    """Return the maximum-likelihood factor on alpha of each part of the cells, with a normal constraint."""
    # the odds of On to Off are m ratio + alpha, and n / (1 + alpha + k ratio) Off events are expected: k = m for a
    # given signal strength, but not for a given number of signal events
    factors = np.ones(len(errors))
    for part in range(len(errors)):
        d2 = errors[part] ** 2
        if d2 == 0.0:
            continue
        # neither odds nor expected Off events may be negative
        low, high = 1e-9, np.inf
        for i in range(starts[part], starts[part + 1]):
            low = max(low, -m * ratio[i] / alpha[i], (-k * ratio[i] - 1.0) / alpha[i])
        x = 1.0 if low < 1.0 else low * (1.0 + 1e-9)
        for _ in range(100):
            slope, curvature = (1.0 - x) / d2, -1.0 / d2
            for i in range(starts[part], starts[part + 1]):
                a = alpha[i]
                either = a / (1.0 + a * x + k * ratio[i])
                n = n_on[i] + n_off[i]
                slope -= n * either
                curvature += n * either * either
                if n_on[i] > 0.0:
                    of_on = a / (a * x + m * ratio[i])
                    slope += n_on[i] * of_on
                    curvature -= n_on[i] * of_on * of_on
            if slope > 0.0:
                low = x
            else:
                high = x
            stepped = x - slope / curvature if curvature < 0.0 else (2.0 * x if slope > 0.0 else low)
            if not low < stepped < high:
                stepped = 2.0 * low + 1.0 if np.isinf(high) else 0.5 * (low + high)
            done = abs(stepped - x) <= 1e-14 * x
            x = stepped
            if done:
                break
        factors[part] = x
    return factors


@njit(cache=True, nogil=True)
def profile_derivatives(m, ratio, alpha, n_on, n_off, starts, errors):
    """Return log-likelihood relative to no signal and the given alpha, and both derivatives by signal strength."""
    # the nuisance parameters are profiled for this signal strength
    factors = fit_nuisances(m, m, ratio, alpha, n_on, n_off, starts, errors)
    value = first = second = 0.0
    for part in range(len(errors)):
        x = factors[part]
        mixed = own = pull = steepest = 0.0
        for i in range(starts[part], starts[part + 1]):
            a, r, n = alpha[i], ratio[i], n_on[i] + n_off[i]
            steepest = max(steepest, r / a)
            pull -= n * a / (1.0 + a * x + m * r)
            odds = a * x + m * r
            change = m * r + a * (x - 1.0)
            either = 1.0 / (1.0 + odds)
            value -= n * math.log1p(change / (1.0 + a))
            first -= n * r * either
            bend = n * either * either
            if n_on[i] > 0.0:
                if odds <= 0.0:
                    return -np.inf, np.inf, -np.inf
                value += n_on[i] * math.log1p(change / a)
                first += n_on[i] * r / odds
                pull += n_on[i] * a / odds
                bend -= n_on[i] / (odds * odds)
            second += r * r * bend
            mixed += a * r * bend
            own += a * a * bend
        if errors[part] > 0.0:
            value -= 0.5 * ((x - 1.0) / errors[part]) ** 2
            if x > -m * steepest * (1.0 + 1e-8):
                second -= mixed * mixed / (own - 1.0 / errors[part] ** 2)
            else:  # the factor is at its lower bound, which depends on the signal strength
                first -= steepest * (pull - (x - 1.0) / errors[part] ** 2)
    return value, first, second


@njit(cache=True, nogil=True)
def signal_at(m, k, ratio, alpha, n_on, n_off, starts, errors):
    """Return the log-likelihood with Poisson terms of all counts, signal events, and the residual balance for k."""
    # n / (1 + alpha + k ratio) Off events are expected; if the balance is 0, this is the maximum likelihood for the
    # number of signal events, which is fixed by the Lagrange multiplier k / m - 1
    factors = fit_nuisances(m, k, ratio, alpha, n_on, n_off, starts, errors)
    value = of_on = expected = growth = 0.0
    for part in range(len(errors)):
        x = factors[part]
        if errors[part] > 0.0:
            value -= 0.5 * ((x - 1.0) / errors[part]) ** 2
        for i in range(starts[part], starts[part + 1]):
            a, r, n = alpha[i], ratio[i], n_on[i] + n_off[i]
            shift = a * (x - 1.0)
            off = 1.0 / (1.0 + a * x + k * r)
            expected += n * r * off
            growth += n * r * (1.0 + a * x) * off * off
            value -= n * math.log1p((k * r + shift) / (1.0 + a))
            if n_on[i] > 0.0:
                odds = a * x + m * r
                if odds <= 0.0:
                    return -np.inf, -np.inf, np.inf, 1.0
                value += n_on[i] * math.log1p((m * r + shift) / a)
                of_on += n_on[i] * r / odds
    return value + (k - m) * expected, m * expected, m * of_on - k * expected, growth


@njit(cache=True, nogil=True)
def balance_signal(m, ratio, alpha, n_on, n_off, starts, errors):
    """Return log-likelihood and signal events at the best ``k`` for an odds factor ``m``; see `signal_at`."""
    # k has the sign of m, and no expected Off count may be negative, even if a nuisance parameter makes alpha 0
    low, high = (0.0, np.inf) if m > 0.0 else (-np.inf, 0.0)
    for i in range(len(ratio)):
        low = max(low, -(1.0 + (0.0 if errors.any() else alpha[i])) / ratio[i])
    k = m
    for _ in range(100):
        value, n_signal, missing, growth = signal_at(m, k, ratio, alpha, n_on, n_off, starts, errors)
        if missing > 0.0:
            low = k
        else:
            high = k
        stepped = k + missing / growth
        if abs(stepped - k) <= 1e-13 * abs(k):
            break
        if not low < stepped < high:
            stepped = 2.0 * abs(k) + 1.0 if np.isinf(high) else 0.5 * (low + high)
        k = stepped
    return value, n_signal


@njit(cache=True, nogil=True)
def _log_above_tangent(x):
    """Return ``log(1 + x) - x / (1 + x)``, which is of second order in x."""
    if abs(x) > _SERIES_BELOW:
        return math.log1p(x) - x / (1.0 + x)
    # with t = x / (1 + x): -log(1 - t) - t = t^2/2 + t^3/3 + ...
    t = x / (1.0 + x)
    total = 0.0
    for power in range(10, 1, -1):
        total = (total + 1.0 / power) * t
    return total * t


_BLOCK = 4096  # events whose cuts are looked up once for all resamples; their positions and weights stay in the cache


@njit(cache=True, nogil=True)
def count_on_grid(on, score, units, n_cells, low, high, n_on, n_off):
    """Add events with scores from 0 to 1 to the counts, the smallest and the largest score of their cells."""
    for i in range(len(score)):
        s = score[i]
        if np.isnan(s):
            continue
        # the product with a power of two is exact, and so are the edges of cells; a score of 1 is in the last cell
        cell = min(np.int64(s * n_cells), n_cells - 1)
        unit = 1 if units is None else units[i]
        if on[i]:
            n_on[cell] += unit
        else:
            n_off[cell] += unit
        low[cell] = min(low[cell], s)
        high[cell] = max(high[cell], s)


@njit(cache=True, nogil=True)
def count_resamples(on, score, units, first, cuts, keys, counts):
    """Add bootstrap weights to ``counts[resample, last cut not above the score, label]``; NaN has no event number."""
    places = np.empty(_BLOCK, dtype=np.int64)
    amounts = np.empty(_BLOCK, dtype=np.int64)
    weights = np.empty(_BLOCK, dtype=np.uint8)
    # smallest power of two not below the number of cuts: the first step of the binary search
    steps = 1
    while steps < len(cuts):
        steps *= 2
    i = 0
    while i < len(score):
        n = 0
        while n < _BLOCK and i < len(score):
            s = score[i]
            if not np.isnan(s):
                # invariant: the first `below` cuts are not above the score
                below = 0
                step = steps
                while step > 0:
                    position = below + step
                    if position <= len(cuts) and cuts[position - 1] <= s:
                        below = position
                    step //= 2
                # cut and label in one number: the label is bit 0, the cut the bits above it
                places[n] = 2 * (below - 1) + (1 if on[i] else 0)
                if units is not None:
                    amounts[n] = units[i]
                n += 1
            i += 1
        # outer loop over resamples: the counts of one resample fit into the cache; integer sums are exact
        for k in range(len(keys)):
            bootstrap_weights(keys[k], first, weights[:n])
            flat = counts[k]
            for r in range(n):
                drawn = weights[r] if units is None else weights[r] * amounts[r]
                flat[places[r] >> 1, places[r] & 1] += drawn
        first += n


@njit(cache=True, nogil=True)
def count_labels(on, score, units, counts):
    """Add events to ``counts[label, cell]`` in equal cells from 0 to 1; scores outside are clipped, NaN is skipped."""
    n_cells = counts.shape[1]
    for i in range(len(score)):
        s = score[i]
        if np.isnan(s):
            continue
        cell = min(max(np.int64(s * n_cells), 0), n_cells - 1)
        counts[1 if on[i] else 0, cell] += 1 if units is None else units[i]


@njit(cache=True, nogil=True)
def count_labels_without(on, score, units, contributions, features, counts):
    """Add events to ``counts[k, label, cell]`` by their scores minus the contribution of ``features[k]``."""
    n_cells = counts.shape[2]
    for i in range(len(score)):
        if np.isnan(score[i]):
            continue
        label, unit = 1 if on[i] else 0, 1 if units is None else units[i]
        for k in range(len(features)):
            s = score[i] - contributions[i, features[k]]
            counts[k, label, min(max(np.int64(s * n_cells), 0), n_cells - 1)] += unit


@njit(cache=True, nogil=True)
def _density(t, width, index):
    """Return a profile at theta^2 = t, normalised so its integral over theta^2 is 1."""
    scale = 2.0 * width * width
    if np.isinf(index):
        return math.exp(-t / scale) / scale
    return (1.0 - 1.0 / index) / scale * (1.0 + t / (scale * index)) ** -index


@njit(cache=True, nogil=True)
def average_profiles(t, offset, width, index, slope, weight):
    """Return the weighted mean of all profiles for each event."""
    found = np.zeros(len(t))
    for i in range(len(t)):
        for k in range(len(width)):
            found[i] += weight[k] * _density(t[i], width[k] * math.exp(-slope[k] * offset[i]), index[k])
    return found


@njit(cache=True, nogil=True)
def profile_gains(on, t, ratio, alpha, offset, width, index, slope):
    """Return the log-likelihood of each profile at its best signal strength, relative to no signal."""
    gains = np.zeros(len(width))
    density = np.empty(len(t))
    strength = 0.01  # the best signal strength of one profile is the start for the next
    for k in range(len(width)):
        for i in range(len(t)):
            density[i] = ratio[i] * _density(t[i], width[k] * math.exp(-slope[k] * offset[i]), index[k])
        low, high = 0.0, np.inf
        for _ in range(50):
            first = second = 0.0
            for i in range(len(t)):
                odds = strength * density[i] + alpha[i]
                either = density[i] / (odds + 1.0)
                first -= either
                second += either * either
                if on[i]:
                    of_on = density[i] / odds
                    first += of_on
                    second -= of_on * of_on
            if first > 0.0:
                low = strength
            else:
                high = strength
            # Newton step if it stays inside the bracket; else bisection, or growth while there is no upper bound
            step = strength - first / second if second < 0.0 else -1.0
            if not low < step < high:
                step = 4.0 * strength if np.isinf(high) else 0.5 * (low + high)
            moved = abs(step - strength)
            strength = step
            if moved <= 1e-3 * strength or strength < 1e-9 or strength > 1e9:
                break
        for i in range(len(t)):
            gains[k] -= math.log1p(strength * density[i] / (1.0 + alpha[i]))
            if on[i]:
                gains[k] += math.log1p(strength * density[i] / alpha[i])
        strength = min(max(strength, 1e-6), 1e6)
    return gains


@njit(cache=True, nogil=True)
def _signal_terms(b, columns, n_on, n, alpha, prior, largest, gradient, information):
    """Return the log-likelihood of labels for a signal exp(columns b), with its gradient and information."""
    k = len(b)
    value = 0.0
    for p in range(k):
        value -= 0.5 * prior[p] * b[p] * b[p]
        gradient[p] = -prior[p] * b[p]
        for q in range(k):
            information[p, q] = 0.0
    for i in range(len(n)):
        exponent = 0.0
        for p in range(k):
            exponent += columns[i, p] * b[p]
        signal = math.exp(min(max(exponent, -largest), largest))
        odds = signal + alpha
        value += n_on[i] * math.log(odds) - n[i] * math.log1p(odds)
        slope = (n_on[i] / odds - n[i] / (1.0 + odds)) * signal
        weight = n[i] * (signal / (1.0 + odds)) ** 2 / odds
        for p in range(k):
            gradient[p] += slope * columns[i, p]
            for q in range(p + 1):
                information[p, q] += weight * columns[i, p] * columns[i, q]
    return value


@njit(cache=True, nogil=True)
def _solve(matrix, step):
    """Solve a small positive definite system, given by its lower triangle, in place."""
    k = len(step)
    for p in range(k):  # Cholesky
        for q in range(p + 1):
            for j in range(q):
                matrix[p, q] -= matrix[p, j] * matrix[q, j]
            matrix[p, q] = math.sqrt(max(matrix[p, p], 1e-300)) if p == q else matrix[p, q] / matrix[q, q]
    for p in range(k):
        for j in range(p):
            step[p] -= matrix[p, j] * step[j]
        step[p] /= matrix[p, p]
    for p in range(k - 1, -1, -1):
        for j in range(p + 1, k):
            step[p] -= matrix[j, p] * step[j]
        step[p] /= matrix[p, p]


@njit(cache=True, nogil=True)
def fit_signal(columns, n_on, n, alpha, starts, prior, ridge, largest, tolerance):
    """Return the maximum-likelihood coefficients of the signal, all but the first at least 0, by Fisher scoring."""
    k = columns.shape[1]
    gradient, information = np.empty(k), np.empty((k, k))
    best, value = starts[0].copy(), -np.inf
    for start in starts:
        own = _signal_terms(start, columns, n_on, n, alpha, prior, largest, gradient, information)
        if own > value:
            best, value = start.copy(), own
    value = _signal_terms(best, columns, n_on, n, alpha, prior, largest, gradient, information)
    step, stepped = np.empty(k), np.empty(k)
    for _ in range(200):
        for p in range(k):
            information[p, p] += prior[p] + ridge
            step[p] = gradient[p]
            lowest = -largest if p == 0 else 0.0
            if best[p] <= lowest and gradient[p] <= 0.0:  # stays at its bound
                step[p] = 0.0
                information[p, :] = 0.0
                information[:, p] = 0.0
                information[p, p] = 1.0
        _solve(information, step)
        improved = False
        for _ in range(40):
            for p in range(k):
                stepped[p] = min(max(best[p] + step[p], -largest if p == 0 else 0.0), largest)
            new = _signal_terms(stepped, columns, n_on, n, alpha, prior, largest, gradient, information)
            if new >= value:
                improved = True
                break
            step *= 0.5
        if not improved:
            break
        moved = np.abs(stepped - best).max()
        best[:] = stepped
        value = new
        if moved < tolerance:
            break
    return best
