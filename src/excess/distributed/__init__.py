"""The same forest at any size: fitted on chunks, out of core, or on a Dask cluster, bit for bit."""

from excess.distributed.dask_executor import Dask
from excess.distributed.executors import DistributedError, Executor, InProcess
from excess.distributed.fit import fit_forest
from excess.distributed.sources import EventFiles, ObservedFiles, Partition

__all__ = [
    "Dask",
    "DistributedError",
    "EventFiles",
    "Executor",
    "InProcess",
    "ObservedFiles",
    "Partition",
    "fit_forest",
]
