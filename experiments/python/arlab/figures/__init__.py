"""Figures of arlab's results, for notebooks and papers.

    frame = arlab.figures.read_results("results/main/results.csv")     a study as a pandas.DataFrame
    arlab.figures.pareto(frame, highlight=["qr-q4"], width="column")   a matplotlib Figure
    arlab.figures.save(figure, "pareto.pdf")                           equal figures give equal bytes

Every function that draws takes data and returns a matplotlib.figure.Figure, without pyplot's global state; `width` is
screen, page (7 in) or column (3.3 in). `python -m arlab.figures --help` draws the same from the command line. Needed
are matplotlib, pandas, adjustText and Jinja2, but not arlab's compiled part.
"""

import importlib

_PLACES = {
    "tables": ("InputError", "read_results", "read_sweep"),
    "style": ("save",),
    "pages": ("report",),
    "spreads": ("error_bars",),
    "model_times": (
        "divergence_over_speedup", "divergence_over_sqnr", "pays_below", "read_model_times", "speedup_over_link",
    ),
    "study": ("error_by_codec", "error_by_ranks", "error_by_tensor", "pareto"),
    "sweep": (
        "bandwidth_over_size", "best_method_by_size", "latency_over_size", "machines_heat_map", "speedup_over_library",
    ),
    "selections": ("read_selection", "selection"),
    "timelines": ("read_trace", "timeline"),
    "topologies": ("read_topology", "topology"),
    "validations": ("read_validation", "validation"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name):
    if name in _MODULES:
        return getattr(importlib.import_module(f"arlab.figures.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'arlab.figures' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
