"""Check a built wheel and sdist: their contents, and that the wheel alone runs the demo with its report."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

IN_WHEEL = {
    "excess/py.typed",
    "excess/__init__.pyi",
    "excess/analysis/__init__.pyi",
    "excess/dataset/data/fact_statistics.json",
    "excess/report/assets/page.css",
    "excess/report/assets/page.html",
    "excess/report/assets/page.js",
}
IN_SDIST = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "src/excess/__init__.py",
    "tests/conftest.py",
}
EVENT_FILES = {".h5", ".hdf5", ".fits", ".gz", ".parquet", ".csv", ".npz", ".excess", ".onnx"}
LARGEST_WHEEL = 2_000_000
"""Bytes. The package is source code; more than this means that data got into it."""


def wheel_problems(names: set[str], size: int) -> list[str]:
    """Return what is wrong with the files in a wheel, given their names and its size in bytes.

    Examples
    --------
    >>> wheel_problems(IN_WHEEL | {"excess-0.1.0.dist-info/METADATA"}, 300_000)
    []
    >>> wheel_problems(IN_WHEEL | {"tests/test_tree.py"}, 300_000)
    ['tests/test_tree.py does not belong into a wheel']
    """
    problems = [f"{name} is missing in the wheel" for name in sorted(IN_WHEEL - names)]
    for name in sorted(names):
        path = PurePosixPath(name)
        top = path.parts[0]
        own = top == "excess" or top.endswith(".dist-info")
        if not own or path.suffix in EVENT_FILES or "__pycache__" in path.parts:
            problems.append(f"{name} does not belong into a wheel")
    if size > LARGEST_WHEEL:
        problems.append(f"the wheel has {size} bytes, more than {LARGEST_WHEEL}")
    return problems


def sdist_problems(names: set[str]) -> list[str]:
    """Return what is wrong with the files in an sdist, given their names without their folder."""
    problems = [f"{name} is missing in the sdist" for name in sorted(IN_SDIST - names)]
    found = [name for name in sorted(names) if PurePosixPath(name).suffix in EVENT_FILES]
    return problems + [f"{name} does not belong into an sdist" for name in found]


def run_demo(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new environment in a folder, run the demo there, and return its report."""
    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    # nothing of a clone may help: no PYTHONPATH, and another working folder
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}

    def run(*command: str | Path) -> None:
        subprocess.run([str(word) for word in command], cwd=folder, env=environment, check=True)

    run(scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    run(scripts / "python", "-m", "pip", "check")
    run(scripts / "excess", "demo", "-o", "demo")
    report = folder / "demo" / "report.html"
    page = report.read_text(encoding="utf-8")
    if not page.rstrip().endswith("</html>") or "<svg" not in page:
        raise SystemExit(f"{report} is no complete report")
    return report


def main(folder: Path) -> None:
    """Check the only wheel and the only sdist in a folder."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        problems = wheel_problems(set(archive.namelist()), wheel.stat().st_size)
    with tarfile.open(sdist) as tar:
        problems += sdist_problems({member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()})
    if problems:
        raise SystemExit("\n".join(problems))
    with tempfile.TemporaryDirectory() as place:
        size = run_demo(wheel.resolve(), Path(place)).stat().st_size
    print(f"{wheel.name} ({wheel.stat().st_size // 1000} kB) alone runs the demo; its report has {size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
