"""The Markdown pages and notebooks of the repository: which there are, their links, their anchors."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

from repository import REPOSITORY

NOT_OURS = {"build", "build-python", "dist", "results", "node_modules"}
PARSER = MarkdownIt("commonmark").enable("table")


class Link(NamedTuple):
    """`path` without anchor, empty for one in the page itself, with a scheme for one to elsewhere."""

    path: str
    anchor: str
    line: int


def pages() -> list[Path]:
    found = []
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in NOT_OURS and not name.startswith("build-"))
        found += [Path(folder, name) for name in sorted(files) if name.endswith((".md", ".ipynb"))]
    return found


def text_of(path: Path) -> str:
    """Returns the text of a page; for a notebook, its Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def links(text: str) -> list[Link]:
    found = []
    for block in PARSER.parse(text):
        for token in block.children or []:
            target = token.attrs.get("href" if token.type == "link_open" else "src")
            if target and token.type in ("link_open", "image"):
                path, _, anchor = str(target).partition("#")
                found.append(Link(path, anchor, block.map[0] + 1 if block.map else 0))
    return found


def anchors(text: str) -> set[str]:
    """Returns the anchors of all headings, as forges and this site name them: repeated ones have a number."""
    seen: Counter[str] = Counter()
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    tokens = PARSER.parse(text)
    for opening, inline in zip(tokens, tokens[1:]):
        if opening.type == "heading_open":
            shown = "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def fences(text: str) -> list[tuple[str, str, str]]:
    """(language, content, the comment right before it) of every fenced block."""
    found = []
    before = ""
    for token in PARSER.parse(text):
        if token.type == "fence":
            found.append((token.info.split()[0] if token.info else "", token.content, before))
        if token.level == 0:
            before = token.content.strip() if token.type == "html_block" else ""
    return found
