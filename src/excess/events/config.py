"""Settings of an analysis: features, quality cuts and groups; those of regions are in `region_config`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from excess._core.errors import EventFileError, nearest
from excess._core.inputs import read_input_text
from excess.events._yaml import LARGEST_TEXT, parse_yaml
from excess.events.bin_config import BinConfig
from excess.events.derived_features import inputs_of_derived
from excess.events.expressions import CONSTANTS, FUNCTIONS, names_in
from excess.events.origin import origin_of
from excess.events.region_config import Exclusion, Pair, RegionConfig, Settings

__all__ = ["AnalysisConfig", "load_config", "parse_config"]

# The open Crab analysis of FACT.
DERIVED_FEATURES = {
    "area": "width * length * pi",
    "log_size": "log(size)",
    "size_area": "size / area",
    "area_size_cut_var": "area / log(size)**2",
}
FEATURES = (
    "concentration_cog",
    "concentration_core",
    "concentration_one_pixel",
    "concentration_two_pixel",
    "leakage1",
    "leakage2",
    "size",
    "width",
    "length",
    "skewness_long",
    "skewness_trans",
    "kurtosis_long",
    "kurtosis_trans",
    "num_islands",
    "num_pixel_in_shower",
    "photoncharge_shower_mean",
    "photoncharge_shower_variance",
    "photoncharge_shower_max",
    *DERIVED_FEATURES,
)
QUALITY_CUTS = (
    "num_pixel_in_shower >= 10",
    "num_islands < 8",
    "length < 70",
    "width < 35",
    "leakage1 < 0.6",
    "leakage2 < 0.85",
)

MOST_FEATURES = 10_000
MOST_CUTS = 1000


class AnalysisConfig(Settings):
    """Settings of an analysis. The defaults are those of FACT's open Crab analysis.

    Examples
    --------
    >>> from excess.events import AnalysisConfig
    >>> config = AnalysisConfig(features=["width", "ratio"], derived_features={"ratio": "width / length"})
    >>> config.columns_needed()[:2]
    ('width', 'length')
    >>> AnalysisConfig(features=["width", "theta_deg"])
    Traceback (most recent call last):
        ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for AnalysisConfig
      Value error, feature 'theta_deg' encodes where an event came from ...
    """

    features: tuple[str, ...] = Field(
        default=FEATURES,
        min_length=1,
        max_length=MOST_FEATURES,
        description="Columns and derived features that a model is trained on.",
    )
    derived_features: dict[str, str] = Field(
        default_factory=lambda: dict(DERIVED_FEATURES), description="Further features: names and their expressions."
    )
    quality_cuts: tuple[str, ...] = Field(
        default=QUALITY_CUTS,
        max_length=MOST_CUTS,
        description="Conditions that an event has to meet, as expressions.",
    )
    groups: str = Field(
        default="night",
        min_length=1,
        description="Column of the groups, which are not split between training and hold-out.",
    )
    regions: RegionConfig = Field(default_factory=RegionConfig, description="The On region and the Off regions.")
    allow_origin_features: bool = Field(
        default=False, strict=True, description="Allow features that encode where an event came from."
    )

    references: tuple[str, ...] = Field(
        default=(),
        description="Features that are scores of another analysis, such as gammaness; a model learns how far to trust "
        "them.",
    )

    bins: BinConfig | None = Field(
        default=None, description="Bins with thresholds and calibrations of their own, such as those of energy."
    )

    @model_validator(mode="before")
    @classmethod
    def _bins_are_columns(cls, given: Any) -> Any:
        """Let the column of the bins be read with the features, and remember whether it is one."""
        bins = given.get("bins") if isinstance(given, dict) else None
        if isinstance(bins, BinConfig):
            bins = bins.model_dump()
        features = given.get("features", FEATURES) if isinstance(given, dict) else None
        if not isinstance(bins, dict) or not isinstance(features, (list, tuple)):
            return given
        column, is_feature = bins.get("column"), bins.get("column") in features
        bins = {**bins, "feature": is_feature if bins.get("feature") is None else bins["feature"]}
        if is_feature or not isinstance(column, str):
            return {**given, "bins": bins}
        return {**given, "bins": bins, "features": (*features, column)}

    @model_validator(mode="before")
    @classmethod
    def _references_are_features(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("references", ()), (list, tuple)):
            return given
        features = given.get("features", FEATURES)
        if not isinstance(features, (list, tuple)):
            return given
        if len(features) + len(given.get("references", ())) > 2 * MOST_FEATURES:
            return given  # too many, as their validation says
        more = [name for name in given.get("references", ()) if name not in features]
        return {**given, "features": (*features, *more)} if more else given

    @model_validator(mode="after")
    def _features_besides_references(self) -> Self:
        if set(self.features) <= set(self.references):
            raise ValueError("all features are references; give features to learn from as well")
        return self

    @field_validator("features", "references")
    @classmethod
    def _features_once(cls, features: tuple[str, ...]) -> tuple[str, ...]:
        seen = set()
        for name in features:
            if not name:
                raise ValueError("a feature has no name")
            if name in seen:
                raise ValueError(f"feature {name!r} is named twice")
            seen.add(name)
        return features

    @field_validator("quality_cuts")
    @classmethod
    def _cuts_parse(cls, cuts: tuple[str, ...]) -> tuple[str, ...]:
        for cut in cuts:
            names_in(cut)
        return cuts

    @field_validator("derived_features")
    @classmethod
    def _derived_parse(cls, derived: dict[str, str]) -> dict[str, str]:
        for name in derived:
            if not name.isidentifier() or name in FUNCTIONS or name in CONSTANTS:
                raise ValueError(f"{name!r} cannot name a derived feature; use letters, digits and underscores")
        inputs_of_derived(derived)
        return derived

    @model_validator(mode="after")
    def _no_origin(self) -> Self:
        if self.allow_origin_features:
            return self
        inputs = inputs_of_derived(self.derived_features)
        names = dict.fromkeys(name for feature in self.features for name in (feature, *inputs.get(feature, ())))
        origins = {name: origin_of(name, is_reference=name in self.references) for name in names}
        for feature in self.features:
            for name in (feature, *inputs.get(feature, ())):
                if reason := origins[name]:
                    through = "" if name == feature else f" is computed from {name!r}, which"
                    raise ValueError(
                        f"feature {feature!r}{through} encodes where an event came from ({reason}), so a model would "
                        "learn the regions and not the source; remove it, or insist with allow_origin_features: true"
                    )
        return self

    def columns_needed(self) -> tuple[str, ...]:
        """Return the columns that features and cuts need from a file; groups and regions need further ones."""
        inputs = inputs_of_derived(self.derived_features)
        names: dict[str, None] = {}
        for feature in self.features:
            names |= dict.fromkeys((feature, *inputs.get(feature, ())))
        for cut in self.quality_cuts:
            for name in names_in(cut):
                names |= dict.fromkeys((name, *inputs.get(name, ())))
        return tuple(name for name in names if name not in self.derived_features)

    def inputs_of(self, feature: str) -> tuple[str, ...]:
        """Return all names that a derived feature is computed from; none for a column of a file."""
        return inputs_of_derived(self.derived_features).get(feature, ())

    def with_references(self, columns: Sequence[str]) -> AnalysisConfig:
        """Return the configuration with further columns that are scores of another analysis.

        Examples
        --------
        >>> from excess.events import AnalysisConfig
        >>> config = AnalysisConfig(features=["width", "length"]).with_references(["gammaness"])
        >>> config.features, config.references
        (('width', 'length', 'gammaness'), ('gammaness',))
        """
        more = [name for name in columns if name not in self.references]
        if not more:
            return self
        return AnalysisConfig.model_validate({**self.model_dump(), "references": [*self.references, *more]})

    def without_references(self) -> AnalysisConfig:
        """Return the configuration without the columns that are scores of another analysis.

        Examples
        --------
        >>> from excess.events import AnalysisConfig
        >>> AnalysisConfig(features=["width"], references=["gammaness"]).without_references().features
        ('width',)
        """
        if not self.references:
            return self
        features = [name for name in self.features if name not in self.references]
        return AnalysisConfig.model_validate({**self.model_dump(), "features": features, "references": ()})

    def with_bins(self, bins: BinConfig | None) -> AnalysisConfig:
        """Return the configuration with bins; None leaves it as it is.

        Examples
        --------
        >>> from excess.events import AnalysisConfig, BinConfig
        >>> config = AnalysisConfig(features=["width", "length"]).with_bins(BinConfig.parse("energy:1,5"))
        >>> config.features, config.bins.feature
        (('width', 'length', 'energy'), False)
        """
        if bins is None:
            return self
        before = [name for name in self.features if self.bins is None or self.bins.feature or name != self.bins.column]
        return AnalysisConfig.model_validate({**self.model_dump(), "features": before, "bins": bins})

    def with_source(self, ra: float, dec: float) -> AnalysisConfig:
        """Return the configuration with the position of the source in deg."""
        regions = self.regions.model_copy(update={"source_ra": ra, "source_dec": dec})
        return self.model_copy(update={"regions": regions})

    def to_yaml(self) -> str:
        """Return the settings as YAML that ``load_config`` reads.

        Examples
        --------
        >>> from excess.events import AnalysisConfig
        >>> print(AnalysisConfig(features=["width"], derived_features={}, quality_cuts=["width < 35"]).to_yaml())
        features:
        - width
        derived_features: {}
        quality_cuts:
        - width < 35
        groups: night
        regions:
          theta_squared_cut: 0.025
        ...
        """
        settings = self.model_dump(mode="json")
        for name in ("references", "bins"):
            if not settings[name]:
                del settings[name]  # most analyses have none
        return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def load_config(path: str | PathLike[str] | None = None) -> AnalysisConfig:
    r"""Read the settings of an analysis from a YAML file.

    Parameters
    ----------
    path : path-like, default=None
        The file; keys that it does not hold take their defaults. None means all defaults.

    Returns
    -------
    AnalysisConfig
        The settings.

    Raises
    ------
    EventFileError
        If the file cannot be read, is no YAML mapping, or holds an unknown key or a value of the wrong type.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.events import load_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "crab.yaml")
    ...     _ = path.write_text("groups: run_id\nregions: {n_regions: 4}\n")
    ...     config = load_config(path)
    >>> config.groups, config.regions.n_regions, len(config.features)
    ('run_id', 4, 22)
    """
    if path is None:
        return AnalysisConfig()
    file = Path(path)
    return parse_config(read_input_text(file, LARGEST_TEXT, "reading the settings"), str(file))


def parse_config(text: str, source: str) -> AnalysisConfig:
    """Read the settings of an analysis from YAML.

    Parameters
    ----------
    text : str
        YAML, as of ``AnalysisConfig.to_yaml``.
    source : str
        Where the text comes from, for messages.

    Returns
    -------
    AnalysisConfig
        The settings.

    Raises
    ------
    EventFileError
        If the text is no YAML mapping, or holds an unknown key or a value of the wrong type.

    Examples
    --------
    >>> from excess.events import parse_config
    >>> parse_config("groups: run_id", "settings").groups
    'run_id'
    >>> parse_config("group: run_id", "settings")
    Traceback (most recent call last):
        ...
    excess._core.errors.EventFileError: settings: unknown key 'group'; did you mean 'groups'?
    """
    content = parse_mapping(text, source, "'groups: night'")
    try:
        return AnalysisConfig.model_validate(content)
    except ValidationError as error:
        raise EventFileError(f"{source}: {'; '.join(map(describe_error, error.errors()))}") from error


def parse_mapping(text: str, source: str, example: str) -> dict[str, Any]:
    """Return the names and values of YAML; EventFileError, which shows an example, if it holds something else."""
    content = parse_yaml(text, source)
    if content is None:
        content = {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise EventFileError(f"{source}: must hold names and values, such as {example}")
    return content


def _settings_at(place: Sequence[Any]) -> type[Settings]:
    """Return the settings that an unknown key stands in."""
    if place[0] != "regions":
        return AnalysisConfig
    inner: dict[Any, type[Settings]] = {"exclusion": Exclusion, "pairs": Pair}
    return next((inner[key] for key in place[:-1] if key in inner), RegionConfig)


def describe_error(error: Any, known: Iterable[str] | None = None) -> str:
    """Return a problem that pydantic found as text, with the key first; by default one of an analysis."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        if known is None:
            known = _settings_at(error["loc"]).model_fields
        return f"unknown key {key!r}; {nearest(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{key}: {message}" if key else message
