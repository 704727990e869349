"""Expressions: values against pandas, and everything that is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excess.config import evaluate
from excess.config._columns import names_in

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "width": RNG.normal(0, 2, 500),
        "length": RNG.exponential(3, 500),
        "count": RNG.integers(-5, 6, 500),
        "flag": RNG.random(500) < 0.5,
    }
)


@pytest.mark.parametrize(
    "expression",
    [
        "width + length * count - 2",
        "-width**2",
        "2**-length",
        "2**3**0.5 + width",
        "width - length - count",
        "width / length / 2",
        "width * (length + 1) % 3",
        "-count % 3 + 0.0",
        "width < length",
        "-1 < width < 1 <= length",
        "width < 1 & length > 2 | count == 0",
        "width < 1 | length > 2 & count != 0",
        "~(width < 1) & ~flag",
        "not width < 1 and not flag or count >= 2",
        "flag | width > 0.5 & count <= 3",
        "sqrt(length) + log(length) * exp(-length) - log10(length) + log1p(length)",
        "abs(width) > sin(width) + cos(length)",
        pytest.param(
            "tan(width) < arctan2(width, length)",
            marks=pytest.mark.skipif(pd.__version__ < "3", reason="pandas has no tangent before version 3"),
        ),
        "width\n  + length",
    ],
)
def test_same_as_pandas(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = TABLE.eval(" ".join(expression.split()), engine="python")
    found = evaluate(expression, TABLE)
    assert found.shape == (500,)
    np.testing.assert_allclose(found, expected.to_numpy(), rtol=1e-12)
    assert (found.dtype == np.bool_) == (expected.dtype == np.bool_)


ATOMS = st.sampled_from(["width", "length", "count", "2", "0.5"])
NUMBERS = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner)
        | st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner)
        | st.builds("-{}".format, inner)
    ),
    max_leaves=6,
)
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["<", "<=", ">", ">="]), NUMBERS),
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["&", "|", "and", "or"]), inner)
        | st.builds("~({})".format, inner)
    ),
    max_leaves=4,
)


@given(NUMBERS)
def test_arithmetic_binds_as_in_pandas(expression):
    expected = TABLE.eval(f"0.0 * width + ({expression})", engine="python")
    found, finite = evaluate(expression, TABLE), np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(found), finite)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")  # of pandas, since Python 3.12
@given(CONDITIONS)
def test_conditions_bind_as_in_pandas(expression):
    expected = TABLE.eval(f"({expression}) & width < inf", local_dict={"inf": np.inf}, engine="python")
    np.testing.assert_array_equal(evaluate(expression, TABLE), expected)


def test_functions_of_two_and_three_arguments():
    np.testing.assert_array_equal(evaluate("minimum(width, 0)", TABLE), np.minimum(TABLE["width"], 0))
    np.testing.assert_array_equal(evaluate("maximum(width, length)", TABLE), TABLE[["width", "length"]].max(axis=1))
    np.testing.assert_array_equal(evaluate("where(flag, width, -1)", TABLE), TABLE["width"].where(TABLE["flag"], -1))


def test_numbers_do_not_wrap_or_raise():
    table = {
        "byte": np.array([200, 100], dtype=np.uint8),
        "big": np.array([2**62, -(2**62)]),
        "yes": np.array([True, True]),
        "zero": np.array([0, 0]),
    }
    np.testing.assert_array_equal(evaluate("byte + byte", table), [400, 200])
    np.testing.assert_array_equal(evaluate("byte - 201", table), [-1, -101])
    np.testing.assert_array_equal(evaluate("big * 4", table), [2.0**64, -(2.0**64)])
    np.testing.assert_array_equal(evaluate("yes + yes", table), [2, 2])
    np.testing.assert_array_equal(evaluate("-yes", table), [-1, -1])
    np.testing.assert_array_equal(evaluate("(byte - 100) / zero", table), [np.inf, np.nan])
    np.testing.assert_array_equal(evaluate("log(-byte)", table), [np.nan, np.nan])
    np.testing.assert_array_equal(evaluate("10 ** (byte * 0 + 400)", table), [np.inf, np.inf])
    np.testing.assert_array_equal(evaluate("big == 4611686018427387904", table), [True, False])
    np.testing.assert_array_equal(evaluate("zero ** -1", table), [np.inf, np.inf])


def test_constants_and_missing_values():
    assert evaluate("pi", {"x": [1, 2]}).tolist() == [np.pi, np.pi]
    assert evaluate("pi", {"pi": np.array([3, 3])}).tolist() == [3, 3]
    assert evaluate("1 < 2", TABLE).all()
    assert evaluate("x > 1", pd.DataFrame({"x": pd.array([2, None], dtype="Int64")})).tolist() == [True, False]
    assert evaluate("x", TABLE[:0].assign(x=1.0)).shape == (0,)
    assert names_in("pi * width + where(flag, length, width)") == ("width", "flag", "length")


def test_the_table_stays_as_it_is():
    before = TABLE.copy()
    result = evaluate("width", TABLE)
    result[:] = 0
    pd.testing.assert_frame_equal(TABLE, before)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os')", "quotes"),
        ("__import__(width)", "only these functions may be called"),
        ("().__class__", r"not allowed, at '\(\).__class__'"),
        ("width.values", "not allowed, at 'width.values'"),
        ("width.to_csv(1)", "only these functions"),
        ("sqrt.__globals__", "not allowed"),
        ("width[0]", r"not allowed, at 'width\[0\]'"),
        ("lambda: 0", "not allowed, at 'lambda: 0'"),
        ("(lambda: 0)()", "only these functions"),
        ("[width for width in length]", "not allowed"),
        ("[1, 2]", "not allowed"),
        ("{1: 2}", "not allowed"),
        ("(x := 3)", "not allowed"),
        ("width if flag else length", "not allowed"),
        ("width // 2", "not allowed"),
        ("width @ length", "not allowed"),
        ("count << 3", "not allowed"),
        ("count ^ 1", "not allowed"),
        ("width is length", "not allowed"),
        ("width in length", "not allowed"),
        ("f'{width}'", "quotes"),
        ("9**9**9", "an exponent may be at most 64"),
        ("width ** 1e300", "an exponent may be at most 64"),
        ("width ** (0.0 / 0.0)", "an exponent may be at most 64"),
        ("9" * 400, "the number is too large"),
        ("True", "only numbers"),
        ("None", "only numbers"),
        ("...", "only numbers"),
        ("1j * width", "only numbers"),
        ("b", "unknown name 'b'"),
        ("lenght > 3", "unknown name 'lenght'; did you mean 'length'"),
        ("sqrt", "unknown name 'sqrt'"),
        ("sqrt()", "sqrt takes 1 argument"),
        ("arctan2(width)", "arctan2 takes 2 arguments"),
        ("sqrt(x=width)", "sqrt takes 1 argument"),
        ("sqrt(*width)", "not allowed"),
        ("width &", "not an expression"),
        ("width; length", "not an expression"),
        ("import os", "not an expression"),
        ("x = 3", "not an expression"),
        ("width\0", "not an expression"),
        ("", "empty"),
        ("width & flag", "need a condition, such as a comparison, at 'width'"),
        ("~count", "need a condition"),
        ("where(count, 1, 2)", "need a condition"),
        ("(" * 300 + "1" + ")" * 300, "not an expression"),
        ("-" * 1500 + "1", "deep"),
        ("+".join(["1"] * 300), "deep"),
        ("1+" * 5000 + "1", "may have 2000 characters"),
        ("~" * 1999 + "1", "deep"),
    ],
)
def test_refused(expression, message):
    with pytest.raises(ValueError, match=message):
        evaluate(expression, TABLE)


def test_text_columns_and_other_types_are_refused():
    with pytest.raises(ValueError, match="column 'name' contains"):
        evaluate("name < 3", pd.DataFrame({"name": ["a", "b"]}))
    with pytest.raises(ValueError, match="column 'image' has"):
        evaluate("image < 3", {"image": np.zeros((2, 2))})
    with pytest.raises(TypeError, match="must be text"):
        evaluate(3, TABLE)
