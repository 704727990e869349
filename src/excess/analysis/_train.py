"""Training of a model for other events, in memory or in chunks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from excess._utils.errors import ArgumentError, EventFileError, prefix_errors
from excess._utils.files import check_outputs, prepare_folder, sha256_of
from excess._utils.threads import n_threads, progress_bar
from excess.analysis._apply import TrainedModel
from excess.analysis._detect import ReferenceSet, Simulated, collect_references, fix_edges, is_hybrid, with_bins
from excess.analysis._models import MODELS, make_model, without_run_settings
from excess.analysis._results import describe_run
from excess.config._model import NO_GROUPS, AnalysisConfig
from excess.dataset._dataset import Census, OnOffDataset
from excess.dataset._settings import settle_config
from excess.estimators import _base
from excess.estimators._base import ExposureRatios, with_alpha
from excess.estimators._model_file import is_model_file
from excess.estimators._random_forest import OnOffForestClassifier
from excess.io._reading import check_one_telescope
from excess.out_of_core._events import ObservedFiles
from excess.out_of_core._executors import open_executor
from excess.out_of_core._fit import fit_forest


def train(
    observation: OnOffDataset,
    model: str | Any = "forest",
    *,
    simulated: Simulated | None = None,
    references: Sequence[str | PathLike[str] | TrainedModel] = (),
    max_depth: int | None = None,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
) -> TrainedModel:
    """Train a model on all events of an observation, to apply it to other events.

    Parameters
    ----------
    observation : OnOffDataset
        From `OnOffDataset.from_files`.
    model : str or On/Off classifier, default="forest"
        Name in `MODELS`, or a classifier.
    simulated, references
        As for `detect`, for the model `hybrid`; they are stored in the file.
    max_depth : int or None, default=None
        Maximum depth of trees; by default that of the model.
    seed, n_jobs : int
        Random seed and number of cores of a model given by name.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    TrainedModel
        Trained model, with ``save(path)``.

    Examples
    --------
    >>> from excess.analysis import OnOffDataset, train
    >>> from excess.dataset import simulate_observation
    >>> trained = train(OnOffDataset.from_files(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> trained.n_events
    1912
    """
    observation = fix_edges(observation)
    estimator = _estimator(model, max_depth, seed, n_jobs, verbose)
    known = ReferenceSet()
    if is_hybrid(estimator):
        known = collect_references(observation, simulated, references, seed=seed, n_jobs=n_jobs)
        if isinstance(model, str):
            estimator = known.complete(estimator)
    else:
        for argument, given in (("simulated", simulated), ("references", references)):
            if given:
                raise ArgumentError(argument, f"requires `model` hybrid, got {model}")
        observation = observation.without_references()
    estimator = with_bins({"": estimator}, observation)[""]
    exposed = _base.with_exposure(estimator, observation.regions.on, observation.exposure_ratio)
    fit_params: dict[str, Any] = dict(exposed.fit_params)
    if _base.takes_groups(estimator, observation.groups):
        fit_params["groups"] = observation.groups
    fitted = exposed.estimator.fit(observation.frame, observation.on, **fit_params)
    groups = [] if observation.groups is None else sorted(set(observation.groups.tolist()))
    record = _record(model, seed, {"events": [path for paths in observation.files.values() for path in paths]}, known)
    return TrainedModel(without_run_settings(fitted), observation.config, groups, record, observation.census)


def train_in_chunks(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    config: AnalysisConfig | str | PathLike[str] | None = None,
    model: str | OnOffForestClassifier = "forest",
    *,
    groups: str | None = None,
    source: str | tuple[float, float] | None = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    regions: Mapping[str, Any] | None = None,
    chunk_rows: int = 200_000,
    executor: Any = None,
    max_depth: int | None = None,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
) -> TrainedModel:
    """Train a forest on more events than fit into memory, or on a Dask cluster; identical to the model of `train`.

    In addition to `fit_forest`, files are read once to count events and groups, and to sum exposure ratios; if these
    vary, events are weighted as in `train`. Duplicate events in different files are not detected.

    Parameters
    ----------
    files : path or sequence of paths
        Event files of one format.
    config : AnalysisConfig, path or None, default=None
        As for `OnOffDataset.from_files`.
    model : str or OnOffForestClassifier, default="forest"
        A forest, or its name in `MODELS`.
    groups, source, features, exclude, regions
        As for `OnOffDataset.from_files`.
    chunk_rows : int, default=200_000
        Number of events read at a time.
    executor : None, dask.distributed.Client, str or Executor, default=None
        As for `fit_forest`. A worker reads whole files, which it must access by the same paths.
    max_depth, seed, n_jobs, verbose
        As for `train`.

    Returns
    -------
    TrainedModel
        Trained model, with ``save(path)``.
    """
    estimator = _estimator(model, max_depth, seed, n_jobs, verbose)
    check_chunked_model(estimator)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    check_one_telescope(paths)
    choice: dict[str, Any] = {"source": source, "features": features, "exclude": exclude, "regions": regions}
    settings = settle_config(paths, config, groups=groups, **choice).without_references()
    if settings.bins is not None:
        raise ArgumentError("config", "has bins, which require all events in memory; train without chunks and workers")
    if settings.regions.intervals is not None:
        raise ArgumentError("on", "requires all events in memory; train without chunks and workers")
    column = settings.groups if groups is None else groups
    dataset = ObservedFiles(paths, settings, chunk_rows, column if _base.requests_groups(estimator) else NO_GROUPS)
    partitions = dataset.partitions()
    _reject_copies([Path(partition.name) for partition in partitions])
    total = _Counted()
    with open_executor(executor, n_threads(estimator.n_jobs)) as workers:
        with progress_bar("Counting events in files", len(partitions), shown=verbose) as tick:
            for counted in workers.run(_count_events, [(partition, column) for partition in partitions], tick):
                total.add(counted)
                total.groups |= counted.groups
                total.ratios += counted.ratios
        files_text = partitions[0].name + ("" if len(partitions) == 1 else " and others")
        ratios = total.ratios
        total.check(files_text, settings, ratios.off_mean)
        weighted = not ratios.are_equal and _base.weight_parameter(estimator) is not None
        alpha = ratios.common if weighted else ratios.off_mean
        dataset = replace(dataset, exposure=ratios if weighted else None)
        fitted = fit_forest(with_alpha(estimator, alpha), dataset, executor=workers)
    record = _record(model, seed, {"events": paths}, ReferenceSet())
    return TrainedModel(without_run_settings(fitted), settings, sorted(total.groups), record, total)


def check_model_path(
    path: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> None:
    """Raise an error if a model cannot be written to a path, before training."""
    check_outputs([Path(path)], inputs, overwrite=overwrite, is_own=is_model_file)
    prepare_folder(Path(path).parent)


def check_chunked_model(model: Any) -> None:
    """Raise ArgumentError unless a model, or the one of a name, can be trained in chunks."""
    if not isinstance(make_model(model) if isinstance(model, str) else model, OnOffForestClassifier):
        forests = ", ".join(name for name in MODELS if name.endswith("forest"))
        raise ArgumentError("model", f"must be one of {forests} if events are read in chunks or on workers")


@dataclass
class _Counted(Census):
    """Number of events of files, their groups, and their exposure ratios."""

    groups: set[Any] = field(default_factory=set)
    ratios: ExposureRatios = field(default_factory=ExposureRatios)


def _count_events(partition: Any, column: str) -> _Counted:
    """Count the events of a file."""
    total = _Counted()
    with prefix_errors(partition.name):
        for chunk in partition.files.observe(partition.name, column):
            total.add(chunk.census)
            total.ratios += ExposureRatios.of(chunk.regions.on, chunk.alphas)
            if chunk.groups is not None:
                total.groups |= set(np.unique(chunk.groups).tolist())
    return total


def _estimator(model: Any, max_depth: int | None, seed: int, n_jobs: int, verbose: bool) -> Any:
    """Return the classifier of a name, with the requested settings."""
    estimator = make_model(model, random_state=seed, n_jobs=n_jobs) if isinstance(model, str) else clone(model)
    known = estimator.get_params(deep=False)
    if max_depth is not None:
        if "max_depth" not in known:
            raise ArgumentError("max_depth", f"is not a parameter of {model}")
        estimator.set_params(max_depth=max_depth)
    return estimator.set_params(verbose=int(verbose)) if "verbose" in known else estimator


def _record(model: Any, seed: int, files: dict[str, Sequence[Path]], known: ReferenceSet) -> dict[str, Any]:
    name = model if isinstance(model, str) else repr(without_run_settings(model))
    record = describe_run("train", seed, {**files, **known.files}, {"model": name})
    return {**record, "files": [*record["files"], *known.seen_files]}


def _reject_copies(paths: list[Path]) -> None:
    """Raise EventFileError if files are identical; duplicate events in different files are not detected."""
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    n_files, seen = Counter(sizes.values()), dict[str, Path]()
    for path, size in sizes.items():
        if n_files[size] > 1:  # files of other sizes differ
            first = seen.setdefault(sha256_of(path), path)
            if first != path:
                raise EventFileError(f"{path}: has the same content as {first}; pass every file once")
