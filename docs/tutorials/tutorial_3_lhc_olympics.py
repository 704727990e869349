"""
The LHC Olympics: a resonance without a model
=============================================

Classification without labels (CWoLa) applies the same idea in particle physics: a signal region contains mostly
background and a few signal events, and a reference sample contains background only. This is the research and
development set of the LHC Olympics 2020, ``lhco/*.npz``: 60,000 events of the signal region with 395 signal events
among them, 0.7 %.
"""

# %%
# Signal region as On, background sample as Off
# ---------------------------------------------
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import excess

folder = Path(os.environ["EXCESS_DATA"], "lhco")
train, reference, test = (np.load(folder / f"{name}.npz") for name in ("train", "val", "test"))
columns = [str(name) for name in train["columns"]]
names = ["mj1", "delta_mj", "tau21_1", "tau21_2"]  # not the mass of the pair, which defines the signal region
use = [columns.index(name) for name in names]
signal_region = train["X"][:, use]
background = reference["X"][~reference["is_signal"].astype(bool)][:, use]
X = np.concatenate([signal_region, background])
on = np.arange(len(X)) < len(signal_region)
# The exposure ratio is the expected number of background events in On per Off event. Here it follows from the truth; in
# a search it is estimated from a fit to the sidebands.
alpha = (~train["is_signal"].astype(bool)).sum() / len(background)
print(excess.OnOffCounts(on.sum(), (~on).sum(), alpha))

# %%
# The counts show no excess: only 395 of 60,000 events are signal. A forest is trained on the labels.
forest = excess.OnOffForestClassifier(alpha=alpha, random_state=0, n_jobs=2).fit(X, on)
for member in forest.members_:
    if member.n_trees:
        print(f"{member.n_trees:4} trees: {member.splitter} splits, leaves of {member.min_samples_leaf}")

# %%
# Significance improvement of a cut on the score
# ----------------------------------------------
# For test events with known truth, the significance improvement is the true positive rate divided by the square root of
# the false positive rate.
truth = test["is_signal"].astype(bool)
score = forest.predict_proba(test["X"][:, use])[:, 1]
cuts = np.quantile(score[truth], np.linspace(0, 0.99, 100))
tpr = np.array([(score[truth] > cut).mean() for cut in cuts])
fpr = np.array([(score[~truth] > cut).mean() for cut in cuts])
enough = fpr * (~truth).sum() >= 25  # for a statistical error of the background of at most 20 %
improvement = tpr[enough] / np.sqrt(fpr[enough])
fig, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.plot(tpr[enough], improvement, color="tab:blue")
axes.axhline(1, color="grey", lw=0.8)
axes.set(xlabel="fraction of signal that is kept", ylabel="significance improvement", ylim=(0, None))
plt.show()
print(f"largest improvement: {improvement.max():.1f}")

# %%
# Significance without the truth
# ------------------------------
# In a search the truth is unknown. Cross-validation predicts every event by a forest that was not trained on it:
detection = excess.cross_val_detect(forest, X, on, alpha=alpha, random_state=0, cv=2, n_jobs=2)
print(detection)
