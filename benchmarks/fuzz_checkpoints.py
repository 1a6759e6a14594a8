"""Resume fits from mutated checkpoints, and report the outcomes, the peak memory and the slowest file.

    python benchmarks/fuzz_checkpoints.py [n_files] [seed]      (20,000 files by default; some minutes)

Each file is a checkpoint, mutated by a function of tests/support/mutated_checkpoints.py. The fit must
raise a CheckpointError, or resume and end with bitwise the same model. A forged file is a mutated file with a correct
checksum. From a forged file, the fit may also end with a different model of finite numbers, or with another error. The
exit status is 1 if a file has any other outcome. The results are in benchmarks/results/fuzzing.md.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np

import hkrr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.mutated_checkpoints import CHECKPOINT_MUTATIONS, FORGED, checkpoints, outcome, resumed, values_of

# Relative frequencies of mutations that create long headers. These files take milliseconds each. All other mutations
# have the relative frequency 1.
_RARE = {"huge": 0.05, "deep": 0.3}
# Maximum number of seconds for one file, even on a busy machine. After this time, the process ends with a traceback.
_LIMIT = 60


def main(n_files: int = 20_000, seed: int = 0) -> int:
    """Resume a fit from each mutated file, print the outcomes, and return the exit status."""
    random, counts, slowest, bad = Random(seed), Counter[tuple[str, str]](), (0.0, ""), 0
    originals, weights = checkpoints(), [_RARE.get(name, 1.0) for name in CHECKPOINT_MUTATIONS]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fit.checkpoint")
        expected = {}
        for name, data in originals.items():
            path.write_bytes(data)
            expected[name] = values_of(resumed(name, path))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(n_files):
            name, way = random.choice(list(originals)), random.choices(list(CHECKPOINT_MUTATIONS), weights)[0]
            path.write_bytes(CHECKPOINT_MUTATIONS[way](originals[name], random))
            faulthandler.dump_traceback_later(_LIMIT, exit=True)
            started = time.perf_counter()
            what = outcome(name, path, expected[name])
            slowest = max(slowest, (time.perf_counter() - started, way))
            faulthandler.cancel_dump_traceback_later()
            counts[way, what] += 1
            if what == "not finite" or (way not in FORGED and what not in ("refused", "the same model")):
                bad += 1
                print(f"{name}, {way}: {what}", flush=True)
    for (way, what), count in sorted(counts.items()):
        print(f"{count:8,}  {way:10} {what}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak resident memory {peak / 1024:.0f} MB, of which {before / 1024:.0f} MB before the first file")
    print(f"slowest {slowest[0]:.3f} s ({slowest[1]}); hkrr {hkrr.__version__}, NumPy {np.__version__}")
    print(f"{bad} of {n_files:,} files had a wrong outcome")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
