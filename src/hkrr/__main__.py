"""``python -m hkrr``, and the command ``hkrr``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from hkrr.cli import app
    except ImportError as error:  # the library does without typer, rich and matplotlib
        sys.exit(f'The command line needs typer and rich ({error}): pip install "hkrr[cli]"')
    app()


if __name__ == "__main__":
    main()
