"""A fitted model with all that is needed to apply it, and the file that holds it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from excess._core.errors import EventFileError
from excess._core.files import prepare_folder, sha256_of
from excess.analysis.output_paths import check_outputs
from excess.estimators.binned import learner_of
from excess.estimators.hybrid import OnOffHybridClassifier
from excess.estimators.model_file import ModelFileError, load, read_header, save
from excess.estimators.onnx_export import export_onnx
from excess.events import AnalysisConfig, parse_config
from excess.observation.census import Census
from excess.observation.observation import Observation
from excess.stats.counts import OnOffCounts

__all__ = ["TrainedModel", "load_model"]

_START_OF_EXPORT, _START_BYTES = b"excess", 64
"""Near the start of an ONNX file stands the name of the software that wrote it."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted model, with all that is needed to apply it.

    Attributes
    ----------
    model : On/Off classifier
        Fitted.
    config : AnalysisConfig
        Features and cuts that it was trained with.
    groups : list
        Groups that it was trained on, such as nights.
    record : dict
        What the training was started with.
    census : Census or None
        How many events were read, and what became of them; None for a model from a file.
    path : Path or None
        The file it is from.
    """

    model: Any
    config: AnalysisConfig
    groups: list[Any]
    record: dict[str, Any]
    census: Census | None = None
    path: Path | None = None

    @property
    def n_events(self) -> int:
        """Events that it was trained on."""
        return 0 if self.census is None else self.census.n_on + self.census.n_off

    def __str__(self) -> str:
        """Say what it was trained on."""
        if self.census is None:
            return f"{self.path}: {self.model}"
        return f"{self.census}; {OnOffCounts(self.census.n_on, self.census.n_off, self.model.alpha)}"

    @property
    def seen_groups(self) -> list[Any]:
        """Groups that it was trained on, or that the references inside it were."""
        learner = learner_of(self.model)
        inside = (learner.trained_on or {}) if isinstance(learner, OnOffHybridClassifier) else {}
        return sorted({*self.groups, *(group for groups in inside.values() for group in groups)})

    @property
    def seen_checksums(self) -> set[str]:
        """Checksums of all files that it was trained on."""
        return {entry["sha256"] for entry in self.record.get("files", [])}

    def has_seen(self, path: Path) -> bool:
        """Say whether it was trained on a file; the content is only read where the size is that of one of them."""
        sizes = {entry.get("bytes") for entry in self.record.get("files", [])}
        return path.is_file() and path.stat().st_size in sizes and sha256_of(path) in self.seen_checksums

    @property
    def trust(self) -> dict[str, float] | None:
        """How far it trusts each of its members, by name; None for a model without references."""
        learner = learner_of(self.model)
        return learner.trust_ if isinstance(learner, OnOffHybridClassifier) else None

    def check_unseen(self, observation: Observation, instead: str = "") -> None:
        """Raise ModelFileError if an observation has files or groups that the model was trained on.

        The message ends with ``instead``, what else could be done.
        """
        for path in (path for paths in observation.files.values() for path in paths):
            if self.has_seen(path):
                raise ModelFileError(
                    f"{self.path}: was trained on {path}; give it events that it has not seen{instead}"
                )
        present = set() if observation.groups is None else set(observation.groups.tolist())
        if self.config.groups in observation.table:  # which tells nights even where they are not the groups
            present |= set(observation.table[self.config.groups].tolist())
        shared = sorted(present & set(self.seen_groups))
        if shared:
            raise ModelFileError(
                f"{self.path}: was trained on events of group {shared[0]!r}, which these files hold as well"
            )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the model to a file, whole or not at all, and return its path."""
        metadata = {"config": self.config.to_yaml(), "groups": self.groups, "run": self.record, "angles": "deg"}
        save(self.model, path, metadata=metadata)
        return Path(path)

    def export_onnx(self, path: str | PathLike[str], *, precision: str = "float64", overwrite: bool = False) -> Path:
        """Write the model as an ONNX file, see `excess.export_onnx`, and return its path.

        Features are its input, derived ones included: ONNX has no expressions. The metadata of the file has these as
        ``derived_features``, and ``quality_cuts``, both as JSON.

        Parameters
        ----------
        path : path
            File to write, which ends in ``.onnx``.
        precision : {"float64", "float32"}, default="float64"
            Type of the features.
        overwrite : bool, default=False
            Replace any file that is there. Without it, only files that were exported before are replaced.
        """
        target = Path(path)
        if target.suffix.lower() != ".onnx":
            raise EventFileError(f"{target}: models are exported to ONNX; give a name that ends in .onnx")
        inputs = [] if self.path is None else [self.path]
        check_outputs([target], inputs, overwrite=overwrite, is_own=_is_export)
        prepare_folder(target.parent)
        computed = {
            name: self.config.derived_features[name]
            for feature in self.config.features
            for name in (*self.config.inputs_of(feature), feature)
            if name in self.config.derived_features
        }
        metadata = {"derived_features": json.dumps(computed), "quality_cuts": json.dumps(self.config.quality_cuts)}
        names = self.config.features
        try:
            export_onnx(self.model, target, feature_names=names, precision=precision, metadata=metadata)
        except TypeError as error:
            raise ModelFileError(f"{self.path or 'the model'}: {error}") from error
        return target


def load_model(path: str | PathLike[str], *, n_jobs: int = -1) -> TrainedModel:
    """Read a model that `TrainedModel.save`, and with it `excess train`, has written.

    Parameters
    ----------
    path : path
        The file.
    n_jobs : int, default=-1
        Cores for its predictions.

    Returns
    -------
    TrainedModel
        With the path of the file.
    """
    fitted, metadata = load(path), read_header(path)["metadata"]
    if "config" not in metadata:
        raise ModelFileError(f"{path}: says nothing about features and cuts; write it with 'excess train'")
    _check_metadata(path, metadata)
    if "n_jobs" in fitted.get_params():
        fitted.set_params(n_jobs=n_jobs)
    config = parse_config(metadata["config"], str(path))
    return TrainedModel(fitted, config, metadata.get("groups", []), metadata.get("run", {}), path=Path(path))


def _is_export(path: Path) -> bool:
    """Say whether a file is an ONNX model that was exported here."""
    try:
        with path.open("rb") as file:
            return _START_OF_EXPORT in file.read(_START_BYTES)
    except OSError:
        return False


def _check_metadata(path: str | PathLike[str], metadata: Any) -> None:
    """Raise ModelFileError if a file says something about the training that `TrainedModel.save` does not write."""
    groups, record = metadata.get("groups", []), metadata.get("run", {})
    files = record.get("files", []) if isinstance(record, dict) else None
    holds = {
        "config": isinstance(metadata["config"], str),
        "groups": isinstance(groups, list) and all(isinstance(group, (str, int, float)) for group in groups),
        "run": isinstance(record, dict),
        "files": isinstance(files, list)
        and all(isinstance(entry, dict) and isinstance(entry.get("sha256"), str) for entry in files),
    }
    wrong = [name for name, right in holds.items() if not right]
    if wrong:
        raise ModelFileError(
            f"{path}: has an impossible value of {wrong[0]} in its metadata; write it with 'excess train'"
        )
