from ._apply import Applied, FoldModels, TrainedModel, apply, check_application, export, load_model, load_models
from ._detect import OnOffDataset, demo, detect, split_references
from ._efficiency import Efficiency, claim_efficiency_folder, efficiency
from ._info import (
    Proposal,
    check_exclusion,
    check_input,
    config_of,
    count_on_off,
    info,
    init,
    listed_files,
    make_intervals,
    propose_config,
    propose_listed,
    simulate,
)
from ._models import MODELS, make_model
from ._results import Run, claim_run_folder, read_run, report
from ._scan import Scan, scan
from ._train import check_chunked_model, check_model_path, train, train_in_chunks

__all__ = [
    "MODELS",
    "Applied",
    "Efficiency",
    "FoldModels",
    "OnOffDataset",
    "Proposal",
    "Run",
    "Scan",
    "TrainedModel",
    "apply",
    "check_application",
    "check_chunked_model",
    "check_exclusion",
    "check_input",
    "check_model_path",
    "claim_efficiency_folder",
    "claim_run_folder",
    "config_of",
    "count_on_off",
    "demo",
    "detect",
    "efficiency",
    "export",
    "info",
    "init",
    "listed_files",
    "load_model",
    "load_models",
    "make_intervals",
    "make_model",
    "propose_config",
    "propose_listed",
    "read_run",
    "report",
    "scan",
    "simulate",
    "split_references",
    "train",
    "train_in_chunks",
]
