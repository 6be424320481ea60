"""arlab schedule: schedules as JSON, their volume, and the verdict on a user's own."""

import json

import jsonschema
import pytest
from program import (
    REPOSITORY,
    error_line,
    ok,
    ok_csv,
    ok_json,
    parse_json,
    parse_table,
    refused,
    run,
)

SCHEMA = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
KEYS = [*SCHEMA["required"], "elements", "alignment"]  # a schedule for one size
def schedule(options, folder):
    return parse_json(ok(f"schedule {options}", folder))  # JSON is the default format


def test_volume_of_the_largest_tensors(tmp_path):
    """Either the right volume or a refusal; never a sum that has wrapped around."""
    for elements in ["1G", "1048576G", "1073741824G", "17179869183G"]:
        result = run(f"schedule --algorithm ring --ranks 8 --elements {elements}", tmp_path)
        if result.code == 0:
            assert parse_json(result.stdout)["volume"]["total"] == pytest.approx(14), elements
        else:
            assert "elements per rank is out of range" in error_line(result.stderr)


def test_alignment(tmp_path):
    for option, alignment in [
        ("--alignment 64", 64),
        ("--alignment 1K", 1024),
        ("--codec qr-q4", 2048),
    ]:
        made = schedule(f"--algorithm two_shot --ranks 4 --elements 10000 {option}", tmp_path)
        assert made["alignment"] == alignment
        cuts = {0, 10_000} | {chunk[end] for chunk in made["chunks"] for end in ("begin", "end")}
        assert all(at % alignment == 0 for at in cuts - {10_000})


def test_formats_agree(tmp_path):
    command = "schedule --algorithm two_shot --ranks 3 --elements 100"
    made = ok_json(command, tmp_path)
    rows = ok_csv(command, tmp_path)
    assert len(rows) == len(made["ops"])
    for index, (row, op) in enumerate(zip(rows, made["ops"])):
        chunk = made["chunks"][op["chunk"]]
        expected = {"value": str(index), "to": "", **chunk, **op, "from": row["from"]}
        assert row == {name: str(expected[name]) for name in row}
    figures, columns, cells = parse_table(ok(command + " --format table", tmp_path))
    assert figures["volume_total"].split()[0] == "4" and figures["correct"].startswith("yes ")
    assert columns == list(rows[0])
    assert [row[1:4] for row in cells] == [[row["step"], row["op"], row["rank"]] for row in rows]


# ---------------------------------------------------------------- somebody's own


def two_shot(folder, elements=64):
    made = schedule(f"--algorithm two_shot --ranks 4 --elements {elements}", folder)
    return {key: made[key] for key in KEYS}


def test_a_broken_schedule_fails_with_the_violation_and_runs_nowhere(tmp_path):
    """tests/collectives/check_mutants_test.cc has every way to break one."""
    made = two_shot(tmp_path)
    made["outputs"].pop()
    (tmp_path / "own.json").write_text(json.dumps(made))
    words = ["own.json", "rank 3: element 48 is never output"]
    for format_ in ["json", "csv", "table"]:
        refused(f"schedule --schedule own.json --format {format_}", tmp_path, *words, code=1)
    data = "--codec fp16 --ranks 4 --synthetic gaussian --elements 64 --out out.npy"
    for command in [f"reduce {data}", "simulate --topology full:4 --codec fp16"]:
        refused(f"{command} --schedule own.json", tmp_path, *words)


@pytest.mark.parametrize(
    "option", ["--own foo", "--own exact", "--forward reencoded", "--combine none", "--micro-chunks 2", "--ranks 4",
               "--elements 64", "--alignment 1", "--codec fp16", "--algorithm ring"],
)  # fmt: skip
def test_a_schedule_file_is_fixed(tmp_path, option):
    (tmp_path / "own.json").write_text(json.dumps(two_shot(tmp_path)))
    refused(f"schedule --schedule own.json {option}", tmp_path, option.split()[0])


# ---------------------------------------------------------------- for tensors of any size


@pytest.fixture
def any_size(tmp_path):
    """two_shot of four ranks as somebody's own algorithm, own.json."""
    text = ok("schedule --algorithm two_shot --ranks 4 --elements 4 --fractions", tmp_path)
    made = parse_json(text)
    VALIDATOR.validate(made)
    assert made["chunks"][1] == {"begin": "1/4", "end": "1/2"}
    (tmp_path / "own.json").write_text(text.replace("two_shot", "my own"))
    return tmp_path


def test_a_schedule_of_any_size_has_the_size_that_is_asked_for(any_size):
    for size in ("--elements 4000", "--elements 16K --codec qr-q4", "--elements 640 --alignment 32"):
        own = schedule(f"--schedule own.json {size}", any_size)
        assert {**own, "algorithm": "two_shot"} == schedule(f"--algorithm two_shot --ranks 4 {size}", any_size)
        assert schedule(f"--algorithm own.json --ranks 4 {size}", any_size) == own
    refused("schedule --schedule own.json", any_size, "any size", "--elements")
    refused("schedule --schedule own.json --elements 8 --ranks 4", any_size, "--ranks")
    refused("schedule --algorithm own.json --elements 8 --ranks 3", any_size, "own.json", "for 4 ranks, not 3")
    refused("schedule --algorithm two_shot --elements 8 --ranks 3 --fractions --format csv", any_size, "--fractions")
    refused("schedule --algorithm none.json --elements 8 --ranks 3", any_size, "none.json")


def test_a_schedule_of_any_size_is_an_algorithm_everywhere(any_size):
    def same(command, *, but=()):
        own, built_in = (ok_json(command.format(name), any_size) for name in ("own.json", "two_shot"))
        assert own.pop("algorithm") == "my own" and built_in.pop("algorithm") == "two_shot"
        for key in but:
            del own[key], built_in[key]
        assert own == built_in

    # A file has no known symmetry: all ranks are simulated, and one is named.
    same("simulate --algorithm {} --topology full:4 --codec qr-q4 --bytes 1M", but=["simulated_ranks", "bottleneck"])
    same("reduce --algorithm {} --codec qr-q4 --ranks 4 --synthetic gaussian --elements 20000")
    selected = ok_json("select --no-budget --algorithms own.json,two_shot --codecs qr-q4 --topology full:4 --bytes 1M", any_size)
    assert "own.json" in json.dumps(selected)
    conformed = ok_json("conform --platform host --algorithm own.json --ranks 4 --codec qr-q4 --elements 5003", any_size)
    assert "own.json" in json.dumps(conformed)
    refused("simulate --algorithm own.json --topology full:8 --codec qr-q4 --bytes 1M", any_size, "for 4 ranks, not 8")


def test_a_schedule_of_any_size_is_swept_by_studies(any_size):
    study = """
title = "own"
ranks = [{}]
algorithms = ["own.json", "two_shot"]
codecs = ["qr-q4"]
input = [{{ name = "gaussian", synthetic = "gaussian", elements = "20K" }}]
simulate = {{ topology = "full:4", bytes = "1M" }}
"""
    (any_size / "own.toml").write_text(study.format(4))
    assert run("study own.toml --out results --no-plots", any_size).code == 0
    lines = [line for line in (any_size / "results/results.csv").read_text().splitlines() if "gaussian" in line]
    own, built_in = (line.split(",")[:-1] for line in lines if not line.startswith("#"))  # without the check
    assert own[4] == "own.json" and [*own[:4], "two_shot", *own[5:]] == built_in
    # Another schedule is another study.
    (any_size / "own.json").write_text((any_size / "own.json").read_text().replace("my own", "mine"))
    assert run("study own.toml --out results --no-plots --resume", any_size).code == 2
    (any_size / "two.toml").write_text(study.format("2, 4"))
    refused("study two.toml --out others --no-plots", any_size, "own.json", "for 4 ranks, not 2")
    assert not (any_size / "others/results.csv").exists()


# ---------------------------------------------------------------- algorithms of MSCCL


def test_an_algorithm_of_msccl_is_one_everywhere(tmp_path):
    for name in ("ring", "allpairs"):
        (tmp_path / f"{name}.xml").write_text((REPOSITORY / f"tests/collectives/msccl/{name}.xml").read_text())
    made = schedule("--schedule ring.xml --elements 64K", tmp_path)
    assert made["check"]["correct"] and made["check"]["ranks_identical"]
    assert made["volume"]["total"] == schedule("--algorithm ring --ranks 4 --elements 64K", tmp_path)["volume"]["total"]
    text = ok("schedule --schedule ring.xml --elements 64K --fractions", tmp_path)
    VALIDATOR.validate(parse_json(text))
    (tmp_path / "ring.json").write_text(text)

    command = "simulate --algorithm {} --topology {} --codec qr-q4 --bytes 1M"
    for topology in ("mi300x-4", "h200-4"):
        ours, xml, json_ = (ok_json(command.format(name, topology), tmp_path)["latency_us"] for name in ("ring", "ring.xml", "ring.json"))
        assert xml == json_
        # On NVIDIA's GPUs ring has a kernel of its own; what stands in a file is run as a program, whose stages take longer.
        assert ours == pytest.approx(xml, rel=0.02) if topology == "mi300x-4" else ours < xml
    command = "reduce --algorithm {} --codec int4-g32 --ranks 4 --synthetic gaussian --elements 20000"
    xml, ours = (ok_json(command.format(name), tmp_path) for name in ("ring.xml", "ring"))
    assert (xml["sqnr_db"], xml["wire_bytes"]) == (ours["sqnr_db"], ours["wire_bytes"]) and xml["ranks_identical"]
    conformed = ok_json("conform --platform host --algorithm allpairs.xml --ranks 4 --codec qr-q4 --elements 5003", tmp_path)
    assert "allpairs.xml" in json.dumps(conformed)
    refused("simulate --algorithm ring.xml --topology full:8 --codec qr-q4 --bytes 1M", tmp_path, "for 4 ranks, not 8")
    wrong = (tmp_path / "ring.xml").read_text().replace('type="rrcs"', 'type="rcs"', 1)
    (tmp_path / "wrong.xml").write_text(wrong)
    refused("simulate --algorithm wrong.xml --topology full:4 --codec qr-q4 --bytes 1M", tmp_path, "not an all-reduce", "rank")
    racing = (tmp_path / "allpairs.xml").read_text().replace('depid="1" deps="1"', 'depid="-1" deps="-1"', 1)
    (tmp_path / "racing.xml").write_text(racing)
    for command in ("schedule --schedule racing.xml --elements 1K", "simulate --algorithm racing.xml --topology full:4 --bytes 1M --codec qr-q4"):
        refused(command, tmp_path, "racing.xml", "gpu 0, tb 1, step 1 writes scratch 2 of gpu 0 and gpu 0, tb 0, step 3 reads it; nothing orders them")


def test_plans_of_mscclpp_are_schedules_and_other_traces_are_named(tmp_path):
    plan = json.loads((REPOSITORY / "tests/collectives/mscclpp/groups.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    made = schedule("--schedule plan.json --elements 64K", tmp_path)
    assert made["check"]["correct"] and made["check"]["ranks_identical"] and made["volume"]["total"] == 2
    reduced = ok_json("reduce --algorithm plan.json --codec fp32 --dtype fp32 --ranks 2 --synthetic gaussian --elements 20000", tmp_path)
    assert reduced["ranks_identical"]
    assert ok_json("simulate --algorithm plan.json --topology full:2 --codec fp16 --bytes 1M", tmp_path)["latency_us"] > 0
    plan["gpus"][1]["threadblocks"][0]["ops"].pop(1)  # a wait
    (tmp_path / "racing.json").write_text(json.dumps(plan))
    for command in ("schedule --schedule racing.json --elements 1K", "simulate --algorithm racing.json --topology full:2 --bytes 1M --codec fp16"):
        refused(command, tmp_path, "racing.json", "gpu 1, tb 0, op 2 reads input 1 of gpu 0", "nothing orders them")

    node = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "inputs": {"values": [[1, [2, [3]]]]}}
    (tmp_path / "trace.json").write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": [node]}))
    (tmp_path / "profile.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    (tmp_path / "trace.0.et").write_bytes(b"\x07\x0a\x050.0.4\x10\x08\x01\x12\x05start")
    (tmp_path / "trace").write_bytes((tmp_path / "trace.0.et").read_bytes())
    (tmp_path / "plan2.json").write_text(json.dumps({**plan, "version": 2}))
    named = (
        ("trace.json", "of PyTorch or Chakra"),
        ("profile.json", "a timeline of Chrome's or PyTorch's profiler"),
        ("trace.0.et", "of Chakra (.et)"),
        ("trace", "of Chakra (.et)"),
        ("plan2.json", "MSCCL++: an execution plan, version 2"),
    )
    for file, what in named:
        refused(f"schedule --schedule {file} --elements 1K", tmp_path, file, what, "not read")
    refused("simulate --workload trace.0.et --topology full:4", tmp_path, "trace.0.et", "an execution trace of Chakra")
