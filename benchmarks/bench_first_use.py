"""Time of the first import and of the first fit on a new machine, that is, with an empty cache of compiled kernels.

Run with ``python benchmarks/bench_first_use.py``. Exits with an error above two seconds for the import or fifteen for
the fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

SCRIPT = """
import time
start = time.perf_counter()
import excess
imported = time.perf_counter()
import numpy as np
excess.OnOffForestClassifier(2, 1 / 5, min_samples_leaf=5).fit(np.arange(60.0)[:, None], np.arange(60) % 2)
print(imported - start, time.perf_counter() - imported)
"""


def main() -> int:
    """Print both times, for an empty cache and for a full one; return 1 if a limit is exceeded."""
    failed = False
    with tempfile.TemporaryDirectory() as cache:
        for state, limits in (("empty", (2.0, 15.0)), ("full", (2.0, 15.0))):
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT],
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            times = [float(word) for word in done.stdout.split()]
            failed |= any(time > limit for time, limit in zip(times, limits, strict=True))
            print(f"cache {state}: import {times[0]:.2f} s, first fit {times[1]:.2f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
