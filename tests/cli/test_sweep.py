"""arlab sweep: the same times as of arlab simulate, for every point; a file and figures."""

import csv

import pandas
from program import ok, ok_csv, ok_json, refused, run


def test_every_point_is_that_of_simulate(tmp_path):
    report = ok_json(
        "sweep --topology h200-8,l40-8 --algorithm two_shot,hierarchical --codec fp16,qr-q4 --bytes 64K..256K,1M --library"
        " --inner-codec int8-g32",
        tmp_path,
    )
    assert report["schema"] == "arlab.sweep/1"
    rows = report["times"]
    libraries = [row for row in rows if row["implementation"] == "library"]
    assert len(rows) == 2 * 4 * 4 + len(libraries) and {row["bytes"] for row in rows} == {65536, 131072, 262144, 1 << 20}
    assert {row["topology"] for row in rows} == {"h200-8", "l40-8"} and libraries
    for row in rows[::5] + libraries[:1]:
        outer, inner = row["codec"], row["inner_codec"]
        command = f"simulate --topology {row['topology']} --algorithm {row['algorithm']} --codec {outer} --bytes {row['bytes']}"
        command += f" --group-size {row['group_size']}" if row["algorithm"] == "hierarchical" else ""
        command += " --library" if row["implementation"] == "library" else ""
        alone = ok_json(command + (f" --inner-codec {inner}" if inner else ""), tmp_path)
        figures = "latency_us latency_us_low latency_us_high algbw_gb_per_s busbw_gb_per_s wire_bits_per_element bottleneck"
        for figure in figures.split():
            assert row[figure] == alone[figure], (row, figure)
        assert row["latency_us_low"] < row["latency_us"] < row["latency_us_high"]
        for reasons in ("extrapolated", "assumed"):
            assert row[reasons] == "; ".join(alone.get(reasons, []))
    assert {(row["codec"], row["inner_codec"]) for row in rows if row["algorithm"] == "hierarchical"} == {
        ("fp16", "int8-g32"), ("qr-q4", "int8-g32"),
    }  # fmt: skip
    assert {row["inner_codec"] for row in rows if row["algorithm"] == "two_shot"} == {None}


def test_ranks_and_groups(tmp_path):
    rows = ok_csv(
        "sweep --topology fat_tree:16 --algorithm hierarchical --codec qr-q4 --bytes 1M --ranks 8,16 --group-size 4,8", tmp_path
    )
    assert {(row["ranks"], row["group_size"]) for row in rows} == {("8", "4"), ("8", "8"), ("16", "4"), ("16", "8")}
    rows = ok_csv("sweep --topology fat_tree:16 --algorithm ring --codec qr-q4 --bytes 1M --ranks 2-4,8", tmp_path)
    assert [(row["ranks"], row["group_size"]) for row in rows] == [("2", ""), ("3", ""), ("4", ""), ("8", "")]
    both = "sweep --topology l40s-8 --algorithm ring,hierarchical --codec qr-q4 --bytes 1M --group-size 2,4"
    rows = ok_csv(both, tmp_path)
    assert [(row["algorithm"][0], row["group_size"]) for row in rows] == [("r", ""), ("h", "2"), ("h", "4")]
    assert all("l40s-8 (not to be trusted" in row["provenance"] for row in rows)


def test_what_cannot_be_is_left_out_and_said(tmp_path):
    done = run("sweep --topology full:6 --algorithm hierarchical,ring --codec qr-q4 --bytes 1M --group-size 4 --format csv", tmp_path)
    assert done.code == 0 and "left out: " in done.stderr and "4" in done.stderr
    assert [row["algorithm"] for row in csv.DictReader(done.stdout.splitlines())] == ["ring"]
    few = "--algorithm hierarchical,ring --codec qr-q4,qr-q8 --bytes 1M,2M --group-size 4"
    done = run(f"sweep --topology full:6 {few}", tmp_path)
    (line,) = done.stderr.splitlines()  # once, whatever the number of points
    assert line.startswith("left out: ") and line.endswith(" (4 points)")
    refused("sweep --topology full:6 --algorithm hierarchical --codec qr-q4 --bytes 1M --group-size 4", tmp_path, "no point of the sweep")


def test_a_folder(tmp_path):
    ok("sweep --topology h200-8 --codec fp16,qr-q4 --bytes 64K..1M --library --out made/here --highlight qr-q4", tmp_path)
    made = {path.name for path in (tmp_path / "made" / "here").iterdir()}
    figures = ("latency_over_size", "bandwidth_over_size", "speedup_over_library", "best_method_by_size", "machines_heat_map")
    assert made == {"sweep.csv", *(f"{name}.png" for name in figures)}
    rows = pandas.read_csv(tmp_path / "made" / "here" / "sweep.csv")
    assert len(rows) == 5 * (3 * 2 + 1)
    ok("sweep --topology l40-8 --codec fp16 --bytes 64K --out made/here --no-plots", tmp_path)
    assert [path.name for path in (tmp_path / "made/here").iterdir()] == ["sweep.csv"]  # no figures of the one before
    assert (rows["latency_us_low"] < rows["latency_us"]).all() and (rows["latency_us"] < rows["latency_us_high"]).all()
    assert set(rows["provenance"]) == {"simulated: model event-driven, topology h200-8"}
    assert rows["command"].nunique() == 1 and rows["command"][0].startswith("arlab sweep --topology h200-8")


def test_bad_input(tmp_path):
    few = "--codec fp16 --algorithm ring --bytes 1M"
    refused(f"sweep --topology h200-9 {few}", tmp_path, "h200-9")
    refused("sweep --topology h200-8 --bytes 1M..64K", tmp_path, "FIRST..LAST")
    refused("sweep --topology h200-8 --bytes 1M..", tmp_path, "--bytes is ''")
    refused("sweep --topology h200-8 --bytes 3", tmp_path, "whole elements")
    refused(f"sweep --topology h200-8 {few} --ranks 9", tmp_path, "has only 8")
    for option in ("--inner-codec fp16", "--group-size 4"):
        refused(f"sweep --topology h200-8 {few} {option}", tmp_path, f"{option.split()[0]}: no algorithm of this sweep")
    refused(f"sweep --topology h200-8 {few} --ranks 2,2", tmp_path, "--ranks is '2,2': a number stands twice")
    for one, two in (("h200-8", "h200-8,h200-8"), ("fp16", "fp16,fp16"), ("ring", "ring,ring"), ("1M", "64K,65536")):
        refused(f"sweep --topology h200-8 {few}".replace(one, two), tmp_path, "twice")
    refused(f"sweep --topology h200-8 {few} --highlight fp16", tmp_path, "--out")
    refused("sweep --topology h200-8 --codec bf16 --bytes 1M", tmp_path, "bf16 takes bf16, not fp16")
    (tmp_path / "file").write_text("")
    refused(f"sweep --topology h200-8 {few} --out file/folder", tmp_path, "file/folder")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
