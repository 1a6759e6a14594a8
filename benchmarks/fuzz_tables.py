"""Fuzz test of the file readers with mutated CSV, Parquet and .npy files: outcomes, crashes and peak memory.

    python benchmarks/fuzz_tables.py [n_files] [seed]      (30,000 files by default; some minutes)

Each file is a table mutated by one of the functions of tests/support/mutated_tables.py. Reading the file must raise a
ValueError that names the file, or return finite numbers. A separate process reads the files, so that crashes, and files
that take more than a minute, are detected. After a crash or a timeout, a new process reads the next files. Files with a
wrong outcome are kept, and the exit status is then 1. The results are in benchmarks/results/fuzzing.md.
"""

from __future__ import annotations

import faulthandler
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.mutated_tables import KINDS, mutated, originals, outcome

# Maximum number of seconds for one file, even on a busy machine.
LIMIT = 60
# Maximum address space of the process in bytes. With this limit, reading a file whose header
# claims a huge size fails instead of using up the memory of the machine.
MOST_BYTES = 6 << 30
# Outcomes that are correct.
FINE = ("read", "refused", "fitted")


def read(folder: Path, first: int, last: int, seed: int) -> None:
    """Read the files with the indices from ``first`` to ``last - 1``.

    The index of each file is logged before the file is read, and the outcome is logged afterwards.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for kind in KINDS:  # read valid files first, so that the memory of imports is not counted
        (folder / f"first.{kind}").write_bytes(originals(kind)[0])
        outcome(folder / f"first.{kind}", None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(folder / "log", "a", encoding="utf-8") as log:
        for i in range(first, last):
            random = Random(f"{seed} {i}")
            kind = random.choice(KINDS)
            way, data = mutated(kind, random)
            target = random.choice([-1, None] if kind == "npy" else ["yy", "yy", 0, None])
            path = folder / f"{i}.{kind}"
            path.write_bytes(data)
            print(f"{i}\t{kind} {way}\t", end="", file=log, flush=True)
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            what = outcome(path, target)
            faulthandler.cancel_dump_traceback_later()
            print(
                " ".join(f"{what} (target {target})".split())[:300] if what not in ("read", "refused") else what,
                file=log,
            )
            if what in ("read", "refused"):
                path.unlink()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory\t{before}\t{peak}", file=log)


def main(n_files: int = 30_000, seed: int = 0, read: Callable[[Path, int, int, int], None] = read) -> int:
    """Run ``read`` on all files in separate processes, print the outcomes, and return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="hkrr-fuzz-"))
    print(f"files are written to {folder}", flush=True)
    first, crashes = 0, 0
    while first < n_files:
        child = get_context("spawn").Process(target=read, args=(folder, first, n_files, seed))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        written = (folder / "log").read_text(encoding="utf-8")
        if not written.endswith("\t"):
            raise RuntimeError("the process failed while no file was being read; see the error above")
        with open(folder / "log", "a", encoding="utf-8") as log:
            print(f"died with status {child.exitcode}", file=log)
        crashes += 1
        first = int(written.splitlines()[-1].split("\t")[0]) + 1
    lines = [line.split("\t") for line in (folder / "log").read_text(encoding="utf-8").splitlines()]
    counts = Counter((way, what if what in FINE else "wrong") for i, way, what in lines if i.isdigit())
    for (way, what), count in sorted(counts.items()):
        print(f"{count:8,}  {way:22} {what}")
    wrong = [line for line in lines if line[0].isdigit() and line[2] not in FINE]
    for i, way, what in wrong[:50]:
        print(f"{i}: {way}: {what}")
    before, peak = (max(int(line[k]) for line in lines if line[0] == "memory") / 1024 for k in (1, 2))
    print(f"peak resident memory {peak:.0f} MB, of which {before:.0f} MB before the first file (imports)")
    print(
        f"{crashes} crashes; {len(wrong)} of {n_files:,} files had a wrong outcome{f': see {folder}' if wrong else ''}"
    )
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
