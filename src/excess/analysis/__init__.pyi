from .application import Applied, apply
from .demo import run_demo, simulate_files
from .description import describe_file
from .models import MODELS, make_model
from .run_folder import Run, prepare_folder, read_run
from .source_search import Observation, observe, observe_several, search, stack
from .training import TrainedModel, check_model_path, load_model, train, train_in_chunks

__all__ = [
    "MODELS",
    "Applied",
    "Observation",
    "Run",
    "TrainedModel",
    "apply",
    "check_model_path",
    "describe_file",
    "load_model",
    "make_model",
    "observe",
    "observe_several",
    "prepare_folder",
    "read_run",
    "run_demo",
    "search",
    "simulate_files",
    "stack",
    "train",
    "train_in_chunks",
]
