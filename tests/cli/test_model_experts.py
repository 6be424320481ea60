"""arlab model experts: times of TensorRT-LLM's kernels on GB200, and loads of ranks."""

import csv

import pytest
from program import REPOSITORY, ok_json, refused

NVL72 = "model experts --topology gb200-72"


def test_the_published_table_is_met(tmp_path):
    """At 16 ranks, but for the table's four outliers of few tokens. With a rank that is loaded more, it is missed."""
    with open(REPOSITORY / "experiments/published/trtllm_alltoall_gb200_ep16_us.csv") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    errors = []
    for tokens in sorted({int(row["tokens"]) for row in rows}):
        for codec in ("bf16", "nvfp4"):
            report = ok_json(f"{NVL72} --ranks 16 --tokens {tokens} --codec {codec}", tmp_path)
            skewed = ok_json(f"{NVL72} --ranks 16 --tokens {tokens} --codec {codec} --routing zipf:1.5", tmp_path)
            for row in rows:
                if int(row["tokens"]) != tokens or row["payload"].replace("bfloat16", "bf16") != codec:
                    continue
                name = f"{row['op']}_us"
                errors.append((report[name] / float(row["us"]), report[f"{name}_low"] < float(row["us"]) < report[f"{name}_high"]))
                assert tokens < 1024 or skewed[name] > 1.5 * float(row["us"])
    assert sum(abs(ratio - 1) < 0.1 for ratio, _ in errors) >= len(errors) - 8
    assert sum(inside for _, inside in errors) >= 0.85 * len(errors)


def test_copies_of_tokens(tmp_path):
    """By hand: 8 experts of a token lie on all of 8 ranks, on 8 of 64, and on 2 of 2."""
    for ranks, copies in ((8, 7), (16, 7.5), (64, 8 * 63 / 64), (2, 1)):
        report = ok_json(f"{NVL72} --ranks {ranks} --tokens 100", tmp_path)
        assert report["mean_copies"] == report["slowest_copies"] == pytest.approx(100 * copies)
    # One expert of a token, on two ranks; three of four tokens choose the first.
    (tmp_path / "counts.csv").write_text("expert,tokens\n1,25\n0,75\n")
    report = ok_json(f"{NVL72} --ranks 2 --tokens 100 --experts 2 --top-k 1 --routing counts.csv", tmp_path)
    assert report["mean_copies"] == pytest.approx(50) and report["slowest_copies"] == pytest.approx(75)
    even, skewed, steep = (ok_json(f"{NVL72} --ranks 16 --routing zipf:{s}", tmp_path) for s in (0, 0.5, 1))
    assert even["slowest_copies"] == pytest.approx(even["mean_copies"])
    assert even["slowest_copies"] < skewed["slowest_copies"] < steep["slowest_copies"]
    assert skewed["slowest_rank"] == 0


def test_a_codec_each_way(tmp_path):
    plain, dispatched, combined = (ok_json(f"{NVL72} --ranks 32 --tokens 4096 {more}", tmp_path) for more in ("", "--codec nvfp4", "--combine-codec nvfp4"))
    assert dispatched["dispatch_us"] < 0.5 * plain["dispatch_us"] and dispatched["combine_us"] == plain["combine_us"]
    assert combined["combine_us"] < 0.5 * plain["combine_us"] and combined["dispatch_us"] == plain["dispatch_us"]


def test_intervals_grow_with_ranks_that_were_not_timed(tmp_path):
    def width(ranks):
        report = ok_json(f"{NVL72} --ranks {ranks}", tmp_path)
        return report["dispatch_us_high"] / report["dispatch_us_low"]

    assert width(16) < width(32) < width(64) and width(8) == pytest.approx(width(32))


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ("--topology h200-8", ["h200-8", "tensorrt-llm", "NVIDIA GB200"]),
        ("--topology gb200-8 --ranks 16", ["16", "8", "gb200-8"]),
        ("--topology gb200-72 --ranks 12", ["12", "256"]),
        ("--topology gb200-72 --ranks 16 --routing zipf:-1", ["zipf:-1", "uniform", "zipf:s"]),
        ("--topology gb200-72 --ranks 16 --routing even", ["even", "uniform"]),
        ("--topology gb200-72 --ranks 16 --dtype fp32", ["--dtype is 'fp32': allowed are fp16, bf16"]),
        ("--topology gb200-72 --ranks 16 --library deepep", ["deepep", "tensorrt-llm"]),
        ("--topology gb200-72 --ranks 16 --top-k 9 --experts 8", ["16", "8"]),
        ("--topology gb200-72 --ranks 2 --experts 2 --routing lost.csv", ["lost.csv"]),
    ],
)
def test_bad_input(tmp_path, options, fragments):
    refused(f"model experts {options}", tmp_path, *fragments)


def test_bad_counts(tmp_path):
    for text, fragment in (("expert,tokens\n0,1\n0,2\n", "line 3"), ("expert,tokens\n0,1\n", "expert 1 is missing"), ("expert\n0\n", "'tokens'"), ("expert,tokens\n0,0\n1,0\n", "expert 0")):
        (tmp_path / "counts.csv").write_text(text)
        refused(f"{NVL72} --ranks 2 --experts 2 --top-k 1 --routing counts.csv", tmp_path, "counts.csv", fragment)


def test_what_was_not_measured_is_said_and_is_wider(tmp_path):
    def width(more):
        found = ok_json(f"{NVL72} --ranks 16 {more}", tmp_path)
        return found["extrapolated"], found["dispatch_us_high"] / found["dispatch_us"]

    measured, usual = width("")
    assert measured == [] and width("--codec nvfp4") == ([], usual)
    others = ("--codec qr-q4", "--hidden 4096", "--top-k 4", "--tokens 100000", "--routing zipf:1")
    for more, word in zip(others, ("qr-q4", "7168", "8 of 256", "65536", "uniform")):
        beyond, wider = width(more)
        assert len(beyond) == 1 and word in beyond[0] and wider > usual
    assert width("--combine-codec qr-q4")[0] == ["no combine with qr-q4 was measured"]
