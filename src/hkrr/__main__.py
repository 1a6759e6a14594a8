"""Entry point of ``python -m hkrr`` and of the command ``hkrr``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or exit with a message if typer or rich is not installed."""
    try:
        from hkrr.cli import app
    except ImportError as error:  # typer and rich are optional: only the command line needs them
        sys.exit(f'The command line needs typer and rich ({error}): pip install "hkrr[cli]"')
    app()


if __name__ == "__main__":
    main()
