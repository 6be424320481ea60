"""arlab validate and calibrate with logs of nccl-tests and rccl-tests, in the formats of all versions."""

import json
import re
import tomllib

import pytest
from program import ok, ok_json, refused

FACTORS = {  # busbw / algbw, and whether "size" is of all ranks
    "all_reduce": (lambda n: 2 * (n - 1) / n, False, "sum"),
    "all_gather": (lambda n: (n - 1) / n, True, "none"),
    "reduce_scatter": (lambda n: (n - 1) / n, True, "sum"),
    "alltoall": (lambda n: (n - 1) / n, True, "none"),
    "sendrecv": (lambda n: 1, False, "sum"),
}
BYTES_OF = {"half": 2, "bfloat16": 2, "float": 4, "int8": 1, "double": 8}
SIZES = [2**k for k in range(15, 30, 2)]
NAMES = {"all_reduce": "AllReduce", "all_gather": "AllGather"}


def us_of(size, place):
    """A machine of ours: 9 us and 300 GB/s, in place 1 us less."""
    return 9 + size / 300e3 - (place == "in")


def cell(number, width):
    text = f"{number:.2f}"
    for decimals in (1, 0):
        text = text if len(text) <= width else f"{number:.{decimals}f}"
    return text.rjust(width)


def row(
    size,
    program="all_reduce",
    ranks=8,
    dtype="bfloat16",
    wrong=("0", "0"),
    places=("out", "in"),
    root="    -1",
    factor=us_of,
):
    bus, of_all, op = FACTORS[program]
    text = f"{size:12}  {size // BYTES_OF[dtype] // (ranks if of_all else 1):12}  {dtype:>8}  {op:>6}  {root}"
    for place, bad in zip(places, wrong):
        us = factor(size, place)
        text += f"  {cell(us, 7)}  {cell(size / us / 1e3, 6)}  {cell(size / us / 1e3 * bus(ranks), 6)}  {bad:>5}"
    return text


def head(program="all_reduce", ranks=8, hosts=1, device="NVIDIA H100 80GB HBM3", named=True, group=" Group  0"):
    version = "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809"
    lines = [version, f"# Collective test starting: {program}_perf"] if named else []
    sizes = "minBytes 32768 maxBytes 536870912 step: 4(factor)"
    lines += [f"# nThread 1 nGpus 1 {sizes} warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"]
    lines += ["#", "# Using devices"]
    for rank in range(ranks):
        where = f"on {'node' + str(rank * hosts // ranks):>10} device {rank % 8:2} [0000:{rank:02x}:00]"
        lines.append(f"#  Rank {rank:2}{group} Pid {900 + rank:6} {where} {device}")
    return lines


HEADING = [
    "#",
    "#                                                              out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
]
FOOT = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 201.7", "#"]


def log(program="all_reduce", ranks=8, hosts=1, sizes=SIZES, named=True, device="NVIDIA H100 80GB HBM3", **kinds):
    rows = [row(size, program, ranks, **kinds) for size in sizes]
    return [*head(program, ranks, hosts, device, named), *HEADING, *rows, *FOOT]


def as_json(program="all_reduce", ranks=8, sizes=SIZES, devices=None):
    def place(size, name):
        us = us_of(size, name)
        algbw = size / us / 1e3
        return {"time": us, "alg_bw": algbw, "bus_bw": algbw * FACTORS[program][0](ranks), "nwrong": 0.0}

    device = {"rank": 0, "group": 0, "hostname": "a", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"}

    return {
        "version": 3,
        "args": [f"/opt/nccl-tests/build/{program}_perf", "-J", "x.json"],
        "env": ["PATH=/bin"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": ranks,
            "aggregated_iterations": 1,
            "devices": devices or [device],
        },
        "results": [
            {"size": size, "count": size // 2, "type": "half", "redop": "sum", "root": "    -1"}
            | {"out_of_place": place(size, "out"), "in_place": place(size, "in")}
            for size in sizes
        ],
    }


def records(ranks=8, sizes=SIZES):
    """As rccl-tests writes them with -Z json."""
    for size in sizes:
        for in_place in (0, 1):
            us = us_of(size, "in" if in_place else "out")
            algbw = size / us / 1e3
            yield {
                "numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": ranks, "ranksPerNode": ranks, "gpusPerRank": 1,
                "size": size, "type": "half", "redop": "sum", "inPlace": in_place, "time": us, "algBw": algbw,
                "busBw": algbw * 2 * (ranks - 1) / ranks, "wrong": 0,
            }  # fmt: skip


def prefixed(lines, prefix):
    return [prefix + line for line in lines]


def per_iteration(line):
    """-I 1 adds four columns to each place."""
    words = line.split()
    return "  ".join(words[:9] + ["1.0", "2.0", "3.0", "4.0"] + words[9:] + ["1.0", "2.0", "3.0", "4.0"])


ITERATIONS = HEADING[2].replace("#wrong", "#wrong  i_min  i_max  i_p99  i_cv%")
OLD = [line.replace("redop    root ", "redop ") for line in HEADING]  # 2.0 to 2.9: no root
OF_ERRORS = [line.replace("#wrong", " error") for line in OLD]
INFO = "node0:900:911 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7"
BUILD = ["Linking  all_reduce.o > build/all_reduce_perf", "> mpirun -np 8 build/all_reduce_perf -b 8"]
TWO_PROCESSES = [{"rank": rank, "hostname": "a", "device_info": "NVIDIA H100 80GB HBM3"} for rank in (0, 4)]
CONFIG_OF_FOUR = {"nthreads": 1, "ngpus": 4, "devices": TWO_PROCESSES}
OF_AMD = [
    *head(group="", device="AMD Instinct MI300X", named=False),
    "rccl-tests: Version abc:def",
    "RCCL version : 2.22.3",
]
LOGS = {
    "as it is": log(),
    "unchecked": log(wrong=("N/A", "N/A")),
    "of float": log(dtype="float"),
    "of half": log(dtype="half"),
    "no names": log(named=False),
    "only rows": [row(size) for size in SIZES],
    "mpirun": prefixed(log(), "[1,0]<stdout>:"),
    "srun": prefixed(log(), "0: "),
    "quoted": prefixed(log(), "> "),
    "coloured": prefixed(log(), "\x1b[32m"),
    "carriage returns": [line + "\r" for line in log()],
    "with NCCL's words": [line for each in log() for line in (each, INFO)],
    "no ranks": [line for line in log(named=False) if "Rank" not in line],
    "below others' words": [*BUILD, *log(named=False)],
    "stamps": [line + "  2026-11-30 06:00:00" if line[0] != "#" else line for line in log()],
    "deviations": [*head(), *OF_ERRORS, *(row(size, wrong=("1e-07", "0e+00")) for size in SIZES)],
    "without roots": [*head(), *OLD, *(row(size, root="") for size in SIZES)],
    "one place, blank": [*head(), *HEADING, *(row(size, places=("out",)) for size in SIZES)],
    "per iteration": [*head(), ITERATIONS, *(per_iteration(row(size)) for size in SIZES)],
    "cut short": [*log()[:-4], log()[-4][:60]],
    "with others": [*log(), *log(program="sendrecv", wrong=("0", "N/A")), *log(dtype="int8")],
    "gathered": log(program="all_gather"),
    "scattered": log(program="reduce_scatter", named=False),
    "exchanged": log(program="alltoall", named=False, wrong=("0", "N/A")),
    "of rccl-tests": [*OF_AMD, *HEADING, *(row(size) for size in SIZES)],
    "several": [*log(), *log(program="all_gather")],
    "JSON": [json.dumps(as_json())],
    "JSON of two processes": [json.dumps(as_json() | {"config": CONFIG_OF_FOUR})],
    "JSON of rccl-tests": [json.dumps(list(records()))],
    "CSV of rccl-tests": [", ".join(next(records())), *(", ".join(map(str, each.values())) for each in records())],
}


def write(folder, lines, name="run.txt"):
    (folder / name).write_text("\n".join(lines) + "\n")
    return f"validate --file {name}"


@pytest.mark.parametrize("kind", LOGS)
def test_logs_of_all_kinds_are_read(kind, tmp_path):
    base = "mi300x-8" if "rccl" in kind else "h100-8"
    report = ok_json(write(tmp_path, LOGS[kind]) + f" --base {base}", tmp_path)
    rows = report["rows"]
    twice = 2 if kind == "several" else 1
    assert [each["bytes"] for each in rows] == SIZES[: 8 - (kind == "cut short")] * twice
    for each in rows:
        assert each["measured_us"] == pytest.approx(us_of(each["bytes"], "out"), rel=0.002)
        assert each["ranks"] == 8 and each["low_us"] < each["simulated_us"] < each["high_us"]
        assert each["inside"] == (each["low_us"] <= each["measured_us"] <= each["high_us"])
        if kind != "one place, blank":
            assert each["in_place_us"] == pytest.approx(us_of(each["bytes"], "in"), rel=0.002)
    others = {"gathered": "all_gather", "scattered": "reduce_scatter", "exchanged": "all_to_all"}
    assert rows[0]["log"] == f"run.txt: {others.get(kind, 'all_reduce')}"
    assert report["library"] == ("RCCL 2.22.3" if kind == "of rccl-tests" else report["library"])
    reasons = {"cut short": "1 cut short, the first in line", "with others": "8 of type int8; 8 sendrecv_perf"}
    left_out = reasons.get(kind)
    assert left_out is None and report["left_out"] is None or left_out in report["left_out"]


def test_the_machine_follows_from_the_log(tmp_path):
    write(tmp_path, log(ranks=2, device="NVIDIA H200"))
    report = ok_json("validate --file run.txt", tmp_path)
    assert report["base"] == "h200-2" and report["library"] == "NCCL 2.28.9"
    two = log(ranks=16, hosts=2)
    report = ok_json(write(tmp_path, two) + " --base p5-2x8", tmp_path)
    assert len(report["rows"]) == 8 and all(row["low_us"] < row["simulated_us"] < row["high_us"] for row in report["rows"])
    assert "device is NVIDIA H100" in ok_json(write(tmp_path, log()) + " --base h200-8", tmp_path)["remarks"]


def test_a_blank_place_is_the_one_below_its_heading(tmp_path):
    """A replay of a trace has times in place alone, 32 spaces farther right."""
    lines = [*head(), *HEADING]
    for size in SIZES:
        text = row(size, places=("in",))
        lines.append(text[:54] + " " * 32 + text[54:])
    report = ok_json(write(tmp_path, lines) + " --base h100-8", tmp_path)
    first = report["rows"][0]
    assert first["in_place_us"] == first["measured_us"] == pytest.approx(us_of(SIZES[0], "in"), rel=0.01)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (log(program="sendrecv", wrong=("0", "N/A")), ["sendrecv_perf", "all_reduce, all_gather"]),
        (log(dtype="double"), ["of type double", "fp16, bf16 and fp32"]),
        (head(), ["no row of times"]),
        (log(ranks=1), ["one GPU"]),
        (
            log(program="all_gather", named=False, wrong=("N/A", "N/A")),
            ["all_gather_perf", "alltoall_perf", "--collective"],
        ),
        (log(ranks=16, hosts=2), ["16 ranks", "h100-8 has 8", "--base"]),
        (log(hosts=2), ["2 hosts", "one server", "p5-2x8"]),
        ([line.replace("Group  0", "Group  1") for line in log()], ["groups"]),
        ([line.replace(" time ", " cputime ") for line in log()], ["CPU's"]),
        ([*log()[:-4], row(4 << 20).replace(" 22.98 ", " 12.98 ")], ["algbw", "columns"]),
        ([line.replace("all_reduce", "all_gather") for line in log()], ["all_gather_perf", "--collective"]),
        ([json.dumps(as_json())[:700]], ["JSON is not whole"]),
        (['{"results": 3}'], ["'config' and 'results'"]),
        (['[{"size": 3}]'], ["'algBw'"]),
        ([json.dumps(as_json()).replace('"time"', '"cpu_time"')], ["CPU's"]),
    ],
)
def test_what_cannot_be_read_gets_one_line(lines, words, tmp_path):
    command = write(tmp_path, lines)
    refused(f"{command} --base h100-8", tmp_path, "run.txt", *words)
    refused("calibrate --file run.txt --base h100-8", tmp_path, "run.txt", *words)


def test_swapped_columns_are_found(tmp_path):
    """Mistaking algbw for busbw, or a time for a bandwidth, does not change a machine in silence."""
    for a, b in ((5, 6), (6, 7), (0, 1)):
        swapped = []
        for size in SIZES:
            words = row(size).split()
            words[a], words[b] = words[b], words[a]
            swapped.append("  ".join(words))
        refused(write(tmp_path, [*head(), *HEADING, *swapped]) + " --base h100-8", tmp_path, "run.txt", "line")


def test_options_say_what_a_log_does_not(tmp_path):
    lines = log(program="all_gather", named=False, wrong=("N/A", "N/A"))
    report = ok_json(write(tmp_path, lines) + " --base h100-8 --collective all_gather", tmp_path)
    assert report["rows"][0]["log"] == "run.txt: all_gather"
    ok(write(tmp_path, lines, "all_gather_h100.log") + " --base h100-8", tmp_path)  # so does the file's name
    bare = [row(size, ranks=400) for size in SIZES[:2]]
    refused(write(tmp_path, bare) + " --base gb200-72", tmp_path, "--ranks")
    refused(write(tmp_path, log()) + " --base h100-8 --collective allsum", tmp_path, "allsum", "all_reduce")
    (tmp_path / "times.csv").write_text("ranks,bytes\n2,1024\n")
    refused("validate --file times.csv --base h100-8", tmp_path, "--base", "logs")
    refused("validate --file times.csv --file run.txt", tmp_path, "one kind at a time")
    refused("calibrate --file run.txt --file ./run.txt --base h100-8", tmp_path, "twice")
    refused(write(tmp_path, log(device="NVIDIA A100-SXM4-80GB")), tmp_path, "--base", "a100-8, a100-flashcomm-8")


@pytest.fixture(scope="module")
def own_machine(tmp_path_factory):
    """Times of a machine that is not the shipped one, with 3 % of noise: by collective and size."""
    folder = tmp_path_factory.mktemp("own")
    text = ok("topology show h100-8 --format toml", folder)
    for key, factor in (("bandwidth_gb_per_s", 0.8), ("low_latency_us", 1.4), ("fixed_us", 1.3)):
        pattern = rf"^({key} = \{{ value = )([0-9.]+)"
        text = re.sub(pattern, lambda m: m[1] + repr(factor * float(m[2])), text, flags=re.M)
    (folder / "own.toml").write_text(text)
    times = {}
    for program, what in (("all_reduce", ""), ("all_gather", " --algorithm all_gather")):
        for k, size in enumerate(SIZES):
            run = ok_json(f"simulate --topology own.toml --library{what} --codec bf16 --bytes {size}", folder)
            times[program, size] = run["latency_us"] * (1 + 0.03 * (-1) ** (k // 2))
    return times


def test_a_machine_comes_from_two_logs(own_machine, tmp_path):
    """Sizes that were held back lie in the machine's intervals: 90 % of them, about."""
    for name, program in (("a.log", "all_reduce"), ("b.log", "all_gather")):
        for prefix, sizes in (("", SIZES[::2]), ("held_", SIZES[1::2])):
            lines = log(program=program, sizes=sizes, factor=lambda size, place, of=program: own_machine[of, size])
            write(tmp_path, lines, prefix + name)
    report = ok_json("calibrate --file a.log --file b.log --base h100-8 --out .", tmp_path)
    assert report["mape_percent"] < 5 < report["mape_percent_before"] and report["fitted_constants"] >= 2
    assert report["kept"] and report["machine"].endswith("h100-8-logs.toml")
    text = (tmp_path / "h100-8-logs.toml").read_text()
    machine = tomllib.loads(text)
    assert machine["base"] == "h100-8" and machine["uncertainty"]["library"]["ranks"] == [8]
    fitted = {line.split(" = ")[0] for line in text.splitlines() if '"fitted"' in line}
    assert fitted == {constant["constant"].rsplit(".", 1)[1] for constant in report["constants"]}
    assert text.count("a.log, b.log, NCCL 2.28.9, 8 rows") >= len(fitted)
    shipped = tomllib.loads(ok("topology show h100-8 --format toml", tmp_path))
    now = tomllib.loads(ok("topology show h100-8-logs.toml --format toml", tmp_path))
    for key, quantity in shipped["library"].items():
        is_number = isinstance(quantity, dict) and "value" in quantity
        assert key in fitted or not is_number or now["library"][key] == quantity
    held = ok_json("validate --file held_a.log --file held_b.log --base h100-8-logs.toml", tmp_path)
    as_shipped = ok_json("validate --file held_a.log --file held_b.log --base h100-8", tmp_path)
    assert held["mape_percent"] < as_shipped["mape_percent"] / 2
    assert held["in_interval_percent"] >= 85
    what_if = ok_json("simulate --topology h100-8-logs.toml --algorithm two_shot --codec qr-q4 --bytes 64M", tmp_path)
    assert what_if["latency_us_low"] < what_if["latency_us"] < what_if["latency_us_high"]


def test_the_machine_is_as_far_off_as_calibrate_says(tmp_path):
    """With other constants the library chooses other algorithms: what is reported is of the machine that is written."""
    write(tmp_path, log(ranks=16, hosts=2, factor=lambda size, place: 240 + size / 180e3 + (size > 4 << 20) * 400))
    fitted = ok_json("calibrate --file run.txt --base p5-2x8 --out .", tmp_path)
    own = ok_json("validate --file run.txt --base p5-2x8-logs.toml", tmp_path)
    assert own["mape_percent"] == pytest.approx(fitted["mape_percent"], abs=0.1)
    assert fitted["mape_percent"] < fitted["mape_percent_before"] / 2 and own["in_interval_percent"] >= 75


def test_a_row_that_spoils_the_fit_is_named(tmp_path):
    write(tmp_path, log(factor=lambda size, place: us_of(size, place) * (40 if size == SIZES[3] else 1)))
    farthest = ok_json("calibrate --file run.txt --base h100-8", tmp_path)["farthest"]
    assert f"bf16 {SIZES[3]} bytes" in farthest and "us measured" in farthest


def test_few_rows_tell_few_constants(tmp_path):
    write(tmp_path, log(sizes=SIZES[:2]))
    assert ok_json("calibrate --file run.txt --base h100-8", tmp_path)["fitted_constants"] <= 1
    write(tmp_path, log(sizes=SIZES[:1]))
    refused("calibrate --file run.txt --base h100-8", tmp_path, "at least 2")


@pytest.mark.parametrize("form", ["nccl", "nccl-json"])
@pytest.mark.parametrize("what", ["--library --codec bf16", "--algorithm two_shot --codec qr-q4"])
def test_what_arlab_prints_it_reads(form, what, tmp_path):
    (tmp_path / "own.log").write_text(ok(f"simulate --topology h100-8 {what} --bytes 1M,64M --format {form}", tmp_path))
    report = ok_json("validate --file own.log", tmp_path)
    assert report["base"] == "h100-8" and report["mape_percent"] < 0.1 and report["cells"] == 2
    assert report["remarks"] == "times that arlab has simulated, not measured"


@pytest.mark.parametrize("wrong", ["12", "3e+00"])
def test_rows_whose_results_were_wrong_are_left_out(wrong, tmp_path):
    lines = [*log()[:-4], row(SIZES[-1], wrong=("0", wrong)), *FOOT]
    report = ok_json(write(tmp_path, lines), tmp_path)
    assert report["left_out"] == "1 with wrong results (#wrong)" and report["cells"] == len(SIZES) - 1


@pytest.mark.parametrize(
    "device", ["Tesla V100-SXM2-32GB", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "AMD Instinct MI325X", "Banana"]
)
def test_no_machine_is_taken_for_a_device_that_none_has(device, tmp_path):
    """A name without a number, as NVIDIA Rubin, is no name of all others."""
    command = write(tmp_path, log(device=device))
    for question in (command, "calibrate --file run.txt"):
        refused(question, tmp_path, "run.txt", "--base must name the machine", device)
    assert f"the log's device is {device}, that of h100-8" in ok_json(f"{command} --base h100-8", tmp_path)["remarks"]
    assert ok_json(write(tmp_path, log(device="NVIDIA Rubin", ranks=72)), tmp_path)["base"] == "vr200-72"


def test_files_that_are_no_logs_are_named(tmp_path):
    for name, content in (("empty.log", b""), ("words.log", b"times are here"), ("bytes.log", b"\x00\xff\x01")):
        (tmp_path / name).write_bytes(content)
        refused(f"validate --file {name}", tmp_path, name)
        refused(f"calibrate --file {name} --base h100-8", tmp_path, name)
    refused("validate --file missing.log", tmp_path, "missing.log")


def test_one_log_does_not_make_links_faster_than_their_port(tmp_path):
    """All-reduces alone fit as well with links of 600 GB/s behind a slow library: then the base's stay."""
    write(tmp_path, log(factor=lambda size, place: 14 + size / 240e3))
    report = ok_json("calibrate --file run.txt --base h100-8 --out .", tmp_path)
    assert report["mape_percent"] < report["mape_percent_before"]
    assert all(each["sigma_percent"] < 40 for each in report["constants"])


def test_a_log_may_end_anywhere_in_its_last_row(tmp_path):
    lines = log()[: -len(FOOT)]
    for characters in range(1, 60):
        write(tmp_path, [*lines[:-1], lines[-1][:-characters]])
        report = ok_json("validate --file run.txt", tmp_path)
        assert report["cells"] - len(SIZES) in (0, -1), characters


def test_times_in_cuda_graphs_are_said(tmp_path):
    graphed = [line.replace("graph: 0", "graph: 20") for line in log()]
    assert ok_json(write(tmp_path, graphed), tmp_path)["remarks"] == "in CUDA graphs (-G)"
