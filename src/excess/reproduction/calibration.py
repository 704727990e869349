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
from excess.validation.detection import STATISTICS, Detection

__all__ = ["CALIBRATION", "calibration_page", "draw_data_set"]

ALPHA = 1 / 5
N_BACKGROUND, N_FEATURES, N_GROUPS, N_PERMUTATIONS = 2_000, 8, 5, 19
STRENGTHS = (20, 40, 60)
PERMUTED_EVERY = {0: 6, **dict.fromkeys(STRENGTHS, 3)}
"""Permutations take nearly all of the time: one data set out of so many has them, by strength."""
RULES: dict[str, dict[str, Any]] = {"largest": {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}, "default": {}}
"""Threshold rules: the paper's, and the forest's own. The likelihood has no threshold, so that one of them is enough."""
LEVEL = 0.05
STRATEGIES = ("pooled", "forward", "permutation")
COLORS = {"pooled": ON, "forward": OFF, "permutation": OTHER, "no cut": GREY}
LINES = {"likelihood": "-", "cut": "--"}


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return data sets without a source for each rule, and a sixth as many for each strength of a source."""
    cases = [("largest", 0, n_trials), *(("largest", n_signal, max(n_trials // 6, 1)) for n_signal in STRENGTHS)]
    cases.append(("default", 0, max(3 * n_trials // 10, 1)))
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
        "Data sets of Gaussian features with On and Off labels; see docs/honesty.md. The first table has no source in "
        "it: significances should be standard normal, p-values uniform. The second says how often a source is found.",
    )
    data = "drawn on the spot" + (", small stand-ins, whose numbers mean nothing" if settings.small else "")
    lines = [(f"{row['signal']:.0f}", *(f"{value:.3f}" for value in row.iloc[1:])) for _, row in rates.iterrows()]
    shares = Table("Share of data sets with a detection at the five per cent level", tuple(rates.columns), lines)
    return Page(
        "Calibration of significances", data, text, [false_alarms(results), shares], [_draw(results, rates)], rates
    )


def false_alarms(results: pd.DataFrame) -> Table:
    """Say how the values behave where there is no source."""
    null = results[results["n_signal"] == 0]
    lines = []
    for rule, part in null.groupby("rule", sort=False):
        n = len(part)
        for name in ("pooled", "forward"):
            s = part[name].to_numpy()
            rates = [f"{np.mean(s > z):.3f}" for z in norm.isf([0.05, 0.01, norm.sf(3)])]
            spread = (pm(s.mean(), s.std() / n**0.5, 3), pm(s.std(), s.std() / (2 * n) ** 0.5, 3))
            lines.append((str(rule), name, *spread, *rates, f"{kstest(s, norm.cdf).pvalue:.3f}"))
        p = part["p_value"].to_numpy()
        rates = [
            f"{np.mean(p <= level):.3f}" if level * (1 + N_PERMUTATIONS) >= 1 else ""
            for level in (0.05, 0.01, norm.sf(3))
        ]
        uniform = kstest(part["p_value_spread"], "uniform").pvalue
        lines.append((str(rule), "permutation", "", "", *rates, f"{uniform:.3f}"))
    n = int(null.groupby("rule").size().min())
    error = (LEVEL * (1 - LEVEL) / n) ** 0.5
    title = f"Without a source, {n} data sets for each rule; the binomial error of the first rate is {error:.3f}"
    columns = (
        "threshold rule",
        "value",
        "mean",
        "standard deviation",
        "P(> 1.645), nominal 0.050",
        "P(> 2.326), nominal 0.010",
        "P(> 3), nominal 0.0013",
        "p of a Kolmogorov-Smirnov test",
    )
    return Table(title, columns, lines, 2)


def power(results: pd.DataFrame) -> pd.DataFrame:
    """Return the share of data sets with a detection at the five per cent level, and mean significances."""
    largest = results[results["rule"] == "largest"]
    critical = largest.loc[largest["n_signal"] == 0, "pooled"].quantile(1 - LEVEL)
    nominal = norm.isf(LEVEL)
    return pd.DataFrame(
        [
            {
                "signal": n_signal,
                "no cut": (part["uncut"] > nominal).mean(),
                "pooled, as it says": (part["pooled"] > nominal).mean(),
                "pooled, true level": (part["pooled"] > critical).mean(),
                "forward": (part["forward"] > nominal).mean(),
                "permutation": (part["p_value"] <= LEVEL).mean(),
                "mean S pooled": part["pooled"].mean(),
                "mean S forward": part["forward"].mean(),
            }
            for n_signal, part in largest.groupby("n_signal")
        ]
    )


def _draw(results: pd.DataFrame, rates: pd.DataFrame) -> Figure:
    """Draw the null distributions, the p-values and the power."""
    figure = require("matplotlib.figure", "drawing", extra="report").Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    null = results[(results["n_signal"] == 0) & (results["rule"] == "largest")]
    z = np.linspace(1, 3.5, 200)
    axes[0].plot(z, norm.sf(z), color="black", lw=1.2, label="standard normal")
    for name in ("pooled", "forward"):
        s = np.sort(null[name].to_numpy())
        axes[0].step(z, np.searchsorted(-s[::-1], -z, side="left") / len(s), color=COLORS[name], label=name)
    axes[0].set(
        yscale="log",
        xlabel="significance S / sigma",
        ylabel="share of data sets above S",
        title="False alarms without a source",
    )
    p = np.sort(null["p_value_spread"].to_numpy())
    axes[1].plot([0, 1], [0, 1], color="black", lw=1.2, label="uniform")
    axes[1].step(p, np.arange(1, len(p) + 1) / len(p), color=COLORS["permutation"], label="permutation")
    for name in ("pooled", "forward"):
        q = np.sort(norm.sf(null[name]))
        axes[1].step(q, np.arange(1, len(q) + 1) / len(q), color=COLORS[name], alpha=0.7, label=f"{name}, p of S")
    axes[1].set(
        xlabel="p-value", ylabel="share of data sets below", title="p-values without a source", xlim=(0, 1), ylim=(0, 1)
    )
    for column, name in (
        ("pooled, true level", "pooled"),
        ("forward", "forward"),
        ("permutation", "permutation"),
        ("no cut", "no cut"),
    ):
        axes[2].plot(rates["signal"], rates[column], marker="o", color=COLORS[name], label=column)
    axes[2].set(
        xlabel="signal events among the background",
        ylabel="share of data sets detected",
        title="Power at a true level of 5 %",
        ylim=(0, 1),
    )
    for axis in axes:
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    return Figure("calibration", "False alarms, p-values and power.", figure)
