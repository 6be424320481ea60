"""arlab.figures draws every study that `arlab study` can write, and refuses what is not one.

The studies here are small and made by hand. The look of a picture is judged by eye; its data are tested: the rows that
are compared, the titles that are computed, what is highlighted, and that files are whole, equal for equal rows and
different for different ones.
"""

import ast
import itertools
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from arlab.figures import InputError, __main__, read_results, study, style
from drawn import plain, refused, said_on, title_of

PACKAGE = Path(__file__).resolve().parents[2] / "experiments" / "python"
FIGURES = ["error_by_codec.png", "error_by_ranks.png", "pareto.png", "error_by_tensor.png"]
COLUMNS = "input tensor dtype ranks algorithm codec elements wire_bits_per_element sqnr_db rmse exact simulated_latency_us".split()
COMMENTS = """\
# arlab.study/1: A study
# provenance: all columns exact (computed from bits by arlab 1.2.3); simulated_latency_us is \
simulated (model m, topology t, 67108864 bytes per rank)
"""
BITS = {"fp16": 16.0, "qr-q8": 8.5, "qr-q6": 6.5, "qr-q4": 4.5}
LOSS = {"one_shot": 0.0, "two_shot": 3.0, "ring": 5.0}


def a_row(**cells):
    """One row; what is not given is made up, and grows with the wire bits."""
    row = {"input": "in", "tensor": "", "dtype": "fp16", "ranks": 2, "algorithm": "ring"}
    row |= {"codec": "qr-q4", "elements": 4096, "rmse": 0.5, "exact": "false"} | cells
    bits = row.setdefault("wire_bits_per_element", BITS.get(row["codec"], 5.0))
    row.setdefault("sqnr_db", 5 * bits - LOSS.get(row["algorithm"], 4.0) * math.log2(row["ranks"]))
    row.setdefault("simulated_latency_us", 100 + 10 * bits)
    return row


def rows_of(**names):
    """All combinations of the lists of values that are given."""
    return [a_row(**dict(zip(names, each))) for each in itertools.product(*names.values())]


def write(folder, rows, columns=COLUMNS, comments=COMMENTS):
    """Writes results.csv as `arlab study` does."""
    lines = [",".join(columns)]
    for row in rows:
        cells = [str(row[name]) for name in columns]
        lines.append(",".join(f'"{cell}"' if "," in cell else cell for cell in cells))
    folder.mkdir(exist_ok=True)
    (folder / "results.csv").write_text(comments + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


def frame_of(folder, rows, **keywords):
    write(folder, rows, **keywords)
    return read_results(folder / "results.csv")


def study_of(folder, rows, **keywords):
    return study.Study(frame_of(folder, rows, **keywords))


def run(folder, *options):
    return __main__.main(["study", str(folder), *options])


def size_of(path):
    """Width and height of a whole PNG."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


def drawn(frame, figure, **keywords):
    return study.FIGURES[figure.removesuffix(".png")](frame, **keywords)


MANNERS = {"ranks": [2, 4], "algorithm": ["one_shot", "two_shot"]}
TYPICAL = rows_of(
    input=["net"], tensor=["layer0.up", "layer1.up"], codec=["fp16", "qr-q6"], **MANNERS
) + rows_of(input=["noise"], codec=["fp16", "qr-q6"], **MANNERS)
for row in TYPICAL:  # a tensor that is harder to encode
    row["sqnr_db"] -= 2.0 * (row["tensor"] == "layer0.up" and row["codec"] == "fp16")


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def typical(tmp_path_factory):
    """The folder of a study that the command line has drawn."""
    folder = write(tmp_path_factory.mktemp("study") / "results", TYPICAL)
    command = [sys.executable, "-W", "error", "-m", "arlab.figures", "study", folder]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(folder / name) for name in FIGURES]
    return folder


@pytest.fixture(scope="module")
def pages(typical):
    """The figures of the typical study, before they are files."""
    style.use_own_fonts()
    frame = read_results(typical / "results.csv")
    return {name: drawn(frame, name) for name in FIGURES}


def test_typical_study(typical):
    for name in FIGURES:
        assert size_of(typical / name)[0] == 1600 and size_of(typical / name)[1] >= 900
        assert (typical / name).stat().st_size > 20_000
    assert {path.name for path in typical.iterdir()} == {"results.csv", *FIGURES}


def test_equal_rows_give_equal_bytes(typical, pages):
    for name, page in pages.items():
        assert style.encoded(page, "png") == (typical / name).read_bytes()


@pytest.mark.parametrize(("width", "kind"), [("column", "pdf"), ("page", "svg")])
def test_paper_widths_and_formats(typical, tmp_path, kind, width):
    options = ["--format", kind, "--width", width, "--highlight", "qr-q6,one_shot"]
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        assert run(typical, *options, "--out", str(folder)) == 0
    begin = {"svg": b"<?xml", "pdf": b"%PDF"}[kind]
    for name in (name.replace("png", kind) for name in FIGURES):
        one, other = ((tmp_path / folder / name).read_bytes() for folder in "ab")
        assert one == other and one.startswith(begin)
    figure = drawn(read_results(typical / "results.csv"), "pareto", width=width)
    assert figure.get_figwidth() == {"column": 3.3, "page": 7.0}[width]
    room = figure.bbox.padded(1)  # nothing sticks out of the paper
    for text in [*figure.texts, *(text for axes in figure.axes for text in (axes.title, axes.xaxis.label))]:
        box = text.get_window_extent()
        assert room.x0 <= box.x0 and box.x1 <= room.x1, text.get_text()


def test_fonts_are_those_of_matplotlib():
    """A font of the system would give another picture, on the machines that have it."""
    style.use_own_fonts()
    fonts = style.fontManager.ttflist
    assert fonts
    assert all(font.fname.startswith(matplotlib.get_data_path()) for font in fonts)


def test_a_notebook_keeps_its_settings(typical):
    before = dict(matplotlib.rcParams)
    drawn(read_results(typical / "results.csv"), "pareto")
    assert dict(matplotlib.rcParams) == before


def test_the_package_needs_no_compiled_part_and_no_pyplot():
    code = "import sys, arlab.figures; arlab.figures.pareto; assert 'matplotlib.pyplot' not in sys.modules"
    code += "; assert 'arlab._arlab' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_one_point_without_latency_or_comments(tmp_path, capsys):
    columns = [c for c in COLUMNS if c not in ("simulated_latency_us", "exact", "dtype", "rmse")]
    write(tmp_path, [a_row()], columns, comments="")
    assert run(tmp_path) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    for name in FIGURES:
        assert size_of(tmp_path / name) == (1600, 900)

    # Another SQNR gives other pictures, also without the hash of the file, which all of them show.
    frame = read_results(tmp_path / "results.csv")
    frame["sqnr_db"] += 1
    for name in FIGURES:
        assert style.encoded(drawn(frame, name), "png") != (tmp_path / name).read_bytes()


def test_any_frame_of_such_rows_will_do(tmp_path):
    """As pandas reads the file, without what read_results() adds."""
    write(tmp_path, TYPICAL)
    frame = pd.read_csv(tmp_path / "results.csv", comment="#")
    assert "the file does not say where its numbers come from" in said_on(drawn(frame, "pareto.png"))
    with pytest.raises(InputError, match="missing column codec"):
        drawn(frame.drop(columns="codec"), "pareto.png")


@pytest.mark.parametrize("cells", [{"exact": "true"}, {"exact": "false"}])
@pytest.mark.parametrize("width", ["screen", "column"])
def test_nothing_but_empty_sqnr(tmp_path, cells, width):
    rows = [row | {"sqnr_db": ""} | cells for row in rows_of(ranks=[2, 4])]
    frame = frame_of(tmp_path, rows)
    for name in FIGURES:
        assert drawn(frame, name, width=width).axes


# ---------------------------------------------------------------- what is compared


def test_ranks_compare_only_tensors_that_exist_everywhere(tmp_path):
    """`early` would lift the median at two ranks."""
    rows = [a_row(tensor=t, ranks=n, sqnr_db=s) for t, n, s in [("a", 2, 20), ("a", 8, 17)]]
    rows += [a_row(tensor="b", ranks=n, sqnr_db=10) for n in (2, 8)]
    rows += [a_row(tensor="early", ranks=2, sqnr_db=90), a_row(tensor="late", ranks=8, sqnr_db=1)]
    frame = frame_of(tmp_path, rows)
    medians = study.rank_medians(study.Study(frame), "in")
    assert medians.attrs == {"tensors": ["a", "b"], "left_out": ["early", "late"]}
    assert medians.to_dict("index") == {("ring", "qr-q4"): {2: 15, 8: 13.5, "change": -1.5}}
    page = drawn(frame, "error_by_ranks.png")
    assert "left out: early; late" in said_on(page)
    assert "−1.5" in said_on(page)


def test_no_common_tensor_is_said_and_not_drawn(tmp_path):
    frame = frame_of(tmp_path, [a_row(tensor="a", ranks=2), a_row(tensor="b", ranks=4)])
    assert study.rank_medians(study.Study(frame), "in").empty
    assert "nothing to compare" in said_on(drawn(frame, "error_by_ranks.png"))


def test_a_tensor_without_sqnr_somewhere_is_left_out_of_its_median(tmp_path):
    rows = rows_of(tensor=["a", "b"], ranks=[2, 4])
    rows[-1]["sqnr_db"] = ""
    change = study.rank_medians(study_of(tmp_path, rows), "in").loc[("ring", "qr-q4"), [2, 4]]
    assert change.to_dict() == {n: 22.5 - 5 * math.log2(n) for n in (2, 4)}


def test_algorithms_with_the_same_error_are_one_series(tmp_path):
    rows = rows_of(algorithm=["tree", "tree_pipelined", "bruck"], codec=["qr-q4", "qr-q6"])
    labels = list(study_of(tmp_path, rows).series.values())
    assert labels == ["tree = …_pipelined = bruck"]
    rows[-1]["rmse"] = 0.25  # the same SQNR, but not the same bits
    labels = list(study_of(tmp_path, rows).series.values())
    assert labels == ["tree = …_pipelined", "bruck"]


def test_joined_algorithms_keep_their_own_latency(tmp_path):
    rows = rows_of(algorithm=["tree", "tree_pipelined"], codec=["qr-q4"])
    rows[1]["simulated_latency_us"] = 7.0
    frame = frame_of(tmp_path, rows)
    own = study.Study(frame)
    choices = study.choices_of(own, own.algorithms, "simulated_latency_us").set_index("algorithm")
    assert choices["cost"].to_dict() == {"tree": 145, "tree_pipelined": 7}
    assert "qr-q4 with tree_pipelined (7 µs, " in said_on(drawn(frame, "pareto.png"))


def test_main_input_is_the_one_with_tensors_at_its_largest_world_size(tmp_path):
    rows = rows_of(input=["noise"], ranks=[2, 16]) + rows_of(
        input=["net"], tensor=["a"], ranks=[2, 8]
    )
    own = study_of(tmp_path, rows)
    assert (own.main_input, own.world_size) == ("net", 8)


def test_by_tensor_uses_the_rank_count_with_the_most_tensors(tmp_path):
    rows = rows_of(tensor=["layer0", "layer1", "layer2"], ranks=[4]) + rows_of(
        tensor=["layer0"], ranks=[8]
    )
    said = said_on(drawn(frame_of(tmp_path, rows), "error_by_tensor.png"))
    assert "4 ranks, the rank count with the most tensors" in said


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([1.0, 2.0], 1.5),
        ([1.0, math.nan], 1.0),
        ([1.0, math.inf, math.inf], math.inf),
        ([1.0, math.inf], math.inf),
    ],
)
def test_median(tmp_path, values, expected):
    rows = [a_row(tensor=f"t{i}", sqnr_db="" if math.isnan(v) else v) for i, v in enumerate(values)]
    own = study_of(tmp_path, rows)
    assert study.choices_of(own, ["ring"], "wire_bits_per_element")["sqnr_db"].item() == expected


def test_exact_is_infinite_and_empty_is_undefined(tmp_path):
    rows = [a_row(tensor=t, sqnr_db=s, exact=e) for t, s, e in [("a", "", "true"), ("b", "", "false"), ("d", "-inf", "false")]]
    frame = frame_of(tmp_path, [*rows, a_row(tensor="c", sqnr_db=30)])
    values = frame.set_index("tensor")["sqnr_db"]
    assert values["a"] == math.inf and math.isnan(values["b"]) and math.isnan(values["d"]) and values["c"] == 30
    assert "2 results without an SQNR left out" in said_on(drawn(frame, "error_by_codec.png"))
    assert study.choices_of(study.Study(frame), ["ring"], "wire_bits_per_element")["sqnr_db"].item() == math.inf


def test_front():
    choices = pd.DataFrame([(3, 5), (1, 1), (2, 5), (2, 4), (4, 5), (5, 9)], columns=["cost", "sqnr_db"])
    assert study.front(choices).to_numpy().tolist() == [[1, 1], [2, 5], [5, 9]]


def test_kinds_of_tensors():
    assert study.kinds_of(["layer10.up", "layer2.up", "head", "layer2.down"]) == {
        "layerN.up": {"2": "layer2.up", "10": "layer10.up"},
        "head": {"": "head"},
        "layer2.down": {"": "layer2.down"},
    }
    assert study.kinds_of([""]) == {"": {"": ""}}


def test_dtypes_of_one_tensor_are_different_tensors(tmp_path):
    own = study_of(tmp_path, rows_of(tensor=["a"], dtype=["fp16", "bf16"]))
    assert own.tensors("in", 2) == ["a fp16", "a bf16"]


# ---------------------------------------------------------------- what is said


def test_titles_follow_the_rows(pages):
    titles = {name: title_of(page) for name, page in pages.items()}
    assert titles["error_by_codec.png"] == "SQNR changes by up to: algorithms 6.0 dB, tensors 2.0 dB"
    assert "In net, qr-q6 with the algorithm and fp16 with the tensor changes most." in said_on(pages["error_by_codec.png"])
    assert titles["error_by_ranks.png"] == "2 to 4 ranks: −3.0 dB (two_shot) to 0.0 dB (one_shot)"
    assert titles["pareto.png"] == "one_shot makes all of the 2 best trade-offs"
    assert "from qr-q6 with one_shot (165 µs, 32.5 dB) to fp16 with one_shot (260 µs, 79.0 dB)." in said_on(pages["pareto.png"])
    assert titles["error_by_tensor.png"] == "fp16: 72.0 dB on layer0.up, 74.0 dB on layer1.up"


def test_titles_of_studies_have_at_most_12_words():
    """A value in a title counts as a word."""
    scripts = (Path(__file__).resolve().parents[2] / "experiments/studies").rglob("*.py")
    calls = [node for script in scripts for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    titles = [call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "new_page"]
    parts = [title.values if isinstance(title, ast.JoinedStr) else [title] for title in titles]
    texts = ["".join(str(each.value) if isinstance(each, ast.Constant) else "1" for each in title) for title in parts]
    assert len(texts) > 15 and [text for text in texts if len(text.split()) > 12] == []


def test_every_figure_says_where_its_numbers_come_from(pages):
    simulated = "simulated_latency_us is simulated (model m, topology t, 67108864 bytes per rank)"
    for name, page in pages.items():
        said = said_on(page)
        assert "all columns exact (computed from bits by arlab 1.2.3)" in said
        assert "Study: A study. File: results.csv, 24 rows, SHA-256 " in said
        assert (simulated in said) == (name == "pareto.png")


def test_unknown_names_are_refused(typical, capsys):
    for option in ("--highlight", "--codecs"):
        assert run(typical, option, "fp16,nope") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {option} names 'nope'") and "qr-q6" in err and err.count("\n") == 1


def test_latency_panel_is_labelled_and_only_there_when_simulated(pages, tmp_path):
    titles = [plain(axes.get_title(loc="left")) for axes in pages["pareto.png"].axes]
    assert titles == [
        "two_shot: exact error, exact wire bits",
        "all algorithms: exact error, simulated latency of 64 MiB",
    ]
    without = [row | {"simulated_latency_us": ""} for row in TYPICAL]
    page = drawn(frame_of(tmp_path, without, comments=""), "pareto.png")
    titles = [axes.get_title(loc="left") for axes in page.axes]
    assert titles == ["two_shot: error, wire bits"]
    assert "the file does not say where its numbers come from" in said_on(page)


def test_names_are_shown_as_they_are(tmp_path):
    rows = rows_of(input=["a, b"], tensor=["$x_0$", "y^{"], codec=["fp16", "my_$codec$"], ranks=[2, 4])
    frame = frame_of(tmp_path, rows)
    said = [said_on(drawn(frame, name)) for name in FIGURES]
    assert all("a, b" in each for each in said)
    assert all("my_$codec$" in each for each in said)
    assert "$x_0$" in said[0] and "y^{" in said[3]


# ---------------------------------------------------------------- refusals


def good_text():
    return COMMENTS + ",".join(COLUMNS) + "\n"


GOOD_ROW = ",".join(str(a_row()[name]) for name in COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        (b"\x80\x81", "not a text file"),
        ("", "no header line"),
        (COMMENTS, "no header line"),
        (good_text(), "no rows"),
        (good_text().replace("sqnr_db,", "") + GOOD_ROW, "missing column sqnr_db"),
        (good_text() + GOOD_ROW.replace("ring,", ""), "line 4: 11 cells, but the header has 12"),
        (good_text() + GOOD_ROW + GOOD_ROW[:20], "line 5: "),
        (good_text() + GOOD_ROW + GOOD_ROW, "line 5 repeats the point of line 4"),
        (good_text() + GOOD_ROW.replace("fp16,2,", "fp16,two,"), "ranks is 'two'"),
        (good_text() + GOOD_ROW.replace("fp16,2,", "fp16,2.5,"), "ranks is '2.5'"),
        (good_text() + GOOD_ROW.replace("fp16,2,", "fp16,,"), "ranks is empty"),
        (good_text() + GOOD_ROW.replace(",4.5,", ",-1,"), "wire_bits_per_element is '-1'"),
        (good_text() + GOOD_ROW.replace(",17.5,", ",loud,"), "sqnr_db is 'loud'"),
        (good_text() + GOOD_ROW.replace(",145.0", ",0"), "simulated_latency_us is '0'"),
    ],
)
def test_bad_results_are_refused_in_one_line(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "results.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(capsys, tmp_path, ["study", tmp_path], message)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["study"], "FOLDER"), ([], "KIND"), (["study", ".", "--format", "gif"], "gif"), (["study", ".", "--width", "1"], "--width")],
)
def test_bad_usage_is_one_line_and_has_exit_code_2(capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        __main__.main(words)
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def ready(frame, highlight, width):
    return style.Figure(figsize=(1, 1))


def broken(frame, highlight, width):
    raise RuntimeError("broken")


def test_no_file_is_written_when_one_figure_fails(tmp_path, monkeypatch):
    write(tmp_path, [a_row()])
    monkeypatch.setattr(study, "FIGURES", {"one": ready, "two": broken})
    with pytest.raises(RuntimeError):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_unwritable_place_is_one_line_and_leaves_nothing_half_done(tmp_path, monkeypatch, capsys):
    write(tmp_path, [a_row()])
    (tmp_path / "two.png").mkdir()
    monkeypatch.setattr(study, "FIGURES", {"one": ready, "two": ready})
    assert run(tmp_path) == 2
    assert "cannot write" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"results.csv", "one.png", "two.png"}


def test_an_interrupt_while_a_file_is_written_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        style.write_whole(tmp_path / "it.png", b"picture")
    assert list(tmp_path.iterdir()) == []


def test_a_name_as_long_as_names_can_be(tmp_path):
    style.write_whole(tmp_path / ("x" * 255), b"picture")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]
    with pytest.raises(InputError, match="File name too long"):
        style.write_whole(tmp_path / ("x" * 256), b"picture")


def test_where_tensors_have_tokens_the_figures_are_about_them(tmp_path):
    rows = [row | {"token_sqnr_db": 10.0} for row in rows_of(codec=["qr-q8", "qr-q4"], tensor=["a", "b"])]
    rows[0]["token_sqnr_db"] = ""  # a tensor of one axis
    path = tmp_path / "results.csv"
    path.write_text(COMMENTS + pd.DataFrame(rows).to_csv(index=False))
    frame = read_results(str(path))
    assert list(frame["sqnr_db"]) == [rows[0]["sqnr_db"], 10, 10, 10] and frame.attrs["metric"] == "token"
    whole = read_results(path, "tensor")
    assert list(whole["sqnr_db"]) == [row["sqnr_db"] for row in rows] and whole.attrs["metric"] == "tensor"
    assert "of the median token" in said_on(study.pareto(frame)) and "of the median token" not in said_on(study.pareto(whole))
