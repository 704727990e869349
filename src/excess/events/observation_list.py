"""Lists of observations: which files belong to which, in a YAML file."""

from __future__ import annotations

from glob import has_magic
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from excess._core.errors import EventFileError
from excess._core.inputs import read_input_text
from excess.events._yaml import LARGEST_TEXT
from excess.events.config import AnalysisConfig, describe_error, parse_mapping
from excess.events.region_config import RegionConfig, Settings

__all__ = ["ObservationEntry", "load_observation_list"]

_Ratio = Annotated[float, Field(gt=0)]
_Paths = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]


class ObservationEntry(Settings):
    """Files of one observation, and how its On and Off events are told apart."""

    events: _Paths = Field(min_length=1, description="Event files; of On events only if there are files of Off events.")
    off: _Paths | None = Field(default=None, description="Files of Off events.")
    alpha: _Ratio | dict[Any, _Ratio] | None = Field(
        default=None,
        description="Exposure ratio On/Off, or that of each group, with `off`; by default from live times.",
    )
    join: _Paths | None = Field(default=None, description="Files to join event by event.")
    regions: dict[str, Any] = Field(
        default_factory=dict, description="What its regions have other than those of the configuration."
    )

    def settings(self, config: AnalysisConfig) -> AnalysisConfig:
        """Return the settings of the observation: those of a configuration, with regions of its own."""
        if not self.regions:
            return config
        return config.model_copy(update={"regions": config.regions.with_settings(self.regions)})


_KEYS = (*ObservationEntry.model_fields, *RegionConfig.model_fields)


def load_observation_list(path: str | PathLike[str]) -> dict[str, ObservationEntry]:
    r"""Read a list of observations from a YAML file: by name, the files of each.

    Parameters
    ----------
    path : path-like
        The file. File names in it are relative to its folder, and may hold ``*`` and ``?``.

    Returns
    -------
    dict of str to ObservationEntry
        At least one.

    Raises
    ------
    EventFileError
        If the file cannot be read, holds an unknown key or a value of the wrong type, or no file has a given name.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events.observation_list import load_observation_list
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "observations.yaml")
    ...     text = "crab: {events: crab.hdf5}\nmrk421: {events: on.csv, off: off.csv, alpha: 0.5}\n"
    ...     _ = path.write_text(text)
    ...     found = load_observation_list(path)
    >>> list(found), Path(found["crab"].events[0]).name, found["mrk421"].alpha
    (['crab', 'mrk421'], 'crab.hdf5', 0.5)
    """
    file = Path(path)
    text = read_input_text(file, LARGEST_TEXT, "reading the list of observations")
    content = parse_mapping(text, str(file), "'crab: {events: crab.hdf5}'")
    if not content:
        raise EventFileError(f"{file}: lists no observations; give names and files, such as 'crab: {{events: a.hdf5}}'")
    entries = {}
    for name, given in content.items():
        if isinstance(given, dict):  # YAML reads the word off as False
            given = {"off" if key is False else key: value for key, value in given.items()}
        try:
            entry = ObservationEntry.model_validate(given)
            entry.settings(AnalysisConfig())
        except ValidationError as error:
            problems = "; ".join(describe_error(one, _KEYS) for one in error.errors())
            raise EventFileError(f"{file}: {name}: {problems}") from error
        found = {
            kind: _find_files(file, name, paths)
            for kind in ("events", "off", "join")
            if (paths := getattr(entry, kind)) is not None
        }
        entries[name] = entry.model_copy(update=found)
    return entries


def _find_files(listed_in: Path, name: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths as seen from here; a pattern becomes all files that match it."""
    found: list[str] = []
    for path in paths:
        if not has_magic(path):
            found.append(str(listed_in.parent / path))
            continue
        base = Path(path)
        folder = Path(base.anchor) if base.is_absolute() else listed_in.parent
        pattern = str(base.relative_to(base.anchor)) if base.is_absolute() else path
        matches = sorted(map(str, folder.glob(pattern)))
        if not matches:
            raise EventFileError(f"{listed_in}: {name}: no file matches {path!r}")
        found += matches
    return tuple(found)
