"""
The LHC Olympics: a resonance without a model
=============================================

Classification without labels (CWoLa) is the same idea in particle physics: events of a signal region are mostly
background with a few signal events among them; reference events are background alone. This is the research and
development set of the LHC Olympics 2020, ``lhco/*.npz``: 60,000 events of the signal region with 395 signal events
among them, 0.7 %.
"""

# %%
# On is the signal region, Off a sample of background
# ---------------------------------------------------
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
# the exposure ratio: so many background events are expected in On for each Off event. Here the truth is known, and with
# it alpha; in a search it comes from the fit to the sidebands.
alpha = (~train["is_signal"].astype(bool)).sum() / len(background)
print(excess.OnOffCounts(on.sum(), (~on).sum(), alpha))

# %%
# Nothing to see in the counts: 395 signal events among 60,000. Now let a forest learn.
forest = excess.OnOffForestClassifier(alpha=alpha, random_state=0, n_jobs=2).fit(X, on)
for member in forest.members_:
    if member.n_trees:
        print(f"{member.n_trees:4} trees: {member.splitter} splits, leaves of {member.min_samples_leaf}")

# %%
# How much better is a cut on its score?
# --------------------------------------
# By the truth of test events, which the forest has not seen: the significance improves by the true positive rate over
# the root of the false positive rate.
truth = test["is_signal"].astype(bool)
score = forest.predict_proba(test["X"][:, use])[:, 1]
cuts = np.quantile(score[truth], np.linspace(0, 0.99, 100))
tpr = np.array([(score[truth] > cut).mean() for cut in cuts])
fpr = np.array([(score[~truth] > cut).mean() for cut in cuts])
enough = fpr * (~truth).sum() >= 25  # so that the background is known to 20 %
improvement = tpr[enough] / np.sqrt(fpr[enough])
fig, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.plot(tpr[enough], improvement, color="tab:blue")
axes.axhline(1, color="grey", lw=0.8)
axes.set(xlabel="fraction of signal that is kept", ylabel="significance improvement", ylim=(0, None))
plt.show()
print(f"largest improvement: {improvement.max():.1f}")

# %%
# Does the number hold without the truth?
# ---------------------------------------
# In a search there is no truth. Every event is judged by forests that have not seen it:
detection = excess.cross_val_detect(forest, X, on, alpha=alpha, random_state=0, cv=2, n_jobs=2)
print(detection)
