"""The same forest at any size: fitted on chunks, out of core, or on a Dask cluster, bit for bit."""

from excess.out_of_core._events import EventFiles, ObservedFiles
from excess.out_of_core._executors import Dask, DistributedError, Executor, InProcess, open_executor
from excess.out_of_core._fit import fit_forest

__all__ = [
    "Dask",
    "DistributedError",
    "EventFiles",
    "Executor",
    "InProcess",
    "ObservedFiles",
    "fit_forest",
    "open_executor",
]
