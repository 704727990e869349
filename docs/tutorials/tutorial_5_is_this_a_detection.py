"""
Is this a detection?
====================

A naive analysis finds a significant excess in simulated events without a source. Cross-validation, forward evaluation
and null tests show that there is none.
"""

# %%
# Events without a source
# -----------------------
# Twenty features of noise, and a label that is On with probability 1/6 for every event: five Off regions for one On
# region, and no source.
import matplotlib.pyplot as plt
import numpy as np

import excess

rng = np.random.default_rng(1)
X = rng.normal(size=(6000, 20))
on = rng.random(6000) < 1 / 6
alpha = 1 / 5
night = 20131101 + np.arange(6000) // 1200
print(excess.count_selected(on, np.ones(6000, bool), alpha=alpha))

# %%
# The naive analysis
# ------------------
# Train a classifier, choose the cut with the largest significance, and quote that significance.
from sklearn.ensemble import RandomForestClassifier

forest = RandomForestClassifier(100, min_samples_leaf=20, random_state=0, n_jobs=2).fit(X, on)
score = forest.predict_proba(X)[:, 1]
cut = excess.significance_threshold(on, score, alpha)
print(excess.count_selected(on, score > cut, alpha=alpha))

# %%
# The classifier was trained on these events and reproduces their labels. Cross-validated scores are better, but the cut
# with the largest significance is still chosen on the same events.
from sklearn.model_selection import cross_val_predict

held_out = cross_val_predict(
    RandomForestClassifier(100, min_samples_leaf=20, random_state=0, n_jobs=2), X, on, method="predict_proba"
)[:, 1]
cut = excess.significance_threshold(on, held_out, alpha)
print(excess.count_selected(on, held_out > cut, alpha=alpha))

# %%
# The significance is smaller, but still biased, because the cut is the best of thousands of cuts. The distribution of
# this value without a source follows from 100 draws of random labels:
largest = []
for seed in range(100):
    labels = np.random.default_rng(seed).random(6000) < 1 / 6
    best = excess.significance_threshold(labels, held_out, alpha)
    largest.append(excess.count_selected(labels, held_out > best, alpha=alpha).significance)
above = np.mean(np.array(largest) > 2)
print(f"mean {np.mean(largest):.1f} sigma, above two sigma in {above:.0%} of samples without a source")

# %%
# Forward significance
# --------------------
# Model and threshold are trained on earlier nights than the night that they are applied to.
detection = excess.cross_val_detect(
    excess.OnOffForestClassifier(random_state=0), X, on, alpha=alpha, groups=night, strategy="forward", random_state=0
)
print(detection)

# %%
# The null test is the same analysis in each of the Off regions, where there is no source.
region = np.where(on, 0, rng.integers(1, 6, 6000))
test = excess.null_test(
    excess.OnOffForestClassifier(50, min_samples_leaf=40, random_state=0),
    X,
    region,
    n_regions=6,
    groups=night,
    random_state=0,
)
print(test.verdict)
fig, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.hist(largest, bins=20, color="tab:red", alpha=0.6, label="best of all cuts, random labels")
axes.axvline(detection.significance, color="black", label="forward, by the likelihood")
axes.set(xlabel="significance / sigma", ylabel="samples without a source")
axes.legend()
plt.show()
