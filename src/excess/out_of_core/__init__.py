"""The same forest at any size: fitted on chunks, out of core, or on a Dask cluster, bit for bit."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
