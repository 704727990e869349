"""What the options of events give: all files of a command, and the observation that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.failures import as_option
from excess.cli.options import EventOptions, ReferenceOptions

__all__ = ["given_files", "observe_events"]

_OF_ONE = ("off", "alpha", "join", "source", "source_ra", "source_dec", "bins", "method", "exclusion", "match")
"""Options that a list of observations has for each."""


def given_files(events: EventOptions, references: ReferenceOptions) -> list[Path]:
    """Return all files that a command is given, those of a list of observations included."""
    from excess.analysis import listed_files

    given = [*events.files, *(events.off or []), *(events.join or []), *(references.simulated or ())]
    given += [Path(one) for one in references.reference or [] if Path(one).exists()]
    if events.config is not None:
        given.append(events.config)
    return given + (listed_files(events.files[0]) if events.lists_observations else [])


def observe_events(events: EventOptions, config: Any, references: list[str], *, nearby: bool) -> Any:
    """Return the observation that the options describe, or all of a list of observations."""
    with exit_at_interrupts():
        from excess.analysis import observe, observe_several

    settings: Any = {
        "groups": events.groups,
        "references": references,
        "nearby": nearby,
        # a proposed configuration has them already
        "features": [] if config is not events.config else events.features or [],
        "exclude": [] if config is not events.config else events.exclude or [],
    }
    if events.lists_observations:
        for option in _OF_ONE:
            if getattr(events, option) not in (None, []):
                raise typer.BadParameter(
                    "goes with event files; a list of observations has its own", param_hint=as_option(option)
                )
        return observe_several(events.files[0], config, **settings)
    return observe(
        events.files,
        config,
        off=events.off or None,
        alpha=events.alpha,
        join=events.join or None,
        source=events.position,
        bins=events.bins,
        regions=events.regions,
        **settings,
    )
