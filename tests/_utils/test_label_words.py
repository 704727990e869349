"""Which pairs of texts are labels that say which one is On."""

import numpy as np
import pytest

import excess
from excess._utils.checks import why_unclear

CLEAR = [
    ("off", "on"),
    ("OFF", "ON"),
    ("Off", "On"),
    ("background", "signal"),
    ("noise", "signal"),
    ("hadron", "photon"),
    ("decoy", "target"),
    ("negative", "positive"),
    ("no", "yes"),
    ("False", "True"),
    ("not signal", "signal"),
    ("sideband", "signal region"),
    ("control", "treated"),
    ("0", "1"),
    ("-1", "1"),
    ("one", "two"),  # of scikit-learn's checks
    ("a", "b"),
]
UNCLEAR = [
    ("gamma", "hadron", "'hadron' is a word for background"),
    ("on", "sky", "'on' is a word for signal"),
    ("gamma", "signal", "'gamma' is a word for signal"),
    ("anomaly", "normal", "'normal' is a word for background"),
    ("Crab", "off", "'off' is a word for background"),
    ("positive", "unlabelled", "'unlabelled' may be either"),
    ("negative", "unlabeled", "'unlabeled' may be either"),
    ("other_events", "source", "'other_events' may be either"),
    ("+1", "-1", "not in the order of their numbers"),
    ("10", "9", "not in the order of their numbers"),
]


@pytest.mark.parametrize(("off", "on"), CLEAR)
def test_clear_labels(off, on):
    assert sorted([off, on]) == [off, on]
    assert why_unclear(off, on) is None
    assert excess.count_selected([off, on, on], [off, on, on], alpha=1.0).n_on == 2


@pytest.mark.parametrize(("off", "on", "reason"), UNCLEAR)
def test_unclear_labels_are_refused_with_the_remedy(off, on, reason):
    assert sorted([off, on]) == [off, on]
    y = np.array([off, on] * 20)
    with pytest.raises(ValueError, match="use 1 for On and 0 for Off") as caught:
        excess.OnOffTreeClassifier(alpha=1.0).fit(np.arange(40.0)[:, None], y)
    said = str(caught.value)
    assert f"which would be {on!r} and not {off!r} in y, but" in said
    assert reason in said
    remedy = said.split("Off: ")[1].split(", if")[0]
    assert eval(remedy, {"labels": y}).tolist() == [1, 0] * 20  # what the sentence says works


def test_bytes_are_texts_and_numbers_are_not():
    assert why_unclear(b"gamma", b"hadron") is not None
    assert why_unclear(b"off", b"on") is None
    assert why_unclear(-1, 1) is None
    assert why_unclear(False, True) is None
