"""How far figures spread: medians, quartiles and bootstrap intervals over tensors, texts and seeds, as pandas tables.

    results = arlab.figures.read_results("results/main/results.csv")
    arlab.statistics.summarize(results, ["algorithm", "codec"], "sqnr_db", unit=["input", "tensor"])

Nothing here needs arlab's compiled part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np
from numpy.typing import NDArray

from arlab._errors import ArgumentError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["bootstrap_interval", "summarize"]


def bootstrap_interval(
    values: NDArray[np.float64],
    units: NDArray[np.int64] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[float, float]:
    """An interval that the median lies in, by the percentile bootstrap (Efron 1979): equal arguments give equal bits.

    Args:
        values: one dimension; infinite ones are allowed (an exact result has an infinite SQNR), NaN is not.
        units: what was drawn independently of each other, a number for each value: values of one unit (of one tensor, at
            several numbers of ranks, say) are drawn together. By default each value is its own.
        confidence: of the interval. resamples: how often the units are drawn with replacement.

    Returns (low, high); both are the median where there is one unit, which says nothing about others.
    """
    if np.isnan(values).any():
        raise ArgumentError("values: NaN is not allowed; leave such values out")
    names, units = np.unique(np.arange(len(values)) if units is None else units, return_inverse=True)
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.integers(len(names), size=(resamples, len(names)))
    if len(names) == len(values):
        medians = np.median(values[np.argsort(units)][drawn], axis=1)
    else:
        members = [values[units == unit] for unit in range(len(names))]
        medians = np.array([np.median(np.concatenate([members[unit] for unit in each])) for each in drawn])
    # No value between two: the mean of a finite and an infinite one would be infinite, of two infinite ones none.
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf")
    return float(low), float(high)


def summarize(
    frame: DataFrame,
    by: str | Sequence[str],
    value: str,
    *,
    unit: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> DataFrame:
    """Median, quartiles and a bootstrap interval of the median of a column, for each group.

    Args:
        frame: a row for each measurement, such as arlab.study() and arlab.figures.read_results() give.
        by: columns that name a group, in whose first order of appearance the result is.
        value: a column of numbers, for example sqnr_db in dB. Rows that have none (NaN) are left out.
        unit: columns that name what was drawn independently (tensor, seed); see bootstrap_interval().

    Returns a row for each group: `by`, count (of values), units, median, lower_quartile, upper_quartile, low, high, in the
    unit of `value`.
    Raises ValueError for columns that are not there and for options outside their range.
    """
    import pandas as pd

    groups = [by] if isinstance(by, str) else list(by)
    of_unit = [] if unit is None else [unit] if isinstance(unit, str) else list(unit)
    missing = [name for name in (*groups, value, *of_unit) if name not in frame]
    if missing:
        raise ArgumentError(f"no column {', '.join(missing)}; there are {', '.join(map(str, frame.columns))}")
    if not groups:
        raise ArgumentError("by is empty; it must name at least one column")
    if not 0 < confidence < 1:
        raise ArgumentError(f"confidence is {confidence}; it must be between 0 and 1")
    if resamples < 1:
        raise ArgumentError(f"resamples is {resamples}; it must be at least 1")
    rows = []
    for names, group in frame[frame[value].notna()].groupby(groups, sort=False, dropna=False):
        values = group[value].to_numpy(np.float64)
        units = group.groupby(of_unit, dropna=False).ngroup().to_numpy() if of_unit else np.arange(len(values))
        low, high = bootstrap_interval(values, units, confidence=confidence, resamples=resamples, seed=seed)
        lower, upper = np.quantile(values, [0.25, 0.75], method="inverted_cdf")
        figures = {"count": len(values), "units": len(np.unique(units)), "median": float(np.median(values))}
        figures |= {"lower_quartile": float(lower), "upper_quartile": float(upper), "low": low, "high": high}
        rows.append(dict(zip(groups, names)) | figures)
    columns = [*groups, "count", "units", "median", "lower_quartile", "upper_quartile", "low", "high"]
    return pd.DataFrame(rows, columns=columns)
