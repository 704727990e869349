"""Observations: On and Off regions, exposure ratio, groups and features of events; simulated observations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
