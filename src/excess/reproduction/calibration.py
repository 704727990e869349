"""Do significances of learned models mean what they say? A study on data sets without and with a source.

Every data set holds 2,000 background events in five groups, eight Gaussian features, alpha = 1/5, and a source of some
strength. A forest of 20 trees is cross-validated on it, pooled and forward, and the likelihood of all hold-out events
and the cut are computed from the same models; some of the data sets are permuted 19 times as well. Without a source,
significances should be standard normal and p-values uniform; with a source, the share of detections is the power.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from excess._core.checks import BoolArray, FloatArray
from excess._core.errors import require
from excess.estimators.forest import OnOffForestClassifier
from excess.report.style import GREY, OFF, ON, OTHER
from excess.reproduction.pages import Figure, Page, Table, pm
from excess.reproduction.settings import Settings
from excess.reproduction.trials import Row, Study, Trial
from excess.validation.cross_validation import cross_val_detect
from excess.validation.detection import Detection
from excess.validation.outcome import STATISTICS

__all__ = ["CALIBRATION", "calibration_page", "draw_data_set"]

ALPHA = 1 / 5
N_BACKGROUND, N_FEATURES, N_GROUPS, N_PERMUTATIONS = 2_000, 8, 5, 19
STRENGTHS = (20, 40, 60)
PERMUTED_EVERY = {0: 6, **dict.fromkeys(STRENGTHS, 2)}
"""Permutations take nearly all of the time: one data set out of so many has them, by strength."""
RULES: dict[str, dict[str, Any]] = {"largest": {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}, "default": {}}
"""Threshold rules: the paper's, and the forest's own. The likelihood has no threshold: one of them is enough for it."""
LEVEL = 0.05
STRATEGIES = ("pooled", "forward", "permutation")
COLORS = {"pooled": ON, "forward": OFF, "permutation": OTHER, "no cut": GREY}
LINES = {"likelihood": "-", "cut": "--"}


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return data sets with sources of each strength, ten times as many without one, and some for the other rule."""
    cases = [("largest", n_signal, max(n_trials // 10, 1)) for n_signal in STRENGTHS]
    cases += [("largest", 0, n_trials), ("default", 0, max(n_trials // 5, 1))]
    return [
        Trial(
            f"{rule}-{n_signal}-{number:04d}",
            {
                "rule": rule,
                "n_signal": n_signal,
                "trial": number,
                "permuted": rule == "largest" and number % PERMUTED_EVERY[n_signal] == 0,
            },
        )
        for rule, n_signal, n in cases
        for number in range(n)
    ]


def run(settings: Settings, parameters: Mapping[str, Any]) -> list[Row]:
    """Cross-validate one data set, pooled and forward; return a row for each statistic."""
    number, n_signal, rule = (parameters[name] for name in ("trial", "n_signal", "rule"))
    n_permutations = (3 if settings.small else N_PERMUTATIONS) if parameters["permuted"] else 0
    rng = np.random.default_rng([number, n_signal, settings.seed])
    X, on, groups = draw_data_set(rng, 300 if settings.small else N_BACKGROUND, n_signal)
    seed = (number + 1_000_003 * settings.seed) % 2**31
    forest = OnOffForestClassifier(20, max_depth=4, min_samples_leaf=10, random_state=seed, **RULES[rule])
    shared: dict[str, Any] = {"alpha": ALPHA, "groups": groups, "random_state": seed, "statistic": "cut"}
    pooled = cross_val_detect(forest, X, on, n_permutations=n_permutations, **shared)
    forward = cross_val_detect(forest, X, on, strategy="forward", **shared)
    return [
        {
            "statistic": statistic,
            "pooled": _significance(pooled, statistic),
            "forward": _significance(forward, statistic),
            "corrected": _corrected(forward) if statistic == "likelihood" else None,
            **_permutation_p_values(pooled, statistic, rng),
            "uncut": float(pooled.uncut.significance),
            "n_selected": int(np.count_nonzero(pooled.selected)) if statistic == "cut" else None,
        }
        for statistic in (STATISTICS if rule == "largest" else ("cut",))
    ]


def draw_data_set(
    rng: np.random.Generator, n_background: int, n_signal: int
) -> tuple[FloatArray, BoolArray, NDArray[np.int64]]:
    """Return features, labels and groups of one data set; two of the features tell the signal."""
    X = rng.normal(size=(n_background + n_signal, N_FEATURES))
    X[n_background:, :2] += 1.5
    on = np.r_[rng.random(n_background) < ALPHA / (1 + ALPHA), np.ones(n_signal, dtype=bool)]
    return X, on, rng.integers(0, N_GROUPS, len(on))


def _significance(detection: Detection, statistic: str) -> float:
    return float(detection.outcome.significances[statistic])


def _corrected(detection: Detection) -> float | None:
    return None if detection.likelihood is None else float(detection.likelihood.corrected_significance)


def _permutation_p_values(detection: Detection, statistic: str, rng: np.random.Generator) -> Row:
    """Return the p-value of permutations, and one whose steps are spread out, so that a test for uniformity applies."""
    permuted, contrast = detection.permutations[statistic], detection.contrasts[statistic]
    if len(permuted) == 0:
        return {"p_value": None, "p_value_spread": None}
    n_larger, n_equal = np.count_nonzero(permuted > contrast), 1 + np.count_nonzero(permuted == contrast)
    return {
        "p_value": float(detection.permutation_p_values[statistic]),
        "p_value_spread": float((n_larger + rng.random() * n_equal) / (1 + len(permuted))),
    }


CALIBRATION = Study("calibration", 2_000, plan, run, lambda settings: {}, revision=2)


def calibration_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return false alarms and power."""
    results = frames["calibration"]
    rates = power(results)
    text = (
        "Data sets of Gaussian features with On and Off labels; see docs/honesty.md. The likelihood uses all hold-out "
        "events, each by its signal ratio, the cut those above the threshold; both are from the same models.",
        "The first table has no source in it: significances should be standard normal, p-values uniform. The second "
        "says how often a source is found, at a true level of five per cent: significances are compared with the "
        f"critical values that they have without a source, {_in_words(critical_values(results))}. Nothing is learned "
        "without a cut, so that 1.645 is the critical value there.",
    )
    data = "drawn on the spot" + (", small stand-ins, whose numbers mean nothing" if settings.small else "")
    return Page(
        "Calibration of significances",
        data,
        text,
        [false_alarms(results), _power_table(rates)],
        [_draw(results, rates)],
        rates,
    )


def false_alarms(results: pd.DataFrame) -> Table:
    """Say how the values behave where there is no source; no cut shows what chance does to the same data sets."""
    lines = []
    for name, part in _null_parts(results):
        if name == "likelihood":
            lines.append(("no cut", "", str(len(part)), *_describe_significances(part["uncut"].to_numpy())))
        for value, shown in (("pooled", "pooled"), ("forward", "forward"), ("corrected", "forward, r*")):
            s = part[value].dropna().to_numpy(np.float64)
            if len(s):
                lines.append((name, shown, str(len(s)), *_describe_significances(s)))
        permuted = part.dropna(subset=["p_value"])
        if len(permuted):
            lines.append((name, "permutation", str(len(permuted)), "", "", *_describe_p_values(permuted)))
    title = "Without a source; the binomial error of a rate of 0.05 is 0.22 over the root of the number of data sets"
    columns = (
        "statistic",
        "value",
        "data sets",
        "mean",
        "standard deviation",
        "P(> 1.645), nominal 0.050",
        "P(> 2.326), nominal 0.010",
        "P(> 3), nominal 0.0013",
        "p of a Kolmogorov-Smirnov test",
    )
    return Table(title, columns, lines, 2)


def _null_parts(results: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a name and the rows without a source of each statistic, and of each rule for the cut."""
    null = results[results["n_signal"] == 0]
    for statistic in STATISTICS:
        for rule, part in null[null["statistic"] == statistic].groupby("rule", sort=False):
            yield statistic if statistic == "likelihood" else f"cut, {rule} rule", part


def _describe_significances(s: FloatArray) -> tuple[str, ...]:
    """Return mean, standard deviation, tails and the test for a normal law as text."""
    n = len(s)
    rates = (f"{np.mean(s > z):.4f}" for z in norm.isf([0.05, 0.01, norm.sf(3)]))
    spread = (pm(s.mean(), s.std() / n**0.5, 3), pm(s.std(), s.std() / (2 * n) ** 0.5, 3))
    return (*spread, *rates, f"{kstest(s, norm.cdf).pvalue:.3f}")


def _describe_p_values(permuted: pd.DataFrame) -> tuple[str, ...]:
    """Return the tails that permutations can reach and the test for a uniform law as text."""
    p = permuted["p_value"].to_numpy(np.float64)
    rates = (
        f"{np.mean(p <= level):.4f}" if level * (1 + N_PERMUTATIONS) >= 1 else "" for level in (0.05, 0.01, norm.sf(3))
    )
    return (*rates, f"{kstest(permuted['p_value_spread'].astype(np.float64), 'uniform').pvalue:.3f}")


def critical_values(results: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return what five per cent of the data sets without a source exceed, by statistic and strategy."""
    null = _shared_data_sets(results)
    null = null[null["n_signal"] == 0]
    return {
        (statistic, strategy): float(null.loc[null["statistic"] == statistic, strategy].quantile(1 - LEVEL))
        for strategy in ("pooled", "forward")
        for statistic in STATISTICS
    }


def _in_words(critical: Mapping[tuple[str, str], float]) -> str:
    return ", ".join(f"{value:.2f} ({statistic}, {strategy})" for (statistic, strategy), value in critical.items())


def power(results: pd.DataFrame) -> pd.DataFrame:
    """Return shares of data sets with a detection at a true level of five per cent, and mean significances.

    Both statistics and no cut are compared on the same data sets. The error is that of the difference between
    likelihood and cut, which is smaller than the errors of the shares, as both find much the same data sets.
    """
    critical = critical_values(results)
    rows = []
    for n_signal, part in _shared_data_sets(results).groupby("n_signal"):
        both = {name: part[part["statistic"] == name].set_index("trial") for name in STATISTICS}
        for strategy in STRATEGIES:
            own = {name: _judged(rows_of, strategy) for name, rows_of in both.items()}
            if len(own["cut"]) == 0:
                continue
            detected = {name: _is_detected(rows_of, name, strategy, critical) for name, rows_of in own.items()}
            gain = detected["likelihood"].astype(np.float64) - detected["cut"]  # trial by trial
            means = {} if strategy == "permutation" else {name: own[name][strategy].mean() for name in STATISTICS}
            rows.append(
                {
                    "signal": n_signal,
                    "value": strategy,
                    "data sets": len(gain),
                    "no cut": (own["cut"]["uncut"] > norm.isf(LEVEL)).mean(),
                    "cut": detected["cut"].mean(),
                    "likelihood": detected["likelihood"].mean(),
                    "difference": gain.mean(),
                    "error": gain.std() / len(gain) ** 0.5,
                    **{f"mean S, {name}": mean for name, mean in means.items()},
                }
            )
    return pd.DataFrame(rows)


def _shared_data_sets(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of data sets that have both statistics."""
    return results[results["rule"] == "largest"]


def _judged(rows: pd.DataFrame, strategy: str) -> pd.DataFrame:
    """Return the rows of data sets that a strategy says something about."""
    return rows[rows["p_value"].notna()] if strategy == "permutation" else rows


def _is_detected(
    rows: pd.DataFrame, statistic: str, strategy: str, critical: Mapping[tuple[str, str], float]
) -> pd.Series[bool]:
    """Say which data sets have a detection."""
    return rows["p_value"] <= LEVEL if strategy == "permutation" else rows[strategy] > critical[statistic, strategy]


def _power_table(rates: pd.DataFrame) -> Table:
    """Return the shares of detections, each with what it says about likelihood and cut."""
    lines = [
        (
            f"{row['signal']:.0f}",
            str(row["value"]),
            str(row["data sets"]),
            *(f"{row[name]:.3f}" for name in ("no cut", "cut", "likelihood")),
            pm(row["difference"], row["error"], 3, signed=True),
            *(pm(row[f"mean S, {name}"], float("nan"), 2) for name in ("cut", "likelihood")),
            remark(row),
        )
        for _, row in rates[rates["signal"] > 0].iterrows()
    ]
    columns = (
        "signal events",
        "value",
        "data sets",
        "no cut",
        "cut",
        "likelihood",
        "likelihood - cut",
        "mean significance, cut",
        "likelihood",
        "",
    )
    return Table("Share of data sets with a detection, at a true level of five per cent", columns, lines, 2)


def remark(rates: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Say whether the likelihood finds more than the cut; and where neither does, whether both find nearly all.

    Examples
    --------
    >>> from excess.reproduction.calibration import remark
    >>> remark({"no cut": 0.5, "cut": 0.6, "likelihood": 0.9, "difference": 0.3, "error": 0.03})
    'the likelihood finds more'
    >>> remark({"no cut": 0.3, "cut": 0.18, "likelihood": 0.2, "difference": 0.02, "error": 0.03})
    'no difference beyond twice its error; no cut finds more than both'
    """
    said = "no difference beyond twice its error"
    if abs(rates["difference"]) > 2 * rates["error"]:
        said = f"the {'likelihood' if rates['difference'] > 0 else 'cut'} finds more"
    elif min(rates["cut"], rates["likelihood"]) > 0.95:
        said = "both find nearly all"
    return f"{said}; no cut finds more than both" if rates["no cut"] > max(rates["cut"], rates["likelihood"]) else said


def _draw(results: pd.DataFrame, rates: pd.DataFrame) -> Figure:
    """Draw the null distributions, the p-values and the power."""
    figure = require("matplotlib.figure", "drawing").Figure(figsize=(13.5, 4.4), layout="constrained")
    alarms, p_values, detections = figure.subplots(1, 3)
    shared = _shared_data_sets(results)
    null = {name: shared[(shared["n_signal"] == 0) & (shared["statistic"] == name)] for name in STATISTICS}
    _draw_false_alarms(alarms, null)
    _draw_p_values(p_values, null)
    _draw_power(detections, rates)
    for axis in (alarms, p_values, detections):
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    caption = "False alarms, p-values and power. Full lines are the likelihood, dashed ones the cut."
    return Figure("calibration", caption, figure)


def _draw_false_alarms(axes: Any, null: Mapping[str, pd.DataFrame]) -> None:
    z = np.linspace(1, 3.5, 200)
    axes.plot(z, norm.sf(z), color="black", lw=1.2, label="standard normal")
    for strategy in ("pooled", "forward"):
        for statistic, style in LINES.items():
            s = np.sort(null[statistic][strategy].to_numpy())
            share = 1 - np.searchsorted(s, z, side="right") / len(s)
            axes.step(z, share, style, color=COLORS[strategy], label=f"{statistic}, {strategy}")
    axes.set(
        yscale="log",
        xlabel="significance S / sigma",
        ylabel="share of data sets above S",
        title="False alarms without a source",
    )


def _draw_p_values(axes: Any, null: Mapping[str, pd.DataFrame]) -> None:
    axes.plot([0, 1], [0, 1], color="black", lw=1.2, label="uniform")
    for strategy in STRATEGIES:
        for statistic, style in LINES.items():
            part = null[statistic]
            p = part["p_value_spread"].dropna() if strategy == "permutation" else norm.sf(part[strategy])
            p = np.sort(np.asarray(p, dtype=np.float64))
            label = f"{statistic}, {strategy}"
            axes.step(p, np.arange(1, len(p) + 1) / len(p), style, color=COLORS[strategy], lw=1, label=label)
    axes.set(
        xlabel="p-value", ylabel="share of data sets below", title="p-values without a source", xlim=(0, 1), ylim=(0, 1)
    )


def _draw_power(axes: Any, rates: pd.DataFrame) -> None:
    for strategy in STRATEGIES:
        part = rates[rates["value"] == strategy]
        for statistic, style in LINES.items():
            label = f"{statistic}, {strategy}"
            axes.plot(part["signal"], part[statistic], style, marker="o", ms=4, color=COLORS[strategy], label=label)
    pooled = rates[rates["value"] == "pooled"]
    axes.plot(pooled["signal"], pooled["no cut"], marker="o", ms=4, color=COLORS["no cut"], label="no cut")
    axes.set(
        xlabel="signal events among the background",
        ylabel="share of data sets detected",
        title="Power at a true level of 5 %",
        ylim=(0, 1.02),
    )
