"""arlab simulate --trace and --library."""

import json
from collections import defaultdict

import pytest
from program import contents, ok, ok_json, refused, run

PIPELINED = (
    "simulate --topology l40-8 --algorithm hierarchical_pipelined --codec int4-g32 --dtype bf16"
    " --bytes 64M"
)
COMMANDS = [
    PIPELINED,
    "simulate --topology mi300x-8 --algorithm two_shot --codec qr-q4 --bytes 1M",
    "simulate --topology ring:5 --algorithm ring --codec fp16 --bytes 1M",
    "simulate --topology fat_tree:16 --algorithm hierarchical --codec qr-q4 --bytes 1M",
    "simulate --topology l40-8 --algorithm all_to_all --codec qr-q4 --bytes 1M",
    "simulate --topology mi300x-8 --algorithm two_shot --codec fp16 --bytes 32K --library",
    "simulate --topology full:1 --algorithm two_shot --codec fp16 --bytes 32K",
]
RANKS, LINKS = 1, 2
PICOSECOND = 1e-6


class Trace:
    """The file, read as a viewer would: tracks by process and name, their events."""

    def __init__(self, path):
        self.content = json.loads(path.read_text())
        self.about = self.content["otherData"]
        events = self.content["traceEvents"]
        self.processes, names = {}, {}
        for event in events:
            assert event["ph"] in ("M", "X", "C"), event
            if event["ph"] != "M":
                continue
            if event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
        self.tracks, self.loads = defaultdict(list), defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                assert event["ts"] >= 0 and event["dur"] >= 0
                self.tracks[event["pid"], names[event["pid"], event["tid"]]].append(event)
            elif event["ph"] == "C":
                assert event["pid"] == LINKS and event["name"].startswith("load of ")
                name = event["name"].removeprefix("load of ")
                self.loads[name].append((event["ts"], event["args"]["percent"] / 100))

    def of(self, process):
        """Events by rank or link, over all lanes of it."""
        merged = defaultdict(list)
        for (pid, name), events in self.tracks.items():
            if pid == process:
                merged[name.split(" (")[0]] += events
        return merged


def traced(command, folder):
    report = ok_json(f"{command} --trace t.json --no-plots", folder)
    return Trace(folder / "t.json"), report


@pytest.mark.parametrize("command", COMMANDS)
def test_a_trace_says_what_the_figures_say(tmp_path, command):
    trace, report = traced(command, tmp_path)
    assert trace.processes == {RANKS: "ranks", LINKS: "links"}
    assert trace.about["schema"] == "arlab.trace/1"
    for name in ["topology", "algorithm", "codec", "dtype", "ranks", "bytes", "bottleneck"]:
        assert trace.about[name] == report[name], name
    assert trace.about["provenance"].startswith("simulated")
    assert trace.about["latency_us"] == pytest.approx(report["latency_us"], rel=1e-12)
    ranks, links = trace.of(RANKS), trace.of(LINKS)
    assert set(ranks) == {f"rank {i}" for i in range(report["ranks"])}
    assert len(links) == sum(each["links"] for each in report["links"])
    ends = [e["ts"] + e["dur"] for events in [*ranks.values(), *links.values()] for e in events]
    assert max(ends) <= report["latency_us"] + PICOSECOND
    by_class = defaultdict(int)
    for event in (event for events in links.values() for event in events):
        assert event["args"]["from"] != event["args"]["to"] and event["args"]["step"] >= 0
        by_class[event["args"]["link_class"]] += event["args"]["bytes"]
    assert by_class == {each["link_class"]: each["bytes"] for each in report["links"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_spans_of_a_track_do_not_overlap(tmp_path, command):
    trace, _ = traced(command, tmp_path)
    for key, events in trace.tracks.items():
        events.sort(key=lambda event: event["ts"])
        for before, after in zip(events, events[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + PICOSECOND, key


@pytest.mark.parametrize("command", COMMANDS)
def test_a_rank_is_never_without_a_span_until_it_is_done(tmp_path, command):
    trace, report = traced(command, tmp_path)
    last = 0
    for name, events in trace.of(RANKS).items():
        names = {event["name"] for event in events}
        assert names <= {
            "launch", "flags", "encode", "decode", "reduce", "forward", "send", "wait",
        }  # fmt: skip
        now = 0
        for event in sorted(events, key=lambda event: event["ts"]):
            assert event["ts"] <= now + 2 * PICOSECOND, (name, event)
            now = max(now, event["ts"] + event["dur"])
        last = max(last, now)
    if report["ranks"] > 1:
        assert last == pytest.approx(report["latency_us"], abs=2 * PICOSECOND)


@pytest.mark.parametrize("command", COMMANDS)
def test_loads_carry_the_bytes(tmp_path, command):
    trace, report = traced(command, tmp_path)
    links = trace.of(LINKS)
    assert set(trace.loads) == set(links)
    fullest = defaultdict(float)
    for name, loads in trace.loads.items():
        assert loads[-1][1] == 0 and all(-1e-9 <= load <= 1 + 1e-6 for _, load in loads)
        used_us = sum(load * (end - at) for (at, load), (end, _) in zip(loads, loads[1:]))
        link_class = links[name][0]["args"]["link_class"]
        fullest[link_class] = max(fullest[link_class], used_us / report["latency_us"])
    for each in report["links"]:
        assert fullest[each["link_class"]] == pytest.approx(each["utilisation"], rel=1e-4)


def test_a_trace_does_not_change_the_figures(tmp_path):
    for command in [PIPELINED, COMMANDS[1]]:
        _, report = traced(command, tmp_path)
        plain = ok_json(command, tmp_path)
        assert report.pop("trace") == "t.json"
        assert plain.pop("simulated_ranks") == 1 and report.pop("simulated_ranks") == 8
        assert report.keys() == plain.keys()
        for name, value in plain.items():
            if isinstance(value, float):
                assert report[name] == pytest.approx(value, rel=1e-6), name


def test_bubbles_and_the_gain_of_pipelining(tmp_path):
    """Flash Communication V2, figure 8: a serial hierarchy leaves the bridge idle for longer."""

    def idle_share_of_bridge(command):
        trace, report = traced(command, tmp_path)
        loads = trace.loads["bridge 0->1"]
        used = sum(end - at for (at, load), (end, _) in zip(loads, loads[1:]) if load > 0)
        return 1 - used / report["latency_us"], report["latency_us"]

    serial_idle, serial_us = idle_share_of_bridge(PIPELINED.replace("_pipelined", ""))
    pipelined_idle, pipelined_us = idle_share_of_bridge(PIPELINED)
    assert pipelined_idle < serial_idle and pipelined_us < serial_us


def test_the_same_run_gives_the_same_files(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        ok(f"{PIPELINED} --trace t.json", tmp_path / folder)
        assert set(contents(tmp_path / folder)) == {"t.json", "t.png"}
    for name in ("t.json", "t.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a/t.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_of_many_and_of_few(tmp_path):
    for ranks in (1, 2, 40):
        ok(
            f"simulate --topology full:{ranks} --algorithm two_shot --codec fp16 --bytes 1M"
            " --trace t.json",
            tmp_path,
        )


def test_without_the_picture_the_trace_is_there(tmp_path):
    result = run(
        f"{PIPELINED} --trace t.json", tmp_path, env={"ARLAB_PYTHON": "/nowhere/python"}
    )
    assert result.code == 1 and "the trace is in t.json" in result.stderr
    assert "latency_us" in result.stdout
    assert set(contents(tmp_path)) == {"t.json"}


def test_refused(tmp_path):
    command = "simulate --topology l40-8 --algorithm ring --codec fp16 --bytes 1M"
    refused(f"{command} --trace t.txt", tmp_path, "--trace", "t.txt", ".json")
    refused(f"{command} --trace none/t.json", tmp_path, "none")
    refused(f"{command} --trace .json", tmp_path, "--trace")
    refused(f"{command} --no-plots", tmp_path, "--trace")
    refused(f"{command} --sharing fifo", tmp_path, "--sharing")
    refused(
        f"{command.replace('fp16', 'qr-q4')} --library", tmp_path, "library", "fp16, bf16 and fp32"
    )
    refused(f"{command.replace('l40-8', 'full:8')} --library", tmp_path, "[library]")
    large = "simulate --algorithm {} --codec fp16 --bytes 64M --trace t.json --topology "
    refused(large.format("ring") + "ring:5000", tmp_path, "5000 ranks", "4096")
    refused(large.format("two_shot") + "full:4096", tmp_path, "messages", "2 million")


def test_as_a_chakra_trace(tmp_path):
    """Nodes depend on what has ended before them; what is sent is received; the collective takes as long as the figures say."""
    command = "simulate --topology fat_tree:16 --algorithm hierarchical --codec qr-q4 --bytes 1M --trace t.chakra.json"
    report = ok_json(command, tmp_path)
    assert set(contents(tmp_path)) == {"t.chakra.json"}  # no picture
    trace = json.loads((tmp_path / "t.chakra.json").read_text())
    assert len(trace["ranks"]) == len(trace["collective"]) == 16
    for whole in trace["collective"]:
        attributes = {each["name"]: next(v for k, v in each.items() if k != "name") for each in whole["attr"]}
        assert whole["type"] == "COMM_COLL_NODE" and attributes["comm_type"] == 0 and attributes["comm_size"] == 1 << 20
        assert attributes["duration_ps"] == pytest.approx(report["latency_us"] * 1e6, abs=1)
    sent, received, encoded = [], [], 0
    for nodes in trace["ranks"]:
        assert [node["id"] for node in nodes] == list(range(len(nodes)))
        for node in nodes:
            attributes = {each["name"]: next(v for k, v in each.items() if k != "name") for each in node["attr"]}
            for other in node["ctrl_deps"] + node["data_deps"]:
                before = nodes[other]
                assert before["start_time_micros"] + before["duration_micros"] <= node["start_time_micros"] + 1
            message = tuple(attributes.get(name) for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
            if node["type"] == "COMM_SEND_NODE":
                sent.append(message)
            elif node["type"] == "COMM_RECV_NODE":
                received.append(message)
            else:
                assert node["type"] == "COMP_NODE"
                encoded += node["name"].startswith("encode")
    assert sorted(sent) == sorted(received) and sum(size for *_, size in sent) == report["wire_bytes"] and encoded
