"""Tables of results as notebooks show them: both statistics of a detection, and the regions of a null test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from excess._core.html import Row, html_table
from excess.stats.significance import OnOffCounts
from excess.validation.judged import JudgedDetection, JudgedNullTest
from excess.validation.outcome import Outcome
from excess.validation.verdict import Verdict

_COLUMNS = ("", "On", "Off", "excess", "significance")

# Protocols, because results show themselves: the other way round would be an import cycle.


class ShownDetection(JudgedDetection, Protocol):
    """A `Detection`, whose documentation says what each attribute is."""

    @property
    def outcomes_by_observation(self) -> Mapping[Any, Outcome]: ...  # noqa: D102
    @property
    def n_permutations(self) -> int: ...  # noqa: D102
    @property
    def permutation_p_value(self) -> float: ...  # noqa: D102
    @property
    def judgement(self) -> Verdict: ...  # noqa: D102
    @property
    def remarks(self) -> tuple[str, ...]: ...  # noqa: D102


class ShownNullTest(JudgedNullTest, Protocol):
    """A `NullTest`, whose documentation says what each attribute is."""

    @property
    def outcomes(self) -> Mapping[int, Outcome]: ...  # noqa: D102
    @property
    def mean(self) -> float: ...  # noqa: D102
    @property
    def spread(self) -> float: ...  # noqa: D102


def detection_table(detection: ShownDetection) -> str:
    """Return both statistics, counts and verdict of a detection as HTML; the declared statistic is in bold."""
    n_folds = "" if detection.strategy == "applied" else f", {len(detection.folds)} folds"
    rows = [
        *_rows_of(detection.outcome, detection.uncut),
        Row("without a cut", detection.uncut.texts()),
    ]
    parts = detection.outcomes_by_observation
    for name, outcome in parts.items() if len(parts) > 1 else ():
        rows += [row._replace(name=f"{name}: {row.name}") for row in _rows_of(outcome, None)]
    notes = [*detection.remarks, *(f"Warning: {one.sentence}" for one in detection.judgement.warnings)]
    if detection.n_permutations:
        value = f"{detection.permutation_p_value:.3g} ({detection.n_permutations} permutations)"
        notes.append(f"permutation p-value {value}")
    n_trained_on = len(detection.on) - int(np.count_nonzero(detection.held_out))
    if n_trained_on:
        notes.append(f"{n_trained_on} of {len(detection.on)} events were only trained on")
    caption = f"{detection.strategy}{n_folds}, alpha {detection.alpha:.4g}"
    verdict = f"{detection.judgement.status}: {detection.judgement.sentence}"
    return html_table(_COLUMNS, rows, caption=caption, notes=[*notes, verdict])


def null_test_table(null_test: ShownNullTest) -> str:
    """Return what was found in each Off region, and the verdict, as HTML."""
    columns = ("Off region", "likelihood", "On", "Off", "excess", "cut")
    rows = []
    for region, outcome in null_test.outcomes.items():
        likelihood = "-" if outcome.likelihood is None else f"{outcome.likelihood.significance:.1f} sigma"
        rows.append(Row(str(region), [likelihood, *outcome.counts.texts()]))
    declared = next(iter(null_test.outcomes.values())).statistic
    caption = f"{len(rows)} null regions, declared statistic: {declared}"
    notes = [f"mean {null_test.mean:.2f}, spread {null_test.spread:.2f} sigma", null_test.verdict]
    return html_table(columns, rows, caption=caption, notes=notes)


def _rows_of(outcome: Outcome, everything: OnOffCounts | None) -> list[Row]:
    """Return a row for each statistic; the likelihood is of all events, whose numbers may not be known."""
    rows = []
    if outcome.likelihood is not None:
        found = outcome.likelihood
        numbers = everything.texts()[:2] if everything is not None else ["", ""]
        signal = f"{found.n_signal:.1f} ± {found.n_signal_error:.1f}"
        cells = [*numbers, signal, f"{found.significance:.1f} sigma"]
        rows.append(Row("likelihood", cells, outcome.statistic == "likelihood"))
    rows.append(Row("cut", outcome.counts.texts(), outcome.statistic == "cut"))
    return rows
