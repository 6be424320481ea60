"""The notebooks: executed from top to bottom they give the outputs that are committed, and write nothing to stderr."""

import difflib
import importlib.util
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
SPEC = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
execute = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(execute)

LARGEST_BYTES = 400_000
NOTEBOOKS = execute.notebooks()


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_some():
    assert len(NOTEBOOKS) >= 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_as_execute_writes_it(path):
    notebook = execute.read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size <= LARGEST_BYTES
    assert any(cell.outputs for cell in code_cells(notebook)), "committed without outputs: run notebooks/execute.py"
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "not executed from top to bottom"
    assert execute.clean(notebook, keep_outputs=True) == notebook, "metadata that changes: run notebooks/execute.py"
    for word in ("/home/", "/tmp/", " at 0x", str(FOLDER)):
        assert word not in str(execute.text_of(notebook)), f"an output holds {word!r}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_does_what_it_shows(path):
    committed = execute.read(path)
    # A cell that raises ends this.
    again = execute.executed(committed)
    for number, (old, new) in enumerate(zip(execute.text_of(committed), execute.text_of(again)), 1):
        assert "stderr" not in [kind for kind, _ in new], f"code cell {number} writes to stderr: {new}"
        assert [kind for kind, _ in old] == [kind for kind, _ in new], f"code cell {number} has outputs of other kinds"
        for (_, before), (_, after) in zip(old, new):
            difference = difflib.unified_diff(before.splitlines(), after.splitlines(), "committed", "executed", lineterm="")
            assert before == after, f"code cell {number}; if it is right so, run notebooks/execute.py\n" + "\n".join(difference)


def test_what_differs_is_seen():
    """The comparison itself: a stream in pieces is the same, another text, an error and a lost picture are not."""

    def notebook(*outputs):
        cell = nbformat.v4.new_code_cell("", outputs=list(outputs))
        return execute.text_of(execute.clean(nbformat.v4.new_notebook(cells=[cell]), keep_outputs=True))

    def stream(text, name="stdout"):
        return nbformat.v4.new_output("stream", name=name, text=text)

    assert notebook(stream("a\n"), stream("b \n")) == notebook(stream("a\nb\n"))
    assert notebook(stream("a\n")) != notebook(stream("b\n"))
    assert notebook(stream("a\n")) != notebook(stream("a\n", "stderr"))
    assert notebook(stream("a\n")) != notebook()


def test_names_of_no_file(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["execute.py", "none.ipynb"])
    with pytest.raises(SystemExit, match="2"):
        execute.main()
    assert "there is no file" in capsys.readouterr().err


def test_a_cell_that_raises_is_seen():
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute.executed(broken)
