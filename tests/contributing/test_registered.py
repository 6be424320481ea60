"""Every file of tests is run by something: a CMakeLists.txt of tests/, or test.sh, names it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOOP = re.compile(r"foreach\((\w+)((?:\s+\w+)+)\)((?:(?!foreach\().)*?)endforeach\(\)", re.DOTALL)
TEST = re.compile(r"test_.*\.\w+|.*_test\.\w+")


def written_out(text):
    """Without comments, and what loops over words say once for each word."""
    text = re.sub("#.*", "", text)
    while loop := LOOP.search(text):
        name, words, body = loop.groups()
        text = text[: loop.start()] + "".join(body.replace(f"${{{name}}}", word) for word in words.split()) + text[loop.end() :]
    return text


def names_in(text):
    return set(re.findall(r"[\w.]+", text))


def registered(tests=ROOT / "tests"):
    files = [*tests.rglob("CMakeLists.txt"), *tests.rglob("*.cmake"), tests.parent / "test.sh"]
    return set().union(*(names_in(written_out(file.read_text())) for file in files))


def files_of_tests(tests=ROOT / "tests"):
    return [file for file in sorted(tests.rglob("*")) if file.is_file() and TEST.fullmatch(file.name) and "__pycache__" not in file.parts]


def test_every_file_of_tests_is_run():
    names = registered()
    assert len(files_of_tests()) > 100
    assert [str(file.relative_to(ROOT)) for file in files_of_tests() if file.name not in names] == []


@pytest.mark.parametrize(
    "said, found",
    [
        ("arlab_test(new_test new_test.cc)", True),
        ("foreach(subject old new)\n  arlab_python_test(cli_${subject} ${subject}_test.cc)\nendforeach()", True),
        ("foreach(subject old newer)\n  arlab_python_test(cli_${subject} ${subject}_test.cc)\nendforeach()", False),
        ("# arlab_test(new_test new_test.cc)", False),
        ("arlab_test(renew_test renew_test.cc)", False),
    ],
)
def test_a_file_that_nothing_names_is_seen(tmp_path, said, found):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/new_test.cc").touch()
    (tmp_path / "tests/CMakeLists.txt").write_text(said)
    (tmp_path / "test.sh").touch()
    assert ["new_test.cc"] == [file.name for file in files_of_tests(tmp_path / "tests")]
    assert ("new_test.cc" in registered(tmp_path / "tests")) == found
