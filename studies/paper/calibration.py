"""Are significances of learned models calibrated? A study on data sets without and with a source.

Every data set has 2,000 background events in five groups, eight Gaussian features, alpha = 1/5, and a number of signal
events. A forest of 20 trees is cross-validated on it, pooled and forward, and the likelihood of all hold-out events and
the cut are computed from the same models; some of the data sets are permuted 19 times as well. Without a source,
significances should be standard normal and p-values uniform; with a source, the share of detections is the power.

Result of 2026-11-16 (commit 4085e67), with one forward block per group and the first of them left out; 2,000 data sets
without a source (default rule 400, permutations 334): mean, standard deviation, shares above 1.645, 2.326 and 3:

    no cut                         0.036  1.004  0.0505  0.0105  0.0005
    likelihood, pooled             0.018  1.094  0.0755  0.0185  0.0025
    likelihood, forward           -0.010  1.024  0.0540  0.0095  0.0010
    cut, largest rule, pooled     -0.124  1.060  0.0490  0.0110  0.0010
    cut, largest rule, forward    -0.060  1.004  0.0460  0.0120  0.0010
    cut, default rule, pooled     -0.131  0.979  0.0525  0.0150  0.0000
    cut, default rule, forward    -0.064  0.934  0.0500  0.0075  0.0000
    permutations: p <= 0.05 in 0.0299 (likelihood) and 0.0509 (cut) of the data sets

Power at 5 % by the true critical values, 200 data sets each (permutations 100), cut and likelihood:

    20 signal events   pooled 0.205 0.320   forward 0.230 0.295   permutation 0.090 0.260   no cut 0.255
    40                 pooled 0.715 0.950   forward 0.580 0.875   permutation 0.610 0.860   no cut 0.560
    60                 pooled 0.955 1.000   forward 0.930 0.995   permutation 0.910 0.980   no cut 0.915
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from excess import Detection, OnOffForestClassifier, cross_val_detect
from studies.paper.tables import BLUE, GREEN, GREY, ORANGE, Page, show_number
from studies.paper.trials import Row, Settings, Study, Trial

ALPHA = 1 / 5
N_BACKGROUND, N_FEATURES, N_GROUPS, N_PERMUTATIONS = 2_000, 8, 5, 19
STRENGTHS = (20, 40, 60)
PERMUTED_EVERY = {0: 6, **dict.fromkeys(STRENGTHS, 2)}
"""Permutations take nearly all of the time: one data set out of so many has them, by number of signal events."""
RULES: dict[str, dict[str, Any]] = {"largest": {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}, "default": {}}
"""Threshold rules: the paper's, and the forest's own. The likelihood has no threshold: one of them is enough for it."""
LEVEL = 0.05
STATISTICS = ("likelihood", "cut")
STRATEGIES = ("pooled", "forward", "permutation")
COLORS = {"pooled": ORANGE, "forward": BLUE, "permutation": GREEN}
STYLES = {"likelihood": "-", "cut": "--"}


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return data sets with each number of signal events, ten times as many without, and some for the other rule."""
    cases = [("largest", n_signal, max(n_trials // 10, 1)) for n_signal in STRENGTHS]
    cases += [("largest", 0, n_trials), ("default", 0, max(n_trials // 5, 1))]
    return [
        {
            "rule": rule,
            "n_signal": n_signal,
            "trial": number,
            "permuted": rule == "largest" and number % PERMUTED_EVERY[n_signal] == 0,
        }
        for rule, n_signal, n in cases
        for number in range(n)
    ]


def run(settings: Settings, trial: Trial) -> list[Row]:
    """Cross-validate one data set, pooled and forward; return a row for each statistic."""
    number, n_signal, rule = (trial[name] for name in ("trial", "n_signal", "rule"))
    n_permutations = (3 if settings.small else N_PERMUTATIONS) if trial["permuted"] else 0
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
            "pooled": float(pooled.outcome.significances[statistic]),
            "forward": float(forward.outcome.significances[statistic]),
            **_permutation_p_values(pooled, statistic, rng),
            "uncut": float(pooled.uncut.significance),
            "n_selected": int(np.count_nonzero(pooled.selected)) if statistic == "cut" else None,
        }
        for statistic in (STATISTICS if rule == "largest" else ("cut",))
    ]


def draw_data_set(
    rng: np.random.Generator, n_background: int, n_signal: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Return features, labels and groups of one data set; two of the features separate the signal."""
    X = rng.normal(size=(n_background + n_signal, N_FEATURES))
    X[n_background:, :2] += 1.5
    on = np.r_[rng.random(n_background) < ALPHA / (1 + ALPHA), np.ones(n_signal, dtype=bool)]
    return X, on, rng.integers(0, N_GROUPS, len(on))


def _permutation_p_values(detection: Detection, statistic: str, rng: np.random.Generator) -> Row:
    """Return the p-value of permutations, and one whose steps are spread evenly, for a test of uniformity."""
    permuted, contrast = detection.permutations[statistic], detection.contrasts[statistic]
    if len(permuted) == 0:
        return {"p_value": None, "p_value_spread": None}
    n_larger, n_equal = np.count_nonzero(permuted > contrast), 1 + np.count_nonzero(permuted == contrast)
    return {
        "p_value": float(detection.permutation_p_values[statistic]),
        "p_value_spread": float((n_larger + rng.random() * n_equal) / (1 + len(permuted))),
    }


def describe(header: Mapping[str, Any]) -> str:
    """Return which data the numbers are from."""
    return "drawn by the study" + (", small substitutes, whose numbers are meaningless" if header["small"] else "")


CALIBRATION = Study("calibration", 2_000, plan, run, describe)


def calibration_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return false alarms and power."""
    results = frames["calibration"].astype({"p_value": float, "p_value_spread": float})
    rates, critical = power(results), critical_values(results)
    values = ", ".join(f"{value:.2f} ({statistic}, {strategy})" for (strategy, statistic), value in critical.items())
    text = (
        "The likelihood uses all hold-out events, the cut those above the threshold, of the same models. Without a "
        "source significances should be standard normal and p-values uniform; the error of a rate of 0.05 is 0.22 over "
        "the root of the number of data sets.",
        "Power is the share of data sets with a detection at a true level of five per cent, by the critical values "
        f"without a source: {values}, and 1.645 without a cut.",
    )
    shown = rates[rates["signal"] > 0].copy()
    pairs = zip(shown["difference"], shown["error"], strict=True)
    shown["difference"] = [show_number(*pair, 3, signed=True) for pair in pairs]
    for column in shown.columns[3:]:
        if column != "difference":
            digits = 2 if column.startswith("mean") else 3
            shown[column] = [show_number(value, np.nan, digits) for value in shown[column]]
    tables = {
        "Without a source": false_alarms(results),
        "Power": shown.drop(columns="error").rename(columns={"difference": "likelihood - cut"}),
    }
    caption = "False alarms, p-values and power. Solid lines are the likelihood, dashed ones the cut."
    figures = {"calibration": (_draw(results, rates), caption)}
    return Page("Calibration of significances", data, text, tables, rates, figures)


def false_alarms(results: pd.DataFrame) -> pd.DataFrame:
    """Return distributions without a source; no cut shows what chance does to the same data sets."""
    null = results[results["n_signal"] == 0]
    lines = []
    for statistic in STATISTICS:
        for rule, part in null[null["statistic"] == statistic].groupby("rule", sort=False):
            name = statistic if statistic == "likelihood" else f"cut, {rule} rule"
            if statistic == "likelihood":
                lines.append(("no cut", "", len(part), *_describe_significances(part["uncut"])))
            lines += [
                (name, value, len(part), *_describe_significances(part[value])) for value in ("pooled", "forward")
            ]
            permuted = part.dropna(subset=["p_value"])
            if len(permuted):
                lines.append((name, "permutation", len(permuted), "", "", *_describe_p_values(permuted)))
    limits = ("P(> 1.645), nominal 0.050", "P(> 2.326), nominal 0.010", "P(> 3), nominal 0.0013")
    columns = ["statistic", "value", "data sets", "mean", "standard deviation", *limits, "p, Kolmogorov-Smirnov"]
    return pd.DataFrame(lines, columns=columns)


def _describe_significances(values: pd.Series[float]) -> tuple[str, ...]:
    """Return mean, standard deviation, tails and the test for a normal distribution as text."""
    s, n = values.to_numpy(np.float64), len(values)
    rates = (f"{np.mean(s > z):.4f}" for z in norm.isf([0.05, 0.01, norm.sf(3)]))
    spread = (show_number(s.mean(), s.std() / n**0.5, 3), show_number(s.std(), s.std() / (2 * n) ** 0.5, 3))
    return (*spread, *rates, f"{kstest(s, norm.cdf).pvalue:.3f}")


def _describe_p_values(permuted: pd.DataFrame) -> tuple[str, ...]:
    """Return the tails that permutations can reach and the test for a uniform distribution as text."""
    levels = (LEVEL, 0.01, norm.sf(3))
    reachable = [level * (1 + N_PERMUTATIONS) >= 1 for level in levels]
    rates = (
        f"{(permuted['p_value'] <= p).mean():.4f}" if is_in else "" for p, is_in in zip(levels, reachable, strict=True)
    )
    return (*rates, f"{kstest(permuted['p_value_spread'], 'uniform').pvalue:.3f}")


def critical_values(results: pd.DataFrame) -> pd.Series[float]:
    """Return what five per cent of the data sets without a source exceed, by strategy and statistic."""
    null = results[(results["rule"] == "largest") & (results["n_signal"] == 0)]
    found = null.groupby("statistic", sort=False)[["pooled", "forward"]].quantile(1 - LEVEL)
    return found.loc[list(STATISTICS)].unstack()


def power(results: pd.DataFrame) -> pd.DataFrame:
    """Return shares of data sets with a detection at a true level of five per cent, and mean significances.

    Both statistics and no cut are compared on the same data sets. The error is that of the difference between
    likelihood and cut, which is smaller than the errors of the shares, as both detect mostly the same data sets.
    """
    critical, rows = critical_values(results), []
    for n_signal, part in results[results["rule"] == "largest"].groupby("n_signal"):
        for strategy in STRATEGIES:
            own = part.dropna(subset=["p_value"]) if strategy == "permutation" else part
            if own.empty:
                continue
            if strategy == "permutation":
                detected = own["p_value"] <= LEVEL
            else:
                detected = own[strategy] > own["statistic"].map(critical[strategy])
            found = own.assign(detected=detected).pivot(index="trial", columns="statistic")
            gain = found["detected", "likelihood"].astype(float) - found["detected", "cut"]
            row = {"signal": n_signal, "value": strategy, "data sets": len(gain)}
            row |= {"no cut": (found["uncut", "cut"] > norm.isf(LEVEL)).mean()}
            row |= {statistic: found["detected", statistic].mean() for statistic in ("cut", "likelihood")}
            row |= {"difference": gain.mean(), "error": gain.std() / len(gain) ** 0.5}
            if strategy != "permutation":
                row |= {f"mean S, {statistic}": found[strategy, statistic].mean() for statistic in STATISTICS}
            rows.append(row)
    return pd.DataFrame(rows)


def _draw(results: pd.DataFrame, rates: pd.DataFrame) -> Figure:
    """Draw the null distributions, the p-values and the power."""
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    alarms, p_values, detections = figure.subplots(1, 3)
    null, z = results[(results["rule"] == "largest") & (results["n_signal"] == 0)], np.linspace(1, 3.5, 200)
    alarms.plot(z, norm.sf(z), color="black", lw=1.2, label="standard normal")
    p_values.plot([0, 1], [0, 1], color="black", lw=1.2, label="uniform")
    for strategy, color in COLORS.items():
        for statistic, line in STYLES.items():
            style = {"color": color, "ls": line, "label": f"{statistic}, {strategy}"}
            part = null[null["statistic"] == statistic]
            p = part["p_value_spread"].dropna() if strategy == "permutation" else norm.sf(part[strategy])
            p_values.step(np.sort(p), np.arange(1, len(p) + 1) / len(p), lw=1, **style)
            if strategy != "permutation":
                share = 1 - np.searchsorted(np.sort(part[strategy]), z, side="right") / len(part)
                alarms.step(z, share, **style)
            own = rates[rates["value"] == strategy]
            detections.plot(own["signal"], own[statistic], marker="o", ms=4, **style)
    pooled = rates[rates["value"] == "pooled"]
    detections.plot(pooled["signal"], pooled["no cut"], marker="o", ms=4, color=GREY, label="no cut")
    alarms.set(
        yscale="log", xlabel="significance S / sigma", ylabel="share of data sets above S", title="Without a source"
    )
    p_values.set(
        xlabel="p-value", ylabel="share of data sets below", title="Without a source", xlim=(0, 1), ylim=(0, 1)
    )
    detections.set(
        xlabel="signal events among the background",
        ylabel="share of data sets detected",
        title="Power at a true level of 5 %",
        ylim=(0, 1.02),
    )
    for axis in (alarms, p_values, detections):
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
