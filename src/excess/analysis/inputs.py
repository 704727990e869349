"""What commands are given: configurations, observations, models and targets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from excess.events import AnalysisConfig
    from excess.observation.pipeline import Observation
    from excess.validation.detection import Detection


def configuration(path: Path | None, source_ra: float | None, source_dec: float | None) -> AnalysisConfig:
    """Return the configuration of a file, with the position of the source where it is given."""
    from excess.events import load_config

    if (source_ra is None) != (source_dec is None):
        raise typer.BadParameter("go together", param_hint="--source-ra and --source-dec")
    config = load_config(path)
    given = {"source_ra": source_ra, "source_dec": source_dec}
    regions = {name: value for name, value in given.items() if value is not None}
    return config.model_copy(update={"regions": config.regions.model_copy(update=regions)})


def observe_files(
    files: list[Path],
    config: AnalysisConfig,
    groups: str | None,
    join: list[Path] | None,
    off: list[Path] | None,
    alpha: float | None,
    nearby: bool = False,
) -> Observation:
    """Read the events that were given, from one set of files or from On and Off files."""
    from excess.observation.pipeline import observe, observe_on_off

    if not off:
        if alpha is not None:
            raise typer.BadParameter("goes with --off; with regions, their number decides", param_hint="--alpha")
        return observe(files, config, join=join or None, groups=groups, nearby=nearby)
    if alpha is None:
        raise typer.BadParameter("is needed with --off: the exposure ratio On/Off", param_hint="--alpha")
    if join:
        raise typer.BadParameter("does not go with --off", param_hint="--join")
    return observe_on_off(files, off, config, alpha=alpha, groups=groups)


def simulated_reference(names: tuple[str, ...], seed: int, jobs: int) -> Any:
    """Train the supervised reference on simulated events."""
    from excess.estimators.supervised import supervised_reference
    from excess.observation.simulation import simulate_labelled

    truth = simulate_labelled(random_state=seed + 1)
    labels = truth["is_signal"].to_numpy().astype(int)
    return supervised_reference(truth[list(names)].to_numpy(), labels, n_jobs=jobs, random_state=seed)


def reference_from_files(
    simulation: tuple[Path, Path], config: AnalysisConfig, names: tuple[str, ...], seed: int, jobs: int
) -> Any:
    """Train the supervised reference on files of gammas and protons."""
    import numpy as np

    from excess.estimators.supervised import supervised_reference
    from excess.events import EventFileError, read_events, to_features

    parts = []
    for path in simulation:
        features = to_features(read_events(path, config.columns_needed()), config)
        if not features.valid.any():
            raise EventFileError(f"{path}: no event passes the quality cuts")
        parts.append(features.X[features.valid])
    labels = np.repeat([1, 0], [len(part) for part in parts])
    return supervised_reference(np.concatenate(parts), labels, n_jobs=jobs, random_state=seed)


class SavedModel(NamedTuple):
    """A model from a file, with the configuration and all else that was saved beside it."""

    path: Path
    fitted: Any
    config: AnalysisConfig
    metadata: dict[str, Any]


def load_model(path: Path, jobs: int) -> SavedModel:
    """Return a model of 'excess train'."""
    from excess.estimators.model_file import ModelFileError, load, read_header
    from excess.events import parse_config

    fitted, metadata = load(path), read_header(path)["metadata"]
    if "config" not in metadata:
        raise ModelFileError(f"{path}: says nothing about features and cuts; write it with 'excess train'")
    if "n_jobs" in fitted.get_params():
        fitted.set_params(n_jobs=jobs)
    return SavedModel(path, fitted, parse_config(metadata["config"], str(path)), metadata)


def check_new_files(saved: SavedModel, config: AnalysisConfig, files: list[Path]) -> None:
    """Refuse files that a model was trained on, and other features than its own."""
    from excess._core.files import sha256_of
    from excess.estimators.model_file import ModelFileError

    seen = {entry["sha256"] for entry in saved.metadata.get("run", {}).get("files", [])}
    for file in files:
        if file.is_file() and sha256_of(file) in seen:
            raise ModelFileError(
                f"{saved.path}: was trained on {file}; give it events that it has not seen, or the name of a model to "
                "cross-validate"
            )
    for name in ("features", "derived_features", "quality_cuts"):
        if getattr(config, name) != getattr(saved.config, name):
            raise ModelFileError(
                f"{saved.path}: was trained with other {name} than these events are read with; give the same "
                "configuration"
            )


def detect_with(saved: SavedModel, observation: Observation) -> Detection:
    """Judge new events by a saved model; refuse nights that it was trained on."""
    from excess.estimators.model_file import ModelFileError
    from excess.validation.cross_validation import detect

    if observation.groups is not None:
        shared = sorted(set(observation.groups.tolist()) & set(saved.metadata.get("groups", [])))
        if shared:
            raise ModelFileError(
                f"{saved.path}: was trained on events of group {shared[0]!r}, which these files hold as well"
            )
    nearby = observation.nearby
    found = detect(
        saved.fitted,
        observation.frame,
        observation.on,
        alpha=observation.alpha,
        groups=observation.groups,
        nearby=None if nearby is None else (observation.framed(nearby.X), nearby.groups),
    )
    return observation.annotate(found)


def output_of_each(files: list[Path], output: Path) -> dict[Path, Path]:
    """Return which file goes where."""
    from excess._core.files import prepare_folder

    if len(files) == 1 and not output.is_dir():
        prepare_folder(output.parent)
        targets = {files[0]: output}
    else:
        for name, times in Counter(path.name for path in files).items():
            if times > 1:
                raise ValueError(
                    f"{times} files are called {name}, so that one copy would replace the other; apply the model to "
                    "one after the other, with an output each"
                )
        folder = prepare_folder(output)
        targets = {path: folder / path.name for path in files}
    for path, target in targets.items():
        if target.exists() and path.exists() and path.samefile(target):
            raise ValueError(f"{path} would be written onto itself; give another output")
    return targets
