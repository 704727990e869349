"""Tables of results as notebooks show them: both statistics of a detection, and the regions of a null test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from excess._core.html import Row, html_table
from excess.stats.counts import OnOffCounts
from excess.validation.detection_text import ShownDetection, permutation_text, strategy_text, trained_on_text
from excess.validation.judged import JudgedNullTest
from excess.validation.outcome import Outcome

_COLUMNS = ("", "On", "Off", "excess", "significance")
_TO_QUOTE = {
    "pooled": 'The pooled significance compares models; the one to quote is that of strategy="forward".',
    "forward": "The significance in bold is the one to quote.",
}
"""What is said of a detection by its strategy, as on the page of a report."""

# A protocol, because a null test shows itself: the other way round would be an import cycle.


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
    rows = [
        *_rows_of(detection.outcome, detection.uncut),
        Row("without a cut", detection.uncut.texts()),
    ]
    parts = detection.outcomes_by_observation
    for name, outcome in parts.items() if len(parts) > 1 else ():
        rows += [row._replace(name=f"{name}: {row.name}") for row in _rows_of(outcome, None)]
    notes = [*detection.remarks, *(f"Warning: {one.sentence}" for one in detection.judgement.warnings)]
    notes += [*permutation_text(detection), *trained_on_text(detection)]
    if detection.judgement.feasible and detection.strategy != "applied":
        notes.append(_TO_QUOTE[detection.strategy])
    caption = f"{strategy_text(detection)}, alpha {detection.alpha:.4g}"
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
