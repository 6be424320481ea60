"""arlab list: what is listed is there, and is as it says."""

import numpy as np
import pytest
from program import ok, ok_csv, ok_json, on_terminal, parse_table, same

KINDS = ["codecs", "algorithms", "topologies", "inputs"]
NUMPY_TYPE = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}


def listed(kind, folder):
    return ok_json(f"list {kind}", folder)[kind]


def names(kind, folder):
    return [entry["name"] for entry in listed(kind, folder)]


@pytest.mark.parametrize("kind", KINDS)
def test_formats_agree(tmp_path, kind):
    report = ok_json(f"list {kind}", tmp_path)
    assert report["schema"] == f"arlab.list.{kind}/1"
    entries = report[kind]
    assert len({entry["name"] for entry in entries}) == len(entries) >= 5

    rows = ok_csv(f"list {kind}", tmp_path)
    assert all(same(row, entry) for row, entry in zip(rows, entries, strict=True))

    text = ok(f"list {kind} --format table", tmp_path)
    assert text == ok(f"list {kind}", tmp_path)
    wide = ok(f"list {kind} --all", tmp_path)
    if kind == "codecs":
        assert report["families"][1].startswith("[had-]int<b>-g<G|") and report["families"][1] in wide
        wide = wide.partition("\n\n")[2]
    figures, columns, cells = parse_table(wide)
    assert figures == {} and columns == list(entries[0])
    assert [row[0] for row in cells if row[0]] == [entry["name"] for entry in entries]
    # Text that is too long goes on in the lines below.
    starts = [i for i, row in enumerate(cells) if row[0]]
    for begin, end, entry in zip(starts, [*starts[1:], len(cells)], entries, strict=True):
        for c, column in enumerate(columns):
            said = " ".join(row[c] for row in cells[begin:end] if row[c])
            if isinstance(entry[column], str):
                assert said == (entry[column] or "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_names_are_whole_at_any_width(tmp_path, kind, width):
    text = on_terminal(f"list {kind}", tmp_path, width)
    table = text.partition("\n\n")[2] if kind == "codecs" else text
    _, columns, cells = parse_table(table)
    assert [row[0] for row in cells if row[0]] == names(kind, tmp_path)
    assert columns == list(listed(kind, tmp_path)[0])[: len(columns)] or kind == "codecs"
    longest = max(len(name) for name in names(kind, tmp_path))
    assert max(map(len, table.splitlines())) <= max(width, longest)


def test_codecs_have_the_wire_bits_and_dtypes_that_they_say(tmp_path):
    """Bits are those of the first dtype, for 2^20 elements: spikes travel in dtype, a tensor scale once."""
    elements = 1 << 20
    for codec in listed("codecs", tmp_path):
        for i, dtype in enumerate(codec["dtypes"].split(", ")):
            np.save(tmp_path / "in.npy", np.ones(elements, NUMPY_TYPE[dtype]))
            ok(f"encode --codec {codec['name']} --dtype {dtype} in.npy out.bin", tmp_path)
            bits = 8 * (tmp_path / "out.bin").stat().st_size / elements
            if i == 0:
                assert bits == codec["wire_bits_per_element"], codec
            else:
                assert bits >= codec["wire_bits_per_element"], codec


def test_every_algorithm_makes_a_schedule(tmp_path):
    for name in names("algorithms", tmp_path):
        schedule = ok_json(f"schedule --algorithm {name} --ranks 6 --elements 102", tmp_path)
        assert (schedule["algorithm"], schedule["check"]["correct"]) == (name, True)


def test_every_topology_can_be_simulated(tmp_path):
    for topology in listed("topologies", tmp_path):
        if topology["ranks"] == "any":
            continue
        command = "simulate --algorithm two_shot --codec fp16 --bytes 1M --topology "
        assert ok_json(command + topology["name"], tmp_path)["ranks"] == topology["ranks"]


def test_every_generated_topology_can_be_simulated(tmp_path):
    generated = [entry for entry in listed("topologies", tmp_path) if ":" in entry["name"]]
    assert len(generated) >= 5
    for topology in generated:
        name = topology["name"].replace("AxBxC", "2x2x2").replace("N", "8")
        command = f"simulate --algorithm two_shot --codec fp16 --bytes 1M --topology {name}"
        assert ok_json(command, tmp_path)["ranks"] == 8
        assert topology["summary"].startswith("generated")


def test_every_input_can_be_reduced(tmp_path):
    for entry in listed("inputs", tmp_path):
        if entry["name"].startswith("FILE"):
            continue
        for spec in [entry["name"], f"{entry['name']}:{entry['parameters_and_defaults']}"]:
            spec = spec.replace(", ", ",")
            command = (f"reduce --algorithm ring --codec fp16 --ranks 2 --elements 100 --synthetic {spec}")
            assert ok_json(command, tmp_path)["input"] == spec
