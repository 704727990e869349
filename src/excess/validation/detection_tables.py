"""Tables of a detection: one row per event, fold, group, observation or bin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess.stats.counts import OnOffCounts
from excess.stats.likelihood import OnOffLikelihood
from excess.validation.detection_bins import DetectionBins
from excess.validation.detection_parts import Fold
from excess.validation.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["tabulate_bins", "tabulate_events", "tabulate_folds", "tabulate_groups", "tabulate_observations"]


def tabulate_events(**columns: NDArray[Any] | None) -> pd.DataFrame:
    """Return one row per event, with the columns that are known."""
    import pandas as pd

    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def tabulate_folds(folds: Iterable[Fold]) -> pd.DataFrame:
    """Return one row per fold, with tuned-on and hold-out values side by side."""
    import pandas as pd

    rows = []
    for fold in folds:
        tuned = fold.tuned
        rows.append(
            {
                "n_train": fold.n_train,
                "n_held_out": fold.n_held_out,
                "threshold": fold.threshold,
                "tuned_n_on": np.nan if tuned is None else tuned.n_on,
                "tuned_n_off": np.nan if tuned is None else tuned.n_off,
                "tuned_significance": np.nan if tuned is None else tuned.significance,
                "expected": np.nan if tuned is None else _expected(fold, tuned),
                "n_on": fold.held_out.n_on,
                "n_off": fold.held_out.n_off,
                "significance": fold.held_out.significance,
                "likelihood_significance": fold.likelihood_significance,
            }
        )
    return pd.DataFrame(rows).rename_axis("fold")


def tabulate_groups(
    outcomes: Mapping[Any, Outcome], everything: OnOffLikelihood | None, hours: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per group, with strengths in units of that of everything, and rates where hours are known."""
    rows = {
        group: {**_in_units_of(everything, outcome.summary()), **_rates(outcome.counts, hours.get(str(group)))}
        for group, outcome in outcomes.items()
    }
    return _from_rows(rows, "group")


def tabulate_observations(outcomes: Mapping[Any, Outcome], everything: OnOffLikelihood | None) -> pd.DataFrame:
    """Return one row per observation, with strengths in units of that of everything."""
    rows = {
        name: {"alpha": outcome.counts.alpha, **_in_units_of(everything, outcome.summary())}
        for name, outcome in outcomes.items()
    }
    return _from_rows(rows, "observation")


def tabulate_bins(bins: DetectionBins | None) -> pd.DataFrame:
    """Return one row per bin; an empty table where there are none."""
    import pandas as pd

    if bins is None:
        return pd.DataFrame().rename_axis("bin")
    rows = {
        name: {"alpha": one.counts.alpha, **one.summary(), "note": note}
        for name, one, note in zip(bins.labels, bins.outcomes, bins.notes, strict=True)
    }
    return _from_rows(rows, "bin")


def _from_rows(rows: dict[Any, dict[str, Any]], index: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index)


def _in_units_of(everything: OnOffLikelihood | None, numbers: dict[str, Any]) -> dict[str, Any]:
    """Add strengths of a part of the events in units of the strength of all; NaN where that is not positive."""
    mean = everything.strength if everything is not None else 0.0
    unit = mean if 0 < mean < np.inf else float("nan")
    relative = {f"relative_{name}": numbers[name] / unit for name in numbers if name.startswith("strength")}
    return {**numbers, **relative}


def _rates(counts: OnOffCounts, hours: float | None) -> dict[str, float]:
    """Return hours, and the excess per hour with its error; nothing where the time is not known."""
    if hours is None:
        return {}
    rate, error = counts.excess / hours, counts.excess_error / hours
    return {"hours": hours, "excess_per_hour": rate, "excess_per_hour_error": error}


def _expected(fold: Fold, tuned: OnOffCounts) -> float:
    """Scale a tuned-on significance to the number of hold-out events: it grows with the root of the exposure."""
    if fold.n_train == 0:  # a model that was fitted elsewhere does not say on how many events
        return float("nan")
    return tuned.significance * float(np.sqrt(fold.n_held_out / fold.n_train))
