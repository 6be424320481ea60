"""Executes the notebooks of this folder from top to bottom and writes their outputs into them.

    PYTHONPATH=../build/bin/python ../.venv/bin/python execute.py [NOTEBOOK ...]

All are executed unless some are named. What changes from one execution to the next (times, identifiers, versions) is left
out, so that an execution without changes leaves the files as they are. tests/notebooks executes them with these functions,
and compares.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
TIMEOUT_S = 300


def notebooks() -> list[Path]:
    """All notebooks, by name."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def executed(notebook: NotebookNode) -> NotebookNode:
    """A copy, executed in this folder. Raises nbclient.exceptions.CellExecutionError when a cell raises."""
    import matplotlib.font_manager  # noqa: F401 - makes the cache of fonts, of which a kernel would write to stderr

    result = clean(notebook)
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="arlab-nb-") as folder:
        # Neither the user's settings nor files of theirs have a say. Sockets are files there, not ports that all can reach.
        os.environ.update(
            IPYTHONDIR=folder, JUPYTER_RUNTIME_DIR=folder, JUPYTER_CONFIG_DIR=folder, JUPYTER_DATA_DIR=folder,
            PYTHONHASHSEED="0", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
        )  # fmt: skip
        os.environ.pop("MPLBACKEND", None)
        try:
            client = NotebookClient(
                result, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}},
                store_widget_state=False, record_timing=False,
            )  # fmt: skip
            manager = client.create_kernel_manager()
            manager.transport, manager.ip = "ipc", f"{folder}/kernel"
            client.execute()
        finally:
            os.environ.clear()
            os.environ.update(before)
    return clean(result, keep_outputs=True)


def clean(notebook: NotebookNode, keep_outputs: bool = False) -> NotebookNode:
    """A copy without what changes from one execution to the next."""
    result = nbformat.from_dict(notebook)
    result.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    result.nbformat, result.nbformat_minor = 4, 5
    for number, cell in enumerate(result.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = NotebookNode()
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs) if keep_outputs else []
            cell.execution_count = cell.execution_count if keep_outputs else None
    return result


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs with what a stream got in pieces in one, however the pieces were cut."""
    result: list[NotebookNode] = []
    for output in outputs:
        output = nbformat.from_dict(output)
        if output.output_type == "stream" and result and result[-1].get("name") == output.name:
            result[-1].text += output.text
            continue
        if "metadata" in output:
            output.metadata = NotebookNode()
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = small(output.data["image/png"])
        result.append(output)
    return result


def small(png: str) -> str:
    """The picture with at most 256 colours: half of the bytes, and hard to tell from it."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png)))
    if picture.mode == "P":  # it has been here before
        return png
    out = io.BytesIO()
    picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode("ascii")


def text_of(notebook: NotebookNode) -> list[list[tuple[str, str]]]:
    """Returns, by code cell, the kind and the text of its outputs, without trailing spaces. Of an image, that it is
    one."""
    return [[part for output in cell.outputs for part in parts(output)] for cell in notebook.cells if cell.cell_type == "code"]


def parts(output: NotebookNode) -> list[tuple[str, str]]:
    def lines(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    if output.output_type == "stream":
        return [(output.name, lines(output.text))]
    if output.output_type == "error":
        return [("error", f"{output.ename}: {output.evalue}")]
    if "image/png" in output.data:
        return [("image", "")]
    return [("text", lines(output.data.get("text/plain", "")))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="by default all")
    chosen = [name.resolve() for name in parser.parse_args().notebooks] or notebooks()
    if missing := [str(path) for path in chosen if not path.is_file()]:
        parser.error(f"there is no file {missing[0]}")
    for path in chosen:
        begin = time.monotonic()
        result = executed(read(path))
        for cell in result.cells:
            for kind, text in (part for output in cell.get("outputs", []) for part in parts(output)):
                if kind == "stderr":
                    sys.exit(f"{path.name}: a cell wrote to stderr: {text}")
        nbformat.validate(result)
        nbformat.write(result, path)
        print(f"{path.name:45} {time.monotonic() - begin:5.1f} s {path.stat().st_size / 1000:7.0f} KB")


if __name__ == "__main__":
    main()
