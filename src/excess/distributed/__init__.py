"""The same forest at any size: fitted on chunks, out of core, in processes, or on a Dask cluster, bit for bit."""

from excess.analysis.training import TrainedOnFiles, train_on_files
from excess.analysis.workers import apply_to_files
from excess.distributed.dask_executor import Dask
from excess.distributed.executors import DistributedError, Executor, InProcess, Joblib
from excess.distributed.fit import fit_forest
from excess.distributed.sources import EventFiles, ObservedFiles, Partition

__all__ = [
    "Dask",
    "DistributedError",
    "EventFiles",
    "Executor",
    "InProcess",
    "Joblib",
    "ObservedFiles",
    "Partition",
    "TrainedOnFiles",
    "apply_to_files",
    "fit_forest",
    "train_on_files",
]
