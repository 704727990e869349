"""The choice of features by names and patterns, such as ``hillas_*``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from excess._core.errors import ArgumentError, MismatchError, nearest
from excess.events import AnalysisConfig
from excess.observation.column_roles import reason_by_name

__all__ = ["choose_features", "exclude_features", "make_config", "with_choice"]


def choose_features(wanted: Sequence[str], available: Collection[str], refused: Collection[str] = ()) -> list[str]:
    """Return the columns that names and patterns stand for.

    Parameters
    ----------
    wanted : sequence of str
        Names, and patterns with ``*``, ``?`` and ``[...]``; several may stand in one text, with commas between them.
    available : collection of str
        Columns, and derived features.
    refused : collection of str, default=()
        Columns that a pattern does not stand for; a name does.

    Returns
    -------
    list of str
        In the order in which they were asked for, each once.

    Examples
    --------
    >>> from excess.observation.feature_choice import choose_features
    >>> choose_features(["width, len*"], ["length", "length_m", "width"], refused=["length_m"])
    ['width', 'length']
    """
    chosen: dict[str, None] = {}
    for word in _words("features", wanted):
        found = _matches(word, available)
        if not found:
            raise MismatchError("features", _no_match(word, available))
        allowed = [name for name in found if name == word or name not in refused]
        if not allowed:
            raise MismatchError(
                "features",
                f"{word!r} stands for {', '.join(found[:5])} alone, which cannot be features; 'excess init' says why",
            )
        chosen |= dict.fromkeys(allowed)
    return list(chosen)


def exclude_features(unwanted: Sequence[str], features: Sequence[str], available: Collection[str]) -> list[str]:
    """Return features without those that names and patterns stand for.

    Examples
    --------
    >>> from excess.observation.feature_choice import exclude_features
    >>> exclude_features(["len*"], ["width", "length"], ["width", "length", "night"])
    ['width']
    """
    out: set[str] = set()
    for word in _words("exclude", unwanted):
        found = _matches(word, [*features, *available])
        if not found:
            raise MismatchError("exclude", _no_match(word, available))
        out |= set(found)
    left = [name for name in features if name not in out]
    if features and not left:
        raise MismatchError("exclude", "leaves no features to learn from")
    return left


def with_choice(
    config: AnalysisConfig, features: Sequence[str], exclude: Sequence[str], columns: Sequence[str]
) -> AnalysisConfig:
    """Return a configuration with other features: those that are asked for, without those that are not wanted.

    Examples
    --------
    >>> from excess.events import AnalysisConfig
    >>> from excess.observation.feature_choice import with_choice
    >>> with_choice(AnalysisConfig(), ["concentration_*", "width"], ["*_pixel"], AnalysisConfig().features).features
    ('concentration_cog', 'concentration_core', 'width')
    """
    if not features and not exclude:
        return config
    available = list(dict.fromkeys([*columns, *config.derived_features]))
    chosen = list(config.features)
    if features:
        references = [name for name in config.references if name not in features]
        chosen = [
            *choose_features(features, available, [name for name in columns if reason_by_name(name)]),
            *references,
        ]
    if exclude:
        chosen = exclude_features(exclude, chosen, available)
    return make_config(**{**config.model_dump(), "features": chosen})


def make_config(**settings: Any) -> AnalysisConfig:
    """Return a configuration; ArgumentError that names the features if one of them cannot be a feature."""
    try:
        return AnalysisConfig.model_validate(settings)
    except ValidationError as error:  # pydantic's own words span several lines
        raise ArgumentError(
            "features", f"cannot be used: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
        ) from error


def _words(argument: str, given: Sequence[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    words = [word.strip() for text in texts for word in text.split(",")]
    if not all(words):
        raise ArgumentError(argument, f"must be names of columns with commas between them, got {','.join(texts)!r}")
    return words


def _matches(word: str, available: Collection[str]) -> list[str]:
    """Return the name itself if there is one, else the names that a pattern stands for."""
    return [word] if word in available else [name for name in available if fnmatchcase(name, word)]


def _no_match(word: str, available: Collection[str]) -> str:
    return f"{word!r} is no column of the events; {nearest(word, available)}"
