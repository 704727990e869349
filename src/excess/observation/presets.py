"""Presets: what analyses of a telescope usually take as features, cuts and regions, found by the content of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from excess.events import AnalysisConfig
from excess.observation.inspection import Inspection

__all__ = ["PRESETS", "Preset", "find_preset"]


def _always(found: Inspection) -> bool:
    return True


@dataclass(frozen=True)
class Preset:
    """What is usual for the files of a telescope or of an analysis chain.

    Attributes
    ----------
    name : str
        What the files are called.
    matches : callable
        Says of an `Inspection` whether the files are of this kind.
    features : tuple of str
        Patterns of columns to learn from, ``*`` and ``?`` included; none means all columns that may be features.
    left_out : tuple of str
        Patterns of columns that are not taken although ``features`` has them.
    derived_features : mapping of str to str
        Further features; those whose columns are not there are left out.
    quality_cuts : tuple of str
        Conditions; those whose columns are not there are left out.
    theta_squared_cut : float
        Largest squared distance to the centre of a region, in deg^2.
    n_regions : int
        On region and Off regions; fewer where they would overlap.
    method : str
        Where Off is, as ``regions.method`` of a configuration has it.
    fixed : bool
        Features and cuts are taken as they are, without a look at the events.
    """

    name: str
    matches: Callable[[Inspection], bool] = _always
    features: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    derived_features: dict[str, str] = field(default_factory=dict)
    quality_cuts: tuple[str, ...] = ()
    theta_squared_cut: float = 0.025
    n_regions: int = 6
    method: str = "auto"
    fixed: bool = False

    def prefers(self, column: str) -> bool:
        """Say whether a column is among the usual features.

        Examples
        --------
        >>> from excess.observation.presets import PRESETS
        >>> PRESETS["ctapipe"].prefers("hillas_width"), PRESETS["ctapipe"].prefers("tel_id")
        (True, False)
        """
        return _matches(column, self.features) and not _matches(column, self.left_out)


def _matches(column: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(column, pattern) for pattern in patterns)


def _is_fact_dl2(found: Inspection) -> bool:
    return set(AnalysisConfig().columns_needed()) <= set(found.columns)


def _has_fact_features(found: Inspection) -> bool:
    needed = set(AnalysisConfig().columns_needed())
    return found.format.startswith("FACT") and len(needed & set(found.columns)) > len(needed) / 2


def _is_fact_dl3(found: Inspection) -> bool:
    return {"gamma_prediction", "theta_deg"} <= set(found.columns)


def _is_lstchain(found: Inspection) -> bool:
    return found.format.startswith("lstchain") or {"intensity", "wl", "time_gradient"} <= set(found.columns)


def _is_ctapipe(found: Inspection) -> bool:
    return found.format.startswith("ctapipe")


def _is_hawc(found: Inspection) -> bool:
    return found.telescope == "HAWC" or {"rec.nHit", "rec.PINC"} <= set(found.columns)


def _dl3_of(*telescopes: str) -> Callable[[Inspection], bool]:
    """Return what says whether files are event lists of a telescope."""
    return lambda found: found.format.startswith("FITS") and found.telescope in telescopes


_DEFAULT = AnalysisConfig()
_LSTCHAIN = (
    "intensity",
    "log_intensity",
    "width",
    "length",
    "wl",
    "skewness",
    "kurtosis",
    "time_gradient",
    "signed_skewness",
    "signed_time_gradient",
    "leakage_*",
    "concentration_*",
    "n_pixels",
    "n_islands",
    "reco_energy",
    "log_reco_energy",
    "reco_disp_norm",
)
_CTAPIPE = (
    "*hillas_*",
    "*morphology_*",
    "*leakage_*",
    "*concentration_*",
    "*timing_*",
    "*intensity_*",
    "*peak_time_*",
    "*_h_max",
    "*_average_intensity",
    "*_energy",
    "*multiplicity*",
    "n_telescopes",
    "n_images",
)
# of the images of a shower, mean and standard deviation say most
_OF_IMAGES = tuple(
    f"{kind}_*_{statistic}"
    for kind in ("hillas", "morphology", "leakage", "concentration", "timing", "intensity", "peak_time")
    for statistic in ("min", "max")
)
_HAWC = (
    "rec.nHit*",
    "rec.nChTot",
    "rec.nChAvail",
    "rec.PINC",
    "rec.CxPE*",
    "rec.SFCFChi2",
    "rec.logNNEnergy*",
    "*energy*",
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "FACT DL2",
            _is_fact_dl2,
            _DEFAULT.features,
            derived_features=_DEFAULT.derived_features,
            quality_cuts=_DEFAULT.quality_cuts,
            theta_squared_cut=_DEFAULT.regions.theta_squared_cut,
            fixed=True,
        ),
        Preset(
            "FACT DL2 in part",
            _has_fact_features,
            _DEFAULT.features,
            derived_features=_DEFAULT.derived_features,
            quality_cuts=_DEFAULT.quality_cuts,
        ),
        Preset("FACT DL3", _is_fact_dl3, ("gamma_energy_prediction",)),
        Preset(
            "lstchain",
            _is_lstchain,
            _LSTCHAIN,
            # events of the sky have the type 32; others are for the calibration
            quality_cuts=("event_type == 32", "intensity > 50", "leakage_intensity_width_2 < 0.2", "wl > 0.01"),
            theta_squared_cut=0.04,
            n_regions=4,
        ),
        Preset("ctapipe", _is_ctapipe, _CTAPIPE, (*_OF_IMAGES, "*uncert*", "*_err*"), theta_squared_cut=0.02),
        Preset("HAWC", _is_hawc, _HAWC, theta_squared_cut=0.25, n_regions=6, method="same_declination"),
        Preset(
            "air-shower array event list",
            _dl3_of("LHAASO", "ARGO-YBJ"),
            theta_squared_cut=0.25,
            method="same_declination",
        ),
        Preset("FACT event list", _dl3_of("FACT")),
        Preset("MAGIC event list", _dl3_of("MAGIC"), theta_squared_cut=0.02, n_regions=6),
        Preset("H.E.S.S. event list", _dl3_of("H.E.S.S.", "HESS"), theta_squared_cut=0.0125, n_regions=8),
        Preset("VERITAS event list", _dl3_of("VERITAS"), theta_squared_cut=0.01, n_regions=8),
        Preset("LST-1 event list", _dl3_of("LST-1"), theta_squared_cut=0.04, n_regions=4),
        Preset("event list", lambda found: found.format.startswith("FITS")),
        Preset("any table"),
    )
}
"""Presets by name. The first that matches is taken; the last matches everything."""


def find_preset(found: Inspection) -> Preset:
    """Return the preset of files.

    Examples
    --------
    >>> from excess.observation.inspection import inspect_table
    >>> from excess.observation.presets import find_preset
    >>> from excess.observation.simulation import simulate_observation
    >>> find_preset(inspect_table(simulate_observation(1_000, 10, random_state=0))).name
    'FACT DL2'
    """
    return next(preset for preset in PRESETS.values() if preset.matches(found))
