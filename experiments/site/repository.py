"""Where things are: the repository, the site's sources, and the program, which references and pictures are made with."""

import os
import subprocess
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
REPOSITORY = SITE.parents[1]
PROGRAM = Path(os.environ.get("ARLAB_BIN", REPOSITORY / "build/bin")) / "arlab"


def arlab(*arguments: str, cwd: Path | None = None) -> bytes:
    """Returns the program's stdout; ends with a line that says so if there is no program."""
    try:
        return subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.PIPE, cwd=cwd).stdout
    except FileNotFoundError:
        sys.exit(f"error: there is no {PROGRAM}: ./quickstart.sh builds it, or ARLAB_BIN names its folder")
