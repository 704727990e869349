"""Detection: cross-validation, null tests and verdicts; public names are exported by `excess`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
