"""
From event lists to flux points
===============================

A detection becomes a spectrum: every event is scored by a model that was not trained on its night, the effective area
of each run is corrected for the selection, and gammapy fits the spectrum of all nights. The observation is simulated
with instrument response functions that are generated here, so the true spectrum is known.
"""

# %%
# Simulated runs
# --------------
# A run is a FITS file of gamma-astro-data-formats with events, good time interval, effective area and energy
# dispersion. The effective area is that of all events inside the On region, before any separation of gammas from
# hadrons. Three image parameters separate them, better at high energies.
import tempfile
import warnings
from pathlib import Path

import astropy.units as u
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from astropy.coordinates import SkyCoord
from astropy.io import fits
from gammapy.irf import EffectiveAreaTable2D, EnergyDispersion2D
from gammapy.maps import MapAxis

SOURCE = SkyCoord(83.6333, 22.0133, unit="deg")
INDEX, AMPLITUDE = 2.6, 3.45e-11  # of the true spectrum, at 1 TeV in 1 / (cm2 s TeV)
RADIUS = 0.1581  # of the On region in deg
LOWEST, HIGHEST = 0.3, 50.0  # true energies in TeV
SECONDS, BACKGROUND = 1680.0, 0.1  # duration of a run; background events per second and region
OFFSET, FIELD = 0.5, 1.0  # deg


def effective_area(energy):
    """Return the effective area in m2."""
    return 3e4 * energy**0.3 / (1 + (0.6 / energy) ** 3)


def draw_energies(index, number, rng):
    """Return energies of a power law in TeV."""
    low, high = LOWEST ** (1 - index), HIGHEST ** (1 - index)
    return (low + rng.random(number) * (high - low)) ** (1 / (1 - index))


def draw_features(energy, is_gamma, rng):
    """Return image parameters."""
    shift = np.where(is_gamma, 0.0, 0.8 + 0.5 * np.log10(energy / 0.5))
    width = np.where(is_gamma, 1.0, 1.4)
    places = {"MSW": 1.6, "MSL": 1.2, "DEPTH": -1.0}
    return {name: place * shift + width * rng.normal(size=len(energy)) for name, place in places.items()}


def responses():
    """Return the tables of effective area and energy dispersion."""
    true = MapAxis.from_energy_bounds(0.2, 60, 40, unit="TeV", name="energy_true")
    offset = MapAxis.from_edges([0, 1, 2], unit="deg", name="offset")
    ratio = MapAxis.from_bounds(0.2, 2.2, 100, name="migra")
    area = np.repeat(effective_area(true.center.to_value("TeV"))[:, None], 2, axis=1)
    edisp = EnergyDispersion2D.from_gauss(true, ratio, offset, bias=0, sigma=0.15, pdf_threshold=0)
    for kind in (EffectiveAreaTable2D([true, offset], data=area, unit="m2", is_pointlike=True), edisp):
        hdu = kind.to_table_hdu(format="gadf-dl3")
        hdu.header.update({"HDUCLAS3": "POINT-LIKE", "RAD_MAX": RADIUS})
        yield hdu


def write_run(path, number, night, rng, seconds):
    """Write a run that points 0.5 deg to the north or to the south of the source."""
    pointing = SOURCE.directional_offset_by(180 * (number % 2) * u.deg, OFFSET * u.deg)
    edges = np.geomspace(LOWEST, HIGHEST, 1001)
    middle = np.sqrt(edges[1:] * edges[:-1])
    expected = 1e4 * effective_area(middle) * AMPLITUDE * middle**-INDEX * np.diff(edges) * seconds
    n_gamma = rng.poisson(expected)
    energy = np.repeat(middle, n_gamma)
    n_hadron = rng.poisson(BACKGROUND * seconds * (FIELD / RADIUS) ** 2)
    energy = np.append(energy, draw_energies(2.7, n_hadron, rng))
    is_gamma = np.arange(len(energy)) < n_gamma.sum()
    # gammas come from the On region, with a flat profile; hadrons from all of the field of view
    distance = np.where(is_gamma, RADIUS, FIELD) * np.sqrt(rng.random(len(energy))) * 0.999
    angle = 2 * np.pi * rng.random(len(energy)) * u.rad
    place = [np.where(is_gamma, *pair) for pair in ((SOURCE.ra, pointing.ra), (SOURCE.dec, pointing.dec))]
    sky = SkyCoord(*place, unit="deg").directional_offset_by(angle, distance * u.deg)
    columns = {
        "EVENT_ID": np.arange(len(energy)),
        "TIME": np.sort(rng.uniform(0, seconds, len(energy))) + 86400 * night + 2000 * number,
        "RA": sky.ra.deg,
        "DEC": sky.dec.deg,
        "ENERGY": energy * rng.normal(1, 0.15, len(energy)).clip(0.3),
        **draw_features(energy, is_gamma, rng),
    }
    units = {"TIME": "s", "RA": "deg", "DEC": "deg", "ENERGY": "TeV"}
    forms = [("K" if name == "EVENT_ID" else "D", name, values) for name, values in columns.items()]
    events = fits.BinTableHDU.from_columns(
        [fits.Column(name, form, unit=units.get(name), array=values) for form, name, values in forms], name="EVENTS"
    )
    start = 86400.0 * night + 2000 * number
    times = [fits.Column(name, "D", unit="s", array=[at]) for name, at in (("START", start), ("STOP", start + seconds))]
    gti = fits.BinTableHDU.from_columns(times, name="GTI")
    about = {"HDUCLASS": "GADF", "OBS_ID": 100 + number, "OBJECT": "Crab Nebula", "RADECSYS": "ICRS", "EQUINOX": 2000.0}
    about |= {"RA_PNT": pointing.ra.deg, "DEC_PNT": pointing.dec.deg, "ALT_PNT": 70.0, "AZ_PNT": 180.0}
    about |= {"MJDREFI": 60000, "MJDREFF": 0.0, "TIMESYS": "TT", "TIMEUNIT": "s", "TIMEREF": "LOCAL", "DEADC": 1.0}
    about |= {"TSTART": start, "TSTOP": start + seconds, "ONTIME": seconds, "LIVETIME": seconds}
    about |= {"TELESCOP": "simulated", "INSTRUME": "simulated", "GEOLON": -17.89, "GEOLAT": 28.76, "ALTITUDE": 2200.0}
    events.header.update(about | {"HDUCLAS1": "EVENTS"})
    gti.header.update(about | {"HDUCLAS1": "GTI"})
    fits.HDUList([fits.PrimaryHDU(), events, gti, *responses()]).writeto(path)


def simulate(folder, seed, n_nights=6, runs_per_night=3, seconds=SECONDS):
    """Write the runs of several nights and simulated gammas; return the runs and the file of gammas."""
    rng = np.random.default_rng(seed)
    runs = []
    for number in range(n_nights * runs_per_night):
        runs.append(Path(folder, f"run_{100 + number}.fits"))
        write_run(runs[-1], number, number // runs_per_night, rng, seconds)
    energy = draw_energies(1.8, 30_000, rng)
    features = {name.lower(): own for name, own in draw_features(energy, np.True_, rng).items()}
    gammas = {"true_energy": energy, "energy": energy * rng.normal(1, 0.15, len(energy)).clip(0.3), **features}
    pd.DataFrame(gammas).to_parquet(Path(folder, "gammas.parquet"))
    return runs, Path(folder, "gammas.parquet")


folder = Path(tempfile.mkdtemp())
runs, gammas = simulate(folder, seed=1)
print(f"{len(runs)} runs in 6 nights, {sum(fits.getval(run, 'NAXIS2', 1) for run in runs):,} events")

# %%
# Detection, with scores of all events
# ------------------------------------
# On the command line: ``excess detect run_*.fits -c config.yaml -o detection --write-events scored``. Each night is
# held out in turn, so every event is scored by a model that was not trained on its night. The reconstructed energy is
# not a feature: a selection that depends on it changes the energy dispersion, for which there is no correction.
from excess.analysis import detect, efficiency
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset

config = AnalysisConfig(
    features=["msw", "msl", "depth"],
    derived_features={},
    quality_cuts=[],
    groups="night",
    regions={"theta_squared_cut": RADIUS**2},
)
position = (SOURCE.ra.deg, SOURCE.dec.deg)
observation = OnOffDataset.from_files(runs, config, source=position)
found = detect(observation, "forest", null_tests=False, keep_models=True, seed=0)
print(found.detections["forest"].counts)
scored = [one.path for one in found.write_events(folder / "scored").values()]

# %%
# Efficiency, and effective areas of the selection
# ------------------------------------------------
# On the command line: ``excess efficiency detection gammas.parquet -o selected --aeff scored/run_100.fits --aeff ...``.
# Each fold has its own model, threshold and efficiency. A copy of a run contains the events that the model of its fold
# selects, and the effective area times the efficiency of that model.
cut = efficiency(found.fold_models, gammas)
print([f"{one.mean().value:.3f}" for one in cut.folds])
(folder / "selected").mkdir()
selected = [cut.correct_effective_area(run, folder / "selected") for run in scored]
cut.plot()
plt.show()

# %%
# Spectrum
# --------
# gammapy counts events in the On region and in reflected regions, adds the runs, and fits a power law.
from gammapy.data import DataStore
from gammapy.datasets import Datasets, SpectrumDataset
from gammapy.estimators import FluxPointsEstimator
from gammapy.makers import ReflectedRegionsBackgroundMaker, SpectrumDatasetMaker
from gammapy.maps import RegionGeom
from gammapy.modeling import Fit
from gammapy.modeling.models import PowerLawSpectralModel, SkyModel
from regions import CircleSkyRegion


def reduce_runs(files, name):
    """Return counts, background and response of several runs as one dataset."""
    energy = MapAxis.from_energy_bounds("0.5 TeV", "30 TeV", nbin=9)
    true = MapAxis.from_energy_bounds("0.3 TeV", "50 TeV", nbin=30, name="energy_true")
    geometry = RegionGeom.create(CircleSkyRegion(SOURCE, RADIUS * u.deg), axes=[energy])
    empty = SpectrumDataset.create(geometry, energy_axis_true=true)
    maker = SpectrumDatasetMaker(selection=["counts", "exposure", "edisp"])
    background = ReflectedRegionsBackgroundMaker()
    reduced = Datasets()
    for observation in DataStore.from_events_files(files).get_observations(required_irf=["aeff", "edisp"]):
        dataset = maker.run(empty.copy(name=str(observation.obs_id)), observation)
        reduced.append(background.run(dataset, observation))
    return reduced.stack_reduce(name=name)


def fit_spectrum(datasets):
    """Return a power law that is fitted to one or several datasets."""
    law = PowerLawSpectralModel(index=2.3, amplitude="1e-11 cm-2 s-1 TeV-1", reference="1 TeV")
    datasets.models = [SkyModel(spectral_model=law, name="source")]
    Fit().run(datasets)
    return law


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of gammapy and astropy about header keywords
    datasets = Datasets([reduce_runs(selected, "selected")])
    law = fit_spectrum(datasets)
    print(datasets[0].info_dict()["sqrt_ts"])
for parameter, truth in ((law.index, INDEX), (law.amplitude, AMPLITUDE)):
    print(f"{parameter.name}: {parameter.value:.3g} +- {parameter.error:.2g}, true value {truth:.3g}")

# %%
# Flux points
# -----------
estimator = FluxPointsEstimator(energy_edges=np.geomspace(0.5, 30, 7) * u.TeV, source="source", selection_optional=[])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    points = estimator.run(datasets)
fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
bounds = [0.4, 40] * u.TeV
points.plot(ax=axes, sed_type="e2dnde", label="flux points")
law.plot(bounds, ax=axes, sed_type="e2dnde", label="fitted power law")
law.plot_error(bounds, ax=axes, sed_type="e2dnde")
true_law = PowerLawSpectralModel(index=INDEX, amplitude=AMPLITUDE * u.Unit("cm-2 s-1 TeV-1"), reference="1 TeV")
true_law.plot(bounds, ax=axes, sed_type="e2dnde", label="true spectrum", ls="--", color="black")
axes.legend()
plt.show()

# %%
# Event types
# -----------
# Instead of one cut, events can be divided into types by their probability of signal, each with its own effective
# area: ``excess efficiency ... --event-types 4``. The types are quantiles of the simulated gammas, the most signal-like
# first, with the events of each in a folder of its own. gammapy fits all types jointly, so each counts with its own
# background.
types = efficiency(found.fold_models, gammas, event_types=4)
(folder / "types").mkdir()
for run in scored:
    types.correct_effective_area(run, folder / "types")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    joint = Datasets(
        [reduce_runs(sorted((folder / "types" / f"type_{n}").glob("*.fits")), f"type {n}") for n in range(1, 5)]
    )
    by_type = fit_spectrum(joint)
for name in ("index", "amplitude"):
    one, several = (own.parameters[name] for own in (law, by_type))
    print(f"{name}: {several.value:.3g} +- {several.error:.2g} by types, +- {one.error:.2g} by one cut")
