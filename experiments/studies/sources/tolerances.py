"""Which wrong all-reduces the tolerances of other projects' tests let through, and which arlab.conformance finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from arlab.figures import style
from arlab.figures.style import BAND, INK, ORANGE, handle
from common import Claim, Report, Study, Tables, in_cases, made, markdown, of_cases
from exact import tensors
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

Reduce = Callable[[list[np.ndarray]], list[np.ndarray]]
ATOM, FEWER_BITS = 2048, {"qr-q6": "qr-q4", "qr-q4": "qr-q3"}
RIGHT = "none: the right result"


def data_of(kind: str, ranks: int, elements: int) -> list[np.ndarray]:
    """A tensor of float16 for every rank, as the tests make them, or of a network."""
    random = np.random.default_rng(42)
    if kind == "uniform, same on all ranks":  # QuickReduce's tests: multiples of 1/1024 in [-0.5, 0.5)
        return [((random.integers(0, 1024, elements) - 512) / 1024).astype(np.float16)] * ranks
    if kind == "0 to 22, same on all ranks":  # vLLM's
        return [(np.arange(elements) % 23).astype(np.float16)] * ranks
    if kind == "gaussian":  # aiter's
        return list(random.normal(size=(ranks, elements)).astype(np.float16))
    values = [x.reshape(ranks, -1) for x in tensors(f"minilm_tp{ranks}.safetensors").values()]
    return list(np.concatenate(values, 1))


def reduced(values: list[np.ndarray], codec: str, **options: Any) -> list[np.ndarray]:
    import arlab

    return [each.copy() for each in arlab.all_reduce(values, algorithm="two_shot", codec=codec, count=False, **options).outputs]


def broken_codecs(codec: str) -> dict[str, str]:
    """Registers wrong versions of a QuickReduce codec; what is wrong with each, and its name."""
    import arlab

    wire = arlab.wire_bytes(codec, "fp16", ATOM)
    scales_at = wire - 128  # of 64 blocks, 2 bytes each

    class Broken:
        def encode(self, blocks: np.ndarray) -> np.ndarray:
            return arlab.encode(np.ascontiguousarray(blocks), codec).reshape(-1, wire)

        def scales(self, given: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(given[:, scales_at:]).view(np.float16)

        def values(self, given: np.ndarray, scales: np.ndarray) -> np.ndarray:
            whole = np.concatenate([given[:, :scales_at], np.ascontiguousarray(scales).view(np.uint8)], 1)
            return arlab.decode(whole.reshape(-1), codec, "fp16", (len(given), ATOM))

    class NeighboursScale(Broken):
        def decode(self, given: np.ndarray) -> np.ndarray:
            return self.values(given, np.roll(self.scales(given), 1, axis=1))

    class OneTooHigh(Broken):
        def decode(self, given: np.ndarray) -> np.ndarray:
            # Of 64 elements, those with even index are a block and those with odd index another.
            step = self.scales(given).reshape(-1, 32, 1, 2).astype(np.float32)
            values = self.values(given, self.scales(given)).reshape(-1, 32, 32, 2)
            return (values.astype(np.float32) + step).astype(np.float16).reshape(-1, ATOM)

    made_of = {"every block with its neighbour's scale": NeighboursScale, "every code one too high": OneTooHigh}
    names = {}
    for i, (what, kind) in enumerate(made_of.items()):
        names[what] = f"{codec}-broken{i}"
        arlab.codec(names[what], block=ATOM, dtypes=("fp16",))(kind)
    return names


def wrong_results(codec: str) -> dict[str, Reduce]:
    """All-reduces of a list of tensors, by what is wrong with them."""
    right = partial(reduced, codec=codec)
    random = np.random.default_rng(7)

    def changed(change: Callable[[np.ndarray], None], values: list[np.ndarray]) -> list[np.ndarray]:
        results = right(values)
        for each in results:
            change(each)
        return results

    def swapped(result: np.ndarray) -> None:
        half = result.size // 8
        result[: 2 * half] = np.concatenate([result[half : 2 * half], result[:half]])

    def fill(where: slice) -> Callable[[np.ndarray], None]:
        def zero(result: np.ndarray) -> None:
            result[where] = 0

        return zero

    def short_end(result: np.ndarray) -> None:
        result[result.size // 8 * 8 :] = 0

    def no_nan(result: np.ndarray) -> None:
        np.nan_to_num(result, copy=False, nan=0, posinf=65504, neginf=-65504)

    def noise(result: np.ndarray) -> None:
        at = random.random(result.size) < 0.01
        result[at] = np.nextafter(result[at], np.float16(0))

    codecs = {what: partial(reduced, codec=name) for what, name in broken_codecs(codec).items()}
    return {
        RIGHT: right,
        "all zero": lambda v: [np.zeros_like(each) for each in v],
        "nothing is reduced: a rank's own input": lambda v: [each.copy() for each in v],
        "the last rank's contribution is missing": lambda v: right([*v[:-1], np.zeros_like(v[-1])]),
        "rank 0 counts twice, the last rank not": lambda v: right([*v[:-1], v[0]]),
        "first and second eighth swapped": partial(changed, swapped),
        "shifted by one element": lambda v: [np.roll(each, 1) for each in right(v)],
        "64 elements zero": partial(changed, fill(slice(0, 64))),
        **codecs,
        "fewer bits than agreed": partial(reduced, codec=FEWER_BITS[codec]),
        "the last elements, if fewer than 8, are not written": partial(changed, short_end),
        "NaN and infinities become numbers": partial(changed, no_nan),
        "ranks end with different bits": partial(reduced, codec=codec, own="exact"),
        "differs from run to run": partial(changed, noise),
    }


def run_tolerances(plan: dict[str, Any]) -> Tables:
    import arlab

    rows, found = [], []
    codecs = {codec: wrong_results(codec) for codec in dict.fromkeys(test["codec"] for test in plan["test"])}
    for test in plan["test"]:
        own = (f"{test['data']}, {test['ranks']} ranks", test["data"], test["ranks"])
        for where, kind, ranks in [own, *((f"{kind}, {plan['ranks']} ranks", kind, plan["ranks"]) for kind in plan["data"])]:
            values = data_of(kind, ranks, plan["elements"])
            exact = np.sum(np.stack(values).astype(np.float64), 0)
            scale = ranks if test.get("times_ranks") else 1
            allowed = scale * (test["atol"] + test["rtol"] * np.abs(exact))
            for what, reduce in codecs[test["codec"]].items():
                errors = [np.abs(each.astype(np.float64) - exact) for each in reduce(values)]
                inside = np.mean([np.mean(error <= allowed) for error in errors])
                rows.append((what, test["name"], where, kind == test["data"] and ranks == test["ranks"], inside == 1, inside, max(e.max() for e in errors)))
    codec = plan["conformance"]["codec"]
    for what, reduce in codecs[codec].items():
        for claim in ("", f"two_shot/{codec}/native"):
            with np.errstate(all="ignore"):
                verdict = arlab.conformance.check(
                    reduce, world_size=plan["conformance"]["ranks"], dtype="fp16", lengths=plan["conformance"]["lengths"], runs=2,
                    codec=codec if claim else None, claim=claim or None,
                )  # fmt: skip
            found.append((what, claim or "no claim", verdict.passed, verdict.findings[0] if verdict.findings else ""))
    how = "exact: computed from bits by arlab"
    heads = ["what_is_wrong", "test", "data", "own_data", "accepted", "elements_inside", "largest_error"]
    return {
        "tests": made(rows, heads, provenance=how),
        "conformance": made(found, ["what_is_wrong", "claim", "accepted", "first_finding"], provenance=how),
    }


def grid_of(tables: Tables, plan: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Accepted or not: a table per panel, a row per wrong result, a column per test."""
    tests, ours = tables["tests"], tables["conformance"]
    order, names = list(dict.fromkeys(tests["what_is_wrong"])), [test["name"] for test in plan["test"]]
    own = tests["own_data"] & ~tests.duplicated(["what_is_wrong", "test", "data"])
    panels = {"on the test's own data": tests[own]}
    for kind in plan["data"]:
        where = f"{kind}, {plan['ranks']} ranks"
        panels[where] = tests[tests["data"] == where].drop_duplicates(["what_is_wrong", "test"])
    grids = {title: rows.pivot(index="what_is_wrong", columns="test", values="accepted").loc[order, names] for title, rows in panels.items()}
    mine = ours.assign(claim=np.where(ours["claim"] == "no claim", "no claim", "with a claim"))
    grids["arlab.conformance"] = mine.pivot(index="what_is_wrong", columns="claim", values="accepted").loc[order]
    return grids


def draw_tolerances(tables: Tables, plan: dict[str, Any]) -> Figure:
    grids = grid_of(tables, plan)
    own = grids["on the test's own data"].drop(RIGHT)
    figure = style.new_page(
        f"Tests with tolerances accept up to {own.sum().max()} of {len(own)} wrong all-reduces on their own data",
        "Which wrong results are within the tolerances of other projects' tests, and which arlab.conformance finds", [],
        "Exact: computed from bits by arlab. Tolerances: the tests named in study.toml.",
        [[handle("accepted", color=ORANGE, marker="s", markersize=10), handle("rejected", color=BAND, marker="s", markersize=10, markeredgecolor="#999999")]], 5.4,
    )  # fmt: skip
    axes_of = style.panels(figure, len(grids), sharey=True, width_ratios=[grid.shape[1] for grid in grids.values()])
    for axes, (title, grid) in zip(axes_of, grids.items()):
        for (y, x), accepted in np.ndenumerate(grid.to_numpy(dtype=bool)):
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=ORANGE if accepted else BAND, edgecolor="white", linewidth=2))
            if accepted:
                axes.text(x + 0.5, y + 0.5, "✓", ha="center", va="center", color=INK)
        axes.axhline(1, color=INK, linewidth=1)
        axes.set(xlim=(0, grid.shape[1]), ylim=(len(grid), 0))
        axes.set_xticks(np.arange(grid.shape[1]) + 0.5, list(grid.columns), rotation=35, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(grid)) + 0.5, list(grid.index))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title.replace(", ", ",\n").replace("on the test's ", "on the test's\n").replace(".conf", ".\nconf"), size="small")
    return figure


def report_tolerances(tables: Tables, plan: dict[str, Any]) -> Report:
    grids, claims = grid_of(tables, plan), []
    for test in plan["test"]:
        rejected = ~grids["on the test's own data"].drop(RIGHT)[test["name"]].astype(bool)
        others = [int(grids[title].drop(RIGHT)[test["name"]].sum()) for title in list(grids)[1:-1]]
        text = f"{test['atol']:g}{' x ranks' if test.get('times_ranks') else ''} + {test['rtol']:g}{' x ranks' if test.get('times_ranks') else ''} x |sum|" if test["rtol"] else f"{test['atol']:g}"
        claims.append(Claim(
            test["source"], f"its test finds wrong results of {test['codec']} (tolerance {text})", "passes its test",
            f"finds {of_cases(rejected, 'wrong results')} on its own data; on {' and '.join(plan['data'])} it accepts {' and '.join(map(str, others))}",
            "exact", in_cases(rejected),
        ))  # fmt: skip
    ours = grids["arlab.conformance"].drop(RIGHT).astype(bool)
    for name in ours.columns:
        claims.append(Claim("arlab", f"arlab.conformance finds wrong results, {name}", "–", of_cases(~ours[name], "wrong results"), "exact", in_cases(~ours[name])))
    zero = tables["tests"][(tables["tests"]["what_is_wrong"] == "all zero") & tables["tests"]["accepted"].astype(bool)]
    right = pd.concat([grid.loc[RIGHT] for title, grid in grids.items() if title != "arlab.conformance"])
    names = {True: "✓", False: ""}
    flat = pd.concat({title: grid for title, grid in grids.items()}, axis=1)
    page = {}
    for title, grid in grids.items():
        shown = grid.astype(bool).map(names.get).reset_index().rename(columns={"what_is_wrong": "what is wrong"})
        page[title] = f"**{title[0].upper() + title[1:] if not title.startswith('arlab') else title}**: ✓ is accepted\n\n{markdown(shown)}"
    findings = tables["conformance"].fillna("")
    findings = findings[(findings["claim"] != "no claim") & (findings["what_is_wrong"] != RIGHT)][["what_is_wrong", "first_finding"]]
    words = {
        "grids": "\n\n".join(page.values()), "findings": markdown(findings.rename(columns=lambda n: n.replace("_", " "))),
        "zero": "; ".join(f"{test}: {', '.join(dict.fromkeys(each['data']))}" for test, each in zero.groupby("test", sort=False)) or "nowhere",
        "right": of_cases(right.astype(bool), "cases"), "wrong": len(flat) - 1,
    }  # fmt: skip
    return Report(claims, {"accepted": partial(style.drawn(draw_tolerances), tables, plan)}, words)


STUDIES = {"tolerances": Study(run_tolerances, report_tolerances)}
