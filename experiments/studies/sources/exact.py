"""What is computed from bits and schedules alone: the paper's tables 4 and 5, its figures 3 to 5, the blog's figure 1."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from arlab.figures import style
from arlab.figures.style import BLUE, GREY, INK, ORANGE, WINE, handle
from common import (
    ACTIVATIONS, BLOG, PAPER, Claim, Report, Study, Tables, equal, in_cases, made, markdown, near, number, of_cases,
    published_table, size,
)  # fmt: skip
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

EXACT = "exact: computed from bits by arlab"


def tensors(name: str) -> dict[str, np.ndarray]:
    """The tensors of a file of experiments/activations."""
    from safetensors.numpy import load_file

    return dict(sorted(load_file(ACTIVATIONS / name).items()))


# ---------------------------------------------------------------- table 4 and figure 1 of the blog: bytes


def run_footprint(plan: dict[str, Any]) -> Tables:
    import arlab

    n, dtype = plan["elements"], plan["dtype"]
    values = np.random.default_rng(1).normal(size=n).astype(np.float16)
    rows = []
    for scheme in plan["schemes"]:
        codec, group = scheme["codec"], scheme["group"]
        widths = {part: scheme[part] * n // group for part in ("scale_zero", "spike_values", "spike_indices")}
        codes = n * scheme["bits"] // 8
        wire = arlab.encode(values, codec)
        # The extremes really lie where these parts say.
        at = codes + widths["scale_zero"]
        blocks = values.reshape(-1, group)
        extremes = np.concatenate([blocks.min(1), blocks.max(1)]).view(np.uint8)
        found = bool(np.array_equal(wire[at : at + widths["spike_values"]], extremes))
        spikes = widths["spike_values"] + widths["spike_indices"]
        rows.append((scheme["name"], codec, values.nbytes, codes, widths["scale_zero"], spikes, widths["scale_zero"] + spikes, wire.size, found))
    heads = ["scheme", "codec", "data", "quantized", "scale_and_zero", "spikes", "meta", "total", "spikes_found_on_the_wire"]
    sizes = [
        (codec, plan["message_elements"], 2 * plan["message_elements"], arlab.wire_bytes(codec, dtype, plan["message_elements"]))
        for codec in plan["codecs"]
    ]
    return {
        "int2_spikes": made(rows, heads, provenance=EXACT),
        "codecs": made(sizes, ["codec", "elements", "payload_bytes", "wire_bytes"], provenance=EXACT),
    }


def draw_footprint(tables: Tables) -> Figure:
    ours, paper = tables["int2_spikes"], published_table("flashcomm2_table4_int2_footprint_bytes")
    parts = (("quantized", BLUE, "codes"), ("scale_and_zero", ORANGE, "scales and zeros"), ("spikes", WINE, "spikes and their indices"))
    legend = [handle(text, color=colour, marker="s") for _, colour, text in parts]
    legend.append(handle("published total", color=INK, marker="|", markersize=14))
    figure = style.new_page(
        "INT2 with spike reserving: the bytes of table 4", "4096 numbers of 16 bits, 8192 bytes, groups of 32", [],
        "Exact: wire bytes of arlab's codecs. Published: Flash Communication V2, table 4.", [legend], 1.8,
    )  # fmt: skip
    axes = figure.subplots()
    for i, row in ours.iterrows():
        left = 0
        for part, colour, _ in parts:
            axes.barh(i, row[part], left=left, color=colour, height=0.6, edgecolor="white")
            axes.text(left + row[part] / 2, i, row[part], ha="center", va="center", color=style.ink_on(colour))
            left += row[part]
        axes.vlines(paper.loc[i, "total"], i - 0.4, i + 0.4, color=INK, linewidth=2.5)
        axes.text(left + 25, i, f"{left} bytes", va="center")
    axes.set_yticks(range(len(ours)), [f"{row['scheme']}  ({row['codec']})" for _, row in ours.iterrows()])
    axes.set(ylim=(len(ours) - 0.4, -0.6), xlim=(0, 2900), xlabel="bytes")
    return figure


def report_footprint(tables: Tables, plan: dict[str, Any]) -> Report:
    ours, codecs = tables["int2_spikes"], tables["codecs"].set_index("codec")
    paper = published_table("flashcomm2_table4_int2_footprint_bytes")
    columns = ["data", "quantized", "scale_and_zero", "spikes", "meta", "total"]
    same = bool((ours[columns].to_numpy() == paper[columns].to_numpy()).all()) and bool(ours["spikes_found_on_the_wire"].all())
    totals = ours["total"].tolist()
    saved = 1 - totals[1] / totals[0]
    wire = codecs["wire_bytes"]
    less = 1 - wire["int5-g128"] / wire["int8-g128"]
    half = [wire["qr-q4"] / 2**20, codecs.loc["qr-q4", "payload_bytes"] / 2**20]
    claims = [
        Claim(PAPER, "table 4: bytes of INT2 with spikes, every part", "2560 and 2048 in all", " and ".join(map(str, totals)), "exact", equal(same)),
        Claim(PAPER, "table 4: integer scales and indices save 20 %", "20 %", f"{100 * saved:.0f} %", "exact", equal(saved == 0.2)),
        Claim(PAPER, "text: INT5 has above 30 % less volume than INT8", "30 %", f"{100 * less:.1f} %", "exact", in_cases([less > 0.3])),
        Claim(BLOG, "figure 1: 8 MB of FP16 are 2.25 MB as Q4", "2.25 MB", f"{half[0]:g} MiB of {half[1]:g} MiB", "exact", equal(half == [2.25, 8])),
    ]
    shown = codecs.reset_index().assign(ratio=lambda t: t["payload_bytes"] / t["wire_bytes"], bits=lambda t: 8 * t["wire_bytes"] / t["elements"])
    shown = shown[["codec", "wire_bytes", "bits", "ratio"]].rename(columns={"bits": "wire bits per element", "ratio": "times smaller than 16 bits", "wire_bytes": "wire bytes"})
    return Report(claims, {"footprint": partial(style.drawn(draw_footprint), tables)}, {"parts": markdown(ours), "codecs": markdown(shown), "message": size(codecs["payload_bytes"].iloc[0])})


# ---------------------------------------------------------------- table 5: volumes


def run_volumes(plan: dict[str, Any]) -> Tables:
    import arlab

    rows = []
    for method in plan["methods"]:
        schedule = arlab.schedule(method["algorithm"], plan["ranks"], plan["elements"], group_size=method.get("group_size"))
        proof, volume = schedule.check(), schedule.volume_of(plan["group_size"])
        rows.append((method["algorithm"], method.get("published", ""), volume.total, volume.cross_group, proof.correct, schedule.steps))
    heads = ["algorithm", "row_of_table_5", "total_m", "cross_numa_m", "proved", "steps"]
    return {"volumes": made(rows, heads, provenance="exact: counted from arlab's schedules, in multiples of one rank's payload M")}


def multiple(text: str) -> float:
    """`7M/4` is 1.75."""
    factor, _, divisor = text.partition("M")
    return float(factor or 1) / float(divisor.lstrip("/") or 1)


def draw_volumes(table: pd.DataFrame) -> Figure:
    paper = published_table("flashcomm2_table5_volumes").set_index("method")
    figure = style.new_page(
        "What crosses the NUMA bridge: table 5 and the other algorithms", "8 ranks in two groups of 4; M: payload of one rank", [],
        "Exact: counted from arlab's schedules. Published: Flash Communication V2, table 5.",
        [[handle("ours", color=BLUE, marker="s"), handle("published", color=INK, marker="|", markersize=14)]], 2.6,
    )  # fmt: skip
    for axes, column, old, what in zip(style.panels(figure, 2), ("total_m", "cross_numa_m"), ("total", "cross_numa"), ("all links", "across NUMA, one direction")):
        axes.barh(range(len(table)), table[column], color=BLUE, height=0.6)
        for i, row in table.iterrows():
            axes.text(row[column] * 1.02 + 0.02, i, f"{row[column]:g} M", va="center")
            if isinstance(row["row_of_table_5"], str):
                axes.vlines(multiple(paper.loc[row["row_of_table_5"], old]), i - 0.4, i + 0.4, color=INK, linewidth=2.5)
        axes.set_yticks(range(len(table)), table["algorithm"] if column == "total_m" else [""] * len(table))
        axes.set(ylim=(len(table) - 0.4, -0.6), xlim=(0, 1.2 * table[column].max()), title=what, xlabel="volume (M)")
    return figure


def report_volumes(tables: Tables, plan: dict[str, Any]) -> Report:
    table = tables["volumes"]
    paper = published_table("flashcomm2_table5_volumes").set_index("method")
    named = table[table["row_of_table_5"].notna()].set_index("row_of_table_5")
    claims = []
    for method, row in named.iterrows():
        pair = [multiple(paper.loc[method, name]) for name in ("total", "cross_numa")]
        ours = [row["total_m"], row["cross_numa_m"]]
        claims.append(Claim(
            PAPER, f"table 5: {method}, volume in total and across NUMA", f"{paper.loc[method, 'total']}, {paper.loc[method, 'cross_numa']}",
            ", ".join(f"{each:g} M" for each in ours), "exact", equal(pair == ours and bool(row["proved"])),
        ))  # fmt: skip
    times = named.loc["two_step", "cross_numa_m"] / named.loc["hierarchical_two_step", "cross_numa_m"]
    claims.append(Claim(PAPER, "text: hierarchical saves 3 of 4 parts of the volume across NUMA", "4 M to M", f"{times:g} times less", "exact", equal(times == 4)))
    shown = table.fillna("").assign(proved=["yes" if each else "no" for each in table["proved"]])
    return Report(claims, {"volumes": partial(style.drawn(draw_volumes), table)}, {"table": markdown(shown)})


# ---------------------------------------------------------------- figure 3: bit splitting

PLANES = {1: (1,), 2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1), 8: (8,)}


def codes_of(wire: np.ndarray, n: int, bits: int) -> np.ndarray:
    """The codes of a message of n elements, put together from its planes, the low bits first."""
    codes, at, low = np.zeros(n, np.int64), 0, 0
    for width in PLANES[bits]:
        plane = np.unpackbits(wire[at : at + n * width // 8], bitorder="little").reshape(n, width)
        codes |= (plane << np.arange(width)).sum(1) << low
        at, low = at + n * width // 8, low + width
    return codes


def run_bits(plan: dict[str, Any]) -> Tables:
    import arlab

    n, group = plan["elements"], plan["group"]
    values = np.random.default_rng(plan["seed"]).normal(size=n).astype(np.float16)
    rows, shown = [], []
    for bits in plan["bits"]:
        codec = f"int{bits}-g{group}"
        wire = arlab.encode(values, codec)
        codes, plane_bytes, groups = codes_of(wire, n, bits), n * bits // 8, n // group
        meta = (wire[plane_bytes:].view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(2, groups, 1)
        decoded = (codes.reshape(groups, group).astype(np.float32) * meta[0] + meta[1]).astype(np.float16)
        right = decoded.reshape(-1).tobytes() == arlab.decode(wire, codec, "fp16", n).tobytes()
        whole = n * (1 if bits <= 8 else 2)
        rows.append((bits, codec, " + ".join(map(str, PLANES[bits])), plane_bytes, whole, wire.size, 8 * wire.size / n, right))
        if bits == plan["shown_bits"]:
            short = codes[: plan["shown_elements"]]
            shown = [(i, code, code & 15, code >> 4) for i, code in enumerate(short.tolist())]
    heads = ["bits", "codec", "planes", "bytes_of_codes", "bytes_of_codes_in_whole_bytes", "wire_bytes", "wire_bits_per_element", "planes_decode_to_the_same_bits"]
    return {"widths": made(rows, heads, provenance=EXACT), "int5": made(shown, ["element", "code", "low_4_bits", "high_bit"], provenance=EXACT)}


def draw_bits(codes: pd.DataFrame) -> Figure:
    n = len(codes)
    figure = style.new_page(
        "Bit splitting of INT5: all 4-bit parts together, then all single bits", f"{n} codes, as arlab's int5-g32 sends them; below each byte its value", [],
        "Exact: wire bytes of int5-g32. To compare with figure 3 of Flash Communication V2.",
        [[handle("low 4 bits", color=BLUE, marker="s"), handle("fifth bit", color=ORANGE, marker="s")]], 2.6,
    )  # fmt: skip
    axes = figure.subplots()

    def cells(x: float, y: float, bits: str, colour: str) -> None:
        for i, bit in enumerate(bits):
            axes.add_patch(Rectangle((x + i, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
            axes.text(x + i + 0.5, y + 0.5, bit, ha="center", va="center", size=8, color=style.ink_on(colour))

    def name(x: float, y: float, text: str, **look: Any) -> None:
        axes.text(x, y, text, ha="center", va="center", **{"size": 8, "color": GREY, **look})

    for i, code in enumerate(codes["code"]):
        x = i * 5.6
        cells(x, 3, f"{code >> 4:b}", ORANGE)
        cells(x + 1, 3, f"{code & 15:04b}", BLUE)
        name(x + 2.5, 4.5, f"code {code}")
    for i in range(n // 2):
        low, high = codes["low_4_bits"][2 * i], codes["low_4_bits"][2 * i + 1]
        x = i * 8.6
        cells(x, 0, f"{high:04b}{low:04b}", BLUE)
        name(x + 4, -0.5, f"{high << 4 | low:02X}")
    x = (n // 2) * 8.6 + 1
    byte = sum(int(bit) << i for i, bit in enumerate(codes["high_bit"]))
    cells(x, 0, f"{byte:0{n}b}", ORANGE)
    name(x + n / 2, -0.5, f"{byte:02X}")
    axes.text(-1, 3.5, "codes", ha="right", va="center")
    axes.text(-1, 0.5, "wire bytes", ha="right", va="center")
    axes.set(xlim=(-7, max(x + n, n * 5.6) + 1), ylim=(-1.2, 5.2))
    axes.set_axis_off()
    return figure


def report_bits(tables: Tables, plan: dict[str, Any]) -> Report:
    table = tables["widths"]
    right = table["planes_decode_to_the_same_bits"]
    dense = table["bytes_of_codes"] * 8 == table["bits"] * plan["elements"]
    claims = [
        Claim(PAPER, "figure 3: INT5 is 4-bit parts together, then single bits together; that is the wire", "(figure)", f"put together by hand, the planes decode to the codec's bits for {of_cases(right, 'widths')}", "exact", equal(bool(right.all()))),
        Claim(PAPER, "text: any bit width without waste", "b bits per code", f"exactly b bits for {of_cases(dense, 'widths')}", "exact", equal(bool(dense.all()))),
    ]
    shown = table.drop(columns="planes_decode_to_the_same_bits").rename(columns=lambda name: name.replace("_", " "))
    return Report(claims, {"int5": partial(style.drawn(draw_bits), tables["int5"])}, {"widths": markdown(shown)})


# ---------------------------------------------------------------- figures 4 and 5: spike reserving


def without_spikes(groups: np.ndarray) -> np.ndarray:
    """Groups [n, size] with their first minimum and first maximum replaced by 0, as the paper does."""
    rest = groups.copy()
    each = np.arange(len(groups))
    rest[each, groups.argmin(1)] = 0
    rest[each, groups.argmax(1)] = 0
    return rest


def run_spikes(plan: dict[str, Any]) -> Tables:
    import arlab

    histogram, ranges, example = [], [], []
    for name, tensor in tensors(plan["file"]).items():
        groups = tensor.astype(np.float64).reshape(-1, plan["group"])
        rest = without_spikes(groups)
        spread = [each.max(1) - each.min(1) for each in (groups, rest)]
        sqnr = {codec: arlab.all_reduce(tensor, algorithm="two_shot", codec=codec, count=False).token_sqnr_db for codec in plan["codecs"]}
        ranges.append((name, np.abs(groups).max(), np.abs(rest).max(), *(float(np.median(s)) for s in spread), float(np.median(spread[0] / spread[1])), *sqnr.values()))
        if name == plan["shown"]:
            edges = np.linspace(-1, 1, plan["bins"] + 1) * np.ceil(np.abs(groups).max())
            counts = [np.histogram(each, edges)[0] for each in (groups, rest)]
            histogram = list(zip(edges[:-1], edges[1:], *counts))
            worst = int((spread[0] / np.maximum(spread[1], 1e-9)).argmax())
            example = list(zip(range(plan["group"]), groups[worst], rest[worst]))
    heads = ["tensor", "largest_before", "largest_after", "median_range_before", "median_range_after", "median_ratio_of_ranges", *(f"token_sqnr_db_{c}" for c in plan["codecs"])]
    return {
        "ranges": made(ranges, heads, provenance=EXACT),
        "histogram": made(histogram, ["from", "to", "before", "after"], provenance=EXACT),
        "group": made(example, ["element", "before", "after"], provenance=EXACT),
    }


def draw_spikes(tables: Tables, plan: dict[str, Any]) -> Figure:
    bins, group, ranges = tables["histogram"], tables["group"], tables["ranges"].set_index("tensor").loc[plan["shown"]]
    looks = (("before", ORANGE, "before"), ("after", BLUE, "after: minimum and maximum of each group taken out"))
    figure = style.new_page(
        f"Spike reserving narrows {plan['shown']}: from ±{ranges['largest_before']:.3g} to ±{ranges['largest_after']:.3g}",
        f"{plan['file']}, all ranks, groups of {plan['group']}", ["Right: the group that gains most."],
        "Exact: computed from the file by arlab. To compare with figures 4 and 5 of Flash Communication V2.",
        [[handle(text, color=colour, marker="s") for _, colour, text in looks]], 3.2,
    )  # fmt: skip
    left, right = style.panels(figure, 2)
    for name, colour, _ in looks:
        left.stairs(bins[name], [*bins["from"], bins["to"].iloc[-1]], color=colour, fill=name == "before", alpha=0.45 if name == "before" else 1, linewidth=1.8)
        right.plot(group["element"], group[name], color=colour, marker="o" if name == "before" else "s", linestyle="-", linewidth=0.8)
    left.set_yscale("symlog", linthresh=1)
    left.set(xlabel="value", ylabel="elements", title="distribution")
    right.set(xlabel="element of the group", ylabel="value", title=f"a group of {plan['group']}")
    right.grid()
    return figure


def report_spikes(tables: Tables, plan: dict[str, Any]) -> Report:
    table = tables["ranges"]
    plain, spiked = (f"token_sqnr_db_{codec}" for codec in plan["codecs"])
    shrink, gain = table["median_ratio_of_ranges"], table[spiked] - table[plain]
    holds = table["largest_after"] < 0.5 * table["largest_before"]
    claims = [
        Claim(PAPER, "figure 4: without spikes the numerical range is substantially narrower (here: less than half)", "(figure, Llama-3-8B)", f"in {of_cases(holds, 'tensors')} of MiniLM; the median group's range is {shrink.min():.2f} to {shrink.max():.2f} times smaller", "exact", in_cases(holds)),
        Claim(PAPER, "figure 5: so INT2 quantizes the rest better", "(figure)", f"by {gain.min():.1f} to {gain.max():.1f} dB (median token, 8 ranks)", "exact", in_cases(gain > 0)),
    ]
    shown = table.rename(columns=lambda name: name.replace("token_sqnr_db_", "dB, ").replace("_", " "))
    return Report(claims, {"distribution": partial(style.drawn(draw_spikes), tables, plan)}, {"ranges": markdown(shown)})


STUDIES = {
    "footprint": Study(run_footprint, report_footprint, exact=True),
    "volumes": Study(run_volumes, report_volumes, exact=True),
    "bit_splitting": Study(run_bits, report_bits, exact=True),
    "spike_reserving": Study(run_spikes, report_spikes, exact=True),
}
