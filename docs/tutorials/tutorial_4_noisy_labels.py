"""
Noisy labels: a rare class, and a comparison with cleanlab
==========================================================

Any binary problem with class-conditional label noise is an On/Off problem, if the noise rate of the background is
known. Here the events are the 1,797 handwritten digits of scikit-learn, and one digit, 10 % of the set, is the positive
class. A tenth of the positive labels and half of the negative labels are wrong, so the
labels contain little information.
"""

# %%
# The data and the noise
# ----------------------
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

import excess

X, digit = load_digits(return_X_y=True)
clean = (digit == 3).astype(int)
p_plus, p_minus = 0.1, 0.5
noisy = excess.inject_label_noise(clean, p_plus=p_plus, p_minus=p_minus, random_state=0)
print(f"{clean.sum()} of {len(clean)} are positive; {noisy.sum()} are labelled positive")

# %%
# Exposure ratio from the noise rate of the background
# ----------------------------------------------------
alpha = excess.alpha_from_p_minus(p_minus)
print(f"alpha = {alpha:g}")
train, held_out = train_test_split(np.arange(len(X)), test_size=0.3, stratify=noisy, random_state=0)
forest = excess.OnOffForestClassifier(alpha=alpha, random_state=0, n_jobs=2).fit(X[train], noisy[train])
ours = forest.predict(X[held_out])
print(f"F1 against the clean labels of {len(held_out):,} hold-out images: {f1_score(clean[held_out], ours):.2f}")

# %%
# A forest without a model of the noise
# -------------------------------------
from sklearn.ensemble import RandomForestClassifier

naive = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=2).fit(X[train], noisy[train])
print(f"F1 at a probability of 0.5: {f1_score(clean[held_out], naive.predict(X[held_out])):.2f}")

# %%
# cleanlab: find wrong labels, remove them, and train again
# ---------------------------------------------------------
# cleanlab estimates both noise rates itself, from out-of-fold probabilities, and needs no ``alpha``. It is made for
# labels that are mostly correct; here half of the background labels are wrong.
try:
    from cleanlab.classification import CleanLearning
except ImportError:
    print("cleanlab is not installed")
else:
    learner = CleanLearning(
        RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=2), cv_n_folds=3, seed=0
    )
    learner.fit(X[train], noisy[train])
    print(f"F1 of cleanlab: {f1_score(clean[held_out], learner.predict(X[held_out])):.2f}")

# %%
# Evaluation without clean labels
# -------------------------------
# The significance does not require clean labels: it compares the number of selected images with a positive label with
# the number expected from noise.
print(excess.count_selected(noisy[held_out], ours, alpha=alpha))
