"""A builder of ONNX graphs: nodes are added one after the other, each returns the name of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.errors import require

__all__ = ["EventMatrix", "OnnxBuilder"]

_OPSET, _ML_OPSET, _IR_VERSION = 17, 3, 8
"""Versions of 2022, which present software reads; trees in float64 need the third of ``ai.onnx.ml``."""
_ML = "ai.onnx.ml"


class EventMatrix(NamedTuple):
    """A matrix of events in a graph: its name, the type of its elements, and its number of columns."""

    name: str
    dtype: Any
    n_columns: int


class OnnxBuilder:
    """A graph that grows node by node. Vectors are float64, with a value for each event."""

    def __init__(self) -> None:
        self._onnx = require("onnx", "exporting a model to ONNX", extra="onnx")
        self._nodes: list[Any] = []
        self._constants: dict[Any, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def _kind(self, dtype: Any) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def input(self, name: str, dtype: Any, n_columns: int, description: str) -> EventMatrix:
        """Declare a matrix of events."""
        shape = ["n_events", n_columns]
        make = self._onnx.helper.make_tensor_value_info
        self._inputs.append(make(name, self._kind(dtype), shape, doc_string=description))
        return EventMatrix(name, dtype, n_columns)

    def output(self, name: str, value: str, dtype: Any, description: str) -> None:
        """Declare an output with a value for each event."""
        helper, kind = self._onnx.helper, self._kind(dtype)
        self._nodes.append(helper.make_node("Cast", [value], [name], name=name, to=kind))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["n_events"], doc_string=description))

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(
            self._onnx.helper.make_node(operator, list(inputs), [name], name=name, domain=domain, **attributes)
        )
        return name

    def constant(self, values: NDArray[Any] | np.generic) -> str:
        """Return the name of a constant; equal ones are stored once."""
        array = np.asarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._onnx.numpy_helper.from_array(array, name)
        return str(self._constants[key].name)

    def as_float64(self, matrix: EventMatrix) -> EventMatrix:
        """Return a matrix with elements of float64."""
        if matrix.dtype == np.float64:
            return matrix
        return matrix._replace(name=self.add("Cast", matrix.name, to=self._kind(np.float64)), dtype=np.float64)

    def select(self, matrix: EventMatrix, numbers: Sequence[int]) -> EventMatrix:
        """Return some columns of a matrix."""
        if list(numbers) == list(range(matrix.n_columns)):
            return matrix
        name = self.add("Gather", matrix.name, self.constant(np.array(numbers, dtype=np.int64)), axis=1)
        return matrix._replace(name=name, n_columns=len(numbers))

    def as_vector(self, matrix: EventMatrix) -> str:
        """Return a matrix of one column as a vector."""
        return self.add("Squeeze", self.as_float64(matrix).name, self.constant(np.array([1])))

    def append(self, matrix: EventMatrix, vectors: Sequence[str]) -> EventMatrix:
        """Return a matrix of float64 with vectors as further columns."""
        if not vectors:
            return matrix
        columns = [self.add("Unsqueeze", vector, self.constant(np.array([1]))) for vector in vectors]
        name = self.add("Concat", self.as_float64(matrix).name, *columns, axis=1)
        return EventMatrix(name, np.float64, matrix.n_columns + len(vectors))

    def scale(self, vector: str, factor: float, offset: float) -> str:
        """Return a vector times a factor, plus an offset."""
        scaled = self.add("Mul", vector, self.constant(np.float64(factor)))
        return self.add("Add", scaled, self.constant(np.float64(offset)))

    def total(self, vectors: Sequence[str]) -> str:
        """Return the sum of vectors."""
        return vectors[0] if len(vectors) == 1 else self.add("Sum", *vectors)

    def add_trees(self, nodes: Mapping[str, NDArray[Any]], weights: FloatArray, events: EventMatrix) -> EventMatrix:
        """Add trees, and return the sums over them of the weights of an event's leaves, a column each."""
        leaf = nodes["leaf"]
        own = np.flatnonzero(leaf)
        n_targets = weights.shape[1]
        numbers = {"nodes_values": nodes["value"], "target_weights": weights[own].reshape(-1)}
        # floats as attributes are float32; for float64 there are tensors in their place
        attributes = {name: values.astype(np.float32).tolist() for name, values in numbers.items()}
        if events.dtype == np.float64:
            to_tensor = self._onnx.numpy_helper.from_array
            attributes = {f"{name}_as_tensor": to_tensor(values, name) for name, values in numbers.items()}
        name = self.add(
            "TreeEnsembleRegressor",
            events.name,
            domain=_ML,
            n_targets=n_targets,
            aggregate_function="SUM",
            post_transform="NONE",
            nodes_treeids=nodes["tree"].tolist(),
            nodes_nodeids=nodes["node"].tolist(),
            nodes_featureids=nodes["feature"].tolist(),
            nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
            nodes_truenodeids=nodes["left"].tolist(),
            nodes_falsenodeids=nodes["right"].tolist(),
            nodes_missing_value_tracks_true=nodes["missing_left"].astype(int).tolist(),
            target_treeids=np.repeat(nodes["tree"][own], n_targets).tolist(),
            target_nodeids=np.repeat(nodes["node"][own], n_targets).tolist(),
            target_ids=np.tile(np.arange(n_targets), len(own)).tolist(),
            **attributes,
        )
        return EventMatrix(name, np.float32, n_targets)

    def interpolate(self, value: str, x: FloatArray, y: FloatArray) -> str:
        """Return `numpy.interp` of float64 values, for ascending ``x``."""
        if len(x) == 1:
            return self.scale(value, 0.0, float(y[0]))
        above = self._segment(value, x)
        below = self.add("Sub", above, self.constant(np.int64(1)))
        inside = self.add("Max", self.add("Min", value, self.constant(x[-1])), self.constant(x[0]))
        distance = self.add("Sub", inside, self.add("Gather", self.constant(x), below))
        slope = self.add("Gather", self.constant(np.diff(y) / np.diff(x)), below)
        start = self.add("Gather", self.constant(y), below)
        return self.add("Add", self.add("Mul", slope, distance), start)

    def _segment(self, value: str, x: FloatArray) -> str:
        """Return the number of the element of x above each value, at least 1 and at most the last one.

        It is a binary search for all values at once, a few nodes for each step; a comparison of all values with all of
        x would need memory for both.
        """
        width = 1 << len(x).bit_length()
        padded = self.constant(np.append(x, np.full(width - len(x), np.inf)))
        nothing = self.constant(np.int64(0))
        position: str | None = None
        step = width // 2
        while step > 0:
            # how many elements are below: the next so many are, if the last of them is
            last = self.constant(np.int64(step - 1))
            border = self.add("Gather", padded, last if position is None else self.add("Add", position, last))
            is_below = self.add("Less", border, value)
            moved = self.add("Where", is_below, self.constant(np.int64(step)), nothing)
            position = moved if position is None else self.add("Add", position, moved)
            step //= 2
        at_most = self.add("Min", str(position), self.constant(np.int64(len(x) - 1)))
        return self.add("Max", at_most, self.constant(np.int64(1)))

    def build(self, metadata: Mapping[str, str], producer: str, version: str) -> bytes:
        """Return the bytes of the model, the same for the same nodes."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, producer, self._inputs, self._outputs, list(self._constants.values()))
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_ML, _ML_OPSET)],
            ir_version=_IR_VERSION,
            producer_name=producer,
            producer_version=version,
        )
        helper.set_model_props(model, dict(metadata))
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))
