"""Words of comments, docstrings and pages: comments begin with their subject, sentences have 30 words, pages 1,500."""

import ast
import functools
import io
import re
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments/site"))

import markdown_links  # noqa: E402

ROOMS = ("reference", "sim", "kernels", "experiments", "tests", "cmake", "notebooks")
CXX = {".cc", ".h", ".hip", ".cu", ".js", ".css", ".pml"}
HASHED = {".sh", ".toml", ".cmake", ".yml"}
MOST_WORDS = 30
#: Most comments and docstrings that begin as FRAGMENT says, and most sentences of more words.
MOST_FRAGMENTS = 0
MOST_LONG = {"pages": 0, "docstrings": 0}
#: Most words of a page, and of all, as wc -w counts without HTML comments; but those that may be long.
MOST_OF_PAGE, MOST_OF_PAGES = 1_500, 52_000
MAY_BE_LONG = {"CHANGELOG.md", *(f"reference/{part}/SPEC.md" for part in ("codecs", "layers", "tails"))}
#: Beginnings of sentences that stay longer, with the reason of each; at most 40.
EXCEPTIONS: dict[str, str] = {}

FRAGMENT = re.compile(r"(?:of|what|whose|that)\b", re.IGNORECASE)
CXX_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
MARK = re.compile(r"///?<?|#:?|/\*+")


def sources():
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*")] + [file for file in ROOT.iterdir() if file.name[0] != "."]
    kinds = CXX | HASHED | {".py", ".pyi"}
    others = (ROOT / "kernels/platform/std").iterdir()  # headers without a suffix
    return [file for file in files if file.suffix in kinds or file.name == "CMakeLists.txt"] + [file for file in others if not file.suffix]


def marks_of(file, text):
    """Yields line, column and text of each comment of one line; those of C between /* and */ as one."""
    if file.suffix in {".py", ".pyi"}:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from ((*token.start, token.string) for token in tokens if token.type == tokenize.COMMENT)
    elif file.suffix in HASHED or file.name == "CMakeLists.txt":
        lines = enumerate(text.splitlines(), 1)
        yield from ((number, len(line) - len(line.lstrip()), line.lstrip()) for number, line in lines if line.lstrip().startswith("#"))
    else:
        for found in CXX_TOKEN.finditer(text):
            if found[0][:2] in ("//", "/*"):
                yield text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start()) - 1, found[0]


def comments_of(file, text):
    """Returns (line, mark, text) of comments; lines of one mark and column below each other are one comment."""
    lines, found = text.splitlines(), []
    end = (0, 0, "")
    for number, column, comment in marks_of(file, text):
        mark = MARK.match(comment)[0]
        body = comment[len(mark) :].removeprefix(" ")
        if end == (number - 1, column, mark) and not lines[number - 1][:column].strip():
            found[-1] = (*found[-1][:2], f"{found[-1][2]}\n{body}")
        else:
            found.append((number, mark, body))
        end = (number, column, mark)
    return found


def docstrings_of(file, text):
    if file.suffix not in {".py", ".pyi"}:
        return []
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, nodes) and ast.get_docstring(node)]
    return [(node.body[0].lineno, '"""', ast.get_docstring(node)) for node in documented]


@functools.cache
def texts():
    """Returns (place, mark, text) of all comments and docstrings."""
    found = []
    for file in sources():
        text = file.read_text(encoding="utf-8")
        of_file = comments_of(file, text) + docstrings_of(file, text)
        found += [(f"{file.relative_to(ROOT)}:{line}", mark, each) for line, mark, each in of_file]
    return found


def is_fragment(text):
    return FRAGMENT.match(text) is not None and not re.match(r"[^.!?]*\?(?:\s|$)", text)


def items_of(text):
    """Returns the paragraphs and list items of a docstring; code, which is indented, and tables are left out."""
    items, inside = [], False
    for line in text.splitlines():
        begins = re.match(r"(?:\S.*?\S {2,}|[-*] | +\w+: )(\S.*)", line)
        if begins:
            items.append(begins[1])
        elif inside and (line[:1] != " " or re.match(r" {6}", line)):
            items[-1] += " " + line.strip()
        elif line[:1] not in ("", " "):
            items.append(line)
        inside = bool(begins) or line[:1] not in ("", " ") or inside and re.match(r" {6}", line) is not None
    return items


def paragraphs_of(page):
    """Returns the paragraphs and list items of a page; an inline code counts as a word."""
    text = markdown_links.text_of(page)
    if page.name == "CHANGELOG.md":
        text = "## ".join(text.split("\n## ")[:2])
    tokens, found, tables = markdown_links.PARSER.parse(text), [], 0
    for opening, inline in zip(tokens, tokens[1:]):
        tables += (opening.type == "table_open") - (opening.type == "table_close")
        if opening.type == "paragraph_open" and not tables:
            shown = {"code_inline": "code", "softbreak": " ", "hardbreak": "; "}
            found.append("".join(shown.get(each.type, each.content if each.type == "text" else "") for each in inline.children))
    return found


def long_sentences(paragraph):
    sentences = re.split(r"(?<=[.?!:;])[)\"]?\s+", paragraph)
    return [each for each in sentences if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS]


@functools.cache
def all_long(kind):
    if kind == "pages":
        items = [(page.relative_to(ROOT), item) for page in markdown_links.pages() for item in paragraphs_of(page)]
    else:
        items = [(place, item) for place, mark, text in texts() if mark in ('"""', "///") for item in items_of(text)]
    return [(place, each) for place, item in items for each in long_sentences(item)]


def too_many(found, most):
    return "\n".join(f"{place}: {text.splitlines()[0]}" for place, text in found) if len(found) > most else ""


def test_comments_begin_with_their_subject():
    all_texts = texts()
    assert len(all_texts) > 10_000
    assert too_many([(place, text) for place, _, text in all_texts if is_fragment(text)], MOST_FRAGMENTS) == ""


@pytest.mark.parametrize("kind", MOST_LONG)
def test_sentences_are_short(kind):
    found = all_long(kind)
    assert too_many([each for each in found if not each[1].startswith(tuple(EXCEPTIONS))], MOST_LONG[kind]) == ""


def test_pages_are_short():
    pages = {page.relative_to(ROOT).as_posix(): page for page in markdown_links.pages() if page.suffix == ".md"}
    shown = {name: re.sub("<!--.*?-->", "", page.read_text(), flags=re.DOTALL) for name, page in pages.items()}
    counts = {name: len(text.split()) for name, text in shown.items() if name not in MAY_BE_LONG}
    assert len(counts) == len(pages) - len(MAY_BE_LONG) > 50
    assert {name: count for name, count in counts.items() if count > MOST_OF_PAGE} == {}
    assert sum(counts.values()) <= MOST_OF_PAGES


def test_exceptions_are_few_and_needed():
    found = all_long("pages") + all_long("docstrings")
    assert len(EXCEPTIONS) <= 40 and all(EXCEPTIONS.values())
    assert [each for each in EXCEPTIONS if not any(text.startswith(each) for _, text in found)] == []


@pytest.mark.parametrize("name, text", [
    ("a.cc", "/// Of a wire.\n/// More.\nint a;  ///< what it has\nint b;  // That of a.\n/* Whose\n   it is */\n"),
    ("a.py", '"""Of a wire."""\n# What\n# it has\na = 1  #: that of a\ndef f():\n    """Whose it is."""\n'),
    ("a.toml", "# Of a wire.\na = 1\n  # what it has\nb = 2\n# That\nc = 3\n# whose\n"),
])  # fmt: skip
def test_fragments_are_found(name, text):
    file = Path(name)
    found = comments_of(file, text) + docstrings_of(file, text)
    assert sorted(each.split()[0].lower() for _, _, each in found if is_fragment(each)) == ["of", "that", "what", "whose"]


@pytest.mark.parametrize("text", ["What is a wire? Bytes.", "Offsets of a wire.", "The wire. Of these ..."])
def test_questions_and_subjects_are_no_fragments(text):
    assert not is_fragment(text)


def test_long_sentences_are_counted_by_item(tmp_path):
    long, short = " ".join(["word"] * 31), " ".join(["word"] * 16)
    docstring = f"First.\n\n    {long}\n\nname      {short}\nanother   {short}\n\nArgs:\n    a: {short}\n        {short}\n"
    assert [long_sentences(item) for item in items_of(docstring)] == [[], [], [], [], [f"{short} {short}"]]
    page = tmp_path / "page.md"
    page.write_text(f"# {long}\n\n{short}: {short}. (And\n{short}.) {long}.\n\n- {short}\n- {short}\n\n| {long} |\n| --- |\n\n```\n{long}\n```\n")
    assert [each for item in paragraphs_of(page) for each in long_sentences(item)] == [f"{long}."]
