"""Construction of a dataset from files or tables: features, regions, groups, angles, times, and input checks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import BoolArray, FloatArray, as_scalar_alpha
from excess._utils.errors import ArgumentError, EventFileError, prefix_errors
from excess.config._model import NO_GROUPS, AnalysisConfig, to_features
from excess.dataset import _intervals, _regions, _runs
from excess.dataset._dataset import Census, OnOffDataset, find_halo, join_chunks, thin_field
from excess.dataset._leakage import check_identifiers, check_independent, check_origin
from excess.dataset._regions import Placement, Regions
from excess.dataset._runs import MatchedEvents
from excess.detection._result import LONGEST_PAUSE, Exposure
from excess.io._coordinates import ABSOLUTE_COLUMNS, add_night, unix_of
from excess.io._fits import GOOD_TIME
from excess.io._reading import LOCATION_COLUMNS, describe, iter_events, read_events, recognise

NIGHT = "night"
# columns that identify an event, stored with the features if present; and reconstructed energy
IDENTIFIERS = ("event_num", "event_id", "tel_id", "night", "run_id", "obs_id", *ABSOLUTE_COLUMNS)
_ENERGY = re.compile("energy|reco_energy|gamma_energy_prediction|(?!true|mc|log|.*simul)[A-Za-z]+_energy")
_NO_CENTRES = "Off events of a ring have no centre, so the likelihood uses neither directions nor events beyond the cut"
_NEARBY = 4.0  # largest theta^2 of nearby events relative to the cut; includes background beyond the cut


@dataclass(frozen=True)
class Pipeline:
    """Selection of the events of tables that an analysis uses."""

    config: AnalysisConfig
    groups: str = NO_GROUPS
    region: int | None = None
    offset: tuple[float, float] | None = None
    nearby: bool = False
    identify: bool = True
    with_runs: bool = False

    def read(self, paths: Sequence[Path], chunk_rows: int) -> Iterator[OnOffDataset]:
        """Yield the events of files in chunks."""
        for table in iter_events(paths, self.columns(paths[0]), chunk_rows=chunk_rows):
            yield self.observe(table)

    def columns(self, path: Path) -> list[str]:
        """Return the required columns of a file; raise EventFileError if some are missing."""
        info = describe(path)
        wanted, present = [*self.config.columns_needed()], info.columns
        if any(name not in present and name in info.telescope_columns for name in wanted):
            present = (*info.telescope_columns, *info.derived)  # rows are then telescope images
        if self.groups != NO_GROUPS:
            wanted.append(self.groups)
        missing = [name for name in wanted if name not in present]
        if len(missing) > 1:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            problem = f"has no columns {', '.join(missing[:5])}{more}, required by features, quality cuts or groups"
            remedy = "create a configuration with 'excess init', or join files with these columns"
            raise EventFileError(f"{path}: {problem}; {remedy}")
        if self.region is None:
            wanted += _regions.choose_method(present, self.config.regions)[1]
        elif self.offset is not None:
            wanted += _regions.SKY_COLUMNS
        if GOOD_TIME in present:
            wanted.append(GOOD_TIME)
        if self.identify:
            shown = (*_runs.ZENITH_COLUMNS, _runs.ALTITUDE_COLUMN, *filter(_ENERGY.fullmatch, present))
            wanted += [name for name in (*IDENTIFIERS, *_runs.TIME_OF_RUN_COLUMNS, *shown) if name in present]
            if self._maps(present):
                wanted += _regions.SKY_COLUMNS
        if self.with_runs:
            wanted += [name for name in _runs.RUN_COLUMNS if name in present]
        return list(dict.fromkeys(wanted))

    def observe(self, table: pd.DataFrame) -> OnOffDataset:
        """Return the events of a table that are in a region and pass the quality cuts."""
        theta = own_theta = nearby = sky = None
        if self.groups == NIGHT:
            table = add_night(table)
        file, first_row = str(table.attrs.get("file", "")), int(table.attrs.get("first_row", 0))
        number, n_read = np.arange(first_row, first_row + len(table)), len(table)
        draws = _regions.row_draws(first_row, len(table))
        if GOOD_TIME in table:
            good = np.flatnonzero(table[GOOD_TIME].to_numpy(dtype=bool))
            table, number, draws = table.iloc[good], number[good], draws[good]
        intervals = None
        if self.config.regions.intervals is None and self.identify and self.region in (None, 0):
            intervals = recorded_intervals(table, seconds_of(table), self.groups, file)
        runs = tuple(_runs.list_runs(table, seconds_of(table))) if self.with_runs else ()
        run = _runs.run_labels(table) if self.with_runs else None
        census = Census(n_read=n_read, n_inside=len(table), n_bad_time=n_read - len(table))
        if self.region is None:
            placed, found = _regions.place_events(table, self.config.regions)
            if self._maps(table):
                sky = np.column_stack([_regions.sky_offsets(table, self.config.regions), draws])
            if self.nearby:
                nearby = self._nearby(table, placed, found, sky, number, file)
            rows = np.flatnonzero(found.inside)
            census.n_inside, census.n_overlapping = len(rows), found.n_overlapping
            census.n_without_off = found.n_without_off
            census.reaches_source = len(rows) > 0 or _regions.reaches_source(table, self.config.regions)
            table, regions, number = table.iloc[rows], found.take(rows), number[rows]
            theta = None if placed.theta is None else placed.theta[rows]
            if theta is not None:
                own_theta = theta[np.arange(len(rows)), regions.region]
                own_theta = own_theta if placed.scale is None else own_theta * placed.scale[rows]
            elif placed.on_theta is not None:
                own_theta = np.where(regions.on, placed.on_theta[rows], np.nan)
            sky = None if sky is None else sky[rows]
        else:
            if self.offset is not None:
                own_theta = self._theta_in_field(table)
                rows = np.flatnonzero(own_theta**2 < self.config.regions.theta_squared_cut)
                own_theta = own_theta[rows]
                table, number, run = table.iloc[rows], number[rows], None if run is None else run[rows]
                census.n_inside = len(table)
            regions = Regions(np.full(len(table), self.region), 2, 1.0)
        X, valid, _, census.missing = to_features(table, self.config)
        census.n_cut_on, regions = int(np.count_nonzero(regions.on & ~valid)), regions.take(valid)
        census.n_on = int(np.count_nonzero(regions.on))
        census.n_off = len(regions.region) - census.n_on
        return OnOffDataset(
            X=X[valid],
            regions=regions,
            groups=self._groups_of(table, valid),
            theta=None if theta is None else theta[valid],
            own_theta=None if own_theta is None else own_theta[valid],
            table=self._identifiers(table.iloc[np.flatnonzero(valid)], number[valid], file),
            nearby=nearby,
            census=census,
            config=self.config,
            group_column=self.groups,
            files={"events": (Path(file),)} if file else {},
            event_alpha=regions.event_alpha,
            sky=None if sky is None else sky[valid],
            intervals=intervals,
            run=None if run is None else run[valid],
            runs=runs,
        )

    def _maps(self, columns: Any) -> bool:
        """Return whether a map is possible: nearby events are kept, and source, events and pointing have positions."""
        regions = self.config.regions
        on_sky = self.region is None and regions.source_ra is not None and regions.intervals is None
        return self.identify and self.nearby and on_sky and all(name in columns for name in _regions.SKY_COLUMNS)

    def _identifiers(self, table: pd.DataFrame, number: NDArray[np.int64], file: str) -> pd.DataFrame:
        """Return the columns that identify events, with file and row of each if files are known."""
        names = [name for name in IDENTIFIERS if name in table]
        if self.config.regions.intervals is not None:
            names.append(_regions.find_column(self.config.regions.intervals, map(str, table)))
        known = table[list(dict.fromkeys(names))]
        if not self.identify:
            return known
        located = all(name in table for name in LOCATION_COLUMNS)
        files, rows = (table[name].to_numpy() for name in LOCATION_COLUMNS) if located else (file, number)
        more: dict[str, Any] = {"file": files} if located or file else {}
        if (energy := next(filter(_ENERGY.fullmatch, map(str, table)), None)) is not None:
            more["energy"] = table[energy]
        zenith = next((table[name] for name in _runs.ZENITH_COLUMNS if name in table), None)
        if zenith is None and _runs.ALTITUDE_COLUMN in table:
            zenith = 90.0 - table[_runs.ALTITUDE_COLUMN]
        return known.assign(**more, **({} if zenith is None else {"zenith": zenith}), row=rows)

    def _theta_in_field(self, table: pd.DataFrame) -> FloatArray:
        """Return the angles in deg to the source, or to its position in the field of view of an Off run."""
        ra, dec, *pointing = (table[name].to_numpy(dtype=np.float64) for name in _regions.SKY_COLUMNS)
        settings = self.config.regions
        event = _regions.unit_vectors(ra, dec)
        if self.region == 0:
            center = _regions.source_direction(settings)
        else:
            offset, direction = self.offset or (0.0, 0.0)
            center = _regions.place_in_field(*pointing, offset=offset, direction=direction)
            if settings.exclusion and (found := _regions.find_excluded(center, settings, settings.radius)).any():
                run = f"an Off run (pointing ra {pointing[0][found][0]:g}, dec {pointing[1][found][0]:g})"
                problem = f"the position of the source in the field of view of {run} overlaps an exclusion"
                raise EventFileError(f"{problem}; exclude that run")
        theta = np.degrees(_regions.angles_between(center, event))
        if settings.rad_max:
            theta = theta * _regions.theta_scale(table, center, settings)
        return np.where(np.isnan(theta), np.inf, theta)

    def _nearby(
        self,
        table: pd.DataFrame,
        placed: Placement,
        found: Regions,
        sky: FloatArray | None,
        number: NDArray[np.int64],
        file: str,
    ) -> OnOffDataset | None:
        """Return nearby or mapped events outside all regions that pass the quality cuts."""
        cut, outside = self.config.regions.theta_squared_cut, ~found.inside
        if placed.theta is None and sky is None:
            return None
        theta = np.empty((len(table), 0)) if placed.theta is None else placed.theta
        near: BoolArray = np.asarray((np.where(np.isnan(theta), np.inf, theta) ** 2 < _NEARBY * cut).any(axis=1))
        if placed.excluded is not None:
            near &= ~placed.excluded
        wanted = near & outside
        if sky is not None:
            wanted |= outside & (np.hypot(sky[:, 0], sky[:, 1]) < _regions.field_radius(cut))
        rows = np.flatnonzero(wanted)
        if self.groups in table:
            # nearby events only appear in a plot, so a missing group is not an error
            rows = rows[table[self.groups].iloc[rows].notna().to_numpy()]
        table = table.iloc[rows]
        X, valid, *_ = to_features(table, self.config)
        rows = rows[valid]
        alpha = np.full(len(rows), found.alpha)
        if found.exposure is not None:  # NaN without Off regions
            total = _regions.off_exposure(found.exposure[rows])
            alpha = np.divide(1.0, total, out=np.full(len(rows), np.nan), where=total > 0)
        return OnOffDataset(
            X=X[valid],
            regions=Regions(np.full(len(rows), -1), 1 + max(theta.shape[1] - 1, 1), 1.0),
            groups=self._groups_of(table, valid),
            table=self._identifiers(table.iloc[np.flatnonzero(valid)], number[rows], file),
            event_alpha=alpha,
            theta=theta[rows],
            census=Census(),
            config=self.config,
            sky=None if sky is None else sky[rows],
            near=near[rows],
        )

    def _groups_of(self, table: pd.DataFrame, valid: NDArray[np.bool_]) -> NDArray[Any] | None:
        if self.groups == NO_GROUPS:
            return None
        if self.groups not in table:
            raise ValueError(f"groups: no column {self.groups!r}; use an existing column or 'none'")
        labels = table[self.groups]
        if labels.isna().any():
            raise ValueError(f"groups: column {self.groups!r} has missing values")
        return labels.to_numpy()[valid]


def recorded_intervals(
    table: pd.DataFrame, seconds: FloatArray | None, group_column: str, file: str
) -> pd.DataFrame | None:
    """Return the recording intervals of a table; None if times are unknown."""
    own = [name for name in _runs.TIME_OF_RUN_COLUMNS if name in table]
    if seconds is None and not own:
        return None
    times = np.zeros(len(table)) if seconds is None else seconds
    runs = [name for name in _runs.RUN_LABELS if name in table]
    parts = list(dict.fromkeys([*runs, *([group_column] if group_column in table else [])]))
    known = np.isfinite(times)
    if parts:
        known &= table[parts].notna().all(axis=1).to_numpy()
    rows = np.flatnonzero(known)
    if len(rows) == 0:
        return None
    kept = table.iloc[rows]
    number = kept.groupby(parts, sort=False).ngroup().to_numpy() if parts else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((times[rows], number))
    moment, of_run = times[rows][order], number[order]
    ends = (np.diff(of_run) != 0) | (np.diff(moment) > LONGEST_PAUSE)
    first, last = np.append(0, np.flatnonzero(ends) + 1), np.append(np.flatnonzero(ends), len(order) - 1)
    labels = kept.iloc[order[first]]

    def texts(names: list[str]) -> Any:
        return ["/".join(map(str, row)) for row in labels[names].itertuples(index=False)]

    found = {
        "run": texts(runs) if set(runs) - {"night"} else file,
        "group": texts([group_column]) if group_column in table else "",
        "night": texts(["night"]) if "night" in table else "",
        "start": moment[first],
        "stop": moment[last],
    }
    times_of_run = {
        name: labels[name].to_numpy(dtype=np.float64) if name in own else np.nan for name in _runs.TIME_OF_RUN_COLUMNS
    }
    return pd.DataFrame(found | times_of_run)


def join_intervals(parts: list[pd.DataFrame]) -> Exposure | None:
    """Combine the intervals of all tables; None if none are known."""
    if not parts:
        return None
    keys = ["run", "group", "night"]
    table = pd.concat(parts, ignore_index=True).sort_values([*keys, "start"], kind="stable", ignore_index=True)
    part = table.groupby(keys, sort=False).ngroup().to_numpy()
    start, stop = table["start"].to_numpy(), table["stop"].to_numpy()
    # end of all earlier intervals of the same run; distant run numbers separate the runs
    far = 2 * (stop.max() - start.min() + LONGEST_PAUSE) * part
    so_far = np.maximum.accumulate(stop + far)
    begin = np.append(np.inf, so_far[:-1]) - far
    new = (np.diff(part, prepend=-1) != 0) | (start - begin > LONGEST_PAUSE)
    seconds = np.where(new, stop - start, np.maximum(stop - begin, 0.0))
    summed = table[keys].assign(seconds=seconds).groupby(keys, sort=False)["seconds"].sum()
    source = "events"
    for name in _runs.TIME_OF_RUN_COLUMNS:
        given = table.groupby(keys, sort=False)[name].max()
        if given.notna().all() and (given > 0).all():
            # a run with several groups or nights is divided like the times of its events
            of_run = summed.groupby(level="run").transform("sum")
            n_parts = summed.groupby(level="run").transform("size")
            share = (summed / of_run.where(of_run > 0)).fillna(1 / n_parts)
            summed, source = given * share, name
            break
    summed = summed.groupby(level=["group", "night"], sort=False).sum().loc[lambda one: one > 0]
    if summed.empty:
        return None
    groups, nights = (tuple(map(str, summed.index.get_level_values(name))) for name in ("group", "night"))
    return Exposure(source, groups, nights, summed.to_numpy(dtype=np.float64) / 3600)


def select_events(
    events: Any,
    files: Mapping[str, tuple[Path, ...]],
    pipeline: Pipeline,
    alpha: float | Mapping[Any, float] | None,
    chunk_rows: int,
) -> OnOffDataset:
    """Select the events of On and Off regions from a table, or from files by kind."""
    if not files:
        return _join_chunks([pipeline.observe(events)], pipeline, {}, None)
    if "Off events" in files:
        ratio = alpha if alpha is None or isinstance(alpha, Mapping) else as_scalar_alpha(alpha)
        return _select_off_files(files, pipeline, ratio, chunk_rows)
    chunks: list[OnOffDataset] = []
    with prefix_errors(_describe_paths(files["events"])):
        if "joined events" in files:
            chunks = [pipeline.observe(read_events(files["events"], join=files["joined events"], locate=True))]
            return _join_chunks(chunks, pipeline, files, None)
        for chunk in pipeline.read(files["events"], chunk_rows):
            chunks = thin_field([*chunks, chunk])
    kept, notes = _with_source(chunks, len(files["events"]))
    first = files["events"][0]
    if recognise(first) == "FITS event list" and (note := _regions.describe_rad_max(first, pipeline.config.regions)):
        notes.append(note)
    found = _join_chunks(kept, pipeline, files, None)
    return replace(found, notes=(*found.notes, *notes))


def _with_source(chunks: list[OnOffDataset], n_files: int) -> tuple[list[OnOffDataset], list[str]]:
    """Return the chunks of files whose field of view contains the source, and a note on skipped files."""
    reached = {chunk.files.get("events"): False for chunk in chunks}
    for chunk in chunks:
        reached[chunk.files.get("events")] |= chunk.census.reaches_source
    skipped = [str(paths[0]) for paths, contains in reached.items() if paths and not contains]
    if not skipped or len(skipped) == len(reached):
        return chunks, []
    note = f"{len(skipped):,} of {n_files:,} files do not contain the source and are skipped, the first {skipped[0]}"
    return [chunk for chunk in chunks if reached[chunk.files.get("events")]], [note]


def _select_off_files(
    files: Mapping[str, tuple[Path, ...]],
    pipeline: Pipeline,
    alpha: float | Mapping[Any, float] | None,
    chunk_rows: int,
) -> OnOffDataset:
    """Select the events of On and Off files; if ``alpha`` is None, the exposure ratio follows from live times."""
    regions = pipeline.config.regions
    if alpha is None:
        _runs.check_live_times(files)
    elif regions.pairs or regions.match != "none":
        key = "regions.pairs" if regions.pairs else "`match`"
        raise ArgumentError("alpha", f"cannot be combined with {key}: matched runs use the ratio of their live times")
    offset = _runs.find_offset(files, pipeline.config)
    if offset is None and regions.exclusion:
        raise _regions.unusable_exclusion()
    sides: list[list[OnOffDataset]] = []
    for region, paths in enumerate(files.values()):
        with prefix_errors(_describe_paths(paths)):
            own = replace(pipeline, region=region, offset=offset, with_runs=alpha is None)
            sides.append(list(own.read(paths, chunk_rows)))
        if region == 0 and all(chunk.census.n_outside == 0 for chunk in sides[0]):
            offset = None  # files of On events only, so those of Off events are cut as well
            if regions.exclusion:
                raise _regions.unusable_exclusion()
    with prefix_errors(_describe_paths(files["events"])):
        ratio = _runs.match_events(sides[0], sides[1], regions) if alpha is None else alpha
    return _join_chunks([*sides[0], *sides[1]], pipeline, files, ratio)


def _join_chunks(
    chunks: list[OnOffDataset],
    pipeline: Pipeline,
    files: Mapping[str, tuple[Path, ...]],
    alpha: float | Mapping[Any, float] | MatchedEvents | None,
) -> OnOffDataset:
    """Combine chunks into one dataset, and check that it suffices for an analysis."""
    chunks = thin_field(chunks)
    source = _describe_paths(files["events"]) if files else ""
    joined = replace(join_chunks(chunks), files=files, run=None, runs=(), intervals=None)
    intervals = join_intervals([one.intervals for one in chunks if one.intervals is not None])
    if isinstance(alpha, MatchedEvents):
        joined = replace(joined, event_alpha=alpha.alpha, notes=tuple(alpha.notes))
        if alpha.groups is not None:  # observation times are stored by the groups of the files
            joined, intervals = replace(joined, groups=alpha.groups), None
    elif isinstance(alpha, Mapping):
        joined = replace(joined, event_alpha=_runs.alpha_of_groups(alpha, joined.groups))
    elif alpha is not None:
        joined = replace(joined, regions=replace(joined.regions, alpha=alpha))
    joined.census.check(source, pipeline.config, joined.alpha)
    check_identifiers(joined.table, source)
    check_independent(joined.X, chunks, source)
    if isinstance(alpha, MatchedEvents) and not alpha.kept.all():
        census = joined.census.without(joined.regions.region[~alpha.kept])
        joined = replace(joined.take(alpha.kept), census=census)
        census.check(source, pipeline.config, joined.alpha)
    if pipeline.config.regions.intervals is not None:
        joined = _intervals.complete(joined, files)
    regions, event_alpha = joined.regions, joined.event_alpha
    if event_alpha is not None:
        regions = replace(regions, alpha=float(event_alpha[regions.region > 0].mean()))
        if (event_alpha == event_alpha[0]).all():
            regions, event_alpha = replace(regions, alpha=float(event_alpha[0])), None
    if not pipeline.config.allow_origin_features:
        ratio, where = regions.alpha if event_alpha is None else event_alpha, f"{source}: " if source else ""
        settings = (regions.n_regions, pipeline.config.features, where, regions.exposure)
        check_origin(joined.X, regions.region, ratio, *settings)
    table = joined.table.reset_index(drop=True)
    joined = replace(joined, regions=regions, table=table, event_alpha=event_alpha, exposure=intervals)
    if joined.theta is None and regions.exposure is not None and pipeline.config.regions.intervals is None:
        joined = replace(joined, notes=(*joined.notes, _NO_CENTRES))
    return replace(joined, halo=find_halo(joined))


def _describe_paths(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def seconds_of(table: pd.DataFrame) -> FloatArray | None:
    """Return Unix times, or seconds since the first event if the origin is unknown; None without times."""
    column = next((name for name in ABSOLUTE_COLUMNS if name in table), None)
    if column is None:
        return None
    seconds = unix_of(table[column], column)
    if seconds is None and pd.api.types.is_numeric_dtype(table[column]):
        seconds = table[column].to_numpy(dtype=np.float64, na_value=np.nan)
        seconds = seconds - np.nanmin(seconds) if np.isfinite(seconds).any() else None
    return seconds
