from .application import Applied, apply
from .demo import run_demo, simulate_files
from .description import count_on_off, describe_file
from .gamma_counting import efficiency
from .gamma_efficiency import Efficiency, claim_efficiency_folder
from .initial_config import (
    Proposal,
    check_exclusion,
    check_input,
    config_of,
    propose_config,
    propose_listed,
    write_config,
)
from .models import MODELS, make_model
from .output_paths import (
    check_model_path,
    check_outputs,
    check_report_path,
    claim_run_folder,
    listed_files,
    prepare_folder,
)
from .references import split_references
from .run_folder import Run
from .run_reading import read_run
from .source_search import Observation, observe, observe_several, search, stack
from .trained_model import TrainedModel, load_model
from .training import check_chunked_model, train, train_in_chunks

__all__ = [
    "MODELS",
    "Applied",
    "Efficiency",
    "Observation",
    "Proposal",
    "Run",
    "TrainedModel",
    "apply",
    "check_chunked_model",
    "check_exclusion",
    "check_input",
    "check_model_path",
    "check_outputs",
    "check_report_path",
    "claim_efficiency_folder",
    "claim_run_folder",
    "config_of",
    "count_on_off",
    "describe_file",
    "efficiency",
    "listed_files",
    "load_model",
    "make_model",
    "observe",
    "observe_several",
    "prepare_folder",
    "propose_config",
    "propose_listed",
    "read_run",
    "run_demo",
    "search",
    "simulate_files",
    "split_references",
    "stack",
    "train",
    "train_in_chunks",
    "write_config",
]
