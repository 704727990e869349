"""A run: everything a search found, and the folder it is written to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.errors import EventFileError
from excess._core.files import prepare_folder, replacing_together, undo_unfinished, write_text
from excess._core.locks import locked
from excess.analysis.output_paths import RUN_FILES, check_run_folder
from excess.analysis.run_histograms import HISTOGRAMS_FILE, write_histograms
from excess.analysis.run_nearby import NEARBY_FILE, write_nearby
from excess.analysis.run_record import as_json
from excess.analysis.run_tables import write_table
from excess.report import write_plots, write_report
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import STATISTICS, Outcome
from excess.validation.simulation_agreement import SimulationAgreement
from excess.validation.verdict import Verdict, judge_all

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run"]

_WRITING = ".writing.lock"


@dataclass(frozen=True, eq=False)
class Run:
    """Everything that a search found.

    Attributes
    ----------
    detections : mapping of str to Detection
        What each model found; the first is the one that the verdict is about.
    forward : mapping of str to Outcome
        Both statistics of hold-out events by models that were trained on earlier groups only, beside pooled detections.
    null_tests : mapping of str to NullTest
        What was found where there is no source.
    no_forward : str
        Why there are no forward values, if there are none.
    observed : dict
        How many events were read, cut away and kept.
    record : dict
        What the run was started with: title, command, seed, options, files with checksums, versions.
    config : str
        The configuration, as YAML.
    events : DataFrame
        One row per event: which event it is, its angles, region and group.
    simulation : SimulationAgreement or None
        Where simulated events differ from observed ones, if there was a simulation.

    See Also
    --------
    search : Makes one.
    read_run : Reads one from its folder.
    """

    detections: Mapping[str, Detection]
    forward: Mapping[str, Outcome]
    null_tests: Mapping[str, NullTest]
    no_forward: str
    observed: dict[str, Any]
    record: dict[str, Any]
    config: str
    events: pd.DataFrame = field(repr=False)
    simulation: SimulationAgreement | None = None

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off."""
        return float(self.observed["alpha"])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each model, with its forward value and the null tests; the first is that of the run."""
        return judge_all(self.detections, self.forward, self.null_tests)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first model, which was chosen before anything was seen."""
        return next(iter(self.verdicts.values()))

    def result(self) -> dict[str, Any]:
        """Return all numbers, as ``result.json`` holds them."""
        return {
            "observation": self.observed,
            "models": {name: self._model_result(name) for name in self.detections},
            "null_tests": {name: _null_result(test) for name, test in self.null_tests.items()},
            "no_forward": self.no_forward,
            "simulation": None if self.simulation is None else self.simulation.to_dict(),
            "run": self.record,
        }

    def _model_result(self, name: str) -> dict[str, Any]:
        found, forward = self.detections[name], self.forward.get(name)
        return {
            **found.summary(),
            "required_significance": found.required_significance,
            **self.verdicts[name].summary(),
            "forward": None if forward is None else _forward_result(forward),
            "tuned_alpha": [None if fold.tuned is None else fold.tuned.alpha for fold in found.folds],
            "repeats": {name: values.tolist() for name, values in found.repeats.items()},
            "permutations": {name: values.tolist() for name, values in found.permutations.items()},
            "importances": None if found.importances is None else found.importances.tolist(),
            "trust": _trust_result(found),
            "bins": None if found.bins is None else found.bins.to_dict(),
            **self._observations_result(found),
            "tuned_bins": [[tuned._asdict() for tuned in fold.bins] for fold in found.folds],
        }

    @staticmethod
    def _observations_result(found: Detection) -> dict[str, Any]:
        """Return the numbers of each observation; nothing unless there are several."""
        if len(found.outcomes_by_observation) < 2:
            return {}
        return {"observations": found.observations_frame().to_dict("index")}

    def write(self, folder: str | PathLike[str], *, report: bool = False, overwrite: bool = False) -> Path:
        """Write the run into a folder, all of it or nothing.

        ``result.json`` holds the numbers, versions, seed and checksums of the input; ``config.yaml`` the configuration;
        ``events.csv`` one row per event with score, selection and signal ratio by each model, and its exposure ratio
        where that differs; ``groups.csv``, ``folds.csv`` and, where there are several observations,
        ``observations.csv`` both statistics by group, fold and observation, ``bins.csv`` those of bins; ``nearby.npy``
        the events around the regions; ``histograms.json`` On and Off in every feature, and the map of the sky.
        ``result.json`` comes last: where it is, all is.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        report : bool, default=False
            Write ``report.html`` as well.
        overwrite : bool, default=False
            Replace a finished run, or other files of these names. Files that the run has read are never replaced.

        Returns
        -------
        Path
            The folder.
        """
        target = prepare_folder(Path(folder))
        current = [RUN_FILES[-1]]
        inputs = [entry["path"] for entry in self.record.get("files", [])]
        with locked(target, _WRITING, patience=60.0):
            undo_unfinished(target, RUN_FILES)
            check_run_folder(target, inputs, overwrite=overwrite)
            try:
                with replacing_together(target, RUN_FILES) as temporary:
                    for name, write in self._writers(report).items():
                        current[0] = name
                        write(temporary / name)
            except OSError as error:
                raise EventFileError(
                    f"{target / current[0]}: cannot be written: {error.strerror or error}; {target} is as it was before"
                ) from error
        return target

    def _writers(self, report: bool) -> dict[str, Callable[[Path], object]]:
        """Return a function that writes each file of the run, in the order of `RUN_FILES`."""
        tables: dict[str, Callable[[], pd.DataFrame]] = {
            "events.csv": self._scored_events,
            "groups.csv": partial(self._stacked, Detection.groups_frame),
            "folds.csv": partial(self._stacked, Detection.folds_frame),
        }
        if any(len(found.outcomes_by_observation) > 1 for found in self.detections.values()):
            tables["observations.csv"] = partial(self._stacked, Detection.observations_frame)
        if all(found.bins is not None for found in self.detections.values()):
            tables["bins.csv"] = partial(self._stacked, Detection.bins_frame)
        return {
            "config.yaml": lambda path: write_text(path, self.config),
            **{name: partial(write_table, table) for name, table in tables.items()},
            NEARBY_FILE: partial(write_nearby, self.detections),
            HISTOGRAMS_FILE: partial(write_histograms, self.detections),
            **({"report.html": self.report} if report else {}),
            "result.json": lambda path: write_text(path, json.dumps(as_json(self.result()), indent=2) + "\n"),
        }

    def report(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write the report, one HTML file that opens anywhere; see `excess.report.write_report`.

        Parameters
        ----------
        path : path
            File to write.
        title : str or None, default=None
            What was observed; by default the title of the run.

        Returns
        -------
        Path
            The file.
        """
        return write_report(
            self.detections,
            Path(path),
            forward=self.forward,
            null_test=self.null_tests,
            no_forward=self.no_forward,
            simulation=self.simulation,
            title=title or self.record["title"],
            observed=self.observed,
            run=self.record,
            config=self.config,
        )

    def write_plots(self, folder: str | PathLike[str], suffix: str = "pdf") -> list[Path]:
        """Write the plots of all models as files; see `excess.report.write_plots`."""
        return write_plots(
            self.detections, Path(folder), suffix, null_tests=self.null_tests, simulation=self.simulation
        )

    def _scored_events(self) -> pd.DataFrame:
        table = self.events.copy()
        folds = [found.fold for found in self.detections.values()]
        shared = all(np.array_equal(fold, folds[0]) for fold in folds)
        if shared:
            table["fold"] = folds[0]
        # all models judge the same events
        alphas = [found.event_alpha for found in self.detections.values() if found.event_alpha is not None]
        if alphas:
            table["alpha"] = alphas[0]
        for name, found in self.detections.items():
            if not shared:
                table[f"{name}_fold"] = found.fold
            table[f"{name}_score"] = found.score
            table[f"{name}_selected"] = found.selected
            if found.ratio is not None:
                table[f"{name}_ratio"] = found.ratio
        return table

    def _stacked(self, frame: Callable[[Detection], pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        frames = {name: frame(found) for name, found in self.detections.items()}
        return pd.concat(frames, names=["model"]).reset_index()


def _trust_result(found: Detection) -> dict[str, Any] | None:
    """Return how far each reference was trusted: mean, smallest and largest value, and those of the folds."""
    return {
        name: {**trust._asdict(), "folds": [None if fold.trust is None else fold.trust[name] for fold in found.folds]}
        for name, trust in found.trust.items()
    } or None


def _forward_result(outcome: Outcome) -> dict[str, Any]:
    """Return the numbers of an outcome, with what makes it the same again."""
    parts = {"parts": outcome.counts.parts} if outcome.counts.parts else {}
    return {**outcome.summary(), "alpha": outcome.counts.alpha, **parts}


def _null_result(test: NullTest) -> dict[str, Any]:
    """Return the numbers of a null test; its mean, p-value and verdict are by the declared statistic."""
    by_statistic: dict[str, dict[str, float]] = {statistic: {} for statistic in STATISTICS}
    for region, outcome in test.outcomes.items():
        for statistic, significance in outcome.significances.items():
            by_statistic[statistic][str(region)] = significance
    return {
        "significances": dict(zip(map(str, test.outcomes), test.significances.tolist(), strict=True)),
        **{f"{statistic}_significances": values for statistic, values in by_statistic.items()},
        "regions": {str(region): outcome.summary() for region, outcome in test.outcomes.items()},
        "alpha": test.alpha,
        "mean": test.mean,
        "spread": test.spread,
        "p_value": test.p_value,
        "suspicious": test.suspicious,
        "verdict": test.verdict,
    }
