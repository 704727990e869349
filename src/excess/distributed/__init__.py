"""The same forest at any size: fitted on chunks, out of core, in processes, or on a Dask cluster, bit for bit."""

from excess.distributed.executors import Executor, InProcess, Joblib
from excess.distributed.fit import fit_forest
from excess.distributed.sources import EventFiles, ObservedFiles, Partition

__all__ = ["EventFiles", "Executor", "InProcess", "Joblib", "ObservedFiles", "Partition", "fit_forest"]
