"""arlab.statistics: medians, quartiles and bootstrap intervals that are known beforehand."""

import numpy as np
import pandas as pd
import pytest
from arlab.statistics import bootstrap_interval, summarize


def test_figures_of_each_group():
    frame = pd.DataFrame({"codec": ["b"] * 5 + ["a"] * 4, "sqnr_db": [5, 1, 2, 4, 3, np.inf, np.inf, 7, np.nan]})
    found = summarize(frame, "codec", "sqnr_db")
    assert list(found["codec"]) == ["b", "a"]
    assert list(found["count"]) == [5, 3] and list(found["units"]) == [5, 3]
    first, second = found.to_dict("records")
    assert (first["lower_quartile"], first["median"], first["upper_quartile"]) == (2, 3, 4)
    assert (second["lower_quartile"], second["median"], second["upper_quartile"]) == (7, np.inf, np.inf)
    assert first["low"] <= 3 <= first["high"] and second["high"] == np.inf


def test_the_interval_covers_the_median_as_often_as_it_says():
    generator = np.random.default_rng(3)
    samples = generator.normal(size=(200, 25))
    intervals = [bootstrap_interval(sample, resamples=200) for sample in samples]
    assert 0.88 <= np.mean([low <= 0 <= high for low, high in intervals]) <= 0.99
    narrow = [bootstrap_interval(sample, resamples=200, confidence=0.5) for sample in samples]
    assert 0.38 <= np.mean([low <= 0 <= high for low, high in narrow]) <= 0.66


def test_values_of_one_unit_are_drawn_together():
    generator = np.random.default_rng(4)
    units = np.repeat(np.arange(6), 50)
    values = 10.0 * units + generator.normal(size=300)  # units differ, their values hardly
    apart, together = bootstrap_interval(values), bootstrap_interval(values, units)
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])
    one = bootstrap_interval(values, np.zeros(300, int))
    assert one == (np.median(values), np.median(values))
    frame = pd.DataFrame({"codec": "a", "tensor": units, "input": "x", "sqnr_db": values})
    row = summarize(frame, ["codec"], "sqnr_db", unit=["input", "tensor"]).iloc[0]
    assert (row["low"], row["high"]) == together and row["units"] == 6


def test_equal_arguments_give_equal_bits_and_another_seed_others():
    values = np.random.default_rng(5).normal(size=40)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, resamples=50) != bootstrap_interval(values, resamples=50, seed=2)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"by": "codecs"}, "no column codecs; there are codec, sqnr_db"),
        ({"unit": "tensor"}, "no column tensor"),
        ({"by": []}, "by is empty"),
        ({"confidence": 1}, "confidence is 1; it must be between 0 and 1"),
        ({"resamples": 0}, "resamples is 0; it must be at least 1"),
    ],
)
def test_bad_arguments(options, reason):
    frame = pd.DataFrame({"codec": ["a"], "sqnr_db": [1.0]})
    with pytest.raises(ValueError, match=reason):
        summarize(frame, **({"by": "codec", "value": "sqnr_db"} | options))
    with pytest.raises(ValueError, match="NaN is not allowed"):
        bootstrap_interval(np.array([1.0, np.nan]))
