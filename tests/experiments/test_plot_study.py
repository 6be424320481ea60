"""plot_study.py draws every study that `arlab study` can write, and refuses what is not one.

The studies here are small and made by hand. What a picture looks like is judged by eye; what is
tested is what it is drawn from: the rows that are compared, the titles that are computed, and that
files are whole, equal for equal rows and different for different ones.
"""

import dataclasses
import importlib.util
import itertools
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "studies" / "plot_study.py"
FIGURES = ["error_by_codec.png", "error_by_ranks.png", "pareto.png", "error_by_tensor.png"]
COLUMNS = [
    "input",
    "tensor",
    "dtype",
    "ranks",
    "algorithm",
    "codec",
    "elements",
    "wire_bits_per_element",
    "sqnr_db",
    "rmse",
    "exact",
    "simulated_latency_us",
]
COMMENTS = """\
# arlab.study/1: A study
# provenance: all columns exact (computed from bits by arlab 1.2.3); simulated_latency_us is \
simulated (model m, topology t, 67108864 bytes per rank)
"""
BITS = {"fp16": 16.0, "qr-q8": 8.5, "qr-q6": 6.5, "qr-q4": 4.5}
LOSS = {"one_shot": 0.0, "two_shot": 3.0, "ring": 5.0}


def import_script():
    specification = importlib.util.spec_from_file_location("plot_study", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules["plot_study"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


plot_study = import_script()


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


def results_of(folder, rows, **keywords):
    write(folder, rows, **keywords)
    return plot_study.Results(plot_study.read_study(folder / "results.csv"))


def run(monkeypatch, folder):
    monkeypatch.setattr(sys, "argv", ["plot_study.py", str(folder)])
    return plot_study.main()


def size_of(path):
    """Width and height of a whole PNG."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


def plain(text):
    """A text without its line breaks."""
    return text.replace(plot_study.NO_BREAK, " ").replace("\n", " ")


def texts_of(page):
    """Everything that is written on a page."""
    return "\n".join(
        text.get_text() for text in page.figure.findobj(plot_study.matplotlib.text.Text)
    )


def drawn(results, figure):
    with plot_study.matplotlib.rc_context(plot_study.STYLE):
        return plot_study.FIGURES[figure](results, plot_study.Style.of(results))


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
    command = [sys.executable, "-W", "error", SCRIPT, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(folder / name) for name in FIGURES]
    return folder


@pytest.fixture(scope="module")
def pages(typical):
    """The figures of the typical study, before they are files."""
    results = plot_study.Results(plot_study.read_study(typical / "results.csv"))
    return {name: drawn(results, name) for name in FIGURES}


def test_typical_study(typical):
    for name in FIGURES:
        assert size_of(typical / name) == (1600, 900)
        assert (typical / name).stat().st_size > 20_000
    assert {path.name for path in typical.iterdir()} == {"results.csv", *FIGURES}


def test_equal_rows_give_equal_bytes(typical, pages):
    with plot_study.matplotlib.rc_context(plot_study.STYLE):
        for name, page in pages.items():
            assert page.png() == (typical / name).read_bytes()


def test_fonts_are_those_of_matplotlib():
    """A font of the system would give another picture, on the machines that have it."""
    fonts = plot_study.fontManager.ttflist
    assert fonts
    assert all(font.fname.startswith(plot_study.FONTS) for font in fonts)


def test_one_point_without_latency_or_comments(tmp_path, monkeypatch, capsys):
    columns = [c for c in COLUMNS if c not in ("simulated_latency_us", "exact", "dtype", "rmse")]
    write(tmp_path, [a_row()], columns, comments="")
    assert run(monkeypatch, tmp_path) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    for name in FIGURES:
        assert size_of(tmp_path / name) == (1600, 900)

    # Another SQNR gives other pictures, also without the hash of the file, which all of them show.
    study = plot_study.read_study(tmp_path / "results.csv")
    row = dataclasses.replace(study.rows[0], sqnr_db=study.rows[0].sqnr_db + 1)
    other = plot_study.Results(dataclasses.replace(study, rows=(row,)))
    for name in FIGURES:
        assert drawn(other, name).png() != (tmp_path / name).read_bytes()


@pytest.mark.parametrize("cells", [{"exact": "true"}, {"exact": "false"}])
def test_nothing_but_empty_sqnr(tmp_path, cells):
    rows = [row | {"sqnr_db": ""} | cells for row in rows_of(ranks=[2, 4])]
    results = results_of(tmp_path, rows)
    for name in FIGURES:
        assert drawn(results, name).figure.axes


def test_many_codecs_become_heat_maps(tmp_path):
    codecs = [f"int{bits}-g{group}" for bits in (2, 3, 4) for group in (32, 64, 128)]
    rows = rows_of(codec=[*codecs, "fp16"], tensor=["layer0", "layer1"], algorithm=["ring"])
    rows += [row | {"ranks": 4} for row in rows]
    for i, row in enumerate(rows):
        row["sqnr_db"] = 20 + i % 7
    results = results_of(tmp_path, rows)
    assert drawn(results, "pareto.png").figure.legends[1].get_texts()[0].get_text() == "int"
    for name in ("error_by_ranks.png", "error_by_tensor.png"):
        axes = drawn(results, name).figure.axes
        assert axes[0].images, name
        assert len(axes[0].get_yticks()) == 10
    style = plot_study.Style.of(results)
    assert set(style.families) == {"int", "uncompressed"}
    assert len({style.colours[codec] for codec in codecs}) == 1


# ---------------------------------------------------------------- what is compared


def test_ranks_compare_only_tensors_that_exist_everywhere(tmp_path):
    """`early` would lift the median at two ranks."""
    rows = [a_row(tensor=t, ranks=n, sqnr_db=s) for t, n, s in [("a", 2, 20), ("a", 8, 17)]]
    rows += [a_row(tensor="b", ranks=n, sqnr_db=10) for n in (2, 8)]
    rows += [a_row(tensor="early", ranks=2, sqnr_db=90), a_row(tensor="late", ranks=8, sqnr_db=1)]
    results = results_of(tmp_path, rows)
    curves = plot_study.rank_curves(results, "in")
    assert curves.tensors == ["a", "b"]
    assert curves.left_out == ["early", "late"]
    assert curves.curves == {("ring", "qr-q4"): {2: 15, 8: 13.5}}
    page = drawn(results, "error_by_ranks.png")
    assert "left out: early; late" in plain(texts_of(page))
    assert "−1.5" in texts_of(page)


def test_no_common_tensor_is_said_and_not_drawn(tmp_path):
    results = results_of(tmp_path, [a_row(tensor="a", ranks=2), a_row(tensor="b", ranks=4)])
    assert plot_study.rank_curves(results, "in").curves == {}
    assert "nothing to compare" in texts_of(drawn(results, "error_by_ranks.png"))


def test_a_tensor_without_sqnr_somewhere_is_left_out_of_its_curve(tmp_path):
    rows = rows_of(tensor=["a", "b"], ranks=[2, 4])
    rows[-1]["sqnr_db"] = ""
    curves = plot_study.rank_curves(results_of(tmp_path, rows), "in")
    assert curves.dropped == 1
    assert curves.curves[("ring", "qr-q4")] == {n: 22.5 - 5 * math.log2(n) for n in (2, 4)}


def test_algorithms_with_the_same_error_are_one_series(tmp_path):
    rows = rows_of(algorithm=["tree", "tree_pipelined", "bruck"], codec=["qr-q4", "qr-q6"])
    labels = [series.label for series in results_of(tmp_path, rows).series]
    assert labels == ["tree = …_pipelined = bruck"]
    rows[-1]["rmse"] = 0.25  # the same SQNR, but not the same bits
    labels = [series.label for series in results_of(tmp_path, rows).series]
    assert labels == ["tree = …_pipelined", "bruck"]


def test_joined_algorithms_keep_their_own_latency(tmp_path):
    rows = rows_of(algorithm=["tree", "tree_pipelined"], codec=["qr-q4"])
    rows[1]["simulated_latency_us"] = 7.0
    results = results_of(tmp_path, rows)
    assert results.latency_us("in", 2, "tree", "qr-q4") == 145
    assert results.latency_us("in", 2, "tree_pipelined", "qr-q4") == 7
    said = plain(texts_of(drawn(results, "pareto.png")))
    assert "qr-q4 with tree_pipelined, 7 µs" in said


def test_main_input_is_the_one_with_tensors_at_its_largest_world_size(tmp_path):
    rows = rows_of(input=["noise"], ranks=[2, 16]) + rows_of(
        input=["net"], tensor=["a"], ranks=[2, 8]
    )
    results = results_of(tmp_path, rows)
    assert (results.main_input, results.world_size) == ("net", 8)


def test_by_tensor_uses_the_rank_count_with_the_most_tensors(tmp_path):
    rows = rows_of(tensor=["layer0", "layer1", "layer2"], ranks=[4]) + rows_of(
        tensor=["layer0"], ranks=[8]
    )
    assert "4 ranks, the rank count with the most tensors" in texts_of(
        drawn(results_of(tmp_path, rows), "error_by_tensor.png")
    )


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
def test_median(values, expected):
    assert plot_study.median(values) == expected


def test_exact_is_infinite_and_empty_is_undefined(tmp_path):
    rows = [
        a_row(tensor=t, sqnr_db=s, exact=e) for t, s, e in [("a", "", "true"), ("b", "", "false")]
    ]
    values = results_of(tmp_path, [*rows, a_row(tensor="c", sqnr_db=30)]).sqnr(
        "in", 2, "ring", "qr-q4"
    )
    assert values["a"] == math.inf and math.isnan(values["b"]) and values["c"] == 30
    here = plot_study.spread(values.values())
    assert (here.median, here.low, here.high, here.undefined) == (math.inf, 30, math.inf, 1)


def test_front():
    choices = [
        plot_study.Choice("c", "a", x, y)
        for x, y in [(3, 5), (1, 1), (2, 5), (2, 4), (4, 5), (5, 9)]
    ]
    assert [(c.cost, c.sqnr_db) for c in plot_study.front(choices)] == [(1, 1), (2, 5), (5, 9)]


def test_sections():
    names = ["layer10.up", "layer2.up", "head", "layer2.down"]
    sections = plot_study.sections_of("net", names)
    assert [(s.heading, s.tensors, s.ticks) for s in sections] == [
        ("layerN.up", ["layer2.up", "layer10.up"], ["2", "10"]),
        ("head", ["head"], [""]),
        ("layer2.down", ["layer2.down"], [""]),
    ]
    assert plot_study.sections_of("noise", [""])[0].heading == "noise"


@pytest.mark.parametrize(
    ("codec", "family"),
    [
        ("fp16", "uncompressed"),
        ("qr-fp8", "qr"),
        ("int4-g32", "int"),
        ("int2-g32-sr-is", "int-sr-is"),
        ("had-int4-g32", "had-int"),
        ("mxfp8-e4m3", "mxfp"),
        ("nvfp4", "nvfp"),
        ("mine", "mine"),
    ],
)
def test_family(codec, family):
    assert plot_study.family(codec) == family


# ---------------------------------------------------------------- what is said


def test_titles_follow_the_rows(pages):
    titles = {name: plain(page.figure.texts[0].get_text()) for name, page in pages.items()}
    assert titles["error_by_codec.png"] == (
        "net, 4 ranks: the algorithm moves the median SQNR by up to 6.0 dB (qr-q6), "
        "the tensor by up to 2.0 dB (fp16)"
    )
    assert titles["error_by_ranks.png"] == (
        "net, from 2 to 4 ranks: SQNR changes by −3.0 dB (two_shot) to 0.0 dB (one_shot), "
        "median over 2 codecs"
    )
    assert titles["pareto.png"] == (
        "Simulated fastest with at least 30 dB at 4 ranks: qr-q6 with one_shot, 165 µs, 32.5 dB; "
        "best uncompressed 260 µs"
    )
    assert titles["error_by_tensor.png"] == (
        "One codec, 2.0 dB apart: fp16 has 72.0 dB on layer0.up, 74.0 dB on layer1.up"
    )


def test_every_figure_says_where_its_numbers_come_from(pages):
    simulated = "simulated_latency_us is simulated (model m, topology t, 67108864 bytes per rank)"
    for name, page in pages.items():
        said = plain(texts_of(page))
        assert "all columns exact (computed from bits by arlab 1.2.3)" in said
        assert "Study: A study. File: results.csv, 24 rows, SHA-256 " in said
        assert (simulated in said) == (name == "pareto.png")


def test_latency_panel_is_labelled_and_only_there_when_simulated(pages, tmp_path):
    titles = [axes.get_title(loc="left") for axes in pages["pareto.png"].figure.axes]
    assert titles == [
        "two_shot: exact error, exact wire bits",
        "all algorithms: exact error, simulated latency of 64 MiB per rank",
    ]
    without = [row | {"simulated_latency_us": ""} for row in TYPICAL]
    page = drawn(results_of(tmp_path, without, comments=""), "pareto.png")
    titles = [axes.get_title(loc="left") for axes in page.figure.axes]
    assert titles == ["two_shot: error, wire bits"]
    assert "the file does not say where its numbers come from" in plain(texts_of(page))


def test_names_are_shown_as_they_are(tmp_path):
    rows = rows_of(
        input=["a, b"], tensor=["$x_0$", "y^{"], codec=["fp16", "my_$codec$"], ranks=[2, 4]
    )
    results = results_of(tmp_path, rows)
    said = [texts_of(drawn(results, name)) for name in FIGURES]
    assert all("a, b" in each for each in said)
    assert all("my_$codec$" in each for each in said)
    assert "$x_0$" in said[0] and "y^{" in said[3]


def test_axis_leaves_out_a_wide_gap_and_says_so():
    scale = plot_study.DecibelScale.of([10, 20, 30, 80, 85])
    assert 30 < scale.cut[0] < scale.cut[1] < 80
    assert scale.note == f"The SQNR axis leaves out {scale.cut[0]} to {scale.cut[1]} dB."
    assert plot_study.DecibelScale.of([10, 20, 30, 40, 50]).cut is None
    there, back = plot_study.bent([1, 3], [1, 1.5]), plot_study.bent([1, 1.5], [1, 3])
    for x in (-1.0, 1.0, 2.0, 3.0, 7.0):
        assert back(there(x)) == pytest.approx(x)
    assert there(7.0) - there(3.0) == 4.0


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("wanted", [[1, 2, 3], [50, 50, 50, 51], [0, 0, 99, 99], [10, 40, 41, 90]])
def test_apart(wanted):
    placed = plot_study.apart(wanted, 10, 0, 100)
    assert all(high - low >= 10 - 1e-9 for low, high in zip(placed, placed[1:]))
    assert placed[0] >= 0 and placed[-1] <= 100


def test_names_of_a_front_do_not_overlap():
    points = [(100.0 + 6 * i, 100.0 + 9 * i) for i in range(15)]
    frame = plot_study.Box(0, 0, 800, 800)
    boxes = plot_study.front_places(points, [(90.0, 20.0)] * 15, frame)
    for one, other in itertools.combinations(boxes, 2):
        assert not plot_study.overlap(one, other, air=0)
    for box, (x, y) in itertools.product(boxes, points):
        assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1)


def test_texts_are_readable_on_white(tmp_path):
    style = plot_study.Style.of(results_of(tmp_path, rows_of(codec=[f"c{i}" for i in range(8)])))
    to_rgb = plot_study.matplotlib.colors.to_rgb
    for codec in style.colours:
        luminance = plot_study.luminance(plot_study.np.array(to_rgb(style.ink(codec))))
        assert 1.05 / (luminance + 0.05) >= 4.45


# ---------------------------------------------------------------- refusals


def good_text():
    return COMMENTS + ",".join(COLUMNS) + "\n"


GOOD_ROW = ",".join(str(a_row()[name]) for name in COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
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
def test_bad_results_are_refused_in_one_line(tmp_path, monkeypatch, capsys, text, message):
    if text is not None:
        (tmp_path / "results.csv").write_text(text, encoding="utf-8")
    assert run(monkeypatch, tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert list(tmp_path.glob("*.png")) == []


def test_binary_file_and_missing_folder_are_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "results.csv").write_bytes(b"\x80\x81")
    assert run(monkeypatch, tmp_path) == 2
    assert "not a text file" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "nowhere") == 2
    assert "cannot read" in capsys.readouterr().err


def test_bad_usage_has_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plot_study.py"])
    with pytest.raises(SystemExit) as stopped:
        plot_study.main()
    assert stopped.value.code == 2
    assert "FOLDER" in capsys.readouterr().err


class ReadyPage:
    """A page that costs nothing to draw."""

    def png(self):
        return b"picture"


def ready(results, style):
    return ReadyPage()


def broken(results, style):
    raise RuntimeError("broken")


def test_no_file_is_written_when_one_figure_fails(tmp_path, monkeypatch):
    write(tmp_path, [a_row()])
    monkeypatch.setattr(plot_study, "FIGURES", {"one.png": ready, "two.png": broken})
    with pytest.raises(RuntimeError):
        run(monkeypatch, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_unwritable_place_is_one_line_and_leaves_nothing_half_done(tmp_path, monkeypatch, capsys):
    write(tmp_path, [a_row()])
    (tmp_path / "two.png").mkdir()
    monkeypatch.setattr(plot_study, "FIGURES", {"one.png": ready, "two.png": ready})
    assert run(monkeypatch, tmp_path) == 2
    err = capsys.readouterr().err
    assert "cannot write" in err and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"results.csv", "one.png", "two.png"}


def test_an_interrupt_while_a_file_is_written_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(plot_study.Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plot_study.write_whole(tmp_path / "it.png", b"picture")
    assert list(tmp_path.iterdir()) == []


def test_a_name_as_long_as_names_can_be(tmp_path):
    plot_study.write_whole(tmp_path / ("x" * 255), b"picture")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]
    with pytest.raises(plot_study.InputError, match="File name too long"):
        plot_study.write_whole(tmp_path / ("x" * 256), b"picture")
