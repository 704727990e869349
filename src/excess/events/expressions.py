"""Expressions over the columns of a table: parsed to a tree, checked node by node, computed with NumPy.

The syntax is that of pandas and numexpr. No part of an expression is run as Python code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import nearest

__all__ = ["CONSTANTS", "FUNCTIONS", "evaluate", "names_in"]

Values = NDArray[Any]

LONGEST = 2000
DEEPEST = 100
LARGEST_EXPONENT = 64.0

CONSTANTS = {"pi": np.pi}

FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "sqrt": (1, np.sqrt),
    "log": (1, np.log),
    "log10": (1, np.log10),
    "log1p": (1, np.log1p),
    "exp": (1, np.exp),
    "abs": (1, np.abs),
    "sin": (1, np.sin),
    "cos": (1, np.cos),
    "tan": (1, np.tan),
    "arctan2": (2, np.arctan2),
    "minimum": (2, np.minimum),
    "maximum": (2, np.maximum),
    "where": (3, np.where),
}
"""Functions of expressions: the number of arguments, and the implementation."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


class Parsed(NamedTuple):
    """An expression with all its nodes checked."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]


def evaluate(expression: str, table: pd.DataFrame | Mapping[str, Any]) -> NDArray[Any]:
    """Compute an expression for each row of a table.

    It may hold names of columns, numbers, ``pi``, parentheses, ``+ - * / % **``, comparisons, also chained,
    ``& | ~`` or ``and or not`` between conditions, and the functions sqrt, log, log10, log1p, exp, abs, sin,
    cos, tan, arctan2, minimum, maximum and where. As in pandas, ``&`` and ``|`` bind less tightly than
    comparisons. Arithmetic is done in float64; a division by zero or the logarithm of a negative number gives
    an infinity or NaN.

    Parameters
    ----------
    expression : str
        For example ``"width * length * pi"`` or ``"leakage1 < 0.6 & num_islands < 8"``.
    table : DataFrame or mapping of str to array-like of shape (n_events,)
        The columns.

    Returns
    -------
    ndarray of shape (n_events,)
        Booleans for a condition, numbers otherwise.

    Raises
    ------
    ValueError
        If the expression holds anything else, or a name that is no column.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events import evaluate
    >>> table = pd.DataFrame({"width": [1.0, 2.0], "length": [3.0, 4.0]})
    >>> evaluate("sqrt(width**2 + length**2) > 4", table)
    array([False,  True])
    >>> evaluate("widht / length", table)
    Traceback (most recent call last):
        ...
    ValueError: 'widht / length': unknown name 'widht'; did you mean 'width'?
    """
    n_events = len(table) if isinstance(table, pd.DataFrame) else len(next(iter(table.values()), ()))
    return compute(expression, table, n_events)


def compute(expression: str, table: pd.DataFrame | Mapping[str, Any], n_events: int) -> NDArray[Any]:
    """Compute an expression for ``n_events`` rows; the table needs no columns that are not in the expression."""
    parsed = parse(expression)
    columns = _columns_of(parsed, table)
    with np.errstate(all="ignore"):
        values = np.asarray(_Evaluation(parsed, columns).value(parsed.tree))
    return np.array(np.broadcast_to(values, (n_events,)))


def names_in(expression: str) -> tuple[str, ...]:
    """Return the names of the columns in an expression, in order of appearance."""
    return tuple(name for name in parse(expression).names if name not in CONSTANTS)


def parse(expression: str) -> Parsed:
    """Parse an expression and check each of its nodes."""
    if not isinstance(expression, str):  # before the cache, which takes hashable arguments only
        raise TypeError(f"an expression must be text, got {expression!r}")
    return _parse(expression)


@lru_cache(maxsize=256)
def _parse(expression: str) -> Parsed:
    text = " ".join(expression.split())
    if not text:
        raise ValueError("an expression is empty")
    if len(text) > LONGEST:
        raise ValueError(f"{text[:40] + '...'!r}: an expression may have {LONGEST} characters, this has {len(text)}")
    if "'" in text or '"' in text:
        raise ValueError(f"{text!r}: text in quotes is not allowed in an expression")
    # pandas gives & and | the precedence of "and" and "or", so that conditions need no parentheses.
    source = text.replace("&", " and ").replace("|", " or ")
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r}: not an expression ({error.msg})") from None
    except (RecursionError, MemoryError, ValueError):
        raise ValueError(f"{text!r}: not an expression, or nested too deeply") from None
    names: dict[str, None] = {}
    _check(tree, text, names, depth=0)
    return Parsed(text, tree, tuple(names))


def _check(node: ast.expr, text: str, names: dict[str, None], depth: int) -> None:
    """Raise ValueError for any node that is not on the list; collect the names of columns."""
    if depth > DEEPEST:
        raise ValueError(f"{text[:40] + '...'!r}: an expression may be nested {DEEPEST} levels deep")
    children: list[ast.expr]
    match node:
        case ast.Name():
            names.setdefault(node.id)
            return
        case ast.Constant():
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                _refuse(node, text, "only numbers are allowed as constants")
            if isinstance(node.value, int) and abs(node.value) >= 2**63:
                _refuse(node, text, "the number is too large")
            return
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            children = [node.left, node.right]
        case ast.UnaryOp():
            children = [node.operand]
        case ast.BoolOp(values=operands):
            children = operands
        case ast.Compare() if all(type(operator) in _COMPARISONS for operator in node.ops):
            children = [node.left, *node.comparators]
        case ast.Call():
            children = _checked_arguments(node, text)
        case _:
            _refuse(node, text, "this is not allowed")
    for child in children:
        _check(child, text, names, depth + 1)


def _checked_arguments(node: ast.Call, text: str) -> list[ast.expr]:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        _refuse(node, text, f"only these functions may be called: {', '.join(FUNCTIONS)}")
    expected, _ = FUNCTIONS[node.func.id]
    if node.keywords or len(node.args) != expected:
        _refuse(node, text, f"{node.func.id} takes {expected} argument{'s' if expected > 1 else ''}")
    return node.args


def _refuse(node: ast.expr, text: str, why: str) -> NoReturn:
    """Say what is wrong and where; the whole expression stands first."""
    try:
        piece = ast.unparse(node)
    except RecursionError:
        piece = type(node).__name__
    shown = piece if len(piece) <= 60 else piece[:57] + "..."
    raise ValueError(f"{text!r}: {why}, at {shown!r}")


class _Evaluation:
    """Computes a parsed expression. Arithmetic is done in float64, so that no integer overflows."""

    def __init__(self, parsed: Parsed, columns: dict[str, Values]) -> None:
        self._text = parsed.text
        self._columns = columns

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name():
                return self._columns[node.id]
            case ast.Constant():
                return np.asarray(node.value)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._arithmetic(node, operator, self.number(left), self.number(right))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return np.logical_not(self.condition(operand))
            case ast.UnaryOp(op=operator, operand=operand):
                number = self.number(operand)
                return np.negative(number) if isinstance(operator, ast.USub) else number
            case ast.BoolOp(op=operator, values=values):
                combine = np.logical_and if isinstance(operator, ast.And) else np.logical_or
                return combine.reduce(np.broadcast_arrays(*map(self.condition, values)))
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                return self._compare(left, operators, comparators)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                _, function = FUNCTIONS[name]
                if name == "where":
                    return function(self.condition(arguments[0]), *map(self.number, arguments[1:]))
                return function(*map(self.number, arguments))
        raise AssertionError(f"{type(node).__name__} passed the check of {self._text!r}")

    def number(self, node: ast.expr) -> Values:
        return np.asarray(self.value(node), dtype=np.float64)

    def condition(self, node: ast.expr) -> Values:
        values = np.asarray(self.value(node))
        if values.dtype != np.bool_:
            _refuse(node, self._text, "and, or, not, &, |, ~ and where need a condition, such as a comparison")
        return values

    def _arithmetic(self, node: ast.expr, operator: ast.operator, left: Values, right: Values) -> Any:
        if isinstance(operator, ast.Pow) and right.ndim == 0 and not abs(right) <= LARGEST_EXPONENT:
            _refuse(node, self._text, f"an exponent may be at most {LARGEST_EXPONENT:g}")
        return _ARITHMETIC[type(operator)](left, right)

    def _compare(self, left: ast.expr, operators: list[ast.cmpop], comparators: list[ast.expr]) -> Any:
        sides = [np.asarray(self.value(side)) for side in (left, *comparators)]
        result: Any = np.True_
        for operator, lower, upper in zip(operators, sides, sides[1:], strict=False):
            result = np.logical_and(result, _COMPARISONS[type(operator)](lower, upper))
        return result


def _columns_of(parsed: Parsed, table: pd.DataFrame | Mapping[str, Any]) -> dict[str, Values]:
    """Return the columns that an expression needs as arrays of numbers or booleans; a column hides a constant."""
    columns = {}
    for name in parsed.names:
        if name in table:
            columns[name] = as_numbers(name, table[name])
        elif name in CONSTANTS:
            columns[name] = np.asarray(CONSTANTS[name])
        else:
            known = [str(column) for column in table.keys()]  # noqa: SIM118 (a table iterates over rows or columns)
            raise ValueError(f"{parsed.text!r}: unknown name {name!r}; {nearest(name, known)}")
    return columns


def as_numbers(name: str, column: Any) -> Values:
    """Return a column as an array of numbers or booleans; missing values become NaN."""
    if isinstance(column, pd.Series) and not isinstance(column.dtype, np.dtype):
        if not pd.api.types.is_numeric_dtype(column.dtype):
            raise ValueError(f"column {name!r} holds {column.dtype}, not numbers")
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = np.asarray(column)
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise ValueError(f"column {name!r} holds {values.dtype} of {values.ndim} dimensions, not one number per event")
    return values
