"""What the scripts share that draw one picture of one JSON file: reading, writing, command line."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from plot_study import InputError, write_whole


def read_report(source: Path, schema: str, command: str) -> dict[str, Any]:
    """The JSON object that `arlab COMMAND` wrote; its schema is named `schema`/version."""
    try:
        report: dict[str, Any] = json.loads(source.read_text("utf-8"))
        if not report["schema"].startswith(f"{schema}/"):
            raise InputError(f"{source}: not of arlab {command}")
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{source}: not of arlab {command} ({error})") from error
    return report


def write_picture(picture: Path, style: dict[str, Any], draw: Callable[[], Figure]) -> None:
    """Draws with matplotlib's defaults and `style`, and writes; equal data give equal bytes."""
    kind = picture.suffix.removeprefix(".")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc
        matplotlib.rcParams.update(style)
        figure = draw()
        FigureCanvasAgg(figure)
        data = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(data, format=kind, metadata=metadata)
    write_whole(picture, data.getvalue())


def run(description: str, source: str, picture: str, plot: Callable[[Path, Path], None]) -> int:
    """The command line of a script; `source` and `picture` name its two arguments."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", metavar=source, type=Path)
    parser.add_argument("picture", metavar=picture, type=Path)
    arguments = parser.parse_args()
    try:
        plot(arguments.source, arguments.picture)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
