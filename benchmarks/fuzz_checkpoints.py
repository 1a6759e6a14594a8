"""Mutated checkpoints, each with the fit that it belongs to: the kinds of outcomes, the peak memory and the slowest.

    python benchmarks/fuzz_checkpoints.py [n_files] [seed]      (20,000 files by default; some minutes)

Each file is mutated by one of the ways of tests/mutated_checkpoints.py. What is damaged must be refused with
CheckpointError, or be the file that it was: the fit goes on, and ends with the same model, bit for bit. What somebody
has forged, its checksum right, may also end the fit with another model, whose numbers are finite, or with an error.
Ends with status 1 where one does not. Results: benchmarks/results/fuzzing.md.
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
from mutated_checkpoints import CHECKPOINT_MUTATIONS, SEALED, checkpoints, outcome, resumed, values_of

# Long headers take milliseconds each.
_RARE = {"huge": 0.05, "deep": 0.3}
_LIMIT = 60  # seconds, on a busy machine too; then the process ends, and says where it was


def main(n_files: int = 20_000, seed: int = 0) -> int:
    """Run the files; return the exit status."""
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
            began = time.perf_counter()
            what = outcome(name, path, expected[name])
            slowest = max(slowest, (time.perf_counter() - began, way))
            faulthandler.cancel_dump_traceback_later()
            counts[way, what] += 1
            if what == "not finite" or (way not in SEALED and what not in ("refused", "the same model")):
                bad += 1
                print(f"{name}, {way}: {what}", flush=True)
    for (way, what), count in sorted(counts.items()):
        print(f"{count:8,}  {way:10} {what}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak resident memory {peak / 1024:.0f} MB, of which {before / 1024:.0f} MB before the first file")
    print(f"slowest {slowest[0]:.3f} s ({slowest[1]}); hkrr {hkrr.__version__}, NumPy {np.__version__}")
    print(f"{bad} of {n_files:,} files did what none should")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
