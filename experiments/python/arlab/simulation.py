"""How long collectives take on a topology, which is fastest under an error budget, and studies of many."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from arlab import _arlab
from arlab._deprecated import renamed
from arlab._errors import ArgumentError
from arlab._files import read_whole, unguarded
from arlab._questions import asks, options_in
from arlab._tables import Names, Result, ask, call_of, frame, listed, pandas
from arlab.schedules import Algorithm, Schedule, asked

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = [
    "simulate", "sweep", "select", "study", "topologies", "topology", "import_topology", "flows", "check_codec", "vectors",
    "Simulation", "Sweep", "Selection", "Study", "Topology", "CodecCheck",
]  # fmt: skip


def topologies() -> Names:
    """Names of the machines that come with arlab; wherever one is taken, so are full:N, ring:N, torus:AxBxC, fat_tree:N,
    dragonfly:N and the path of a .toml. The list has a `table`, a pandas.DataFrame."""
    return Names((row["name"] for row in ask("list", {"what": "topologies"})["topologies"]), lambda: listed("topologies"))


class Topology(Result):
    """A machine: `data` has its links, the bandwidth of every pair, and where each number comes from; `toml` is the text of a
    complete machine file, to change and to save."""

    SHOWN = ("topology", "summary", "kind", "ranks", "bisection_gb_per_s")

    toml: str

    def __init__(self, data: dict[str, Any], drawing: dict[str, Any] | None):
        super().__init__(data)
        self._drawing = drawing

    def plot(self, **look: Any) -> Figure:
        """Draws the connections; up to 64 devices. `look`: as for arlab.figures.topology()."""
        from arlab import figures

        if self._drawing is None:
            raise ArgumentError(f"topology '{self.topology}' is too large to draw: {self.ranks} devices; allowed are at most 64")
        return figures.topology(self._drawing, **look)


def topology(name: str) -> Topology:
    """A machine by its name (arlab.topologies()), full:8 and the like, or the path of a .toml."""
    data, _, drawing = _arlab.ask("topology show", {"topology": name}, None)
    return Topology({**data, "topology": name}, drawing)


@asks("topology flows")
def flows(topology: str, **given: Any) -> Result:
    """Returns the rates of flows between ranks that all run at the same time, in GB/s: `sum_gb_per_s`, `flows` with the
    rate of each, and `collapses`, where PCIe would be far slower than that."""
    return Result(ask("topology flows", {"topology": topology, **given}))


@asks("topology import", source="from")
def import_topology(file: str | Path, **given: Any) -> Topology:
    """A machine as another tool describes it. Save its `toml` to simulate it."""
    given["from"] = given.pop("source", None)
    data, _, drawing = _arlab.ask("topology import", {"file": file, **given}, None)
    return Topology(data, drawing)


class Simulation(Result):
    """How long a collective takes, by the model that `model` names; times in microseconds, bandwidths in 10^9 bytes/s.

    latency_us, algbw_gb_per_s, busbw_gb_per_s (as nccl-tests define it), bottleneck (in words), wire_bytes
    interval      (low, high) of latency_us: 90 of 100 measured times should lie in it; None of a workload
    assumed       of servers without a fabric, and of tails: a list of assumptions, in words
    extrapolated  a list of what no fit and no measurement has seen the like of, in words; empty where all was seen
    sensitivity   a pandas.DataFrame: per cent that the latency grows by for each constant of the machine that grows by 1 %
    breakdown     where the latency goes: launch, synchronisation, wire, contention, codec, release, and of scales that
                  ranks share the agreement; they add up to it
    links         a pandas.DataFrame of what each class of links carried
    collectives   of a workload: a pandas.DataFrame with a row for each, in place of the figures above
    """

    SHOWN = (
        "workload", "topology", "end_us", "algorithm", "codec", "inner_codec", "ranks", "dtype", "bytes", "group_size", "implementation",
        "latency_us", "quantum_error_us", "equal_chunks_error_us", "extrapolated", "assumed", "p50_us", "p99_us", "algbw_gb_per_s", "busbw_gb_per_s", "bottleneck", "wire_bits_per_element",
        "provenance",
    )  # fmt: skip
    TABLES = {"links": "links", "collectives": "collectives"}

    @property
    def breakdown(self) -> dict[str, float]:
        parts = ("agreement", "launch", "synchronisation", "wire", "contention", "codec", "release")
        return {part: self.data[f"{part}_us"] for part in parts if f"{part}_us" in self.data}

    @functools.cached_property
    def interval(self) -> tuple[float, float] | None:
        return None if self._simulated is None else self._simulated.interval()

    @functools.cached_property
    def sensitivity(self) -> DataFrame:
        return frame(self._one().sensitivity())

    def __init__(self, algorithm: str | Schedule | None, request: dict[str, Any]):
        self._asked = algorithm, request
        answer = _arlab.simulate(algorithm, request)
        self._simulated = None if isinstance(answer, dict) else answer
        if isinstance(answer, dict):
            self.data = answer

    # Figures are made when the first is asked for, and what the interval takes, when that is.
    @functools.cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        return self._one().figures(with_interval=False)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.data) if self._simulated is None else self._simulated.figures(with_interval=True)

    def _figures_for(self, name: str) -> dict[str, Any]:
        return self.to_dict() if name.startswith(("latency_us_", "interval_")) else self.data

    def __reduce__(self) -> Any:
        return Simulation, self._asked

    def _one(self) -> _arlab.Simulation:
        if self._simulated is None:
            raise ArgumentError("a timeline and a sensitivity are of one collective of one size")
        return self._simulated

    def plot(self, **look: Any) -> Figure:
        """The timeline: what every rank and the fullest links do, and when. `look`: as for arlab.figures.timeline()."""
        from arlab import figures

        return figures.timeline(json.loads(self._one().timeline()), **look)


@asks("simulate")
def simulate(*, algorithm: str | Algorithm | Schedule | None = None, **given: Any) -> Simulation:
    """Simulates a collective on a topology, or several at once.

    `algorithm`: a value such as arlab.Ring(own="exact"), a name (arlab.algorithms()), the path of a schedule.json, of a
    program of MSCCL (.xml) or a plan of MSCCL++ (.json), or a Schedule; with library, by default what the library takes. A topology is a name
    (arlab.topologies()), full:8 and the like, or the path of a .toml. Several `bytes`, or "1M..64M", give a row for each
    (`frame`); of a workload, figures of each collective are in the result's `collectives`.
    """
    options = options_in(given, "simulate")
    what, named = asked(algorithm, options)
    return Simulation(what, {name: value for name, value in {**given, **named}.items() if value is not None})


def one_of(figures: dict[str, Figure], name: str) -> Figure:
    """Returns the figure of that name. Raises ArgumentError for another one."""
    if name not in figures:
        raise ArgumentError(f"figure is {name!r}: allowed are {', '.join(figures)}")
    return figures[name]


class Sweep(Result):
    """Simulated times: `table`, a pandas.DataFrame with a row for each, as simulate() has its figures."""

    SHOWN = ("points", "provenance")

    @property
    def table(self) -> DataFrame:
        table = frame(self.data["times"])
        table.attrs["provenance"] = self.data["provenance"]
        return table

    def plot(self, figure: str = "latency_over_size", **look: Any) -> Figure:
        """One of plots(). `look`: as for the function of that name in arlab.figures."""
        return one_of(self.plots(**look), figure)

    def plots(self, **look: Any) -> dict[str, Figure]:
        """All figures of a sweep by name: latency_over_size, bandwidth_over_size, speedup_over_library,
        best_method_by_size, machines_heat_map."""
        from arlab.figures import sweep as figures

        table = self.table
        return {name: draw(table, **look) for name, draw in figures.figures_of(table).items()}


@renamed(topologies="topology", algorithms="algorithm", codecs="codec", group_sizes="group_size")
@asks("sweep")
def sweep(
    client: Client | None = None, workers: int | None = None, progress: Callable[[str], Any] | None = None, **given: Any
) -> Sweep:
    """Simulates many collectives: every combination of the lists. Combinations that cannot be simulated are left out.

    client, workers, progress: as for study(); by default the threads of this process.
    """
    return Sweep(_answer("sweep", client, workers, progress, **given))


def _answer(question: str, client: Any, workers: int | None, progress: Callable[[str], Any] | None, **given: Any) -> dict[str, Any]:
    """Returns the answer to a question with points that a cluster may compute."""
    if client is None and workers is None:
        return ask(question, given, progress)
    from arlab import distributed

    called = call_of(question, {**given, "workers": workers}, *(["client=..."] if client is not None else []))
    return distributed.answer(question, given, called, progress, (client, workers, None))[2]


class Selection(Result):
    """The fastest algorithm and codec by size.

    algorithm, codec, implementation, latency_us, sqnr_db   of the size asked for
    measured_on                                             ranks on which such kernels were timed; None: nowhere
    left_out, left_out_latency_us                           candidates that nobody has timed, and what the best of them takes
    ranges      a pandas.DataFrame: the best from each size to the next
    pareto      a pandas.DataFrame: what nothing else is both faster and more exact than, at the size asked for
    candidates  a pandas.DataFrame: everything that was looked at, at that size
    """

    SHOWN = (
        "topology", "ranks", "dtype", "metric", "min_sqnr_db", "max_wire_bits", "candidate_count", "bytes", "algorithm", "codec",
        "implementation", "measured_on", "latency_us", "extrapolated", "token_sqnr_db", "sqnr_db", "left_out_algorithm", "left_out_codec",
        "left_out_latency_us", "error_measured_on", "provenance",
    )  # fmt: skip

    TABLES = {"ranges": "ranges", "pareto": "pareto"}

    algorithm: str
    codec: str
    latency_us: float

    @property
    def candidates(self) -> DataFrame:
        return frame(self._drawing["candidates"])

    def __init__(self, data: dict[str, Any], drawing: dict[str, Any]):
        super().__init__(data)
        self._drawing = drawing

    def plot(self, **look: Any) -> Figure:
        """Error and latency of all candidates. `look`: as for arlab.figures.selection()."""
        from arlab import figures

        return figures.selection(self._drawing, **look)


@renamed(algorithms="algorithm", codecs="codec")
@asks("select", min_sqnr_db="min_sqnr", algorithm="algorithms", codec="codecs")
def select(**given: Any) -> Selection:
    """The fastest algorithm and codec by message size, under an error budget."""
    for name, field in (("min_sqnr_db", "min_sqnr"), ("algorithm", "algorithms"), ("codec", "codecs")):
        given[field] = given.pop(name, None)
    data, _, drawing = _arlab.ask("select", given | {"plot": "drawing.png"}, None, call_of("select", given))
    return Selection(data, drawing)


class Study(Result):
    """The results of a study: `table` has every point, `summary` the medians over tensors (pandas.DataFrame); both are in
    `folder`, too."""

    SHOWN = ("title", "points", "folder")

    @property
    def folder(self) -> Path:
        return Path(self.data["folder"])

    @property
    def table(self) -> DataFrame:
        return self._read("results.csv")

    @property
    def summary(self) -> DataFrame:
        return self._read("summary.csv")

    def plot(self, figure: str = "pareto", metric: str = "token", **look: Any) -> Figure:
        """One of plots()."""
        return one_of(self.plots(metric, **look), figure)

    def plots(self, metric: str = "token", **look: Any) -> dict[str, Figure]:
        """All figures of a study by name: pareto, error_by_codec, error_by_ranks, error_by_tensor.

        `metric`: SQNR of the median "token", where tensors have tokens, or of the whole "tensor". `look`: as for the functions of these names in arlab.figures, for example highlight=["mine"].
        """
        from arlab import figures

        frame = figures.read_results(self.folder / "results.csv", metric)
        names = ("pareto", "error_by_codec", "error_by_ranks", "error_by_tensor")
        return {name: getattr(figures, name)(frame, **look) for name in names}

    def _read(self, name: str) -> DataFrame:
        return pandas().read_csv(io.BytesIO(read_whole(self.folder / name)), comment="#").map(unguarded)


@asks("study")
def study(
    file: str | Path,
    *,
    out: str | Path,
    client: Client | None = None,
    workers: int | None = None,
    progress: Callable[[str], Any] | None = None,
    **given: Any,
) -> Study:
    """Runs a sweep over inputs, ranks, algorithms and codecs from a TOML file; results.csv and summary.csv go to `out`.

    client: a distributed.Client: the workers of its Dask cluster compute the points. They have the same arlab, and find the
    study and its data under the same paths. Codecs and algorithms of your own are sent along. workers: the same in so many
    processes of this machine, which end with the call. A script needs `if __name__ == "__main__":` around it. Default: the
    threads of this process. progress: is called with a line of text now and then.

    With client or workers, a point that fails, or whose workers die time and again, leaves the others alone: results.csv has them when,
    at the end, Error says which failed, and resume=True tries those again.
    """
    answer = _answer("study", client, workers, progress, file=file, out=out, no_plots=True, **given)
    return Study({"folder": str(out), **answer})


class CodecCheck(Result):
    """The result of checking a codec: `properties` is a pandas.DataFrame, `violation` describes the violation, or is
    None."""

    SHOWN = ("codec", "passed", "violation", "out_of_range")

    TABLES = {"properties": "checks"}

    passed: bool
    violation: str | None


@renamed(name="codec")
@asks("check-codec")
def check_codec(codec: str, **given: Any) -> CodecCheck:
    """Checks the properties of every codec on one: NaNs and infinities show, any bytes decode, every length comes back,
    cut at a multiple of its alignment it gives the same bits, and more (`arlab check-codec --help`)."""
    report, verdict, _ = _arlab.ask("check-codec", {"codec": codec, **given}, None)
    return CodecCheck({**report, "codec": codec, "passed": verdict is None, "violation": verdict})


@asks("vectors")
def vectors(codec: str | None, folder: str | Path, **given: Any) -> DataFrame:
    """Writes golden vectors of a codec, for a user's kernel, to a new or empty folder: payloads, wires, decoded values,
    a manifest with hashes. Returns the cases, a row each; of a pack, of which the codec may be None, or a check, one
    row that says what was done."""
    report = ask("vectors", {"folder": folder, "codec": codec, **given})
    return frame(report["cases"] if "cases" in report else [report])
