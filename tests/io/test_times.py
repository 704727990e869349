"""Times of events, from whichever column says them."""

import numpy as np
import pandas as pd
import pytest

from excess.dataset._build import seconds_of


@pytest.mark.parametrize(
    ("column", "values", "steps"),
    [
        ("unix_time", [1.4e9, 1.4e9 + 5], [5]),
        ("timestamp", ["2013-11-01 23:00:00", "2013-11-01 23:00:05.5"], [5.5]),
        ("timestamp", ["2013-11-01T23:00:00Z", "2013-11-01T23:00:05"], [5]),
        ("timestamp", pd.to_datetime(["2013-11-01", "2013-11-02"]), [86_400]),
        ("timestamp", [1_383_346_800, 1_383_346_805], [5]),
        ("time", [333_778_852.4, 333_778_853.4], [1]),
        ("time", [56_597.0, 56_597.5], [43_200]),
        ("time", [2_456_597.5, 2_456_598.0], [43_200]),
        ("time", pd.to_datetime(["2013-11-01", "2013-11-02"]), [86_400]),
    ],
)
def test_times_are_seconds(column, values, steps):
    np.testing.assert_allclose(np.diff(seconds_of(pd.DataFrame({column: values}))), steps, atol=1e-4)


def test_missing_times():
    assert seconds_of(pd.DataFrame({"night": [1]})) is None
    assert seconds_of(pd.DataFrame({"time": [np.nan, np.nan]})) is None
    assert seconds_of(pd.DataFrame({"timestamp": ["long ago", "soon"]})) is None
    assert np.isnan(seconds_of(pd.DataFrame({"unix_time": [1.0, np.nan]}))[1])
