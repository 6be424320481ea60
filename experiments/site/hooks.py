"""MkDocs hooks: the pages of the site are Markdown files and notebooks of the repository, where they stand.

A page's name in MkDocs is its path in the repository, so links between pages are those of the repository. Two kinds of links are
rewritten: notebooks become Markdown, and folders stand for their README.md (without one, no link is left). Linked files that are no
pages (a CSV, a source, a picture) come along as they are; pictures.py draws those in pages/pictures.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))
import markdown_links
import pictures
from repository import REPOSITORY, SITE
from references import expand, studies

PAGES = SITE.relative_to(REPOSITORY).as_posix() + "/pages/"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = json.loads(json.dumps(config.nav).replace(".ipynb", ".ipynb.md"))
    entries = next(entry["Studies"] for entry in config.nav if "Studies" in entry)
    own, sources = [], []  # many claims of others stand together
    for page, title in studies().items():
        of_source = page.parent.parent.name == "sources"
        (sources if of_source else own).append({title.partition(":")[0]: page.relative_to(REPOSITORY).as_posix()})
    entries.append({"All studies": [*own, {"Claims of the sources": sources}]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    ours = Files([file for file in files if not Path(file.abs_src_path or "").is_relative_to(config.docs_dir)])
    linked = set()
    for path in markdown_links.pages():
        name = path.relative_to(REPOSITORY).as_posix()
        if path.suffix == ".ipynb":
            text = add_notebook(ours, config, name)
        else:
            text = path.read_text(encoding="utf-8")
            ours.append(File.generated(config, name, content=expand(text)))
        for link in markdown_links.links(text):
            target = (path.parent / link.path).resolve() if link.path else path
            if link.path and target.is_file() and target.suffix not in (".md", ".ipynb"):
                linked.add(target)
    for name in pictures.PICTURES:
        ours.append(File.generated(config, f"{PAGES}pictures/{name}.svg", content=pictures.svg(name)))
    style = SITE / "pages/site.css"
    for target in [*sorted(linked), style]:
        ours.append(File.generated(config, target.relative_to(REPOSITORY).as_posix(), abs_src_path=str(target)))
    for file in ours:
        place(file, config)
    return ours


def place(file: File, config: MkDocsConfig) -> None:
    """Pages of the site lie at its top; README.md does not take the place of its first page."""
    if file.src_uri == "README.md":
        file.dest_uri = "README.html"
    elif file.src_uri == PAGES + "site.css":
        file.dest_uri = "pages/site.css"
    elif file.src_uri.startswith(PAGES):
        file.dest_uri = file.dest_uri.removeprefix(PAGES)
    elif file.src_uri.startswith("notebooks/"):
        file.dest_uri = file.dest_uri.replace(".ipynb.html", ".html")
    file.abs_dest_path = str(Path(config.site_dir) / file.dest_uri)


def add_notebook(files: Files, config: MkDocsConfig, name: str) -> str:
    """As Markdown, with its pictures as files beside it. Returns the text."""
    from nbconvert import MarkdownExporter

    folder = posixpath.basename(name).removesuffix(".ipynb") + "_files"
    resources = {"output_files_dir": folder}
    text, resources = MarkdownExporter().from_filename(str(REPOSITORY / name), resources)
    # Styles of tables are for a notebook's own page.
    text = re.sub(r"<style scoped>.*?</style>\n?", "", text, flags=re.DOTALL)
    files.append(File.generated(config, name + ".md", content=text))
    for picture, data in resources["outputs"].items():
        files.append(File.generated(config, posixpath.join(posixpath.dirname(name), picture), content=data))
    return text


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    folder = (REPOSITORY / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        if path.endswith(".ipynb"):
            return f"[{text}]({path}.md{anchor})"
        if (folder / path / "README.md").is_file():
            return f"[{text}]({posixpath.join(path, 'README.md')}{anchor})"
        return text if (folder / path).is_dir() else match[0]

    return re.sub(r"\[([^\[\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)", link, for_mkdocs(markdown))


def for_mkdocs(markdown: str) -> str:
    """The same where MkDocs reads Markdown in another way than forges: a table or a list inside an item of a list is indented by
    four spaces, not two, and ends with an empty line; code in a table keeps the backslash of \\|."""
    lines = markdown.splitlines()
    for token in markdown_links.PARSER.parse(markdown):
        if token.level >= 2 and token.map and token.type in ("table_open", "fence", "bullet_list_open", "ordered_list_open"):
            first, end = token.map
            lines[first:end] = ["  " + line for line in lines[first:end]]
            lines[end - 1] += "\n"
        elif token.type == "tr_open" and token.map:
            row = token.map[0]
            lines[row] = re.sub(r"`([^`]*\\\|[^`]*)`", as_html, lines[row])
    return "\n".join(lines) + "\n"


def as_html(code: re.Match[str]) -> str:
    return f"<code>{html.escape(code[1].replace(chr(92) + '|', '|')).replace('|', '&#124;')}</code>"
