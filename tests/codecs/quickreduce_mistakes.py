"""quickreduce_mistakes.py LIST SOURCE OUT: a copy of a source that makes one of a list of mistakes, the one that quickreduce_mistake names by its number.

LIST is TOML: for each mistake pairs of what stands in SOURCE, once, and what stands there instead. What stands nowhere, or twice, is an error.
"""

import re
import sys
import tomllib
from pathlib import Path

MARKED = re.compile("«(.*)»", re.DOTALL)


def main(list_file, source, out):
    mistakes = tomllib.loads(Path(list_file).read_text())
    text = Path(source).read_text()
    choices = {}  # at a place: (number, what stands there instead)
    for number, pairs in enumerate(mistakes.values(), 1):
        for place, wrong in pairs:
            choices.setdefault(place, []).append((number, wrong))
    for place in sorted(choices, key=len):  # inner places come first: outer ones are sought as they have become
        sought = re.sub("[«»]", "", place)
        for inside, became in [(one, new) for one, new in choices.items() if isinstance(new, str)]:
            sought = sought.replace(re.sub("[«»]", "", inside), became)
        if text.count(sought) != 1:
            raise SystemExit(f"error: {source}: {place!r} stands there {text.count(sought)} times")
        marked = MARKED.search(place)
        right = marked[1] if marked else sought
        chosen = right = f"({right})"
        for number, wrong in reversed(choices[place]):
            chosen = f"(testing::quickreduce_mistake == {number} ? ({wrong.replace('@', right)}) : {chosen})"
        became = MARKED.sub(lambda _: chosen, place) if marked else chosen
        text = text.replace(sought, became)
        choices[place] = became
    names = "".join(f'    "{name}",\n' for name in mistakes)
    head = f'#include "tests/codecs/quickreduce_mistakes.h"\n#line 1 "{source}"\n'
    tail = "int arlab::testing::quickreduce_mistake = 0;\nconst std::vector<std::string_view> arlab::testing::kQuickReduceMistakes = {\n"
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(f"{head}{text}\n{tail}{names}}};\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
