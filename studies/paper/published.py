"""The paper's published figures: mean and standard deviation of every cell of its tables, as printed.

Pfahler, Bunse & Morik, "Noisy labels for weakly supervised gamma hadron classification".
"""

from __future__ import annotations

from io import StringIO
from typing import Any

import pandas as pd


def _table(names: tuple[str, str], columns: tuple[Any, ...], lines: str) -> pd.DataFrame:
    """Read lines of a name and, for each column, a mean and a standard deviation."""
    wide = pd.read_csv(StringIO(lines), sep=r"\s+", header=None, index_col=0)
    wide.columns = pd.MultiIndex.from_product([columns, ["published", "published_std"]])
    return wide.stack(level=0, future_stack=True).rename_axis(list(names))


FORESTS = ("li-ma-forest", "noisy-forest", "menon-forest", "mithal-forest")

IMBALANCED = _table(
    ("set", "method"),
    FORESTS,
    """
    satimage        0.563 0.012  0.602 0.010  0.549 0.0055  0.563 0.061
    protein_homo    0.788 0.002  0.790 0.002  0.339 0.0076  0.786 0.002
    optical_digits  0.813 0.008  0.859 0.008  0.843 0.0051  0.826 0.007
    pen_digits      0.961 0.006  0.955 0.002  0.945 0.003   0.961 0.003
    letter_img      0.793 0.013  0.809 0.007  0.809 0.005   0.810 0.007
    coil_2000       0.115 0.003  0.146 0.004  0.160 0.002   0.114 0.003
    thyroid_sick    0.769 0.015  0.786 0.008  0.775 0.008   0.400 0.176
    sick_euthyroid  0.836 0.006  0.772 0.011  0.701 0.009   0.678 0.136
    mammography     0.509 0.023  0.569 0.012  0.484 0.011   0.103 0.037
    abalone         0.370 0.012  0.384 0.006  0.359 0.004   0.300 0.038
    """,
)
"""F1 with p_plus = 0.1 and p_minus = 0.5, by set and method."""

MORE_NOISE = _table(
    ("set", "method"),
    FORESTS,
    """
    satimage        0.445 0.028  0.462 0.023  0.456 0.004  0.246 0.029
    protein_homo    0.767 0.008  0.773 0.004  0.198 0.006  0.777 0.004
    optical_digits  0.556 0.131  0.701 0.016  0.504 0.008  0.662 0.081
    pen_digits      0.872 0.027  0.832 0.010  0.900 0.004  0.918 0.004
    letter_img      0.710 0.019  0.779 0.007  0.539 0.010  0.476 0.233
    coil_2000       0.104 0.010  0.128 0.008  0.161 0.002  0.113 0.001
    thyroid_sick    0.666 0.016  0.628 0.020  0.509 0.010  0.159 0.025
    sick_euthyroid  0.661 0.019  0.589 0.030  0.476 0.009  0.256 0.032
    mammography     0.492 0.020  0.418 0.021  0.238 0.005  0.051 0.005
    abalone         0.327 0.011  0.312 0.016  0.281 0.004  0.173 0.004
    """,
)
"""The same with p_plus = 0.25."""

AVERAGES = {
    "imbalanced": {"rank": (2.5, 1.6, 2.8, 3.1), "f1": (0.658, 0.667, 0.596, 0.554)},
    "imbalanced-more-noise": {"rank": (2.2, 1.9, 2.8, 3.1), "f1": (0.566, 0.562, 0.426, 0.3829)},
}
"""The averages that the paper prints under its tables, in the order of the methods."""

CRAB = _table(
    ("line", "n_models"),
    (1, 100),
    """
    k-means-8    15.4230 0.3377  21.1536 0.3628
    k-means-16   18.5030 0.5808  22.1035 0.2753
    k-means-32   19.5769 0.6934  22.7916 0.2103
    k-means-48   19.5799 0.3708  23.1176 0.1974
    k-means-64   18.7707 0.5221  23.3216 0.2562
    k-means-128  18.8068 0.4566  23.6613 0.4276
    k-means-256  17.7766 0.5713  24.3246 0.4966
    li-ma-4      21.1666 0.0000  23.3015 0.3321
    li-ma-5      18.1350 0.0000  24.8517 0.2637
    li-ma-6      18.4227 0.0000  25.1085 0.2236
    li-ma-7      16.4555 0.0000  24.9136 0.3942
    li-ma-8      15.1137 0.0000  25.0431 0.2479
    noisy-4      24.2899 0.0000  25.3015 0.3321
    noisy-5      23.5378 0.0000  25.8569 0.2667
    noisy-6      23.8007 0.0000  26.1597 0.2236
    noisy-7      22.5541 0.0000  26.2558 0.3942
    noisy-8      21.0170 0.0000  26.3175 0.2479
    menon-4      24.2899 0.0000  25.2321 0.1812
    menon-5      22.2190 0.0000  25.7456 0.2723
    menon-6      21.9019 0.0000  25.9519 0.3090
    menon-7      18.3020 0.0000  26.0165 0.2950
    menon-8      17.6470 0.0000  25.9726 0.3622
    mithal-4     24.2899 0.0000  25.0858 0.2089
    mithal-5     23.4302 0.0000  25.7248 0.2606
    mithal-6     23.2471 0.0000  26.0736 0.2071
    mithal-7     20.1539 0.0000  26.3846 0.2246
    mithal-8     19.7144 0.0000  26.4465 0.1804
    supervised   24.6506 0.0000  26.2526 0.2024
    supervised-small  21.7351 0.0000  22.2584 0.2951
    """,
)
"""Significance of the Crab Nebula, by method and number T of models."""

CRAB_NULL = _table(
    ("line", "n_models"),
    (1, 100),
    """
    k-means-32   0.0000 0.0000  0.2478 0.3544
    k-means-128  0.0000 0.0000  0.3162 0.6247
    li-ma-4      0.0000 0.0000  0.0435 0.0746
    li-ma-6      0.0000 0.0000  0.0612 0.0425
    """,
)
"""Significance with a fake On region."""

_MEASURES = (("line", "measure"), ("pearson", "spearman"))
AGREEMENT = pd.concat(
    {
        1: _table(
            *_MEASURES,
            """
            k-means-32   0.4265 0.0200  0.4048 0.0203
            k-means-128  0.3255 0.0133  0.3153 0.0159
            li-ma-4      0.4965 0.0000  0.4678 0.0000
            li-ma-6      0.4042 0.0000  0.3732 0.0000
            """,
        ),
        100: _table(
            *_MEASURES,
            """
            k-means-32   0.7266 0.0071  0.7044 0.0074
            k-means-128  0.6877 0.0119  0.6274 0.0188
            li-ma-4      0.7706 0.0060  0.7364 0.0106
            li-ma-6      0.7401 0.0062  0.6806 0.0087
            """,
        ),
    },
    names=["n_models"],
).reorder_levels(["line", "n_models", "measure"])
"""Correlation with the supervised forest, by method, number T of models and measure."""

AUC = pd.DataFrame({"published": [0.77], "published_std": float("nan")}, pd.Index(["li-ma-forest"], name="model"))
"""Area under the ROC curve of the LiMa Forest of depth 6; that of the supervised forest is not printed."""
