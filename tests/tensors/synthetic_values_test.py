"""Synthetic tensors are what their names say.

The inputs are fixed, so a test either always passes or never; a right generator misses the bounds once in 1000 or more.
"""

import math
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "tensor_files_program"
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


@pytest.fixture
def synthetic(tmp_path):
    def make(spec, ranks, elements, dtype="fp32"):
        """[ranks, elements] in the dtype."""
        subprocess.run([PROGRAM, "synthetic", spec, dtype, str(ranks), str(elements), tmp_path / "out.npy"], check=True)
        return np.load(tmp_path / "out.npy").view(TYPES[dtype])

    return make


# ---------------------------------------------------------------- statistics


def normal(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def laplace(x):
    tail = math.exp(-abs(x) / 2) / 2
    return tail if x < 0 else 1 - tail


def student_t(nu):
    def distribution(t):
        x = t / math.sqrt(nu)
        y = 1 + x * x
        if nu <= 4:
            arc = math.atan(x) / math.pi
            return 0.5 + {1: arc, 2: x / math.sqrt(y) / 2, 3: x / y / math.pi + arc, 4: x / math.sqrt(y) * (0.75 - x * x / y / 4)}[nu]
        return normal(t * (1 - 0.25 / nu) / math.sqrt(1 + t * t / (2 * nu)))  # nearly

    return distribution


def kolmogorov_smirnov(values, theory):
    """The largest distance of the sample's distribution from the theory's, times sqrt(n); 1.95 has probability 0.001."""
    values = np.sort(values.astype(np.float64).reshape(-1))
    n = len(values)
    probability, below = np.fromiter(map(theory, values), float, n), np.arange(n)
    return max((probability - below / n).max(), ((below + 1) / n - probability).max()) * math.sqrt(n)


@pytest.mark.parametrize(
    "spec, ranks, elements, theory",
    [
        ("gaussian", 4, 1 << 17, normal),
        ("gaussian:seed=123456789", 1, 1 << 19, normal),
        ("laplace:b=2", 4, 1 << 17, laplace),
        *((f"student-t:nu={nu}", 2, 1 << 18, student_t(nu)) for nu in (1, 2, 3, 4)),
        ("student-t:nu=100", 1, 1 << 16, student_t(100)),
        ("uniform:low=-3,high=5", 4, 1 << 17, lambda x: (x + 3) / 8),
    ],
)
def test_distributions(synthetic, spec, ranks, elements, theory):
    assert kolmogorov_smirnov(synthetic(spec, ranks, elements), theory) < 1.95


def test_channels_of_outliers_vary_like_the_others(synthetic):
    values = synthetic("outliers:row=64,count=64,magnitude=1000", 2, 1 << 18)
    # fp32 near 1000 has steps of 6e-5, far below what 2^19 values resolve.
    assert kolmogorov_smirnov(values - np.copysign(np.float32(1000), values), normal) < 1.95


def test_gaussian_moments_and_tails(synthetic):
    x = synthetic("gaussian:sigma=2", 8, 1 << 21).astype(np.float64).reshape(-1) / 2
    # Standard errors of the moments of n standard normals: sqrt(1, 2, 15, 96 / n).
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 3.3 * math.sqrt(variance / len(x)), power
    for sigmas in range(1, 6):
        expected = len(x) * normal(-sigmas)
        for beyond in (x < -sigmas, x > sigmas):
            assert abs(beyond.sum() - expected) < 3.3 * math.sqrt(expected), sigmas


def test_neighbours_ranks_and_seeds_are_uncorrelated(synthetic):
    n = 1 << 19
    (one, rank1), (two,) = (synthetic(spec, ranks, n).astype(np.float64) for spec, ranks in (("gaussian", 2), ("gaussian:seed=2", 1)))
    pairs = [(one, rank1), (one, two), *((one[:-lag], one[lag:]) for lag in (1, 2, 8, 32, 64, 4096))]
    for a, b in pairs:
        assert abs((a @ b) / math.sqrt((a @ a) * (b @ b))) < 3.3 / math.sqrt(n)


def wide(x):
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return x.astype(np.float64)


# ---------------------------------------------------------------- what has a place


def test_sweep_grows_geometrically_from_low_to_high(synthetic):
    blocks = np.abs(synthetic("sweep:low=0.01,high=100", 2, 64 * 101)[0]).reshape(101, 64)
    amplitudes = 10 ** (-2 + 4 * np.arange(101) / 100)
    assert (blocks <= amplitudes[:, None] * (1 + 1e-6)).all() and (blocks.max(1) > amplitudes * 0.8).all()
    assert synthetic("sweep:low=3,high=3", 1, 10).size == 10


def test_outliers_stay_in_their_channels(synthetic):
    rows = synthetic("outliers:row=384,count=5,magnitude=100", 3, 384 * 40).reshape(-1, 384)
    signs = (np.sign(rows) * (np.abs(rows) >= 50)).sum(0)
    assert sorted(np.abs(signs)) == [0] * 379 + [3 * 40] * 5
    assert (np.abs(synthetic("outliers:row=7,count=7", 1, 700)) > 50).all(), "in every channel"
    assert (synthetic("outliers:row=7,count=0", 1, 700) == synthetic("gaussian", 1, 700)).all(), "or in none"


def test_a_constant_is_the_value(synthetic):
    assert (synthetic("constant:value=-2.5", 2, 5, "fp16") == -2.5).all()


def test_patterns_are_all_patterns_in_order(synthetic):
    for dtype in ("fp16", "bf16"):
        found = synthetic("patterns", 3, 65536 + 10, dtype).view(np.uint16)
        for rank in (0, 2):
            assert (found[rank] == (np.arange(65536 + 10) + rank * 8191) % 65536).all()
    assert synthetic("patterns:seed=5", 1, 65536).view(np.uint32)[0, 1] == 0x00050000


@pytest.mark.parametrize("dtype", TYPES)
def test_adversarial_holds_every_class(synthetic, dtype):
    x = synthetic("adversarial", 2, 64 * 2000, dtype)
    about, values = ml_dtypes.finfo(TYPES[dtype]), wide(x)
    size = np.abs(values)
    subnormal = (size > 0) & (size < float(about.smallest_normal))
    for some in (np.isnan(values), np.isinf(values), size == 0, subnormal, np.isfinite(size) & (size >= float(about.smallest_normal))):
        assert some.sum() > 30
    assert ((values == 0) & np.signbit(values)).sum() > 1000 and (size == float(about.max)).sum() > 1000

    def non_finite_blocks(of):
        return (~np.isfinite(wide(of)).reshape(-1, 64).all(1)).sum()

    assert abs(non_finite_blocks(x) - 0.05 * 4000) <= 70
    for share, blocks in ((0, 0), (1, 2000)):
        assert non_finite_blocks(synthetic(f"adversarial:non_finite={share}", 2, 64000, dtype)) == blocks


@pytest.mark.parametrize("dtype", TYPES)
def test_adversarial_holds_ties_of_integer_codecs(synthetic, dtype):
    """An integer codec of L levels divides such a block by |min| / L, and meets n + 1/2 everywhere."""
    blocks = synthetic("adversarial", 1, 64 * 1000, dtype)
    blocks = blocks.astype(np.float32).reshape(1000, 64)
    ties = np.zeros(1000, bool)
    with np.errstate(all="ignore"):
        for levels in (4, 8, 32, 128):
            quotients = blocks[:, 2:] / (-blocks[:, :1] / np.float32(levels))
            ties |= ((np.abs(quotients) < levels) & (quotients - np.floor(quotients) == 0.5)).all(1)
    assert abs((ties & (blocks[:, 0] < 0)).sum() - 0.95 * 1000 / 13) <= 30
