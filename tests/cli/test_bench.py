"""arlab bench, on emulated GPUs: times mean nothing there, everything else does."""

import csv
import math
import os
import re
from pathlib import Path

import pytest
from program import error_line, ok, ok_json, parse_csv, refused, run, without_privileges

FAST = "bench --platform host --ranks 2 --calls 2 --replays 3"


def test_a_row_per_size_algorithm_and_codec(tmp_path):
    report = ok_json(FAST + " --bytes 4K,10000 --codec bf16,qr-q4", tmp_path)
    assert report["schema"] == "arlab.bench/1"
    assert report["platform"] == "host" and report["ranks"] == 2
    rows = [(row["bytes"], row["algorithm"], row["codec"]) for row in report["times"]]
    assert rows == [
        (size, algorithm, codec)
        for size in (4096, 10000)
        for algorithm in ("one_shot", "two_shot")
        for codec in ("bf16", "qr-q4")
    ]
    for row in report["times"]:
        assert row["library"] == "arlab"
        assert 0 < row["fastest_us"] <= row["time_us"]
        assert row["host_us"] > 0
        assert row["algbw_gb_per_s"] == pytest.approx(row["bytes"] * 1e-3 / row["time_us"])


def test_sums_in_fp32(tmp_path):
    few = "--bytes 4K --codec qr-q4 --algorithm two_shot"
    assert ok_json(f"bench --platform host --ranks 3 --calls 1 --replays 1 {few} --sum fp32", tmp_path)["sum"] == "fp32"
    checked = ok(f"bench --platform host --ranks 3 --calls 1 --replays 1 {few} --accumulate fp32 --format nccl --check", tmp_path)
    assert "#wrong" in checked and " 0\n" in checked
    refused(FAST + f" {few} --sum fp32 --out times.csv", tmp_path, "files of times hold native sums only")


def test_the_table_says_that_time_is_emulated(tmp_path):
    assert "emulated time: not a measurement" in ok(FAST + " --bytes 4K --codec bf16", tmp_path)


def test_results_file(tmp_path):
    ok(FAST + " --bytes 4K --codec qr-q4 --algorithm ring --machine mine --out times.csv", tmp_path)
    with open(tmp_path / "times.csv") as file:
        lines = file.read().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert any("emulated GPU" in line for line in comments)
    assert any("arlab bench" in line and "--out times.csv" in line for line in comments)
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert len(rows) == 1
    assert float(rows[0].pop("time_us")) > 0
    assert rows[0] == {
        "platform": "host", "machine": "mine", "ranks": "2", "algorithm": "ring", "codec": "qr-q4",
        "dtype": "bf16", "bytes": "4096", "library": "arlab",
    }  # fmt: skip


@pytest.mark.parametrize("between", ["--between gemm", "--cold", "--between gemm --cold"])
def test_what_a_call_adds_to_other_work(between, tmp_path):
    report = ok_json(f"{FAST} --bytes 4K --codec bf16 --algorithm one_shot {between}", tmp_path)
    assert report.get("between") == ("gemm" if "gemm" in between else None)
    assert report.get("cold", False) == ("cold" in between)
    (row,) = report["times"]
    assert math.isfinite(row["time_us"])  # emulated, a difference may be anything


@pytest.mark.parametrize("protocol, kernel", [("flags", "one_shot"), ("sentinels", "one_shot_lamport")])
def test_the_protocol_can_be_chosen(protocol, kernel, tmp_path):
    command = f"bench --platform host --explain --ranks 2 --algorithm one_shot --codec bf16 --bytes 4K --protocol {protocol}"
    (choice,) = ok_json(command, tmp_path)["choices"]
    assert choice["kernel"].startswith(kernel)


def test_which_kernel_is_chosen_and_why(tmp_path):
    command = "bench --platform host --explain --ranks 4 --algorithm one_shot,two_shot,tree --codec qr-q4,mxfp4,nvfp4,int4-g24,had-int4-g512,int8-gtensor-static0.02:-2.5"
    report = ok_json(f"{command} --bytes 16K,64M", tmp_path)
    assert report["schema"] == "arlab.bench.choices/1"
    chosen = {(row["algorithm"], row["codec"], row["bytes"]): row["kernel"] for row in report["choices"]}
    assert len(chosen) == 36
    assert chosen["two_shot", "qr-q4", 64 << 20].startswith("two_shot_sentinel: ")
    assert chosen["one_shot", "qr-q4", 16 << 10].startswith("one_shot_lamport: ")
    assert chosen["one_shot", "mxfp4", 64 << 20].startswith("one_shot: ")
    assert chosen["two_shot", "nvfp4", 16 << 10].startswith("two_shot_lamport: ")
    assert chosen["two_shot", "nvfp4", 64 << 20].startswith("two_shot_sentinel: ")
    assert chosen["one_shot", "nvfp4", 16 << 10].startswith("program: its kernel measures what it encodes; ")
    of_24 = chosen["two_shot", "int4-g24", 16 << 10]
    assert of_24.startswith("program in two passes: ")
    assert "in groups of 24 elements, which do not divide a tile of 2048; " in of_24
    of_given = chosen["two_shot", "int8-gtensor-static0.02:-2.5", 64 << 20]
    assert of_given.startswith("two_shot_sentinel: ")
    assert of_given.endswith(", then a NaN is spread over its block of 4096 elements")
    of_512 = chosen["two_shot", "had-int4-g512", 16 << 10]
    assert "in groups of 512 elements, which are more than the 256 of a wave; " in of_512
    assert chosen["tree", "qr-q4", 16 << 10].startswith("program: ")
    measured = Path(__file__).parents[2] / "experiments" / "measured"
    for kernel in chosen.values():
        for file in re.findall(r"\((\S+\.csv)\)", kernel):
            assert (measured / file).is_file(), file


def test_a_quoted_machine_can_be_read_back(tmp_path):
    ok(FAST + " --bytes 4K --codec bf16 --algorithm one_shot --machine 'h200, \"lab\" 2' --out times.csv", tmp_path)
    with open(tmp_path / "times.csv") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert [row["machine"] for row in rows] == ['h200, "lab" 2']
    # As of a GPU, so that validate asks which machine it is.
    text = (tmp_path / "times.csv").read_text().replace("\nhost,", "\ncuda,")
    (tmp_path / "times.csv").write_text(text)
    refused("validate --against measured --file times.csv", tmp_path, "line 6", """no machine 'h200, "lab" 2'""")
    (tmp_path / "times.csv").write_text(text.replace('h200, ""lab"" 2', "h200").replace(",2,one_shot", ",8,one_shot"))
    assert ok_json("validate --against measured --skip-hold-outs --file times.csv", tmp_path)["cells"] == 1


def test_a_command_line_stays_one_comment(tmp_path):
    ok(FAST + " --bytes 4K --codec bf16 --algorithm one_shot --out 'a\nb.csv'", tmp_path)
    lines = (tmp_path / "a\nb.csv").read_text().splitlines()
    assert sum(line.startswith("#") for line in lines) == len(lines) - 2
    assert any(line.startswith("# command: ") and line.endswith("--out $'a\\x0ab.csv'") for line in lines)


def test_times_are_not_lost_with_the_file(tmp_path):
    """Where it cannot be written in the end, the old one stays and the table has been printed."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/times.csv").write_text("old")
    os.chmod(tmp_path / "out", 0o555)
    try:
        command = FAST + " --bytes 4K --codec bf16 --algorithm one_shot --out out/times.csv --format csv"
        result = run(command, tmp_path, preexec_fn=without_privileges)
    finally:
        os.chmod(tmp_path / "out", 0o755)
    assert result.code == 2 and "out/times.csv: Permission denied" in error_line(result.stderr)
    assert len(parse_csv(result.stdout)) == 1
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("times.csv", "old")]


def test_outputs_are_regular_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for out in ["pipe", "folder", "/dev/full"]:
        refused(FAST + f" --bytes 4K --out {out}", tmp_path, out, "not a regular file")


@pytest.mark.parametrize(
    "command, message",
    [
        ("bench", "--platform is required"),
        (FAST + " --dtype fp8", "fp8"),
        (FAST + " --bytes 3", "--bytes 3: 3 bytes are not whole elements of 2 bytes"),
        (FAST + " --bytes 0", "allowed is a positive integer"),
        (FAST + " --vendor", "emulated GPUs have no vendor's library"),
        (FAST + " --blocks 2000", "allowed is an integer from 1 to 1024"),
        (FAST + " --slot-bytes 24 --bytes 4K", "platform host: slots of 24 bytes: allowed are multiples of 16 from 16384 to 2^40"),
        (FAST + " --out nowhere/times.csv", "nowhere"),
        (FAST + " --machine 'two\nlines' --out times.csv", "--machine 'two\\x0alines': allowed is a name of one line"),
        (FAST + " --machine nosuch", "--machine requires --out"),
        (FAST + " --explain", "--calls excludes --explain"),
        ("bench --platform host --explain --format nccl", "--explain: allowed is --format table, json or csv"),
        (FAST + " --algorithm all_to_all --accumulate fp32", "all_to_all sums nothing"),
        ("bench --platform host --ranks 1", "allowed is an integer from 2 to 8"),
        (FAST + " --protocol fences", "--protocol 'fences': allowed are flags and sentinels"),
        (FAST + " --between gemv", "--between 'gemv': allowed is gemm"),
        (FAST + " --cold --out times.csv", "--out: files of times hold calls one after the other only"),
    ],
)
def test_bad_input(tmp_path, command, message):
    refused(command, tmp_path, message)
    assert not list(tmp_path.glob("*.csv"))


TAIL = "--tail hidden=2048,residual=add,norm=rms"


def test_tails_in_the_kernel_and_behind_it(tmp_path):
    few = FAST + f" --bytes 8K --codec bf16 {TAIL}"
    assert ok_json(few, tmp_path)["tail"] == "hidden=2048,residual=add,norm=rms"
    explain = few.replace("--calls 2 --replays 3", "--explain")
    assert "with the tail in it" in ok(explain, tmp_path)
    assert "then tail_rows" in ok(explain + " --separate-tail", tmp_path)
    refused(FAST + f" --bytes 6K {TAIL}", tmp_path, "3072 elements are not whole rows of 2048")
    refused(FAST + " --bytes 6K --tail norm=rms", tmp_path, "hidden= is needed")
    refused(FAST + " --separate-tail", tmp_path, "--separate-tail: allowed only with --tail")
    refused(few + " --out times.csv", tmp_path, "--tail: times with tails are not written to files")
