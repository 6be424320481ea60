"""Which wrong all-reduces the tolerances of other projects' tests let through, and which arlab.conformance finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from arlab.figures import style
from arlab.figures.style import BAND, INK, ORANGE
from common import Plan, Report, Study, Tables, cases, count, made, markdown, square, tensors
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

Values = list[np.ndarray]  # a tensor for every rank
ATOM, SCALES = 2048, 128  # elements, and bytes of scales at the end of their wire
FEWER_BITS = {"qr-q6": "qr-q4", "qr-q4": "qr-q3"}
RIGHT, OWN, OURS = "none: the right result", "the test's own data", "arlab.conformance"


def data_of(kind: str, ranks: int, elements: int) -> Values:
    """float16, as the tests make it, or of a network."""
    random = np.random.default_rng(42)
    if kind == "uniform":  # QuickReduce: multiples of 1/1024, the same on all ranks
        return [((random.integers(0, 1024, elements) - 512) / 1024).astype(np.float16)] * ranks
    if kind == "0 to 22":  # vLLM: the same on all ranks
        return [(np.arange(elements) % 23).astype(np.float16)] * ranks
    if kind == "gaussian":  # aiter
        return list(random.normal(size=(ranks, elements)).astype(np.float16))
    return list(np.concatenate([x.reshape(ranks, -1) for x in tensors(f"minilm_tp{ranks}.safetensors").values()], 1))


def reduced(values: Values, codec: str, **options: Any) -> Values:
    import arlab

    return [each.copy() for each in arlab.all_reduce(values, algorithm="two_shot", codec=codec, count=False, **options).outputs]


def broken(codec: str, decode: Callable[[np.ndarray, Callable[[np.ndarray], np.ndarray]], np.ndarray]) -> partial:
    """An all-reduce with a QuickReduce codec that decodes wrongly, out of the scales [n, 64] and what they decode to."""
    import arlab

    size = arlab.wire_bytes(codec, "fp16", ATOM)

    class Wrong:
        def encode(self, blocks: np.ndarray) -> np.ndarray:
            return arlab.encode(np.ascontiguousarray(blocks), codec).reshape(-1, size)

        def decode(self, wire: np.ndarray) -> np.ndarray:
            def values(scales: np.ndarray) -> np.ndarray:
                whole = np.concatenate([wire[:, :-SCALES], np.ascontiguousarray(scales).view(np.uint8)], 1)
                return arlab.decode(whole.reshape(-1), codec, "fp16", (len(wire), ATOM))

            return decode(np.ascontiguousarray(wire[:, -SCALES:]).view(np.float16), values)

    name = f"{codec}-{decode.__name__.replace('_', '-')}"
    arlab.codec(name, block=ATOM, dtypes=("fp16",))(Wrong)
    return partial(reduced, codec=name)


def neighbours_scale(scales: np.ndarray, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return values(np.roll(scales, 1, axis=1))


def one_too_high(scales: np.ndarray, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    # A block has the elements with even index of 64, another one those with odd index.
    step = scales.reshape(-1, 32, 1, 2).astype(np.float32)
    return (values(scales).reshape(-1, 32, 32, 2) + step).astype(np.float16).reshape(-1, ATOM)


def wrong_results(codec: str) -> dict[str, Callable[[Values], Values]]:
    """All-reduces, by what is wrong with them."""
    right, random = partial(reduced, codec=codec), np.random.default_rng(7)

    def then(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Values], Values]:
        return lambda values: [change(each) for each in right(values)]

    def zero(result: np.ndarray, begin: int, end: int) -> np.ndarray:
        result[begin:end] = 0
        return result

    def swapped(result: np.ndarray) -> np.ndarray:
        eighth = result.size // 8
        return np.concatenate([result[eighth : 2 * eighth], result[:eighth], result[2 * eighth :]])

    return {
        RIGHT: right,
        "all zero": lambda values: [np.zeros_like(each) for each in values],
        "nothing is reduced: a rank's own input": lambda values: [each.copy() for each in values],
        "the last rank's contribution is missing": lambda values: right([*values[:-1], np.zeros_like(values[-1])]),
        "rank 0 counts twice, the last rank not": lambda values: right([*values[:-1], values[0]]),
        "first and second eighth swapped": then(swapped),
        "shifted by one element": then(lambda result: np.roll(result, 1)),
        "64 elements zero": then(lambda result: zero(result, 0, 64)),
        "every block with its neighbour's scale": broken(codec, neighbours_scale),
        "every code one too high": broken(codec, one_too_high),
        "fewer bits than agreed": partial(reduced, codec=FEWER_BITS[codec]),
        "the last elements, if fewer than 8, not written": then(lambda result: zero(result, result.size // 8 * 8, result.size)),
        "NaN and infinities become numbers": then(np.nan_to_num),
        "ranks end with different bits": partial(reduced, codec=codec, sum="result=sum"),
        "differs from run to run": then(
            lambda result: np.where(random.random(result.size) < 0.01, np.nextafter(result, np.float16(0)), result)
        ),
    }


def run_tolerances(plan: Plan) -> Tables:
    import arlab

    rows, found, codecs = [], [], {test["codec"]: wrong_results(test["codec"]) for test in plan["test"]}
    others = [(f"{kind}, {plan['ranks']} ranks", kind, plan["ranks"]) for kind in plan["data"]]
    for test in plan["test"]:
        for where, kind, ranks in [(OWN, test["data"], test["ranks"]), *others]:
            values = data_of(kind, ranks, plan["elements"])
            exact = np.sum(np.stack(values).astype(np.float64), 0)
            allowed = (ranks if test.get("times_ranks") else 1) * (test["atol"] + test["rtol"] * np.abs(exact))
            for what, reduce in codecs[test["codec"]].items():
                errors = np.abs(np.stack(reduce(values)).astype(np.float64) - exact)
                inside = errors <= allowed
                rows.append((what, test["name"], where, kind, ranks, bool(inside.all()), inside.mean(), errors.max()))
    ours = plan["conformance"]
    for what, reduce in codecs[ours["codec"]].items():
        for name, claim in {"no claim": {}, "with a claim": {"codec": ours["codec"], "claim": f"two_shot/{ours['codec']}/native"}}.items():
            with np.errstate(all="ignore"):
                told = arlab.conformance.check(reduce, world_size=ours["ranks"], dtype="fp16", lengths=ours["lengths"], runs=2, **claim)
            found.append((what, name, told.passed, told.findings[-1] if told.findings else "", " ".join(told.exact_as)))
    heads = "what_is_wrong test where data ranks accepted elements_inside largest_error"
    return {"tests": made(rows, heads), "conformance": made(found, "what_is_wrong claim accepted finding exact_as")}


def grids_of(tables: Tables) -> dict[str, pd.DataFrame]:
    """Accepted or not: a table per kind of data, a row per wrong result, a column per test."""
    tests, ours = tables["tests"], tables["conformance"].assign(where=OURS).rename(columns={"claim": "test"})
    both = pd.concat([tests, ours])
    order = list(tests["what_is_wrong"].unique())
    return {
        where: each.pivot(index="what_is_wrong", columns="test", values="accepted").loc[order, list(each["test"].unique())].astype(bool)
        for where, each in both.groupby("where", sort=False)
    }


@style.drawn
def draw_tolerances(grids: dict[str, pd.DataFrame]) -> Figure:
    own = grids[OWN].drop(RIGHT)
    figure = style.new_page(
        f"Tests with tolerances accept up to {own.sum().max()} of {len(own)} wrong all-reduces",
        "Wrong results within the tolerances of tests, on their own data, and those that arlab.conformance finds", [],
        "Exact: computed from bits by arlab.", [[square("accepted", ORANGE), square("rejected", style.PALE)]], 5.4,
    )  # fmt: skip
    panels = style.panels(figure, len(grids), sharey=True, width_ratios=[grid.shape[1] for grid in grids.values()])
    for axes, (title, grid) in zip(panels, grids.items()):
        for (y, x), accepted in np.ndenumerate(grid.to_numpy()):
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=ORANGE if accepted else BAND, edgecolor="white", linewidth=2))
            axes.text(x + 0.5, y + 0.5, "✓" if accepted else "", ha="center", va="center")
        axes.axhline(1, color=INK, linewidth=1)
        axes.set(xlim=(0, grid.shape[1]), ylim=(len(grid), 0))
        axes.set_xticks(np.arange(grid.shape[1]) + 0.5, list(grid.columns), rotation=35, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(grid)) + 0.5, list(grid.index))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title.replace("own", "\nown").replace(", ", ",\n").replace(".", ".\n"), size="small")
    return figure


def report_tolerances(tables: Tables, plan: Plan) -> Report:
    grids, claims = grids_of(tables), {}
    for test in plan["test"]:
        others = []
        for where in list(grids)[1:-1]:
            wrong, right = grids[where].drop(RIGHT)[test["name"]], grids[where].loc[RIGHT, test["name"]]
            others.append(f"{where}: " + (f"{count(~wrong)}" if right else "rejects the right result"))
        claims[test["name"]] = cases(~grids[OWN].drop(RIGHT)[test["name"]], f"rejects {{}} wrong results; on {'; on '.join(others)}")
    for name, key in (("no claim", "ours"), ("with a claim", "ours_claimed")):
        claims[key] = cases(~grids[OURS].drop(RIGHT)[name], "rejects {} wrong results")
    zero = [f"{name} on {where}" for where, grid in grids.items() for name in grid.columns if grid.loc["all zero", name]]
    claims["zero"] = cases([not each for each in grids[OWN].loc["all zero"]], f"rejected by {{}}; accepted by {'; '.join(zero)}")
    table = pd.concat([grids[OWN], grids[OURS].add_prefix("arlab, ")], axis=1).map(lambda accepted: "✓" if accepted else "")
    return Report(claims, {"accepted": partial(draw_tolerances, grids)}, {"table": markdown(table.reset_index())})


STUDIES = {"tolerances": Study(run_tolerances, report_tolerances, exact=True)}
