"""What an ONNX model says about itself: inputs, outputs and classes; and whether it points to other files.

An ONNX file is a protobuf message. The few fields of it that matter here are read by their numbers in ``onnx.proto``,
so that a model can be checked, kept in a file and taken from it without any ONNX library, and before one sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

from excess.estimators.model_state import require

__all__ = ["OnnxGraph", "OnnxValue"]

MAX_SIZE = 2**31 - 1
"""Bytes; protobuf has no larger messages."""

PARTS: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
"""Messages that hold tensors, however deep: the kind of each field that leads to one, by its number."""

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MAX_DEPTH = 100  # that of protobuf
_MAX_FIELDS = 1_000_000
"""Fields that are looked at, all passes together; runs of numbers and short texts, as forests have them, are none."""
_MAX_LABELS = 1000
_MAX_VARINT = 10
_KINDS = {1: "float32", 7: "int64", 8: "text", 9: "bool", 10: "float16", 11: "float64"}
_CLASS_LABELS = {b"classlabels_ints", b"classlabels_int64s", b"classlabels_strings"}
_MISSING_ATTRIBUTE = b"nodes_missing_value_tracks_true"
_MISSING_OPERATORS = {"Imputer", "IsNaN"}
_NAMES = "feature_names"
_DAMAGED = "is damaged, or no ONNX model"

# The nodes of a forest are millions of numbers and short texts, each a field of its own: runs of them are skipped at
# once, by a possessive pattern (++), which keeps nothing to go back to.
# A tag is the number of the field times 8, plus its wire type; 0x3d: floats, 0x40: ints, 0x4a: strings.
_SHORT_TEXTS = b"|".join(b"%b.{%d}" % (re.escape(bytes([length])), length) for length in range(32))
_RUN = re.compile(rb"(?:\x3d.{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f]|\x4a(?:" + _SHORT_TEXTS + rb"))++", re.DOTALL)
_ZEROS = re.compile(rb"(?:\x40\x00)++")

Span = tuple[int, int]

_fields_left: ContextVar[list[int] | None] = ContextVar("fields left", default=None)


class OnnxValue(NamedTuple):
    """An input or an output.

    Attributes
    ----------
    name : str
        Its name.
    kind : str
        Type of its elements, ``"maps"`` for a dictionary of probabilities per event, or ``"other"``.
    shape : tuple of int or None, or None
        Its shape, as far as it is fixed.
    """

    name: str
    kind: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        """Say what it is, for messages."""
        shape = "" if self.shape is None else " of shape " + str([n or "any" for n in self.shape]).replace("'", "")
        return f"{self.name!r} ({self.kind}{shape})"


class OnnxGraph(NamedTuple):
    """What goes into a model and what comes out of it.

    Attributes
    ----------
    inputs, outputs : tuple of OnnxValue
        In their order.
    class_labels : tuple of int or of str, or None
        Those of its last classifier; None if it does not say.
    takes_missing : bool
        Whether it has a rule for missing values. What has none treats them in some way that nobody chose.
    feature_names : tuple of str or None
        What its metadata ``feature_names`` lists, as JSON; None where there is no such list of texts.
    """

    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    class_labels: tuple[int, ...] | tuple[str, ...] | None
    takes_missing: bool
    feature_names: tuple[str, ...] | None

    @classmethod
    def read(cls, content: bytes) -> OnnxGraph:
        """Read the bytes of a model; ValueError goes on from the name of the file."""
        require(len(content) > 0, "is empty; give an ONNX model")
        require(len(content) <= MAX_SIZE, f"has {len(content)} bytes; an ONNX model has {MAX_SIZE} at most")
        require(content[4:8] != b"ORTM", "is in the format of onnxruntime, not in that of ONNX; give the .onnx file")
        outside = _fields_left.set([_MAX_FIELDS])
        try:
            return cls._read(content)
        finally:
            _fields_left.reset(outside)

    @classmethod
    def _read(cls, content: bytes) -> OnnxGraph:
        whole = (0, len(content))
        _check_tensors(content, whole, "ModelProto", 0)
        parts = list(_fields(content, whole))
        graphs = [value for number, value in parts if number == 7 and isinstance(value, tuple)]
        require(len(graphs) == 1 and any(number == 8 for number, _ in parts), _DAMAGED)
        inputs, outputs, stored = [], [], set()
        labels: tuple[int, ...] | tuple[str, ...] | None = None
        takes_missing = False
        for number, span in _fields(content, graphs[0]):
            if not isinstance(span, tuple):
                continue
            if number == 1:
                labels = _read_labels(content, span) or labels
                takes_missing |= _takes_missing(content, span)
            elif number == 5:
                stored.add(_text(content, span, 8))
            elif number == 11:
                inputs.append(_read_value(content, span))
            elif number == 12:
                outputs.append(_read_value(content, span))
        metadata = [value for number, value in parts if number == 14 and isinstance(value, tuple)]
        names = next((_text(content, span, 2) for span in metadata if _text(content, span, 1) == _NAMES), "")
        # files of early versions list the weights among the inputs
        given = tuple(value for value in inputs if value.name not in stored)
        return cls(given, tuple(outputs), labels, takes_missing, _parse_names(names))


def _check_tensors(content: bytes, span: Span, kind: str, depth: int) -> None:
    """Refuse tensors whose values are in other files, in all that a message holds."""
    require(depth <= _MAX_DEPTH, "is nested too deep for an ONNX model")
    parts = PARTS[kind]
    for number, value in _fields(content, span, skip=_RUN if kind == "AttributeProto" else None):
        if kind == "TensorProto":
            # 13: where the values are; 14: whether they are elsewhere
            require(
                number != 13 and not (number == 14 and value != 0),
                "keeps values in other files, which are never opened; save it as a single file, with "
                "onnx.save_model(model, path, save_as_external_data=False)",
            )
        elif number in parts and isinstance(value, tuple):
            _check_tensors(content, value, parts[number], depth + 1)


def _fields(content: bytes, span: Span, *, skip: re.Pattern[bytes] | None = None) -> Iterator[tuple[int, int | Span]]:
    """Yield the fields of a message: their number, and their value if it is a whole number, else where it lies.

    Whole fields that ``skip`` matches are left out.
    """
    position, end = span
    left = _fields_left.get() or [_MAX_FIELDS]
    while position < end:
        left[0] -= 1
        require(left[0] >= 0, f"has too many parts to be read; {_MAX_FIELDS:,} are the most")
        if skip is not None and (run := skip.match(content, position, end)):
            position = run.end()
            continue
        tag, position = _read_varint(content, position, end)
        number, wire_type = tag >> 3, tag & 7
        # protobuf cuts a tag to 32 bits, so that a longer one could be another field there
        require(tag < 2**32 and number > 0, _DAMAGED)
        if wire_type == _VARINT:
            value, position = _read_varint(content, position, end)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _read_varint(content, position, end)
        else:
            require(wire_type in (_FOUR_BYTES, _EIGHT_BYTES), _DAMAGED)
            length = 4 if wire_type == _FOUR_BYTES else 8
        require(length <= end - position, _DAMAGED)
        yield number, (position, position + length)
        position += length


def _read_varint(content: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a whole number, 7 bits to the byte and the lowest first, and where it ends."""
    value = 0
    for place in range(_MAX_VARINT):
        require(position < end, _DAMAGED)
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position
    raise ValueError(_DAMAGED)


def _find(content: bytes, span: Span, *path: int) -> int | Span | None:
    """Return the last field with a number, inside the fields that lead to it; None if there is none."""
    found: int | Span | None = span
    for wanted in path:
        if not isinstance(found, tuple):
            return None
        last: int | Span | None = None
        for number, value in _fields(content, found):
            if number == wanted:
                last = value
        found = last
    return found


def _text(content: bytes, span: Span, number: int) -> str:
    found = _find(content, span, number)
    return content[slice(*found)].decode("utf-8", "replace") if isinstance(found, tuple) else ""


def _read_value(content: bytes, span: Span) -> OnnxValue:
    """Return an input or output from its ValueInfoProto."""
    name, kind, shape = _text(content, span, 1), "other", None
    tensor = _find(content, span, 2, 1)
    if isinstance(tensor, tuple):
        kind = _KINDS.get(_as_int(_find(content, tensor, 1)), "other")
        dimensions = _find(content, tensor, 2)
        if isinstance(dimensions, tuple):
            shape = tuple(
                max(_as_int(_find(content, value, 1)), 0) or None
                for number, value in _fields(content, dimensions)
                if number == 1 and isinstance(value, tuple)
            )
    elif _find(content, span, 2, 4, 1, 5) is not None:
        kind = "maps"
    return OnnxValue(name, kind, shape)


def _read_labels(content: bytes, node: Span) -> tuple[int, ...] | tuple[str, ...] | None:
    """Return the classes of a node that is a classifier, or that names the probabilities of one."""
    for name, span in _attributes(content, node):
        if name not in _CLASS_LABELS:
            continue
        integers: list[int] = []
        texts: list[str] = []
        for number, value in _fields(content, span):
            if number == 8 and isinstance(value, tuple):  # packed
                position = value[0]
                while position < value[1] and len(integers) < _MAX_LABELS:
                    one, position = _read_varint(content, position, value[1])
                    integers.append(_as_int(one))
            elif number == 8:
                integers.append(_as_int(value))
            elif number == 9 and isinstance(value, tuple):
                texts.append(content[slice(*value)].decode("utf-8", "replace"))
        if integers or texts:
            return tuple(integers) if integers else tuple(texts)
    return None


def _takes_missing(content: bytes, node: Span) -> bool:
    """Say whether a node has a rule for missing values: trees in which they go to the left somewhere, or an imputer."""
    if _text(content, node, 4) in _MISSING_OPERATORS:
        return True
    return any(
        number == 8 and (any(content[slice(*value)]) if isinstance(value, tuple) else value != 0)
        for name, span in _attributes(content, node)
        if name == _MISSING_ATTRIBUTE
        for number, value in _fields(content, span, skip=_ZEROS)
    )


def _attributes(content: bytes, node: Span) -> Iterator[tuple[bytes, Span]]:
    """Yield the attributes of a node with their names."""
    for number, span in _fields(content, node):
        if number == 5 and isinstance(span, tuple):
            name = next((value for number, value in _fields(content, span, skip=_RUN) if number == 1), None)
            if isinstance(name, tuple):
                yield content[slice(*name)], span


def _parse_names(text: str) -> tuple[str, ...] | None:
    """Return a list of texts in JSON; None for anything else, which others may keep under that name."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if known else None


def _as_int(value: int | Span | None) -> int:
    """Return a number with its sign; 0 if there is none."""
    if not isinstance(value, int):
        return 0
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
