"""Reads a vector pack with NumPy alone. `python read_pack.py DIR` verifies it; README.md says what is in it."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

TYPES = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}  # bf16 as bit patterns
ENTRIES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def load(folder):
    """The manifest, once all files are known to be whole; raises ValueError with the first that is not."""
    folder = Path(folder)
    text = (folder / "manifest.json").read_bytes()
    if (folder / "manifest.sha256").read_bytes() != f"{hashlib.sha256(text).hexdigest()}  manifest.json\n".encode():
        raise ValueError("manifest.json is not what manifest.sha256 says")
    manifest = json.loads(text)
    for name, said in manifest["files"].items():
        if not (folder / name).is_file() or hashlib.sha256((folder / name).read_bytes()).hexdigest() != said["sha256"]:
            raise ValueError(f"{name} is missing or damaged")
    return manifest | {"folder": folder}


def array(pack, name, kind=np.uint8):
    return np.fromfile(pack["folder"] / name, kind)


def cases(pack, codec, dtype=None):
    """Each case with its payload, wire and decoded as arrays."""
    for case in pack["cases"]:
        if case["codec"] == codec and dtype in (None, case["dtype"]):
            kind = TYPES[case["dtype"]]
            yield case | {"payload": array(pack, case["payload"], kind), "wire": array(pack, case["wire"]), "decoded": array(pack, case["decoded"], kind)}


def unpack(form, wire, elements):
    """Codes, a byte each, and the arrays of entries per block, of the wire of a codec that has a wire_format."""
    codes, arrays, at = np.zeros(elements, np.uint8), {a["name"]: [] for a in form["arrays"]}, form["header_bytes"]
    for begin in range(0, elements, form["chunk"]):
        n, shift = min(form["chunk"], elements - begin), 0
        for width in (8, 4, 2, 1):
            if form["bits"] - shift >= width:
                size = -(-n * width // 8)
                parts = wire[at : at + size, None] >> np.arange(0, 8, width, dtype=np.uint8) & np.uint8((1 << width) - 1)
                codes[begin : begin + n] |= parts.reshape(-1)[:n] << np.uint8(shift)
                at, shift = at + size, shift + width
        for a in form["arrays"]:
            size = -(-n // form["block"]) * a["bytes"]
            arrays[a["name"]].append(wire[at : at + size])
            at += size
    return codes, {a["name"]: np.concatenate(arrays[a["name"]]).view(ENTRIES[a["bytes"]]) for a in form["arrays"]}


def unswizzle(scales, rows, columns):
    """[rows, columns] of scales of one byte that lie in tiles of 128 x 4."""
    tiles = scales.reshape(-(-rows // 128), -(-columns // 4), 32, 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(128 * tiles.shape[0], -1)[:rows, :columns]


def first_difference(form, case, got):
    """Of two wires, the first element or entry that differs, else the first byte."""
    wire = case["wire"]
    if got.size != wire.size:
        return f"{got.size} bytes, must be {wire.size}"
    if form and not np.array_equal(got[form["header_bytes"] :], wire[form["header_bytes"] :]):
        (codes, arrays), (right, entries) = (unpack(form, each, case["elements"]) for each in (got, wire))
        for name, a, b in [*((name, arrays[name], entries[name]) for name in arrays), ("code", codes, right)]:
            if (a != b).any():
                i = int((a != b).argmax())
                return f"{'element' if name == 'code' else 'block'} {i}: {name.removesuffix('s')} {int(a[i]):#x}, must be {int(b[i]):#x}"
    i = int((got != wire).argmax())
    return f"byte {i}: {got[i]:#04x}, must be {wire[i]:#04x}"


def compare(pack, codec, encode=None, decode=None, dtype=None):
    """Lines for what differs. encode(payload, dtype) gives the wire (uint8), decode(wire, dtype, elements) the numbers."""
    form = {each["name"]: each["wire_format"] for each in pack["codecs"]}[codec]
    for case in cases(pack, codec, dtype):
        name = f"{codec} {case['dtype']} {case['input']}"
        if encode:
            got = np.ascontiguousarray(encode(case["payload"], case["dtype"])).view(np.uint8).reshape(-1)
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
