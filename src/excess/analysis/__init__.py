"""What a command does, as a library: observe, search, train and apply, and the folder of a run."""

import lazy_loader

# names are imported when they are first used; ``__init__.pyi`` says where from
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
