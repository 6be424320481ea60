"""The command `arlab` and `python -m arlab`: the commands of the program, in this process."""

from __future__ import annotations

import os
import sys

from arlab import _arlab, _tables  # noqa: F401  (_tables says where the package's files are)


def main() -> int:
    """Runs the command line; returns the exit code: 0 done, 1 a check failed, 2 bad usage or input."""
    # Pictures, and what else the program leaves to Python, are this Python's.
    os.environ.setdefault("ARLAB_PYTHON", sys.executable)
    return _arlab.program(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
