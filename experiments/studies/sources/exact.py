"""Claims that follow from bits and schedules alone: the paper's tables 4 and 5, its figures 3 to 5, the blog's figure
1."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from arlab.figures import style
from arlab.figures.style import BLUE, GREY, INK, ORANGE, WINE
from common import Plan, Report, Study, Tables, cases, equal, line, made, markdown, published_table, square, tensors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

PUBLISHED_MARK = line("published", INK)


def bars(axes: Axes, labels: list[str], parts: dict[str, pd.Series], marks: list[float | None], unit: str) -> None:
    """Horizontal bars of stacked parts (colour: lengths), each with its sum and a mark where the published one is."""
    left = np.zeros(len(labels))
    for colour, lengths in parts.items():
        axes.barh(range(len(labels)), lengths, left=left, color=colour, height=0.6)
        for y, (start, length) in enumerate(zip(left, lengths)) if len(parts) > 1 else ():
            axes.text(start + length / 2, y, length, ha="center", va="center", color=style.ink_on(colour))
        left = left + np.asarray(lengths)
    for y, (end, mark) in enumerate(zip(left, marks)):
        axes.text(end + 0.02 * left.max(), y, f"{end:g} {unit}", va="center")
        if mark is not None:
            axes.vlines(mark, y - 0.4, y + 0.4, color=INK, linewidth=2.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(ylim=(len(labels) - 0.4, -0.6), xlim=(0, 1.2 * left.max()))


# ---------------------------------------------------------------- table 4, and the blog's figure 1: bytes


def run_footprint(plan: Plan) -> Tables:
    import arlab

    n, group, rows = plan["elements"], plan["group"], []
    values = np.random.default_rng(1).normal(size=n).astype(np.float16)
    blocks = values.reshape(-1, group)
    extremes = np.concatenate([blocks.min(1), blocks.max(1)]).view(np.uint8)
    for each in plan["schemes"]:
        wire = arlab.encode(values, each["codec"])
        codes, scales, spikes = n * 2 // 8, each["scale_zero"] * n // group, (4 + each["indices"]) * n // group
        # The spikes really lie behind codes, scales and zeros.
        found = np.array_equal(wire[codes + scales :][: extremes.size], extremes)
        rows.append((each["scheme"], each["codec"], values.nbytes, codes, scales, spikes, scales + spikes, wire.size, found))
    n = plan["message_elements"]
    wires = {codec: arlab.wire_bytes(codec, "fp16", n) for codec in plan["codecs"]}
    sizes = [(codec, 8 * wire / n, wire, 2 * n / wire) for codec, wire in wires.items()]
    heads = "scheme codec data quantized scale_and_zero spikes meta total spikes_found_on_the_wire"
    return {"int2_spikes": made(rows, heads), "codecs": made(sizes, "codec wire_bits_per_element wire_bytes times_smaller_than_fp16")}


@style.drawn
def draw_footprint(ours: pd.DataFrame) -> Figure:
    parts = {"quantized": (BLUE, "codes"), "scale_and_zero": (ORANGE, "scales and zeros"), "spikes": (WINE, "spikes and indices")}
    figure = style.new_page(
        "INT2 with spikes takes the bytes that table 4 says", "4096 numbers of 16 bits, 8192 bytes, in groups of 32", [],
        "Exact: wire bytes of arlab's codecs. Published: Flash Communication V2, table 4.",
        [[*(square(text, colour) for colour, text in parts.values()), PUBLISHED_MARK]], 1.8,
    )  # fmt: skip
    labels = [f"{scheme}  ({codec})" for scheme, codec in zip(ours["scheme"], ours["codec"])]
    marks = list(published_table("flashcomm2_table4_int2_footprint_bytes")["total"])
    bars(figure.subplots(), labels, {colour: ours[name] for name, (colour, _) in parts.items()}, marks, "bytes")
    return figure


def report_footprint(tables: Tables, plan: Plan) -> Report:
    ours, codecs = tables["int2_spikes"], tables["codecs"].set_index("codec")
    paper = published_table("flashcomm2_table4_int2_footprint_bytes")
    same = (ours[paper.columns].to_numpy() == paper.to_numpy()).all() and ours["spikes_found_on_the_wire"].all()
    first, second = ours["total"]
    wire = codecs["wire_bytes"]
    less = 100 * (1 - wire["int5-g128"] / wire["int8-g128"])
    claims = {
        "table": equal(same, f"{first} and {second}; parts too"),
        "integer_scales": equal(10 * second == 8 * first, f"{100 - 100 * second / first:g} %"),
        "int5": cases([less > 30], f"{less:.1f} %"),
        "q4": equal(wire["qr-q4"] == 2.25 * 2**20, f"{wire['qr-q4'] / 2**20:g} MiB of 8 MiB"),
    }
    return Report(claims, {"footprint": partial(draw_footprint, ours)}, {"parts": markdown(ours), "codecs": markdown(tables["codecs"])})


# ---------------------------------------------------------------- table 5: volumes


def run_volumes(plan: Plan) -> Tables:
    import arlab

    rows = []
    for name in plan["algorithms"]:
        group = plan["group_size"] if name.startswith("hierarchical") else None
        schedule = arlab.schedule(name, plan["ranks"], plan["elements"], group_size=group)
        volume = schedule.volume_of(plan["group_size"])
        rows.append((name, plan["rows"].get(name, ""), volume.total, volume.cross_group, schedule.check().correct))
    return {"volumes": made(rows, "algorithm row_of_table_5 total_m cross_numa_m proved", "exact: counted from arlab's schedules")}


def multiples() -> pd.DataFrame:
    """Table 5 as numbers: `7M/4` is 1.75."""
    split = published_table("flashcomm2_table5_volumes").map(lambda text: text.partition("M"))
    return split.map(lambda parts: float(parts[0] or 1) / float(parts[2][1:] or 1))


@style.drawn
def draw_volumes(table: pd.DataFrame) -> Figure:
    figure = style.new_page(
        "Hierarchical algorithms send 1 M across the bridge, two_shot 4 M", "8 ranks in two groups of 4; M: payload of one rank", [],
        "Exact: counted from arlab's schedules. Published: Flash Communication V2, table 5.", [[square("ours", BLUE), PUBLISHED_MARK]], 2.6,
    )  # fmt: skip
    paper = multiples()
    for axes, ours, theirs, title in zip(
        style.panels(figure, 2), ("total_m", "cross_numa_m"), paper.columns, ("all links", "across NUMA, one direction")
    ):
        marks = [paper[theirs].get(row) for row in table["row_of_table_5"]]
        bars(axes, list(table["algorithm"]), {BLUE: table[ours]}, marks, "M")
        axes.set(title=title, xlabel="volume (M)")
    return figure


def report_volumes(tables: Tables, plan: Plan) -> Report:
    table, paper, claims = tables["volumes"], multiples(), {}
    for row in table[table["row_of_table_5"].notna()].itertuples():
        same = list(paper.loc[row.row_of_table_5]) == [row.total_m, row.cross_numa_m] and row.proved
        claims[row.row_of_table_5] = equal(same, f"{row.total_m:g} M, {row.cross_numa_m:g} M")
    across = table.set_index("algorithm")["cross_numa_m"]
    shown = table.rename(columns={"total_m": "in total, M", "cross_numa_m": "across NUMA, M"})
    claims["saved"] = equal(across["two_shot"] == 4 * across["hierarchical"], f"{across['two_shot']:g} M and {across['hierarchical']:g} M")
    return Report(claims, {"volumes": partial(draw_volumes, table)}, {"table": markdown(shown.fillna(""))})


# ---------------------------------------------------------------- figure 3: bit splitting


def run_bits(plan: Plan) -> Tables:
    import arlab

    n, group, rows, shown = plan["elements"], plan["group"], [], []
    values = np.random.default_rng(1).normal(size=n).astype(np.float16)
    for bits, planes in plan["planes"].items():
        codec = f"int{bits}-g{group}"
        wire, codes, at, low = arlab.encode(values, codec), np.zeros(n, np.int64), 0, 0
        for width in planes:
            plane = np.unpackbits(wire[at : at + n * width // 8], bitorder="little").reshape(n, width)
            codes |= (plane << np.arange(width)).sum(1) << low
            at, low = at + n * width // 8, low + width
        scale, zero = (wire[at:].view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(2, -1, 1)
        decoded = (codes.reshape(-1, group).astype(np.float32) * scale + zero).astype(np.float16)
        right = decoded.tobytes() == arlab.decode(wire, codec, "fp16", n).tobytes()
        rows.append((codec, " + ".join(map(str, planes)), at, n, wire.size, 8 * wire.size / n, right))
        shown += [(i, code, code & 15, code >> 4) for i, code in enumerate(codes[:8].tolist())] if bits == "5" else []
    heads = "codec planes bytes_of_codes bytes_if_each_had_a_byte wire_bytes wire_bits_per_element planes_decode_to_its_bits"
    return {"widths": made(rows, heads), "int5": made(shown, "element code low_4_bits fifth_bit")}


@style.drawn
def draw_bits(codes: pd.DataFrame) -> Figure:
    figure = style.new_page(
        "Bit splitting of INT5: all 4-bit parts together, then all single bits",
        "8 codes as int5-g32 sends them; below each byte its value", [],
        "Exact: wire bytes of int5-g32. To compare with figure 3 of Flash Communication V2.",
        [[square("low 4 bits", BLUE), square("fifth bit", ORANGE)]], 2.6,
    )  # fmt: skip
    axes = figure.subplots()

    def cells(x: float, y: float, bits: str, colours: list[str], name: str, name_at: float) -> None:
        for i, (bit, colour) in enumerate(zip(bits, colours)):
            axes.add_patch(Rectangle((x + i, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
            axes.text(x + i + 0.5, y + 0.5, bit, ha="center", va="center", color=style.ink_on(colour))
        axes.text(x + len(bits) / 2, y + name_at, name, ha="center", va="center", color=GREY)

    for i, code in enumerate(codes["code"]):
        cells(5.6 * i, 2, f"{code:05b}", [ORANGE, *[BLUE] * 4], f"{code}", 1.3)
    low = codes["low_4_bits"].to_numpy()
    for i, byte in enumerate(low[1::2] << 4 | low[::2]):
        cells(8.6 * i, 0, f"{byte:08b}", [BLUE] * 8, f"{byte:02X}", -0.3)
    byte = int((codes["fifth_bit"].to_numpy() << np.arange(8)).sum())
    cells(36, 0, f"{byte:08b}", [ORANGE] * 8, f"{byte:02X}", -0.3)
    for y, text in ((2.5, "codes"), (0.5, "wire bytes")):
        axes.text(-1, y, text, ha="right", va="center")
    axes.set(xlim=(-6, 46), ylim=(-0.6, 3.6))
    axes.set_axis_off()
    return figure


def report_bits(tables: Tables, plan: Plan) -> Report:
    table = tables["widths"]
    right = table["planes_decode_to_its_bits"]
    dense = table["bytes_of_codes"] * 8 == table["codec"].str.extract(r"int(\d)")[0].astype(int) * plan["elements"]
    claims = {
        "layout": equal(right.all(), f"by hand, the planes decode to the codec's bits for {right.sum()} of {len(right)} widths"),
        "dense": equal(dense.all(), f"exactly b bits for {dense.sum()} of {len(dense)} widths"),
    }
    return Report(claims, {"int5": partial(draw_bits, tables["int5"])}, {"widths": markdown(table)})


# ---------------------------------------------------------------- figures 4 and 5: spike reserving


def run_spikes(plan: Plan) -> Tables:
    import arlab

    ranges = []
    for name, tensor in tensors(plan["file"]).items():
        groups = tensor.astype(np.float64).reshape(-1, plan["group"])
        rest, each = groups.copy(), np.arange(len(groups))
        rest[each, groups.argmin(1)] = rest[each, groups.argmax(1)] = 0  # as the paper does
        spread = [np.ptp(values, axis=1) for values in (groups, rest)]
        runs = [arlab.all_reduce(tensor, algorithm="two_shot", codec=codec, count=False) for codec in plan["codecs"]]
        ratio = float(np.median(spread[0] / spread[1]))
        ranges.append((name, np.abs(groups).max(), np.abs(rest).max(), ratio, *(run.token_sqnr_db for run in runs)))
        if name == plan["shown"]:
            edges = np.linspace(-1, 1, plan["bins"] + 1) * np.ceil(np.abs(groups).max())
            counts = zip(edges[:-1], edges[1:], *(np.histogram(values, edges)[0] for values in (groups, rest)))
            best = int((spread[0] / spread[1]).argmax())
            example = zip(range(plan["group"]), groups[best], rest[best])
    heads = f"tensor largest_before largest_after median_group_range_shrinks_by_factor {' '.join(f'{c}_db' for c in plan['codecs'])}"
    histogram, group = made(counts, "from to before after"), made(example, "element before after")
    return {"ranges": made(ranges, heads), "histogram": histogram, "group": group}


@style.drawn
def draw_spikes(tables: Tables, plan: Plan) -> Figure:
    bins, group, shown = tables["histogram"], tables["group"], tables["ranges"].set_index("tensor").loc[plan["shown"]]
    figure = style.new_page(
        f"Spike reserving narrows {plan['shown']}: from ±{shown['largest_before']:.3g} to ±{shown['largest_after']:.3g}",
        f"{plan['file']}, all ranks, groups of {plan['group']}", ["Right: the group that gains most."],
        "Exact: computed from the file. To compare with figures 4 and 5 of Flash Communication V2.",
        [[square("before", ORANGE), square("after: minimum and maximum of each group taken out", BLUE)]], 3.2,
    )  # fmt: skip
    left, right = style.panels(figure, 2)
    for name, colour, marker, size in (("before", ORANGE, "o", 8), ("after", BLUE, "s", 5)):
        left.stairs(bins[name], [*bins["from"], bins["to"].iloc[-1]], color=colour, fill=name == "before", linewidth=1.8)
        right.plot(group["element"], group[name], color=colour, marker=marker, markersize=size, linewidth=0.8)
    left.set_yscale("symlog", linthresh=1)
    left.set_yticks([0, 1, 10, 100, 1000, 10000], ["0", "1", "10", "100", "1000", "10 000"])
    left.set(xlabel="value", ylabel="elements", title="distribution")
    right.set(xlabel="element of the group", ylabel="value", title=f"a group of {plan['group']}")
    right.grid()
    return figure


def report_spikes(tables: Tables, plan: Plan) -> Report:
    table = tables["ranges"]
    shrink, gain = table["median_group_range_shrinks_by_factor"], table[f"{plan['codecs'][1]}_db"] - table[f"{plan['codecs'][0]}_db"]
    text = f"{{}} tensors; the median group's range shrinks by a factor of {shrink.min():.2f} to {shrink.max():.2f}"
    claims = {
        "narrower": cases(table["largest_after"] < 0.5 * table["largest_before"], text),
        "better": cases(gain > 0, f"INT2 gains {gain.min():.1f} to {gain.max():.1f} dB (median token, {{}} tensors)"),
    }
    return Report(claims, {"distribution": partial(draw_spikes, tables, plan)}, {"ranges": markdown(table)})


STUDIES = {
    "footprint": Study(run_footprint, report_footprint, exact=True),
    "volumes": Study(run_volumes, report_volumes, exact=True),
    "bit_splitting": Study(run_bits, report_bits, exact=True),
    "spike_reserving": Study(run_spikes, report_spikes, exact=True),
}
