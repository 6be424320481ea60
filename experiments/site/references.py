"""Parts of the reference pages that are generated: a page says <!-- generated: NAME -->, and expand() puts it there.

    cli           the commands and their options, from the program's --help
    study_file    the keys of a study, from the program's --help that a test compares with the parser
    machine_file  the keys of a machine's device and software, from the comments beside their fields in sim/device/device.h
    schedule      the fields of a schedule as JSON, from reference/collectives/schedule.schema.json
    python        a section per module, for mkdocstrings
    studies       links to the pages of the studies
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown
from repository import REPOSITORY, arlab

MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def expand(markdown: str) -> str:
    """The page with its generated parts. Raises KeyError for a part that is not known."""
    return MARKER.sub(lambda match: PARTS[match[1]]().rstrip(), markdown)


def cell(text: str) -> str:
    """Text as a cell of a table: no character of it is taken for Markdown or HTML, but for code between backticks."""
    parts = re.split(r"(`[^`|]+`)", " ".join(text.split()))
    return "".join(part if part[:1] == "`" else re.sub(r"([\\|*_<>`\[\]])", r"\\\1", part) for part in parts)


def table(header: list[str], rows: list[list[str]]) -> str:
    return markdown(header, rows) + "\n"


# ---------------------------------------------------------------- the program


@functools.cache
def help_of(*command: str) -> str:
    return arlab(*command, "--help").decode()


def sections_of(text: str) -> tuple[str, str, dict[str, list[tuple[str, str]]], str]:
    """Returns the parts of a help: the command's purpose, its usage, (name, meaning) of everything by section, and the
    text behind that."""
    head, _, rest = text.partition("\nUsage: ")
    usage, _, rest = rest.partition("\n")
    sections: dict[str, list[tuple[str, str]]] = {}
    lines = rest.splitlines()
    name = ""
    while lines:
        line = lines[0]
        if re.fullmatch(r"[A-Z][\w ]*:", line) and len(lines) > 1 and re.match(r"  \S", lines[1]):
            name = line[:-1]
            sections[name] = []
        elif name and (found := re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)) and not line.startswith("   "):
            sections[name].append((found[1], found[2] or ""))
        elif name and sections[name] and (found := re.match(r" {20,}(\S.*)$", line)):
            option, meaning = sections[name][-1]
            sections[name][-1] = (option, f"{meaning} {found[1]}".strip())
        elif line.strip():
            break  # the end, below the options
        lines.pop(0)
    return head.strip(), usage, sections, "\n".join(lines).strip("\n")


def are_commands(section: str) -> bool:
    """Those of the program stand in groups, by whom they are for."""
    return section == "Subcommands" or section.startswith("For ")


def commands(*of: str) -> list[tuple[str, ...]]:
    """A command and all commands in it, in their order."""
    sections = sections_of(help_of(*of))[2]
    names = [option.split()[0] for name, options in sections.items() if are_commands(name) for option, _ in options]
    return [of, *(command for name in names for command in commands(*of, name))]


def cli() -> str:
    parts = []
    for command in commands():
        head, usage, sections, footer = sections_of(help_of(*command))
        if command:
            parts.append(f"{'#' * (1 + len(command))} arlab {' '.join(command)}\n\n{cell(head)}.\n")
        parts.append(f"```text\n{usage}\n```\n")
        for name, entries in sections.items():
            rows = []
            for option, meaning in entries:
                words = option.split(maxsplit=1)
                shown = f"`{words[0]}`"
                if are_commands(name):
                    shown = f"[{shown}](#{'-'.join(('arlab', *command, words[0]))})"
                rows.append([shown, cell(words[1] if len(words) > 1 else ""), cell(meaning)])
            if any(row[1] for row in rows):
                parts.append(table([name.lower(), "value", "meaning"], rows))
            else:
                parts.append(table([name.lower(), "meaning"], [[row[0], row[2]] for row in rows]))
        if footer:
            parts.append(f"```text\n{footer}\n```\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- files


def study_keys() -> dict[str, list[tuple[str, str]]]:
    """(key, meaning) by section, as the program's --help has them; "" is the top of the file, and a section's own meaning is its first."""
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    for line in help_of("study").split("Keys of the file:")[1].splitlines():
        if found := re.match(r"(\[+\w+\]+), (.*):$", line):
            sections[found[1]] = [(found[1], found[2])]
        elif found := re.match(r"  (\w+) +(.*)$", line):
            list(sections.values())[-1].append((found[1], found[2]))
    return sections


def study_file() -> str:
    parts = []
    for section, keys in study_keys().items():
        if section:
            parts.append(f"## `{section}`\n\n{cell(keys[0][1].capitalize())}.\n")
        rows = [[f"`{key}`", cell(meaning)] for key, meaning in keys if key != section]
        parts.append(table(["key", "meaning"], rows))
    return "\n".join(parts)


def device_keys() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Returns a machine file's sections by name: the purpose, and (key, meaning) of each key."""
    header = (REPOSITORY / "sim/device/device.h").read_text()
    structs: dict[str, tuple[str, dict[str, str]]] = {}
    for about, name, body in re.findall(r"((?:^///[^\n]*\n)+)struct (\w+) \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL):
        member = r"((?: *///(?!<).*\n)*) *(?:Quantity|bool|std::string|std::vector<std::string>|std::optional<NetFabric>) (\w+)(?: = (.*?))?;(?: *///< (.*))?"
        members = {
            key: " ".join((before.replace("///", " ") + behind).split()) + (f"; optional, {default} if it is missing" if default else "").replace(", {} if it is missing", "").replace(", std::nullopt if it is missing", "").replace("optional, 0 if it is missing", "optional")
            for before, key, default, behind in re.findall(member, re.sub(r"unless_given\((.*?)\)", r"\1", body))
        }
        structs[name] = (" ".join(about.replace("///", " ").split()), members)
    struct_of = {"overhead": "Device"}
    sections: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for section, key in re.findall(r'visit\("([\w.]+)\.(\w+)"', header):
        about, members = structs[struct_of.get(section, section.title().replace(".", ""))]
        # Members that are no quantity are not visited; they stand first.
        others = [] if section == "overhead" else [(name, members[name]) for name in members if f'.{name}"' not in header]
        sections.setdefault(section, (about, others))[1].append((key, members[key]))
    return sections


def machine_file() -> str:
    parts = []
    for section, (about, keys) in device_keys().items():
        rows = [[f"`{section}.{key}`", cell(meaning)] for key, meaning in keys]
        parts.append(f"## `[{section}]`\n\n{cell(about)}\n\n{table(['key', 'meaning'], rows)}")
    return "\n".join(parts)


def schedule() -> str:
    schema = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())

    def kind(field: dict[str, Any]) -> str:
        if field.get("$ref") == "#/$defs/fraction":
            return '`"p/q"`'
        if "$ref" in field:
            return kind(schema["$defs"][field["$ref"].split("/")[-1]])
        if "const" in field:
            return f"`{json.dumps(field['const'])}`"
        if "enum" in field:
            return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
        if "oneOf" in field:
            return " or ".join(dict.fromkeys(kind(one) for one in field["oneOf"] if kind(one)))
        types = field.get("type", "object")
        text = " or ".join(types) if isinstance(types, list) else types
        if field.get("items"):
            text += " of " + (kind(field["items"]) or "objects")
        return text

    def rows(of: dict[str, Any]) -> list[list[str]]:
        required = of.get("required", [])
        fields = of["properties"].items()
        return [
            [f"`{name}`", kind(field), "yes" if name in required else "no", cell(field.get("description", ""))]
            for name, field in fields
        ]

    header = ["field", "is", "required", "meaning"]
    parts = [cell(schema["description"]) + "\n", table(header, rows(schema))]
    for name in ("chunks", "outputs"):
        items = schema["properties"][name]["items"]
        about = cell(items.get("description", schema["properties"][name].get("description", "")))
        parts.append(f"## One of `{name}`\n\n{about}\n\n{table(header, rows(items))}")
    parts.append(f"## One of `ops`\n\n{cell(schema['properties']['ops']['description'])}\n")
    for op in schema["properties"]["ops"]["items"]["oneOf"]:
        parts.append(f"### `{op['properties']['op']['const']}`\n\n{cell(op['description'])}\n\n{table(header, rows(op))}")
    for name in ("volume", "check"):
        field = schema["properties"][name]
        parts.append(f"## `{name}`\n\n{cell(field['description'])}\n\n{table(header, rows(field))}")
    forms = "\n".join(f"* {cell(form['description'])}" for form in schema["oneOf"])
    return "\n".join([*parts, f"## Two forms\n\n{forms}\n"])


def studies() -> dict[Path, str]:
    """The pages of studies, and their titles."""
    pages = sorted((REPOSITORY / "experiments/studies").rglob("README.md"))
    titles = {page: re.search(r"^# (.*)$", page.read_text(), re.MULTILINE) for page in pages}
    return {page: title[1] if title else page.parent.name for page, title in titles.items()}


def links_to_studies() -> str:
    folder = REPOSITORY / "experiments"
    return "".join(f"* [{title}](../../{page.relative_to(folder).as_posix()})\n" for page, title in studies().items())


# ---------------------------------------------------------------- Python


PACKAGE = REPOSITORY / "experiments/python/arlab"


def constant(module: Path, name: str) -> dict[str, tuple[str, ...]]:
    """A dict that a module assigns to a name, read without importing it."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == [name]:
            return ast.literal_eval(node.value)
    raise KeyError(f"{module} has no {name}")


def python() -> str:
    """A section per module whose names `arlab` has, or that is public itself; mkdocstrings fills it from docstrings."""
    where = constant(PACKAGE / "__init__.py", "_WHERE")
    public = [path for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__init__.py")] if path != PACKAGE / "__init__.py"]
    names = {path.stem if path.stem != "__init__" else path.parent.name for path in public}
    order = ["collectives", "_codecs", "_tails", "_tensors", "schedules", "simulation", "conformance", "runtime", "figures", "_errors"]
    modules = [name for name in [*order, *sorted(names - {*order})] if name in where or name[0] != "_"]
    sections = []
    for name in modules:
        module = f"arlab.{name}"
        if name == "figures":
            sections.append(section("Figures", module, []))
            places = constant(PACKAGE / "figures/__init__.py", "_PLACES")
            sections += [section("", f"{module}.{place}", members) for place, members in places.items()]
        elif name == "_errors":
            sections.append(section("Errors", module, where[name]))
        else:
            sections.append(section(TITLES.get(name, module), module))
    return "\n".join(sections)


TITLES = {
    "collectives": "Collectives", "_codecs": "Codecs", "_tails": "Tails behind all-reduces", "_tensors": "Tensors of files", "schedules": "Schedules and algorithms",
    "simulation": "Times, selections, studies", "conformance": "The check of an all-reduce", "runtime": "Kernels",
}  # fmt: skip


def section(title: str, module: str, members: Sequence[str] | None = None) -> str:
    options = ["show_root_heading: false", "show_root_toc_entry: false"]
    if members is not None:
        options.append(f"members: {json.dumps(list(members)) if members else 'false'}")
    lines = [f"## {title}\n"] if title else []
    return "\n".join([*lines, f"::: {module}", "    options:", *(f"      {option}" for option in options), ""])


PARTS = {"python": python, "cli": cli, "study_file": study_file, "machine_file": machine_file, "schedule": schedule, "studies": links_to_studies}
