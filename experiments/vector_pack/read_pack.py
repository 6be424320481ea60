"""Reads a vector pack with NumPy alone. `python read_pack.py DIR` verifies it; README.md says what is in it."""

import hashlib
import json
import sys
from pathlib import Path, PurePosixPath

import numpy as np

SCHEMA = "arlab.vector_pack/2"
TYPES = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}  # bf16 as bit patterns
ENTRIES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def path_of(folder, name):
    """Returns the path of a file in the folder; raises ValueError for one outside of it, or a link."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
        raise ValueError(f"{name!r} is not in the pack")
    path = Path(folder)
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise ValueError(f"{name!r} is a link")
    return path


def load(folder):
    """The manifest, once all files are known to be whole; raises ValueError with the first that is not."""
    text = path_of(folder, "manifest.json").read_bytes()
    if path_of(folder, "manifest.sha256").read_bytes() != f"{hashlib.sha256(text).hexdigest()}  manifest.json\n".encode():
        raise ValueError("manifest.json is not what manifest.sha256 says")
    manifest = json.loads(text)
    if manifest["schema"] != SCHEMA:
        raise ValueError(f"a pack of {manifest['schema']}, not of {SCHEMA}")
    for name, said in manifest["files"].items():
        path = path_of(folder, name)
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != said["sha256"]:
            raise ValueError(f"{name} is missing or damaged")
    return manifest | {"folder": Path(folder)}


def array(pack, name, kind=np.uint8):
    if name not in pack["files"]:
        raise ValueError(f"{name!r} has no sum in the manifest")
    return np.fromfile(path_of(pack["folder"], name), kind)


def cases(pack, codec, dtype=None):
    """Each case with its payload, wire and decoded as arrays; state, where there is one, as arrays before and after."""
    for case in pack["cases"]:
        if case["codec"] == codec and dtype in (None, case["dtype"]):
            read = {key: array(pack, case[key], TYPES[case["dtype"]]) for key in ("payload", "decoded")} | {"wire": array(pack, case["wire"])}
            read["state"] = case["state"] and {key: name and array(pack, name, np.float32) for key, name in case["state"].items()}
            yield case | read


def tails(pack, rounding=None, dtype=None):
    """Each tail with its tensors as arrays, rows in turn; None for the wire and quantized of one without an output."""
    for tail in pack["tails"]:
        kinds = dict.fromkeys(("residual", "weight", "residual_out", "normalized", "quantized"), TYPES[tail["dtype"]])
        if rounding in (None, tail["rounding"]) and dtype in (None, tail["dtype"]):
            yield tail | {key: tail[key] and array(pack, tail[key], kind) for key, kind in ({"sums": np.float32, "wire": np.uint8} | kinds).items()}


def unpack(form, wire, elements, dtype=None):
    """Codes, and the arrays of entries per block, of the wire of a codec that has a wire_format. `dtype` is needed where entries have it."""
    parts, arrays, at = [], {a["name"]: [] for a in form["arrays"]}, form["header_bytes"]
    sizes = [a["bytes"] or np.dtype(TYPES[dtype]).itemsize for a in form["arrays"]]
    for begin in range(0, elements, form["chunk"] or elements):
        n, shift = min(form["chunk"] or elements, elements - begin), 0
        blocks = -(-n // (form["block"] or n))
        codes = np.zeros(blocks * form["block"] if form["pads_last_block"] else n, np.uint16)
        for width in form["planes"]:
            size = -(-codes.size * width // 8)
            bits = wire[at : at + size, None] >> np.arange(0, 8, width, dtype=np.uint8) & np.uint8((1 << width) - 1)
            codes |= bits.reshape(-1)[: codes.size].astype(np.uint16) << np.uint16(shift)
            at, shift = at + size, shift + width
        for name, size in zip(arrays, sizes):
            arrays[name].append(wire[at : at + blocks * size].copy().view(ENTRIES[size]))
            at += blocks * size
        parts.append(codes)
    return np.concatenate(parts), {name: np.concatenate(entries) for name, entries in arrays.items()}


def unswizzle(scales, rows, columns):
    """[rows, columns] of scales of one byte that lie in tiles of 128 x 4."""
    tiles = scales.reshape(-(-rows // 128), -(-columns // 4), 32, 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(128 * tiles.shape[0], -1)[:rows, :columns]


def first_difference(form, case, got):
    """Returns the first element or entry in which two wires differ, else the first byte."""
    wire = case["wire"]
    if got.size != wire.size:
        return f"{got.size} bytes, must be {wire.size}"
    if form and not np.array_equal(got[form["header_bytes"] :], wire[form["header_bytes"] :]):
        (codes, arrays), (right, entries) = (unpack(form, each, case["elements"], case["dtype"]) for each in (got, wire))
        for name, a, b in [*((name, arrays[name], entries[name]) for name in arrays), ("code", codes, right)]:
            if (a != b).any():
                i = int((a != b).argmax())
                return f"{'element' if name == 'code' else 'block'} {i}: {name.removesuffix('s')} {int(a[i]):#x}, must be {int(b[i]):#x}"
    i = int((got != wire).argmax())
    return f"byte {i}: {got[i]:#04x}, must be {wire[i]:#04x}"


def compare(pack, codec, encode=None, decode=None, dtype=None):
    """Lines for what differs. encode(payload, dtype) gives the wire (uint8), decode(wire, dtype, elements) the numbers; of a codec whose
    cases have a context, encode gets the case, too."""
    form = {each["name"]: each["wire_format"] for each in pack["codecs"]}[codec]
    for case in cases(pack, codec, dtype):
        name = f"{codec} {case['dtype']} {case['input']}"
        if encode:
            got = encode(case["payload"], case["dtype"], *([case] if case["context"] else []))
            got = np.ascontiguousarray(got).view(np.uint8).reshape(-1)
            if not np.array_equal(got, case["wire"]):
                yield f"{name}: encode: {first_difference(form, case, got)}"
        if decode:
            bits = ENTRIES[case["decoded"].itemsize]
            got, right = np.ascontiguousarray(decode(case["wire"], case["dtype"], case["elements"])).view(bits).reshape(-1), case["decoded"].view(bits)
            if got.shape != right.shape:
                yield f"{name}: decode: {got.size} elements, must be {right.size}"
            elif (got != right).any():
                i = int((got != right).argmax())
                yield f"{name}: decode: element {i}: {int(got[i]):#x}, must be {int(right[i]):#x}"


if __name__ == "__main__":
    pack = load(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    print(f"{len(pack['files'])} files are whole, of {pack['program']}")
