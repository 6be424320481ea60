"""Quantized linear layers in NumPy, from reference/layers/SPEC.md alone."""

import ml_dtypes
import numpy as np

f32 = np.float32


def extremes(x, tensor):
    axis = None if tensor else 1
    low, high = np.minimum(x.min(axis=axis), 0), np.maximum(x.max(axis=axis), 0)
    return (np.broadcast_to(np.asarray(each, f32).reshape(-1, 1), (len(x), 1)) for each in (low, high))


def int8(x, asymmetric, tensor, given=None):
    """Codes, scale and zero point of each row."""
    low, high = extremes(x, tensor)
    if given is not None:
        scale, zero = np.full_like(low, given[0]), np.full_like(low, given[1])
    elif asymmetric:
        scale = high / f32(255) - low / f32(255)
        zero = np.minimum(np.rint(f32(-128) - low / scale), 127)
    else:
        scale = np.maximum(-low, high) / f32(127)
        zero = np.zeros_like(scale)
    codes = np.clip(np.rint(x / scale) + zero, -128 if asymmetric else -127, 127)
    return codes.astype(np.int64), scale, zero.astype(np.int64)


def fp8(x, tensor, given=None):
    low, high = extremes(x, tensor)
    scale = np.maximum(-low, high) / f32(448) if given is None else np.full_like(low, given[0])
    return np.clip(x / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(f32), scale


def int4(w, group, asymmetric):
    decoded = np.empty_like(w)
    for at in range(0, w.shape[1], group):
        part = w[:, at : at + group]
        low, high = extremes(part, tensor=False)
        exact = high / f32(15) - low / f32(15) if asymmetric else np.maximum(-low, high) / f32(7)
        scale = exact.astype(np.float16).astype(f32)
        zero = np.minimum(np.rint(-low / scale), 15) if asymmetric else f32(0)
        codes = np.clip(np.rint(part / scale) + zero, *((0, 15) if asymmetric else (-7, 7)))
        decoded[:, at : at + group] = (codes - zero) * scale
    return decoded


def parsed(name):
    kind, *words = name.split("-")
    return kind, "asym" in words, "tensor" in words, next((int(word[1:]) for word in words if word[0] == "g"), None)


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


def layer(x, w, activations, weights, given=None, part=slice(None)):
    """x has a part of the inputs, w has all."""
    of_x, of_w = parsed(activations), parsed(weights)
    if of_x[0] == of_w[0] == "int8":
        p, x_scale, x_zero = int8(x, of_x[1], of_x[2], given)
        q, w_scale, w_zero = int8(w, of_w[1], of_w[2])
        return (((p - x_zero) @ (q - w_zero)[:, part].T).astype(f32) * w_scale.T) * x_scale
    if of_x[0] == of_w[0] == "fp8":
        p, x_scale = fp8(x, of_x[2], given)
        q, w_scale = fp8(w, of_w[2])
        total = np.zeros((len(x), len(w)), f32)
        for i in range(x.shape[1]):
            total += p[:, i : i + 1] * q[:, part][:, i]
        return total * w_scale.T * x_scale
    return decoded(x, activations, given).astype(np.float64) @ decoded(w, weights, None)[:, part].astype(np.float64).T
