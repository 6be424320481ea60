#!/usr/bin/env python3
"""mutants.py LIST SOURCES OUT: copies of sources with all mistakes of a list, of which one is chosen when the program starts.

LIST       TOML. A table is a group of mutants that the same tests must see: `name = ["FILE: TEXT", ..., "what stands there instead"]`, with
           the places of the mistake: a text that the file below SOURCES has once, at which a statement begins, or behind a ¶ in it; or an
           expression, behind a « in it. In what stands there instead, @ is what stands there. Several mutants may have one place.

A place marks the condition of a statement (if, while), what it returns, what it assigns, or, of any other, all of it; or the expression.
OUT        gets a file for every file with a mutant, under its path from the folder above SOURCES, and mutants.cc, which reads
           ARLAB_MUTANT, the name of a mistake, from the environment.

Prints a line `GROUP NAME FILE` for every mutant and file. A text that a file has not once is an error.
"""

import re
import sys
import tomllib
from pathlib import Path

SKIPPED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
CONDITION = re.compile(r"(?:else )?(?:if|while)(?: constexpr)? \(")


def end_of(text, at, stops):
    """Where what begins at `at` ends: at one of `stops` or at a closing bracket, if that is not its own."""
    depth = 0
    while at < len(text):
        if skipped := SKIPPED.match(text, at):
            at = skipped.end()
            continue
        if depth == 0 and text[at] in ")]}" + stops:
            return at
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    raise SystemExit("error: a mutant's place at the end of a file")


def assigned_from(statement):
    """Where in a statement begins what it assigns, or None."""
    at = 0
    while True:
        at = end_of(statement + ";", at, "=;")
        if at == len(statement):
            return None
        if statement[at : at + 2] != "==" and statement[at - 1] not in "=!<>":
            return at + 1
        at += 1


def marked(text, begin, is_expression):
    """(begin, end, words) of what a place marks; words are `return ` where it is what is returned, and None of an expression."""
    if is_expression:
        return begin, end_of(text, begin, ",;"), None
    if condition := CONDITION.match(text, begin):
        return condition.end(), end_of(text, condition.end(), ""), None
    end = end_of(text, begin, "," if text[begin] == "." else ";")  # .name = value, and any statement
    if text.startswith("return ", begin):
        return begin, end, "return "
    assigned = assigned_from(text[begin:end])
    return (begin, end, "") if assigned is None else (begin + assigned, end, None)


def changed(text, begin, is_expression, names, wrong_of, numbers):
    """The text with a choice at a place, between what it marks and what stands there instead."""
    begin, end, words = marked(text, begin, is_expression)
    right = text[begin:end].strip()
    once = " ".join(SKIPPED.sub(lambda match: "" if match[0].startswith("/") else match[0], right).split())
    for name in names:
        chosen = f"arlab_mutant == {numbers[name]}"
        if words is None:
            right = f"({chosen} ? ({wrong_of[name].replace('@', f'({once})')}) : ({right}))"
        else:
            right = f"if ({chosen}) {{ {words}{wrong_of[name].replace('@', once.removeprefix(words))}; }} else {{ {right}; }}"
    return text[:begin] + right + text[end:]


def places_in(text, file, named):
    """{begin: (is it an expression, names)} of the texts that the list names of this file."""
    places = {}
    for name, place in named:
        before, mark, behind = re.match("(?:(.*)([«¶]))?(.*)", place, re.DOTALL).groups("")
        if text.count(before + behind) != 1:
            raise SystemExit(f"error: {file}: what the mutant {name} is about stands there {text.count(before + behind)} times: {place}")
        begin = text.index(before + behind) + len(before)
        places.setdefault(begin, (mark == "«", []))[1].append(name)
    return places


def write(path, text):
    """Unchanged files keep their date, so that they are not compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def main(list_file, sources, out):
    groups = tomllib.loads(Path(list_file).read_text())
    group_of = {name: group for group, mutants in groups.items() for name in mutants}
    wrong_of, named = {}, {}  # named: by file, (name, text)
    for name, (*places, wrong) in ((name, entry) for mutants in groups.values() for name, entry in mutants.items()):
        wrong_of[name] = wrong
        for file, place in (one.split(": ", 1) for one in places):
            named.setdefault(file, []).append((name, place))
    if len(wrong_of) != sum(map(len, groups.values())):
        raise SystemExit(f"error: {list_file}: a name stands twice")
    numbers = {name: number for number, name in enumerate(wrong_of, 1)}
    sources, out = Path(sources), Path(out)
    written = {out / "mutants.cc"}
    for file in sorted(named):
        text = (sources / file).read_text()
        places = places_in(text, sources / file, named[file])
        for begin in sorted(places, reverse=True):  # one may stand inside what another one before it marks
            text = changed(text, begin, *places[begin], wrong_of, numbers)
        path = Path(sources.name) / file
        write(out / path, f'extern const int arlab_mutant;\n#line 1 "{sources / file}"\n{text}')
        written.add(out / path)
        for name in sorted({name for name, _ in named[file]}):
            print(group_of[name], name, path)
    write(
        out / "mutants.cc",
        "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n\nextern const int arlab_mutant;\nnamespace {\n"
        'int chosen() {\n  const char* name = std::getenv("ARLAB_MUTANT");\n  if (name == nullptr) return 0;\n'
        + "".join(f'  if (std::strcmp(name, "{name}") == 0) return {number};\n' for name, number in numbers.items())
        + '  std::fprintf(stderr, "there is no mutant %s\\n", name);\n  std::exit(2);\n}\n}  // namespace\n'
        "const int arlab_mutant = chosen();\n",
    )
    for old in out.rglob("*.*"):  # a stale copy would hide the source
        if old.is_file() and old not in written:
            old.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
