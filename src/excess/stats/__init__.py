"""Statistics of On and Off counts and of scores; `excess` has the public names that are not listed here."""

from excess.stats._significance import EventFraction, event_fraction

__all__ = ["EventFraction", "event_fraction"]
