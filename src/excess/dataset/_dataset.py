"""Container of On and Off events: features, regions, groups, angles and provenance."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import ArgumentError, EventFileError, MismatchError, prefix_errors
from excess.config._model import NO_GROUPS, AnalysisConfig, BinConfig, load_observation_list, make_intervals
from excess.dataset import _regions
from excess.dataset._leakage import check_rows
from excess.dataset._regions import Regions
from excess.detection._diagnostics import FAR, WarningSign
from excess.detection._histograms import FeatureBinning, SkyMap, map_sky
from excess.detection._result import Exposure
from excess.estimators._binned import number_bins
from excess.stats._direction import Direction
from excess.stats._significance import OnOffCounts

if TYPE_CHECKING:
    from excess.detection._result import Detection


_MAX_NAMED = 4  # maximum number of columns listed for missing values
_MAX_OVERLAP = 0.01  # maximum fraction of events in several regions for the overlap policy "on_first"
_MAX_OVERLAP_ERROR = 0.3  # maximum fake excess of such events, relative to the statistical error of the excess
_SHARED = ("features", "derived_features", "quality_cuts", "references")  # must agree between stacked datasets
logger = logging.getLogger("excess.dataset")
Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass
class Census:
    """Numbers of events: read, inside any region, used as On and Off, and rejected, by reason."""

    n_read: int = 0
    n_inside: int = 0
    n_on: int = 0
    n_off: int = 0
    n_overlapping: int = 0
    n_without_off: int = 0
    n_bad_time: int = 0
    reaches_source: bool = False
    missing: Mapping[str, int] = field(default_factory=dict)  # events in regions without a value, by column
    n_cut_on: int = 0  # of the On region, among those that are rejected

    @property
    def n_outside(self) -> int:
        """Events in no region."""
        return self.n_read - self.n_inside - self.n_bad_time

    @property
    def n_cut(self) -> int:
        """Events in a region that fail the quality cuts or lack a feature."""
        return self.n_inside - self.n_on - self.n_off

    def add(self, other: Census) -> None:
        """Add the events of other files."""
        for name in ("n_read", "n_inside", "n_on", "n_off", "n_cut_on", "n_overlapping", "n_without_off", "n_bad_time"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reaches_source |= other.reaches_source
        self.missing = Counter(self.missing) + Counter(other.missing)

    def without(self, region: NDArray[np.int64]) -> Census:
        """Subtract used events, given by their regions."""
        n_all, n_on = len(region), int(np.count_nonzero(region == 0))
        return replace(self, n_inside=self.n_inside - n_all, n_on=self.n_on - n_on, n_off=self.n_off - n_all + n_on)

    def check(self, source: str, config: AnalysisConfig, alpha: float) -> None:
        """Raise EventFileError unless there are On and Off events; ``source`` names the files and may be empty."""
        where = f"{source}: " if source else ""
        if self.n_read == 0:
            raise EventFileError(f"{where}no events")
        if self.n_without_off:
            self._check_without_off(where)
        if self.n_inside == 0 and config.regions.intervals is None:
            cut = f"theta^2 < {config.regions.theta_squared_cut:g} deg^2"
            none = f"none of {self.n_read:,} events is in a region ({cut})"
            raise EventFileError(f"{where}{none}; check the units of the angles, or the position of the source")
        if self.n_on + self.n_off == 0:
            names = ", ".join(["features", *config.references])
            found = f" ({self.describe_missing()})" if self.missing else ""
            problem = f"the quality cuts reject all {self.n_inside:,} events in the regions"
            check = ", ".join([*config.quality_cuts, f"and that values of {names} are not missing{found}"])
            raise EventFileError(f"{where}{problem}; check {check}")
        for name, number in (("On", self.n_on), ("Off", self.n_off)):
            if number == 0 and config.regions.intervals is not None:
                problem = f"has no events: {where}{config.regions.intervals}; {self}. Choose other intervals"
                raise MismatchError(name.lower(), problem)
            if number == 0:
                lost = f"{self.n_outside:,} outside all regions, {self.n_cut:,} rejected by cuts"
                raise EventFileError(f"{where}no {name} events remain of {self.n_read:,} events read ({lost})")
        if config.regions.overlap == "on_first":
            self._check_overlap(where, alpha)

    def _check_without_off(self, where: str) -> None:
        """Raise EventFileError if no pointing has an Off region; warn if some have none."""
        why = "no room for an Off region: the source is too close to the pointing, or exclusions cover all positions"
        if self.n_without_off == self.n_read:
            remedy = "pass Off observations as files (--off), or reduce theta_squared_cut, min_distance or exclusions"
            raise EventFileError(f"{where}all {self.n_read:,} events have {why}; {remedy}")
        number = f"{self.n_without_off:,} of {self.n_read:,} events are excluded"
        logger.warning("%s%s, because their pointings have %s", where, number, why)

    def _check_overlap(self, where: str, alpha: float) -> None:
        """Raise EventFileError for overlapping regions if the events that Off loses to On would mimic a source."""
        n_used = self.n_on + self.n_off
        lost = alpha * self.n_overlapping * n_used / self.n_inside
        error = float(np.sqrt(self.n_on + alpha**2 * self.n_off))
        fakes = lost > _MAX_OVERLAP_ERROR * error
        if not fakes and self.n_overlapping <= _MAX_OVERLAP * n_used:
            return
        if self.n_overlapping == 1:
            logger.warning("%sone of %d events is in several regions and is assigned to On", where, self.n_inside)
            return
        why = f"which exceeds {100 * _MAX_OVERLAP:g} % of the used events"
        if fakes:
            why = f"assigning them to On would mimic a source of {lost / error:.1f} sigma"
        number = f"{self.n_overlapping:,} of {self.n_inside:,} events are in several regions; {why}"
        remedy = "reduce theta_squared_cut, or set 'overlap: drop', both under 'regions' of the configuration"
        raise EventFileError(f"{where}the regions overlap: {number}; {remedy}")

    def __str__(self) -> str:
        """Return the numbers of read and rejected events."""
        bad = f"{self.n_bad_time:,} outside good time intervals, " if self.n_bad_time else ""
        text = f"{self.n_read:,} events read, {bad}{self.n_outside:,} outside all regions, {self.n_cut:,} rejected"
        return text + (f" ({self.describe_missing()})" if self.missing else "")

    def describe_missing(self) -> str:
        """Return the number of missing values per column, largest first."""
        shown = sorted(self.missing.items(), key=lambda one: -one[1])
        more = f" and {len(shown) - _MAX_NAMED} more columns" if len(shown) > _MAX_NAMED else ""
        return "no value: " + ", ".join(f"{name} in {number:,}" for name, number in shown[:_MAX_NAMED]) + more


@dataclass(frozen=True, eq=False)
class OnOffDataset:
    """On and Off events as input of a model, with regions, groups, angles, files and settings.

    Attributes
    ----------
    X, regions, table : ndarray of shape (n_events, n_features), Regions and DataFrame
        Features, regions, and columns that identify the events.
    groups : ndarray of shape (n_events,) or None
        Groups, such as nights, that are not split between training and hold-out; ``group_column`` is their column.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg, On first; None if On and Off come from separate files.
    nearby : OnOffDataset or None
        Events in no region: those near one (``near``), and those of the field around the source.
    census, config, files : Census, AnalysisConfig and mapping of str to tuple of Path
        Numbers of read and rejected events; features, cuts and regions; and event files, by kind.
    event_alpha : ndarray of shape (n_events,) or None
        Exposure ratio On/Off of each event, if it differs between groups or observations.
    observations : ndarray of str of shape (n_events,) or None
        Observation of each event, if several were stacked; see `OnOffDataset.stack`.
    sky : ndarray of shape (n_events, 5) or None
        Position of event and pointing east and north of the source in deg, and a random number for subsampling.
    exposure, notes : Exposure and tuple of str
        Observation time of each group and night, if known, and the origin of a computed exposure ratio.
    own_theta : ndarray of shape (n_events,) or None
        Angle to the centre of the event's own region in deg, scaled to the same cut; NaN for Off events of a ring.
    halo : OnOffDataset or None
        Events beyond the cut on theta^2, up to the radius at which regions touch; never counted, see `widen`.
    core : ndarray of bool of shape (n_events,) or None
        After `widen`, True for events inside the cut.
    near, share : ndarray of bool of shape (n_events,), and float
        In ``nearby``: events near a region, and the sampled fraction of the other events, for the sky map.
    run, runs, intervals
        Run of each event, all runs, and recording intervals, if required for the exposure ratio or rates.

    Examples
    --------
    >>> from excess.dataset import OnOffDataset, simulate_observation
    >>> dataset = OnOffDataset.from_files(simulate_observation(100_000, 200, random_state=0))
    >>> dataset.X.shape, dataset.theta.shape, int(dataset.on.sum())
    ((2888, 22), (2888, 6), 630)
    """

    X: FloatArray
    regions: Regions
    groups: NDArray[Any] | None
    table: pd.DataFrame
    theta: FloatArray | None
    census: Census
    config: AnalysisConfig
    nearby: OnOffDataset | None = None
    group_column: str = NO_GROUPS
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    event_alpha: FloatArray | None = None
    observations: NDArray[Any] | None = None
    sky: FloatArray | None = None
    exposure: Exposure | None = None
    notes: tuple[str, ...] = ()
    own_theta: FloatArray | None = None
    halo: OnOffDataset | None = None
    core: BoolArray | None = None
    near: BoolArray | None = None
    share: float = 1.0
    run: NDArray[Any] | None = None
    runs: tuple[Any, ...] = ()
    intervals: pd.DataFrame | None = None

    @staticmethod
    def from_files(
        events: pd.DataFrame | Paths,
        config: AnalysisConfig | str | PathLike[str] | None = None,
        *,
        on: str | None = None,
        off: Paths | None = None,
        alpha: float | Mapping[Any, float] | str | None = None,
        join: Paths | None = None,
        groups: str | None = None,
        references: Sequence[str] = (),
        source: str | tuple[float, float] | None = None,
        bins: BinConfig | str | None = None,
        features: Sequence[str] = (),
        exclude: Sequence[str] = (),
        regions: Mapping[str, Any] | None = None,
        nearby: bool = True,
        chunk_rows: int = 200_000,
    ) -> OnOffDataset:
        """Select the events of On and Off regions from files or from a table.

        Files are read in chunks; only selected events are kept in memory.

        Parameters
        ----------
        events : path, sequence of paths, or DataFrame
            Event files of one format, or a table of events.
        config : AnalysisConfig, path or None, default=None
            Features, cuts, regions and groups, or their YAML file; by default the proposal of `propose_config`.
        on : str or None, default=None
            Column and On intervals, such as ``"mass 9.3:9.6,9.8:9.9"``; ``off`` then specifies the Off intervals.
            Columns with names ending in "phase" have period 1.
        off : path, sequence of paths or None, default=None
            Files of Off events, if ``events`` are files of On events. If both contain whole fields of view, as FITS
            event lists do, the cut on theta^2 applies to the source and to the same position in the field of Off.
        alpha : float, mapping of group to float, or None, default=None
            Exposure ratio On/Off, with ``off``, or a mapping with one value per group. By default the ratio of live
            times (columns ``livetime``, or ``ontime`` and ``deadc``) of all runs, or of matched runs
            (``regions.match`` and ``regions.pairs``). With ``on``, a number, ``"width"`` for the interval widths,
            ``"fit"`` for a smooth density fitted to the Off intervals (see `fit_sidebands`), or ``"livetime"`` for
            good time intervals; by default width for phases, livetime for times, and fit otherwise.
        join : path, sequence of paths or None, default=None
            Files to join event by event; see `read_events`. They are read at once, not in chunks.
        groups : str or None, default=None
            Column of the groups, or ``"none"``; by default that of the configuration, or else the night or the run.
        references : sequence of str, default=()
            Scores of another analysis, such as gammaness, for the model `hybrid`; events without a score are rejected.
        source : str, tuple of float or None, default=None
            Name (see `find_source`), or right ascension and declination in deg; by default that of the configuration.
        bins : BinConfig, str or None, default=None
            Bins with their own threshold and calibration: ``"energy:1,5"`` by edges, ``"energy:4"`` by number.
        features, exclude : sequence of str, default=()
            Features that replace those of the configuration, and columns to exclude: names, or patterns with ``*``.
        regions : mapping of str to object or None, default=None
            Settings that override the configuration, by the keys of `RegionConfig`, such as ``{"method": "ring"}``.
        nearby : bool, default=True
            Also keep events around the regions, for a plot of theta^2 beyond the cut.
        chunk_rows : int, default=200_000
            Number of events read at a time.

        Returns
        -------
        OnOffDataset
            Selected events.

        Examples
        --------
        >>> from excess.dataset import OnOffDataset, simulate_observation
        >>> print(OnOffDataset.from_files(simulate_observation(100_000, 200, random_state=0)))
        100,000 events read, 97,112 outside all regions, 0 rejected; On 630, Off 2258, alpha 0.2: ...
        """
        from excess.dataset._build import Pipeline, select_events
        from excess.dataset._settings import as_input, check_input, settle_config

        if on is not None:
            regions = {**(regions or {}), "intervals": make_intervals(on, off, alpha)}
            off = alpha = None
        elif isinstance(alpha, str):
            raise ArgumentError("alpha", "must be a number unless `on` specifies intervals")
        events, off, join = as_input(events), as_input(off), as_input(join)
        files = check_input(events, off=off, alpha=alpha, join=join)
        choice: dict[str, Any] = {"source": source, "features": features, "exclude": exclude, "regions": regions}
        more: dict[str, Any] = {"references": references, "bins": bins, "groups": groups}
        settings = settle_config(events, config, off=off, join=join, **more, **choice)
        pipeline = Pipeline(settings, settings.groups if groups is None else groups, nearby=nearby)
        return select_events(events, files, pipeline, alpha, chunk_rows)

    @staticmethod
    def from_list(
        path: str | PathLike[str],
        config: AnalysisConfig | str | PathLike[str] | None = None,
        *,
        groups: str | None = None,
        references: Sequence[str] = (),
        features: Sequence[str] = (),
        exclude: Sequence[str] = (),
        nearby: bool = True,
        chunk_rows: int = 200_000,
    ) -> OnOffDataset:
        """Select and stack the events of several observations listed in a YAML file.

        The list maps names to ``events``, ``off``, ``alpha``, ``join`` and ``regions`` of each observation. These and
        the other arguments are as for `OnOffDataset.from_files`.
        """
        from excess.dataset._settings import settle_configs

        entries = load_observation_list(path)
        settings = settle_configs(entries, config, features=features, exclude=exclude, references=references)
        found = {}
        shared: dict[str, Any] = {"groups": groups, "nearby": nearby, "chunk_rows": chunk_rows}
        for name, entry in entries.items():
            own: dict[str, Any] = {"off": entry.off, "alpha": entry.alpha, "join": entry.join}
            with prefix_errors(name):
                found[name] = OnOffDataset.from_files(entry.events, settings[name], **own, **shared)
        stacked = OnOffDataset.stack(found)
        return replace(stacked, files={"list of observations": (Path(path),), **stacked.files})

    @staticmethod
    def stack(observations: Mapping[str, OnOffDataset]) -> OnOffDataset:
        """Stack observations, such as several sources, periods or telescopes with the same features.

        Parameters
        ----------
        observations : mapping of str to OnOffDataset
            By name; each from `OnOffDataset.from_files`, with its own regions or exposure ratio.

        Returns
        -------
        OnOffDataset
            All events, with exposure ratios in ``event_alpha`` if these differ, and the names of their observations in
            ``observations``. A night is one group in all observations. If the number or the size of regions differs,
            sky maps are not available.

        Raises
        ------
        ValueError
            If features or cuts differ, if only some observations have groups, or if two share a file.

        Examples
        --------
        >>> from excess.config import AnalysisConfig
        >>> from excess.dataset import OnOffDataset, simulate_observation
        >>> crab = OnOffDataset.from_files(simulate_observation(60_000, 200, random_state=0))
        >>> few_regions = AnalysisConfig(regions={"n_regions": 3})
        >>> other = OnOffDataset.from_files(simulate_observation(60_000, 100, n_regions=3, random_state=1), few_regions)
        >>> both = OnOffDataset.stack({"crab": crab, "other": other})
        >>> len(both.X) == len(crab.X) + len(other.X), sorted(set(both.event_alpha.tolist()))
        (True, [0.2, 0.5])
        """
        _check_stack(observations)
        parts = list(observations.values())
        if len({part.groups.dtype.kind in "biuf" for part in parts if part.groups is not None}) == 2:
            parts = [_with_texts(part) for part in parts]
        alphas = np.concatenate([part.alphas for part in parts])
        cuts = {part.config.regions.theta_squared_cut for part in parts}
        parts = [_scale_theta(part, parts[0].config.regions.theta_squared_cut) for part in parts]
        same_number = len({part.regions.n_regions for part in parts}) == 1
        with_angles = same_number and len(cuts) == 1 and all(part.theta is not None for part in parts)
        changes: dict[str, Any] = {} if with_angles else {"theta": None, "nearby": None, "sky": None}
        regions, _ = _regions.join_regions([part.regions for part in parts])
        if (exposure := regions.exposure) is not None:
            regions = replace(regions, exposure=exposure / (alphas * _regions.off_exposure(exposure))[:, np.newaxis])
        shared = parts[0].config.regions
        if any(part.config.regions.alpha_error != shared.alpha_error for part in parts):
            shared = shared.model_copy(update={"alpha_error": None})
            changes["config"] = parts[0].config.model_copy(update={"regions": shared})
        one_alpha = bool((alphas == alphas[0]).all())
        alpha = parts[0].alpha if one_alpha else float(alphas[regions.region > 0].mean())
        files = {f"{kind} of {name}": own.files[kind] for name, own in observations.items() for kind in own.files}
        stacked = concatenate(
            parts,
            group_column=" or ".join(dict.fromkeys(part.group_column for part in parts)),
            files=files,
            event_alpha=None if one_alpha else alphas,
            notes=tuple(f"{name}: {note}" for name, part in observations.items() for note in part.notes),
            observations=np.repeat(list(observations), [len(part.X) for part in parts]).astype(object),
            exposure=_join_times(parts),
            halo=_stack_halos(parts, list(observations)),
            **changes,
        )
        counts = {name: getattr(stacked.census, name) for name in ("n_without_off", "n_overlapping")}
        stacked = replace(stacked, regions=replace(regions, alpha=alpha, **counts))
        number = np.repeat(np.arange(len(parts)), [len(part.X) for part in parts])
        check_rows(stacked.X, number, [f"observation {name!r}" for name in observations])
        return stacked

    def take(self, rows: NDArray[Any]) -> OnOffDataset:
        """Return a subset of the events, by index or mask."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        arrays = {name: getattr(self, name) for name in _PER_EVENT}
        taken: dict[str, Any] = {name: None if array is None else array[chosen] for name, array in arrays.items()}
        table = self.table.iloc[chosen] if len(self.table) else self.table  # nearby events have no identifiers
        return replace(self, regions=self.regions.take(chosen), table=table, **taken)

    def widen(self) -> OnOffDataset:
        """Return these events together with those of the halo; ``core`` marks the former."""
        if self.halo is None or self.direction is None:
            return self
        alphas = np.concatenate([self.alphas, self.halo.alphas])
        regions = replace(self.regions, region=np.concatenate([one.regions.region for one in (self, self.halo)]))
        return concatenate(
            [self, self.halo],
            regions=replace(regions, exposure=None),
            event_alpha=alphas if (alphas != alphas[0]).any() else None,
            census=self.census,
            nearby=self.nearby,
            core=np.arange(len(alphas)) < len(self.X),
            halo=None,
        )

    @property
    def direction(self) -> Direction | None:
        """Angles to the centre of each event's own region, for the likelihood; None if unknown."""
        if self.own_theta is None or np.isnan(self.own_theta).any():
            return None
        energies = (name for name in self.names if name.lower() in _ENERGIES or name.lower().endswith("_energy"))
        covariate = None
        if (energy := next(energies, None)) is not None:
            values = self.X[:, self.names.index(energy)]
            with np.errstate(divide="ignore", invalid="ignore"):
                covariate = values if energy.startswith("log") else np.log(values)
            covariate = np.where(np.isfinite(covariate), covariate, np.nan)
        return Direction(self.own_theta, self.config.regions.theta_squared_cut, covariate)

    @property
    def run_labels(self) -> NDArray[Any] | None:
        """Run of each event as text; None if the files have no runs."""
        names = [name for name in ("night", "run_id", "obs_id") if name in self.table]
        if not {"run_id", "obs_id"} & set(names):
            return None
        runs = self.table[names].drop_duplicates()
        number = self.table.groupby(names, sort=False, dropna=False).ngroup()
        return runs.astype(str).agg(" ".join, axis=1).to_numpy()[number]

    def thinned(self, share: float) -> OnOffDataset:
        """Return all events near a region, and a fraction of the others, selected by their random numbers."""
        if self.sky is None or self.near is None or share == self.share:
            return self
        return replace(self.take(self.near | (self.sky[:, 4] < share)), share=share)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.config.features

    @property
    def frame(self) -> pd.DataFrame:
        """Features as a table, for which a model checks the names."""
        return self.to_frame(self.X)

    def to_frame(self, X: FloatArray) -> pd.DataFrame:
        """Return an array of features as a table with column names."""
        return pd.DataFrame(X, columns=list(self.names), copy=False)

    def without_references(self) -> OnOffDataset:
        """Return the same events without the columns that are scores of another analysis."""
        config = self.config.without_references()
        if config is self.config:
            return self
        kept = [number for number, name in enumerate(self.names) if name in config.features]
        nearby, halo = (None if one is None else one.without_references() for one in (self.nearby, self.halo))
        return replace(self, X=self.X[:, kept], nearby=nearby, halo=halo, config=config)

    def annotate(self, detection: Detection) -> Detection:
        """Add angles, positions, times and features of these events to a detection."""
        sky = nearby_theta = None
        if self.nearby is not None and detection.nearby is not None:
            scored = detection.nearby
            sky = self._map(detection, scored.selected)
            near, theta = self.nearby.near, self.nearby.theta
            assert near is not None
            nearby_theta = theta[near] if near.any() and theta is not None else None
            kept = scored._replace(score=scored.score[near], selected=scored.selected[near]) if near.any() else None
            detection = replace(detection, nearby=kept)
        found = detection.annotated(
            theta=self.theta,
            own_theta=self.own_theta,
            theta_squared_cut=None if self.own_theta is None else self.config.regions.theta_squared_cut,
            nearby_theta=nearby_theta,
            time=self.time,
            feature_names=self.config.without_references().features,
            features=self._binning,
            exposure=self.exposure,
            nights=self.table["night"].to_numpy() if "night" in self.table else None,
            sky=sky,
        )
        alpha = min(self.alpha, max(self.census.n_on, 1) / max(self.census.n_off, 1))
        cut = OnOffCounts(self.census.n_cut_on, self.census.n_cut - self.census.n_cut_on, alpha)
        if cut.significance < -5 and cut.n_on < 0.8 * cut.background:  # no source causes it
            what = f"Off events are rejected more often than On events: {cut.n_on:,} On and {cut.n_off:,} Off events"
            why = f"are rejected ({cut.significance:.1f} sigma; {self.census}). Check quality cuts and missing values."
            found = replace(
                found, findings=(*found.findings, WarningSign("missing-off", f"{what} {why}", cut.summary()))
            )
        bins = self.config.bins
        return found if bins is None or self.bins is None else found.with_bins(bins.column, bins.edges, self.bins)

    @cached_property
    def _binning(self) -> FeatureBinning:
        """Bins of all features, shared by the histograms of all models."""
        return FeatureBinning(self.X, self.names)

    def _map(self, detection: Detection, nearby_selected: BoolArray) -> SkyMap | None:
        """Return the sky map, if positions are known."""
        if self.sky is None or self.nearby is None or self.nearby.sky is None:
            return None
        share, core = self.nearby.share, slice(None) if self.core is None else self.core
        sky = np.concatenate([self.sky[core], self.nearby.sky])
        drawn = sky[:, 4] < share
        selected = np.concatenate([detection.selected[core], nearby_selected])
        settings = self.config.regions
        found = map_sky(
            sky[drawn, :2],
            sky[drawn, 2:4],
            selected[drawn],
            field_radius=_regions.field_radius(settings.theta_squared_cut),
            region_radius=settings.radius,
            off_centers=_regions.region_centers(self.sky, self.theta),
            exclusions=_regions.exclusion_offsets(settings),
            share=share,
        )
        if found is None or settings.source_ra is None or settings.source_dec is None:
            return found
        return replace(found, center=(settings.source_ra, settings.source_dec))

    @property
    def bins(self) -> NDArray[np.int64] | None:
        """Bin of each event, from 0; None if the configuration has no bins, or no bin edges yet."""
        if (bins := self.config.bins) is None or not bins.edges:
            return None
        return number_bins(self.X[:, self.names.index(bins.column)], np.array(bins.edges))

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return self.regions.on.astype(np.int64)

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off; the mean over the Off events if it varies."""
        return self.regions.alpha

    @property
    def exposure_ratio(self) -> FloatArray | float:
        """Exposure ratio On/Off of each event if it varies, else a number."""
        return self.alpha if self.event_alpha is None else self.event_alpha

    @property
    def alphas(self) -> FloatArray:
        """Exposure ratio On/Off of each event."""
        return np.broadcast_to(np.asarray(self.exposure_ratio, dtype=np.float64), len(self.X))

    @property
    def counts(self) -> OnOffCounts:
        """All On and Off events without a cut; stacked if their exposure ratios differ."""
        from excess.detection._result import count_events

        inside = self.regions.inside if self.core is None else self.regions.inside & self.core
        return count_events(self.regions.on, inside, self.exposure_ratio)

    @property
    def time(self) -> FloatArray | None:
        """Time of each event in seconds; None if the files have no times, or On and Off are intervals of time."""
        from excess.dataset._build import seconds_of

        intervals = self.config.regions.intervals
        return None if intervals is not None and intervals.is_time else seconds_of(self.table)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of read, rejected and selected events, for a file."""
        counts = self.counts
        of_census = ("n_read", "n_outside", "n_cut", "n_bad_time", "n_overlapping", "n_without_off")
        return {
            **{name: getattr(self.census, name) for name in of_census},
            **{name: getattr(counts, name) for name in ("n_on", "n_off", "significance")},
            "n_missing": dict(self.census.missing),
            "alpha": self.alpha,
            "n_off_regions": list(self.regions.n_off_regions),
            "notes": list(self.notes),
            "suggested_alpha_error": self.suggest_alpha_error(),
            "theta_squared_cut": self.config.regions.theta_squared_cut,
            "groups_are_text": self.groups is not None and self.groups.dtype.kind not in "biuf",
            "n_nearby": 0 if self.nearby is None or self.nearby.near is None else int(self.nearby.near.sum()),
            "features": list(self.config.without_references().features),
            "references": list(self.config.references),
            "exposure": None if self.exposure is None else self.exposure.to_dict(),
            "bins": None if self.config.bins is None else self.config.bins.model_dump(mode="json"),
        }

    def suggest_alpha_error(self) -> float | None:
        """Return the relative error of alpha that explains Off regions, and On/Off beyond the point spread function."""
        found, halo = self.regions.suggest_alpha_error(self.groups), self.halo
        if halo is None or halo.own_theta is None or found is None or self.regions.exposure is not None:
            return found
        counts = halo.take(halo.own_theta > FAR * halo.own_theta.max()).counts
        if min(counts.n_on, counts.n_off) == 0 or 0 < counts.excess < _LARGEST_TAIL * self.counts.excess:
            return found
        square, variance = (counts.n_on / counts.background - 1) ** 2, 1 / counts.n_on + 1 / counts.n_off
        return max(found, math.sqrt(square - variance) if square > 4 * variance else 0.0)

    def events_frame(self) -> pd.DataFrame:
        """Return one row per event: identifiers, angles, region and group."""
        table = self.table.copy()
        if self.theta is not None:
            table[_regions.theta_columns(self.theta.shape[1])] = self.theta
        columns = {"region": self.regions.region, "own_theta_deg": self.own_theta, "core": self.core}
        columns |= {"group": self.groups, "observation": self.observations, "bin": self.bins}
        for name, values in columns.items():
            if values is not None:
                table[name] = values
        return table

    def __str__(self) -> str:
        """Return the numbers of read and used events."""
        parts = [str(self.census), str(self.counts)]
        few, most = self.regions.n_off_regions
        if self.theta is not None and few < most:
            parts.append(f"{few} to {most} Off regions, by pointing")
        elif self.regions.exposure is not None and self.event_alpha is not None and self.observations is None:
            parts.append(f"alpha {self.event_alpha.min():.3g} to {self.event_alpha.max():.3g}, by offset and pointing")
        return "; ".join([*parts, *self.notes])


_LARGEST_TAIL = 0.2  # share of the excess of a source that may be beyond `FAR`
# arrays with one entry per event, in addition to regions and table
_PER_EVENT = ("X", "groups", "theta", "own_theta", "event_alpha", "observations", "sky", "near", "core", "run")


def concatenate(parts: Sequence[OnOffDataset], **changes: Any) -> OnOffDataset:
    """Concatenate datasets, with the settings of the first; nearby events are concatenated likewise."""
    first, filled = parts[0], [part for part in parts if len(part.X)] or parts[:1]
    joined: dict[str, Any] = {}
    for name in _PER_EVENT:
        arrays = [getattr(part, name) for part in filled]
        joined[name] = None if name == "theta" or any(one is None for one in arrays) else np.concatenate(arrays)
    joined["theta"] = _join_theta(parts)
    census = Census()
    for part in parts:
        census.add(part.census)
    nearby = [part.nearby for part in parts if part.nearby is not None]
    joined |= {"census": census, "table": pd.concat([part.table for part in parts], ignore_index=True)}
    joined["share"] = min(part.share for part in parts)
    joined["regions"] = replace(first.regions, region=np.concatenate([part.regions.region for part in parts]))
    if "nearby" not in changes:  # files may have no events outside the regions
        joined["nearby"] = concatenate(nearby) if any(len(part.X) for part in nearby) else None
    return replace(first, **{**joined, **changes})


def _join_theta(parts: Sequence[OnOffDataset]) -> FloatArray | None:
    known = [part.theta for part in parts if part.theta is not None]
    if len(known) < len(parts):
        return None
    missing = [max(own.shape[1] for own in known) - array.shape[1] for array in known]
    padded = (np.pad(own, ((0, 0), (0, n)), constant_values=np.nan) for own, n in zip(known, missing, strict=True))
    return np.concatenate(list(padded))


def join_chunks(chunks: Sequence[OnOffDataset]) -> OnOffDataset:
    """Concatenate chunks of one observation, which may have different numbers of regions."""
    regions, columns = _regions.join_regions([chunk.regions for chunk in chunks])
    joined = concatenate(chunks, regions=regions, event_alpha=regions.event_alpha)
    if joined.theta is None or columns.all():
        return joined
    nearby = joined.nearby
    if nearby is not None and nearby.theta is not None and nearby.theta.shape[1]:
        nearby = replace(nearby, theta=nearby.theta[:, columns])
    return replace(joined, theta=joined.theta[:, columns], nearby=nearby)


# features that may narrow the point spread function
_ENERGIES = ("energy", "reco_energy", "log_energy", "log_reco_energy", "log_size", "size", "log_intensity")


def find_halo(dataset: OnOffDataset) -> OnOffDataset | None:
    """Return nearby events closest to one region, up to the angle at which regions touch; None if there are none."""
    nearby, settings = dataset.nearby, dataset.config.regions
    # exclusions may cover a part of a halo, and with RAD_MAX the radius depends on energy
    if dataset.theta is None or nearby is None or nearby.near is None or settings.exclusion or settings.rad_max:
        return None
    part = nearby.take(nearby.near & np.isfinite(nearby.alphas))
    assert part.theta is not None
    if len(part.X) == 0:
        return None
    angles = [np.nan_to_num(theta, nan=np.inf) for theta in (dataset.theta, part.theta)]
    nearest = [np.partition(own, 1, axis=1)[:, :2] for own in angles]
    # half the sum of the angles to the two nearest centres is at least half their distance, the radius where they touch
    radius = min(float(own.sum(axis=1).min()) for own in nearest) / 2
    inside = np.flatnonzero(nearest[1][:, 0] < radius)
    region = angles[1].argmin(axis=1)
    found = replace(part, own_theta=nearest[1][:, 0], regions=replace(dataset.regions, region=region, exposure=None))
    return replace(found.take(inside), near=None, group_column=dataset.group_column) if len(inside) else None


def _scale_theta(part: OnOffDataset, cut: float) -> OnOffDataset:
    """Rescale the angles of an observation to another cut on theta^2."""
    factor = float(np.sqrt(cut / part.config.regions.theta_squared_cut))
    halo = None if part.halo is None else _scale_theta(part.halo, cut)
    return replace(part, own_theta=None if part.own_theta is None else part.own_theta * factor, halo=halo)


def _stack_halos(parts: Sequence[OnOffDataset], names: Sequence[str]) -> OnOffDataset | None:
    """Concatenate the halos of several observations."""
    known = []
    for halo, name in zip((part.halo for part in parts), names, strict=True):
        if halo is not None:
            observations = np.full(len(halo.X), name, dtype=object)
            known.append(replace(halo, observations=observations, event_alpha=np.array(halo.alphas)))
    return concatenate(known, nearby=None) if known else None


def thin_field(chunks: list[OnOffDataset], limit: int = _regions.MAX_FIELD_EVENTS) -> list[OnOffDataset]:
    """Limit the events of the field in all chunks to ``limit``; all events in regions are kept."""
    parts = [chunk.nearby for chunk in chunks if chunk.nearby is not None]
    draws = [part.sky[~part.near, 4] for part in parts if part.sky is not None and part.near is not None]
    share = min((part.share for part in parts), default=1.0)
    if share == 1.0 and sum(map(len, draws)) <= limit:
        return chunks
    drawn = np.sort(np.concatenate(draws))
    while np.searchsorted(drawn, share) > limit:
        share /= 2
    return [chunk if chunk.nearby is None else replace(chunk, nearby=chunk.nearby.thinned(share)) for chunk in chunks]


def _check_stack(observations: Mapping[str, OnOffDataset]) -> None:
    """Raise an error for observations that cannot be stacked."""
    if not observations:
        raise ValueError("observations must contain at least one named observation")
    first, *others = observations
    seen: dict[Path, str] = {}
    for name, part in observations.items():
        if part.observations is not None:
            raise ValueError(f"observation {name!r} is already stacked; stack all observations at once")
        for path in (path.resolve() for paths in part.files.values() for path in paths):
            if seen.setdefault(path, name) != name:
                both = f"belongs to {seen[path]!r} and to {name!r}, so its events would be counted twice"
                raise EventFileError(f"{path}: {both}; pass every file once")
    for name in others:
        ours, theirs = observations[first].config, observations[name].config
        for what in _SHARED:
            if getattr(ours, what) != getattr(theirs, what):
                difference = _difference(getattr(ours, what), getattr(theirs, what))
                both = f"observations {first!r} and {name!r} have different {what.replace('_', ' ')}"
                raise ValueError(f"{both}: {difference}; a model requires equal ones")
        if (observations[first].groups is None) != (observations[name].groups is None):
            raise ValueError(f"only one of the observations {first!r} and {name!r} has groups")


def _difference(ours: Any, theirs: Any) -> str:
    """Return elements of only one of two collections, or a note on their order."""
    both = [list(one.items()) if isinstance(one, Mapping) else list(one) for one in (ours, theirs)]
    sides = (("first", *both), ("second", *both[::-1]))
    only = {which: [str(one) for one in own if one not in other] for which, own, other in sides}
    texts = [f"only the {which} has {', '.join(own)}" for which, own in only.items() if own]
    return ", ".join(texts) or "their order differs"


def _with_texts(part: OnOffDataset) -> OnOffDataset:
    """Convert the groups of an observation to text, if those of others are."""
    groups = None if part.groups is None else part.groups.astype(str).astype(object)
    return replace(part, groups=groups, nearby=None if part.nearby is None else _with_texts(part.nearby))


def _join_times(parts: list[OnOffDataset]) -> Exposure | None:
    """Combine the exposures of all observations; None if one is unknown. Common groups are added."""
    known = [part.exposure for part in parts if part.exposure is not None]
    if len(known) < len(parts):
        return None
    sources = {one.source for one in known}
    group, night = (tuple(label for one in known for label in getattr(one, name)) for name in ("group", "night"))
    source = sources.pop() if len(sources) == 1 else "events"
    return Exposure(source, group, night, np.concatenate([one.hours for one in known]))
