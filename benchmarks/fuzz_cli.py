"""Mutated CSV and Parquet files through the path of ``hkrr fit``: outcomes, crashes and the peak memory.

    python benchmarks/fuzz_cli.py [n_files] [seed]      (30,000 files by default; some minutes)

Each file is a table, mutated by one of the ways of tests/mutated_tables.py. It is read, its target and rows to hold out
are taken, its columns encoded; each fiftieth is fitted too. It must be refused with one line, or go through. As in
benchmarks/fuzz_tables.py another process does it, and a file that ends that one, or takes a minute, is kept. Ends with
status 1 where a file did what none should. Results: benchmarks/results/fuzzing.md.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzz_tables import FINE, LIMIT, MOST_BYTES, main
from mutated_commands import KINDS, outcome
from mutated_tables import mutated, originals

_FITTED = 50  # of so many files one


def read(folder: Path, first: int, last: int, seed: int) -> None:
    """Run files through; write a line about each, before and after."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for kind in KINDS:  # with all imports: what these take is not what reading takes
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
            what = outcome(path, target, fits=i % _FITTED == 0)
            faulthandler.cancel_dump_traceback_later()
            print(what if what in FINE else " ".join(f"{what} (target {target})".split())[:300], file=log)
            if what in FINE:
                path.unlink()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory\t{before}\t{peak}", file=log)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:]), read=read))
