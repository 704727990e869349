"""Null tests: searches for a source in the Off regions, where there is none, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Required, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.utils import _safe_indexing, indexable

from excess._core.checks import FloatArray, as_column, as_floats, as_int, as_random_state
from excess._core.progress import progress_bar
from excess.stats.counts import OnOffCounts
from excess.validation.cross_validation import SharedOptions, cross_val_detect
from excess.validation.detection import Detection
from excess.validation.notebook_tables import null_test_table
from excess.validation.onoff_events import check_groups
from excess.validation.outcome import Outcome
from excess.validation.validated_models import check_models, tune_thresholds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NullTest", "label_null_region", "null_test"]

_MIN_SHARE = 0.5
"""Share of the Off events whose runs have a region, from which that region is looked at."""


@dataclass(frozen=True, eq=False)
class NullTest:
    """Searches for a source where there is none: in every Off region in turn.

    Attributes
    ----------
    outcomes : dict of int to Outcome
        Both statistics of each Off region, as On, and of the others, as Off.
    detections : dict of int to Detection
        All there is about the search in each Off region; empty where only outcomes are known.

    See Also
    --------
    null_test : Makes such an object.
    """

    outcomes: dict[int, Outcome]
    detections: dict[int, Detection] = field(default_factory=dict)

    @classmethod
    def of(cls, detections: dict[int, Detection]) -> NullTest:
        """Make a null test from what was found in each Off region."""
        return cls({region: found.outcome for region, found in detections.items()}, detections)

    @property
    def counts(self) -> dict[int, OnOffCounts]:
        """Selected events of each Off region, as On, and of the others, as Off."""
        return {region: outcome.counts for region, outcome in self.outcomes.items()}

    @property
    def alpha(self) -> float:
        """Exposure ratio of one Off region to the others."""
        return next(iter(self.outcomes.values())).counts.alpha

    @property
    def significances(self) -> FloatArray:
        """Signed significance in each Off region by the declared statistic, the lowest number first."""
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
        """Probability of one of the regions, or more, being as far from zero as the farthest one, at most."""
        return float(min(1.0, len(self.outcomes) * 2 * ndtr(-np.abs(self.significances).max())))

    @property
    def suspicious(self) -> bool:
        """Whether a region shows an excess or a deficit that chance hardly explains (a p-value below 0.00001)."""
        return self.p_value < 1e-5

    @property
    def verdict(self) -> str:
        """One sentence that says what the values mean."""
        values = self.significances
        if self.suspicious:
            worst = list(self.outcomes)[int(np.abs(values).argmax())]
            return (
                f"Off region {worst} shows {self.outcomes[worst].significance:.1f} sigma, where no source is: a "
                "feature tells where events come from, or the regions are not equally exposed. Do not trust the "
                "detection."
            )
        return f"Between {values.min():.1f} and {values.max():.1f} sigma: as expected where there is no source."

    @property
    def texts(self) -> list[str]:
        """The significance in each Off region in words; a dash where nothing was selected, which is no evidence."""
        return ["-" if outcome.empty else f"{outcome.significance:.1f}" for outcome in self.outcomes.values()]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per region: selected events, excess with its error, both significances."""
        import pandas as pd

        rows = {region: outcome.summary() for region, outcome in self.outcomes.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("region")

    def __str__(self) -> str:
        """Say the values and what they mean."""
        values = ", ".join(self.texts)
        return (
            f"{len(self.outcomes)} null regions: {values} sigma (mean {self.mean:.2f}, spread {self.spread:.2f})\n"
            f"{self.verdict}"
        )

    def _repr_html_(self) -> str:
        """Return a table with one row per Off region and the verdict, which notebooks show."""
        return null_test_table(self)


class _Options(SharedOptions, total=False):
    n_regions: Required[int]
    exposure: ArrayLike | None
    off_regions: Sequence[int] | None


@overload
def null_test(
    estimator: Mapping[str, Any], X: Any, region: ArrayLike, **options: Unpack[_Options]
) -> dict[str, NullTest]: ...
@overload
def null_test(estimator: Any, X: Any, region: ArrayLike, **options: Unpack[_Options]) -> NullTest: ...
def null_test(
    estimator: Any,
    X: Any,
    region: ArrayLike,
    *,
    n_regions: int,
    exposure: ArrayLike | None = None,
    off_regions: Sequence[int] | None = None,
    groups: ArrayLike | None = None,
    time: ArrayLike | None = None,
    cv: Any = None,
    strategy: str = "pooled",
    statistic: str = "likelihood",
    n_repeats: int = 1,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> NullTest | dict[str, NullTest]:
    """Look for a source where there is none: in every Off region in turn (appendix A of the paper).

    The On events are dropped, one Off region takes the place of On and the others stay Off. Whatever the analysis then
    finds is not a source. A feature that tells where an event comes from shows up as a detection.

    Parameters
    ----------
    estimator : classifier, or dict of str to classifier
        As for `cross_val_detect`: a classifier without a threshold of its own gets a tuned one.
    X : array-like of shape (n_events, n_features)
        Events.
    region : array-like of shape (n_events,)
        Number of the region that an event comes from: 0 is On, 1 to ``n_regions - 1`` are Off. All of them must be of
        the same exposure, unless ``exposure`` says otherwise.
    n_regions : int
        Number of regions, On included; at least 3.
    exposure : array-like of shape (n_events, n_regions - 1), default=None
        Exposure of each Off region for the run of each event, in any unit; 0 where the run has no such region. The test
        of a region is made with the runs that have it and another one, each with its own exposure ratio.
    off_regions : sequence of int, default=None
        Off regions to look at; by default all of them, or with ``exposure`` those that most runs have, by their events.
    groups, time, cv, strategy, statistic, n_repeats, n_jobs, random_state
        As for `cross_val_detect`.
    verbose : int, default=0
        With 1, show a progress bar.

    Returns
    -------
    NullTest, or dict of str to NullTest
        One for each estimator; ``alpha`` is ``1 / (n_regions - 2)`` where all regions are equally exposed.

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
    n_regions = as_int("n_regions", n_regions, minimum=3)
    numbers = _as_regions(region, n_regions, complete=exposure is None)
    exposed = None if exposure is None else _as_exposure(exposure, len(numbers), n_regions)
    chosen = _choose_regions(numbers, n_regions, exposed) if off_regions is None else list(off_regions)
    if not chosen or not set(chosen) <= set(range(1, n_regions)):
        raise ValueError(f"off_regions must hold numbers from 1 to {n_regions - 1}, got {list(chosen)}")
    known_groups = check_groups(X, groups, region=numbers)
    models = tune_thresholds(check_models(estimator))
    seed = int(as_random_state(random_state).randint(2**31 - 1))
    found: dict[str, dict[int, Detection]] = {name: {} for name in models}
    events = indexable(X)[0]
    with progress_bar("Null regions", len(chosen), shown=as_int("verbose", verbose, minimum=0) > 0) as tick:
        for fake in chosen:
            off, alpha = _select_runs(numbers, fake, n_regions, exposed)
            detections = cross_val_detect(
                models,
                _safe_indexing(events, off),
                label_null_region(numbers[off], fake),
                alpha=alpha,
                groups=None if known_groups is None else known_groups[off],
                time=None if time is None else np.asarray(time)[off],
                cv=cv,
                strategy=strategy,
                statistic=statistic,
                n_repeats=n_repeats,
                n_jobs=n_jobs,
                random_state=seed,
            )
            for name, detection in detections.items():
                found[name][fake] = detection
            tick(1)
    tests = {name: NullTest.of(detections) for name, detections in found.items()}
    return tests if isinstance(estimator, Mapping) else tests[""]


def label_null_region(region: NDArray[np.int64], off_region: int) -> NDArray[np.int64]:
    """Return the labels of all Off events where one Off region takes the place of On (1) and the others stay Off (0).

    Examples
    --------
    >>> import numpy as np
    >>> from excess.validation.null_tests import label_null_region
    >>> label_null_region(np.array([0, 1, 2, 0, 3, 2]), 2).tolist()
    [0, 1, 0, 1]
    """
    return (region[region > 0] == off_region).astype(np.int64)


def _choose_regions(numbers: NDArray[np.int64], n_regions: int, exposure: FloatArray | None) -> list[int]:
    """Return the Off regions to look at: all, or those in the runs of most Off events, if there are any."""
    every = list(range(1, n_regions))
    if exposure is None:
        return every
    share = (exposure[numbers > 0] > 0).mean(axis=0)
    often = [region for region in every if share[region - 1] > _MIN_SHARE]
    return often or [region for region in every if (numbers == region).any()]


def _select_runs(
    numbers: NDArray[np.int64], fake: int, n_regions: int, exposure: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray | float]:
    """Return the Off events of runs that have a region and others to compare it with, and their exposure ratios."""
    if exposure is None:
        return np.flatnonzero(numbers > 0), 1 / (n_regions - 2)
    own = exposure[:, fake - 1]
    others = exposure.sum(axis=1) - own
    used = np.flatnonzero((numbers > 0) & (own > 0) & (others > 1e-9 * own))
    return used, own[used] / others[used]


def _as_exposure(exposure: ArrayLike, n_events: int, n_regions: int) -> FloatArray:
    """Return the exposure of Off regions, one row for each event."""
    given = as_floats("exposure", exposure)
    if given.shape != (n_events, n_regions - 1):
        raise ValueError(
            f"exposure must have {n_events} rows and {n_regions - 1} columns, one for each Off region, got shape "
            f"{given.shape}"
        )
    if (given < 0).any():
        raise ValueError("exposure must not be negative")
    return given


def _as_regions(region: ArrayLike, n_regions: int, *, complete: bool) -> NDArray[np.int64]:
    """Return region numbers; if ``complete``, all Off regions must be there."""
    given = as_column("region", region)
    if given.dtype.kind not in "biu" and not (given.dtype.kind == "f" and (given == np.floor(given)).all()):
        raise ValueError(f"region must hold whole numbers from 0 to {n_regions - 1}")
    numbers = given.astype(np.int64)
    if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= n_regions:
        what = "no events" if len(numbers) == 0 else f"{numbers.min()} to {numbers.max()}"
        raise ValueError(f"region must hold numbers from 0 to {n_regions - 1}, got {what}")
    missing = np.setdiff1d(np.arange(1, n_regions), numbers)
    if complete and len(missing):
        raise ValueError(f"region has no events of Off region {', '.join(map(str, missing.tolist()))}")
    return numbers
