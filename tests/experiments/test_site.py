"""The documentation: links and anchors of all pages, commands and figures of the site's own, references that have everything, and
the site itself, built."""

import copy
import html
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SITE = REPOSITORY / "experiments/site"
sys.path[:0] = [str(SITE), str(REPOSITORY / "tests/cli")]

import markdown_links  # noqa: E402
import pictures  # noqa: E402
import quoted  # noqa: E402
import references  # noqa: E402
from test_readme import checkout  # noqa: E402, F401  (a fixture)

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
PAGES = sorted((SITE / "pages").rglob("*.md"))
REFERENCE = SITE / "pages/reference"
MOST_SECONDS = 60
DRAWN = {SITE / f"pages/pictures/{name}.svg" for name in pictures.PICTURES}  # when the site is built


def expanded(path):
    text = markdown_links.text_of(path)
    return references.expand(text) if path in PAGES else text


def arlab(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=MOST_SECONDS)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


# ---------------------------------------------------------------- links


@pytest.fixture(scope="module")
def anchors():
    return {path: markdown_links.anchors(expanded(path)) for path in markdown_links.pages()}


def broken_links(page, text, anchors):
    """Links of a page that lead nowhere, each with why. Links to elsewhere are looked at by their form only."""
    for link in markdown_links.links(text):
        where = f"{page.relative_to(REPOSITORY)}, line {link.line}: {link.path}{'#' * bool(link.anchor)}{link.anchor}"
        target = (page.parent / link.path).resolve() if link.path else page
        if re.match(r"[a-z]+:", link.path):
            if not re.fullmatch(r"https?://[\w.-]+\.[a-z]{2,}(:\d+)?(/\S*)?", link.path):
                yield f"{where}: this is no address"
        elif not target.is_relative_to(REPOSITORY) or not (target.exists() or target in DRAWN):
            yield f"{where}: there is no such file"
        elif link.anchor and link.anchor not in anchors.get(target, ()):
            yield f"{where}: there is no such heading"


def test_all_links_lead_somewhere(anchors):
    assert len(anchors) >= 30
    assert [line for page in anchors for line in broken_links(page, expanded(page), anchors)] == []


@pytest.mark.parametrize(
    "text, why",
    [
        ("[x](missing.md)", "no such file"), ("[x](glossary.md#missing)", "no such heading"), ("[x](#missing)", "no such heading"),
        ("![x](missing.svg)", "no such file"), ("[x][1]\n\n[1]: missing.md", "no such file"), ("| a |\n| --- |\n| [x](a.md) |", "no such file"),
        ("[x](../../../../../etc/passwd)", "no such file"), ("[x](http:/example)", "no address"), ("[x](/kernels/README.md)", "no such file"),
    ],
)  # fmt: skip
def test_links_that_lead_nowhere_are_seen(anchors, text, why):
    found = list(broken_links(SITE / "pages/index.md", text, anchors))
    assert len(found) == 1 and why in found[0]


def test_anchors_are_those_of_forges():
    text = "# A b\n\n## `x_y`: 1, 2\n\n## Spike reserving (-sr)\n\n# A b\n\n```\n# no heading\n```\n"
    assert markdown_links.anchors(text) == {"a-b", "x_y-1-2", "spike-reserving--sr", "a-b-1"}


#: Pages of folders of sources, for who reads these.
OF_FOLDERS = {f"experiments/{folder}/README.md" for folder in ("benchmarks", "cli", "lab", "python", "site")}


def test_navigation_is_short_and_its_links_lead_to_every_page():
    nav = (SITE / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert re.findall(r"^  - (.*):$|^  - (\w+):  #", nav, re.MULTILINE) == [("Learn", ""), ("Use", ""), ("Reference", ""), ("", "Studies")]
    entries = [REPOSITORY / name for name in re.findall(r": (\S+\.(?:md|ipynb))$", nav, re.MULTILINE)]
    assert len(entries) + 1 <= 30  # the studies count as one
    seen = entries + list(references.studies())
    for page in seen:
        targets = [(page.parent / link.path).resolve() for link in markdown_links.links(expanded(page)) if link.path]
        targets = [target / "README.md" if target.is_dir() else target for target in targets]
        seen += sorted({target for target in targets if target.suffix in (".md", ".ipynb") and target.exists()} - set(seen))
    assert {page.relative_to(REPOSITORY).as_posix() for page in set(markdown_links.pages()) - set(seen)} == OF_FOLDERS


# ---------------------------------------------------------------- commands


def console_blocks():
    for page in [*PAGES, REPOSITORY / "README.md"]:
        for language, content, before in markdown_links.fences(page.read_text()):
            if language in ("sh", "console", "bash", "shell"):
                name = f"{page.stem}: {content.splitlines()[0][:50]}"
                yield pytest.param(language, content, before, id=name)


def commands_of(language, content):
    """(command, output or None) of a block."""
    joined = content.replace("\\\n", " ")
    if language != "console":
        return [(line, None) for line in joined.splitlines() if line and line[0] != "#"]
    parts = re.split(r"^\$ (.*)\n", joined, flags=re.MULTILINE)
    assert parts[0] == "", "a block of language console begins with $ COMMAND"
    return list(zip(parts[1::2], parts[2::2]))


@pytest.fixture(scope="module")
def desk(checkout):  # noqa: F811
    """A checkout after ./quickstart.sh, with the study that a page shows."""
    (checkout / ".venv").symlink_to(sys.prefix)
    studies = re.findall(r"<!-- study: example -->\n```toml\n(.*?)```", (SITE / "pages/howto.md").read_text(), re.DOTALL)
    assert len(studies) == 1
    (checkout / "four_bits.toml").write_text(studies[0])
    return checkout


def test_commands_are_found():
    assert sum(not block.values[2] for block in console_blocks()) >= 5


@pytest.mark.parametrize("language, content, before", [*console_blocks()])
def test_commands_of_pages_run(desk, language, content, before):
    if before.startswith("<!-- not run: "):
        assert len(before) > len("<!-- not run:  -->") + 10, "the reason is missing"
        return
    for command, output in commands_of(language, content):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=desk,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            env={**os.environ, "ARLAB_PYTHON": "true"},  # plots have tests of their own
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout and "arlab:" not in done.stderr
        if output is not None:
            assert done.stdout == output, command


def test_pages_say_the_same_of_systems():
    pages = [REPOSITORY / "README.md", SITE / "pages/index.md", REPOSITORY / "CONTRIBUTING.md"]
    sentences = [re.findall(r"^arlab is tried on .*?\.(?= |$)", page.read_text(), re.MULTILINE) for page in pages]
    assert len(sentences[0]) == 1 and sentences == [sentences[0]] * 3


# ---------------------------------------------------------------- references


def test_figures_are_those_of_the_files():
    pages = [page.read_text() for page in quoted.PAGES]
    assert len(quoted.FIGURE.findall(pages[0])) >= 20
    for page in pages:
        assert quoted.TABLE.findall(page) or quoted.FIGURE.findall(page)
        assert quoted.difference(page, quoted.quoted(page)) == [], "experiments/site/quoted.py --write"


@pytest.mark.parametrize("gpu, machine", [("MI300X", f"mi300x-{ranks}") for ranks in (2, 4, 8)] + [("MI355X", "mi355x-8")])
def test_codecs_of_amd_machines_are_as_fast_as_their_instructions_allow(gpu, machine):
    for key, estimated in (("codec_gops_per_s", quoted.estimated_gops(gpu)), ("bf16_cost", quoted.estimated_bf16_cost())):
        file = {"base": machine}
        while key not in file.get("device", {}):
            file = tomllib.loads((REPOSITORY / f"sim/topology/machines/{file['base']}.toml").read_text())
        assert file["device"][key]["value"] == float(estimated)


def test_a_wrong_figure_is_seen():
    page = quoted.PAGES[0].read_text()
    assert quoted.quoted("1,000<!-- compared() --> and 3.4<!-- mismatches() -->") == f"{quoted.compared()}<!-- compared() --> and 0<!-- mismatches() -->"
    roots = '<!-- what_if("roots") -->\n'
    assert quoted.quoted(f"{roots}\n## Next\n") == f"{roots}\n{quoted.what_if('roots')}\n## Next\n"
    assert quoted.difference(page, re.sub(r"(\|64 KiB\|)\d", r"\g<1>0", page, count=1)) != []


def test_every_command_and_option_is_on_the_page():
    page = expanded(REFERENCE / "cli.md")
    sections = dict(re.findall(r"^#{2,4} (arlab .*)\n((?:(?!#{2,4} arlab).*\n)*)", page, re.MULTILINE))
    commands = references.commands()
    assert len(commands) >= 17
    for command in commands[1:]:
        text = sections[" ".join(("arlab", *command))]
        options = re.findall(r"^  (-[\w,-]+)", arlab(*command, "--help"), re.MULTILINE)
        assert "-h,--help" in options
        for option in options:
            assert f"|`{option}`|" in text, (command, option)


def test_every_key_of_a_study_is_on_the_page(tmp_path):
    root = "title = 't'\nranks = [2]\nalgorithms = 'all'\ncodecs = 'all'"
    generated = "[[input]]\nname = 'x'\nsynthetic = 'gaussian'\nelements = 8"
    studies = {
        "": [f"none = 1\n{root}"],
        "[[input]]": [f"{root}\n[[input]]\nname = 'x'\nfile = 'x.npy'\nnone = 1", f"{root}\n{generated}\nnone = 1"],
        "[simulate]": [f"{root}\n{generated}\n[simulate]\nnone = 1"],
    }
    page = expanded(REFERENCE / "study_file.md")
    documented = references.study_keys()
    tables = set()
    for section, texts in studies.items():
        known = set()
        for text in texts:
            (tmp_path / "x.toml").write_text(text)
            known |= set(re.search(r"allowed (?:in '[^']+' )?are ([^;]*)", arlab("study", str(tmp_path / "x.toml"), code=2))[1].strip().split(", "))
        tables |= {key for key in known if f"[{key}]" in documented or f"[[{key}]]" in documented}
        assert {key for key, _ in documented[section]} - {section} == known - tables
        for key in known - tables:
            assert f"|`{key}`|" in page
    assert {section.strip("[]") for section in documented} - {""} == tables


# ---- machine files

MACHINES = REPOSITORY / "sim/topology/machines"
SOURCED = {"value": 2, "source": "assumed", "note": "a test"}
LINK = {"bandwidth_gb_per_s": SOURCED, "latency_us": SOURCED}
KINDS = {  # other parts of a file of this kind
    "full_mesh": {"link": LINK}, "ring": {"link": LINK}, "switch": {"link": LINK}, "graph": {},
    "numa": {"group_size": SOURCED, "link": LINK, "bridge": LINK},
    "torus": {"shape": [2, 2], "link": LINK},
    "fat_tree": {"group_size": SOURCED, "leaf_servers": SOURCED, "link": LINK, "nic": LINK, "uplink": LINK},
    "dragonfly": {"group_size": SOURCED, "ranks_per_router": SOURCED, "link": LINK, "local": LINK, "global": LINK},
}  # fmt: skip
ENDS = {"from": "rank0", "to": "switch0"}
KINDS["switch"] |= {
    "link_events": [{**ENDS, "at_us": 1, "bandwidth_factor": 0.5, "note": "a test"}],
    "background": [{**ENDS, "gb_per_s": 1, "from_us": 1, "until_us": 2, "note": "a test"}],
    "jitter": {"launch_us": 1, "message_us": 1},
}
OF_GRAPHS = ("switches", "links", "domains", "edges")


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def tables_of(value, path=()):
    """Paths of all tables in a file, the file itself first; of those in a list, of the first."""
    if isinstance(value, list):
        yield from tables_of(value[0], (*path, 0)) if value else ()
    elif isinstance(value, dict):
        yield path
        for key, one in value.items():
            yield from tables_of(one, (*path, key))


def known_keys(file, path, folder):
    """Returns the keys that the program allows in a table of the file."""
    changed = copy.deepcopy(file)
    table = changed
    for step in path:
        table = table[step]
    known, names, count = set(), [""], 1
    while len(known) < int(count):  # a line has what stands beside a word in a long list
        none = f"{names[-1]}zzzzzzzz"
        table[none] = 1
        (folder / "x.toml").write_text("".join(f"{key} = {toml(one)}\n" for key, one in changed.items()))
        line = arlab("topology", "show", str(folder / "x.toml"), code=2).strip()
        said = re.search(rf"unknown key '[-\w.\[\]]*{none}': allowed (?:in '\S+' )?are ([^(]*)(?:\((\d+) in all\))?$", line)
        names = said[1].removesuffix(", ... ").split(", ")
        known, count = known | set(names), said[2] or len(names)
        del table[none]
    return known


@pytest.fixture(scope="module")
def machine_keys(tmp_path_factory):
    """Keys by section, from files of all kinds; "" is the top."""
    folder = tmp_path_factory.mktemp("machines")
    example = tomllib.loads(re.findall(r"```toml\n(.*?)```", (MACHINES / "GRAPHS.md").read_text(), re.DOTALL)[0])
    files = [{**{key: one for key, one in example.items() if key not in OF_GRAPHS}, "kind": kind, **more} for kind, more in KINDS.items()]
    files[list(KINDS).index("graph")] = example
    shipped = [tomllib.loads(path.read_text()) for path in sorted(MACHINES.glob("*.toml"))]
    files += [file for file in shipped if {"stores", "blocks", "library"} & file.keys()]
    keys, seen = {}, set()
    for file in files:
        for path in tables_of(file):
            section = ".".join(step for step in path if step != 0)
            named = re.sub(r"^(links|domains|codecs)\.[^.]+", r"\1.NAME", section)
            place = (named, file.get("kind") if not path else "")
            if place in seen or path in (("links",), ("domains",), ("codecs",)):  # places where keys are names
                continue
            seen.add(place)
            allowed = known_keys(file, path, folder)
            if allowed != {"value", "source", "note"}:
                keys.setdefault(named, set()).update(allowed)
    return keys


def test_every_kind_of_machine_is_looked_at(tmp_path):
    (tmp_path / "x.toml").write_text("name = 'x'\nsummary = 'x'\nkind = 'x'\n")
    line = arlab("topology", "show", str(tmp_path / "x.toml"), code=2)
    assert set(re.search(r"allowed are (.*)", line)[1].split(", ")) == set(KINDS)


def machine_pages():
    """Returns the text on the file as a whole, and the tables of the device's keys."""
    return "".join(expanded(page) for page in (MACHINES / "README.md", MACHINES / "GRAPHS.md", REFERENCE / "machine_file.md"))


def test_every_key_of_a_machine_is_on_the_page(machine_keys):
    assert all(meaning for _, keys in references.device_keys().values() for _, meaning in keys)
    page = machine_pages()
    spans = set(re.findall(r"`([^`\n]+)`", page)) | {"value"}
    assert {"stores", "blocks", "library", "device", "overhead", "link"} <= set(machine_keys)
    tables = {section.split(".")[0] for section in machine_keys} | {"links", "domains"}
    for section, keys in machine_keys.items():
        for key in keys:
            names = {key, f"{section}.{key}", f"[{section}.{key}]", f"[{key}]", f"[[{key}]]", f"[{key}.NAME]"}
            # A section is named by its heading or by keys in it.
            named = names & spans or (key in tables and any(span.startswith(f"{key}.") for span in spans))
            named = named or any(re.match(rf"{key} = ", span) for span in spans)
            assert named, f"{key} of [{section}] is not in sim/topology/machines/*.md, nor beside a field of sim/device/device.h"


def test_the_page_has_no_other_keys_of_a_machine(machine_keys):
    page = machine_pages()
    known = {key for keys in machine_keys.values() for key in keys}
    known |= {f"{section}.{key}" for section, keys in machine_keys.items() for key in keys}
    rows = re.findall(r"^\| ?key.*\n\| ?---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    listed = {span for table in rows for row in table.splitlines() for span in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert len(listed) >= 40 and listed <= known, listed - known


def test_every_variable_of_the_environment_is_on_the_page():
    page = (REFERENCE / "environment.md").read_text()
    documented = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([A-Z_]+)`", row)}
    read = set()
    for folder in ("reference", "sim", "kernels", "experiments"):
        for path in (REPOSITORY / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".hip", ".py", ".sh") and SITE not in path.parents:
                text = path.read_text(errors="replace")
                read |= set(re.findall(r'(?:getenv|from_environment)\(\s*"([A-Z_]+)"', text))
                read |= set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', text))
                for launcher in re.findall(r"constexpr Launcher \w+ = \{(.*?)\};", text, re.DOTALL):
                    read |= set(re.findall(r'"([A-Z_]+)"', launcher))
    assert {"ARLAB_PYTHON", "RANK", "WORLD_SIZE"} <= read
    assert read <= documented, read - documented


def test_every_field_of_a_schedule_is_on_the_page():
    schema = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())
    page = expanded(REFERENCE / "schedule.md")

    def fields(value):
        if isinstance(value, dict):
            yield from value.get("properties", {})
            value = value.values()
        if not isinstance(value, str):
            for one in value if hasattr(value, "__iter__") else ():
                yield from fields(one)

    for field in set(fields(schema)):
        assert f"|`{field}`|" in page, field


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_of_the_site(name):
    """Each is on a page, has its words as text, and has the same bytes each time."""
    assert any(f"(pictures/{name}.svg)" in page.read_text() for page in PAGES)
    picture = pictures.svg(name)
    texts = re.findall(rb"<text[^>]*>([^<]*)</text>|<tspan[^>]*>([^<]*)</tspan>", picture)
    assert len(texts) >= 10 and picture == pictures.svg(name)


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring", "tree", "hierarchical"])
def test_pictures_end_with_all_contributions_everywhere(algorithm):
    states = pictures.states(pictures.schedule_of(algorithm))
    assert (states[0] == 1).all() and (states[-1] == pictures.RANKS).all()
    assert (np.diff(states, axis=0) >= 0).all()


def test_the_glossary_is_in_order():
    words = re.findall(r"^\*\*(.*?)\*\*", (SITE / "pages/glossary.md").read_text(), re.MULTILINE)
    assert len(words) >= 60 and words == sorted(words, key=str.lower)


# ---------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "ARLAB_PYTHON": sys.executable}
    built = subprocess.run([SITE / "build.sh", "--out", folder], capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


def test_the_site_has_every_page(site):
    for page in markdown_links.pages():
        name = page.relative_to(REPOSITORY).with_suffix("")
        name = Path(str(name).removeprefix("experiments/site/pages/"))
        if name.name == "README" and str(name) != "README":
            name = name.with_name("index")
        text = (site / name.with_suffix(".html")).read_text()
        if page in PAGES:
            assert "<!-- generated" not in text and "\n:::" not in text, name
            title = re.search(r"^# (.*)$", page.read_text(), re.MULTILINE)[1]
            assert f">{html.escape(title, quote=False)}<" in text, name


def test_the_python_reference_has_every_name(site):
    page = (site / "reference/python.html").read_text()
    names = references.constant(references.PACKAGE / "__init__.py", "_WHERE")
    for module, members in names.items():
        for member in members:
            assert f'id="arlab.{module}.{member}"' in page, f"{module}.{member} has no docstring, or is not in its __all__"
    assert "__" not in "".join(re.findall(r'id="arlab[^"]*"', page)), "nanobind's own methods are documented"
    assert re.search(r'id="(arlab[^"]*)"', page)[1] == "arlab.collectives.all_reduce"


def test_a_folder_of_something_else_is_not_emptied(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for out in (tmp_path, tmp_path / "thesis.tex"):
        done = subprocess.run([SITE / "build.sh", "--out", out], capture_output=True, text=True)
        assert done.returncode == 2 and "is no site" in done.stderr and done.stderr.count("\n") == 1
    assert (tmp_path / "thesis.tex").read_text() == "x"


@pytest.mark.parametrize("arguments", [["--aut", "x"], ["x"], ["--out"]])
def test_building_with_other_arguments(arguments):
    done = subprocess.run([SITE / "build.sh", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and "allowed is --out DIR" in done.stderr and done.stderr.count("\n") == 1
