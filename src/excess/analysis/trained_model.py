"""A fitted model with all that is needed to apply it, and the file that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from excess._core.files import sha256_of
from excess.estimators.hybrid import OnOffHybridClassifier
from excess.estimators.model_file import ModelFileError, load, read_header, save
from excess.events import AnalysisConfig, parse_config
from excess.observation.observation import Observation
from excess.observation.pipeline import Census
from excess.stats.significance import OnOffCounts

__all__ = ["TrainedModel", "load_model"]


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
        inside = (self.model.trained_on or {}) if isinstance(self.model, OnOffHybridClassifier) else {}
        return sorted({*self.groups, *(group for groups in inside.values() for group in groups)})

    @property
    def trust(self) -> dict[str, float] | None:
        """How far it trusts each of its members, by name; None for a model without references."""
        return self.model.trust_ if isinstance(self.model, OnOffHybridClassifier) else None

    def check_unseen(self, observation: Observation, instead: str = "") -> None:
        """Raise ModelFileError if an observation has files or groups that the model was trained on.

        The message ends with ``instead``, what else could be done.
        """
        seen = {entry["sha256"] for entry in self.record.get("files", [])}
        for path in (path for paths in observation.files.values() for path in paths):
            if path.is_file() and sha256_of(path) in seen:
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
