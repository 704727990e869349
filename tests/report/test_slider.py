"""The slider of the page: its stops, and the counts at each of them."""

from dataclasses import replace

import numpy as np
import pytest
from visit import counts_at

from excess import li_ma_significance
from excess.report._content import ModelContent, counts_text
from excess.report._page import explore, stops_of


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
            for number, night in enumerate(np.unique(detection.groups)):
                by_night = counts_text(counts_at(detection, threshold, detection.groups == night))
                assert {key: found["groups"][number][key][stop] for key in by_night} == by_night


def test_slider_at_the_tuned_cut_has_the_counts_of_the_detection_where_alpha_differs(uneven):
    found, n_differ = explore(uneven), 0
    for stop in range(0, len(found["threshold"]), 9):
        threshold = float(found["threshold"][stop])
        tuned = replace(uneven, selected=uneven.held_out & (uneven.score > threshold))
        counts = tuned.counts
        expected = counts_text(counts)
        assert {key: found[key][stop] for key in expected} == expected
        n_differ += f"{li_ma_significance(counts.n_on, counts.n_off, uneven.alpha):.2f}" != expected["significance"]
        for number, by_night in enumerate(tuned.counts_by_group.values()):
            expected = counts_text(by_night)
            assert {key: found["groups"][number][key][stop] for key in expected} == expected
        assert found["height"][stop] == pytest.approx(max(counts.significance, 0))
    assert n_differ > 5  # one mean ratio says something else


def test_more_ratios_than_are_told_apart_count_as_in_the_detection(uneven):
    many = replace(uneven, event_alpha=uneven.event_alpha * np.linspace(0.9, 1.1, len(uneven.on)), theta=None)
    found = explore(many)
    for stop in range(0, len(found["threshold"]), 30):
        expected = counts_text(counts_at(many, float(found["threshold"][stop])))
        assert {key: found[key][stop] for key in expected} == expected


def test_many_groups_have_fewer_stops_and_then_no_table(detections):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    some, many = (replace(detection, groups=rows % n) for n in (250, 900))
    assert 25 <= len(explore(some)["threshold"]) < 100
    assert explore(many)["groups"] is None
    table = ModelContent("x", many).tables["groups"]
    assert len(table.rows) == 300
    assert table.note.startswith("The first 300 of 900 groups; `excess report --csv` writes all to groups.csv.")
