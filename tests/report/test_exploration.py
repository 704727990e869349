"""The slider of the page: its stops, and the counts at each of them."""

from dataclasses import replace

import numpy as np
import pytest
from visit import counts_at

from excess.report.content import model_content
from excess.report.exploration import counts_text, explore, stops_of
from excess.report.histograms import theta_squared_histogram


def test_stops_are_round_and_cover_the_scores():
    texts, thresholds = stops_of(np.random.default_rng(0).beta(2, 8, 20_000))
    assert 100 < len(texts) < 260
    assert len({len(text.split(".")[1]) for text in texts}) == 1
    np.testing.assert_array_equal(thresholds, [float(text) for text in texts])
    np.testing.assert_allclose(np.diff(thresholds), np.diff(thresholds)[0])
    for scores in ([0.3, 0.3], [0.0, 0.0], [0.0, 1.0], [-940.0, 12.5, 977.0], [1e-9, 3e-9]):
        texts, thresholds = stops_of(np.array(scores))
        assert thresholds[0] < min(scores)
        assert thresholds[-1] >= max(scores)
        assert (np.diff(thresholds) > 0).all()


def test_exploration_is_what_a_threshold_selects(detections):
    for detection in detections.values():
        found = explore(detection)
        for stop in range(0, len(found["threshold"]), 17):
            threshold = float(found["threshold"][stop])
            expected = counts_text(counts_at(detection, threshold))
            assert {key: found[key][stop] for key in expected} == expected
            histogram = theta_squared_histogram(detection, threshold)
            assert found["theta"]["on"][stop] == histogram.on.tolist()
            assert found["theta"]["off"][stop] == histogram.off.tolist()
            for number, night in enumerate(np.unique(detection.groups)):
                by_night = counts_text(counts_at(detection, threshold, detection.groups == night))
                assert {key: found["groups"][stop][key][number] for key in by_night} == by_night


@pytest.mark.slow
def test_many_groups_have_fewer_stops_and_then_no_table(detections):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    some, many = (replace(detection, groups=rows % n) for n in (250, 900))
    assert 25 <= len(explore(some)["threshold"]) < 100
    assert explore(many)["groups"] is None
    content = model_content("x", many)
    assert not content["groups_follow"]
    assert (len(content["groups"]), content["n_groups"]) == (300, 900)
