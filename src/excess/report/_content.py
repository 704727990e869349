"""Text of the report: verdict, number to quote, numbers with notes, tables, captions, and missing information."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from excess.detection._diagnostics import Verdict, assess
from excess.detection._null_test import NullTest
from excess.detection._result import STATISTICS, Detection, Outcome, describe_limits, quoted_limits, quoted_significance
from excess.detection._result import models_table as compare_models
from excess.detection._simulation_check import SimulationAgreement
from excess.estimators._hybrid import LABELS as FROM_LABELS
from excess.estimators._hybrid import LABELS_AND_REFERENCES
from excess.report._series import has_light_curve, has_score, light_curve
from excess.report._style import with_error
from excess.stats._significance import OnOffCounts

MAX_ROWS = 300  # maximum number of rows in a table of groups or folds; CSV files next to the report contain all of them
MAX_PANELS = 8  # maximum number of plotted features of a simulated sample; the table contains all of them
MAX_FEATURES, _MIN_FEATURES = 32, 5  # maximum number of plotted features of all models, and minimum for each model
MAX_MAPS = 4  # maximum number of models with a sky map on the page

_LABELS = {  # CSS class of the verdict, and its title, by status
    "detected": ("found", "Source detected"),
    "not confirmed": ("unconfirmed", "Not confirmed"),
    "no detection": ("nothing", "No detection"),
    "doubtful": ("doubt", "Do not claim this"),
}
_TO_QUOTE = "the one to quote"
_COMPARES = "compares models"
_MEANINGS = {  # of the value that could be quoted, by the status of the verdict; "compared": found by another model
    "detected": _TO_QUOTE,
    "compared": "for comparison with the first model",
    "not confirmed": "not confirmed",
    "no detection": "no detection",
    "doubtful": "not to be quoted before the warnings are explained",
}
_NOTHING_TO_QUOTE = {
    "not confirmed": "There is no confirmed detection to quote.",
    "no detection": "There is no detection to quote.",
    "compared": "This model is for comparison: quote the detection of the first model in the list.",
    "doubtful": "Do not quote a significance before the warnings are explained.",
}
_NAMES = {"pooled": "pooled", "forward": "forward", "applied": "new events"}
_ABOUT = {
    "likelihood": "all hold-out events, weighted by the likelihood ratio of signal to background",
    "cut": "hold-out events above the tuned thresholds, with equal weights",
}
_FORWARD = "every event predicted by a model trained on earlier events only"
_KINDS = {
    FROM_LABELS: "trained on the labels only",
    LABELS_AND_REFERENCES: "trained on the labels, with the references as additional features",
}
_SAMPLES = {"signal": ("Simulated gammas", "gammas"), "background": ("Simulated protons", "protons")}
_TIMES = {  # origin of observation times
    "livetime": "livetime of the files",
    "ontime": "observation time of the files, dead time included",
    "events": "first to last event of each run, slightly too short, dead time included",
}


class Table(NamedTuple):
    """A table of the page: the first cell of each row names the row."""

    label: str
    heads: list[str]
    rows: list[list[str]]
    note: str = ""


class Number(NamedTuple):
    """A number of the result, and whether it is the one to quote."""

    label: str
    value: str
    note: str
    quoted: bool = False


class PageFigure(NamedTuple):
    """A figure of the page as SVG, its data as CSV, and points ``[x, y, text]`` for tooltips."""

    id: str
    svg: str
    csv: str
    hover: list[list[Any]]


@dataclass
class ModelContent:
    """Text and tables of the page for one of several models."""

    name: str
    detection: Detection
    forward: Outcome | None = None
    null_test: NullTest | None = None
    verdict: Verdict | None = None
    no_forward: str = ""
    max_rows: int = MAX_ROWS
    number: int = 0
    n_models: int = 1
    figures: dict[str, PageFigure] = field(default_factory=dict)
    slider: dict[str, Any] | None = None
    sky: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Determine the value to quote; only the first model, which was chosen beforehand, may be quoted."""
        found = self.detection
        conclusion = assess(found, self.forward, self.null_test) if self.verdict is None else self.verdict
        self.warnings = conclusion.warnings
        self.level, self.stamp = _LABELS[conclusion.status]
        self.sentence = f"{_amount(found)}, {conclusion.sentence}"
        limits = {} if conclusion.feasible else quoted_limits(found, self.forward)
        self.limits = describe_limits(limits, found.required_significance)
        self.status = "compared" if conclusion.feasible and self.number > 0 else conclusion.status
        self.detected, self.quotable = conclusion.feasible, self.status == "detected"
        self.reason = self.no_forward.strip().rstrip(".") or "it was not computed"
        self.strategy, self.statistic = found.strategy, found.statistic
        self.cross_validated, self.pooled = found.strategy != "applied", found.strategy == "pooled"
        self.significances = found.outcome.significances
        self.n_features = max(_MIN_FEATURES, MAX_FEATURES // self.n_models)
        self.tuned = counts_text(found.counts)
        tables = [shorten(own, f"{own.label}.csv", self.max_rows) for own in _tables(found) if own.rows]
        self.tables = {own.label: own for own in tables}

    @property
    def rates(self) -> str:
        """The observation time and its origin."""
        exposure = self.detection.exposure
        return "" if exposure is None else f"{exposure.total:.2f} hours in total. Times: {_TIMES[exposure.source]}."

    def _ahead(self, statistic: str) -> float | None:
        """Return the forward significance by a statistic in addition to a pooled one; None if there is none."""
        quoted = quoted_significance(self.detection, self.forward, statistic)
        return quoted.value if quoted.strategy != self.strategy else None

    @property
    def headline(self) -> dict[str, Any]:
        """Headline number of the page with its label, secondary values, and notes."""
        value, meaning, notes = f"{self.detection.significance:.1f} σ", _MEANINGS[self.status], [self._statistics()]
        ahead = self._ahead(self.statistic)
        if ahead is not None:
            beside = [(value, f"pooled: {_COMPARES}")]
            return {"value": f"{ahead:.1f} σ", "label": f"forward: {meaning}", "beside": beside, "notes": notes}
        if self.strategy == "pooled":
            absent = "No forward value"
            if self.quotable:
                meaning = f"{_COMPARES}, not {_TO_QUOTE}"
                absent += ", which would be the one to quote"
            notes.insert(0, f"{absent}: {self.reason}.")
        elif self.quotable:
            meaning = self._to_quote
        return {"value": value, "label": f"{_NAMES[self.strategy]}: {meaning}", "beside": [], "notes": notes}

    @property
    def _to_quote(self) -> str:
        """Phrase that a number is the one to quote, and on which condition."""
        return _TO_QUOTE + ("" if self.cross_validated else ", if the model was chosen independently of these events")

    def _statistics(self) -> str:
        """Describe the declared statistic, and the significances by the other one."""
        name = {"likelihood": "By the likelihood of all hold-out events", "cut": "By the cut"}[self.statistic]
        [(other, value)] = [one for one in self.detection.outcome.significances.items() if one[0] != self.statistic]
        if np.isnan(value):
            return f"{name}."
        ahead = self._ahead(other)
        values = [] if ahead is None else [f"{ahead:.1f} σ forward"]
        values.append(f"{value:.1f} σ {_NAMES[self.strategy]}")
        return f"{name}, declared beforehand. By the {other}, for comparison: {', '.join(values)}."

    @property
    def quote(self) -> str:
        """Which number to quote and why: that of the declared statistic, forward if available."""
        parts = [_NOTHING_TO_QUOTE.get(self.status, ""), *self._values()]
        if self.detection.likelihood is not None:
            other = "cut" if self.statistic == "likelihood" else "likelihood"
            parts.append(f"The {self.statistic} was declared beforehand; the {other} is shown for comparison.")
            parts.append("Quoting the larger of the two would be biased.")
        if self.detection.n_permutations:
            parts.append("The permutation p-value tests whether the features separate On from Off.")
        parts += [f"{remark}." for remark in self.detection.remarks]
        return " ".join(part for part in parts if part)

    def _values(self) -> list[str]:
        """Return a sentence about the value to quote, and one about the pooled value."""
        by_cut, value = self.statistic == "cut", f"{self.detection.significance:.1f} sigma"
        if self.strategy == "applied":
            chosen = "this model and its threshold were" if by_cut else "this model was"
            what = f"Quote {value}," if self.quotable else f"{value} counts"
            return [f"{what} if {chosen} chosen independently of these events, and trained on other events."]
        fixed = "the selection of every block of events was fixed by earlier blocks"
        if not by_cut:
            fixed = "the likelihood ratio of every event was fixed by earlier blocks of events"
        normal = "so without a source it follows a standard normal distribution"
        if self.strategy == "forward":
            what = f"Quote this value, {value}" if self.quotable else f"This value, {value}, is a forward one"
            return [f"{what}: {fixed}, {normal}."]
        pooled = f"Use the pooled value, {value}, to compare models: these were trained on each other's hold-out events"
        pooled += ", so without a source its spread is slightly larger than that of a significance."
        ahead = self._ahead(self.statistic)
        if ahead is None:
            what = "The value to quote would be the forward one" if self.quotable else "There is no forward value"
            why = "for which every event is predicted by a model trained on earlier events only"
            return [f"{what}, {why}; here, {self.reason}.", pooled]
        what = f"The forward value, {ahead:.1f} sigma, is the relevant one"
        if self.quotable:
            what = f"Quote the forward value, {ahead:.1f} sigma"
        is_smaller = ahead < self.detection.significance
        why = "It is smaller than the pooled one, because early models have few training events." if is_smaller else ""
        return [f"{what}: {fixed}, {normal}.", why, pooled]

    @property
    def thresholds(self) -> str:
        """Describe the thresholds that select the events of the result."""
        if not has_score(self.detection).any():
            return "No scores are available, so other thresholds cannot be shown."
        known = self.detection.thresholds[~np.isnan(self.detection.thresholds)]
        if len(known) == 0:
            return "The models select events by their own rules, without a threshold on the score."
        low, high = (_known_text("{:.4f}", own) for own in (known.min(), known.max()))
        where = f"each of {len(known)} folds its own, {low} to {high}"
        if low == high:
            where = low if len(known) == 1 else f"{low} in all {len(known)} folds"
        return f"The cut uses thresholds that were tuned on training events only ({where})."

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """Numbers of the result in groups, each with a label and a note; the declared statistic first."""
        found, groups = self.detection, []
        for name in sorted(STATISTICS, key=lambda one: one != self.statistic):
            if name == "likelihood" and found.likelihood is None:
                continue
            tests = self._tests(name) if self.cross_validated else []
            rows = [*self._significances(name), *self._amounts(name), *tests]
            declared = "declared beforehand" if name == self.statistic else "for comparison"
            groups.append({"title": name.capitalize(), "declared": declared, "about": _ABOUT[name], "rows": rows})
        uncut, ratio = found.uncut, "exposure ratio On/Off"
        if found.event_alpha is not None:
            low, high = found.event_alpha.min(), found.event_alpha.max()
            ratio = f"mean exposure ratio On/Off; each event counts with its own, {low:.4g} to {high:.4g}"
        n_held_out, beyond = int(np.count_nonzero(found.held_out)), found.in_likelihood & ~found.held_out
        rows = [
            Number("Hold-out events", f"{n_held_out:,}", f"On {uncut.n_on:,.0f}, Off {uncut.n_off:,.0f}"),
            Number("alpha", f"{found.alpha:.4g}", ratio),
            Number("Without a cut", f"{uncut.significance:.2f} σ", "all hold-out events as one bin"),
        ]
        if n_beyond := int(np.count_nonzero(beyond)):
            note = "not counted; used in the likelihood with the angle to the centre of their own region"
            rows.append(Number("Beyond the cut in θ²", f"{n_beyond:,}", note))
        return [*groups, {"title": "Events", "declared": "", "about": "", "rows": rows}]

    def _significances(self, statistic: str) -> list[Number]:
        """Return the significances by one statistic, the forward one first, and its p-value."""
        label, note = {
            "pooled": ("Pooled significance", f"{_COMPARES}: every event predicted by a model trained on other events"),
            "forward": ("Forward significance", _FORWARD),
            "applied": ("Significance", "new events, predicted by a trained model"),
        }[self.strategy]
        repeats, spread = self.detection.repeats[statistic], ""
        if len(repeats) > 1:
            spread = f" ± {repeats.std(ddof=1):.2f}"
            note += f"; ± is the spread over {len(repeats)} seeds"
        best, which = self.detection.outcome.significances[statistic], label.lower()
        rows = [Number(label, f"{best:.2f}{spread} σ", note)]
        quoted, ahead = self.quotable and statistic == self.statistic, self._ahead(statistic)
        if ahead is not None:
            best, which = ahead, "forward significance"
            rows.insert(0, Number("Forward significance", f"{best:.2f} σ", _FORWARD))
        elif self.strategy == "pooled":
            rows.append(Number("Forward significance", "not computed", self.no_forward))
            quoted = False
        if quoted:
            rows[0] = rows[0]._replace(note=f"{self._to_quote}: {rows[0].note}", quoted=True)
        return [*rows, Number("p-value", _p_text(float(ndtr(-best))), f"of the {which}: normal upper tail")]

    def _amounts(self, statistic: str) -> list[Number]:
        """Return the signal by the likelihood, or the counts of the cut."""
        found, counts, likelihood = self.detection, self.detection.counts, self.detection.likelihood
        if statistic == "cut" or likelihood is None:
            return [
                Number("On", f"{counts.n_on:,.0f}", "selected events from the On region"),
                Number("Off", f"{counts.n_off:,.0f}", "selected events from the Off regions"),
                Number("Excess", with_error(counts.excess, counts.excess_error), "On − alpha × Off"),
            ]
        low, high = likelihood.strength_interval
        amount = with_error(likelihood.n_signal, likelihood.n_signal_error)
        where = ", inside and beyond the cut on θ²" if (found.in_likelihood & ~found.held_out).any() else ""
        strength = f"{likelihood.strength:.3g} ({low:.3g} to {high:.3g})".replace("inf", "∞")
        rows = [
            Number("Signal events", amount, f"expected number among the On events ({self.strategy}){where}"),
            Number("Signal strength", strength, "signal events per Off event, with the interval of one sigma"),
        ]
        if self.detected and self.detection.containment_radius is not None:
            note = "radius with 68 % of the signal, by the fitted point spread function"
            rows.append(
                Number("Containment radius", f"{with_error(*self.detection.containment_radius, '.3f')} deg", note)
            )
        return rows

    def _tests(self, statistic: str) -> list[Number]:
        """Return permutations and null tests by one statistic."""
        n = self.detection.n_permutations
        value, note = "not computed", "see excess detect --permutations"
        if n:
            value = f"{self.detection.permutation_p_values[statistic]:.3g}"
            note = f"{n:,} permutations of On and Off; the smallest possible value is {1 / (n + 1):.2g}"
        rows = [Number("Permutation p-value", value, note)]
        value, note = "not made", "see excess detect --null-test; requires two Off regions"
        if self.null_test is not None:
            found = [replace(outcome, statistic=statistic) for outcome in self.null_test.outcomes.values()]
            known = ("-" if one.empty or np.isnan(one.significance) else f"{one.significance:.1f}" for one in found)
            value, note = f"{', '.join(known)} σ", "a search in each Off region"
        return [*rows, Number("Null tests", value, note)]

    @property
    def missing(self) -> Iterator[str]:
        """Yield sentences on missing information."""
        found = self.detection
        held_out, known = found.held_out, has_score(found)
        if n_without := int(np.count_nonzero(held_out & ~known)):
            yield f"{n_without:,} hold-out events have no score: excluded from histogram and slider only."
        if n_trained_on := int(np.count_nonzero(~found.in_likelihood)):
            yield f"{n_trained_on:,} of {len(held_out):,} events were used for training only, and are not counted."
        if found.event_alpha is not None:
            beyond = "Those of events beyond the cut in θ² are unknown, so the θ² plot uses the mean there."
            beyond = beyond if found.theta is not None else ""
            yield f"Exposure ratios differ between events, and each event counts with its own. {beyond}"
        groups = found.counts_by_group
        if found.groups is None:
            yield "No table of groups: the events have no groups, such as nights."
        elif len(groups) == 1:
            yield f"Groups cannot be compared: there is only one, {next(iter(groups))}."
        if found.likelihood is None:
            yield "No likelihood and no light curve: this model has no likelihood ratio."
        elif not has_light_curve(found) and len(groups) > 1:
            yield "No light curve: the mean signal strength is not positive."
        for by, counts in (("group", groups), ("night", found.counts_by_night)):
            if has_light_curve(found, by) and (n_left_out := len(counts) - len(light_curve(found, by))):
                some = f"{n_left_out:,} of {len(counts):,} {by}s"
                yield f"{some} without a bound or an observation time are excluded from the light curve."
        if found.exposure is None:
            yield "No rates per hour: observation times are unknown."
        if found.theta is None or found.theta_squared_cut is None:
            yield "No θ² plot: angles between events and regions are unknown."
        elif found.nearby is None or found.nearby.theta is None:
            yield "The θ² plot ends at the cut: events around the regions are unknown."
        if not known.any():
            yield "No score histogram and no slider: no event has a score."
        if not held_out.any():
            yield "No event was held out."
        elif found.time is None or not np.isfinite(found.time[held_out]).all():
            yield "The significance is shown against hold-out events: times are unknown."
        if found.importances is None:
            yield "This model has no feature importances."
        if not found.features:
            yield "No comparison of On and Off in features: their values are unknown (older runs lack them)."
        elif len(found.features) > self.n_features:
            n_all = len(found.features)
            yield f"On and Off are compared in {self.n_features} of {n_all} features; result.json has all of them."
        sky = found.sky
        if sky is None or not sky.layers:
            needs = "sky positions of events, pointing and source, and 100 events around the source"
            yield f"No sky map: it requires {needs}."
        elif self.number >= MAX_MAPS:
            yield f"Sky maps are shown for the first {MAX_MAPS} models."
        elif "selected" not in sky.layers:
            yield "No sky map of selected events: there are too few."
        if self.null_test is None and self.cross_validated:
            yield "No null test was run, which searches for a source in the Off regions."


def _amount(detection: Detection) -> str:
    """Describe the result of the declared statistic: signal events of the likelihood, or the excess of a cut."""
    counts, likelihood = detection.counts, detection.likelihood
    if detection.statistic == "likelihood" and likelihood is not None:
        word, amount, error = "A signal", likelihood.n_signal, likelihood.n_signal_error
    elif counts.n_on + counts.n_off == 0:
        return "No event was selected"
    else:
        word, amount, error = "An excess", counts.excess, counts.excess_error
    return f"{word if amount >= 0 else 'A deficit'} of {with_error(abs(amount), error)} events"


def _known_text(template: str, *values: float) -> str:
    """Return numbers as text; empty if one of them is not a number."""
    return "" if np.isnan(values).any() else template.format(*values).replace("inf", "∞").replace("-", "−")


def _p_text(p_value: float) -> str:
    return f"{p_value:.2g}" if p_value > 1e-300 else "below 1e-300"


def _tables(detection: Detection) -> list[Table]:
    """Return the tables about one model, some of them without rows."""
    found = [_weight_table(detection), _group_table(detection), _fold_table(detection)]
    likely = [] if detection.likelihood is None else ["Likelihood / σ"]
    heads = ["Cut / σ", "On", "Off", "Excess", *likely]
    several = detection.outcomes_by_observation
    if len(several) > 1:
        outcomes = {**several, "joint": detection.outcome}
        rows = [[str(name), f"{one.counts.alpha:.4g}", *_outcome_cells(one, likely)] for name, one in outcomes.items()]
        note = f"One model for all observations, with its tuned cut, not the slider. {detection.best_observation}"
        found.append(Table("observations", ["Observation", "alpha", *heads], rows, note))
    if bins := detection.bins:
        columns = [*bins.labels, "joint"], [*bins.outcomes, detection.outcome], [*bins.notes, ""]
        rows = [[name, *_outcome_cells(one, likely), note] for name, one, note in zip(*columns, strict=True)]
        found.append(Table("bins", [bins.column, *heads, "Note"], rows))
    return found


def shorten(table: Table, file: str, max_rows: int) -> Table:
    """Return the first rows of a table, with a note if there are more."""
    n_rows = len(table.rows)
    if n_rows <= max_rows:
        return table
    note = f"The first {max_rows} of {n_rows} {table.label}; `excess report --csv` writes all to {file}. {table.note}"
    return table._replace(rows=table.rows[:max_rows], note=note)


def _outcome_cells(outcome: Outcome, likely: list[str]) -> list[str]:
    """Return counts, and the significance by the likelihood if the table includes it."""
    more = [_known_text("{:.2f}", outcome.significances["likelihood"]) for _ in likely]
    return [*counts_text(outcome.counts).values(), *more]


def _group_table(detection: Detection) -> Table:
    """Return counts, signal strength and rate of each group."""
    heads, note = ["Group", "Cut / σ", "On", "Off", "Excess"], ""
    if detection.groups is None:
        return Table("groups", heads, [])
    frame = detection.groups_frame()
    columns = [[str(group), *counts_text(counts).values()] for group, counts in detection.counts_by_group.items()]
    more: dict[str, tuple[str, ...]] = {}
    if detection.likelihood is not None:
        more["Likelihood / σ"] = ("{:.2f}", "likelihood_significance")
        strength = [f"relative_strength{end}" for end in ("", "_low", "_high")]
        more["Signal strength / mean"] = ("{:.2f} ({:.2f} to {:.2f})", *strength)
        note = "Columns of the likelihood, which has no threshold, do not follow the slider."
    if "hours" in frame and frame["hours"].notna().any():
        more["Hours"] = ("{:.2f}", "hours")
        if detection.likelihood is not None:
            more["Signal / h"] = ("{:,.2f} ({:,.2f} to {:,.2f})", "rate", "rate_low", "rate_high")
    for template, *names in more.values():
        for row, values in zip(columns, frame[names].to_numpy(dtype=np.float64), strict=True):
            row.append(_known_text(template, *values))
    return Table("groups", [*heads, *more], columns, note)


def _weight_table(detection: Detection) -> Table:
    """Return the weight of each member of a hybrid."""
    rows = []
    for name, weight in detection.reference_weights.items():
        spread = f"{weight.low:.2f} to {weight.high:.2f}" if len(detection.folds) > 1 else ""
        rows.append([name, _KINDS.get(name, "reference"), f"{weight.mean:.2f}", spread])
    return Table("weights", ["Member", "Kind", "Weight", "Range over folds"], rows)


def _fold_table(detection: Detection) -> Table:
    """Return the events, threshold and counts of each fold."""
    heads = ["Fold", "Trained on", "Hold-out", "Threshold", "Tuned-on σ", "On", "Off", "Cut, hold-out σ"]
    likely = [] if detection.likelihood is None else ["Likelihood, hold-out σ"]
    rows, without = [], "elsewhere" if detection.strategy == "applied" else "no model yet"
    for number, fold in enumerate(detection.folds):
        significance, n_on, n_off, _ = counts_text(fold.held_out).values()
        tuned = "" if fold.tuned is None else f"{fold.tuned.significance:.2f}"
        trained = f"{fold.n_train:,}" if fold.n_train else without
        threshold = _known_text("{:.4f}", fold.threshold)
        row = [str(number), trained, f"{fold.n_held_out:,}", threshold, tuned, n_on, n_off]
        rows.append([*row, significance, *(_known_text("{:.2f}", fold.likelihood_significance) for _ in likely)])
    note = "Tuned-on values refer to the events used to tune the threshold; they are not a result."
    return Table("folds", [*heads, *likely], rows, note)


def models_table(
    detections: Mapping[str, Detection], forwards: Mapping[str, Outcome], tests: Mapping[str, NullTest], *, pooled: bool
) -> Table:
    """Return one row per model, and one for all events without a cut."""
    likely = any(found.likelihood is not None for found in detections.values())
    value = "pooled σ" if pooled else "σ"
    heads = ["Model", *([f"Likelihood {value}", "Likelihood forward σ", "Signal events"] if likely else [])]
    heads += [f"Cut {value}", "Cut forward σ", "On", "Off", "Excess", "Permutation p", "Null tests / σ"]
    rows = []
    row: Any
    for row in compare_models(detections, forwards, tests).itertuples():
        cells = [str(row.Index)]
        for statistic in STATISTICS if likely else ("cut",):
            cells.append(_known_text("{:.1f}", getattr(row, statistic)))
            cells[-1] += _known_text(" ± {:.1f}", getattr(row, f"{statistic}_spread"))
            cells.append(_known_text("{:.1f}", getattr(row, f"{statistic}_forward")))
            if statistic == "likelihood":
                cells.append(with_error(row.n_signal, row.n_signal_error, ",.0f"))
        cells += [f"{row.n_on:,.0f}", f"{row.n_off:,.0f}", with_error(row.excess, row.excess_error, ",.0f")]
        cells.append(_known_text("{:.3g}", row.permutation_p_value))
        cells.append(", ".join("-" if np.isnan(one) else f"{one:.1f}" for one in row.null_significances))
        rows.append(cells)
    return Table("models", heads, rows)


def simulation_content(agreement: SimulationAgreement) -> dict[str, Any]:
    """Return the text and tables of the simulation check."""
    samples = []
    heads = ["Feature", "Shift / standard deviation", "p-value", "Adjusted", "Differs"]
    for sample, (title, what) in _SAMPLES.items():
        rows = []
        for one in agreement.of_sample(sample):
            shift = with_error(one.shift, one.shift_error, "+.2f")
            p_values = [_p_text(one.p_value), _p_text(one.adjusted_p_value)]
            rows.append([one.feature, shift, *p_values, "yes" if one.flagged else "no"])
        if rows:
            n = agreement.n_simulated_signal if sample == "signal" else agreement.n_simulated_background
            table = Table(f"features of {title.lower()}", heads, rows)
            samples.append({"title": title, "about": f"{n:,} {what}", "table": table})
    flagged = any(one.flagged for one in agreement.comparisons)
    return {
        "title": "Differences found." if flagged else "Agreement." if samples else "Not checked.",
        "verdict": agreement.verdict,
        "confidence": f"{100 * agreement.confidence:g} %",
        "excess": with_error(agreement.excess, agreement.excess_error),
        "samples": samples,
    }


def files_table(files: list[Mapping[str, Any]]) -> Table:
    """Return the input files of a run."""
    rows = [[one["path"], one.get("kind", ""), f"{one['bytes']:,}", one["sha256"]] for one in files]
    return shorten(Table("input files", ["File", "Holds", "Bytes", "SHA-256"], rows), "result.json", MAX_ROWS)


def counts_text(counts: OnOffCounts) -> dict[str, str]:
    """Return significance, On, Off and excess as texts, which the page shows without computing anything."""
    return {name: texts[0] for name, texts in counts_texts([counts]).items()}


def counts_texts(counts: Iterable[OnOffCounts]) -> dict[str, list[str]]:
    """Return lists of counts as text."""
    found = [one.summary() for one in counts]
    return format_counts(**{name: [one[name] for one in found] for name in found[0]})


def format_counts(n_on: Any, n_off: Any, excess: Any, excess_error: Any, significance: Any) -> dict[str, list[str]]:
    """Return lists of texts of counts and what follows from them."""
    columns = {"significance": (significance, ".2f"), "n_on": (n_on, ",.0f"), "n_off": (n_off, ",.0f")}
    found = {name: [format(one, spec) for one in values] for name, (values, spec) in columns.items()}
    return found | {"excess": list(map(with_error, excess, excess_error))}
