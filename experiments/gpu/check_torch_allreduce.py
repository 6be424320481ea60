#!/usr/bin/env python3
"""PyTorch's all-reduces, checked by arlab: exact as what, deterministic, the same on all ranks, how far off?

    python3 experiments/gpu/check_torch_allreduce.py --ranks 4 --out torch_check.json
    torchrun --nproc-per-node 4 experiments/gpu/check_torch_allreduce.py --out torch_check.json

NCCL's all_reduce, and the one-shot and two-shot all-reduces of PyTorch's symmetric memory, which take bf16 and fp32 and
sizes that are a multiple of 4 bytes. Rank 0 prints a table and writes a JSON report with every figure, and one row per
all-reduce to OUT with the suffix .csv. Exit code 1 when one of them does what an all-reduce must not do.

Needed is the Python package arlab. What cannot run on this machine is reported as such.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from torch_ranks import Ranks, SymmetricTensors, start_ranks  # noqa: E402

CSV_COLUMNS = (
    "platform machine ranks algorithm dtype library passed deterministic ranks_identical exact_as nearest mismatches"
    " compared_elements max_abs_error rmse sqnr_db findings"
).split()


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, sizes=("lengths",), names=("algorithms", "dtypes"))
    parser.add_argument("--dtypes", default="bf16,fp16,fp32", help="[%(default)s]")
    parser.add_argument("--lengths", default="2,10,2048,2050,20004,65542,1048578", help="elements per rank [%(default)s]")
    parser.add_argument("--runs", type=int, default=5, help="of every case [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--algorithms", default="nccl,one_shot,two_shot", help="[%(default)s]")
    options = parser.parse(arguments)
    measurement.require_choices(parser, options)
    return options


def region_bytes(lengths, itemsize):
    """At least what the largest region has: guards of 256 bytes, and tensors rounded up to as much."""
    tensor = -(-max(lengths) * itemsize // 256) * 256
    return 2 * tensor + 3 * 256


def check_all(ranks, options, conformance):
    """A report for each all-reduce and dtype: (algorithm, library, dtype, data or None, why not)."""
    for algorithm in options.algorithms:
        for dtype in options.dtypes:
            common = {
                "world_size": ranks.size, "dtype": dtype, "lengths": options.lengths, "runs": options.runs,
                "seed": options.seed, "rank": ranks.rank,
                "gather": lambda mine: ranks.gather(mine),
            }  # fmt: skip
            library = "nccl" if algorithm == "nccl" else "torch_symm_mem"
            try:
                if algorithm == "nccl":
                    tensors = conformance.TorchTensors(ranks.device)
                    report = conformance.check(ranks.nccl, mode="in_place", tensors=tensors, **common)
                else:
                    bytes_needed = region_bytes(options.lengths, ranks.dtype(dtype).itemsize)
                    tensors = SymmetricTensors(ranks, dtype, bytes_needed)
                    function, mode = {
                        "one_shot": (ranks.one_shot, "returns"), "two_shot": (ranks.two_shot, "in_place"),
                    }[algorithm]  # fmt: skip
                    report = conformance.check(function, mode=mode, tensors=tensors, **common)
            except conformance.CheckError as error:
                yield algorithm, library, dtype, None, str(error)
            else:
                yield algorithm, library, dtype, report.data, ""


def row_of(about, algorithm, library, dtype, data, failure):
    """A line of the CSV file."""
    row = {**about, "algorithm": algorithm, "dtype": dtype, "library": library}
    if data is None:
        return {**row, "findings": f"not run: {failure}"}
    nearest = min(data["candidates"], key=lambda candidate: candidate["mismatches"])
    gaussian = data["errors"][0]
    return {
        **row,
        **{key: json.dumps(data[key]) for key in ("passed", "deterministic", "ranks_identical")},
        "exact_as": " ".join(data["exact_as"]),
        "nearest": nearest["name"],
        "mismatches": nearest["mismatches"],
        "compared_elements": data["compared_elements"],
        **{key: gaussian[key] for key in ("max_abs_error", "rmse", "sqnr_db")},
        "findings": "; ".join(data["findings"]),
    }


def main():
    options = parse_arguments()
    start_ranks(options.ranks)
    from arlab import conformance

    ranks = Ranks()
    device = ranks.torch.cuda.get_device_name(ranks.device)
    about = {
        "platform": ranks.platform(),
        "machine": options.machine or measurement.machine_name(device, ranks.size),
        "ranks": ranks.size,
    }
    results = []
    rows = []
    for result in check_all(ranks, options, conformance):
        results.append(result)
        rows.append(row_of(about, *result))
        if ranks.rank == 0:
            algorithm, library, dtype, data, failure = result
            print(f"== {library} {algorithm} {dtype}", failure or conformance.Report(data), sep="\n", flush=True)
    if ranks.rank == 0:
        provenance = [
            f"PyTorch's all-reduces checked by arlab, {measurement.today()}: {ranks.size} x {device},"
            f" {ranks.library_versions()}.",
            f"Command: {measurement.command_line()}",
        ]
        report = {
            "schema": "arlab.torch_check/1",
            "provenance": provenance,
            **about,
            "checks": [
                {"algorithm": algorithm, "library": library, "dtype": dtype, "not_run": failure or None, "report": data}
                for algorithm, library, dtype, data, failure in results
            ],
        }
        measurement.write_whole(options.out, json.dumps(report, indent=1) + "\n")
        csv_path = Path(options.out).with_suffix(".csv")
        measurement.write_whole(csv_path, measurement.csv_text(rows, provenance, CSV_COLUMNS))
    ranks.close()
    sys.exit(any(data is not None and not data["passed"] for _, _, _, data, _ in results))


if __name__ == "__main__":
    main()
