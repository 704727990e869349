"""Commands as functions: observe, search, train and apply; and the folder of a run."""

import lazy_loader

# names are imported on first use; see ``__init__.pyi``
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
