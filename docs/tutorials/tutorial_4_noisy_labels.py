"""
Noisy labels: an imbalanced set, and a comparison with cleanlab
===============================================================

Any binary problem with class-conditional label noise is an On/Off problem, if the noise rate of the background is known. Here the letters
of 20,000 images (UCI letter recognition, in imbalanced-learn's ``letter_img``) are the classes: one letter against all others, 3.7 % of the
set. We let a tenth of the positive labels and half of the negative ones be wrong, which leaves labels that say almost nothing, and learn
from them.
"""

# %%
# The data and the noise
# ----------------------
import os
from pathlib import Path

import numpy as np
from imblearn.datasets import fetch_datasets
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import excess

folder = str(Path(os.environ["EXCESS_DATA"], "imblearn"))
found = fetch_datasets(data_home=folder, filter_data=("letter_img",), download_if_missing=False)
X, clean = found["letter_img"].data, (found["letter_img"].target == 1).astype(int)
p_plus, p_minus = 0.1, 0.5
noisy = excess.inject_label_noise(clean, p_plus=p_plus, p_minus=p_minus, random_state=0)
print(f"{clean.sum()} of {len(clean)} are positive; {noisy.sum()} are labelled positive")

# %%
# ``alpha`` is what the noise rate of the background says
# -------------------------------------------------------
alpha = excess.alpha_from_p_minus(p_minus)
print(f"alpha = {alpha:g}")
folds = StratifiedKFold(5, shuffle=True, random_state=0)
forest = excess.OnOffForestClassifier(alpha=alpha, random_state=0, n_jobs=2)
ours = cross_val_predict(forest, X, noisy, cv=folds)
print(f"F1 against the clean labels: {f1_score(clean, ours):.2f}")

# %%
# A forest that believes its labels
# ---------------------------------
from sklearn.ensemble import RandomForestClassifier

naive = RandomForestClassifier(200, min_samples_leaf=5, random_state=0, n_jobs=2)
score = cross_val_predict(naive, X, noisy, cv=folds, method="predict_proba")[:, 1]
print(f"F1 at 0.5: {f1_score(clean, score > 0.5):.2f}")

# %%
# cleanlab: find wrong labels, remove them, and train again
# ---------------------------------------------------------
# cleanlab estimates both noise rates itself, from the same out-of-fold probabilities, and needs no ``alpha``. It is made for labels that are
# mostly right; here half of the background is labelled wrong.
try:
    from cleanlab.classification import CleanLearning
except ImportError:
    print("cleanlab is not installed, so it is left out")
else:
    predicted = np.empty_like(clean)
    for train, held_out in folds.split(X, noisy):
        learner = CleanLearning(RandomForestClassifier(200, min_samples_leaf=5, random_state=0, n_jobs=2), seed=0)
        predicted[held_out] = learner.fit(X[train], noisy[train]).predict(X[held_out])
    print(f"F1 of cleanlab: {f1_score(clean, predicted):.2f}")

# %%
# And a metric that needs no clean labels
# ---------------------------------------
# Where clean labels are not known, the significance still is, and so is an F1 that is corrected for the noise.
print(excess.count_selected(noisy, ours, alpha=alpha))
print(f"corrected F1: {excess.corrected_f1_score(noisy, ours, p_plus=p_plus, p_minus=p_minus):.2f}")
