"""arlab.figures draws what `arlab select`, `simulate --trace` and `topology show` write as JSON, and refuses the rest."""

import json
import subprocess
import sys

import pytest
from arlab.figures import __main__, selection, style, timelines, topologies
from drawn import BIN, refused, texts_of, title_of


LINK = {"link_class": "link", "bandwidth_gb_per_s": 50.0, "latency_us": 1.0, "bandwidth_source": "assumed"}
RING = {
    "schema": "arlab.topology/1", "topology": "ring:4", "summary": "a ring", "kind": "ring", "ranks": 4, "switches": 0,
    "group_size": 1, "ranks_per_router": 0, "shape": [], "device": "generic", "bisection_exact": True,
    "bisection_gb_per_s": 100.0, "link_classes": [LINK], "stragglers": [{"rank": 1, "delay_us": 5}],
    "faults": [{"from": "rank2", "to": "rank3", "bandwidth_factor": 0}],
    "edges": [{"from": a, "to": b, "class": "link", "gb_per_s": 50.0}
              for i in range(4) for a, b in ((i, (i + 1) % 4), ((i + 1) % 4, i))],
}  # fmt: skip


def candidate(algorithm, codec, latency, sqnr, implementation="kernel"):
    return {"algorithm": algorithm, "codec": codec, "implementation": implementation, "latency_us": latency,
            "sqnr_db": sqnr, "wire_bits_per_element": 16 if codec == "fp16" else 4.5}  # fmt: skip


FRONT = [candidate("two_shot", "qr-q4", 10.0, 20.0), candidate("two_shot", "fp16", 20.0, 70.0)]
SELECTION = {
    "schema": "arlab.select/1", "topology": "t", "bytes": 1 << 20, "algorithm": "two_shot", "codec": "fp16",
    "implementation": "kernel", "latency_us": 20.0, "min_sqnr_db": 30.0, "max_wire_bits": None,
    "error_measured_on": "noise", "provenance": "simulated", "pareto": FRONT,
    "candidates": [*FRONT, candidate("ring", "qr-q4", 30.0, 15.0), candidate("ring", "fp16", 25.0, 69.0, "library")],
}  # fmt: skip


def draw(kind, data, folder, name="it.png"):
    (folder / "it.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return __main__.main([kind, str(folder / "it.json"), str(folder / name)])


# ---------------------------------------------------------------- selections


def test_selection():
    figure = selection(SELECTION)
    said = texts_of(figure)
    assert title_of(figure) == "two_shot with fp16 is fastest, 20 µs"
    assert "t, 1 MiB, simulated, 30 dB and more. Error: noise" in said
    assert {"qr-q4", "fp16", "fastest within the budget", "ring, library", "budget: 30 dB", "outside of the budget"} <= set(said)
    assert sum(name == "qr-q4" for name in said) == 1  # ring's is not on the front
    mine = selection(SELECTION | {"highlight": ["qr-q4"]})
    assert sum(name == "qr-q4" for name in texts_of(mine)) == 2
    assert style.HIGHLIGHT in {line.get_color() for line in mine.axes[0].lines}
    colours = {(x, y): line.get_color() for line in figure.axes[0].lines for x, y in [line.get_xydata()[0]] if len(line.get_xydata()) == 1}
    assert colours[30.0, 15.0] == "#C8C8C8" and colours[25.0, 69.0] == style.INK


def test_selection_without_measured_errors_is_by_wire_bits():
    bare = [each | {"sqnr_db": None} for each in FRONT]
    data = SELECTION | {"candidates": bare, "pareto": bare[:1], "min_sqnr_db": None, "max_wire_bits": 8}
    assert "wire bits per element (exact)" in texts_of(selection(data))


# ---------------------------------------------------------------- timelines


def trace(ranks, links):
    """A trace with a span per rank and, per link, one that is half full."""
    events = []
    for pid, names in ((1, ranks), (2, links)):
        for tid, (name, link_class, end) in enumerate(names, 1):
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
            arguments = {"step": 0} | ({"link_class": link_class} if link_class else {})
            events.append({"ph": "X", "name": "encode", "pid": pid, "tid": tid, "ts": 0, "dur": end, "args": arguments})
            if pid == 2:
                for at, percent in ((0, 50), (end, 0)):
                    events.append({"ph": "C", "name": f"load of {name}", "ts": at, "args": {"percent": percent}})
    about = {"schema": "arlab.trace/1", "algorithm": "ring", "codec": "fp16", "dtype": "fp16", "topology": "t", "bytes": 1024,
             "latency_us": 10.0, "bottleneck": "none", "provenance": "simulated"}  # fmt: skip
    return {"otherData": about, "traceEvents": events}


def test_timeline():
    said = texts_of(timelines.timeline(trace([("rank 0", "", 4), ("rank 1", "", 10)], [("link 0->1", "link", 8)])))
    assert "ring of 1 KiB fp16 as fp16 on t: 10 µs, simulated" in said
    assert {"rank 0", "rank 1", "link 0->1", "encode", "40 % used"} <= set(said)


def test_of_many_ranks_some_and_of_many_links_the_fullest_of_every_class():
    ranks = [(f"rank {i}", "", 1) for i in range(40)]
    links = [(f"port {i}", "port", 1 + 0.1 * i) for i in range(20)] + [("bridge", "bridge", 0.1)]
    figure = timelines.timeline(trace(ranks, links))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(names) == 16 + 12 and names[0] == "rank 0" and names[15] == "rank 39"
    assert names[16:] == [f"port {i}" for i in range(9, 20)] + ["bridge"]
    assert "16 of 40 ranks shown. Links: the fullest 12 of 21." in texts_of(figure)


# ---------------------------------------------------------------- topologies


def test_topology():
    said = texts_of(topologies.topology(RING))
    assert {"ring:4: 4 devices, bisection 100 GB/s", "failed", "+5 µs", "straggler", "fault", "link: 50 GB/s each way, 1 µs (assumed)"} <= set(said)


@pytest.mark.parametrize(
    ("kind", "ranks", "switches", "more"),
    [
        ("full_mesh", 1, 0, {}),
        ("switch", 8, 4, {}),
        ("torus", 24, 0, {"shape": [2, 3, 4]}),
        ("torus", 5, 0, {"shape": [5, 1]}),
        ("numa", 8, 2, {"group_size": 4}),
        ("numa", 12, 4, {"group_size": 3}),
        ("fat_tree", 16, 11, {"group_size": 8}),
        ("fat_tree", 8, 1, {"group_size": 8}),
        ("dragonfly", 20, 12, {"group_size": 4, "ranks_per_router": 2}),
        ("graph", 5, 1, {}),
    ],
)
def test_every_node_has_a_place_of_its_own(kind, ranks, switches, more):
    data = RING | {"kind": kind, "ranks": ranks, "switches": switches, "edges": [], "faults": [], "stragglers": []} | more
    points = topologies.layout(data)
    assert len(points) == ranks + switches
    assert len({(round(x, 6), round(y, 6)) for x, y in points}) == ranks + switches


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("kind", "data"), [("select", SELECTION), ("topology", RING), ("timeline", trace([("rank 0", "", 4)], []))]
)
def test_equal_data_give_equal_files(tmp_path, kind, data):
    for name, begin in {"it.png": b"\x89PNG", "it.svg": b"<?xml", "it.pdf": b"%PDF"}.items():
        first = draw(kind, data, tmp_path, name) or (tmp_path / name).read_bytes()
        assert draw(kind, data, tmp_path, name) == 0
        assert (tmp_path / name).read_bytes() == first and first.startswith(begin)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("select", {k: v for k, v in SELECTION.items() if k != "candidates"}, "select --plot"),
        ("select", RING, "not of arlab select"),
        ("topology", SELECTION, "not of arlab topology show"),
        ("topology", "{", "not of arlab topology show"),
        ("topology", "[1]", "not of arlab topology show"),
        ("timeline", RING, "not a trace of arlab simulate"),
        ("timeline", trace([], []) | {"traceEvents": [{"ph": "X"}]}, "not a trace of arlab simulate"),
        ("topology", RING, ".png, .svg or .pdf"),
        ("topology", None, "cannot read"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, capsys, kind, data, message):
    if data is not None:
        (tmp_path / "it.json").write_text(data if isinstance(data, str) else json.dumps(data))
    picture = "it.jpg" if message.startswith(".png") else "it.png"
    refused(capsys, tmp_path, [kind, tmp_path / "it.json", tmp_path / picture], message)


def test_what_the_program_traces(tmp_path):
    command = "simulate --topology l40-8 --algorithm hierarchical_pipelined --codec qr-q4 --bytes 1M --no-plots --trace"
    subprocess.run([BIN / "arlab", *command.split(), tmp_path / "t.json"], check=True, capture_output=True)
    words = [sys.executable, "-W", "error", "-m", "arlab.figures", "timeline", tmp_path / "t.json", tmp_path / "t.png"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "t.png").stat().st_size > 20_000
