"""The C++ microscaling codecs against the oracle: every wire byte, decoded bit and count. No tolerance."""

from fractions import Fraction

import numpy as np
import pytest

import microscaling_oracle
import oracle_testing
from microscaling_oracle import E2M1, E4M3, ELEMENTS, NVFP4, F
from oracle_testing import check, check_any_wire, check_every_length, patterns, payload
from wire_oracle import PAYLOADS

NAMES = [name + rule for name in ELEMENTS for rule in ("", "-ceil", "-even", "-rceil")] + [
    "mxfp4-floor",
    "mxfp8-e5m2-floor",
    "mxint8",
]
FP8_NAMES = [f"fp8-e4m3-g{block}{rule}" for block in (64, 128, 256) for rule in ("", "-torch")]
FP8_NAMES += ["fp8-e4m3-g128-ue8m0"]
NAMES += [*FP8_NAMES, "fp8-e4m3-g64-torch-stoch", "fp8-e4m3-g128-stoch", "fp8-e4m3-g256-stoch"]
ROWS = ["fp8-e4m3-token100", "fp8-e4m3-static0.02", "nvfp4-g160-flashinfer"]
NAMES += [*ROWS, "nf4-g32", "nf4-g64", "e4m3b15-g128"]
NV_NAMES = ["nvfp4", "nvfp4-vllm", "nvfp4-te", "nvfp4-te-4over6", "nvfp4-ts448", "nvfp4-vllm-ts0.3", "nvfp4-ts1e-35", "nvfp4-vllm-ts3e+35"]
SHORT = ["mxfp8-e4m3", "mxfp6-e2m3", "mxfp6-e3m2-even", "mxfp4", "mxfp4-ceil", "mxfp4-rceil"]
SHORT += ["mxint8", *FP8_NAMES, *ROWS, "fp8-e4m3-g128-stoch", "nf4-g64", "nvfp4", "nvfp4-vllm", "nvfp4-te", "nvfp4-te-4over6", "nvfp4-ts0.3"]

each_dtype = pytest.mark.parametrize("dtype", PAYLOADS)


@each_dtype
@pytest.mark.parametrize("name", NAMES)
def test_wires_values_and_counts(name, dtype):
    check(microscaling_oracle.find(name), dtype, payload(dtype), name)


@each_dtype
@pytest.mark.parametrize("name", NV_NAMES)
def test_nvfp4_messages(name, dtype):
    """The largest number of a message sets its scale, so each stretch is one, and all of them together."""
    codec = microscaling_oracle.find(name)
    check(codec, dtype, payload(dtype), "all")
    for start in range(0, len(payload(dtype)), 1 << 13):
        x = payload(dtype)[start : start + (1 << 13)]
        check(codec, dtype, x, f"from {start}")


@each_dtype
@pytest.mark.parametrize("name", NV_NAMES)
def test_nvfp4_extremes(name, dtype):
    """Tensor scales at their bound and at 1, block scales that vanish, NaNs beside finite elements."""
    codec = microscaling_oracle.find(name)
    tiny = 2.0 ** oracle_testing.exponents(dtype)[0]
    ramp = np.linspace(-1, 1, 64)
    for what, values in {
        "zeros": [0.0, -0.0] * 20,
        "only NaN": [np.nan] * 20,
        "infinities and zeros": [np.inf, 0.0] + [0.0] * 30,
        "NaN beside the largest": [np.nan, 100.0] + [1.0] * 30,
        "tiny": ramp * tiny * 50,
        "small": ramp * 2.0**-115,
        "small and large": np.concatenate([ramp * tiny, ramp * oracle_testing.largest(dtype)]),
        "2^20 apart": np.concatenate([ramp, ramp * 2.0**-20, ramp * 2.0**-11, ramp * 2.0**-17]),
    }.items():
        check(codec, dtype, patterns(dtype, values), what)


def powers_and_neighbours(dtype):
    """[blocks, 32] with largest elements at and beside the points where a scale's exponent changes."""
    low, high = oracle_testing.exponents(dtype)
    marks = np.array([1, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875, 1.9999])
    tops = patterns(dtype, (2.0 ** np.arange(low, high + 1)[:, None] * marks).reshape(-1))
    tops = oracle_testing.finite(
        dtype, np.concatenate([tops, tops + tops.dtype.type(1), tops - tops.dtype.type(1)])
    )
    share = np.random.default_rng(5).uniform(-1, 1, (len(tops), 31))
    values = np.abs(PAYLOADS[dtype].to_fp32(tops)).astype(np.float64)
    return np.concatenate([tops[:, None], patterns(dtype, share * values[:, None])], 1)


@each_dtype
@pytest.mark.parametrize("name", NAMES)
def test_scales_change_at_the_right_maximum(name, dtype):
    check(microscaling_oracle.find(name), dtype, powers_and_neighbours(dtype).reshape(-1), name)


@each_dtype
@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_at_the_middles(name, dtype):
    """All middles of a format and the patterns beside, in blocks whose first element fixes the scale."""
    element = ELEMENTS[name]
    values = np.unique(np.abs(finite_values(element)))
    middles = (values[1:] + values[:-1]) / 2
    for exponent in (0, -3, 4):
        x = patterns(dtype, np.outer([1, -1], middles * 2.0**exponent))
        x = np.concatenate([x, x + x.dtype.type(1), x - x.dtype.type(1)], 1).reshape(-1)
        rows = np.resize(x, (-(-len(x) // 31), 31))
        top = np.full((len(rows), 1), patterns(dtype, element.largest * 2.0**exponent))
        check(
            microscaling_oracle.find(name), dtype, np.concatenate([top, rows], 1).reshape(-1), f"2^{exponent}"
        )


@pytest.mark.parametrize("name", SHORT)
def test_every_length(name):
    check_every_length(microscaling_oracle.find(name))


@each_dtype
@pytest.mark.parametrize("name", [*ELEMENTS, "mxint8", *FP8_NAMES, *ROWS, "nf4-g64", "e4m3b15-g32", *NV_NAMES])
def test_any_wire_decodes(name, dtype):
    """Elements that are NaN or infinite, extreme and negative scales."""
    codec = microscaling_oracle.find(name)
    if name in ROWS:
        return check_any_wire(codec, dtype, None, headers=())
    scales = (1, 0, -0.0, -3, np.nan, np.inf, 2.0**-149, 2.0**118, 3e38) if getattr(codec, "header_bytes", 0) else ()
    check_any_wire(codec, dtype, codec.layout, [np.array(g, "<f4").tobytes() for g in scales] or [b""])


# The oracle itself, against numbers from elsewhere.


def finite_values(element):
    codes = np.arange(1 << element.bits, dtype=np.uint8)
    values = element.values(codes).astype(np.float64)
    return values[np.isfinite(values)]


@pytest.mark.parametrize(
    "name, exponent_bits, bias",
    [
        ("mxfp8-e4m3", 4, 7),
        ("mxfp8-e5m2", 5, 15),
        ("mxfp6-e2m3", 2, 1),
        ("mxfp6-e3m2", 3, 3),
        ("mxfp4", 2, 1),
    ],
)
def test_element_formats_are_ocps(name, exponent_bits, bias):
    element = ELEMENTS[name]
    m = element.mantissa
    for code in range(1 << element.bits):
        sign, exponent, fraction = (
            code >> (element.bits - 1),
            code >> m & ((1 << exponent_bits) - 1),
            code & ((1 << m) - 1),
        )
        significand = fraction + ((1 << m) if exponent else 0)
        expected = (-1) ** sign * significand * 2.0 ** (max(exponent, 1) - bias - m)
        value = float(element.values(np.array([code], np.uint8))[0])
        if abs(expected) > element.largest:
            assert not np.isfinite(value)
        else:
            assert value == expected and np.signbit(value) == bool(sign)
    assert finite_values(element).max() == element.largest


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=list(ELEMENTS))
def test_elements_round_to_nearest_even_and_saturate(element):
    """ml_dtypes beside a search among all values, at all middles, beside them, and anywhere."""
    codes = np.arange(1 << (element.bits - 1), dtype=np.uint8)
    values = element.values(codes)
    values = values[np.isfinite(values)].astype(np.float64)  # rising, code by code
    middles = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    random = np.random.default_rng(3)
    anything = np.abs(random.normal(size=20000).astype(np.float32)) * np.exp2(
        random.integers(-30, 20, 20000)
    ).astype("f4")
    x = np.concatenate(
        [middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9)), anything]
    )
    above = np.minimum(np.searchsorted(values, x), len(values) - 1)
    below = np.maximum(above - 1, 0)
    up, down = values[above] - x, x - values[below]  # exact
    nearest = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    nearest[x >= element.largest] = len(values) - 1
    rounded, outside = element.round(np.concatenate([x, -x]))
    assert (rounded[: len(x)] == nearest).all()
    assert (rounded[len(x) :] == nearest | 1 << (element.bits - 1)).all()
    one_more = 2 * x.astype(np.float64) - (element.largest + element.next)
    assert (outside[: len(x)] == ((one_more > 0) | ((one_more == 0) & (not element.tie_stays)))).all()
    assert element.tie_stays == (len(values) % 2 == 1)


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=list(ELEMENTS))
def test_rceil_in_exact_arithmetic(element):
    """The least power of two from 2^-127 on that is not below the rounded quotient."""
    x = np.random.default_rng(6).integers(1, 0x7F800000, 300).astype(np.uint32)
    # Quotients at and beside 2^-127 and 2^-126, too, and all that are smaller.
    edges = [int(np.float32(element.largest * 2.0**power).view(np.uint32)) for power in (-128, -127, -126)]
    tiny = [edge + step for edge in edges for step in range(-4, 5)] + list(range(1, 40))
    x = np.concatenate([x, tiny, np.arange(1, 255) << 23, (np.arange(1, 255) << 23) + 0x400000]).astype(np.uint32)
    actual = microscaling_oracle.scale_exponent(x.view(np.float32), "rceil", element)
    for value, exponent in zip(x.view(np.float32), actual):
        quotient = fp32_of(Fraction(float(value)) / Fraction(element.largest))
        wanted = next(power for power in range(-127, 128) if quotient <= Fraction(2) ** power)
        assert exponent == wanted, (value, quotient)
    assert set(actual[300 : 300 + len(tiny)]) == {-127, -126, -125}


def test_rceil_of_tiny_blocks():
    """bf16 1.11e-38: its quotient is below 2^-127, so the scale is the smallest there is."""
    for pattern, scale in ((0x00F2, 0), (0x04B2, 1)):
        wire = microscaling_oracle.find("mxfp8-e4m3-rceil").encode("bf16", np.full(32, pattern, np.uint16))
        assert wire[32:].tolist() == [scale]


def fp32_of(exact):
    """RN of a fraction >= 0 to fp32, subnormals too, as a fraction."""
    unit = Fraction(2) ** max(floor_log2(exact) - 23, -149)
    return round(exact / unit) * unit


@pytest.mark.parametrize("rule", ["floor", "ceil", "even"])
@pytest.mark.parametrize("element", ELEMENTS.values(), ids=list(ELEMENTS))
def test_scale_exponents_in_exact_arithmetic(element, rule):
    x = np.random.default_rng(4).integers(1, 0x7F800000, 300).astype(np.uint32)
    x = np.concatenate(
        [x, np.arange(1, 40), np.arange(1, 255) << 23, (np.arange(1, 255) << 23) + 0x700000]
    ).astype(np.uint32)
    x = x.view(np.float32)
    for value, actual in zip(x, microscaling_oracle.scale_exponent(x, rule, element)):
        exact = Fraction(float(value))
        exponent = floor_log2(exact)
        if rule == "ceil" and exact != Fraction(2) ** exponent:
            exponent += 1
        if rule == "even" and value >= 2.0**-126:
            unit = Fraction(2) ** (exponent - element.mantissa)
            exponent = floor_log2((exact / unit + Fraction(1, 2)).__floor__() * unit)
        assert actual == min(max(exponent - element.emax, -127), 127)


def floor_log2(x):
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= x else exponent - 1


def test_emax():
    assert [element.emax for element in ELEMENTS.values()] == [8, 15, 2, 4, 2]


def test_mxfp4_by_hand():
    """amax 7 = 1.75 * 2^2: exponent 0 and a clamped 7 by floor, 1 by ceil, 1 by even (7 rounds to 8)."""
    x = patterns("bf16", [7, -6.5, 2.5, -0.25, 0.75, -0.0, 5, 3.5])
    wire, clamped = microscaling_oracle.find("mxfp4").encode_and_count("bf16", x)
    assert clamped == 1
    assert wire.tolist() == [0xF7, 0x84, 0x82, 0x66, 127]
    for rule in ("ceil", "even"):
        wire, clamped = microscaling_oracle.find("mxfp4-" + rule).encode_and_count("bf16", x)
        assert clamped == 0
        assert wire.tolist() == [0xD6, 0x82, 0x81, 0x44, 128]


def test_special_blocks_by_hand():
    zeros = patterns("fp16", [0, -0.0] * 4)
    assert microscaling_oracle.find("mxfp6-e2m3").encode("fp16", zeros).tolist() == [0] * 7
    assert microscaling_oracle.find("nvfp4").encode("fp16", zeros).tolist() == [0, 0, 0x80, 0x3F] + [0] * 5
    spoilt = patterns("fp16", [1, np.inf])
    assert microscaling_oracle.find("mxfp8-e4m3").encode("fp16", spoilt).tolist() == [0, 0, 0xFF]
    wire = microscaling_oracle.find("nvfp4").encode("fp16", spoilt)
    assert wire.tolist() == [*np.array([2688], "<f4").tobytes(), 0, 0x7F]
    for name in ("mxfp8-e4m3", "nvfp4"):
        wire = microscaling_oracle.find(name).encode("fp16", spoilt)
        assert microscaling_oracle.find(name).decode("fp16", wire, 2).tolist() == [0x7E00] * 2


def test_nvfp4_tensor_scale_is_bounded():
    wire = microscaling_oracle.find("nvfp4").encode("fp32", np.array([1], np.uint32))
    assert wire[:4].view("<f4")[0] == 2.0**118
    assert wire[4:].tolist() == [0, 0]  # the block's scale vanishes


def fp32(exact):
    return F(float(fp32_of(exact)))


def fraction(value):
    return Fraction(float(value))


def test_fp8_blocks_round_where_deepep_and_torch_do():
    """Scale and factor as fractions, rounded by hand, and that they differ."""
    others = np.zeros(2, int)
    for a in np.random.default_rng(8).uniform(0.001, 8, 200).astype(np.float32):
        exact = fraction(a)
        kernel = (fp32(exact * fraction(fp32(Fraction(1, 448)))), fp32(448 / exact))
        torch = (fp32(exact / 448), fp32(fraction(fp32(1 / exact)) * 448))
        x = np.resize(np.float32([a, -a / 3, a / 7, a / 1000]), 64)
        for name, (scale, factor) in (("fp8-e4m3-g64", kernel), ("fp8-e4m3-g64-torch", torch)):
            wire = microscaling_oracle.find(name).encode("fp32", x.view(np.uint32))
            products = np.float32([fp32_signed(fraction(v) * fraction(factor)) for v in x])
            assert wire[64:].view("<f4")[0] == scale
            assert wire[:64].tolist() == np.minimum(products, F(448)).astype(E4M3).view(np.uint8).tolist()
        others += [kernel[0] != torch[0], kernel[1] != torch[1]]
    assert (others > 50).all()


def fp32_signed(exact):
    return -fp32(-exact) if exact < 0 else fp32(exact)


def test_fp8_blocks_by_hand():
    """3.0: DeepEP's kernel sends 3BDB6DB8, torch on a CPU 3BDB6DB7. Below 1e-4 the scale is that of 1e-4."""
    x = patterns("fp16", [3.0] * 128)
    assert microscaling_oracle.find("fp8-e4m3-g128").encode("fp16", x)[128:].tolist() == [0xB8, 0x6D, 0xDB, 0x3B]
    assert microscaling_oracle.find("fp8-e4m3-g128-torch").encode("fp16", x)[128:].tolist() == [0xB7, 0x6D, 0xDB, 0x3B]
    for name in FP8_NAMES:
        if name.endswith("-ue8m0"):  # takes the maximum as it is
            continue
        small = [microscaling_oracle.find(name).encode("fp32", patterns("fp32", [v])) for v in (0, 1e-6, 1e-4)]
        assert len({wire[1:].tobytes() for wire in small}) == 1 and small[0][0] == 0


def test_vllm_rounds_where_its_kernel_does():
    """Every product and reciprocal of the kernel as a fraction, rounded by hand; some factors differ from nvfp4's."""
    rng = np.random.default_rng(9)
    others = 0
    for x in rng.uniform(0.1, 8, (300, 16)).astype(np.float32):
        amax = x.max()
        g = fp32(2688 / fraction(amax))
        sixth = fp32(Fraction(1, 6))
        s = fp32(fraction(g) * fraction(fp32(fraction(amax) * fraction(sixth)))).astype(E4M3)
        inverse = fp32(1 / fraction(g))
        factor = fp32(1 / fraction(fp32(fraction(s) * fraction(inverse))))
        products = np.array([fp32(fraction(v) * fraction(factor)) for v in x])
        wire = microscaling_oracle.find("nvfp4-vllm").encode("fp32", x.view(np.uint32))
        assert wire[:4].view("<f4")[0] == g and wire[-1] == s.view(np.uint8)
        codes = E2M1.round(products)[0]
        assert wire[4:12].tolist() == (codes[::2] | codes[1::2] << 4).tolist()
        others += factor != fp32(fraction(g) / fraction(s))
    assert others > 20


def test_a_given_tensor_scale_is_not_on_the_wire():
    """g = 448 is the message's own; a block that is larger saturates, beside it nothing changes."""
    x = [6, -4, 3, 2, 1.5, -1, 0.5, 0] + [0] * 8 + [3, -0.25, 1.5, 0.75]
    found = microscaling_oracle.find("nvfp4").encode("fp32", patterns("fp32", x))
    given = microscaling_oracle.find("nvfp4-ts448").encode("fp32", patterns("fp32", x))
    assert given.tolist() == found[4:].tolist()
    wire, clamped = microscaling_oracle.find("nvfp4-ts448").encode_and_count("fp32", patterns("fp32", [*x, 12]))
    assert clamped == 1 and wire[:8].tolist() == found[4:12].tolist() and wire[-1] == 0x7E
    decoded = microscaling_oracle.find("nvfp4-ts448").decode("fp32", wire, len(x) + 1)
    assert PAYLOADS["fp32"].to_fp32(decoded)[-1] == 6


def test_nvfp4_block_scales_are_e4m3():
    assert (
        float(np.uint8(0x7E).view(E4M3)) == 448
        and E2M1.largest * 448 == 2688
        and NVFP4("nvfp4").name == "nvfp4"
    )
