"""Classes of commands: how their arguments are parsed, and wrong ones shown with the usage of the command."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand

from excess._core.errors import ArgumentError, MismatchError
from excess.cli.failures import as_usage_error

__all__ = ["Command", "FilesCommand"]


class Command(TyperCommand):
    """A command that shows an argument which the analysis refuses as a wrong option, with its usage."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MismatchError:
            raise
        except ArgumentError as error:
            usage = as_usage_error(error)
            usage.ctx = ctx
            raise usage from error


class FilesCommand(Command):
    """A command whose options --off and --join take all files up to the next option.

    A shell expands ``--off off_*.hdf5`` to ``--off off_1.hdf5 off_2.hdf5``. The parser gives one value to each option,
    so that all Off files but the first would be On files.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with an option for each file."""
        several = self._several()
        if not ctx.resilient_parsing:  # which is for completion in a shell, while the line is not finished
            _check_files(args, several)
        try:
            return super().parse_args(ctx, _repeat_options(args, several))
        except typer.BadParameter as error:
            name = next((word for word in args if word in several), None)
            if name is None or error.param is None or error.param.name != "files":
                raise
            raise typer.BadParameter(
                f"are missing: {name} takes all files up to the next option; put FILES first, or behind '--'",
                param_hint="FILES",
            ) from error

    def _several(self) -> tuple[str, ...]:
        return tuple(name for parameter in self.params if parameter.name in ("off", "join") for name in parameter.opts)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _check_files(words: list[str], several: tuple[str, ...]) -> None:
    """Refuse an option without a file; the parser would take the next option for one."""
    for word, following in pairwise([*words, "--"]):
        if word == "--":
            return
        if word in several and _is_option(following):
            raise typer.BadParameter("needs at least one file", param_hint=word)


def _repeat_options(words: list[str], several: tuple[str, ...]) -> list[str]:
    """Return the words of a command line with the option in front of each of its values: ``--off a --off b``."""
    found: list[str] = []
    option = None
    for number, word in enumerate(words):
        if word == "--":
            return found + words[number:]
        if _is_option(word):
            option = word if word in several else None
            if option is None or number == len(words) - 1:
                found.append(word)
        else:
            found += [word] if option is None else [option, word]
    return found
