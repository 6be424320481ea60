#!/usr/bin/env python3
"""Fits [compute] of the H200 to layers measured without all-reduces, and predicts the others.

    python experiments/studies/model_time/fit.py            prints the constants, and every layer measured and fitted

gemm_efficiency, memory_efficiency and kernel_us minimize the squared logarithms of the errors. They are fitted to the rows `none`
of h200_layers_2026-11-22.csv: bf16, first run, 2 and 4 GPUs, 1, 32, 512 and 8192 tokens. Operations, FLOP and bytes are those of
`arlab model time`; sim/workload/model_time.h has the formula.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parents[1]
sys.path.insert(0, str(EXPERIMENTS / "site"))

from repository import arlab  # noqa: E402
from page_tables import rows_of  # noqa: E402

FITTED_TOKENS = (1, 32, 512, 8192)


def measured():
    """(date, ranks, dtype, run, tokens, us) of every layer without an all-reduce."""
    for date in ("2026-11-22", "2026-11-23"):
        for row in rows_of(EXPERIMENTS / f"measured/h200_layers_{date}.csv"):
            if row["all_reduce"] == "none":
                yield date, int(row["ranks"]), row["dtype"], row.get("run", "1"), int(row["tokens"]), float(row["layer_us"])


def operations(ranks, tokens):
    """FLOP of matrix products, bytes and kernels of a layer, an array of each."""
    options = f"--model llama-3-70b --topology h200-{ranks} --tokens {tokens} --kernels separate --no-attention --format json"
    rows = json.loads(arlab("model", "time", *options.split()))["operations"]
    rows = [row for row in rows if row["count"] > 1 and row["kind"] != "communication"]
    flop = [row["flop"] if row["kind"] == "gemm" else 0 for row in rows]
    return tuple(np.array(values, dtype=float) for values in (flop, [row["bytes"] for row in rows], [row["kernels"] for row in rows]))


def data_sheet():
    """TFLOPS and GB/s, as the machine file has them."""
    rows = json.loads(arlab("topology", "show", "h200-2", "--format", "json"))["quantities"]
    values = {row["quantity"]: row["value"] for row in rows}
    return values["compute.bf16_tflops"], values["device.hbm_gb_per_s"]


def layer_us(constants, of_layer, peaks):
    gemm, memory, kernel_us = constants
    tflops, gb_per_s = peaks
    flop, size, kernels = of_layer
    return np.sum(kernels * kernel_us + np.maximum(flop / (tflops * gemm * 1e6), size / (gb_per_s * memory * 1e3)))


def main():
    layers = [(*row, operations(row[1], row[4])) for row in measured()]
    peaks = data_sheet()
    seen = [row[0] == "2026-11-22" and row[2:4] == ("bf16", "1") and row[4] in FITTED_TOKENS for row in layers]

    def errors(logarithms):
        constants = np.exp(logarithms)
        return [math.log(layer_us(constants, row[6], peaks) / row[5]) for row, used in zip(layers, seen, strict=True) if used]

    fitted = np.exp(least_squares(errors, np.log([0.65, 0.85, 4.0])).x)
    print("gemm_efficiency {:.3f}, memory_efficiency {:.3f}, kernel_us {:.2f}".format(*fitted))
    for used in (True, False):
        group = [row for row, is_seen in zip(layers, seen, strict=True) if is_seen == used]
        off = [100 * (layer_us(fitted, row[6], peaks) / row[5] - 1) for row in group]
        print(f"{'fitted' if used else 'predicted'}: mean error {np.mean(np.abs(off)):.1f} %, largest {max(map(abs, off)):.1f} %")
        for row, percent in zip(group, off, strict=True):
            print(f"  {row[0]}  {row[1]} GPUs  {row[2]}  run {row[3]}  {row[4]:5} tokens  {row[5]:8.1f} us  {percent:+6.1f} %")


if __name__ == "__main__":
    main()
