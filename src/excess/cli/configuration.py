"""Configurations from the content of files: the command init, and what other commands assume without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import EventOptions, InputOptions, Json, Overwrite, grouped
from excess.cli.printing import print_json, say

if TYPE_CHECKING:
    with exit_at_interrupts():
        from excess.analysis import Proposal

__all__ = ["assume_config", "assumed_rows", "init"]


@grouped
def init(
    events: InputOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="YAML file to write; without it, the configuration is printed."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Look at event files, and write a configuration for them: features, regions and groups, with reasons."""
    with exit_at_interrupts():
        from excess.analysis import check_outputs, write_config

    if events.lists_observations:
        raise typer.BadParameter("is a list of observations; give event files", param_hint="FILES")
    inputs = [*events.files, *(events.off or []), *(events.join or [])]
    if output is not None:
        check_outputs([output], inputs, overwrite=overwrite)
    proposal = _propose(events, events.position, groups=events.groups)
    text = proposal.to_yaml()
    if output is not None:
        write_config(proposal, output, inputs, overwrite=overwrite)
    say(proposal.describe(), as_json)
    if proposal.references:
        names = ", ".join(proposal.references)
        say(f"Scores of other classifiers, for --reference: {names}", as_json)
    if proposal.obstacle is not None:
        say(f"No detection yet: {proposal.obstacle}", as_json)
    if as_json:
        print_json({**proposal.to_dict(), "path": None if output is None else str(output)})
    elif output is None:
        typer.echo(text, nl=False)
    else:
        then = "" if proposal.obstacle else f", then 'excess detect FILES -c {output} -o FOLDER'"
        say(f"{output}: written; look at it{then}", as_json)


def assume_config(events: EventOptions, silent: bool, *, like: Any = None) -> Any:
    """Return the configuration of options: the given one, or what the files suggest, of which three lines tell.

    Where there is nothing to learn from in the files, their counts are printed, and the command ends. With ``like``,
    features and cuts are those of another configuration.
    """
    if events.lists_observations:
        if events.config is None:
            _say_listed(events, silent)
        return events.config
    source = events.position  # which may be given wrongly
    if events.config is not None:
        return events.config
    with exit_at_interrupts():
        from excess.analysis import check_input, config_of, count_on_off

    check_input(events.files, off=events.off or None, alpha=events.alpha, join=events.join or None)
    proposal = _propose(events, source)
    if like is not None and proposal.obstacle is None:
        return proposal.with_features_of(like)
    if proposal.config is None and proposal.obstacle is None and not events.off:
        counts = count_on_off(events.files, proposal.regions)
        say(f"{proposal.no_features()}.", silent)
        if silent:
            numbers = {name: getattr(counts, name) for name in ("n_on", "n_off", "alpha", "significance")}
            print_json({"observation": numbers, "models": {}, "no_models": proposal.no_features()})
        else:
            typer.echo(f"{counts}")
        raise typer.Exit
    config = config_of(proposal)
    _say_assumed(proposal, events, silent)
    return config


def _say_listed(events: EventOptions, silent: bool) -> None:
    """Say what is assumed about all observations of a list."""
    with exit_at_interrupts():
        from excess.analysis import propose_listed

    features, exclude = events.features or [], events.exclude or []
    _say_assumed(propose_listed(events.files[0], features=features, exclude=exclude), events, silent)


def _say_assumed(proposal: Proposal, events: EventOptions, silent: bool) -> None:
    """Say what is assumed, unless that is as usual."""
    if not proposal.usual:
        shown = proposal if events.groups is None else replace(proposal, grouping=events.groups)
        say(f"No -c, so assumed: {shown.describe()}", silent)


def assumed_rows(assumed: dict[str, Any] | None) -> dict[str, str]:
    """Return what is assumed about a file as names and values to be printed; nothing where that is as usual."""
    if assumed is None:
        return {}
    features = [] if assumed["config"] is None else assumed["config"]["features"]
    rows = {"telescope": assumed["telescope"], "taken as": assumed["preset"]}
    rows |= {"features": ", ".join(features) or "none", "other scores": ", ".join(assumed["references"])}
    rows |= {"energy": assumed["energy"], "On and Off": assumed["on_off"], "groups": assumed["groups"]}
    rows["no detection"] = assumed["obstacle"]
    return {name: value for name, value in rows.items() if value}


def _propose(events: InputOptions, source: str | tuple[float, float] | None, *, groups: str | None = None) -> Proposal:
    """Return what the files suggest."""
    with exit_at_interrupts():
        from excess.analysis import propose_config

    return propose_config(
        events.files,
        join=events.join or None,
        off=events.off or None,
        source=source,
        features=events.features or [],
        exclude=events.exclude or [],
        groups=groups,
        regions=events.regions,
    )
