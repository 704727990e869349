"""
A pulsar in Fermi-LAT data, from phases alone
=============================================

PSR J0030+0451 emits gamma rays in two peaks of its period of 4.9 ms. Photons in the peaks are On, photons between them
are Off. Both come from the same part of the sky, so the angle to the pulsar and the energy are ordinary features, and a
classifier learns from the phases alone how photons of the pulsar differ from others. No model of the sky or of spectra
is involved.

The data are 6,973 photons as a FITS file, ``pulsar/j0030_fermi_photons.fits``. Set the environment variable
``EXCESS_DATA`` to the folder that contains ``pulsar``.
"""

# %%
# On and Off are intervals of phase
# ---------------------------------
# Intervals of a column whose name ends with ``phase`` wrap at 1. The exposure ratio is the ratio of their widths.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

import excess
from excess.io import read_events

path = Path(os.environ["EXCESS_DATA"], "pulsar", "j0030_fermi_photons.fits")
observation = excess.OnOffDataset.from_files(
    path,
    on="PULSE_PHASE 0.15:0.2,0.55:0.65",
    off="PULSE_PHASE 0.7:1.1",
    source=(7.6143, 4.8610),
    features=["energy", "source_angle", "conversion_type", "theta"],
)
print(observation)

# %%
# The feature ``source_angle`` is the distance to the source in degrees; ``theta`` is the inclination of the photon in
# the instrument. On the command line the same analysis is
#
# .. code-block:: bash
#
#    excess detect j0030_fermi_photons.fits --on "PULSE_PHASE 0.15:0.2,0.55:0.65" --off "PULSE_PHASE 0.7:1.1" \
#        --source "7.6143 4.8610" --features energy,source_angle,conversion_type,theta -o pulsar

# %%
# Significance of cross-validated photons
# ---------------------------------------
# Each photon has a likelihood ratio from a forest that was not trained on it.
forest = excess.OnOffForestClassifier(random_state=0)
detection = excess.cross_val_detect(forest, observation.X, observation.on, alpha=observation.alpha, random_state=0)
print(f"without a cut: {detection.uncut.significance:.1f} sigma")
print(f"likelihood:    {detection.likelihood.significance:.1f} sigma")
print(f"forward:       {detection.forward.significance:.1f} sigma, the value to quote")

# %%
# Compared with published weights
# -------------------------------
# The file also contains the probability of each photon to come from the pulsar, as published. It was computed
# from a model of the sky and the spectra of all sources in it, and is no feature here. The file contains only photons
# with a weight above 0.4, so no part of it is free of the pulsar. The exposure ratio of phases is exact, so the verdict
# does not compare it with background-like events.
photons = read_events(path)
weight = photons["psrj0030+0451"].to_numpy(dtype=float)[observation.table["row"]]
published = excess.on_off_likelihood(observation.on, weight / (1 - weight), observation.alpha)
print(f"published weights: {published.significance:.1f} sigma")
print(f"rank correlation of learned ratios and weights: {spearmanr(detection.ratio, weight).statistic:.2f}")

# %%
# The pulse profile
# -----------------
phase = photons["pulse_phase"].to_numpy()
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.hist(phase, np.linspace(0, 1, 51), color="0.6")
for color, intervals in {"tab:red": ((0.15, 0.2), (0.55, 0.65)), "tab:blue": ((0.7, 1.0), (0.0, 0.1))}.items():
    for low, high in intervals:
        left.axvspan(low, high, color=color, alpha=0.15, lw=0)
left.set(xlabel="pulse phase", ylabel="photons", title="On (red) and Off (blue)")
energy, angle = (observation.X[:, observation.names.index(name)] for name in ("energy", "source_angle"))
points = right.scatter(energy, angle, c=np.log10(np.maximum(detection.ratio, 1e-2)), s=3)
right.set(xscale="log", xlabel="energy / MeV", ylabel="angle to the pulsar / deg", title="learned ratio")
fig.colorbar(points, ax=right, label="log10 of the likelihood ratio")
plt.show()
