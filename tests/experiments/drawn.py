"""Common parts of the tests of figures: tables as `arlab` writes them, texts on a figure, and refusals."""

import os
from pathlib import Path

from arlab.figures import __main__, style

BIN = Path(os.environ.get("ARLAB_BIN", Path(__file__).resolve().parents[2] / "build" / "bin"))


def plain(text):
    """A text without its line breaks."""
    return text.replace(style.NO_BREAK, " ").replace("\n", " ")


def texts_of(figure):
    """Everything that is written on a figure."""
    return [plain(text.get_text()) for text in figure.findobj(style.Text)]


def said_on(figure):
    return "\n".join(texts_of(figure))


def title_of(figure):
    """The title, which states the finding in at most 12 words."""
    title = plain(figure.texts[0].get_text())
    assert len(title.split()) <= 12, title
    return title


def refused(capsys, folder, words, message):
    """One line, exit code 2, and no picture."""
    assert __main__.main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("error: ") and message in err, err
    assert list(folder.glob("*.png")) == []
