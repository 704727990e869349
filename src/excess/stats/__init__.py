"""Statistics of On and Off counts and of scores; public names are exported by `excess`."""

from excess.stats._significance import EventFraction, event_fraction

__all__ = ["EventFraction", "event_fraction"]
