"""The references of the command line and of the configuration, as Markdown generated from the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

__all__ = ["write_keys", "write_reference"]

ARGUMENTS, OTHER = "Arguments", "Options"


def write_reference(path: Path) -> None:
    """Write a section for each command: what it does, its arguments and its options, in the panels of its help."""
    import typer

    from excess.cli._app import app

    command = typer.main.get_command(app)
    parts = [_section(f"excess {name}", own) for name, own in command.commands.items()]  # type: ignore[attr-defined]
    _write(path, "\n\n".join(parts) + "\n")


def write_keys(path: Path) -> None:
    """Write a table of the keys of a configuration and of each part of it, with defaults and descriptions."""
    from excess.config import _model

    parts = {
        "Analysis": _model.AnalysisConfig,
        "regions": _model.RegionConfig,
        "regions.exclusion": _model.Exclusion,
        "regions.pairs": _model.Pair,
        "regions.intervals": _model.IntervalConfig,
        "bins": _model.BinConfig,
        "List of observations": _model.ObservationEntry,
    }
    text = ""
    for title, model in parts.items():
        text += f"## {title}\n\n| key | default | meaning |\n|---|---|---|\n"
        for name, field in model.model_fields.items():
            default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
            text += f"| `{name}` | {default} | {_prose(' '.join((field.description or '').split()))} |\n"
        text += "\n"
    _write(path, text)


def _default(value: Any) -> str:
    """Return a default in Markdown; long ones are those of the open Crab analysis."""
    if value is None or value == () or value == {}:
        return ""
    shown = repr(list(value) if isinstance(value, tuple) else value)
    return f"`{shown}`" if len(shown) < 40 else "open Crab analysis" if isinstance(value, tuple | dict) else "see below"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged file is not built again
        path.write_text(text, encoding="utf-8")


def _section(name: str, command: Any) -> str:
    lines = [f"## {name}", "", _prose(inspect.cleandoc(command.help or ""))]
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        is_argument = parameter.param_type_name == "argument"
        panel = ARGUMENTS if is_argument else getattr(parameter, "rich_help_panel", None) or OTHER
        panels.setdefault(panel, []).append(_entry(parameter, is_argument))
    for panel in sorted(panels, key=lambda one: (one != ARGUMENTS, one == OTHER)):
        lines += ["", f"**{panel}**", "", *panels[panel]]
    return "\n".join(lines)


def _entry(parameter: Any, is_argument: bool) -> str:
    """Return an argument or an option as an item of a definition list."""
    metavar = parameter.metavar or ""
    if is_argument:
        names = metavar or parameter.name.upper()
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if not getattr(parameter, "is_flag", False):
            names += f" {metavar or parameter.name.upper()}"
    more = []
    if parameter.required:
        more.append("Required.")
    default = parameter.default
    if not parameter.required and default not in (None, False, True, "", [], ()) and not callable(default):
        more.append(f"Default: `{default}`.")
    text = " ".join([(parameter.help or "").strip(), *more]).strip() or "."
    return f"`{names}`\n: {_prose(text)}\n"


def _prose(text: str) -> str:
    """Return the text of a help as Markdown: no markup of the terminal, and no characters that Markdown takes."""
    return re.sub(r"([<>*_|])", r"\\\1", re.sub(r"\[/?[a-z ]+\]", "", text))
