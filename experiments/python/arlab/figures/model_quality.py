"""What compression does to a language model, over what it does to the sums."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.tables import InputError

COLUMNS = ("ranks", "algorithm", "codec", "dtype", "token_sqnr_db", "mean_kl")


@style.drawn
def divergence_over_sqnr(frame: pd.DataFrame, named: pd.DataFrame | None = None, highlight: Sequence[str] = ()) -> Figure:
    """KL divergence of a model over the SQNR of its sums: a point per compressed run of `arlab model perplexity`.

    Args:
        frame: with the columns ranks, algorithm, codec, dtype, token_sqnr_db (of the median token) and mean_kl (nats).
        named: the rows whose codec is written beside the point; by default all.

    Raises InputError where a column is missing or there is nothing to draw.
    """
    if missing := [name for name in COLUMNS if name not in frame]:
        raise InputError(f"a column {missing[0]} is missing; needed are {', '.join(COLUMNS)}")
    rows = frame[(frame["mean_kl"] > 0) & frame["token_sqnr_db"].notna() & ~frame["codec"].isin(style.UNCOMPRESSED)]
    if rows.empty:
        raise InputError("no row has a mean_kl above 0 and a token_sqnr_db")
    algorithms = list(dict.fromkeys(rows["algorithm"]))
    looks = {name: style.algorithm_look(name, algorithms) for name in algorithms}
    rank = rows["token_sqnr_db"].rank().corr(rows["mean_kl"].rank())
    title = f"The SQNR of its sums says how far a model is off, and not which codec is better (rank correlation {rank:.2f})"
    legend = [style.handle(name, **look) for name, look in looks.items()]
    notes = ["Right: little noise in the sums. Down: little change of the model. Uncompressed codecs are left out."]
    page = style.new_page(title, "KL divergence from the uncompressed model, over the SQNR of the median token of all sums", notes, style.provenance(frame), [legend], 5.6)
    axes = page.subplots()
    axes.grid()
    style.log_axis(axes.yaxis, list(rows["mean_kl"]))
    axes.set(xlabel="SQNR of the median token of all sums (dB)", ylabel="mean KL divergence (nats)")
    for name, look in looks.items():
        mine = rows[rows["algorithm"] == name]
        axes.plot(mine["token_sqnr_db"], mine["mean_kl"], linestyle="", alpha=0.8, **look)
    labels = (rows if named is None else named).drop_duplicates("codec")
    low, high = rows["token_sqnr_db"].min(), rows["token_sqnr_db"].max()
    axes.set_xlim(low - 0.05 * (high - low), high + 0.15 * (high - low))
    points = [
        (row.token_sqnr_db, row.mean_kl, row.codec, style.HIGHLIGHT if row.codec in highlight else style.INK, "right")
        for row in labels.itertuples()
    ]
    style.label_points(axes, points, list(zip(rows["token_sqnr_db"], rows["mean_kl"], strict=True)))
    return page
