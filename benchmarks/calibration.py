"""Do significances of learned cuts mean what they say? A study on data without and with a source.

Run with ``python benchmarks/calibration.py`` (about 25 minutes on two cores; ``--data-sets 50`` for a quick look).
Every data set holds 2,000 background events in five groups, eight Gaussian features, alpha = 1/5, and a source of some
strength. A forest of 20 trees is cross-validated on it: pooled, forward, and with 39 permutations. Without a source,
significances should be standard normal and p-values uniform; with a source, the share of detections is the power.
``--plot FILE`` draws the figure of ``docs/honesty.md``, ``--save FILE`` keeps the values for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import kstest, norm

from excess import OnOffForestClassifier, cross_val_detect

ALPHA = 1 / 5
N_BACKGROUND, N_FEATURES, N_GROUPS, N_PERMUTATIONS = 2_000, 8, 5, 39
STRENGTHS = (20, 40, 60)
RULES = {"largest": {"threshold_tolerance": 0.0, "n_threshold_bootstrap": 0}, "default": {}}
LEVEL = 0.05


def one_data_set(number: int, n_signal: int, rule: str) -> dict[str, float | int | str]:
    """Cross-validate one data set in all three ways."""
    rng = np.random.default_rng([number, n_signal])
    X = rng.normal(size=(N_BACKGROUND + n_signal, N_FEATURES))
    X[N_BACKGROUND:, :2] += 1.5
    on = np.r_[rng.random(N_BACKGROUND) < ALPHA / (1 + ALPHA), np.ones(n_signal, dtype=bool)]
    groups = rng.integers(0, N_GROUPS, len(on))
    forest = OnOffForestClassifier(20, max_depth=4, min_samples_leaf=10, random_state=number, **RULES[rule])
    shared = {"alpha": ALPHA, "groups": groups, "random_state": number}
    pooled = cross_val_detect(forest, X, on, n_permutations=N_PERMUTATIONS, **shared)
    forward = cross_val_detect(forest, X, on, strategy="forward", **shared)
    permuted = pooled.permuted_contrasts
    n_larger = np.count_nonzero(permuted > pooled.contrast)
    n_equal = 1 + np.count_nonzero(permuted == pooled.contrast)
    return {
        "rule": rule,
        "n_signal": n_signal,
        "pooled": pooled.significance,
        "forward": forward.significance,
        "p_value": pooled.permutation_p_value,
        # steps of 1/40 spread out, so that a test for uniformity applies
        "p_value_spread": (n_larger + rng.random() * n_equal) / (1 + N_PERMUTATIONS),
        "uncut": pooled.uncut.significance,
        "n_selected": int(np.count_nonzero(pooled.selected)),
    }


def study(n_data_sets: int, n_jobs: int) -> pd.DataFrame:
    """Return one row per data set."""
    cases = [(rule, 0) for rule in RULES] + [("largest", n_signal) for n_signal in STRENGTHS]
    tasks = []
    for rule, n_signal in cases:
        n = n_data_sets if n_signal == 0 else n_data_sets // 3
        tasks += [delayed(one_data_set)(number, n_signal, rule) for number in range(n)]
    results = Parallel(n_jobs, return_as="generator_unordered")(tasks)
    return pd.DataFrame(track(results, total=len(tasks), console=Console(stderr=True), description="Data sets"))


def false_alarms(results: pd.DataFrame) -> Table:
    """Say how the values behave where there is no source."""
    null = results[results["n_signal"] == 0]
    table = Table(title=f"Without a source, {null.groupby('rule').size().min()} data sets for each rule")
    columns = ("rule", "value", "mean", "sd", "P(> 1.645)", "P(> 2.326)", "P(> 3)", "KS p")
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for rule, part in null.groupby("rule", sort=False):
        n = len(part)
        for name in ("pooled", "forward"):
            s = part[name].to_numpy()
            rates = [f"{np.mean(s > z):.3f}" for z in norm.isf([0.05, 0.01, norm.sf(3)])]
            ks = kstest(s, norm.cdf).pvalue
            table.add_row(
                rule, name, _pm(s.mean(), s.std() / n**0.5), _pm(s.std(), s.std() / (2 * n) ** 0.5), *rates, f"{ks:.3f}"
            )
        p = part["p_value"].to_numpy()
        rates = [
            f"{np.mean(p <= level):.3f}" if level * (1 + N_PERMUTATIONS) >= 1 else ""
            for level in (0.05, 0.01, norm.sf(3))
        ]
        ks = kstest(part["p_value_spread"], "uniform").pvalue
        table.add_row(rule, "permutation", "", "", *rates, f"{ks:.3f}")
    error = (LEVEL * (1 - LEVEL) / n) ** 0.5
    table.caption = f"nominal rates 0.05, 0.01, 0.0013; the binomial error of the first is {error:.3f}"
    return table


def power(results: pd.DataFrame) -> pd.DataFrame:
    """Return the share of data sets with a detection at the five per cent level, and mean significances."""
    largest = results[results["rule"] == "largest"]
    critical = largest.loc[largest["n_signal"] == 0, "pooled"].quantile(1 - LEVEL)
    nominal = norm.isf(LEVEL)
    rows = []
    for n_signal, part in largest.groupby("n_signal"):
        rows.append(
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
        )
    return pd.DataFrame(rows)


def plot(results: pd.DataFrame, path: Path) -> None:
    """Draw the null distributions, the p-values and the power."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    colors = {"pooled": "#d55e00", "forward": "#0072b2", "permutation": "#009e73", "no cut": "#666666"}
    null = results[(results["n_signal"] == 0) & (results["rule"] == "largest")]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    z = np.linspace(1, 3.5, 200)
    axes[0].plot(z, norm.sf(z), color="black", lw=1.2, label="standard normal")
    for name in ("pooled", "forward"):
        s = np.sort(null[name])
        share = np.searchsorted(-s[::-1], -z, side="left") / len(s)
        axes[0].step(z, share, color=colors[name], label=name)
    axes[0].set(
        yscale="log",
        xlabel="significance S / sigma",
        ylabel="share of data sets above S",
        title="False alarms without a source",
    )
    axes[0].legend(frameon=False)
    p = np.sort(null["p_value_spread"])
    axes[1].plot([0, 1], [0, 1], color="black", lw=1.2, label="uniform")
    axes[1].step(p, np.arange(1, len(p) + 1) / len(p), color=colors["permutation"], label="permutation")
    for name in ("pooled", "forward"):
        q = np.sort(norm.sf(null[name]))
        axes[1].step(q, np.arange(1, len(q) + 1) / len(q), color=colors[name], alpha=0.7, label=f"{name}, p of S")
    axes[1].set(
        xlabel="p-value", ylabel="share of data sets below", title="p-values without a source", xlim=(0, 1), ylim=(0, 1)
    )
    axes[1].legend(frameon=False)
    rates = power(results)
    for column, name in (
        ("pooled, true level", "pooled"),
        ("forward", "forward"),
        ("permutation", "permutation"),
        ("no cut", "no cut"),
    ):
        axes[2].plot(rates["signal"], rates[column], marker="o", color=colors[name], label=column)
    axes[2].set(
        xlabel=f"signal events among {N_BACKGROUND}",
        ylabel="share of data sets detected",
        title="Power at a true level of 5 %",
        ylim=(0, 1),
    )
    axes[2].legend(frameon=False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the study, print the tables, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=600, help="data sets without a source, for each rule")
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--save", type=Path, help="CSV file for the values; read instead of computed if it exists")
    parser.add_argument("--plot", type=Path, help="PNG, PDF or SVG file for the figure")
    arguments = parser.parse_args()
    if arguments.save is not None and arguments.save.exists():
        results = pd.read_csv(arguments.save)
    else:
        results = study(arguments.data_sets, arguments.jobs)
        if arguments.save is not None:
            results.to_csv(arguments.save, index=False)
    console = Console(width=120)
    console.print(false_alarms(results))
    console.print(power(results).round(3).to_string(index=False))
    if arguments.plot is not None:
        plot(results, arguments.plot)


def _pm(value: float, error: float) -> str:
    return f"{value:.3f} +- {error:.3f}"


if __name__ == "__main__":
    main()
