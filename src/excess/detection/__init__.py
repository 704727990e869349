"""Detection: cross-validation, null tests, verdicts; `excess` has the public names that are not listed here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
