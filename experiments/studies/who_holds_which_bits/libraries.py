"""Wires that other libraries compute on the CPU, format by format, in the terms of arlab's wires.

An answer has the names of the library and of arlab's codec, and a function of blocks (float32 [blocks, G], exact in the dtype) and the dtype's name.
That returns the parts to compare, as arrays of arlab's shapes: `codes` per element and `scales` per block, or `values` where a library only says what
its numbers become. Its other arguments are set by answers(). Libraries are imported when they are asked, so one that is missing costs its own rows only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import types
import unittest.mock
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Parts = dict[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """One library's answer for one format."""

    library: str
    codec: str
    call: Callable[..., Parts]
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    given_scales: bool = False
    """Whether the library codes elements only, by scales that it is told: those of arlab."""
    slow: bool = False
    """Whether it takes element after element: it gets the first of the blocks only."""


def package_file(distribution: str, name: str) -> Path:
    """A file of an installed package, found without importing it: its __init__ may want a GPU."""
    for each in importlib.metadata.files(distribution) or ():
        if str(each) == name:
            return Path(str(each.locate()))
    raise ImportError(f"{distribution} has no file {name}")


def module_of(path: Path, name: str, package: str = "") -> types.ModuleType:
    """A module from its file alone."""
    specification = importlib.util.spec_from_file_location(f"{package}.{name}" if package else name, path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def tensor(blocks: np.ndarray, dtype: str) -> Any:
    """The blocks as torch has them."""
    import torch

    return torch.from_numpy(blocks.copy()).to({"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype])


def numbers(array: Any, kind: Any) -> np.ndarray:
    """The bit patterns of a torch tensor, as an unsigned type of NumPy."""
    import torch

    contiguous = array.detach().contiguous()
    return contiguous.view(torch.uint8).numpy().view(kind)


def nibbles(packed: np.ndarray, low_first: bool = True) -> np.ndarray:
    """Codes of four bits, two in a byte, one by one."""
    first, second = (packed & 15, packed >> 4) if low_first else (packed >> 4, packed & 15)
    return np.stack([first, second], -1).reshape(len(packed), -1)


def wire_parts(scales: Any, codes: Any, packed: bool) -> Parts:
    """Returns the wire of torch tensors: a byte for each scale, and a row of codes, two in a byte where they are
    packed, for each block."""
    of_blocks = numbers(scales, np.uint8).reshape(-1)
    found = numbers(codes, np.uint8).reshape(len(of_blocks), -1)
    return {"scales": of_blocks, "codes": nibbles(found) if packed else found}


def codes_of_int8(signed: np.ndarray) -> Parts:
    """Codes of integers from -128 to 127."""
    return {"codes": (signed.astype(np.int16) + 128).astype(np.uint8)}


def cast(values: np.ndarray, element: str) -> np.ndarray:
    """The codes of values of a small float, as ml_dtypes rounds them."""
    import ml_dtypes

    kind = getattr(ml_dtypes, element)
    top = float(ml_dtypes.finfo(kind).max)
    return np.clip(values, -top, top).astype(kind).view(np.uint8)


ELEMENTS = {"mxfp8-e4m3": "float8_e4m3fn", "mxfp8-e5m2": "float8_e5m2", "mxfp6-e2m3": "float6_e2m3fn", "mxfp6-e3m2": "float6_e3m2fn", "mxfp4": "float4_e2m1fn"}


def mx_formats(rules: tuple[str, ...], formats: tuple[str, ...] = tuple(ELEMENTS)) -> list[tuple[str, str]]:
    """Codecs with the rule of their scale."""
    return [(form + ("" if rule == "floor" else f"-{rule}"), rule) for form in formats for rule in rules]


# ------------------------------------------------------------------------------------ libraries


def torchao_mx(blocks: np.ndarray, dtype: str, codec: str, rule: str) -> Parts:
    import torch

    mx = import_module("torchao.prototype.mx_formats.mx_tensor")
    form = codec.removesuffix(f"-{rule}")
    element: Any = {"mxfp8-e4m3": torch.float8_e4m3fn, "mxfp8-e5m2": torch.float8_e5m2, "mxfp6-e2m3": "fp6_e2m3", "mxfp6-e3m2": "fp6_e3m2",
                    "mxfp4": torch.float4_e2m1fn_x2}[form]  # fmt: skip
    return wire_parts(*mx.to_mx(tensor(blocks, dtype), element, 32, mx.ScaleCalculationMode[rule.upper()]), packed=form == "mxfp4")


def torchao_nvfp4(blocks: np.ndarray, dtype: str, given: float | None) -> Parts:
    import torch

    scale = None if given is None else torch.tensor(1 / given, dtype=torch.float32)
    return wire_parts(*import_module("torchao.prototype.mx_formats.nvfp4_tensor").nvfp4_quantize(tensor(blocks, dtype), 16, scale), packed=True)


def compressed(blocks: np.ndarray, dtype: str, bits: int, group: int, scale_type: str, given: float | None = None) -> Parts:
    import torch

    library = import_module("compressed_tensors.quantization")
    helpers = import_module("compressed_tensors.quantization.utils.helpers")
    forward = import_module("compressed_tensors.quantization.lifecycle.forward")
    arguments = library.QuantizationArgs(
        num_bits=bits, type="float", symmetric=True, strategy="group" if given is None else "tensor_group", group_size=group,
        scale_dtype=getattr(torch, scale_type),
    )  # fmt: skip
    x = tensor(blocks, dtype)
    g = None if given is None else torch.tensor([given], dtype=torch.float32)
    scales, zeros = helpers.calculate_qparams(x.amin(1, keepdim=True), x.amax(1, keepdim=True), arguments, global_scale=g)
    found = forward.quantize(x, scales, zeros, arguments, global_scale=g).float().numpy()
    element = {8: "float8_e4m3fn", 6: "float6_e2m3fn", 4: "float4_e2m1fn"}[bits]
    if given is None:  # Powers of two travel as their exponents.
        factors = scales.float().numpy().astype(np.float64).reshape(-1)
        exponents = (np.frexp(factors)[1] - 1 + 127).astype(np.uint8)
        wire = np.where(np.isfinite(factors), np.where(factors > 0, exponents, 0), 0xFF).astype(np.uint8)
    else:
        wire = numbers(scales.to(torch.float8_e4m3fn), np.uint8).reshape(-1)
    return {"scales": wire, "codes": cast(found, element)}


def modelopt(blocks: np.ndarray, dtype: str, form: str, **options: Any) -> Parts:
    module = import_module(f"modelopt.torch.quantization.qtensor.{form.lower()}_tensor")
    made, scales, *_ = getattr(module, f"{form}QTensor").quantize(tensor(blocks, dtype), **options)
    return wire_parts(scales, made._quantized_data, packed=form != "MXFP8")


def modelopt_nvfp4(blocks: np.ndarray, dtype: str) -> Parts:
    import torch

    return modelopt(blocks, dtype, "NVFP4", block_size=16, weights_scaling_factor_2=torch.tensor(1 / 448, dtype=torch.float32))


def quark_mx(blocks: np.ndarray, dtype: str, codec: str, rule: str) -> Parts:
    element = codec.removesuffix(f"-{rule}").removeprefix("mx").replace("-", "_")
    made = import_module("quark.torch.kernel.hw_emulation.hw_emulation_interface").fake_quantize_mx(
        tensor(blocks, dtype), -1, 32, rule, mx_element_dtype=element)  # fmt: skip
    return {"values": made.float().numpy()}


def gfloat_mx(blocks: np.ndarray, dtype: str, codec: str) -> Parts:
    gfloat, formats = import_module("gfloat"), import_module("gfloat.formats")
    form = getattr(formats, f"format_info_{'mxfp4_e2m1' if codec == 'mxfp4' else codec.replace('-', '_')}")
    wires = []
    for block in blocks.astype(np.float64):
        scale = gfloat.compute_scale_amax(form.etype.emax, block)
        wires.append(list(gfloat.encode_block(form, scale, block / scale)))
    wire = np.array(wires)
    return {"scales": wire[:, 0].astype(np.uint8), "codes": wire[:, 1:].astype(np.uint8)}


def ml_dtypes_elements(blocks: np.ndarray, dtype: str, scales: np.ndarray, codec: str) -> Parts:
    return {"codes": cast(blocks * np.exp2(127 - scales.astype(np.float64)).astype(np.float32)[:, None], ELEMENTS[codec])}


def onnx_session(operator: str, inputs: dict[str, Any], output: Any) -> np.ndarray:
    """One operator, run by onnxruntime."""
    onnx, runtime = import_module("onnx"), import_module("onnxruntime")

    def described(name: str, kind: Any, shape: Any) -> Any:
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)

    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, list(inputs), ["y"])], "one",
                                   [described(name, value.dtype, value.shape) for name, value in inputs.items()], [described("y", output, None)])  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    found: np.ndarray = runtime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    return found


STATIC = 0.05


def onnxruntime_int8(blocks: np.ndarray, dtype: str) -> Parts:
    inputs = {"x": blocks, "scale": np.array(STATIC, np.float32), "zero": np.array(0, np.int8)}
    return codes_of_int8(onnx_session("QuantizeLinear", inputs, np.int8))


def quanto_int8(blocks: np.ndarray, dtype: str) -> Parts:
    import torch

    import_module("optimum.quanto")
    scale = torch.tensor(STATIC, dtype=torch.float32)
    return codes_of_int8(torch.ops.quanto.quantize_symmetric(tensor(blocks, dtype), torch.int8, None, scale).numpy())


def torchao_int8(blocks: np.ndarray, dtype: str) -> Parts:
    import torch

    codes = import_module("torchao.quantization.quant_primitives").quantize_affine(
        tensor(blocks, dtype), blocks.shape, torch.tensor(STATIC), torch.tensor(0), torch.int8)  # fmt: skip
    return codes_of_int8(codes.numpy())


def bitsandbytes_nf4(blocks: np.ndarray, dtype: str, group: int) -> Parts:
    packed, state = import_module("bitsandbytes.functional").quantize_4bit(tensor(blocks, dtype).reshape(-1), blocksize=group, quant_type="nf4")
    codes = nibbles(packed.numpy().reshape(len(blocks), -1), low_first=False)
    return {"scales": state.absmax.float().numpy().view(np.uint32), "codes": codes}


def gguf_mxfp4(blocks: np.ndarray, dtype: str) -> Parts:
    wire = import_module("gguf").quants.MXFP4.quantize_blocks(blocks.copy())
    return {"scales": wire[:, 0], "codes": np.concatenate([wire[:, 1:] & 15, wire[:, 1:] >> 4], 1)}


def gguf_q8(blocks: np.ndarray, dtype: str) -> Parts:
    wire = import_module("gguf").quants.Q8_0.quantize_blocks(blocks.copy())
    return codes_of_int8(wire[:, 2:].view(np.int8))


def transformer_engine_nvfp4(blocks: np.ndarray, dtype: str, **options: Any) -> Parts:
    """Its own reference, in torch; what that imports is built for GPUs and not used by it. A message has a number of its own."""
    import torch

    folder = "transformer_engine/pytorch/custom_recipes"
    for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.custom_recipes", "transformer_engine.pytorch.quantized_tensor"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("QuantizedTensorStorage", "Quantizer"):
        setattr(sys.modules["transformer_engine.pytorch.quantized_tensor"], name, type(name, (), {}))
    recipes: Any = sys.modules["transformer_engine.pytorch.custom_recipes"]
    recipes.gemm = unittest.mock.MagicMock()  # Matrix products, which it names in signatures.
    recipes.reference_utils = module_of(package_file("transformer-engine", f"{folder}/reference_utils.py"), "reference_utils")
    reference = module_of(package_file("transformer-engine", f"{folder}/reference_nvfp4.py"), "reference_nvfp4")
    messages = []
    for message in blocks.reshape(-1, 256, 16):
        amax = torch.tensor(np.abs(message[np.isfinite(message)]).max(initial=0))
        codes, scales = reference.NVFP4QuantizerRef._quantize_blockwise_reference(
            tensor(message, dtype), amax, 16, 1, pow_2_scales=False, eps=0.0, **options)  # fmt: skip
        messages.append(wire_parts(scales, codes, packed=True))
    return {name: np.concatenate([each[name] for each in messages]) for name in ("scales", "codes")}


def fbgemm_mxfp4(blocks: np.ndarray, dtype: str, rounding: int) -> Parts:
    package = types.ModuleType("fbgemm_files")
    package.__path__ = []
    sys.modules["fbgemm_files"] = package
    module_of(package_file("fbgemm-gpu-cpu", "fbgemm_gpu/triton/common.py"), "common", "fbgemm_files")
    reference = module_of(package_file("fbgemm-gpu-cpu", "fbgemm_gpu/triton/quantize_ref.py"), "quantize_ref", "fbgemm_files")
    wire = reference.py_quantize_mx4(tensor(blocks, "fp32"), 32, rounding_mode=rounding).numpy().reshape(len(blocks), 17)
    return {"scales": wire[:, 16], "codes": nibbles(wire[:, :16])}


def auto_round_mx(blocks: np.ndarray, dtype: str, codec: str) -> Parts:
    name = {"mxfp8-e4m3": "mx_fp8", "mxfp8-e5m2": "mx_fp8e5m2", "mxfp6-e2m3": "mx_fp6", "mxfp6-e3m2": "mx_fp6e3m2", "mxfp4": "mx_fp4"}[codec]
    values, _, _ = import_module("auto_round.data_type.mxfp").quant_mx(tensor(blocks, dtype), int(codec[4]), 32, data_type=name)
    return {"values": values.float().numpy()}


def auto_round_nvfp4(blocks: np.ndarray, dtype: str) -> Parts:
    import torch

    # Its elements come back decoded, and its decoding is a product more than anybody's wire has: the scales alone can be compared.
    _, scales = import_module("auto_round.data_type.nvfp").ref_nvfp4_quant(tensor(blocks, dtype), torch.tensor(448.0))
    return {"scales": numbers(scales.to(torch.float8_e4m3fn), np.uint8).reshape(-1)}


def torchft_fp8(blocks: np.ndarray, dtype: str) -> Parts:
    """Its Triton kernel, in Triton's interpreter: a row of 64, its multiplier, then the codes. The interpreter rounds to fp8 otherwise than a GPU, so
    products are asked for, and rounded here."""
    import torch

    quantization = module_of(package_file("torchft-nightly", "torchft/quantization.py"), "torchft_quantization")
    tl = import_module("triton.language")
    x = tensor(blocks, dtype)
    rows, columns = x.shape
    out = torch.zeros(rows, columns + 1, dtype=torch.float32)
    quantization._fused_kernel_quantize_into_fp8[(rows, 1)](
        torch.tensor([x.data_ptr()], dtype=torch.int64), torch.tensor([[rows, columns]], dtype=torch.int32),
        torch.tensor([[columns, 1]], dtype=torch.int32), torch.tensor([0], dtype=torch.int32), x, out.view(torch.uint8), 4 * (columns + 1), rows, columns,
        tl.constexpr(tl.float32), tl.constexpr(448.0))  # fmt: skip
    return {"codes": cast(out.numpy()[:, 1:], "float8_e4m3fn")}


def answers() -> list[Answer]:
    """All that are asked, library by library."""
    found = [Answer("torchao", codec, partial(torchao_mx, codec=codec, rule=rule)) for codec, rule in mx_formats(("floor", "ceil", "even", "rceil"))]
    found += [Answer("torchao", "nvfp4-ts1", partial(torchao_nvfp4, given=None)), Answer("torchao", "nvfp4-ts448", partial(torchao_nvfp4, given=448))]
    found += [Answer("torchao", f"int8-gtensor-sym-static{STATIC}", torchao_int8, ("fp32",))]
    for bits, codec in ((4, "mxfp4-even"), (6, "mxfp6-e2m3-even"), (8, "mxfp8-e4m3-even")):
        found += [Answer("compressed-tensors", codec, partial(compressed, bits=bits, group=32, scale_type="uint8"))]
    nvfp4 = partial(compressed, bits=4, group=16, scale_type="float8_e4m3fn", given=448)
    found += [Answer("compressed-tensors", codec, nvfp4) for codec in ("nvfp4-vllm-ts448", "nvfp4-ts448")]
    found += [Answer("nvidia-modelopt", "mxfp8-e4m3-rceil", partial(modelopt, form="MXFP8"))]
    found += [Answer("nvidia-modelopt", "mxfp4-rceil", partial(modelopt, form="MXFP4", block_size=32)), Answer("nvidia-modelopt", "nvfp4-ts448", modelopt_nvfp4)]
    found += [Answer("amd-quark", codec, partial(quark_mx, codec=codec, rule=rule)) for codec, rule in mx_formats(("floor", "ceil", "even"))]
    found += [Answer("amd-quark", "mxint8", partial(quark_mx, codec="mxint8", rule="floor"))]
    found += [Answer("gfloat", codec, partial(gfloat_mx, codec=codec), slow=True) for codec in (*ELEMENTS, "mxint8")]
    found += [Answer("ml_dtypes", codec, partial(ml_dtypes_elements, codec=codec), given_scales=True) for codec in ELEMENTS]
    found += [Answer("bitsandbytes", f"nf4-g{group}", partial(bitsandbytes_nf4, group=group)) for group in (64, 128)]
    found += [Answer("onnxruntime", f"int8-gtensor-sym-static{STATIC}", onnxruntime_int8, ("fp32",))]
    found += [Answer("optimum-quanto", f"int8-gtensor-sym-static{STATIC}", quanto_int8, ("fp32",))]
    found += [Answer("gguf", "mxfp4", gguf_mxfp4, ("fp32",)), Answer("gguf", "int8-g32-sym", gguf_q8, ("fp32",))]
    four_over_six = partial(transformer_engine_nvfp4, nvfp4_use_4over6=True, nvfp4_e4m3_max=256)
    found += [Answer("transformer-engine", "nvfp4-te", transformer_engine_nvfp4), Answer("transformer-engine", "nvfp4-te-4over6", four_over_six)]
    found += [Answer("fbgemm-gpu-cpu", codec, partial(fbgemm_mxfp4, rounding=mode), ("fp32",)) for mode, codec in ((1, "mxfp4"), (2, "mxfp4-even"), (4, "mxfp4-ceil"))]
    found += [Answer("auto-round", codec, partial(auto_round_mx, codec=codec)) for codec in ELEMENTS]
    found += [Answer("auto-round", "nvfp4-vllm-ts448", auto_round_nvfp4)]
    found += [Answer("torchft-nightly", codec, torchft_fp8, slow=True) for codec in ("fp8-e4m3-g64", "fp8-e4m3-g64-torch")]
    return found
