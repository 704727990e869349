"""Groups in chunks, in files and on workers: the same forest as in memory, bit for bit."""

import numpy as np
import pytest
from chunked_events import N_EVENTS, NAMES
from helpers import make_forest, model_bits, signal_bits

from excess.distributed import Dask, EventFiles, InProcess, fit_forest
from excess.events import write_events

NIGHTS = np.array(["20131101", "20131102", "2013", "x"])


@pytest.fixture(scope="session")
def nights():
    """Groups of the events: four, in no order, one of them missing in the first half of the events."""
    drawn = np.random.default_rng(9).integers(0, 4, N_EVENTS)
    drawn[: N_EVENTS // 2] %= 3
    return NIGHTS[drawn]


def cut(events, groups, ends):
    return [
        (events[0].iloc[a:b], events[1][a:b], groups[a:b]) for a, b in zip([0, *ends], [*ends, N_EVENTS], strict=True)
    ]


def write_files(events, groups, folder):
    paths = [folder / f"{number}.parquet" for number in range(3)]
    for path, (X, y, night) in zip(paths, cut(events, groups, [700, 1900]), strict=True):
        write_events(X.assign(on=y, night=night), path)
    return paths


@pytest.mark.parametrize("ends", [[], [1, 2, 700], [500, 1000, 1001, 2900]])
@pytest.mark.parametrize("max_moved", [0, 300, 10_000])
def test_same_bits_from_chunks(events, nights, tmp_path, ends, max_moved):
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(), cut(events, nights, ends), executor=executor)
    expected = make_forest().fit(*events, groups=nights)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert model_bits(chunked, tmp_path) != model_bits(make_forest().fit(*events), tmp_path)


def test_same_bits_where_records_are_in_a_file(events, nights, tmp_path):
    chunked = fit_forest(make_forest(), cut(events, nights, [400, 401, 2000]), memory=2**16)
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events, groups=nights), tmp_path)


def test_a_single_group_is_no_group(events, tmp_path):
    chunked = fit_forest(make_forest(), cut(events, np.zeros(N_EVENTS), [10]))
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events), tmp_path)


def test_numbers_of_several_types_are_the_same_groups(events, tmp_path):
    groups = np.arange(N_EVENTS) % 3
    (X, y, first), (other_X, other_y, last) = cut(events, groups, [1000])
    chunked = fit_forest(make_forest(), [(X, y, first.astype(np.int16)), (other_X, other_y, last.astype(float))])
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events, groups=groups), tmp_path)


def test_same_bits_on_dask(events, nights, tmp_path, shared_client):
    files = EventFiles(write_files(events, nights, tmp_path), NAMES, "on", chunk_rows=500, groups="night")
    expected = make_forest().fit(*events, groups=nights)
    for chunks in (files, cut(events, nights, [5, 1700])):
        fitted = fit_forest(make_forest(), chunks, executor=Dask(shared_client, max_moved=500))
        assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
        assert signal_bits(fitted, events[0]) == signal_bits(expected, events[0])


def test_files_without_a_column_of_groups(events, nights, tmp_path):
    paths = write_files(events, nights, tmp_path)
    plain = fit_forest(make_forest(), EventFiles(paths, NAMES, "on"))
    assert model_bits(plain, tmp_path) == model_bits(make_forest().fit(*events), tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a, b: [a, b[:2]], ValueError, "chunks differ: groups in chunks, chunk 0, none in chunks, chunk 1"),
        (lambda a, b: [a[:2], b], ValueError, "chunks differ: groups in chunks, chunk 1, none in chunks, chunk 0"),
        (lambda a, b: [a, (*b[:2], b[2][:-1])], ValueError, "chunk 1: .*groups"),
        (lambda a, b: [a, (*b, b[1], b[2])], TypeError, "chunk 1: a chunk must be a pair .* with groups, .* got tuple"),
        (lambda a, b: [a, (*b[:2], np.arange(len(b[2])))], ValueError, "groups mixes values that cannot be ordered"),
    ],
)
def test_groups_that_are_refused(events, nights, change, error, message):
    with pytest.raises(error, match=message):
        fit_forest(make_forest(), change(*cut(events, nights, [1000])))


def test_chunks_whose_groups_change_are_refused(events, nights):
    class Changing:
        calls = 0

        def __iter__(self):
            self.calls += 1
            return iter(cut(events, nights if self.calls == 1 else np.char.add(nights, "!"), [1000]))

    with pytest.raises(ValueError, match="chunk 0: has other groups than at first"):
        fit_forest(make_forest(), Changing())
