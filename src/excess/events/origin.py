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

# The names of other telescopes, as `_plain` writes them: lower case, with underscores, without units.
_PLAIN_RULES = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"(.*_)?(theta|theta_?2|theta_?sq(uared)?|sep|separation|ang(ular)?_(sep|separation|dist|distance))"
            r"(_(on|off))?(_?\d+)?|dist(_off)?",
            "it is the distance to the source or to an Off region",
        ),
        (r"(.*_)?src_?[xy]|(.*_)?expected_src_.*|(.*_)?source(_?[xy])?", "it is a position of the source"),
        (
            r"x|y|r|phi|(.*_)?(cog|centroid|mean|hillas|cam|camera|img|image|disp_?d|direction|dir|det|fov|tel)_?[xy]|"
            r"(.*_)?[xy]_?(cog|centroid|cam|camera|off|offset|derot|off_derot|max)|f?mean_?[xy]|(.*_)?(cog|hillas)_(r|phi)",
            "it is a position in the camera",
        ),
        (
            r"(.*_)?(fov_?)?(altaz_|radec_)?(lon|lat|offset|xoff|yoff)(_.*)?|(.*_)?camera_?distance|"
            r"(.*_)?offset_?angle|(.*_)?off_?axis(_.*)?",
            "it is a position in the field of view",
        ),
        (
            r"(.*_)?(alt|az|zd|ze|el|ra|dec|altitude|azimuth|zenith|elevation|airmass|hour_?angle|parallactic)"
            r"(_(tel|telescope|angle|mean|reco|rec|off|on|j2000|corr|pnt|point|pointing|array|prediction|err))?(_?\d+)?|"
            r"(sin|cos|tan|sec)_?(alt|az|zd|ze|zenith|azimuth|ra|dec)(_.*)?|(.*_)?(glon|glat|gal_?[lb])",
            "it is a direction on the sky, or the pointing",
        ),
        (
            r"(dragon|ucts|tib|trigger|event|gps|utc|unix|tai|abs|absolute|start|stop|local|cam|telescope|obs|run|"
            r"central_trigger)_?(time|timestamp|sec|seconds|ns|nanosec|date)(_.*)?|"
            r"(.*_)?(mjd|jd|gps_?(time|sec|nsec)|timestamp|date|datetime|millisec|unix_?time)(_.*)?|times?|delta_?t|"
            r"time_difference|time_diff",
            "it says when or what was observed",
        ),
        (
            r"(.*_)?(event|run|obs|observation|shower|subrun|tel|telescope|file|night|dragon)_?(id|no|nr|num|number|counter)|"
            r"subrun|(.*_)?(ucts|tib|dragon|event|trigger)_?counter|sequence|(.*_)?day|wobble.*|source_name|target",
            "it identifies the event or the run",
        ),
        (
            r"(.*_)?(gammaness|hadronness|gamma_?score|bdt_?(score|response)?|msc|is_gamma)|.*_tel_prediction",
            _OF_CLASSIFIER,
        ),
    )
)
_STATISTIC = re.compile(r"_(mean|min|max|std|sum)$")
"""What the names of statistics of a shower's images end with."""
_UNIT = re.compile(r"_(deg|degree|degrees|rad|radian|radians|mm|cm|m|km|arcmin|arcsec|h|hours?|s|ns|sec|camera_frame)$")


def origin_of(name: str, *, is_reference: bool = False) -> str | None:
    """Return why a column encodes where an event came from, None if it does not.

    Who names a column as a reference says that it is the output of a classifier, and that this one does not know.

    Examples
    --------
    >>> from excess.events.origin import origin_of
    >>> origin_of("zenithAngle")
    'it is a direction on the sky, or the pointing'
    >>> origin_of("hillas_x_mean")
    'it is a position in the camera'
    >>> origin_of("width") is None
    True
    """
    spellings = dict.fromkeys((name, _STATISTIC.sub("", name)))
    matches = [reason for pattern, reason in _RULES if any(map(pattern.fullmatch, spellings))]
    plain = [one for spelling in spellings for one in _plain(spelling)]
    matches += [reason for pattern, reason in _PLAIN_RULES if any(map(pattern.fullmatch, plain))]
    if not matches or (is_reference and matches[0] == _OF_CLASSIFIER):
        return None
    return matches[0]


def _plain(name: str) -> tuple[str, str]:
    """Return a name in lower case with underscores between its words, and the same without a unit at its end."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace(".", "_").replace("-", "_")).lower()
    # the prefix of members in MARS, and of branches in other frameworks
    words = re.sub(r"^(f|rec|mhillas|mhillassrc|mpointingpos|mtime)_+", "", words)
    return words, _UNIT.sub("", words)
