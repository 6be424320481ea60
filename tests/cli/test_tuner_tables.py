"""select --table-format: tables for NCCL, RCCL, torchcomms, vLLM and SGLang, each read back by a parser of our own."""

import json
import re

import pytest
from program import ok_json, refused, run

SELECT = "select --no-budget --synthetic gaussian"
KERNELS = "--algorithms one_shot,two_shot --codecs qr-q4,qr-q3,fp16,int4-g32"
COLUMNS = "colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff".split(",")
ENDING = {"nccl": "csv", "rccl": "conf", "torchcomms-csv": "csv", "torchcomms-json": "json"}


def written(form, topology, folder, more=KERNELS, unsaid=None):
    name = f"table.{ENDING.get(form, 'env')}"
    done = run(f"{SELECT} --topology {topology} {more} --table {name} --table-format {form} --format json", folder)
    assert done.code == 0, done
    listed = json.loads(done.stdout)["table_leaves_out"]
    said = [line for line in done.stderr.splitlines() if ": not said: " in line]
    assert said == [f"{name}: not said: {each}" for each in listed]
    if unsaid is not None:
        unsaid += listed
    text = (folder / name).read_text()
    assert all(len(line) < 250 for line in text.splitlines()), "NCCL's plug-in reads no longer ones"
    if form != "torchcomms-json":
        comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("#"))
        assert all("not said here: " + each in comment for each in listed)
    return text


def tuner_rows(text, columns):
    """As the plug-in reads it: no line but comments and rows of names that it knows."""
    rows = []
    for line in filter(None, text.splitlines()):
        if line.startswith("#"):
            continue
        cells = line.split(",")
        assert len(cells) == len(columns) and all(cells)
        row = dict(zip(columns, cells))
        assert row["colltype"] in ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
        assert row["algorithm"] in ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
        assert row["protocol"] in ("ll", "ll128", "simple")
        rows.append({**row, "minbytes": int(row["minbytes"]), "maxbytes": int(row["maxbytes"])})
    assert rows[0]["minbytes"] == 0 and rows[-1]["maxbytes"] == 2**64 - 1
    assert all(b["minbytes"] == a["maxbytes"] + 1 for a, b in zip(rows, rows[1:])), "no size is left out, none is twice"
    return rows


def of_size(rows, size):
    (row,) = [row for row in rows if row["minbytes"] <= size <= row["maxbytes"]]
    return row


def test_nccls_table_has_the_librarys_choices(tmp_path):
    unsaid = []
    rows = tuner_rows(written("nccl", "h100-8", tmp_path, unsaid=unsaid), COLUMNS)
    for size in (4096, 1 << 20, 8 << 20, 64 << 20):
        ask = f"simulate --topology h100-8 --library --codec fp16 --bytes {size} --algorithm"
        simulated = {algorithm: ok_json(f"{ask} {algorithm}", tmp_path) for algorithm in ("ring", "nvls")}
        best = min(simulated, key=lambda each: simulated[each]["latency_us"])
        row = of_size(rows, size)
        assert row["algorithm"] == best
        of = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}[row["protocol"]]
        said = json.dumps(simulated[best])
        assert best == "nvls" or f"ring, {of}" in said
        assert [row[name] for name in COLUMNS[5:]] == ["-1", "1", "8", "-1", "-1"]
    assert len({row["protocol"] for row in rows}) == 3
    assert any("two_shot qr-q4 would be faster" in each for each in unsaid)


def test_servers_and_other_collectives(tmp_path):
    rows = tuner_rows(written("nccl", "p5-2x8", tmp_path, "--algorithms ring --codecs fp16"), COLUMNS)
    assert {(row["nNodes"], row["nRanks"]) for row in rows} == {("2", "16")}
    assert {row["algorithm"] for row in rows} <= {"tree", "ring", "nvls_tree"}
    gathered = tuner_rows(written("nccl", "h100-8", tmp_path, "--collective all_gather --codecs fp16"), COLUMNS)
    assert {(row["colltype"], row["algorithm"]) for row in gathered} == {("allgather", "ring")}
    rack = tuner_rows(written("nccl", "gb200-72", tmp_path, "--ranks 16 --algorithms two_shot --codecs fp16"), COLUMNS)
    assert {row["nNodes"] for row in rack} == {"-1"}


def test_rccls_table_has_two_more_columns(tmp_path):
    unsaid = []
    rows = tuner_rows(written("rccl", "mi300x-8", tmp_path, unsaid=unsaid), [*COLUMNS, "partitionMode", "localGroup"])
    assert {(row["algorithm"], row["partitionMode"], row["localGroup"]) for row in rows} == {("ring", "any", "-1")}
    assert any("program" in each for each in unsaid)


def in_interval(text, value):
    """Int64Range of torchcomms."""
    if text == "*":
        return True
    low, high = re.fullmatch(r"[\[(](\d*),(\d*)[\])]", text).groups() if "," in text else (text, text)
    above = not low or value > int(low) or (text[0] in "[0123456789" and value == int(low))
    below = not high or value < int(high) or (text[-1] in "]0123456789" and value == int(high))
    return above and below


def test_torchcomms_reads_the_same_from_both(tmp_path):
    text = written("torchcomms-csv", "h100-8", tmp_path)
    rules = [re.split(r",(?![^\[(]*[\])])", line) for line in text.splitlines() if line and line[0] != "#"]
    assert all(len(rule) == 7 for rule in rules)
    parsed = json.loads(written("torchcomms-json", "h100-8", tmp_path))["rules"]
    order = ("collective", "bytesPerRank", "algorithm", "protocol", "channels", "nNodes", "nLocalRanks")
    assert [[{"channels": "-1", **rule["filter"], **rule["config"]}[key] for key in order] for rule in parsed] == rules
    rows = tuner_rows(written("nccl", "h100-8", tmp_path), COLUMNS)
    edges = [edge for row in rows[1:] for edge in (row["minbytes"] // 8 * 8 - 8, row["minbytes"] // 8 * 8 + 8)]
    for size in (8, 64 << 20, *edges):
        values = ((1, size // 8), (5, 1), (6, 8))
        first = next(rule for rule in rules if all(in_interval(rule[at], value) for at, value in values))
        assert first[2:4] == [of_size(rows, size)["algorithm"], of_size(rows, size)["protocol"]]


def variables(text, prefix):
    found = dict(line.split("=") for line in text.splitlines() if line and line[0] != "#")
    assert all(name.startswith(prefix) for name in found)
    return {name.removeprefix(prefix): value for name, value in found.items()}


def test_quickreduces_variables_say_where_it_is_the_fastest(tmp_path):
    unsaid = []
    of_vllm = variables(written("vllm", "mi300x-4", tmp_path, unsaid=unsaid), "VLLM_ROCM_QUICK_REDUCE_")
    assert of_vllm["QUANTIZATION"] == "INT4", "INT3 is for two ranks"
    report = ok_json(f"{SELECT} --topology mi300x-4 --algorithms one_shot,two_shot --codecs qr-q4,fp16", tmp_path)
    ranges = report["ranges"]
    quantized = [each for each in ranges if each["codec"] == "qr-q4"]
    first = min(each["from_bytes"] for each in quantized)
    assert int(of_vllm["QUANTIZATION_MIN_SIZE_KB"]) == -(-first // 1024)
    plain = [each["from_bytes"] for each in ranges if (each["algorithm"], each["codec"]) == ("two_shot", "fp16")]
    assert int(of_vllm["MIN_SIZE_BYTES_MB"]) == -(-min(plain) // 2**20)
    assert any("int4-g32 would be faster" in each for each in unsaid)
    assert any("one_shot fp16" in each for each in unsaid)
    of_sglang = variables(written("sglang", "mi300x-4", tmp_path, unsaid=unsaid), "ROCM_QUICK_REDUCE_")
    assert of_sglang == {"QUANTIZATION": "INT4"} and any("SGLang has limits" in each for each in unsaid)
    of_two = variables(
        written("vllm", "mi300x-2", tmp_path, "--algorithms two_shot --codecs qr-q3,fp16"), "VLLM_ROCM_QUICK_REDUCE_"
    )
    assert of_two["QUANTIZATION"] == "INT3"
    none = variables(
        written("vllm", "mi300x-4", tmp_path, "--algorithms one_shot --codecs fp16"), "VLLM_ROCM_QUICK_REDUCE_"
    )
    assert none == {"QUANTIZATION": "NONE"}
    bf16 = "--dtype bf16 --algorithms two_shot --codecs bf16"
    assert variables(written("vllm", "mi300x-8", tmp_path, bf16), "VLLM_ROCM_QUICK_REDUCE_")["CAST_BF16_TO_FP16"] == "0"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--table t.csv", [".toml"]),
        ("--table t.toml --table-format nccl", [".csv"]),
        ("--table-format nccl", ["needs --table"]),
        ("--table t.csv --table-format mccl", ["mccl", "'nccl' or 'rccl'"]),
        ("--table t.csv --table-format nccl --collective all_to_all", ["nccl", "all-to-all"]),
        ("--table t.env --table-format vllm --collective all_gather", ["all-reduces only"]),
    ],
)
def test_what_a_format_has_not_gets_one_line(options, words, tmp_path):
    refused(f"{SELECT} --topology h100-8 --codecs fp16 {options}", tmp_path, *words)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_library_has_no_table(tmp_path):
    refused(f"{SELECT} --topology full:4 --codecs fp16 --table t.csv --table-format nccl", tmp_path, "[library]")


@pytest.mark.parametrize(
    ("form", "machine", "words"),
    [("nccl", "mi300x-8", "is RCCL"), ("rccl", "h200-8", "no GPU of AMD"), ("vllm", "h200-8", "no GPU of AMD")],
)
def test_a_table_of_another_makers_library_says_so(form, machine, words, tmp_path):
    unsaid = []
    written(form, machine, tmp_path, unsaid=unsaid)
    assert any(words in each for each in unsaid)
    assert not any("to 0 bytes" in each for each in unsaid)
