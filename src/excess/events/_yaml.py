"""YAML as data of bounded size: no tags, and no aliases that multiply what the text holds."""

from __future__ import annotations

from typing import Any

import yaml

from excess._core.errors import EventFileError

__all__ = ["LARGEST_TEXT", "parse_yaml"]

LARGEST_TEXT = 1 << 20
"""Bytes of a YAML file."""
MOST_VALUES = 50_000
"""Values of a YAML file, those that aliases stand for included."""
LONGEST_VALUE = 10_000
"""Characters of one value."""


_REASONS: dict[type[Exception], str] = {RecursionError: "nested too deeply", ValueError: "an impossible number or date"}


class _TooManyValuesError(Exception):
    """YAML with more values than are read."""


class _Loader(yaml.SafeLoader):
    """A safe loader that stops at too many values, before it has read all of them."""

    n_values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.n_values += 1
        if self.n_values > MOST_VALUES:
            raise _TooManyValuesError
        return super().compose_node(parent, index)


def parse_yaml(text: str, source: str) -> Any:
    """Return what YAML holds; EventFileError that begins with ``source`` if it is none, or too much.

    Examples
    --------
    >>> from excess.events._yaml import parse_yaml
    >>> parse_yaml("groups: run_id", "crab.yaml")
    {'groups': 'run_id'}
    """
    if len(text) > LARGEST_TEXT:
        raise EventFileError(f"{source}: has {len(text):,} characters of YAML; {LARGEST_TEXT:,} are the most")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node, source)
        return loader.construct_document(node)
    except EventFileError:
        raise
    except _TooManyValuesError as error:
        raise EventFileError(
            f"{source}: has more than {MOST_VALUES:,} values, with those that aliases stand for; these are the most"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or _REASONS.get(type(error)) or type(error).__name__
        raise EventFileError(f"{source}: is not valid YAML{where} ({reason})") from error


def _check_size(root: yaml.Node, source: str) -> None:
    """Count the values before they are made: a node that has several aliases counts for each of them."""
    sizes: dict[int, int] = {}
    entered: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting[-1]
        if id(node) in sizes:
            waiting.pop()
            continue
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > LONGEST_VALUE:
                raise EventFileError(
                    f"{source}: the value {node.value[:20] + '...'!r} has {len(node.value):,} characters; "
                    f"{LONGEST_VALUE:,} are the most"
                )
            sizes[id(node)] = 1
            continue
        children = _children(node)
        if id(node) not in entered:
            entered.add(id(node))
            waiting += [child for child in children if id(child) not in sizes]
            continue
        # all below it has been counted, unless it is inside of itself
        if any(id(child) not in sizes for child in children):
            raise EventFileError(f"{source}: an alias stands for something that it is a part of")
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
        if sizes[id(node)] > MOST_VALUES:
            raise _TooManyValuesError


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)
