"""Columns of event files: expressions and features, and reasons why a column is not a feature."""

import ast
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import ArgumentError, MismatchError, missing_column, nearest
from excess.io._files import read_catalogue
from excess.io._images import NAMED_ONLY, origin_of

logger = logging.getLogger("excess.config")
Values = NDArray[Any]
LONGEST, DEEPEST, LARGEST_EXPONENT = 2000, 100, 64.0
CONSTANTS = {"pi": np.pi}


def _separation(ra: Values, dec: Values, other_ra: Values, other_dec: Values) -> Values:
    """Return the angle between two directions on the sky, all in deg."""
    turn, one, other = np.radians(ra - other_ra), np.radians(dec), np.radians(other_dec)
    haversine = np.sin((one - other) / 2) ** 2 + np.cos(one) * np.cos(other) * np.sin(turn / 2) ** 2
    return np.asarray(np.degrees(2 * np.arcsin(np.sqrt(np.clip(haversine, 0.0, 1.0)))))


_BY_ARGUMENTS = {1: "sqrt log log10 log1p exp abs sin cos tan", 2: "arctan2 minimum maximum", 3: "where"}
# functions of expressions: the number of arguments, and the implementation
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (number, getattr(np, name)) for number, names in _BY_ARGUMENTS.items() for name in names.split()},
    "separation": (4, _separation),
}
_Binary = Callable[[Any, Any], Any]
_ARITHMETIC: dict[type[ast.operator], _Binary] = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply}
_ARITHMETIC |= {ast.Div: np.true_divide, ast.Mod: np.mod, ast.Pow: np.power}
_COMPARISONS: dict[type[ast.cmpop], _Binary] = {ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater}
_COMPARISONS |= {ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal}


class Parsed(NamedTuple):
    """A validated expression."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]


def evaluate(expression: str, table: pd.DataFrame | Mapping[str, Any]) -> NDArray[Any]:
    """Compute an expression for each row of a table."""
    n_events = len(table) if isinstance(table, pd.DataFrame) else len(next(iter(table.values()), ()))
    return compute(expression, table, n_events)


def compute(expression: str, table: pd.DataFrame | Mapping[str, Any], n_events: int) -> NDArray[Any]:
    """Evaluate an expression for ``n_events`` rows; the table only requires the columns of the expression."""
    parsed = parse(expression)
    with np.errstate(all="ignore"):
        values = np.asarray(_Evaluation(parsed, _columns_of(parsed, table)).value(parsed.tree))
    return np.array(np.broadcast_to(values, (n_events,)))


def names_in(expression: str) -> tuple[str, ...]:
    """Return the names of the columns in an expression, in order of appearance."""
    return tuple(name for name in parse(expression).names if name not in CONSTANTS)


@lru_cache(maxsize=256)
def parse(expression: str) -> Parsed:
    """Parse an expression and validate each of its nodes."""
    if not isinstance(expression, str):
        raise TypeError(f"an expression must be text, got {expression!r}")
    text = " ".join(expression.split())
    if not text:
        raise ValueError("an expression is empty")
    if len(text) > LONGEST:
        raise ValueError(f"{text[:40] + '...'!r}: an expression may have {LONGEST} characters, this has {len(text)}")
    if "'" in text or '"' in text:
        raise ValueError(f"{text!r}: text in quotes is not allowed in an expression")
    # pandas gives & and | the precedence of "and" and "or", so conditions need no parentheses.
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
    """Raise ValueError for any node that is not allowed; collect the names of columns."""
    if depth > DEEPEST:
        raise ValueError(f"{text[:40] + '...'!r}: an expression may be nested {DEEPEST} levels deep")
    parts: Any = ast.iter_child_nodes(node)
    match node:
        case ast.Name():
            names.setdefault(node.id)
        case ast.Constant():
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                _reject(node, text, "only numbers are allowed as constants")
            if isinstance(node.value, int) and abs(node.value) >= 2**63:
                _reject(node, text, "the number is too large")
        case ast.Call():
            if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
                _reject(node, text, f"only these functions may be called: {', '.join(FUNCTIONS)}")
            expected, _ = FUNCTIONS[node.func.id]
            if node.keywords or len(node.args) != expected:
                _reject(node, text, f"{node.func.id} takes {expected} argument{'s' if expected > 1 else ''}")
            parts = node.args
        case ast.UnaryOp() | ast.BoolOp():
            pass
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            pass
        case ast.Compare() if all(type(operator) in _COMPARISONS for operator in node.ops):
            pass
        case _:
            _reject(node, text, "this is not allowed")
    for part in parts:
        if isinstance(part, ast.expr):  # and no operator
            _check(part, text, names, depth + 1)


def _reject(node: ast.expr, text: str, why: str) -> NoReturn:
    """Raise ValueError with the reason and its position, after the whole expression."""
    try:
        piece = ast.unparse(node)
    except RecursionError:
        piece = type(node).__name__
    shown = piece if len(piece) <= 60 else piece[:57] + "..."
    raise ValueError(f"{text!r}: {why}, at {shown!r}")


class _Evaluation:
    """Evaluation of a parsed expression, in float64 to avoid integer overflow."""

    def __init__(self, parsed: Parsed, columns: dict[str, Values]) -> None:
        self._text, self._columns = parsed.text, columns

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name():
                return self._columns[node.id]
            case ast.Constant():
                return np.asarray(node.value)
            case ast.BinOp():
                left, right = self.number(node.left), self.number(node.right)
                if isinstance(node.op, ast.Pow) and right.ndim == 0 and not abs(right) <= LARGEST_EXPONENT:
                    _reject(node, self._text, f"an exponent may be at most {LARGEST_EXPONENT:g}")
                return _ARITHMETIC[type(node.op)](left, right)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return np.logical_not(self.condition(operand))
            case ast.UnaryOp(op=operator, operand=operand):
                number = self.number(operand)
                return np.negative(number) if isinstance(operator, ast.USub) else number
            case ast.BoolOp(op=operator, values=values):
                combine = np.logical_and if isinstance(operator, ast.And) else np.logical_or
                return combine.reduce(np.broadcast_arrays(*map(self.condition, values)))
            case ast.Compare():
                sides = [np.asarray(self.value(side)) for side in (node.left, *node.comparators)]
                compared = zip(node.ops, sides, sides[1:], strict=False)
                found = [_COMPARISONS[type(operator)](lower, upper) for operator, lower, upper in compared]
                return np.logical_and.reduce(np.broadcast_arrays(*found))
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
            _reject(node, self._text, "and, or, not, &, |, ~ and where need a condition, such as a comparison")
        return values


def _columns_of(parsed: Parsed, table: pd.DataFrame | Mapping[str, Any]) -> dict[str, Values]:
    """Return the columns of an expression as arrays of numbers or booleans; a column hides a constant."""
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
            raise ValueError(f"column {name!r} contains {column.dtype}, not numbers")
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = np.asarray(column)
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise ValueError(f"column {name!r} has {values.dtype} of {values.ndim} dimensions, not one number per event")
    return values


MOST_DERIVED = 1000


def inputs_of_derived(derived: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return, for each derived feature, all names that it depends on, in a computable order."""
    if len(derived) > MOST_DERIVED:
        raise ValueError(f"there are {len(derived):,} derived features, above the maximum of {MOST_DERIVED:,}")
    direct = {name: names_in(expression) for name, expression in derived.items()}
    try:
        order = list(TopologicalSorter(direct).static_order())
    except CycleError as error:
        raise ValueError(f"derived feature {error.args[1][0]!r} depends on itself") from error
    found: dict[str, tuple[str, ...]] = {}
    for name in order:
        if name in derived:
            inputs = (one for other in direct[name] for one in (*found.get(other, ()), other))
            found[name] = tuple(dict.fromkeys(inputs))
    return found


TRUE_ENERGY, TRUE_ZENITH = (  # true energy in TeV and zenith distance in deg by column
    {row["column"]: row["expression"] for row in read_catalogue("truth.csv", "excess.config") if row["quantity"] == own}
    for own in ("energy", "zenith")
)


def energy_expression(columns: Iterable[str], given: str | None = None) -> str:
    """Return the expression of the true energy in TeV for a file with these columns."""
    found = _choose("energy", TRUE_ENERGY, columns, given)
    if found is None:
        remedy = "specify the column of true energies, or an expression such as 'mc_energy_gev / 1000', in TeV"
        problem = f"is required: the simulated events have none of {', '.join(TRUE_ENERGY)}"
        raise MismatchError("energy", f"{problem}; {remedy}")
    return found


def zenith_expression(columns: Iterable[str], given: str | None = None) -> str | None:
    """Return the expression of the zenith distance in deg for a file with these columns; None if unknown."""
    return _choose("zenith", TRUE_ZENITH, columns, given)


def _choose(argument: str, known: Mapping[str, str], columns: Iterable[str], given: str | None) -> str | None:
    present = set(columns)
    if given is None:
        return next((expression for name, expression in known.items() if name in present), None)
    if given in known and given in present:
        return known[given]
    return checked_expression(argument, present, given)


def checked_expression(argument: str, columns: Iterable[str], given: str) -> str:
    """Return an expression of columns of a file; raise ArgumentError for others."""
    present = set(columns)
    try:
        missing = [name for name in names_in(given) if name not in present]
    except ValueError as error:
        raise ArgumentError(argument, f"is neither a column nor an expression of columns: {error}") from error
    if missing:
        raise MismatchError(
            argument, f"must be a column of the simulated events: {missing_column(missing[0], present)}"
        )
    return given


def choose_features(wanted: Sequence[str], available: Collection[str], reasons: Mapping[str, str]) -> list[str]:
    """Return the columns matched by names and patterns; excluded columns only by name."""
    chosen: dict[str, None] = {}
    for word, found in _matches("features", wanted, available, available):
        allowed = [name for name in found if name == word or name not in reasons]
        if not allowed:
            problem = f"{word!r} matches only {', '.join(found[:5])}, which cannot be features"
            raise MismatchError("features", f"{problem}; 'excess init' shows why")
        if word in allowed and reasons.get(word):
            logger.warning("feature %s is used because it was requested, although %s", word, reasons[word])
        chosen |= dict.fromkeys(allowed)
    return list(chosen)


def exclude_features(unwanted: Sequence[str], features: Sequence[str], available: Collection[str]) -> list[str]:
    """Return features without those matched by names and patterns."""
    matches = _matches("exclude", unwanted, [*features, *available], available)
    out = {name for _, found in matches for name in found}
    left = [name for name in features if name not in out]
    if features and not left:
        raise MismatchError("exclude", "leaves no features")
    return left


def _matches(
    argument: str, given: Sequence[str], available: Collection[str], shown: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each word with the column of this name, or else with the columns matched by a pattern."""
    texts = [given] if isinstance(given, str) else given
    words = [word.strip() for text in texts for word in text.split(",")]
    if not all(words):
        raise ArgumentError(argument, f"must be column names separated by commas, got {','.join(texts)!r}")
    for word in words:
        found = [word] if word in available else [name for name in available if fnmatchcase(name, word)]
        if not found:
            raise MismatchError(argument, f"{word!r} is not a column of the events; {nearest(word, shown)}")
        yield word, found


_MAX_MISSING = 0.2  # fraction of missing values above which a column is not a feature
_MIN_EVENTS = 20  # minimum number of events in a sample to assess the values of a column
_MAX_COMPARED = 4_000  # events compared to find copies of columns
_COPY = 1 - 1e-6  # correlation of values and of ranks above which a column is a copy of another one
_RULES = {row["pattern"]: row["reason"] for row in read_catalogue("columns.csv", "excess.config")}
_TRUTH = re.compile(r"(true|mc|corsika|ceres)_.*", re.IGNORECASE)
_ENERGY = (  # in order of preference
    *("energy", "reco_energy", "gamma_energy_prediction"),
    r"(est|estimated|rec|reconstructed)_?energy|energy_?(est|rec|reco|prediction)",
    r"(?!.*(uncert|err)).*_energy",
    r"log_?(reco_)?energy|log10_?energy",
)


def is_classifier_output(name: str) -> bool:
    """Return whether a column is the score of another analysis, which may be a reference."""
    return origin_of(name) is not None and origin_of(name, is_reference=True) is None


def truth_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that exist for simulated events only."""
    return tuple(name for name in columns if _TRUTH.fullmatch(name))


def energy_column(columns: tuple[str, ...]) -> str | None:
    """Return the column of the reconstructed energy, None if there is none."""
    known = [name for name in columns if not _TRUTH.fullmatch(name)]
    return next((name for one in _ENERGY for name in known if re.fullmatch(one, name, re.IGNORECASE)), None)


def reason_by_name(name: str) -> str | None:
    """Return why the name of a column excludes it as a feature, None if it does not."""
    return origin_of(name) or next((_RULES[one] for one in _RULES if re.fullmatch(one, name, re.IGNORECASE)), None)


def _reason_by_values(numbers: FloatArray | None, files: NDArray[np.int64]) -> str | None:
    """Return why the values of a column, and their files, exclude it as a feature, None if they do not."""
    if numbers is None:
        return "it is a text or a date, not a number"
    known = np.isfinite(numbers)
    missing = float(np.mean(~known)) if len(numbers) else 0.0
    if missing > _MAX_MISSING:
        share = f"it is missing in {100 * missing:.0f} % of the events, which would be rejected"
        return "it has no values" if missing == 1 else share
    values, of_file = numbers[known], files[known]
    if len(values) >= 2:
        if (values == values[0]).all():
            return f"it is {values[0]:g} in all events of the sample"
        distinct = np.unique(of_file)
        if len(values) > 2 * len(distinct) and all(np.ptp(values[of_file == one]) == 0 for one in distinct):
            return "it is constant in each file, so it is a property of the run"
    rises = (numbers[1:] > numbers[:-1])[np.diff(files) == 0]
    if len(numbers) >= _MIN_EVENTS and len(rises) and rises.all():
        return "it increases from event to event like a time or a counter"
    return None


def reasons_against(
    columns: Sequence[str], sample: pd.DataFrame, files: NDArray[np.int64], preferred: Sequence[str] = ()
) -> dict[str, str]:
    """Return why columns are not features, by name and by the values of a sample; ``files`` has the file of each."""
    found = {name: reason for name in columns if (reason := reason_by_name(name))}
    numeric = [name for name in columns if pd.api.types.is_numeric_dtype(sample[name].dtype)]
    numbers = {name: sample[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in numeric}
    usable = _usable_events({name: values for name, values in numbers.items() if name not in found}, len(sample))
    for name in columns:
        own = numbers[name][usable] if name in numbers else None
        if name not in found and (reason := _reason_by_values(own, files[usable])):
            found[name] = reason
    return found | _copies({name: values[usable] for name, values in numbers.items()}, found, preferred)


def _usable_events(columns: Mapping[str, FloatArray], n_events: int) -> BoolArray:
    """Return the events with values in most columns; all, if there are none."""
    known = [finite for finite in map(np.isfinite, columns.values()) if finite.any()]
    usable = np.mean(known, axis=0) >= 0.5 if known else np.ones(n_events, dtype=np.bool_)
    return usable if usable.any() else np.ones(n_events, dtype=np.bool_)


def _copies(numbers: Mapping[str, FloatArray], reasons: Mapping[str, str], preferred: Sequence[str]) -> dict[str, str]:
    """Return the columns that are copies of features, in any unit, or that order events like an excluded column."""
    varying = {name: values[:_MAX_COMPARED] for name, values in numbers.items()}
    varying = {name: values for name, values in varying.items() if len(np.unique(values[np.isfinite(values)])) > 2}
    if not varying or len(next(iter(varying.values()))) < _MIN_EVENTS:
        return {}
    order = sorted(varying, key=lambda name: (name not in reasons, name not in preferred))
    ordered = [varying[name] for name in order]
    ranks = _correlate([rankdata(np.where(np.isfinite(own), own, -np.inf), "dense") for own in ordered])
    values = _correlate([np.nan_to_num(own, nan=0.0, posinf=0.0, neginf=0.0) for own in ordered])
    found: dict[str, str] = {}
    for number, name in enumerate(order):
        earlier = [] if name in reasons else np.flatnonzero(ranks[number, :number] >= _COPY).tolist()
        for before in earlier:
            other = order[before]
            # a copy of a column without values, for example, is just that
            if other in reasons and origin_of(other) is not None:
                found[name] = f"it orders the events like {other}: {reasons[other]}"
                break
            if other not in reasons and other not in found and values[number, before] > _COPY:
                found[name] = f"it is a copy of {other}"
                break
    return found


_OWN_SCORE = re.compile("excess_(score|fold)|(.*_)?(signal_probability|selected)")  # of `apply`, trained on the labels
_ON_THE_SKY = re.compile("position|direction|distance|pointing|relative to the source")


def _correlate(columns: list[FloatArray]) -> FloatArray:
    """Return the absolute correlation coefficients of columns; 0 for constant columns."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(np.atleast_2d(np.corrcoef(columns))))


def check_no_origin(
    features: Sequence[str], derived: Mapping[str, str], references: Collection[str], interval: str | None = None
) -> None:
    """Raise ValueError if a feature, or one of its inputs, encodes the origin of an event.

    If On and Off are intervals of a column, they share the sky, and only the column itself is excluded.
    """
    inputs = inputs_of_derived(derived)
    for feature in features:
        for name in (feature, *inputs.get(feature, ())):
            if interval is not None and name.lower() == interval.lower():
                what = "is" if name == feature else "is computed from"
                raise ValueError(f"feature {feature!r} {what} the column {name!r} that On and Off are intervals of")
            reason = origin_of(name, is_reference=name in references)
            if reason and interval is not None and _ON_THE_SKY.search(reason):
                continue
            if reason is not None and (reason not in NAMED_ONLY or _OWN_SCORE.fullmatch(name.lower())):
                through = "" if name == feature else f" is computed from {name!r}, which"
                problem = f"feature {feature!r}{through} encodes where an event came from ({reason})"
                advice = "a model would learn the regions instead of the source: remove it, or set"
                raise ValueError(f"{problem}; {advice} allow_origin_features: true")
