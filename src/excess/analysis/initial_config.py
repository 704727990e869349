"""Configurations from the content of files, written to a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from excess._core.files import prepare_folder, write_text
from excess.analysis.output_paths import check_outputs
from excess.events import Exclusion, load_observation_list
from excess.observation.observing import check_input
from excess.observation.proposal import Proposal, propose_config
from excess.observation.settings import config_of, propose_for_list

__all__ = [
    "Proposal",
    "check_exclusion",
    "check_input",
    "config_of",
    "propose_config",
    "propose_listed",
    "write_config",
]


def check_exclusion(text: str) -> None:
    """Raise ArgumentError unless a text is an exclusion, such as ``"84.411 21.143 0.3"`` or ``"Crab 0.3"``."""
    Exclusion.parse(text)


def propose_listed(path: str | PathLike[str], *, features: Sequence[str] = (), exclude: Sequence[str] = ()) -> Proposal:
    """Propose features, cuts and groups for the observations that a YAML file lists; each has regions of its own.

    Parameters
    ----------
    path : path
        The list, as for `observe_several`.
    features, exclude
        As for `propose_config`.

    Returns
    -------
    Proposal
        What `observe_several` takes where there is no configuration.
    """
    return propose_for_list(load_observation_list(path), features=features, exclude=exclude)


def write_config(
    proposal: Proposal,
    path: str | PathLike[str],
    inputs: Iterable[str | PathLike[str]] = (),
    *,
    overwrite: bool = False,
) -> Path:
    """Write a proposed configuration to a YAML file with comments, whole or not at all.

    Parameters
    ----------
    proposal : Proposal
        From `propose_config`.
    path : path
        File to write.
    inputs : iterable of path
        Files that are never replaced, such as those of the events.
    overwrite : bool, default=False
        Replace a file that is there.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from excess.analysis import propose_config, write_config
    >>> from excess.events import load_config
    >>> from excess.observation import simulate_observation
    >>> proposal = propose_config(simulate_observation(1_000, 10, random_state=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_config(write_config(proposal, f"{folder}/crab.yaml")) == proposal.config
    True
    """
    target = Path(path)
    check_outputs([target], inputs, overwrite=overwrite)
    text = proposal.to_yaml()
    prepare_folder(target.parent)
    write_text(target, text)
    return target
