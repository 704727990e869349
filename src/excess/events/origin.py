"""Columns that encode where an event came from, which a model must not be trained on.

On and Off events differ by their position alone. A feature that encodes the position separates the two without
learning anything about the source.
"""

from __future__ import annotations

import re

__all__ = ["origin_of"]

_OF_CLASSIFIER = "it is the output of a classifier, which may know the position"

_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r".*_off_\d+", "it refers to an Off region"),
        (r"theta.*", "it is the distance to the source or to an Off region"),
        (r"alpha|distance|cos_?delta_?alpha", "it is measured relative to the source"),
        (r"(.*_)?source_.*|.*sourcecalc", "it is a position of the source"),
        (r"(.*_)?cog_?[xy]", "it is a position in the camera"),
        (r"(.*_)?hillas_(x|y|r|phi|fov_lon|fov_lat)", "it is a position in the camera"),
        (r"det[xy]|(.*_)?fov_(lon|lat|x|y|offset)|offset|incident_angle", "it is a position in the field of view"),
        (r"(.*_)?(pointing|tracking)(_.*)?|(az|zd|ra|dec)(pointing|tracking)", "it is the pointing"),
        (
            r"(.*_)?(ra|dec|alt|az|zd|glon|glat|altitude|azimuth|zenith|right_ascension|declination)(_prediction)?",
            "it is a direction on the sky",
        ),
        (
            r"gamma_prediction.*|(.*_)?(gammaness|score|signal_probability|selected)|"
            r"(signal|background)_prediction.*|.*classifier_prediction",
            _OF_CLASSIFIER,
        ),
        (r"region|on|off|is_on|is_off|is_signal|is_gamma|signal|label|truth", "it is a label"),
        (r"(true|mc|corsika|ceres)_.*|runtype", "it is the truth of a simulation"),
        (r"night|runid|eventnum|index|(run|event|obs|observation)(_?(id|num|number))?", "it identifies the event"),
        (r"(.*_)?(timestamp|mjd|date|date_obs)|time|unix_?time.*|object", "it says when or what was observed"),
        (r"livetime|ontime", "it is a property of the run"),
    )
)


def origin_of(name: str, *, is_reference: bool = False) -> str | None:
    """Return why a column encodes where an event came from, None if it does not.

    Who names a column as a reference says that it is the output of a classifier, and that this one does not know.
    """
    reason = next((reason for pattern, reason in _RULES if pattern.fullmatch(name)), None)
    return None if is_reference and reason == _OF_CLASSIFIER else reason
