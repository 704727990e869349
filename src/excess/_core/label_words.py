"""Words of labels: which pairs of texts say that the larger one is On, and which do not."""

from __future__ import annotations

import re
from typing import Any

BACKGROUND, SIGNAL, UNCLEAR = "background", "signal", "unclear"

_WORDS = {
    BACKGROUND: """
        off background backgrounds bkg bkgd bg hadron hadrons hadronic proton protons noise sideband sidebands control
        decoy decoys normal false no not non neg negative negatives
    """,
    SIGNAL: """
        on signal signals sig source gamma gammas photon photons target targets anomaly anomalies anomalous outlier
        outliers true yes pos positive positives
    """,
    UNCLEAR: """
        unlabelled unlabeled labelled labeled unknown unclassified unassigned undefined other others rest mixed mixture
    """,
}
_KINDS = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_PRECEDENCE = (UNCLEAR, BACKGROUND, SIGNAL)  # "not signal" is background, "other background" is unclear


def kind_of(label: Any) -> str | None:
    """Return what a text is a word for; None for words that are not known, and for what is no text."""
    if isinstance(label, bytes):
        label = label.decode(errors="replace")
    if not isinstance(label, str):
        return None
    found = {_KINDS.get(word) for word in re.findall(r"[a-z]+", label.casefold())}
    return next((kind for kind in _PRECEDENCE if kind in found), None)


def why_unclear(off: Any, on: Any) -> str | None:
    """Return why two labels do not say that ``on``, the larger in sorted order, is On; None if they may.

    Words that are not known pass, because scikit-learn's conventions allow any two labels.
    """
    kinds = {label: kind_of(label) for label in (off, on)}
    for label, kind in kinds.items():
        if kind == UNCLEAR:
            return f"{label!r} may be either"
    if kinds[on] == BACKGROUND:
        return f"{on!r} is a word for background"
    if kinds[off] == SIGNAL:
        return f"{off!r} is a word for signal"
    numbers = _as_number(off), _as_number(on)
    if None not in numbers and numbers[0] > numbers[1]:  # type: ignore[operator]
        return "these texts are not in the order of their numbers"
    return None


def _as_number(label: Any) -> float | None:
    try:
        return float(label) if isinstance(label, (str, bytes)) else None
    except ValueError:
        return None
