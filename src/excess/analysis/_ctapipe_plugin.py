"""The plugin of ctapipe: a trained model as one of its reconstructors.

ctapipe finds the class by the entry point ``ctapipe_reco`` and imports this module; nothing else does, because it needs
ctapipe.
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
"""Units that ctapipe's files have, for what is not in them yet."""
_KEYS = ["obs_id", "event_id"]


class ExcessClassificationContainer(ParticleClassificationContainer):
    """What a model says about an event: ctapipe's ``prediction`` is the probability of signal."""

    score = Field(np.nan, "score of the model, an estimate of the probability that the event is On")
    selected = Field(False, "whether the score exceeds the threshold of the model")


class ExcessClassifier(Reconstructor):
    """Classify events by a model that was trained with ``excess train``."""

    load_path = traits.Path(
        default_value=None,
        allow_none=True,
        exists=True,
        directory_ok=False,
        help="Model file of 'excess train', which holds no code.",
    ).tag(config=True)
    prefix = traits.Unicode("excess", help="What the names of columns and of the table begin with.").tag(config=True)

    def __init__(self, subarray: Any = None, atmosphere_profile: Any = None, **kwargs: Any) -> None:
        super().__init__(subarray=subarray, atmosphere_profile=atmosphere_profile, **kwargs)
        if self.load_path is None:
            raise traits.TraitError("ExcessClassifier.load_path is not set; give the model file of 'excess train'")
        self._trained = load_model(self.load_path, n_jobs=self.n_jobs or 1)
        self._columns = may_need(self._trained.config.columns_needed()) | {*_KEYS, "tel_id"}
        self._instrument: tuple[Any, QTable] | None = None  # the array, and its telescopes as a table
        self.stereo_combiner = _ShowerTable(self)

    @traits.observe("n_jobs")
    def _set_n_jobs(self, change: Any) -> None:
        if hasattr(self, "_trained") and "n_jobs" in self._trained.model.get_params():
            self._trained.model.set_params(n_jobs=change.new or 1)

    def __call__(self, event: ArrayEventContainer) -> None:
        """Classify an array event, and its images where the model is one of images."""
        images = self._images_of(event)
        if len(images) == 0:
            event.dl2.stereo.classification[self.prefix] = self._container(None, 0, [])
            return
        if self.is_of_images(images):
            for number, tel_id in enumerate(images["tel_id"]):
                own = self._container(self.judge(images.iloc[[number]]), 0, None)
                own.prefix = f"{self.prefix}_tel"
                event.dl2.tel[int(tel_id)].classification[self.prefix] = own
        judged, telescopes = self.judge_showers(images)
        event.dl2.stereo.classification[self.prefix] = self._container(judged, 0, telescopes[0])

    def predict_table(self, key: Any, table: Table) -> dict[ReconstructionProperty, Table]:
        """Classify the images of one telescope; a model of array events says nothing about these."""
        images = self.as_frame(table)
        if not self.is_of_images(images):
            return {}
        found = self.columns_of(self.judge(images), f"{self.prefix}_tel")
        add_defaults_and_meta(found, ExcessClassificationContainer, prefix=self.prefix, add_tel_prefix=True)
        return {ReconstructionProperty.PARTICLE_TYPE: found}

    def as_frame(self, table: Table) -> pd.DataFrame:
        """Return the columns that the model may need, as numbers in the units of ctapipe's files."""
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
        """Say whether the model takes parameters of images, and not statistics of those of a shower."""
        return set(self._trained.config.columns_needed()) <= set(images.columns)

    def judge(self, table: pd.DataFrame) -> EventScores:
        """Apply the model to rows with all columns that it needs."""
        return score_features(self._trained.model, to_features(table, self._trained.config))

    def judge_showers(self, images: pd.DataFrame) -> tuple[EventScores, list[list[int]]]:
        """Return what the model says about the showers of images, in their order, and which telescopes were used."""
        groups = images.groupby(_KEYS, sort=False)
        number, n_showers = groups.ngroup().to_numpy(), groups.ngroups
        used = np.ones(len(images), dtype=np.bool_)
        if self.is_of_images(images):
            judged = self.judge(images)
            used = np.isfinite(judged.score)
            judged = score_showers(self._trained.model, judged, number, n_showers)
        else:
            judged = self.judge(to_showers(images, self._trained.config.columns_needed(), _KEYS))
        telescopes: list[list[int]] = [[] for _ in range(n_showers)]
        for shower, tel_id in zip(number[used], images["tel_id"].to_numpy()[used], strict=True):
            telescopes[shower].append(int(tel_id))
        return judged, telescopes

    def columns_of(self, judged: EventScores, prefix: str) -> Table:
        """Return what the model says as columns."""
        return Table(
            {
                f"{prefix}_prediction": judged.signal_probability,
                f"{prefix}_is_valid": np.isfinite(judged.score),
                f"{prefix}_score": judged.score,
                f"{prefix}_selected": judged.selected,
            }
        )

    def _container(self, judged: EventScores | None, row: int, telescopes: Any) -> ExcessClassificationContainer:
        found = ExcessClassificationContainer(prefix=self.prefix, telescopes=telescopes)
        if judged is not None:
            found.score, found.prediction = float(judged.score[row]), float(judged.signal_probability[row])
            found.selected, found.is_valid = bool(judged.selected[row]), bool(np.isfinite(judged.score[row]))
        return found

    def _images_of(self, event: ArrayEventContainer) -> pd.DataFrame:
        """Return the images of an event as rows, with what is known about the whole event."""
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
    """What ctapipe's tool for whole tables asks for array events."""

    property = ReconstructionProperty.PARTICLE_TYPE

    def __init__(self, classifier: ExcessClassifier) -> None:
        self._classifier = classifier
        self.prefix = classifier.prefix

    def predict_table(self, mono_predictions: Table) -> Table:
        """Classify the showers of a table of images."""
        images = self._classifier.as_frame(mono_predictions)
        judged, telescopes = self._classifier.judge_showers(images)
        keys = images[_KEYS].drop_duplicates()
        found = self._classifier.columns_of(judged, self.prefix)
        for position, key in enumerate(_KEYS):
            found.add_column(keys[key].to_numpy(), position, key)
            found[key].description = mono_predictions[key].description
        found[f"{self.prefix}_telescopes"] = telescopes
        add_defaults_and_meta(found, ExcessClassificationContainer, prefix=self.prefix)
        return found
