"""Damaged files: mutated event files of all formats, and mutated model files whose checksum is right again.

    python -m studies.mutations --events 2000 --models 3000

Small files of each format get random changes: bytes, runs of bytes, numbers of 16 to 64 bits, cuts, insertions, digits
of texts. Each is described, read as a whole and in chunks, and copied with new columns; every tenth goes through
`excess info`. Model files of each class get random changes of their arrays (values, lengths, types) and of the values
in their header, with a checksum that is recomputed, so it detects no change; one in five has changed bytes. Each is
loaded and applied to events.

A file must be read, or be an error about it (EventFileError, ModelFileError, or ValueError or TypeError of the
application of a model), in at most 3 GiB more than before. Files are read in a forked process, which is replaced when
it crashes, or has not finished a file for 100 seconds.

Result of 2026-11-18 (commit 90ba1c9, ``--events 2000 --models 0 --seed 1``; models commit 9ea92a5, seed 1):

    2,000 event files of eleven layouts, ROOT included    1,401 errors, 599 read
    3,000 model files                                     2,533 errors, 444 loaded and applied, 23 loaded with a
                                                          ValueError in the application
    no crash, hang or unexpected exception
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import uproot
from safetensors.numpy import save_file
from sklearn.ensemble import HistGradientBoostingClassifier

import excess
from excess.cli import _app
from excess.dataset._simulate import simulate_observation
from excess.estimators import _model_file
from excess.estimators._boosting import BoostedClassifier
from excess.io import EventFileError, EventWriter, FileCopy, describe, iter_events, read_events, write_events
from tests.ctapipe_files import write_ctapipe
from tests.gadf_file import write_gadf_run
from tests.lstchain_file import lst_events, write_lstchain

PATIENCE = 100.0
MEMORY = 3 << 30
Mutate = Callable[[bytes, random.Random], bytes]
X = np.random.default_rng(0).normal(size=(400, 4))
ON = X[:, 0] + np.random.default_rng(1).normal(size=400) > 1


def change_bytes(content: bytes, chosen: random.Random) -> bytes:
    """Change up to eight bytes, near each other or not."""
    new = bytearray(content)
    start, width = chosen.randrange(len(new)), chosen.choice((8, 512, len(new)))
    for _ in range(chosen.randint(1, 8)):
        new[min(start + chosen.randrange(width), len(new) - 1)] = chosen.choice(
            (0, 1, 0x7F, 0xFF, chosen.randrange(256))
        )
    return bytes(new)


def change_number(content: bytes, chosen: random.Random) -> bytes:
    """Write a number that is near a limit of its type."""
    size = chosen.choice((2, 4, 8))
    bits = 8 * size
    near = chosen.choice((0, 1, 2, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1, 2 ** (bits // 2), len(content)))
    place = chosen.randrange(max(len(content) - size, 1))
    return content[:place] + (near % 2**bits).to_bytes(size, chosen.choice(("little", "big"))) + content[place + size :]


def change_run(content: bytes, chosen: random.Random) -> bytes:
    """Fill, remove, repeat or move a run of bytes."""
    start = chosen.randrange(len(content))
    stop = min(start + chosen.choice((4, 64, 1024)), len(content))
    run = content[start:stop]
    new = chosen.choice((b"", run + run, bytes(len(run)), b"\xff" * len(run), chosen.randbytes(len(run))))
    return content[:start] + new + content[stop:]


def cut(content: bytes, chosen: random.Random) -> bytes:
    """Cut a file short."""
    return content[: chosen.randrange(len(content))]


def change_digits(content: bytes, chosen: random.Random) -> bytes:
    """Change digits and signs of texts in the first part of a file, such as those of headers."""
    new = bytearray(content)
    places = [place for place, byte in enumerate(new[:20_000]) if byte in b"0123456789.-+,'=TF"]
    for place in chosen.sample(places, min(len(places), chosen.randint(1, 4))):
        new[place] = chosen.choice(b"0123456789-.eE,'TF \"")
    return bytes(new)


MUTATIONS: tuple[Mutate, ...] = (change_bytes, change_number, change_number, change_run, cut, change_digits)


def make_event_files(folder: Path) -> dict[str, bytes]:
    """Return small files of each format, by name."""
    table = simulate_observation(200, 60, random_state=0).iloc[:60]
    table = table.assign(name=[f"event {number}" for number in range(len(table))])
    for suffix in ("hdf5", "parquet", "csv"):
        write_events(table, folder / f"events.{suffix}")
    numbers = {str(name): table[name].to_numpy() for name in table.columns if table[name].dtype.kind in "if"}
    with uproot.recreate(folder / "events.root") as file:
        file.mktree("events", {name: values.dtype for name, values in numbers.items()}).extend(numbers)
    rows = lst_events(40)
    write_lstchain(folder / "lstchain.h5", rows)
    write_lstchain(folder / "several.h5", rows.assign(event_id=rows["event_id"] // 6, tel_id=1 + np.arange(40) % 2))
    for name, settings in (
        ("stereo", {}),
        ("mono", {"stereo": False, "monitoring": False}),
        ("truth", {"simulated": True}),
    ):
        write_ctapipe(folder / f"{name}.h5", 20, n_signal=5, n_telescopes=2, **settings)
    write_gadf_run(folder / "run.fits")
    packed = gzip.compress((folder / "run.fits").read_bytes(), mtime=0)
    (folder / "packed.fits.gz").write_bytes(packed)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def mutate_events(files: dict[str, bytes], number: int, folder: Path, seed: int) -> Path:
    """Write a mutated event file."""
    chosen = random.Random(f"{seed} {number}")
    name = sorted(files)[number % len(files)]
    content = files[name]
    inside = name.endswith(".gz") and chosen.random() < 0.7
    content = gzip.decompress(content) if inside else content
    for _ in range(chosen.randint(1, 3)):
        content = chosen.choice(MUTATIONS)(content, chosen) or b"\0"
    path = folder / name
    path.write_bytes(gzip.compress(content, 1) if inside else content)
    return path


def read_all(path: Path, number: int) -> str:
    """Read and copy an event file; return what became of it."""
    if number % 10 == 0:
        said = io.StringIO()
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            try:
                _app.main(["info", str(path)])
            except SystemExit as ended:
                if ended.code not in (0, 1, None) or "defect" in said.getvalue():
                    raise RuntimeError(f"info: {ended.code} {said.getvalue()}") from None
    try:
        found = describe(path)
        table = read_events(path)
        n_rows = sum(map(len, iter_events(path, chunk_rows=7)))
        if not len(table) == n_rows == found.n_events:
            return f"{found.n_events}, {len(table)} and {n_rows} rows"
        keys = [key for key in ("obs_id", "event_id") if key in table]
        new = table[keys].assign(new_score=0.5, new_signal_probability=0.5, new_selected=True)
        if path.suffix not in (".csv", ".parquet", ".root"):
            with EventWriter(path.with_name(f"copy{path.suffix}"), copy_of=FileCopy(path, "new")) as writer:
                writer.append(
                    new.reset_index(drop=True) if keys and "fits" not in path.name else new.drop(columns=keys)
                )
    except (EventFileError, MemoryError) as error:
        if str(path) not in str(error) and "copy" not in str(error):
            raise RuntimeError(f"no path in {error!r}") from error
        return "not enough memory" if isinstance(error, MemoryError) else "error"
    return "read"


def make_models(folder: Path) -> dict[str, bytes]:
    """Return model files of each class, by name."""
    forest = excess.OnOffForestClassifier(3, alpha=0.5, max_depth=4, random_state=0, n_jobs=1)
    boosted = HistGradientBoostingClassifier(max_iter=3, max_depth=3)
    fitted = {
        "forest": forest,
        "tree": excess.OnOffTreeClassifier(alpha=0.5, max_depth=4, random_state=0),
        "k-means": excess.OnOffKMeansClassifier(5, alpha=0.5, random_state=0),
        "ensemble": excess.OnOffKMeansEnsembleClassifier(3, 5, alpha=0.5, random_state=0),
        "binned": excess.OnOffBinnedClassifier(forest, 3, [0.0], alpha=0.5, min_events=50),
        "hybrid": excess.OnOffHybridClassifier({"score": 2}, forest, alpha=0.5, random_state=0),
    }
    files = {}
    for name, model in fitted.items():
        model.fit(X, ON).save(folder / name)
        files[name] = (folder / name).read_bytes()
    for name, model in {"boosted": BoostedClassifier(boosted.fit(X, ON))}.items():
        _model_file.save(model, folder / name)
        files[name] = (folder / name).read_bytes()
    return files


def change_value(value: Any, chosen: random.Random) -> Any:
    """Return another value of JSON."""
    if isinstance(value, dict) and value and chosen.random() < 0.9:
        key = chosen.choice(sorted(value))
        if chosen.random() < 0.1:
            return {name: own for name, own in value.items() if name != key}
        return {**value, key: change_value(value[key], chosen)}
    if isinstance(value, list) and value and chosen.random() < 0.8:
        place = chosen.randrange(len(value))
        return [*value[:place], change_value(value[place], chosen), *value[place + 1 :]]
    near = (None, True, 0, 1, -1, 2**31, 2**63, -(2**70), 0.5, 1e308, -1e-300, "", "x" * 99, [], {}, {"float": "nan"})
    return chosen.choice(near)


def change_array(array: np.ndarray, chosen: random.Random) -> np.ndarray:
    """Return an array with other values, another length or another type."""
    new = array.copy()
    way = chosen.random()
    if way < 0.7 and new.size:
        limits = np.iinfo(new.dtype) if new.dtype.kind in "iu" else None
        if limits is not None:
            near = [0, 1, 2, 7, limits.max, limits.min, limits.max // 2, new.size, max(-1, limits.min)]
            near += [int(new.flat[chosen.randrange(new.size)]) + chosen.choice((-1, 0, 1))]
            near = [min(max(value, limits.min), limits.max) for value in near]
        else:
            near = [
                0.0,
                1.0,
                -1.0,
                1e308,
                -1e308,
                5e-324,
                *([np.nan, np.inf, -np.inf] if new.dtype.kind == "f" else []),
            ]
        for _ in range(chosen.choice((1, 1, 2, new.size))):
            new.flat[chosen.randrange(new.size)] = chosen.choice(near)
    elif way < 0.85:
        new = chosen.choice((new[:-1], new[1:], np.concatenate([new, new[:1]]), new[:0], np.concatenate([new, new])))
    elif way < 0.95:
        with np.errstate(invalid="ignore", over="ignore"):
            new = new.astype(chosen.choice((np.int64, np.float64, np.float32, np.uint8, np.int32, np.uint64, bool)))
    else:
        new = new.reshape(1, -1) if new.ndim == 1 else new.reshape(-1)
    return np.ascontiguousarray(new)


def mutate_model(files: dict[str, bytes], number: int, folder: Path, seed: int) -> Path:
    """Write a mutated model file."""
    chosen = random.Random(f"{seed} {number}")
    name = sorted(files)[number % len(files)]
    path = folder / name
    if chosen.random() < 0.2:
        path.write_bytes(chosen.choice(MUTATIONS)(files[name], chosen) or b"\0")
        return path
    path.write_bytes(files[name])
    header, arrays = _model_file._read(path)
    header["threshold"] = _model_file._as_number(header["threshold"])
    for part in ("parameters", "attributes"):
        header[part] = {key: _model_file._as_number(value) for key, value in header[part].items()}
    for _ in range(chosen.randint(1, 2)):
        if chosen.random() < 0.3 or not arrays:
            header = change_value(header, chosen)
        else:
            key = chosen.choice(sorted(arrays))
            arrays[key] = change_array(arrays[key], chosen)
            if chosen.random() < 0.03:
                del arrays[key]
    text = json.dumps(header)
    path.unlink()
    save_file({**arrays, "sha256": _model_file._checksum(text, arrays)}, path, metadata={"excess": text})
    return path


def apply_model(path: Path, number: int) -> str:
    """Load and apply a model file; return what became of it."""
    try:
        model = excess.load(path)
    except excess.ModelFileError as error:
        return "error" if str(path) in str(error) else f"no path in {error}"
    try:
        events = X if model.n_features_in_ == 4 else X[:, :1]
        model.predict(events)
        model.predict_proba(events)
        for method in ("decision_function", "predict_signal_proba", "likelihood_ratio", "contributions", "apply"):
            if hasattr(model, method):
                getattr(model, method)(events)
        model.get_params()
        repr(model)
    except (ValueError, TypeError) as error:
        return f"loaded, {type(error).__name__} where it is applied"
    return "loaded"


def watch(work: Callable[[int], str], n_files: int, until: float) -> tuple[Counter[str], list[str]]:
    """Work on numbered files in forked processes; return what became of them, and what was wrong."""
    states: Counter[str] = Counter()
    wrong: list[str] = []
    number = 0
    while number < n_files and time.monotonic() < until:
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            warnings.simplefilter("ignore")
            for own in range(number, n_files):
                try:
                    found = work(own)
                except BaseException as error:
                    found = f"! {own}: {type(error).__name__}: {error}"
                os.write(writing, (found.replace("\n", " ")[:500] + "\n").encode())
            os._exit(0)
        os.close(writing)
        signal.signal(signal.SIGALRM, lambda *_, process=process: os.kill(process, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        with os.fdopen(reading, "rb", buffering=0) as lines:
            pending = b""
            while piece := lines.read(4096):
                *complete, pending = (pending + piece).split(b"\n")
                signal.setitimer(signal.ITIMER_REAL, PATIENCE)
                for line in complete:
                    found = line.decode()
                    states["unexpected" if found.startswith("!") else found] += 1
                    number += 1
                    if found.startswith("!"):
                        wrong.append(found)
                if time.monotonic() > until:
                    os.kill(process, signal.SIGKILL)
                    break
        signal.setitimer(signal.ITIMER_REAL, 0)
        status = os.waitpid(process, 0)[1]
        if status and time.monotonic() < until:
            wrong.append(f"{number}: the process ended by {signal.Signals(os.WTERMSIG(status)).name}")
            states["crash or hang"] += 1
            number += 1
    return states, wrong


def main() -> int:
    """Print what became of files of both kinds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=2000, help="mutated event files")
    parser.add_argument("--models", type=int, default=3000, help="mutated model files")
    parser.add_argument("--minutes", type=float, default=60.0, help="for each of both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", default="", help="event files with this suffix only")
    parser.add_argument("--only", type=int, help="number of one file, which is read in this process")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    failures = 0
    try:
        for kind, n_files, make, mutate, use in (
            ("models", options.models, make_models, mutate_model, apply_model),
            ("events", options.events, make_event_files, mutate_events, read_all),
        ):
            if not n_files:
                continue
            (folder / kind).mkdir()
            files = {name: own for name, own in make(folder / kind).items() if name.endswith(options.format)}
            own = folder / f"mutated-{kind}"
            own.mkdir()

            def work(number: int, files: Any = files, own: Path = own, mutate: Any = mutate, use: Any = use) -> str:
                return use(mutate(files, number, own, options.seed), number)

            for name, content in files.items():  # without a change
                (own / name).write_bytes(content)
                if (found := use(own / name, 1)) not in ("read", "loaded"):
                    raise SystemExit(f"{name}: {found}")
            if options.only is not None:
                print(work(options.only))
                continue
            states, wrong = watch(work, n_files, time.monotonic() + 60 * options.minutes)
            print(f"{kind}, {len(files)} files mutated: {states.total()} tried")
            for state, times in states.most_common():
                print(f"    {times:5} {state}")
            for line in wrong:
                print(f"    ! {line}")
            failures += len(wrong)
    finally:
        shutil.rmtree(folder)
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
