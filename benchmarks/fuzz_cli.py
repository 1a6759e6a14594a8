"""Fuzz test of ``hkrr fit`` with mutated CSV and Parquet files: outcomes, crashes and peak memory.

    python benchmarks/fuzz_cli.py [n_files] [seed]      (30,000 files by default; some minutes)

Each file is a table mutated by a function of tests/support/mutated_tables.py. It is read, split into training and
held-out rows, and encoded. Every fiftieth table is fitted too. A file must be processed, or rejected with a one-line
error. As in benchmarks/fuzz_tables.py, a separate process does the work. If a file has another outcome, crashes the
separate process or takes more than a minute, the file is kept and the exit status is 1. The results are in
benchmarks/results/fuzzing.md.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parent)]
from fuzz_tables import FINE, LIMIT, MOST_BYTES, main  # noqa: E402  # needs the paths above
from support.mutated_commands import KINDS, outcome  # noqa: E402  # needs the paths above
from support.mutated_tables import mutated, originals  # noqa: E402  # needs the paths above

# A model is fitted to every file whose index is a multiple of this number.
_FIT_EVERY = 50


def read(folder: Path, first: int, last: int, seed: int) -> None:
    """Process the files with the indices from ``first`` to ``last - 1``.

    The index of each file is logged before the file is processed, and the outcome is logged afterwards.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for kind in KINDS:  # process valid files first, so that the memory of imports is not counted
        (folder / f"first.{kind}").write_bytes(originals(kind)[0])
        outcome(folder / f"first.{kind}", "yy", fits=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(folder / "log", "a", encoding="utf-8") as log:
        for i in range(first, last):
            random = Random(f"{seed} {i}")
            kind = random.choice(KINDS)
            way, data = mutated(kind, random)
            target = random.choice(["yy", "yy", "aa", None])
            path = folder / f"{i}.{kind}"
            path.write_bytes(data)
            print(f"{i}\t{kind} {way}\t", end="", file=log, flush=True)
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            what = outcome(path, target, fits=i % _FIT_EVERY == 0)
            faulthandler.cancel_dump_traceback_later()
            print(what if what in FINE else " ".join(f"{what} (target {target})".split())[:300], file=log)
            if what in FINE:
                path.unlink()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory\t{before}\t{peak}", file=log)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:]), read=read))
