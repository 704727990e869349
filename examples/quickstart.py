"""Learn to detect a faint source from On and Off labels alone, and compare the threshold rules.

In a simulated observation, 4 % of 20,000 events are signal. Models are trained on noisy labels: 95 % of the signal
events come from the On region, and background events from six equal regions, one of which is On. Clean labels are
only used in the last column, to compare the selections with the truth.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

import excess

ALPHA = 1 / 5


def main() -> None:
    """Fit forests with several threshold rules, and evaluate them on hold-out events."""
    X, clean = make_classification(
        20_000, n_features=10, n_informative=6, weights=[0.96], class_sep=1.2, flip_y=0.0, random_state=1
    )
    on = excess.inject_label_noise(clean, p_plus=0.05, p_minus=excess.p_minus_from_alpha(ALPHA), random_state=2)
    X_train, X_test, on_train, on_test, _, clean_test = train_test_split(
        X, on, clean, test_size=0.5, stratify=on, random_state=3
    )

    table = Table(title="Hold-out events, alpha = 1/5")
    for column in ("threshold rule", "threshold", "On", "Off", "excess", "significance", "clean F1"):
        table.add_column(column, justify="left" if column == "threshold rule" else "right")

    def add_row(rule: str, threshold: str, y_pred: object) -> None:
        counts = excess.count_selected(on_test, y_pred, ALPHA)
        table.add_row(
            rule,
            threshold,
            f"{counts.n_on}",
            f"{counts.n_off}",
            f"{counts.excess:.0f} +- {counts.excess_error:.0f}",
            f"{counts.significance:.1f} sigma",
            f"{f1_score(clean_test, y_pred):.3f}",
        )

    add_row("no cut", "", on_test * 0 + 1)
    for rule in reversed(excess.THRESHOLD_METHODS):
        forest = excess.OnOffForestClassifier(alpha=ALPHA, threshold=rule, n_jobs=-1, random_state=4)
        forest.fit(X_train, on_train)
        add_row(rule, f"{forest.threshold_:.3f}", forest.predict(X_test))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
