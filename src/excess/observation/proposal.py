"""Proposals: the configuration of an analysis as the content of event files suggests it, with reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from excess.events import AnalysisConfig, RegionConfig, evaluate
from excess.events.expressions import names_in
from excess.observation.column_roles import (
    energy_column,
    is_classifier_output,
    reason_by_name,
    reasons_against,
)
from excess.observation.feature_choice import choose_features, exclude_features, make_config
from excess.observation.inspection import Inspection, inspect_files, inspect_table
from excess.observation.pipeline import NO_GROUPS
from excess.observation.presets import Preset, find_preset
from excess.observation.region_choice import choose_regions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Proposal", "propose_config"]

GROUP_COLUMNS = ("night", "obs_id", "run_id", "run_number", "run")
"""Columns that may be the groups, the best first."""
_MAX_NAMED = 6
_LINE = 40
"""Letters of a line in which the names of features may stand."""

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True, eq=False)
class Proposal:
    """A configuration that the content of files suggests.

    Attributes
    ----------
    config : AnalysisConfig or None
        The configuration; None if no column can be a feature.
    regions : RegionConfig
        The regions of the configuration, which are there without features, too.
    preset : str
        What the files were recognised as, a name of ``PRESETS``.
    format : str
        Format of the files.
    telescope : str or None
        The telescope, where the files name it.
    n_files : int
        Number of files; 0 for a table in memory.
    reasons : mapping of str to str
        Why columns are no features.
    references : tuple of str
        Columns with scores of other classifiers, which the model `hybrid` may learn to trust.
    energy : str or None
        Column of the reconstructed energy.
    on_off : str
        How On and Off are told apart.
    grouping : str
        What the groups are.
    obstacle : str or None
        Why there can be no detection in these files, and what to do; None if there can.
    usual : bool
        Whether this is FACT's open Crab analysis without any change, of which nothing has to be said.

    See Also
    --------
    propose_config : Makes one.

    Examples
    --------
    >>> from excess.observation import propose_config, simulate_observation
    >>> propose_config(simulate_observation(1_000, 10, random_state=0)).usual
    True
    """

    config: AnalysisConfig | None
    regions: RegionConfig
    preset: str
    format: str
    telescope: str | None
    n_files: int
    reasons: Mapping[str, str]
    references: tuple[str, ...]
    energy: str | None
    on_off: str
    grouping: str
    obstacle: str | None = None
    usual: bool = False
    name: str = field(default="", repr=False)

    @property
    def kind(self) -> str:
        """What the files are, in a few words."""
        where = f" of {self.telescope}" if self.telescope else ""
        number = f"{self.n_files:,} files, " if self.n_files > 1 else ""
        return f"{number}{self.format}{where}, taken as {self.preset}"

    def with_features_of(self, other: AnalysisConfig) -> AnalysisConfig:
        """Return the features and cuts of another configuration, with the groups and regions of the files."""
        groups = other.groups if self.config is None else self.config.groups
        own = other.without_references()
        return own.model_copy(update={"groups": groups, "regions": self.regions})

    def describe(self) -> str:
        """Return what is assumed, in three lines: the files, the features, and how On and Off are told apart.

        Examples
        --------
        >>> import pandas as pd
        >>> from excess.observation import propose_config, simulate_observation
        >>> events = simulate_observation(1_000, 10, random_state=0)[["width", "length", "night", "theta_deg"]]
        >>> print(propose_config(events.assign(theta_deg_off_1=1.0)).describe())
        table, taken as any table
        Features: width, length; 3 other columns are none
        On and Off: 2 regions by theta_deg and theta_deg_off_1, theta^2 < 0.025; groups: night
        """
        features = () if self.config is None else self.config.features
        others = f"; {len(self.reasons)} other columns are none" if self.reasons else ""
        return "\n".join(
            (
                self.kind,
                f"Features: {_shortened(features)}{others}"
                if features
                else f"No features among {len(self.reasons)} columns",
                f"On and Off: {self.on_off}; groups: {self.grouping}",
            )
        )

    def no_features(self) -> str:
        """Say why no column can be a feature, and what can be had without."""
        why = "; ".join(f"{name}: {reason}" for name, reason in list(self.reasons.items())[:_MAX_NAMED])
        more = f"; and {len(self.reasons) - _MAX_NAMED} more" if len(self.reasons) > _MAX_NAMED else ""
        return (
            f"{self.name}: no column can be a feature ({why}{more}), so that there is nothing to learn from, and only "
            "the counts without a cut can be had"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return {
            "preset": self.preset,
            "format": self.format,
            "telescope": self.telescope,
            "n_files": self.n_files,
            "config": None if self.config is None else self.config.model_dump(mode="json"),
            "not_features": dict(self.reasons),
            "references": list(self.references),
            "energy": self.energy,
            "on_off": self.on_off,
            "groups": self.grouping,
            "obstacle": self.obstacle,
        }

    def to_yaml(self) -> str:
        """Return the configuration as YAML with comments, which `load_config` reads.

        Raises
        ------
        ValueError
            If no column can be a feature.

        Examples
        --------
        >>> from excess.observation import propose_config, simulate_observation
        >>> events = simulate_observation(1_000, 10, random_state=0)[["width", "night", "theta_deg", "theta_deg_off_1"]]
        >>> print(propose_config(events).to_yaml())
        # Configuration of an analysis, as the content of the files suggests it. Change what you know better.
        # Files: table, taken as any table
        ...
        features:
        - width
        ...
        """
        if self.config is None:
            raise ValueError(self.no_features())
        settings = yaml.safe_load(self.config.to_yaml())
        settings["regions"] = {key: value for key, value in settings["regions"].items() if value is not None}
        lines = [
            *_comment(
                "Configuration of an analysis, as the content of the files suggests it. Change what you know better."
            ),
            *_comment(f"Files: {self.kind}"),
        ]
        if self.energy is not None:
            lines += _comment(f"Reconstructed energy: {self.energy}; for thresholds by energy: --bins {self.energy}:4")
        if self.obstacle is not None:
            lines += _comment(f"No detection yet: {self.obstacle}")
        for key, value in settings.items():
            lines += ["", *_comment(self._about(key))]
            lines += yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True).rstrip("\n").split("\n")
            if key == "features":
                lines += self._about_others()
        return "\n".join([*lines, ""])

    def _about(self, key: str) -> str:
        known = AnalysisConfig.model_fields[key].description or ""
        more = {
            "groups": f" Here: {self.grouping}.",
            "regions": f" Here: {self.on_off}. A source may be given as 'source: Crab'.",
        }
        return known + more.get(key, "")

    def _about_others(self) -> list[str]:
        lines = _comment("Columns that are no features:") if self.reasons else []
        for name, reason in self.reasons.items():
            lines += _comment(f"{name}: {reason}", "#   ")
        if self.references:
            names = ", ".join(self.references)
            lines += _comment(f"Scores of other classifiers can be references of the model hybrid: {names}")
            lines += _comment(f"excess detect FILES --reference {self.references[0]} -o FOLDER", "#   ")
        return lines


def propose_config(
    events: pd.DataFrame | Paths,
    *,
    join: Paths | None = None,
    off: Paths | None = None,
    source: str | tuple[float, float] | None = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    groups: str | None = None,
    regions: Mapping[str, Any] | None = None,
) -> Proposal:
    """Propose the configuration of an analysis from what event files hold.

    Columns and a sample of the events are looked at. Where files have the columns of FACT's open Crab analysis, the
    proposal is that analysis.

    Parameters
    ----------
    events : path, sequence of paths, or DataFrame
        Event files of one format, or the events themselves.
    join, off : path, sequence of paths or None, default=None
        Files to join event by event, and files of Off events, as for `observe`.
    source : str, tuple of float or None, default=None
        Name of a known source, or its position in deg; by default what the files name as observed object.
    features, exclude : sequence of str, default=()
        Features to take, and columns to leave out: names, or patterns such as ``"hillas_*"``.
    groups : str or None, default=None
        Column of the groups; by default nights or runs, where the files hold several.
    regions : mapping of str to object or None, default=None
        Settings of the regions by the keys of `RegionConfig`, such as ``{"method": "ring"}`` or
        ``{"exclusion": ["Crab 0.3"]}``; the others are proposed.

    Returns
    -------
    Proposal
        The configuration, with the reasons.

    Examples
    --------
    >>> from excess.observation import propose_config, simulate_observation
    >>> events = simulate_observation(1_000, 10, random_state=0).drop(columns="size")
    >>> proposal = propose_config(events, exclude=["photoncharge*"])
    >>> len(proposal.config.features), proposal.reasons["theta_deg"]
    (18, 'it is the distance to the source or to an Off region')
    """
    found = _inspect(events, join, off)
    preset = find_preset(found)
    chosen, reasons = _features(found, preset, features, exclude)
    chosen_regions, on_off, obstacle = choose_regions(found, preset, source, separate=off is not None, given=regions)
    column, grouping = _groups(found, groups)
    config = None
    if chosen:
        derived = _derived(preset, found)
        config = make_config(
            features=tuple(chosen),
            derived_features=derived,
            quality_cuts=_cuts(preset, found, derived),
            groups=column,
            regions=chosen_regions,
        )
    return Proposal(
        config=config,
        regions=chosen_regions,
        preset=preset.name,
        format=found.format,
        telescope=found.telescope,
        n_files=len(found.paths),
        reasons=reasons,
        references=tuple(name for name in found.columns if is_classifier_output(name)),
        energy=energy_column(found.columns),
        on_off=on_off,
        grouping=grouping,
        obstacle=obstacle,
        usual=preset.fixed and obstacle is None and config is not None and not regions and _as_usual(config),
        name=found.name,
    )


def _as_usual(config: AnalysisConfig) -> bool:
    usual = AnalysisConfig()
    return config.model_copy(update={"regions": usual.regions}) == usual


def _inspect(events: pd.DataFrame | Paths, join: Paths | None, off: Paths | None) -> Inspection:
    import pandas as pd

    if isinstance(events, pd.DataFrame):
        return inspect_table(events)
    return inspect_files(_as_paths(events), _as_paths(join), _as_paths(off))


def _as_paths(paths: Paths | None) -> list[Path]:
    if paths is None:
        return []
    return [Path(path) for path in ([paths] if isinstance(paths, (str, PathLike)) else paths)]


def _features(
    found: Inspection, preset: Preset, wanted: Sequence[str], unwanted: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the features, and why the other columns are none."""
    usual = [name for name in found.columns if preset.prefers(name)]
    if preset.fixed:
        reasons = {name: reason for name in found.columns if (reason := reason_by_name(name))}
    else:
        reasons = reasons_against(found, tuple(usual))
    allowed = [name for name in found.columns if name not in reasons]
    derived = list(_derived(preset, found))
    if wanted:
        chosen = choose_features(wanted, [*found.columns, *derived], reasons)
        why = "it is not among the features that were asked for"
    elif preset.fixed:
        chosen = list(preset.features)
        why = "it is not among the features of FACT's open Crab analysis"
    else:
        preferred = [name for name in allowed if name in usual]
        chosen = [*preferred, *(name for name in derived if name not in preferred)] if preferred else allowed
        why = f"it is not among the usual features of {preset.name} files"
    if unwanted:
        chosen = exclude_features(unwanted, chosen, found.columns)
    left = {name: reasons.get(name, why) for name in found.columns if name not in chosen}
    if unwanted:
        kept = exclude_features(unwanted, allowed, found.columns) if len(allowed) > len(chosen) else chosen
        left |= {name: "it was excluded" for name in allowed if name not in kept and name not in chosen}
    return chosen, left | {name: reasons[name] for name in found.only_in_some if name in reasons}


def _derived(preset: Preset, found: Inspection) -> dict[str, str]:
    """Return the derived features of a preset whose columns are there."""
    if not preset.derived_features:
        return {}
    known = AnalysisConfig(features=tuple(preset.derived_features), derived_features=preset.derived_features)
    return {
        name: expression
        for name, expression in preset.derived_features.items()
        if all(one in found.columns or one in preset.derived_features for one in known.inputs_of(name))
    }


def _cuts(preset: Preset, found: Inspection, derived: Mapping[str, str]) -> tuple[str, ...]:
    """Return the quality cuts of a preset whose columns are there, and that leave some events."""
    known = [cut for cut in preset.quality_cuts if all(one in found.columns or one in derived for one in names_in(cut))]
    if preset.fixed:
        return tuple(known)
    return tuple(cut for cut in known if not set(names_in(cut)) <= set(found.columns) or _leaves_events(cut, found))


def _leaves_events(cut: str, found: Inspection) -> bool:
    """Say whether a cut leaves events of the sample; it may be in other units, or a type may have another number."""
    return len(found.sample) == 0 or bool(evaluate(cut, found.sample).any())


def _groups(found: Inspection, asked: str | None) -> tuple[str, str]:
    """Return the column of the groups, and what is said about it."""
    if asked is not None:
        return asked, "no groups" if asked == NO_GROUPS else asked
    there = [name for name in GROUP_COLUMNS if name in found.columns]
    for name in there:
        if name == "night" and find_preset(found).fixed:
            return name, name  # as always, even of one night
        if found.varies(name):
            return name, name
    if there:
        return NO_GROUPS, f"none, because all events have the same {there[0]}"
    return NO_GROUPS, "none, because there is no column of nights or runs"


def _shortened(names: Sequence[str]) -> str:
    """Return names, as many as go into a line."""
    n_shown = max(sum(len(", ".join(names[: number + 1])) < _LINE for number in range(len(names))), 1)
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def _comment(text: str, prefix: str = "# ") -> list[str]:
    """Return a text as lines of comments; what is not printable, line breaks above all, is written out."""
    plain = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
    return textwrap.wrap(
        plain,
        110,
        initial_indent=prefix,
        subsequent_indent=prefix + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
