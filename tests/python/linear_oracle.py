"""Quantized linear layers in NumPy, from reference/layers/SPEC.md alone."""

import ml_dtypes
import numpy as np

f32 = np.float32


def extremes(x, tensor):
    axis = None if tensor else 1
    low, high = np.minimum(x.min(axis=axis), 0), np.maximum(x.max(axis=axis), 0)
    return (np.broadcast_to(np.asarray(each, f32).reshape(-1, 1), (len(x), 1)) for each in (low, high))


def usable(x, tensor):
    """Returns, by row, whether all that shares a scale with it is finite."""
    rows = np.isfinite(x).all(1, keepdims=True)
    return np.broadcast_to(rows.all(), rows.shape) if tensor else rows


def quotients(x, scale):
    """x / scale, and 0 where a scale of 0 or NaN has no codes."""
    return np.where(scale > 0, x / np.where(scale > 0, scale, f32(1)), f32(0))


def int8(x, asymmetric, tensor, given=None):
    """Codes, scale and zero point of each row."""
    finite = usable(x, tensor and given is None)
    x = np.where(finite, x, f32(0))
    low, high = extremes(x, tensor)
    if given is not None:
        scale, zero = np.full_like(low, given[0]), np.full_like(low, given[1])
    elif asymmetric:
        scale = high / f32(255) - low / f32(255)
        zero = np.where(scale > 0, np.minimum(np.rint(f32(-128) - quotients(low, scale)), 127), 0)
    else:
        scale = np.maximum(-low, high) / f32(127)
        zero = np.zeros_like(scale)
    codes = np.clip(np.rint(quotients(x, scale)) + zero, -128 if asymmetric else -127, 127)
    zero = np.where(finite, zero, 0)
    return np.where(finite, codes, 0).astype(np.int64), np.where(finite, scale, f32(np.nan)), zero.astype(np.int64)


def fp8(x, tensor, given=None):
    finite = usable(x, tensor and given is None)
    x = np.where(finite, x, f32(0))
    low, high = extremes(x, tensor)
    scale = np.maximum(-low, high) / f32(448) if given is None else np.full_like(low, given[0])
    codes = np.clip(quotients(x, scale), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(f32)
    return codes, np.where(finite, scale, f32(np.nan))


def int4(w, group, asymmetric):
    decoded = np.empty_like(w)
    for at in range(0, w.shape[1], group):
        part = w[:, at : at + group]
        finite = usable(part, tensor=False)
        part = np.where(finite, part, f32(0))
        low, high = extremes(part, tensor=False)
        exact = high / f32(15) - low / f32(15) if asymmetric else np.maximum(-low, high) / f32(7)
        scale = np.minimum(exact, f32(65504)).astype(np.float16).astype(f32)
        zero = np.minimum(np.rint(quotients(-low, scale)), 15) if asymmetric else f32(0)
        codes = np.clip(np.rint(quotients(part, scale)) + zero, *((0, 15) if asymmetric else (-7, 7)))
        decoded[:, at : at + group] = np.where(finite, (codes - zero) * scale, f32(np.nan))
    return decoded


def parsed(name):
    kind, *words = name.split("-")
    return kind, "asym" in words, "tensor" in words, next((int(word[1:]) for word in words if word[0] == "g"), None)


@np.errstate(all="ignore")
def decoded(x, name, given):
    kind, asymmetric, tensor, group = parsed(name)
    if kind == "int4":
        return int4(x, group, asymmetric)
    if kind == "int8":
        codes, scale, zero = int8(x, asymmetric, tensor, given)
        return (codes - zero).astype(f32) * scale
    if kind == "fp8":
        values, scale = fp8(x, tensor, given)
        return values * scale
    return x.astype({"none": f32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]).astype(f32)


def fused(a, b, c):
    """RN(a b + c) of float32. The product is exact in float64; the sum is rounded to odd there, so that the rounding to
    float32, which has fewer than half of the bits, is as if it were the only one."""
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c
    of_c = total - product
    left = (product - (total - of_c)) + (c - of_c)  # the addition's loss, exactly
    inexact = np.isfinite(total) & (left != 0)
    even = total.view(np.int64) & 1 == 0
    return np.where(inexact & even, np.nextafter(total, np.where(left > 0, np.inf, -np.inf)), total).astype(f32)


@np.errstate(all="ignore")
def layer(x, w, activations, weights, given=None, part=slice(None)):
    """float32. x has a part of the inputs, w has all."""
    of_x, of_w = parsed(activations), parsed(weights)
    total = np.zeros((len(x), len(w)), f32)
    if of_x[0] == of_w[0] == "int8":
        p, x_scale, x_zero = int8(x, of_x[1], of_x[2], given)
        q, w_scale, w_zero = int8(w, of_w[1], of_w[2])
        return (((p - x_zero) @ (q - w_zero)[:, part].T).astype(f32) * w_scale.T) * x_scale
    if of_x[0] == of_w[0] == "fp8":
        p, x_scale = fp8(x, of_x[2], given)
        q, w_scale = fp8(w, of_w[2])
        for i in range(x.shape[1]):
            total += p[:, i : i + 1] * q[:, part][:, i]
        return total * w_scale.T * x_scale
    p, q = decoded(x, activations, given), decoded(w, weights, None)[:, part]
    for i in range(x.shape[1]):
        total = fused(p[:, i : i + 1], q[:, i], total)
    return total
