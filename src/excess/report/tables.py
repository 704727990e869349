"""Tables of the page: one row of texts per group, observation or fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.report.exploration import counts_text
from excess.report.sentences import format_number
from excess.validation.detection import Detection

__all__ = ["fold_rows", "group_rows", "observation_rows", "text_if_known"]


def group_rows(detection: Detection, missing: list[str]) -> list[dict[str, Any]]:
    """Return one row per group, as texts and as numbers for bars."""
    if detection.groups is None:
        missing.append("There are no groups, such as nights, so there is no table of them.")
        return []
    found = detection.groups_frame().to_dict("records")
    rows = [
        {
            "group": str(group),
            **counts_text(counts),
            "bar": round(counts.excess, 3),
            "bar_error": round(counts.excess_error, 3),
            "likelihood": text_if_known("{:.2f}", numbers["likelihood_significance"]),
            "strength": text_if_known(
                "{:.2f} ({:.2f} to {:.2f})", *(numbers[f"relative_strength{end}"] for end in ("", "_low", "_high"))
            ),
            "hours": text_if_known("{:.2f}", numbers.get("hours", float("nan"))),
            "rate": text_if_known(
                "{:,.1f} ± {:,.1f}",
                *(numbers.get(f"excess_per_hour{end}", float("nan")) for end in ("", "_error")),
            ),
        }
        for (group, counts), numbers in zip(detection.counts_by_group.items(), found, strict=True)
    ]
    if len(rows) == 1:
        missing.append(f"There is one group only, {rows[0]['group']}, so groups cannot be compared.")
    return rows


def observation_rows(detection: Detection) -> list[dict[str, str]]:
    """Return one row of texts per observation, and one for all together; nothing unless there are several."""
    found = detection.outcomes_by_observation
    if len(found) < 2:
        return []
    return [
        {
            "observation": str(name),
            "alpha": f"{outcome.counts.alpha:.4g}",
            **counts_text(outcome.counts),
            "likelihood": text_if_known("{:.2f}", outcome.significances["likelihood"]),
        }
        for name, outcome in [*found.items(), ("joint", detection.outcome)]
    ]


def text_if_known(template: str, *values: float) -> str:
    """Return numbers as text; nothing where one of them is not a number."""
    return "" if np.isnan(values).any() else template.format(*values).replace("inf", "∞").replace("-", "−")


def fold_rows(detection: Detection) -> list[dict[str, str]]:
    """Return one row of texts per fold."""
    return [
        {
            **counts_text(fold.held_out),
            "fold": str(number),
            "n_train": f"{fold.n_train:,}" if fold.n_train else "elsewhere",
            "n_held_out": f"{fold.n_held_out:,}",
            "threshold": "" if np.isnan(fold.threshold) else format_number(fold.threshold),
            "tuned": "" if fold.tuned is None else f"{fold.tuned.significance:.2f}",
            "likelihood": text_if_known("{:.2f}", fold.likelihood_significance),
        }
        for number, fold in enumerate(detection.folds)
    ]
