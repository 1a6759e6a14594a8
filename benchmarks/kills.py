"""Kill fits at random moments, many times, and compare what they end with: python benchmarks/kills.py [kills]

200 kills by default, shared by the cases of tests/victims.py; each chain of kills ends with a fit that is let go on,
and whose model must be that of an unbroken fit, bit for bit.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from victims import CASES, Victims


def main(n_kills: int) -> int:
    """Return the number of fits that ended with another model."""
    victims, moments, wrong = Victims(), random.SystemRandom(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            checkpoint, out = folder / f"{case}.checkpoint", folder / f"{case}.npz"
            code, _ = victims.fit(case, None, out)
            assert code == 0
            expected = dict(np.load(out))
            code, seconds = victims.fit(case, checkpoint, out)
            checkpoint.unlink()
            kills = ends = 0
            while kills < n_kills // len(CASES) + 1:
                code, _ = victims.fit(case, checkpoint, out, kill_after=moments.uniform(0.0, 0.7 * seconds))
                kills += code != 0
                if code == 0:
                    ends += 1
                    wrong += _differs(out, expected)
                    checkpoint.unlink()
            code, _ = victims.fit(case, checkpoint, out)
            ends, wrong = ends + 1, wrong + _differs(out, expected)
            print(f"{case}: {kills} kills, {ends} fits that ended, {wrong} wrong models so far", flush=True)
    victims.close()
    return wrong


def _differs(out: Path, expected: dict[str, np.ndarray]) -> bool:
    found = np.load(out)
    return any(not np.array_equal(found[name], expected[name]) for name in expected if name != "count")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
