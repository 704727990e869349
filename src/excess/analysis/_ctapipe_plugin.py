"""ctapipe plugin: a trained model as a reconstructor.

ctapipe imports this module by the entry point ``ctapipe_reco``; no other module does, because it requires ctapipe.
"""

from typing import Any

import astropy.units as u
import numpy as np
import pandas as pd
from astropy.table import QTable, Table
from ctapipe.containers import ArrayEventContainer, ParticleClassificationContainer
from ctapipe.core import Field, traits
from ctapipe.reco.preprocessing import collect_features
from ctapipe.reco.reconstructor import ReconstructionProperty, Reconstructor
from ctapipe.reco.utils import add_defaults_and_meta

from excess.analysis._apply import EventScores, load_model, score_features, score_showers
from excess.config._model import to_features
from excess.io._images import may_need, to_showers

_UNITS = {"angle": u.deg, "length": u.m, "energy": u.TeV}
"""Units of ctapipe's files for columns that they do not contain yet."""
_KEYS = ["obs_id", "event_id"]


class ExcessClassificationContainer(ParticleClassificationContainer):
    """Prediction for an event: ctapipe's ``prediction`` is the signal probability."""

    score = Field(np.nan, "score of the model, an estimate of the probability that the event is On")
    selected = Field(False, "whether the score exceeds the threshold of the model")


class ExcessClassifier(Reconstructor):
    """Classify events with a model trained by ``excess train``."""

    load_path = traits.Path(
        default_value=None,
        allow_none=True,
        exists=True,
        directory_ok=False,
        help="Model file of 'excess train', which contains no code.",
    ).tag(config=True)
    prefix = traits.Unicode("excess", help="Prefix of the columns and the table.").tag(config=True)

    def __init__(self, subarray: Any = None, atmosphere_profile: Any = None, **kwargs: Any) -> None:
        super().__init__(subarray=subarray, atmosphere_profile=atmosphere_profile, **kwargs)
        if self.load_path is None:
            raise traits.TraitError("ExcessClassifier.load_path is not set; use the model file of 'excess train'")
        self._trained = load_model(self.load_path, n_jobs=self.n_jobs or 1)
        self._columns = may_need(self._trained.config.columns_needed()) | {*_KEYS, "tel_id"}
        self._instrument: tuple[Any, QTable] | None = None  # the array, and its telescopes as a table
        self.stereo_combiner = _ShowerTable(self)

    @traits.observe("n_jobs")
    def _set_n_jobs(self, change: Any) -> None:
        if hasattr(self, "_trained") and "n_jobs" in self._trained.model.get_params():
            self._trained.model.set_params(n_jobs=change.new or 1)

    def __call__(self, event: ArrayEventContainer) -> None:
        """Classify an array event, and its images if the model uses images."""
        images = self._images_of(event)
        if len(images) == 0:
            event.dl2.stereo.classification[self.prefix] = self._container(None, 0, [])
            return
        if self.is_of_images(images):
            for number, tel_id in enumerate(images["tel_id"]):
                own = self._container(self.score(images.iloc[[number]]), 0, None)
                own.prefix = f"{self.prefix}_tel"
                event.dl2.tel[int(tel_id)].classification[self.prefix] = own
        scored, telescopes = self.score_showers(images)
        event.dl2.stereo.classification[self.prefix] = self._container(scored, 0, telescopes[0])

    def predict_table(self, key: Any, table: Table) -> dict[ReconstructionProperty, Table]:
        """Classify the images of one telescope; skipped for a model of array events."""
        images = self.as_frame(table)
        if not self.is_of_images(images):
            return {}
        found = self.columns_of(self.score(images), f"{self.prefix}_tel")
        add_defaults_and_meta(found, ExcessClassificationContainer, prefix=self.prefix, add_tel_prefix=True)
        return {ReconstructionProperty.PARTICLE_TYPE: found}

    def as_frame(self, table: Table) -> pd.DataFrame:
        """Return the columns that the model may require, as numbers in the units of ctapipe's files."""
        columns = {}
        for name in table.colnames:
            column = table[name] if name in self._columns else None
            if getattr(column, "ndim", 0) != 1 or getattr(getattr(column, "dtype", None), "kind", "O") not in "biuf":
                continue
            unit = getattr(column, "unit", None)
            wanted = None if unit is None else _UNITS.get(str(unit.physical_type))
            values = np.asarray(column) if wanted is None else u.Quantity(column).to_value(wanted)
            columns[name] = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        return pd.DataFrame(columns)

    def is_of_images(self, images: pd.DataFrame) -> bool:
        """Return whether the model uses image parameters, rather than their statistics per shower."""
        return set(self._trained.config.columns_needed()) <= set(images.columns)

    def score(self, table: pd.DataFrame) -> EventScores:
        """Apply the model to rows with all required columns."""
        return score_features(self._trained.model, to_features(table, self._trained.config))

    def score_showers(self, images: pd.DataFrame) -> tuple[EventScores, list[list[int]]]:
        """Return predictions for the showers of images, in their order, and the telescopes used."""
        groups = images.groupby(_KEYS, sort=False)
        number, n_showers = groups.ngroup().to_numpy(), groups.ngroups
        used = np.ones(len(images), dtype=np.bool_)
        if self.is_of_images(images):
            scored = self.score(images)
            used = np.isfinite(scored.score)
            scored = score_showers(self._trained.model, scored, number, n_showers)
        else:
            scored = self.score(to_showers(images, self._trained.config.columns_needed(), _KEYS))
        telescopes: list[list[int]] = [[] for _ in range(n_showers)]
        for shower, tel_id in zip(number[used], images["tel_id"].to_numpy()[used], strict=True):
            telescopes[shower].append(int(tel_id))
        return scored, telescopes

    def columns_of(self, scored: EventScores, prefix: str) -> Table:
        """Return predictions as columns."""
        return Table(
            {
                f"{prefix}_prediction": scored.signal_probability,
                f"{prefix}_is_valid": np.isfinite(scored.score),
                f"{prefix}_score": scored.score,
                f"{prefix}_selected": scored.selected,
            }
        )

    def _container(self, scored: EventScores | None, row: int, telescopes: Any) -> ExcessClassificationContainer:
        found = ExcessClassificationContainer(prefix=self.prefix, telescopes=telescopes)
        if scored is not None:
            found.score, found.prediction = float(scored.score[row]), float(scored.signal_probability[row])
            found.selected, found.is_valid = bool(scored.selected[row]), bool(np.isfinite(scored.score[row]))
        return found

    def _images_of(self, event: ArrayEventContainer) -> pd.DataFrame:
        """Return the images of an event as rows, with columns of the whole event."""
        if self._instrument is None or self._instrument[0] is not self.subarray:
            self._instrument = self.subarray, QTable(self.subarray.to_table("joined"))
        rows = []
        for tel_id in event.trigger.tels_with_trigger:
            if tel_id in event.dl1.tel and event.dl1.tel[tel_id].parameters is not None:
                row = self.as_frame(collect_features(event, tel_id, self._instrument[1]))
                rows.append(row.assign(obs_id=event.index.obs_id, event_id=event.index.event_id, tel_id=tel_id))
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()

    property = ReconstructionProperty.PARTICLE_TYPE


class _ShowerTable:
    """Interface required by ctapipe's tool for whole tables of array events."""

    property = ReconstructionProperty.PARTICLE_TYPE

    def __init__(self, classifier: ExcessClassifier) -> None:
        self._classifier = classifier
        self.prefix = classifier.prefix

    def predict_table(self, mono_predictions: Table) -> Table:
        """Classify the showers of a table of images."""
        images = self._classifier.as_frame(mono_predictions)
        scored, telescopes = self._classifier.score_showers(images)
        keys = images[_KEYS].drop_duplicates()
        found = self._classifier.columns_of(scored, self.prefix)
        for position, key in enumerate(_KEYS):
            found.add_column(keys[key].to_numpy(), position, key)
            found[key].description = mono_predictions[key].description
        found[f"{self.prefix}_telescopes"] = telescopes
        add_defaults_and_meta(found, ExcessClassificationContainer, prefix=self.prefix)
        return found
