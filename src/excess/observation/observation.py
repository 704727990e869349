"""Observations: events of On and Off regions as input of a model, with their files and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.score_bins import number_bins
from excess.events import (
    AnalysisConfig,
)
from excess.observation.census import Census
from excess.observation.pipeline import NO_GROUPS, NearbyEvents, seconds_of
from excess.observation.region_methods import theta_columns
from excess.observation.regions import Regions
from excess.observation.sky_field import exclusion_offsets, field_radius, region_centers
from excess.validation.exposure import Exposure
from excess.validation.feature_histograms import FeatureBinning
from excess.validation.sky_map import SkyMap, map_sky

if TYPE_CHECKING:
    import pandas as pd

    from excess.stats.counts import OnOffCounts
    from excess.validation.detection import Detection

__all__ = ["Observation"]


@dataclass(frozen=True, eq=False)
class Observation:
    """Events of On and Off regions that pass the quality cuts, as `observe` returns them.

    Attributes
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    regions : Regions
        The region of each event.
    groups : ndarray of shape (n_events,) or None
        Groups, such as nights, that are not split between training and hold-out.
    table : DataFrame
        Columns that identify the events.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg, On first; None if On and Off come from separate files.
    nearby : NearbyEvents or None
        Events near a region, but in none, if they were asked for.
    census : Census
        Numbers of events that were read, outside all regions, and cut away.
    config : AnalysisConfig
        Features, cuts and regions.
    group_column : str
        Column of the groups; ``"none"`` if there are no groups.
    files : mapping of str to tuple of Path
        The files of the events, by kind.
    event_alpha : ndarray of shape (n_events,) or None
        Exposure ratio On/Off of each event, where it differs between groups or observations.
    observations : ndarray of str of shape (n_events,) or None
        The observation of each event, where several were stacked; see `stack`.
    sky : ndarray of shape (n_events, 5) or None
        Positions of each event and of the pointing to the east and to the north of the source in deg, where they are
        known, and a number between 0 and 1 by which events of a large map are drawn.
    exposure : Exposure or None
        How long each group and each night was observed, where that is known.
    notes : tuple of str
        Where the exposure ratio comes from, if it is not given and does not follow from regions.

    Examples
    --------
    >>> from excess.observation import observe, simulate_observation
    >>> observation = observe(simulate_observation(100_000, 200, random_state=0))
    >>> observation.X.shape, observation.theta.shape, int(observation.on.sum())
    ((2888, 22), (2888, 6), 630)
    """

    X: FloatArray
    regions: Regions
    groups: NDArray[Any] | None
    table: pd.DataFrame
    theta: FloatArray | None
    nearby: NearbyEvents | None
    census: Census
    config: AnalysisConfig
    group_column: str = NO_GROUPS
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    event_alpha: FloatArray | None = None
    observations: NDArray[Any] | None = None
    sky: FloatArray | None = None
    exposure: Exposure | None = None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.config.features

    @property
    def frame(self) -> pd.DataFrame:
        """The features with their names, which a model compares with those of its training."""
        return self.to_frame(self.X)

    def to_frame(self, X: FloatArray) -> pd.DataFrame:
        """Return an array of features as a table with their names."""
        import pandas as pd

        return pd.DataFrame(X, columns=list(self.names), copy=False)

    def without_references(self) -> Observation:
        """Return the same events without the columns that are scores of another analysis."""
        config = self.config.without_references()
        if config is self.config:
            return self
        kept = [number for number, name in enumerate(self.names) if name in config.features]
        nearby = None if self.nearby is None else replace(self.nearby, X=self.nearby.X[:, kept])
        return replace(self, X=self.X[:, kept], nearby=nearby, config=config)

    def annotate(self, detection: Detection) -> Detection:
        """Return a detection of these events with their angles, positions, times and features."""
        sky = nearby_theta = None
        if self.nearby is not None and detection.nearby is not None:
            judged = detection.nearby
            sky = self._map(detection, judged.selected)
            near = self.nearby.near
            nearby_theta = self.nearby.theta[near] if near.any() else None
            kept = judged._replace(score=judged.score[near], selected=judged.selected[near]) if near.any() else None
            detection = replace(detection, nearby=kept)
        found = detection.annotated(
            theta=self.theta,
            theta_squared_cut=None if self.theta is None else self.config.regions.theta_squared_cut,
            nearby_theta=nearby_theta,
            time=self.time,
            feature_names=self.config.without_references().features,
            features=self._binning,
            exposure=self.exposure,
            nights=self.table["night"].to_numpy() if "night" in self.table else None,
            sky=sky,
        )
        bins = self.config.bins
        return found if bins is None or self.bins is None else found.with_bins(bins.column, bins.edges, self.bins)

    @cached_property
    def _binning(self) -> FeatureBinning:
        """The bins of all features, for the histograms of all models."""
        return FeatureBinning(self.X, self.names)

    def _map(self, detection: Detection, nearby_selected: BoolArray) -> SkyMap | None:
        """Return the map of the sky, where positions are known."""
        if self.sky is None or self.nearby is None or self.nearby.sky is None:
            return None
        share = self.nearby.share
        sky = np.concatenate([self.sky, self.nearby.sky])
        drawn = sky[:, 4] < share
        selected = np.concatenate([detection.selected, nearby_selected])
        settings = self.config.regions
        return map_sky(
            sky[drawn, :2],
            sky[drawn, 2:4],
            selected[drawn],
            field_radius=field_radius(settings.theta_squared_cut),
            region_radius=settings.radius,
            off_centers=region_centers(self.sky, self.theta),
            exclusions=exclusion_offsets(settings),
            share=share,
        )

    @property
    def bins(self) -> NDArray[np.int64] | None:
        """The bin of each event, from 0; None if the configuration has no bins, or no edges of them yet."""
        bins = self.config.bins
        if bins is None or not bins.edges:
            return None
        return number_bins(self.X[:, self.names.index(bins.column)], np.array(bins.edges))

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return self.regions.on.astype(np.int64)

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off; the mean over the Off events where it differs."""
        return self.regions.alpha

    @property
    def exposure_ratio(self) -> FloatArray | float:
        """Exposure ratio On/Off of each event where it differs, else of all."""
        return self.alpha if self.event_alpha is None else self.event_alpha

    @property
    def counts(self) -> OnOffCounts:
        """All On and Off events, without any cut; stacked where their exposure ratios differ."""
        if self.event_alpha is None:
            return self.regions.counts
        from excess.validation.outcome import count_events

        return count_events(self.regions.on, self.regions.inside, self.event_alpha)

    @property
    def time(self) -> FloatArray | None:
        """Time of each event in seconds; None if the files hold no times."""
        return seconds_of(self.table)

    def summary(self) -> dict[str, Any]:
        """Return how many events were read, cut away and kept, to be put into a file."""
        counts = self.counts
        return {
            "n_read": self.census.n_read,
            "n_outside": self.census.n_outside,
            "n_cut": self.census.n_cut,
            "n_overlapping": self.census.n_overlapping,
            "n_on": counts.n_on,
            "n_off": counts.n_off,
            "alpha": self.alpha,
            "n_off_regions": list(self.regions.n_off_regions),
            "n_without_off": self.census.n_without_off,
            "notes": list(self.notes),
            "significance": counts.significance,
            "theta_squared_cut": self.config.regions.theta_squared_cut,
            "groups_are_text": self.groups is not None and self.groups.dtype.kind not in "biuf",
            "n_nearby": 0 if self.nearby is None else int(np.count_nonzero(self.nearby.near)),
            "features": list(self.config.without_references().features),
            "references": list(self.config.references),
            "exposure": None if self.exposure is None else self.exposure.to_dict(),
            "bins": None if self.config.bins is None else self.config.bins.model_dump(mode="json"),
        }

    def events_frame(self) -> pd.DataFrame:
        """Return one row per event: which event it is, its angles, region and group."""
        table = self.table.copy()
        if self.theta is not None:
            table[theta_columns(self.theta.shape[1])] = self.theta
        table["region"] = self.regions.region
        if self.groups is not None:
            table["group"] = self.groups
        if self.observations is not None:
            table["observation"] = self.observations
        if self.bins is not None:
            table["bin"] = self.bins
        return table

    @property
    def config_yaml(self) -> str:
        """The configuration as YAML."""
        return self.config.to_yaml()

    def __str__(self) -> str:
        """Return the numbers of events that were read and used."""
        parts = [str(self.census), str(self.counts)]
        few, most = self.regions.n_off_regions
        if self.theta is not None and few < most:
            parts.append(f"{few} to {most} Off regions, by pointing")
        elif self.regions.exposure is not None and self.event_alpha is not None:
            parts.append(f"alpha {self.event_alpha.min():.3g} to {self.event_alpha.max():.3g}, by offset and pointing")
        return "; ".join([*parts, *self.notes])
