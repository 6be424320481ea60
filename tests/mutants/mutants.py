#!/usr/bin/env python3
"""mutants.py LIST SOURCES OUT: copies of sources with all mistakes of a list, of which one is chosen when the program starts.

LIST       TOML. A table is a group of mutants that the same tests must see: `name = "what stands there instead"`. In it, @ is what
           stands there. Tables in [alone] hold those of constants, which cannot be chosen when a program runs: a copy each.
SOURCES    a folder. In its files // mutant: NAME on the line above a statement marks its condition (if, while), what it returns, what
           it assigns, or, of any other, all of it; /* mutant: NAME */ marks the expression behind it. A name may stand in
           several places, and several names, with commas between them, in one.
OUT        gets a file for every file with a mutant, under its path from the folder above SOURCES; alone/NAME/ gets those of one
           mistake, and mutants.cc reads ARLAB_MUTANT, the name of the mistake, from the environment.

Prints a line `GROUP NAME FILE` for every mutant and file. A name without an anchor, and an anchor without a name, are errors.
"""

import re
import sys
import tomllib
from pathlib import Path

ANCHOR = re.compile(r"/\* mutant: ([\w, ]+?) \*/|// mutant: ([\w, ]+)\n")
SKIPPED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
CONDITION = re.compile(r"(?:else )?(?:if|while)(?: constexpr)? \(")
PRELUDE = "extern const int arlab_mutant;\n"


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
    raise SystemExit("error: a mutant's anchor at the end of a file")


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


def marked(text, anchor):
    """(begin, end, words) of what an anchor marks; words are `return ` where it is what is returned, and None of an expression."""
    begin = anchor.end() + re.match(r"\s*", text[anchor.end() :]).end()
    if anchor[1] is not None:
        return begin, end_of(text, begin, ",;"), None
    if condition := CONDITION.match(text, begin):
        return condition.end(), end_of(text, condition.end(), ""), None
    end = end_of(text, begin, ",;")
    if text.startswith("return ", begin):
        return begin, end, "return "
    assigned = assigned_from(text[begin:end])
    return (begin, end, "") if assigned is None else (begin + assigned, end, None)


def changed(text, anchor, cases):
    """The text with what the anchor marks changed: cases are (condition or None for always, what stands there instead)."""
    begin, end, words = marked(text, anchor)
    right = text[begin:end].strip()
    once = " ".join(SKIPPED.sub(lambda match: "" if match[0].startswith("/") else match[0], right).split())
    for condition, wrong in cases:
        if words is None:
            wrong = wrong.replace("@", f"({once})")
            right = f"({condition} ? ({wrong}) : ({right}))" if condition else wrong
        else:
            wrong = words + wrong.replace("@", once.removeprefix(words))
            right = f"if ({condition}) {{ {wrong}; }} else {{ {right}; }}" if condition else wrong
    return text[:begin] + right + text[end:]


def names_of(anchor):
    return [name.strip() for name in (anchor[1] or anchor[2]).split(",")]


def copy_of(text, change):
    """change(name): a case, or None. From the last anchor to the first: one may stand inside what another marks."""
    for anchor in reversed(list(ANCHOR.finditer(text))):
        cases = [case for case in map(change, names_of(anchor)) if case]
        if cases:
            text = changed(text, ANCHOR.match(text, anchor.start()), cases)
    return text


def write(path, text):
    """What has not changed keeps its date, so that it is not compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def main(list_file, sources, out):
    listed = tomllib.loads(Path(list_file).read_text())
    alone = listed.pop("alone", {})
    numbers = {name: number for number, name in enumerate((name for group in listed.values() for name in group), 1)}
    group_of = {name: group for groups in (listed, alone) for group, mutants in groups.items() for name in mutants}
    wrong_of = {name: wrong for groups in (listed, alone) for mutants in groups.values() for name, wrong in mutants.items()}
    if len(wrong_of) != sum(len(mutants) for groups in (listed, alone) for mutants in groups.values()):
        raise SystemExit(f"error: {list_file}: a name stands twice")
    sources, out = Path(sources), Path(out)
    found = set()
    for file in sorted(path for path in sources.rglob("*") if path.suffix in {".h", ".cc", ".hip"}):
        text = file.read_text()
        names = [name for anchor in ANCHOR.finditer(text) for name in names_of(anchor)]
        for name in names:
            if name not in wrong_of:
                raise SystemExit(f"error: {file}: the mutant {name} is not in {list_file}")
        if not names:
            continue
        found.update(names)
        path = file.relative_to(sources.parent)
        line = f'#line 1 "{file}"\n'
        if any(name in numbers for name in names):
            chosen = copy_of(text, lambda name: (f"arlab_mutant == {numbers[name]}", wrong_of[name]) if name in numbers else None)
            write(out / path, PRELUDE + line + chosen)
        for name in dict.fromkeys(names):
            if name not in numbers:
                only = copy_of(text, lambda other: (None, wrong_of[other]) if other == name else None)
                write(out / "alone" / name / path, line + only)
            print(group_of[name], name, path)
    if missing := wrong_of.keys() - found:
        raise SystemExit(f"error: {list_file}: no anchor below {sources} has the name {', '.join(sorted(missing))}")
    write(
        out / "mutants.cc",
        "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n\nextern const int arlab_mutant;\nnamespace {\n"
        "int chosen() {\n  const char* name = std::getenv(\"ARLAB_MUTANT\");\n  if (name == nullptr) return 0;\n"
        + "".join(f'  if (std::strcmp(name, "{name}") == 0) return {number};\n' for name, number in numbers.items())
        + '  std::fprintf(stderr, "there is no mutant %s\\n", name);\n  std::exit(2);\n}\n}  // namespace\n'
        "const int arlab_mutant = chosen();\n",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
