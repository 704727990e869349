"""Names of FACT's columns: older spellings and the current ones."""

from __future__ import annotations

import math
import re

__all__ = ["DEGREES_PER_MM", "canonical_name"]

FOCAL_LENGTH_MM = 4889.0
DEGREES_PER_MM = math.degrees(1 / FOCAL_LENGTH_MM)
"""Older files hold theta in mm in the camera plane; this is the small-angle conversion."""

# COGx, COGy and Delta keep their names: the camera's axes were another, by 90 degrees.
_EXACT = {
    "NIGHT": "night",
    "RUNID": "run_id",
    "EventNum": "event_num",
    "TriggerType": "trigger_type",
    "NPIX": "num_pixel",
    "NROI": "roi",
    "Size": "size",
    "Width": "width",
    "Length": "length",
    "Leakage": "leakage1",
    "Leakage2": "leakage2",
    "ConcCore": "concentration_core",
    "concCOG": "concentration_cog",
    "Concentration_onePixel": "concentration_one_pixel",
    "Concentration_twoPixel": "concentration_two_pixel",
    # These were divided by powers of length and width, unlike the current m3_long, ....
    "M3Long": "skewness_long",
    "M3Trans": "skewness_trans",
    "M4Long": "kurtosis_long",
    "M4Trans": "kurtosis_trans",
    "numIslands": "num_islands",
    "numPixelInShower": "num_pixel_in_shower",
    "numPixelInPedestal": "num_pixel_in_pedestal",
    "Timespread": "timespread",
    "Timespread_weighted": "timespread_weighted",
    "Slope_long": "slope_long",
    "Slope_trans": "slope_trans",
    "Slope_spread": "slope_spread",
    "Slope_spread_weighted": "slope_spread_weighted",
    "pedestalSize": "pedestal_size",
    "pedestalTimespread": "pedestal_timespread",
    "arrivalTimeMean": "arrival_time_mean",
    "photonchargeMean": "photoncharge_mean",
    "AzPointing": "pointing_position_az",
    "ZdPointing": "pointing_position_zd",
    "AzSourceCalc": "source_position_az",
    "ZdSourceCalc": "source_position_zd",
    "signal_prediction": "gamma_prediction",
    "energy_prediction": "gamma_energy_prediction",
    "energy_prediction_std": "gamma_energy_prediction_std",
}

_PATTERNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"Theta(?:_Off_(\d+))?", "theta_deg"),
        (r"Alpha(?:_Off_(\d+))?", "alpha"),
        (r"Distance(?:_Off_(\d+))?", "distance"),
        (r"CosDeltaAlpha(?:_Off_(\d+))?", "cos_delta_alpha"),
        (r"background_prediction_(\d+)", "gamma_prediction"),
    )
)

_PREFIXES = {
    "phChargeShower_": "photoncharge_shower_",
    "phChargePedestal_": "photoncharge_pedestal_",
    "arrTimeShower_": "arrival_time_shower_",
    "arrTimePedestal_": "arrival_time_pedestal_",
    "maxSlopesShower_": "max_slopes_shower_",
    "maxSlopesPedestal_": "max_slopes_pedestal_",
}


def canonical_name(name: str) -> tuple[str, float | None]:
    """Return the current name of a column, and what to multiply its values by (None: nothing)."""
    if name in _EXACT:
        return _EXACT[name], None
    for pattern, replacement in _PATTERNS:
        if match := pattern.fullmatch(name):
            off = f"_off_{match[1]}" if match[1] else ""
            return replacement + off, DEGREES_PER_MM if replacement == "theta_deg" else None
    for prefix, replacement in _PREFIXES.items():
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix), None
    return name, None
