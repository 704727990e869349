"""Copies of ctapipe's files with a further DL2 table, which ctapipe reads beside its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError
from excess._core.interrupts import defer_interrupts
from excess.events._arrays import event_words
from excess.events._ctapipe_layout import KEYS, TRIGGER
from excess.events._hdf5 import stored_node
from excess.events._pytables import StoredRows, create_group, create_rows, describe_columns, row_type, set_text
from excess.events._writable_hdf5 import WritableHdf5
from excess.events.file_copy import FileCopy

__all__ = ["CLASSIFICATION", "CtapipeCopy"]

logger = logging.getLogger("excess.events")

CLASSIFICATION = "/dl2/event/subarray/classification"
"""The group of ctapipe that holds a table for each classifier."""
PREDICTION = "prediction"
"""ctapipe's name of the probability of signal."""
_DESCRIPTIONS = {
    "obs_id": "ID of the observation",
    "event_id": "ID of the event",
    "prediction": "Probability that the event is signal, calibrated on On and Off events",
    "is_valid": "Whether the event passes the quality cuts of the model and has all its features",
    "score": "Score of the model, an estimate of the probability that the event is On",
    "selected": "Whether the score exceeds the threshold of the model",
}
_BLOCK = 100_000


class CtapipeCopy:
    """A copy that gets the table ``/dl2/event/subarray/classification/<prefix>``.

    ctapipe joins its tables row by row, so this one has a row for each triggered event, in the same order. Events come
    with ``obs_id`` and ``event_id``, and find their rows by them; what has no score has NaN and is not valid. A file
    without a table of triggers gets its events in the order in which they come.
    """

    def __init__(self, path: Path, first: pd.DataFrame, copy: FileCopy) -> None:
        self._copy, self._inside = copy, f"{CLASSIFICATION}/{copy.prefix}"
        self._names = {name: self._stored_name(name) for name in first.columns if name not in KEYS}
        self._n_rows = 0
        self._index: _EventIndex | None = None
        self._hdf5 = WritableHdf5(path, copy.path)
        self._create(first)

    def _stored_name(self, name: str) -> str:
        return name.replace("_signal_probability", f"_{PREDICTION}")

    @defer_interrupts()
    def _create(self, first: pd.DataFrame) -> None:
        file = self._hdf5.file
        if stored_node(file, self._inside) is not None:
            raise EventFileError(
                f"{self._copy.path}: has a table {self._inside} already, and none is replaced; choose another prefix"
            )
        self._trigger = stored_node(file, TRIGGER)
        keys = {key: first[key].dtype if self._trigger is None else self._trigger.dtype[key] for key in KEYS}
        columns = {stored: first[name].dtype for name, stored in self._names.items()}
        valid = {f"{self._copy.prefix}_is_valid": np.dtype(bool)}
        self._dtype = np.dtype([*keys.items(), *columns.items(), *valid.items()])
        n_rows = 0 if self._trigger is None else len(self._trigger)
        group = create_group(file, CLASSIFICATION)
        self._dataset = create_rows(group, self._copy.prefix, row_type(self._dtype), n_rows)
        self._rows = StoredRows(self._dataset)
        for start in range(0, n_rows, _BLOCK):
            stop = min(start + _BLOCK, n_rows)
            self._write(start, self._empty(self._trigger[start:stop]))

    def _empty(self, keys: NDArray[Any] | pd.DataFrame) -> NDArray[Any]:
        """Return rows without scores for some events."""
        rows = np.zeros(len(keys), dtype=self._dtype)
        for key in KEYS:
            rows[key] = keys[key]
        for name in self._names.values():
            if self._dtype[name].kind == "f":
                rows[name] = np.nan
        return rows

    def _write(self, start: int, rows: NDArray[Any]) -> None:
        self._rows.write(start, rows.view(np.uint8).reshape(len(rows), self._dtype.itemsize))

    @defer_interrupts()
    def append(self, chunk: pd.DataFrame) -> None:
        """Write the scores of some events into their rows."""
        new = self._filled(self._empty(chunk), chunk)
        if self._trigger is None:
            self._dataset.resize((self._n_rows + len(chunk),))
            self._write(self._n_rows, new)
        elif self._is_next(chunk):
            self._write(self._n_rows, new)
        else:
            self._write_by_key(new[new[f"{self._copy.prefix}_is_valid"]])
        self._n_rows += len(chunk)
        self._hdf5.check()

    def _is_next(self, chunk: pd.DataFrame) -> bool:
        """Say whether a chunk has the next rows of the table of triggers, as all before it."""
        if self._index is not None:
            return False
        same = self._trigger[self._n_rows : self._n_rows + len(chunk)]
        return len(same) == len(chunk) and all(np.array_equal(same[key], chunk[key].to_numpy()) for key in KEYS)

    def _write_by_key(self, new: NDArray[Any]) -> None:
        """Write rows with a score to where their events are.

        Others have nothing to tell, such as images of telescopes that the quality cuts of the model leave out.
        """
        if self._index is None:
            self._index = _EventIndex(self._trigger, self._n_rows, self._copy.path)
        if not len(new):
            return
        places = self._index.find(new)
        start, stop = int(places.min()), int(places.max()) + 1
        rows = self._rows.read(start, stop).view(self._dtype).reshape(stop - start)
        rows[places - start] = new
        self._write(start, rows)

    def _filled(self, rows: NDArray[Any], chunk: pd.DataFrame) -> NDArray[Any]:
        for name, stored in self._names.items():
            rows[stored] = chunk[name].to_numpy()
        floats = [stored for stored in self._names.values() if self._dtype[stored].kind == "f"]
        rows[f"{self._copy.prefix}_is_valid"] = np.logical_and.reduce([np.isfinite(rows[name]) for name in floats])
        return rows

    @defer_interrupts()
    def close(self) -> None:
        """Complete the file."""
        n_rows = self._n_rows if self._trigger is None else len(self._trigger)
        describe_columns(self._dataset, n_rows)
        for number, name in enumerate(self._dtype.names or ()):
            plain = name.removeprefix(f"{self._copy.prefix}_")
            text = _DESCRIPTIONS.get(plain, "")
            set_text(self._dataset, f"CTAFIELD_{number}_DESC", text)
        for number, line in enumerate(self._copy.history):
            set_text(self._dataset, f"{self._copy.prefix}_history_{number}", line)
        self._hdf5.close()


class _EventIndex:
    """The rows of events in the table of triggers, by their identifiers; 16 bytes and a mark for each are in memory.

    The first ``n_used`` rows have their scores already.
    """

    def __init__(self, trigger: Any, n_used: int, path: Path) -> None:
        self._path = path
        stored = trigger[:]
        self._index = pd.MultiIndex.from_arrays([stored[key] for key in KEYS], names=KEYS)
        self._used = np.zeros(len(stored), dtype=bool)
        self._used[:n_used] = True
        if not self._index.is_unique:
            twice = self._index[self._index.duplicated()][0]
            raise EventFileError(
                f"{path}: {event_words(KEYS, twice)} is twice in {TRIGGER}, so that its score would not find its row"
            )

    def find(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return where the events of some rows are; each event can be asked for once."""
        given = pd.MultiIndex.from_arrays([rows[key] for key in KEYS], names=KEYS)
        places = self._index.get_indexer(given)
        if (places < 0).any():
            raise EventFileError(
                f"{self._path}: {event_words(KEYS, given[places < 0][0])} is not in {TRIGGER}; is it complete?"
            )
        again = self._used[places] | pd.Series(places).duplicated().to_numpy()
        if again.any():
            raise EventFileError(
                f"{self._path}: {event_words(KEYS, given[again][0])} has several rows with a score that do not follow "
                "each other; write to a file with the suffix .parquet"
            )
        self._used[places] = True
        return places
