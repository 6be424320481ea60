"""`arlab report` writes one page about folders of results, and what it writes is right, whole and safe.

The page's behaviour is tested in a real browser, chromium, where there is one.
"""

import base64
import csv
import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import arlab
import pytest
from arlab.figures import InputError, __main__

BIN = Path(os.environ.get("ARLAB_BIN", Path(__file__).resolve().parents[2] / "build" / "bin"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"><script>document.title = "no"</script><rect width="8" height="4"/></svg>'
STUDY = """\
# arlab.study/1: A <i>study</i> & "more"
# command: arlab study 'a b.toml' --out results
# provenance: all columns exact (computed from bits by arlab 1.2.3)
# definition: {"program": "arlab"}
"""
ROWS = [  # codec, ranks, sqnr_db; in no order, with a tie, an exact result, an empty cell and what looks like HTML
    ("qr-q4", 8, "16.123456789"), ("qr-q8", 2, "9.5"), ("<script>alert(1)</script>", 4, ""), ("fp16", 2, "inf"),
    ("qr-q4", 2, "100.25"), ("qr-q6", 8, "9.5"), ('a "quoted", name|`x`', 4, "-3.0"),
    ("qr-q3", 4, "-30.5"),
]  # fmt: skip


def write(folder, rows=ROWS, comments=STUDY, name="results.csv"):
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        file.write(comments)
        csv.writer(file, lineterminator="\n").writerows([("codec", "ranks", "sqnr_db"), *rows])
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report about a study and a sweep, in a folder of its own."""
    root = tmp_path_factory.mktemp("report")
    study, sweep = write(root / "a study"), write(root / "sweep", [(f"c{i}", i, i / 7) for i in range(150)],
                                                  "# arlab sweep --input noise:seed=1\n# Measured by hand.\n", "sweep.csv")  # fmt: skip
    (study / "error & cost.png").write_bytes(DOT)
    (study / "pareto.png").write_bytes(DOT)
    (study / "pareto.svg").write_bytes(SVG)
    (study / "findings.txt").write_text("1 < 2\n")
    page = arlab.report([study, sweep], out=root / "out")
    assert page == root / "out" / "report.html"
    return root / "out"


class Page(HTMLParser):
    """The contents of a page, without running it."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loads, self.links, self.tables, self.tags, self.text = [], [], [], [], ["html"], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append(tag)
        self.ids += [named["id"]] if "id" in named else []
        self.loads += [named[name] for name in ("src", "srcset", "data", "action", "poster") if name in named]
        self.links += [named["href"]] if "href" in named else []
        assert not any(name.startswith("on") for name in named)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(named.get("data-value"))

    def handle_data(self, data):
        self.text.append(data)
        if self.tags[-1] in ("td", "th") and self.tables[-1][-1][-1] is None and data.strip():
            self.tables[-1][-1][-1] = data


def test_the_page_is_whole(pages):
    page = Page((pages / "report.html").read_text(encoding="utf-8"))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids) and page.links
    figures = [link for link in page.loads if link.startswith("data:image/")]
    assert figures == page.loads and len(figures) == 2  # the latter of pareto.png and pareto.svg
    assert {base64.b64decode(each.split(",")[1]) for each in figures} == {DOT, SVG}
    assert "link" not in page.tags and page.tags.count("script") == 1
    small, large = page.tables
    assert [[cell or "" for cell in row] for row in small] == [["codec", "ranks", "sqnr_db"], *([a, str(b), c] for a, b, c in ROWS)]
    assert len(large) == 151 and large[2] == ["c1", "1", str(1 / 7)]  # all digits, of which six are shown
    text = "".join(page.text)
    assert "0.142857" in text and "1 < 2" in text
    for said in ('A <i>study</i> & "more"', "arlab study 'a b.toml' --out results", "all columns exact",
                 "arlab sweep --input noise:seed=1", "Measured by hand."):  # fmt: skip
        assert said in text
    assert "definition" not in text


def test_markdown_has_its_files_beside_it(pages):
    text = (pages / "report.md").read_text(encoding="utf-8")
    links = [unquote(link) for link in re.findall(r"\]\(([^)]*)\)", text)]
    assert sorted(links) == ["a study/error & cost.png", "a study/pareto.svg", "sweep/sweep.csv"]
    assert all((pages / link).is_file() for link in links)
    assert r"\<script\>alert(1)\</script\>" in text and "- Command: `arlab sweep --input noise:seed=1`" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(ROWS)
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {5}  # no cell breaks its row


def test_a_report_lies_in_the_folder_of_its_results(tmp_path, capsys):
    folder = write(tmp_path / "results")
    assert __main__.main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "report.html"), str(folder / "report.md")]
    first = (folder / "report.html").read_bytes()
    assert __main__.main(["report", str(folder)]) == 0 and (folder / "report.html").read_bytes() == first
    assert {path.name for path in folder.iterdir()} == {"results.csv", "report.html", "report.md"}
    with pytest.raises(InputError, match="named twice"):
        arlab.report([folder, folder / "."], out=tmp_path / "out")


def test_each_table_keeps_what_is_said_about_it(tmp_path):
    for name, said in (("a.csv", "measured"), ("b.csv", "simulated")):
        write(tmp_path, comments=f"# provenance: {said}\n", name=name)
    page = arlab.report(tmp_path)
    for text, mark in ((page.read_text(), "<h4>"), (page.with_suffix(".md").read_text(), "### ")):
        assert ["measured" in part for part in text.split(mark)] == [False, True, False]
        assert ["simulated" in part for part in text.split(mark)] == [False, False, True]


def report(*words):
    """The program, as a person runs it."""
    environment = {**os.environ, "ARLAB_PYTHON": sys.executable}
    return subprocess.run([BIN / "arlab", "report", *words], capture_output=True, text=True, check=False, env=environment)


def test_what_cannot_be_reported_is_one_line(tmp_path):
    folder, empty, torn = write(tmp_path / "results"), tmp_path / "empty", write(tmp_path / "torn", [("a",)])
    empty.mkdir()
    for words, message in (
        ([], "folders is required"),
        ([tmp_path / "none"], "is not a folder"),
        ([folder, torn], "--out"),
        ([empty], "there is no table (.csv) and no figure"),
        ([folder, torn, "--out", tmp_path / "out"], "results.csv: line 6: 1 cells, but the header has 3"),
        ([folder, "--out", folder / "results.csv"], "results.csv"),
    ):
        done = report(*words)
        assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("arlab: ") and message in done.stderr
    assert not (tmp_path / "out").exists() and len(list(folder.iterdir())) == 1


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    """Else the maker of a folder of results could get files of its reader published."""
    secret = tmp_path / "secret"
    secret.write_text("codec,ranks\nsecret,2\n")
    for name in ("notes.txt", "fig.png", "fig.svg", "more.csv"):
        folder = write(tmp_path / f"with {name}")
        (folder / name).symlink_to(os.path.relpath(secret, folder))
        done = report(folder)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "link to a file outside of the folder" in done.stderr
        assert {path.name for path in folder.iterdir()} == {"results.csv", name}
    inside = write(tmp_path / "inside")
    (inside / "dot.png").write_bytes(DOT)
    (inside / "same.png").symlink_to("dot.png")
    (tmp_path / "link").symlink_to(inside)
    assert report(tmp_path / "link").returncode == 0 and (inside / "report.html").exists()


def test_a_figure_that_no_page_can_hold_is_one_line(tmp_path):
    folder = write(tmp_path / "results")
    with (folder / "fig.png").open("wb") as file:
        file.truncate(3 << 30)  # a file of zeros that takes no room
    done = report(folder)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "fig.png has 3221225472 bytes" in done.stderr
    (folder / "fig.png").unlink()
    with (folder / "more.txt").open("wb") as file:
        file.truncate(3 << 30)
    limited = f"ulimit -v {2 << 20}; exec '{BIN / 'arlab'}' report '{folder}'"
    environment = {**os.environ, "ARLAB_PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "not enough memory" in done.stderr, done.stderr


def test_names_of_files_are_no_html(tmp_path):
    folder = write(tmp_path / "results")
    (folder / "<b id=x>&amp;.png").write_bytes(DOT)
    (folder / "<i>.txt").write_text("text")
    text = arlab.report(folder).read_text()
    assert "<b id=x>" not in text and "<i>" not in text.replace("A <i>study</i>", "")
    assert "<figcaption>&lt;b id=x&gt;&amp;amp;</figcaption>" in text


def test_cells_that_spreadsheets_would_run_are_shown_as_they_were(tmp_path):
    page = arlab.report(write(tmp_path / "results", [("'=1+1", 2, "-3.5"), ("''=1", 2, "1"), ("'plain", 2, "1")]))
    for shown in ("<td>=1+1</td>", "<td>&#x27;=1</td>", "<td>&#x27;plain</td>", "<td class=n>-3.5</td>"):
        assert shown in page.read_text()


def test_the_program_writes_what_python_writes(tmp_path):
    folder = write(tmp_path / "-results")
    done = report("--title", "-- Mine", "--out", tmp_path / "out", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(tmp_path / "out" / name) for name in ("report.html", "report.md")]
    assert "<h1>-- Mine</h1>" in (tmp_path / "out" / "report.html").read_text()


# ---------------------------------------------------------------- in a browser


def browse(page, fragment, folder):
    """The page after its scripts have run, and what it has asked the network for; there is none to be had."""
    log = folder / "net.json"
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
             "--virtual-time-budget=5000", f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}",
             f"{page.as_uri()}{fragment}"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    asked = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    # The browser's own requests (its updates) have no page as the initiator.
    return done.stdout, {each["url"] for each in asked if each.get("initiator", "not an origin") != "not an origin"}


def shown(dom, table="part1-table1"):
    """The first cells of the rows of a table that can be seen."""
    body = dom.split(f'<table id="{table}">')[1].split("<tbody>")[1].split("</tbody>")[0]
    return re.findall(r"<tr><td[^>]*>(.*?)</td>", body)


@needs_chromium
def test_a_link_shows_a_table_sorted_and_filtered_without_any_network(pages, tmp_path):
    dom, asked = browse(pages / "report.html", "#table=part1-table1&sort=sqnr_db&descending", tmp_path)
    codecs = ["fp16", "qr-q4", "qr-q4", "qr-q8", "qr-q6", 'a "quoted", name|`x`', "qr-q3", "<script>alert(1)</script>"]
    assert [html.unescape(each) for each in shown(dom)] == codecs  # numbers, not texts; ties as in the file; what is empty is last
    assert re.findall(r'<th [^>]*aria-sort="(\w+)"', dom) == ["descending"]
    assert 'document.title = "no"' not in dom and "<title>A &lt;i&gt;study" in dom
    assert not asked


@needs_chromium
def test_clicks_sort_words_filter_and_the_wheel_zooms(pages, tmp_path):
    """A copy of the page, whose policy would allow no such script, is used by one."""
    page = (pages / "report.html").read_text(encoding="utf-8")
    assert "script-src 'sha256-" in page and "default-src 'none'" in page
    used = """<script>
    addEventListener("load", async () => {
      const table = document.getElementById("part1-table1");
      const seen = () => [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
      const said = [];
      new Image().src = "http://127.0.0.1:9/asked";
      const heading = table.tHead.rows[0].cells[2].querySelector("button");
      heading.click(); said.push(seen());
      heading.click(); said.push(seen());
      table.tHead.rows[0].cells[0].querySelector("button").click(); said.push(seen());
      const filter = document.querySelector(".filter input");
      for (const words of ["Q4", "sqnr_db>=9.5 ranks=2", "nothing", ""]) {
        filter.value = words; filter.dispatchEvent(new Event("input")); said.push(seen());
      }
      said.push(location.hash);
      document.querySelector("figure button").click();
      const dialog = document.querySelector("dialog"), picture = dialog.querySelector("img");
      await picture.decode(); await new Promise((resolve) => setTimeout(resolve));
      const width = () => picture.getBoundingClientRect().width;
      const before = width();
      dialog.dispatchEvent(new WheelEvent("wheel", { deltaY: -400, clientX: 9, clientY: 9, cancelable: true }));
      said.push([dialog.open, width() / before]);
      dialog.querySelector("button").click();
      said.push(dialog.open);
      document.body.append(Object.assign(document.createElement("pre"), { id: "said", textContent: JSON.stringify(said) }));
    });
    </script></body>"""
    copy = tmp_path / "used.html"
    copy.write_text(re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", used), encoding="utf-8")
    dom, asked = browse(copy, "", tmp_path)
    assert asked == {"http://127.0.0.1:9/asked"}
    said = json.loads(html.unescape(dom.split('<pre id="said">')[1].split("</pre>")[0]))
    by_sqnr = ["qr-q3", 'a "quoted", name|`x`', "qr-q8", "qr-q6", "qr-q4", "qr-q4", "fp16", "<script>alert(1)</script>"]
    assert said[0] == by_sqnr
    assert said[1] == ["fp16", "qr-q4", "qr-q4", "qr-q8", "qr-q6", *by_sqnr[1::-1], by_sqnr[-1]]
    assert said[2][-4:] == ["qr-q4", "qr-q4", "qr-q6", "qr-q8"]
    assert said[3:7] == [["qr-q4", "qr-q4"], ["fp16", "qr-q4", "qr-q8"], [], said[2]]
    assert said[7] == "#table=part1-table1&sort=codec"
    assert said[8] == [True, pytest.approx(2.718, abs=0.01)] and said[9] is False
