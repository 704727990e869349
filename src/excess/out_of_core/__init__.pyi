from ._events import EventFiles as EventFiles
from ._events import ObservedFiles as ObservedFiles
from ._executors import Dask as Dask
from ._executors import DistributedError as DistributedError
from ._executors import Executor as Executor
from ._executors import InProcess as InProcess
from ._executors import open_executor as open_executor
from ._fit import fit_forest as fit_forest
