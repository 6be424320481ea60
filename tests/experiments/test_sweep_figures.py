"""arlab.figures draws sweeps over sizes and machines: which rows it compares, what its titles say, what it refuses.

The sweep is made by hand, so that the fastest of everything is known; one is simulated by the program.
"""

import csv
import io
import subprocess

import pytest
from arlab.figures import InputError, __main__, read_sweep, style, sweep
from drawn import BIN, refused, said_on, title_of

KIB, MIB = 1 << 10, 1 << 20
# Fixed cost and cost per MiB in µs.
COSTS = {
    ("one_shot", "fp16", "kernel"): (5, 100),
    ("one_shot", "qr-q4", "kernel"): (15, 60),
    ("two_shot", "fp16", "kernel"): (9, 20),
    ("two_shot", "qr-q4", "kernel"): (20, 6),
    ("ring", "fp16", "library, 8 channels"): (30, 18),
    ("tree", "fp16", "library, 8 channels"): (20, 30),
}
SLOWER = {"fast-8": 1, "slow-8": 4}
SQNR = {"fp16": 70.0, "qr-q4": 20.0}


def rows_of(sizes=(32 * KIB, MIB, 64 * MIB), costs=COSTS, sqnr=SQNR):
    rows = []
    for topology, slower in SLOWER.items():
        for size in sizes:
            for (algorithm, codec, implementation), (fixed, per_mib) in costs.items():
                latency = slower * (fixed + per_mib * size / MIB)
                rows.append({
                    "topology": topology, "ranks": 8, "algorithm": algorithm, "codec": codec, "dtype": "fp16",
                    "bytes": size, "implementation": implementation, "latency_us": latency,
                    "algbw_gb_per_s": size / latency / 1e3, "busbw_gb_per_s": 1.75 * size / latency / 1e3,
                    "sqnr_db": sqnr[codec], "wire_bits_per_element": 16 if codec == "fp16" else 4.5,
                    "provenance": f"simulated: model m, topology {topology}",
                })  # fmt: skip
    return rows


def write(path, rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())
    return path


@pytest.fixture
def frame(tmp_path):
    return read_sweep(write(tmp_path / "sweep.csv", rows_of()))


def lines_of(axes):
    """The lines of a panel (not the markers on them): their points by colour and style."""
    lines = [line for line in axes.lines if line.get_linestyle() != "None" and len(line.get_xdata()) > 1]
    return {(line.get_color(), line.get_linestyle()): dict(zip(line.get_xdata(), line.get_ydata())) for line in lines}


def test_an_interval_is_a_band(tmp_path, frame):
    """Drawn runs have a band; where some machines have none, theirs have no band."""
    assert not any(axes.collections for axes in sweep.latency_over_size(frame).axes)
    rows = [row | {"latency_us_low": row["latency_us"] / 2, "latency_us_high": row["latency_us"] * 2} for row in rows_of()]
    for row in rows:
        if row["topology"] == "slow-8":
            row |= {"latency_us_low": "", "latency_us_high": ""}
    figure = sweep.latency_over_size(read_sweep(write(tmp_path / "banded.csv", rows)))
    fast, slow, *_ = figure.axes
    lowest = sorted(min(line.values()) / 2 for line in lines_of(fast).values())
    assert sorted(band.get_datalim(fast.transData).y0 for band in fast.collections) == pytest.approx(lowest)
    assert "90 % of measured times" in said_on(figure)


def test_latency_is_that_of_the_fastest_algorithm_of_each_codec(frame):
    figure = sweep.latency_over_size(frame)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["fast-8", "slow-8", "", ""]
    looks = sweep.Sweep(frame).looks
    fast = lines_of(figure.axes[0])
    assert len(fast) == 3
    assert fast[looks["fp16"]["color"], "-"] == {32 * KIB: 8.125, MIB: 29.0, 64 * MIB: 1289.0}
    assert fast[looks["library"]["color"], "--"] == {32 * KIB: 20 + 30 / 32, MIB: 48.0, 64 * MIB: 1182.0}
    markers = {(line.get_xdata()[0], line.get_marker()) for line in figure.axes[0].lines if len(line.get_xdata()) == 1}
    assert (32 * KIB, style.ALGORITHMS["one_shot"][1]) in markers and (64 * MIB, style.ALGORITHMS["ring"][1]) in markers
    assert title_of(figure) == "64 MiB takes 404 µs on fast-8, 1616 µs on slow-8"
    assert "32 KiB takes 8.125 µs at best (one_shot with fp16, fast-8)." in said_on(figure)
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "linear", "linear"]


def test_latencies_that_are_close_are_apart_in_a_panel_of_their_ratios(tmp_path):
    """Three codecs within 10 % where the library takes four times as long: on the axis of decades they are one line."""
    costs = {("one_shot", codec, "kernel"): (fixed, 1) for codec, fixed in (("fp16", 5), ("qr-q4", 5.25), ("qr-q8", 5.5))}
    costs["ring", "fp16", "library, 8 channels"] = (20, 1)
    rows = rows_of(sizes=(4 * KIB, 32 * KIB), costs=costs, sqnr=SQNR | {"qr-q8": 40.0})
    table = read_sweep(write(tmp_path / "close.csv", rows))
    figure = sweep.latency_over_size(table)
    above, below = figure.axes[0], figure.axes[2]
    looks = sweep.Sweep(table).looks
    ends = {name: below.get_ylim()[0] for name in looks}
    for line in below.lines:
        ends |= {name: line.get_ydata()[0] for name, look in looks.items() if look["color"] == line.get_color() and name != "library"}
    one = 1 / 256
    assert ends["qr-q8"] == pytest.approx((5.5 + one) / (5 + one)) and ends["qr-q4"] == pytest.approx((5.25 + one) / (5 + one))
    inches = [axes.get_window_extent().height / figure.dpi for axes in (above, below)]
    across_range = below.get_ylim()[1] - below.get_ylim()[0]
    assert (ends["qr-q8"] - ends["qr-q4"]) / across_range * inches[1] > 0.04
    assert below.get_ylim()[1] < 2.1 and "how many times the least, up to 2" in said_on(figure)
    alone = read_sweep(write(tmp_path / "alone.csv", [row for row in rows if row["codec"] == "qr-q4"]))
    assert len(sweep.latency_over_size(alone).axes) == 2


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [(-0.04, ".1f", "0.0"), (-0.0, "g", "0"), (-0.04, "+.1f", "0.0"), (0.0, "+.1f", "0.0"), (-0.06, ".1f", "−0.1"),
     (0.06, "+.1f", "+0.1"), (-20, ".1f", "−20.0"), (-100, "g", "−100"), (0, "g", "0")],
)  # fmt: skip
def test_no_number_is_a_negative_zero(value, form, shown):
    assert style.number(value, form) == shown


def test_no_cell_or_label_is_a_negative_zero():
    from arlab.figures import pages

    assert [style.decibel_text(-0.04), style.decibel_text(-0.04, change=True), style.decibels(-0.04)] == ["0.0", "0.0", f"0.0{style.NO_BREAK}dB"]
    assert [pages.short(text) for text in ("-0.0", "-0", "0", "-0.5", "-1.23456789")] == ["0.0", "0", "0", "-0.5", "-1.23457"]
    figure = style.Figure()
    axes = figure.subplots()
    style.decibel_axis(axes, [-3.0, 3.0])
    named = [label.get_text() for label in axes.get_yticklabels()]
    assert "0" in named and "−0" not in named


def test_bandwidth(frame):
    figure = sweep.bandwidth_over_size(frame)
    best = 1.75 * 64 * MIB / 404 / 1e3
    assert title_of(figure) == f"Up to {best:.4g} GB/s bus bandwidth: two_shot with qr-q4 on fast-8"
    assert max(max(line.get_ydata()) for line in figure.axes[0].lines) == pytest.approx(best)


def test_speed_up_is_over_the_fastest_row_of_the_library(frame):
    figure = sweep.speedup_over_library(frame)
    looks = sweep.Sweep(frame).looks
    fast = lines_of(figure.axes[0])
    assert set(fast[looks["library"]["color"], "--"].values()) == {1.0}
    assert fast[looks["qr-q4"]["color"], "--"][64 * MIB] == pytest.approx(1182 / 404)
    assert title_of(figure) == "Up to 2.9 times as fast as the library: two_shot with qr-q4"
    assert "A kernel is faster in 6 of 6 cases." in said_on(figure) and "on fast-8, 64 MiB" in said_on(figure)


def test_best_method_by_size(frame):
    figure = sweep.best_method_by_size(frame)
    axes = figure.axes[0]
    bands = {(round(bar.get_x() + 0.5), round(bar.get_y() + 0.4), round(bar.get_width())) for bar in axes.patches}
    assert bands == {(0, 0, 1), (1, 0, 2), (0, 1, 1), (1, 1, 2)}
    assert {text.get_text() for text in axes.texts} == {"fp16\none_shot", "qr-q4\ntwo_shot"}
    assert title_of(figure) == "two_shot with qr-q4 is fastest in 4 of 6 cases"
    limited = sweep.best_method_by_size(frame, least_sqnr_db=30)
    assert {text.get_text() for text in limited.axes[0].texts} == {"fp16\none_shot", "fp16\ntwo_shot", "library\nring"}
    assert "SQNR at least 30 dB" in said_on(limited)
    with pytest.raises(InputError, match="no row has an SQNR of at least 99 dB"):
        sweep.best_method_by_size(frame, least_sqnr_db=99)


def test_machines_heat_map(frame):
    figure = sweep.machines_heat_map(frame)
    values = figure.axes[0].images[0].get_array()
    assert values.tolist() == [[8.125, 26.0, 404.0], [32.5, 104.0, 1616.0]]
    assert title_of(figure) == "64 MiB: fast-8 takes 404 µs, slow-8 4 times as long"
    assert {"8.12", "404", "1616"} <= {text.get_text() for text in figure.axes[0].texts}
    one = sweep.machines_heat_map(frame, method=("one_shot", "qr-q4"))
    assert one.axes[0].images[0].get_array()[0].tolist() == [15 + 60 / 32, 75.0, 15 + 60 * 64]
    with pytest.raises(InputError, match="no row has algorithm ring with codec qr-q4"):
        sweep.machines_heat_map(frame, method=("ring", "qr-q4"))


def test_a_codec_with_another_inside_groups_is_a_series_of_its_own(tmp_path):
    rows = [row | {"inner_codec": ""} for row in rows_of()]
    rows += [row | {"inner_codec": "qr-q8", "latency_us": 1.0} for row in rows if row["codec"] == "qr-q4"]
    frame = read_sweep(str(write(tmp_path / "s.csv", rows)))
    assert list(sweep.Sweep(frame).looks) == ["fp16", "qr-q4", "qr-q4+qr-q8", "library"]
    assert "one_shot with qr-q4+qr-q8" in said_on(sweep.latency_over_size(frame))
    frame["inner_codec"] = frame["inner_codec"].replace("", None)  # as arlab.sweep() has it
    assert list(sweep.Sweep(frame).looks) == ["fp16", "qr-q4", "qr-q4+qr-q8", "library"]


def test_rank_counts_of_one_topology_are_machines_of_their_own(tmp_path):
    rows = rows_of()
    rows += [row | {"ranks": 4, "latency_us": 1.0} for row in rows if row["topology"] == "fast-8"]
    figure = sweep.machines_heat_map(read_sweep(write(tmp_path / "s.csv", rows)))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["fast-8, 8 ranks", "slow-8", "fast-8, 4 ranks"]


def test_every_figure_says_where_its_numbers_come_from(frame):
    for draw in sweep.FIGURES.values():
        said = said_on(draw(frame))
        assert "Provenance: simulated: model m. File: sweep.csv, 36 rows, SHA-256 " in said


@pytest.mark.parametrize("width", list(style.WIDTHS))
def test_command_line(tmp_path, capsys, width):
    path = write(tmp_path / "sweep.csv", rows_of())
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        options = ["--out", str(tmp_path / folder), "--width", width, "--highlight", "qr-q4"]
        assert __main__.main(["sweep", str(path), *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10
    for name in sweep.FIGURES:
        one, other = ((tmp_path / folder / f"{name}.png").read_bytes() for folder in ("a", "b"))
        assert one == other and one.startswith(b"\x89PNG")


def test_without_a_library_there_is_no_speed_up(tmp_path):
    rows = [row for row in rows_of() if row["implementation"] == "kernel"]
    path = write(tmp_path / "sweep.csv", rows)
    assert __main__.main(["sweep", str(path), "--out", str(tmp_path)]) == 0
    assert {each.stem for each in tmp_path.glob("*.png")} == set(sweep.FIGURES) - {"speedup_over_library"}
    with pytest.raises(InputError, match="begins with 'library'"):
        sweep.speedup_over_library(read_sweep(path))


def test_one_row_without_sqnr(tmp_path):
    rows = [row | {"sqnr_db": ""} for row in rows_of(sizes=[MIB], costs=dict([*COSTS.items()][:1]))[:1]]
    path = write(tmp_path / "sweep.csv", rows)
    assert __main__.main(["sweep", str(path), "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency_us": "fast"}, "line 2: latency_us is 'fast', which is not a number"),
        ({"latency_us": "0"}, "line 2: latency_us is '0'; it must be above 0"),
        ({"bytes": ""}, "line 2: bytes is empty"),
        ({"codec": ""}, "line 2: codec is empty"),
    ],
)
def test_bad_rows_are_refused_in_one_line(tmp_path, capsys, change, message):
    path = write(tmp_path / "sweep.csv", [row | change for row in rows_of()])
    refused(capsys, tmp_path, ["sweep", path, "--out", tmp_path], message)


def test_what_the_program_simulates(tmp_path):
    table = []
    for size in ("64K", "16M"):
        for words in ("two_shot --codec qr-q4", "ring --codec fp16 --library"):
            command = f"simulate --topology mi300x-8 --algorithm {words} --bytes {size} --format csv"
            done = subprocess.run([BIN / "arlab", *command.split()], capture_output=True, text=True, check=True)
            table += list(csv.DictReader(done.stdout.splitlines()))
    figure = sweep.speedup_over_library(read_sweep(write(tmp_path / "sweep.csv", table)))
    assert "times as fast as the library: two_shot with qr-q4" in title_of(figure)
