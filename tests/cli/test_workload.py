"""arlab simulate: groups with a place, several collectives at once, runs that differ."""

import pytest
from program import ok_csv, ok_json, refused

WORKLOAD = """
name = "layer"
summary = "a test"
[[collectives]]
name = "tp"
ranks = [0, 2, 4, 6]
algorithm = "two_shot"
codec = "qr-q4"
bytes = "4MiB"
[[collectives]]
name = "ep"
ranks = [0, 1, 2, 3, 4, 5, 6, 7]
algorithm = "all_to_all"
codec = "fp16"
bytes = "4MiB"
start_us = 5.0
"""


def test_placement_of_all_ranks_is_none(tmp_path):
    command = "simulate --topology h800-8 --algorithm ring --codec fp16 --bytes 1M"
    plain = ok_json(command, tmp_path)
    placed = ok_json(f"{command} --placement 7,6,5,4,3,2,1,0", tmp_path)
    assert placed["latency_us"] == plain["latency_us"]
    assert ok_json(f"{command} --placement 0-3,4,5-7", tmp_path)["latency_us"] == plain["latency_us"]
    four = ok_json(f"{command} --placement 0,2,4,6", tmp_path)
    assert ok_json(f"{command} --placement 4-6,0", tmp_path)["ranks"] == 4
    assert four["ranks"] == 4 and four["latency_us"] == ok_json(f"{command} --ranks 4", tmp_path)["latency_us"]


def test_placement_under_nccl(tmp_path):
    for algorithm in ("--algorithm ring", "--algorithm all_to_all", "--algorithm all_gather", ""):
        command = f"simulate --topology h200-8 {algorithm} --codec bf16 --dtype bf16 --bytes 1M --library"
        placed, first = (ok_json(f"{command} {ranks}", tmp_path) for ranks in ("--placement 1,2,4,7", "--ranks 4"))
        assert placed["latency_us"] == first["latency_us"] and placed["algorithm"] == first["algorithm"]
        assert placed["wire_bytes"] == first["wire_bytes"]
    nvls = "simulate --topology h200-8 --algorithm nvls --codec bf16 --dtype bf16 --bytes 1M --placement 1,2,4,7"
    refused(nvls, tmp_path, "nvls", "h200-8")
    refused(f"{command} --placement 1,2 --multicast", tmp_path, "--multicast")


def test_workload_says_what_each_loses_to_the_others(tmp_path):
    (tmp_path / "w.toml").write_text(WORKLOAD)
    report = ok_json("simulate --topology h800-8 --workload w.toml", tmp_path)
    tp, ep = report["collectives"]
    assert (tp["name"], ep["name"]) == ("tp", "ep") and tp["placement"] == "0,2,4,6"
    alone = ok_json(
        "simulate --topology h800-8 --algorithm two_shot --codec qr-q4 --bytes 4M --placement 0,2,4,6", tmp_path
    )
    assert tp["alone_us"] == alone["latency_us"]
    for row in (tp, ep):
        assert row["slowdown"] == pytest.approx(row["latency_us"] / row["alone_us"]) and row["slowdown"] > 1
    assert report["end_us"] == pytest.approx(max(tp["latency_us"], 5 + ep["latency_us"]))
    assert len(ok_csv("simulate --topology h800-8 --workload w.toml", tmp_path)) == 2


def test_what_waits_begins_when_that_has_ended(tmp_path):
    compute = '[[compute]]\nname = "{}"\nranks = [0, 1, 2, 3, 4, 5, 6, 7]\n{}\n'
    chain = WORKLOAD.replace("start_us = 5.0", 'after = ["tp", "product"]') + compute.format("product", "us = 10") + compute.format(
        "next", 'flop = 1e12\nafter = ["ep"]')  # fmt: skip
    (tmp_path / "w.toml").write_text(chain)
    report = ok_json("simulate --topology h800-8 --workload w.toml", tmp_path)
    tp, ep, product, following = report["collectives"]
    assert (product["algorithm"], product["codec"], product["end_us"]) == ("computation", None, 10)
    assert tp["start_us"] == 0 and tp["slowdown"] == ep["slowdown"] == 1
    assert ep["start_us"] == max(tp["end_us"], 10) and following["start_us"] == ep["end_us"]
    assert report["end_us"] == following["end_us"] == pytest.approx(following["start_us"] + following["latency_us"])
    late = ok_json("simulate --topology h800-8 --workload w.toml --runs 5 --jitter-launch 3", tmp_path)
    assert late["collectives"][1]["p50_us"] > ep["latency_us"] and late["collectives"][2]["max_us"] == 10


def test_runs_have_quantiles_and_follow_from_the_seed(tmp_path):
    command = "simulate --topology h800-8 --algorithm two_shot --codec qr-q4 --bytes 1M --jitter-launch 3 --runs 200"
    report = ok_json(command, tmp_path)
    assert report["runs"] == 200
    assert report["min_us"] < report["p50_us"] < report["p99_us"] <= report["max_us"]
    assert ok_json(command, tmp_path) == report
    assert ok_json(f"{command} --seed 1000", tmp_path)["p50_us"] != report["p50_us"]
    still = command.partition(" --jitter")[0]
    for options in ("--runs 2 --trace t.json", "--runs 2 --jitter-launch 0", "--seed 3"):
        refused(f"{still} {options}", tmp_path, "nothing varies from run to run on topology 'h800-8'")


def test_skew_makes_the_busiest_receiver_later(tmp_path):
    command = "simulate --topology h800-8 --algorithm all_to_all --codec fp16 --bytes 8M"
    even = ok_json(command, tmp_path)["latency_us"]
    assert ok_json(f"{command} --skew 0", tmp_path)["latency_us"] == even
    assert ok_json(f"{command} --skew 1", tmp_path)["latency_us"] > 1.5 * even


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--placement 0,8", "--placement is '0,8': allowed are 0 to 7, separated by commas, and FIRST-LAST"),
        ("--placement 0,0", "a rank of topology 'h800-8' is named twice"),
        ("--placement 0-3,2", "a rank of topology 'h800-8' is named twice"),
        ("--placement 0,x", "allowed are 0 to 7"),
        ("--placement 0,", "allowed are 0 to 7"),
        ("--placement 3-1", "'3-1' ends before it begins"),
        ("--placement 1-", "allowed are 0 to 7"),
        ("--placement 0-4294967296", "allowed are 0 to 7"),
        ("--runs 10", "nothing varies from run to run on topology 'h800-8'"),
        ("--jitter-launch -1", "jitter.launch_us -1 is out of range"),
        ("--skew 1", "--skew: allowed only with --algorithm all_to_all"),
        ("--workload w.toml", "--workload says what runs"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, options, says):
    refused(f"simulate --topology h800-8 --algorithm two_shot --codec fp16 --bytes 1M {options}", tmp_path, says)


def test_without_a_codec(tmp_path):
    refused("simulate --topology h800-8 --algorithm two_shot --bytes 1M", tmp_path, "--codec")
