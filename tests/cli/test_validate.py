"""arlab validate and calibrate: the simulator beside tables, and fits."""

import csv
import io
import json
import os
import re
import resource
import shutil
import tomllib

import pytest
from program import REPOSITORY, error_line, ok, ok_csv, ok_json, refused, run

PUBLISHED = REPOSITORY / "experiments" / "published"


def shipped(machine, folder):
    """The text of a machine, with what it takes from its base."""
    return ok(f"topology show {machine} --format toml", folder)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Returns the report on the published tables, in half a minute."""
    return ok_json("validate --skip-hold-outs", tmp_path_factory.mktemp("published"))


def test_every_published_cell_is_compared(report):
    assert report["schema"] == "arlab.validate/1"
    tables = {table["name"]: table for table in report["tables"]}
    cells = {name: table["cells"] for name, table in tables.items()}
    assert cells == {
        "quickreduce_mi300x_2gpu": 72,
        "quickreduce_mi300x_4gpu": 72,
        "quickreduce_mi300x_8gpu": 72,
        "quickreduce_mi300x_4gpu_bf16": 20,
        "rccl_mi300x_8gpu_small": 5,
        "flashcomm2_table9": 40,
        "flashcomm2_table10": 21,
        "nccl_rtx_pro_6000_8": 5,
        "nccl_gb200_72": 5,
        "pcie_flows_flat2": 16,
        "pcie_flows_chips2": 11,
        "nccl_p4de_2x8": 29,
        "nccl_p5_2x8": 32,
        "nccl_h200_2x8": 25,
        "nccl_rtx_5090_4": 18,
        **{f"nccl_{machine}_{gpus}": 60 for machine in ("a100", "h100", "b200", "l40s") for gpus in (2, 4, 8)},
    }
    assert report["cells"] == sum(cells.values()) == len(report["measurements"])
    assert report["constants"] < report["cells"] / 5
    assert not any(table["held_out"] for table in tables.values())
    for name, table in tables.items():
        errors = [
            abs(cell["error_percent"]) for cell in report["measurements"] if cell["table"] == name
        ]
        assert table["mape_percent"] == pytest.approx(sum(errors) / len(errors), abs=2e-3)
        assert table["max_ape_percent"] == pytest.approx(max(errors), abs=1e-3)
    assert report["best_codec_ok_percent"] >= 95
    # A worse model fails, and so does a better one until errors.json is brought up to date.
    is_what_pages_quote(report, "published")
    # Without 8 L40S, whose table contradicts itself, and B200, whose protocols' thresholds are Hopper's here.
    others = [cell for cell in report["measurements"] if cell["topology"] != "l40s-8" and not cell["topology"].startswith(("b200", "rtx-5090")) and not cell["topology"].endswith("2x8")]
    # LL's 128 KiB on 4 L40S (38.5 us, of 53.7 measured) take no longer than the next size, by Simple: 34.4 us, 36 % off.
    others = [cell for cell in others if not (cell["table"] == "nccl_l40s_4" and (cell["row"], cell["column"]) == ("131072", "alltoall"))]
    # A newer RCCL, whose table the machine has, takes up to 36 % less on 8 MI300X than QuickReduce's tables say.
    others = [cell for cell in others if (cell["topology"], cell["column"]) != ("mi300x-8", "rccl")]
    errors = [abs(cell["error_percent"]) for cell in others]
    assert sum(errors) / len(errors) <= 4 and max(errors) < 29
    for name, most in (("nccl_p4de_2x8", 7), ("nccl_p5_2x8", 7), ("nccl_h200_2x8", 8), ("nccl_rtx_5090_4", 15)):
        assert tables[name]["mape_percent"] <= most, name


def test_cells_are_those_of_the_tables(tmp_path):
    """Values stand as in the CSV, and simulated / value is what the error says, of the latency."""
    rows = list(csv.DictReader(io.StringIO(ok("validate --cells --format csv", tmp_path))))
    assert len(rows) == 1163
    file = PUBLISHED / "quickreduce_mi300x_8gpu_latency_us.csv"
    table = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    for published in csv.DictReader(table):
        for column in ("rccl", "fp16", "fp8", "q8", "q6", "q4"):
            (row,) = [
                r
                for r in rows
                if (r["table"], r["row"], r["column"])
                == ("quickreduce_mi300x_8gpu", published["bytes"], column)
            ]
            assert float(row["value"]) == float(published[column])
    for row in rows:
        ratio = float(row["simulated"]) / float(row["value"])
        if row["quantity"].endswith("_gb_per_s"):
            ratio = 1 / ratio
        assert float(row["error_percent"]) == pytest.approx(100 * (ratio - 1), abs=1e-3)


def test_a_cell_is_what_simulate_says(report, tmp_path):
    row = next(
        cell
        for cell in report["measurements"]
        if (cell["topology"], cell["codec"], cell["row"]) == ("mi300x-4", "qr-q6", "1048576")
    )
    simulated = ok_json(
        "simulate --topology mi300x-4 --algorithm two_shot --codec qr-q6 --bytes 1M", tmp_path
    )
    assert row["simulated"] == simulated["latency_us"]


def test_held_out_cells_are_predicted(tmp_path):
    """Intervals are of 90 %: that holds for cells that fits do not see, and not by being wide."""
    report = ok_json("validate", tmp_path, timeout=1800)  # 70 fits
    held_out = [table for table in report["tables"] if table["held_out"]]
    assert report["held_out_cells"] == sum(table["cells"] for table in held_out) == len(report["predictions"])
    # A fit has seen cells like these: every second size, and a number of GPUs between others.
    beyond = {"ranks", "algorithm", "codec", "kin", "generation", "fabric"}
    like = [t for t in held_out if not beyond & set(t["extrapolated"]) and "third" not in t["name"]]
    for table in like:
        assert 80 <= table["in_interval_percent"] <= 98, table["name"]
    cells = sum(table["cells"] for table in like if not table["name"].startswith("nccl_l40s_8"))
    assert sum(t["mape_percent"] * t["cells"] for t in like if not t["name"].startswith("nccl_l40s_8")) / cells <= 5
    # All fits count, and others alone.
    assert 85 <= report["held_out_in_interval_percent"] <= 95
    assert 85 <= report["held_out_in_interval_by_others_percent"] <= 95
    assert report["held_out_interval_percent"] <= 35
    # The simulator takes (kWidening in sim/uncertainty.h) the hold-outs' figures, or kernels', if these are larger.
    taken = {"ranks": 8, "algorithm": 8.9, "codec": 14.6, "larger": 4.3, "smaller": 3, "generation": 29, "fabric": 1.5}
    by_kernels = {"algorithm", "codec", "larger"}
    for name, percent in report["widening_percent"].items():
        if name not in taken:
            continue
        assert percent <= 1.1 * taken[name] + 0.3 and (name in by_kernels or percent >= 0.85 * taken[name] - 0.3), name
    # Constants that cells do not determine come from no held-out cell, and are named.
    whole = next(table for table in held_out if table["name"] == "nccl_h100: all, predicted from A100")
    assert whole["constants"] == 0 and any("a100-8's" in reason for reason in whole["frozen"])
    assert "generation" in whole["extrapolated"]
    classes = {each["name"]: each for each in report["classes"]}
    assert {"one server", "another generation", "several servers", "PCIe host", "QuickReduce"} <= classes.keys()
    assert sum(each["cells"] for each in report["classes"]) == report["held_out_cells"]
    for name, each in classes.items():
        assert 85 <= each["inside_percent"] <= 95, name
        assert each["half_width_percent"] <= 1.4 * each["p90_percent"], name
        assert abs(each["bias_percent"]) <= each["mape_percent"], name
    is_what_pages_quote(report, "published")


def names_of(frozen):
    """Returns the names of constants with reasons behind them: library.ll128.efficiency (at its bound)."""
    return [reason.split(" ")[0] for reason in frozen]


def is_what_pages_quote(report, against):
    """README.md and other pages quote this file (experiments/site/quoted.py --validate --write)."""
    quoted = json.loads((PUBLISHED / "errors.json").read_text())[against]
    assert quoted["command"].startswith("arlab validate")
    skipped = not any(table["held_out"] for table in report["tables"])
    of_fits = {"constants", "widening_percent"} | {name for name in quoted if name.startswith("held_out")}
    for name in quoted.keys() - {"command", "tables", "classes"} - (of_fits if skipped else set()):
        assert report[name] == (pytest.approx(quoted[name], rel=0.02, abs=0.05) if isinstance(quoted[name], float) else quoted[name]), name
    tables = [table for table in quoted["tables"] if not (skipped and table["held_out"])]
    for found, table in zip(report["tables"], tables, strict=True):
        assert table["held_out"] or abs(found["mape_percent"] - table["mape_percent"]) < 0.05, table["name"]
        for name in table.keys() - {"worst"}:
            # Fits end a little elsewhere with other compilers; a cell or two then lie on the other side of an interval.
            rel, near = (0.05, 0.2) if table["held_out"] else (0.01, 0.01)
            near = 5 if name == "in_interval_percent" else near
            value = table[name]
            if name == "frozen" and table["held_out"] and value:  # such a fit may keep the same constants for another reason
                assert names_of(found[name]) == names_of(value), (table["name"], name)
                continue
            assert found[name] == (pytest.approx(value, rel=rel, abs=near) if isinstance(value, float) else value), (table["name"], name)


def test_calibrate_prints_constants_and_writes_machines(tmp_path):
    out = tmp_path / "machines"
    out.mkdir()
    report = ok_json(f"calibrate --fit mi300x --out {out}", tmp_path, timeout=300)
    assert report["cells"] == len(report["residuals"]) == 216
    # A contention that never rewards computation costs half a percent (sim/README.md): 2.6 before.
    # Two tables of RCCL on 8 MI300X contradict each other by up to 36 % below 512 KiB: 3.1 without the newer one.
    assert report["mape_percent"] <= 3.4
    # One is known to no better than a factor of two: it is frozen, and said.
    assert report["fitted_constants"] == len(report["constants"]) - 1 == 14
    assert "library.simple_us (sigma" in report["frozen"]
    for constant in report["constants"]:
        assert constant["frozen"] or 0 < constant["sigma_percent"] < 50, constant
    assert sorted(path.name for path in out.iterdir()) == [
        "mi300x-2.toml",
        "mi300x-4.toml",
        "mi300x-8.toml",
    ]
    # The shipped files hold these numbers: fitting again changes next to nothing.
    for path in out.iterdir():
        known, again = (tomllib.loads(shipped(machine, tmp_path))["uncertainty"] for machine in (path.stem, path))
        assert known["constants"] == again["constants"] and known["note"] == again["note"]
        assert again["scatter_percent"] == pytest.approx(known["scatter_percent"], rel=0.02)
        command = "simulate --algorithm two_shot --codec qr-q4 --bytes 1M --topology "
        again = ok_json(command + str(path), tmp_path)["latency_us"]
        assert again == pytest.approx(ok_json(command + path.stem, tmp_path)["latency_us"], rel=0.01)


def test_calibrate_only_some_constants(tmp_path):
    """The others stay, with what is known of them; the shipped files hold what this finds."""
    out = tmp_path / "machines"
    out.mkdir()
    command = f"calibrate --file {H200} --only small.step_us"
    report = ok_json(f"{command} --out {out}", tmp_path, timeout=300)
    assert [constant["constant"] for constant in report["constants"]] == ["small.step_us"]
    # A number is written where it stands: the machines of H200 build on this one.
    assert sorted(path.name for path in out.iterdir()) == ["h100-8.toml", "h200-2.toml", "h200-4.toml", "h200-8.toml"]
    for path in out.iterdir():
        before, after = (tomllib.loads(shipped(machine, tmp_path)) for machine in (path.stem, path))
        assert after["small"]["step_us"]["value"] == pytest.approx(before["small"]["step_us"]["value"], rel=0.01)
        at = after["uncertainty"]["constants"].index("small.step_us")
        assert set(after["uncertainty"]["correlation"][at]) == {0}
        for sections in (before, after):
            del sections["small"]["step_us"], sections["uncertainty"]["note"]
            assert sections["uncertainty"]["sigma_percent"].pop(at) < 20
            del sections["uncertainty"]["correlation"][at]
            for row in sections["uncertainty"]["correlation"][at:]:
                del row[at]
        assert before == after
    refused(f"{command},blocks.cost --out {out}", tmp_path, "--only", "blocks.cost", "(104 in all)", timeout=60)


def test_tables_of_your_own(tmp_path):
    for name in ("quickreduce_mi300x_2gpu_latency_us.csv",):
        shutil.copy(PUBLISHED / name, tmp_path / "mine.csv")
    (tmp_path / "mine.toml").write_text(
        '[[tables]]\nname = "mine"\nfile = "mine.csv"\nsource = "measured"\n'
        'quantity = "latency_us"\ndtype = "fp16"\ntopology = "mi300x-2"\nrows_are = "bytes"\n'
        '[tables.columns]\nfp16 = { algorithm = "two_shot", codec = "fp16" }\n'
    )
    report = ok_json("validate --tables mine.toml", tmp_path)
    assert report["cells"] == 12
    assert report["tables"][0]["name"] == "mine"
    assert report["held_out_mape_percent"] is None


def test_kernels_as_they_are_are_predicted(tmp_path):
    """By the shipped files of kernels as they are, found by what their comments say; sim/KERNELS.md quotes these figures."""
    hold_outs = "" if LONG else " --skip-hold-outs"  # 16 fits of programs with many constants: six minutes
    report = ok_json(f"validate --against measured{hold_outs}", tmp_path, timeout=1800)
    assert report["cells"] == 93 + 1334 and report["left_out"] == 47
    assert "h200_places_2026-11-22.csv" in report["superseded"] and H100.name not in report["superseded"]
    assert report["mape_percent"] <= MEASURED_PERCENT
    # Times of H100's kernels are predicted from H200's.
    tables = {table["name"].split(": ")[1]: table["mape_percent"] for table in report["tables"] if not table["held_out"]}
    assert tables["h200-2"] <= 5 and tables["h100-2"] <= 6
    by_algorithm = {}
    for cell in report["measurements"]:
        by_algorithm.setdefault(cell["algorithm"], []).append(abs(cell["error_percent"]))
    assert len(by_algorithm) == 10
    assert max(sum(errors) / len(errors) for errors in by_algorithm.values()) <= 9
    by_codec = {}
    for cell in report["measurements"]:
        by_codec.setdefault((cell["topology"], cell["codec"]), []).append(abs(cell["error_percent"]))
    of_codec = {which: sum(errors) / len(errors) for which, errors in by_codec.items()}
    # A tile of int8-g32 is too long for sentinel slots, and its large tensors are modelled too slow.
    assert of_codec.pop(("h200-2", "int8-g32")) <= 10.5
    assert max(error for (machine, _), error in of_codec.items() if machine == "h200-2") <= 8.5, of_codec
    is_what_pages_quote(report, "measured")


def test_other_kernels_are_read_by_name_only(tmp_path):
    file = REPOSITORY / "experiments/measured/h200_places_2026-11-22.csv"
    report = ok_json(f"validate --against measured --skip-hold-outs --file {file}", tmp_path, timeout=100)
    assert report["cells"] == 570 and "superseded" not in report


LONG = "ARLAB_LONG_TESTS" in os.environ
H100 = REPOSITORY / "experiments/measured/h100_two_gpus_2026-11-24.csv"
H200 = REPOSITORY / "experiments/measured/h200_two_gpus_2026-11-30.csv"
MEASURED_PERCENT = 5.0


def test_all_tables_in_one_picture(tmp_path):
    printed = ok("validate --against all --skip-hold-outs --plot errors.png", tmp_path, timeout=120)
    assert "quickreduce_mi300x_8gpu" in printed.replace("\n", "")
    assert "h100_two_gpus" in printed.replace("\n", "")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    refused("validate --plot errors.txt", tmp_path, "--plot", ".png", ".svg", ".pdf")


def test_errors_are_printed_by_size(report):
    bounds = {"below_512k_percent": (0, 1 << 19), "below_16m_percent": (1 << 19, 1 << 24), "from_16m_percent": (1 << 24, 1 << 60)}
    for table in report["tables"]:
        for column, (least, most) in bounds.items():
            errors = [
                abs(cell["error_percent"])
                for cell in report["measurements"]
                if cell["table"] == table["name"] and least <= cell["bytes"] < most
            ]
            assert table[column] == (pytest.approx(sum(errors) / len(errors), abs=2e-3) if errors else None)


COLUMNS = "platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library"
SIZES = [1 << power for power in range(15, 29)]
COLUMNS_MEASURED = [  # algorithm, codec, library: enough to tell all constants apart
    ("two_shot", "fp16", "arlab"),
    ("two_shot", "qr-q4", "arlab"),
    ("two_shot", "int5-g128", "arlab"),
    ("one_shot", "fp16", "arlab"),
    ("one_shot", "qr-q8", "arlab"),
    ("one_shot", "int5-g128", "arlab"),
    ("ring", "fp16", "nccl"),
]
CELLS = len(SIZES) * len(COLUMNS_MEASURED)
TRUTH = {"bandwidth_gb_per_s": 1.2, "wire_cost": 1.3, "turn_cost": 1.5, "simple_us": 2.0, "cycles": 1.5}


@pytest.fixture(scope="module")
def bench_file(tmp_path_factory):
    """Writes a file as by arlab bench on H200s, with constants of ours: times of the simulator."""
    folder = tmp_path_factory.mktemp("bench")
    lines = ["# made by the simulator, with other constants", COLUMNS]
    for ranks in (2, 4):
        text = shipped(f"h200-{ranks}", folder)
        for key, factor in TRUTH.items():
            pattern = rf"(?m)^({key} = {{ value = |.int5-g128.*{key} = )([0-9.]+)"
            text = re.sub(pattern, lambda m: m[1] + repr(factor * float(m[2])), text)
        (folder / f"h200-{ranks}.toml").write_text(text)
        for algorithm, codec, library in COLUMNS_MEASURED:
            for size in SIZES:
                flag = " --library" if library == "nccl" else ""
                time_us = ok_json(
                    f"simulate --topology h200-{ranks}.toml --algorithm {algorithm}"
                    f" --codec {codec} --bytes {size}{flag}",
                    folder,
                )["latency_us"]
                algorithm_column = "all_reduce" if library == "nccl" else algorithm
                lines.append(
                    f"cuda,NVIDIA H200,{ranks},{algorithm_column},{codec},fp16,{size},{time_us},{library}"
                )
    lines.append("cuda,NVIDIA H200,4,multimem,bf16,bf16,1048576,17.5,torch_symm_mem")
    file = folder / "h200_allreduce_2026-11-21.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_measured_times_are_compared_and_predicted(bench_file, tmp_path):
    report = ok_json(f"validate --against measured --file {bench_file}", tmp_path, timeout=120)
    tables = {table["name"]: table for table in report["tables"]}
    for ranks in (2, 4):
        table = tables[f"h200_allreduce_2026-11-21: h200-{ranks}"]
        assert (table["cells"], table["source"], table["held_out"]) == (CELLS, "measured", False)
        assert table["mape_percent"] > 5  # the shipped machine is another one
    predicted = tables["h200: 4 GPUs, fitted on 2"]
    assert predicted["held_out"] and predicted["cells"] == CELLS
    # Constants that 2 GPUs do not determine are named. They come from no time of 4, nor from the shipped machine's fit.
    assert predicted["mape_percent"] < 15 and predicted["frozen"]
    assert tables["h200: every second size, fitted on the others"]["mape_percent"] < 1
    assert tables["h200: every second size, fitted on the others"]["cells"] == CELLS
    assert report["left_out"] == 1
    rows = ok_csv(f"validate --against measured --file {bench_file} --cells", tmp_path)
    assert {(row["topology"], row["library"]) for row in rows} == {
        (f"h200-{ranks}", library) for ranks in (2, 4) for library in ("true", "false")
    }


def test_a_machine_is_refitted_with_one_command(bench_file, tmp_path):
    report = ok_json(f"calibrate --file {bench_file} --out {tmp_path}", tmp_path, timeout=120)
    assert report["fit"] == "h200" and report["mape_percent"] < 0.2
    fitted = {constant["constant"].split(".")[-1]: constant for constant in report["constants"] if "qr" not in constant["constant"]}
    for key, factor in TRUTH.items():
        assert fitted[key]["fitted"] / fitted[key]["start"] == pytest.approx(factor, rel=0.02 if key != "cycles" else 0.2), key
    # 8 GPUs were not measured, but are the same.
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "h100-8.toml",  # on which the others build
        "h200-2.toml",
        "h200-4.toml",
        "h200-8.toml",
    ]
    for ranks in (2, 4, 8):
        text = shipped(tmp_path / f"h200-{ranks}.toml", tmp_path)
        (line,) = [line for line in text.splitlines() if line.startswith("bandwidth_gb_per_s")]
        assert "h200_allreduce_2026-11-21.csv" in line and '"fitted"' in line
        command = f"simulate --topology h200-{ranks}.toml --algorithm two_shot --codec fp16 --bytes 64M"
        again = ok_json(command, tmp_path)["latency_us"]
        if ranks != 8:
            truth = ok_json(command, bench_file.parent)["latency_us"]
            assert again == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("cuda,h200,2,two_shot,fp16,fp16,1024,fast,arlab", ["line 2", "time_us", "'fast'"]),
        ("cuda,h200,2,two_shot,fp16,fp16,1024,0,arlab", ["line 2", "time_us", "above 0"]),
        ("cuda,h200,2,two_shot,fp16,fp16,1024,inf,arlab", ["line 2", "above 0"]),
        ("cuda,h200,2,two_shot,fp16,fp16,1.5,9,arlab", ["line 2", "bytes", "whole number"]),
        ("cuda,h200,2,two_shot,fp16,fp16,1025,9,arlab", ["line 2", "1025 bytes", "fp16"]),
        ("cuda,h200,0,two_shot,fp16,fp16,1024,9,arlab", ["line 2", "ranks", "'0'"]),
        ("cuda,h200,3,two_shot,fp16,fp16,1024,9,arlab", ["h200", "3 ranks"]),
        ("cuda,h999,2,two_shot,fp16,fp16,1024,9,arlab", ["h999", "28 in all"]),
        ("cuda,NVIDIA H2,2,two_shot,fp16,fp16,1024,9,arlab", ["NVIDIA H2"]),
        ("cuda,h200,2,two_shots,fp16,fp16,1024,9,arlab", ["line 2", "two_shots"]),
        ("cuda,h200,2,two_shot,qr-q5,fp16,1024,9,arlab", ["line 2", "qr-q5"]),
        ("cuda,h200,2,two_shot,fp16,fp17,1024,9,arlab", ["line 2", "fp17"]),
        ("cuda,h200,2,two_shot,fp16,bf16,1024,9,arlab", ["line 2", "fp16", "bf16"]),
        ("cuda,h200,2,ring,qr-q4,fp16,1024,9,nccl", ["line 2", "nccl", "qr-q4"]),
        ("cuda,h200,2,ring,fp16,fp16,1024,9,gloo", ["gloo", "arlab, nccl, rccl, torch_symm_mem, flashinfer"]),
        ("metal,h200,2,ring,fp16,fp16,1024,9,nccl", ["metal", "cuda, rocm, host"]),
        ("cuda,h200,2,ring,,fp16,1024,9,nccl", ["line 2", "'codec' is empty"]),
        ("cuda,h200,2,ring,fp16,fp16,1024,9", ["has 8 cells"]),
        ("host,h200,2,two_shot,fp16,fp16,1024,9,arlab", ["no row of a GPU"]),
        (
            "cuda,h200,2,ring,fp16,fp16,1024,9,nccl\ncuda,h200,2,ring,fp16,fp16,1024,8,nccl",
            ["line 3", "twice"],
        ),
    ],
)
def test_wrong_measured_times_get_one_line(row, words, tmp_path):
    (tmp_path / "bad.csv").write_text(f"{COLUMNS}\n{row}\n")
    refused("validate --against measured --file bad.csv", tmp_path, "bad.csv", *words)
    refused("calibrate --file bad.csv", tmp_path, "bad.csv", *words)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("validate --against rumours", ["rumours", "published, measured"]),
        ("validate --tables none.toml", ["none.toml", "cannot be read"]),
        ("validate --tables broken.toml", ["broken.toml", "line 1"]),
        ("calibrate", ["--fit"]),
        ("validate --file none.csv", ["none.csv", "cannot be read"]),
        ("validate --file broken.csv", ["--against measured"]),
        ("validate --against measured --file none.csv", ["none.csv", "cannot be read"]),
        ("validate --against measured --file broken.csv", ["broken.csv", COLUMNS[:8]]),
        ("calibrate --fit mi400x", ["mi400x", "did you mean 'mi300x'"]),
        ("calibrate --fit mi300x --out nowhere", ["nowhere", "not a folder"]),
    ],
)
def test_bad_input_gets_one_line(command, words, tmp_path):
    (tmp_path / "broken.toml").write_text("[[tables\n")
    (tmp_path / "broken.csv").write_text("ranks,bytes\n2,1024\n")
    refused(command, tmp_path, *words)


def test_a_file_counts_once(tmp_path):
    """By whatever name."""
    (tmp_path / "times.csv").write_text(f"{COLUMNS}\ncuda,h200,2,ring,fp16,fp16,1024,9,nccl\n")
    (tmp_path / "link.csv").symlink_to("times.csv")
    for other in ["times.csv", "./times.csv", "link.csv"]:
        for command in ["validate --against measured", "calibrate"]:
            refused(f"{command} --file times.csv --file {other}", tmp_path, other, "twice")


def test_cells_in_quotes(tmp_path):
    row = 'cuda,"h200",8,"ring",fp16,fp16,1024,9,nccl'
    (tmp_path / "times.csv").write_text(f"{COLUMNS}\n{row}\n")
    assert ok_json("validate --against measured --skip-hold-outs --file times.csv", tmp_path)["cells"] == 1
    for damaged, words in [
        (row.replace('"ring"', '"ring'), "a quote is not closed"),
        (row.replace('"ring"', '"ring"s'), "text follows a closed quote"),
    ]:
        (tmp_path / "times.csv").write_text(f"{COLUMNS}\n{damaged}\n")
        refused("validate --against measured --file times.csv", tmp_path, "times.csv: line 2", words)


def test_machine_files_are_written_whole_or_not(tmp_path):
    (tmp_path / "mi300x-8.toml").write_text("old")
    result = run(
        "calibrate --fit mi300x --out .", tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)), timeout=60,
    )  # fmt: skip
    assert result.code == 2 and "File too large" in error_line(result.stderr)
    assert (tmp_path / "mi300x-8.toml").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["mi300x-8.toml"]
