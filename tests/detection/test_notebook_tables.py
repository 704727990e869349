"""Results as notebooks show them: the numbers of the texts, escaped, without scripts and colours."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from excess import OnOffCounts, OnOffTreeClassifier, cross_val_detect, null_test


class Cells(HTMLParser):
    """The cells of the rows of a table, and the paragraphs below it."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.notes, self.open, self.bold = [], [], [], []
        self.feed(text)
        assert self.open == []  # all that was opened is closed

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        assert tag in {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.bold.append("bold" in dict(attributes)["style"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] == "p":
            self.notes.append(data)
        elif self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    X, signal = rng.normal(size=(1500, 2)), np.arange(1500) < 100
    X[signal] += 2
    return X, (signal | (rng.random(1500) < 1 / 6)).astype(int), rng.integers(0, 2, 1500)


def test_a_detection_shows_both_statistics_and_its_verdict(events):
    X, y, half = events
    names = np.array(["<b>Crab</b>", "Mrk & 421"])[half]
    options = {"alpha": 1 / 5, "observations": names, "random_state": 0}
    found = cross_val_detect(LogisticRegression(), X, y, strategy="pooled", **options)
    html = found._repr_html_()
    shown = Cells(html)
    likelihood, counts, uncut = found.likelihood, found.counts, found.uncut
    assert shown.rows[:4] == [
        ["", "On", "Off", "excess", "significance"],
        [
            "likelihood",
            str(uncut.n_on),
            str(uncut.n_off),
            f"{likelihood.n_signal:.1f} ± {likelihood.n_signal_error:.1f}",
            f"{likelihood.significance:.1f} sigma",
        ],
        ["cut", *counts.texts()],
        ["without a cut", *uncut.texts()],
    ]
    assert [row[0] for row in shown.rows[4:]] == [
        f"{name}: {what}" for name in ("<b>Crab</b>", "Mrk & 421") for what in ("likelihood", "cut")
    ]
    assert shown.bold[5:15] == [True] * 5 + [False] * 5  # the declared statistic, and the other
    what = 'Use the pooled significance to compare models; quote that of strategy="forward".'
    assert shown.notes == [found.remarks[0], what, f"detected: {found.verdict}"]
    both = replace(found, forward=replace(found.outcome, counts=found.uncut))
    assert f"Quote the forward significance, {found.significance:.1f} sigma." in Cells(both._repr_html_()).notes
    ahead = replace(found, strategy="forward")
    assert "Quote the significance in bold." in Cells(ahead._repr_html_()).notes
    weak = replace(found, required_significance=100.0)
    assert not any("quote" in note for note in Cells(weak._repr_html_()).notes)
    assert "<b>" not in html
    assert "Mrk &amp; 421" in html
    assert not re.search(r"<script|color: (?!inherit)|background|onclick|http", html)


def test_warnings_are_shown(events):
    X, y, half = events
    tree = OnOffTreeClassifier(max_depth=2)
    shared = {"groups": half, "statistic": "cut", "strategy": "forward", "n_permutations": 2, "random_state": 0}
    found = cross_val_detect(tree, X, y, alpha=1.0, **shared)
    shown = Cells(found._repr_html_())
    warnings = [f"Warning: {one.sentence}" for one in found.assessment.warnings]
    assert warnings  # a deficit of all events: alpha is wrong
    assert shown.notes[: len(warnings)] == warnings
    assert shown.notes[len(warnings) :] == [
        f"permutation p-value {found.permutation_p_value:.3g} (2 permutations)",
        f"doubtful: {found.assessment.sentence}",
    ]
    assert shown.bold[5:15] == [False] * 5 + [True] * 5


def test_a_null_test_shows_its_regions():
    rng = np.random.default_rng(0)
    X, region = rng.normal(size=(1500, 2)), rng.integers(0, 4, 1500)
    found = null_test(OnOffTreeClassifier(max_depth=2), X, region, n_regions=4, random_state=0)
    shown = Cells(found._repr_html_())
    assert shown.rows[0] == ["Off region", "likelihood", "On", "Off", "excess", "cut"]
    for number, row in enumerate(shown.rows[1:], start=1):
        outcome = found.outcomes[number]
        assert row == [str(number), f"{outcome.likelihood.significance:.1f} sigma", *outcome.counts.texts()]
    assert shown.notes[-1] == found.verdict
    assert len(shown.rows) == 4


def test_counts_are_one_row():
    shown = Cells(OnOffCounts(618, 1108, 0.2)._repr_html_())
    assert shown.rows == [
        ["On", "Off", "alpha", "excess", "significance"],
        ["618", "1108", "0.2", "396.4 ± 25.7", "19.2 sigma"],
    ]
