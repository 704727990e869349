"""Null tests: searches for a source in every Off region in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.utils import _safe_indexing, indexable

from excess._utils import checks
from excess._utils.checks import FloatArray
from excess._utils.threads import Row, html_table, progress_bar
from excess.detection._cross_validation import check_models, cross_val_detect, tune_thresholds
from excess.detection._result import STATISTICS, Detection, Outcome
from excess.stats._direction import Direction
from excess.stats._likelihood import AlphaError
from excess.stats._significance import OnOffCounts

if TYPE_CHECKING:
    import pandas as pd

_MIN_SHARE = 0.5  # minimum fraction of Off events in runs with a region for that region to be tested


@dataclass(frozen=True, eq=False)
class NullTest:
    """Searches for a source in every Off region in turn.

    Attributes
    ----------
    outcomes : dict of int to Outcome
        Both statistics of each Off region taken as On, with the other Off regions as Off.
    detections : dict of int to Detection
        The search in each Off region; empty if only outcomes are available.

    Examples
    --------
    >>> from excess import NullTest, OnOffCounts
    >>> from excess.detection import Outcome
    >>> test = NullTest({region: Outcome(OnOffCounts(n, 400, 0.25), None, "cut") for region, n in ((1, 96), (2, 109))})
    >>> print(test.verdict)
    Between -0.4 and 0.8 sigma: as expected where there is no source.
    """

    outcomes: dict[int, Outcome]
    detections: dict[int, Detection] = field(default_factory=dict)

    @property
    def counts(self) -> dict[int, OnOffCounts]:
        """Selected events of each Off region taken as On, and of the others as Off."""
        return {region: outcome.counts for region, outcome in self.outcomes.items()}

    @property
    def alpha(self) -> float:
        """Exposure ratio of one Off region to the others."""
        return next(iter(self.outcomes.values())).counts.alpha

    @property
    def significances(self) -> FloatArray:
        """Signed significance in each Off region by the declared statistic, ordered by region number."""
        return np.array([outcome.significance for outcome in self.outcomes.values()])

    @property
    def mean(self) -> float:
        """Mean significance over the regions."""
        return float(self.significances.mean())

    @property
    def spread(self) -> float:
        """Standard deviation of the significance over the regions."""
        return float(self.significances.std(ddof=1))

    @property
    def p_value(self) -> float:
        """Upper bound of the probability that any region deviates from zero as much as the worst one."""
        return float(min(1.0, len(self.outcomes) * 2 * ndtr(-np.abs(self.significances).max())))

    @property
    def suspicious(self) -> bool:
        """Whether a region has an excess or a deficit with a p-value below 0.00001."""
        return self.p_value < 1e-5

    @property
    def verdict(self) -> str:
        """Interpretation of the values in one sentence."""
        values = self.significances
        if self.suspicious:
            worst = list(self.outcomes)[int(np.abs(values).argmax())]
            shown = f"Off region {worst} shows {self.outcomes[worst].significance:.1f} sigma, but contains no source"
            why = "a feature depends on the region, or the regions are not equally exposed"
            return f"{shown}: {why}. Do not claim a detection."
        return f"Between {values.min():.1f} and {values.max():.1f} sigma: as expected where there is no source."

    @property
    def texts(self) -> list[str]:
        """Significance in each Off region as text; a dash if no event was selected, which is no evidence."""
        return ["-" if outcome.empty else f"{outcome.significance:.1f}" for outcome in self.outcomes.values()]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per region: selected events, excess with its error, and both significances."""
        import pandas as pd

        rows = {region: outcome.summary() for region, outcome in self.outcomes.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("region")

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON; mean, p-value and verdict refer to the declared statistic."""
        regions = {str(region): outcome.to_dict() for region, outcome in self.outcomes.items()}
        names = ("significance", *(f"{statistic}_significance" for statistic in STATISTICS))
        return {
            **{f"{name}s": {region: one[name] for region, one in regions.items()} for name in names},
            "regions": regions,
            **{name: getattr(self, name) for name in ("alpha", "mean", "spread", "p_value", "suspicious", "verdict")},
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], statistic: str) -> NullTest:
        """Create a null test from the result of `to_dict`; only outcomes are available."""
        regions = given["regions"].items()
        return cls({int(name): Outcome.from_dict({"alpha": given["alpha"], **one}, statistic) for name, one in regions})

    def __str__(self) -> str:
        """Return the values and their interpretation."""
        found = f"{', '.join(self.texts)} sigma (mean {self.mean:.2f}, spread {self.spread:.2f})"
        return f"{len(self.outcomes)} null regions: {found}\n{self.verdict}"

    def _repr_html_(self) -> str:
        """Return a table with one row per Off region and the verdict, for notebooks."""
        columns = ("Off region", "likelihood", "On", "Off", "excess", "cut")
        rows = []
        for region, outcome in self.outcomes.items():
            likelihood = "-" if outcome.likelihood is None else f"{outcome.likelihood.significance:.1f} sigma"
            rows.append(Row(str(region), [likelihood, *outcome.counts.texts()]))
        declared = next(iter(self.outcomes.values())).statistic
        caption = f"{len(rows)} null regions, declared statistic: {declared}"
        notes = [f"mean {self.mean:.2f}, spread {self.spread:.2f} sigma", self.verdict]
        return html_table(columns, rows, caption=caption, notes=notes)


def null_test(
    estimator: Any,
    X: Any,
    region: ArrayLike,
    *,
    n_regions: int,
    exposure: ArrayLike | None = None,
    off_regions: Sequence[int] | None = None,
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
    time: ArrayLike | None = None,
    runs: ArrayLike | None = None,
    direction: Direction | None = None,
    cv: Any = None,
    strategy: str = "pooled",
    statistic: str = "likelihood",
    n_repeats: int = 1,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> Any:
    """Search for a source in every Off region in turn (appendix A of the paper).

    One Off region replaces the On events. A feature that depends on the region of an event causes a detection.

    Parameters
    ----------
    estimator, X, alpha_error, groups, time, runs, direction, cv, strategy, statistic, n_repeats, n_jobs, random_state,
    verbose
        As for `cross_val_detect`.
    region : array-like of shape (n_events,)
        Region of each event: 0 is On, 1 to ``n_regions - 1`` are Off, with equal exposure unless ``exposure`` is given.
    n_regions : int
        Number of regions including On; at least 3.
    exposure : array-like of shape (n_events, n_regions - 1), default=None
        Exposure of each Off region for the run of each event, in any unit; 0 if the run has no such region. The test of
        a region uses the runs with this and another Off region, each with its own exposure ratio.
    off_regions : sequence of int, default=None
        Off regions to test; by default all, or with ``exposure`` those present in the runs of most events.

    Returns
    -------
    NullTest, or dict of str to NullTest
        One per estimator; ``alpha`` is ``1 / (n_regions - 2)`` if all regions have equal exposure.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, null_test
    >>> rng = np.random.default_rng(0)
    >>> X, region = rng.normal(size=(6000, 4)), rng.integers(0, 6, 6000)
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> print(null_test(tree, X, region, n_regions=6, random_state=0))
    5 null regions: -0.0, 0.3, 0.0, 0.1, -1.4 sigma (mean -0.19, spread 0.71)
    Between -1.4 and 0.3 sigma: as expected where there is no source.
    """
    n_regions = checks.as_int("n_regions", n_regions, minimum=3)
    numbers = _as_regions(region, n_regions, complete=exposure is None)
    exposed = None if exposure is None else checks.as_counts("exposure", exposure)
    if exposed is not None and exposed.shape != (wanted := (len(numbers), n_regions - 1)):
        raise ValueError(f"exposure must have {wanted[0]} rows and {wanted[1]} columns, got shape {exposed.shape}")
    chosen = _choose_regions(numbers, n_regions, exposed) if off_regions is None else list(off_regions)
    if not chosen or not set(chosen) <= set(range(1, n_regions)):
        raise ValueError(f"off_regions must contain numbers from 1 to {n_regions - 1}, got {list(chosen)}")
    checks.check_same_length(X=X, region=numbers)
    by_event = {"groups": groups, "time": time, "runs": runs}
    for name, column in by_event.items():
        if column is not None:
            checks.check_same_length(**{"region": numbers, name: column})
    if direction is not None:
        by_event |= {"theta": direction.theta, "covariate": direction.covariate}
    options: dict[str, Any] = {"alpha_error": alpha_error, "cv": cv, "strategy": strategy, "statistic": statistic}
    options |= {"n_repeats": n_repeats, "n_jobs": n_jobs}
    models = tune_thresholds(check_models(estimator))
    seed = int(checks.as_random_state(random_state).randint(2**31 - 1))
    found: dict[str, dict[int, Detection]] = {name: {} for name in models}
    events = indexable(X)[0]
    with progress_bar("Null regions", len(chosen), shown=checks.as_int("verbose", verbose, minimum=0) > 0) as tick:
        for fake in chosen:
            off, alpha = _select_runs(numbers, fake, n_regions, exposed)
            labels = (numbers[off] == fake).astype(np.int64)
            columns: dict[str, Any] = {
                name: None if own is None else np.asarray(own)[off] for name, own in by_event.items()
            }
            if direction is not None:
                # without a source, events beyond the cut do not improve the training
                angles = columns.pop("theta"), direction.cut, columns.pop("covariate")
                columns["direction"] = Direction(*angles, training=False)
            detections = cross_val_detect(
                models, _safe_indexing(events, off), labels, alpha=alpha, random_state=seed, **columns, **options
            )
            for name, detection in detections.items():
                found[name][fake] = detection
            tick(1)
    tests = {name: NullTest({r: one.outcome for r, one in own.items()}, own) for name, own in found.items()}
    return tests if isinstance(estimator, Mapping) else tests[""]


def _choose_regions(numbers: NDArray[np.int64], n_regions: int, exposure: FloatArray | None) -> list[int]:
    """Return the Off regions to test: all, or those in the runs of most Off events, if any."""
    every = list(range(1, n_regions))
    if exposure is None:
        return every
    share = (exposure[numbers > 0] > 0).mean(axis=0)
    often = [region for region in every if share[region - 1] > _MIN_SHARE]
    return often or [region for region in every if (numbers == region).any()]


def _select_runs(
    numbers: NDArray[np.int64], fake: int, n_regions: int, exposure: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray | float]:
    """Return the Off events of runs with this and another Off region, and their exposure ratios."""
    if exposure is None:
        return np.flatnonzero(numbers > 0), 1 / (n_regions - 2)
    own = exposure[:, fake - 1]
    others = exposure.sum(axis=1) - own
    used = np.flatnonzero((numbers > 0) & (own > 0) & (others > 1e-9 * own))
    return used, own[used] / others[used]


def _as_regions(region: ArrayLike, n_regions: int, *, complete: bool) -> NDArray[np.int64]:
    """Return region numbers; if ``complete``, all Off regions must be present."""
    given = checks.as_column("region", region)
    if given.dtype.kind not in "biu" and not (given.dtype.kind == "f" and (given == np.floor(given)).all()):
        raise ValueError(f"region must contain integers from 0 to {n_regions - 1}")
    numbers = given.astype(np.int64)
    if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= n_regions:
        what = "no events" if len(numbers) == 0 else f"{numbers.min()} to {numbers.max()}"
        raise ValueError(f"region must contain numbers from 0 to {n_regions - 1}, got {what}")
    missing = np.setdiff1d(np.arange(1, n_regions), numbers)
    if complete and len(missing):
        raise ValueError(f"region has no events of Off region {', '.join(map(str, missing.tolist()))}")
    return numbers
