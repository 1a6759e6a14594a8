"""Kill fits at random times, resume them from their checkpoints, and compare the models.

    python benchmarks/kills.py [n_kills]      (200 by default)

The kills are distributed over the cases of tests/support/killed_fits.py. Each series of kills ends with a fit that
finishes. The model of this fit must be bitwise equal to the model of an uninterrupted fit. The exit status is the
number of fits that ended with a different model.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.killed_fits import CASES, FitServer


def main(n_kills: int) -> int:
    """Run all cases, and return the number of fits that ended with a different model."""
    server, times, wrong = FitServer(), random.SystemRandom(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            checkpoint, out = folder / f"{case}.checkpoint", folder / f"{case}.npz"
            code, _ = server.fit(case, None, out)
            assert code == 0
            expected = dict(np.load(out))
            code, seconds = server.fit(case, checkpoint, out)
            checkpoint.unlink()
            kills = ends = 0
            while kills < n_kills // len(CASES) + 1:
                code, _ = server.fit(case, checkpoint, out, kill_after=times.uniform(0.0, 0.7 * seconds))
                kills += code != 0
                if code == 0:
                    ends += 1
                    wrong += _differs(out, expected)
                    checkpoint.unlink()
            code, _ = server.fit(case, checkpoint, out)
            ends, wrong = ends + 1, wrong + _differs(out, expected)
            print(f"{case}: {kills} kills, {ends} finished fits, {wrong} wrong models so far", flush=True)
    server.close()
    return wrong


def _differs(out: Path, expected: dict[str, np.ndarray]) -> bool:
    found = np.load(out)
    return any(not np.array_equal(found[name], expected[name]) for name in expected if name != "count")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
