"""arlab vectors --pack and --check, and the reader in the pack, which knows nothing of arlab.

Wires and all-reduces are read here by a reader that shares no code with the writer. They are made again by the models of the codecs
that are written from SPEC.md alone (tests/codecs/*_oracle.py).
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import arlab
import ml_dtypes
import numpy as np
import pytest
from program import ok, ok_json, refused, run

sys.path.append(str(Path(__file__).resolve().parents[1] / "codecs"))
import anybit_oracle  # noqa: E402
import logfmt_oracle  # noqa: E402
import microscaling_oracle  # noqa: E402
import quickreduce_oracle  # noqa: E402
import wire_oracle  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import test_tails  # noqa: E402

CODECS = "int4-g128,int6-g64,mxfp4,nvfp4,qr-q4"
# Some of every family, and all that have all-reduces.
KINDS = (
    "bf16,fp16,fp32,qr-q4,int4-g32,mxfp4,fp8-e4m3-g128,int4-g32-sr,int2-g32-sr-is,had-int4-g32,int8-gtensor,logfmt4-g32,nvfp4,nf4-g64,int4-g32-stoch,"
    "shared-int8-g32,shared-int12-g64,lossless-e3-g32,rans-int4-g32,ef-int4-g32,int8-gtensor-sym-static0.05,nvfp4-te,e4m3b15-g32,fp8-e4m3-g256-flashinfer,"
    "int8-g256-vllm,fp8-e4m3-g256-vllm,fp8-e4m3-g256-torchft"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    ok(f"vectors --pack pack --codec {CODECS}", folder)
    return folder / "pack"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    ok(f"vectors --pack pack --codec {KINDS}", folder)
    return Pack(folder / "pack")


class Pack:
    """A pack, read by the manifest's words and raw files, no more."""

    NUMBERS = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
    WORDS = {"fp16": np.uint16, "bf16": np.uint16, "fp32": np.uint32}

    def __init__(self, folder):
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text())

    def bytes(self, name):
        return np.frombuffer((self.folder / name).read_bytes(), np.uint8)

    def messages(self, case):
        """(step, from, to, begin, end, wire) of every chunk of every message."""
        sent = self.bytes(case["sent"])
        for message in case["messages"]:
            at = message["at"]
            for chunk in message["chunks"]:
                yield message["step"], message["from"], message["to"], chunk["begin"], chunk["end"], sent[at : at + chunk["bytes"]]
                at += chunk["bytes"]
            assert at == message["at"] + message["bytes"] <= sent.size


class Plain:
    """A model of plain values, like the oracles."""

    def __init__(self, dtype):
        self.size = np.dtype(Pack.WORDS[dtype]).itemsize

    def wire_bytes(self, dtype, elements):
        return elements * self.size

    def encode(self, dtype, payload):
        return np.ascontiguousarray(payload).view(np.uint8)

    def decode(self, dtype, wire, elements):
        return np.frombuffer(wire.tobytes(), Pack.WORDS[dtype])


class Fixed:
    """By length alone: codes of `bits`, and `entry` bytes for each `block`, of the whole message. For codecs without an
    oracle."""

    def __init__(self, bits, block, entry, rows=0):
        self.bits, self.block, self.entry, self.rows = bits, block, entry, rows

    def wire_bytes(self, dtype, elements):
        blocks = -(-elements // self.block)
        return blocks * self.rows if self.rows else elements * self.bits // 8 + blocks * self.entry


def model_of(codec):
    """Returns a model of a codec: how long a wire is, and for all but a few its contents."""
    if codec in Pack.WORDS:
        return Plain(codec)
    if codec.startswith(("shared-int8-g32", "shared-int12-g64")):
        return Fixed(8, 32, 2) if "int8" in codec else Fixed(12, 64, 2)
    if codec == "fp8-e4m3-g256-torchft":
        return Fixed(8, 256, 4, rows=260)
    if codec.endswith(("-flashinfer", "-vllm")) and "nvfp4" not in codec:
        return Fixed(8, 256, 4)
    if codec.startswith(("lossless-", "rans-")):
        return None
    name = codec.removeprefix("ef-")
    if name.startswith("qr-"):
        return quickreduce_oracle.CODECS[name]
    return (anybit_oracle if "int" in name and name != "mxint8" else logfmt_oracle if name.startswith("logfmt") else microscaling_oracle).find(name)


def reader_of(folder):
    spec = importlib.util.spec_from_file_location("read_pack", folder / "read_pack.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(folder):
    return run(f"vectors --check {folder.name}", folder.parent)


def test_the_pack_is_whole_and_what_this_program_makes(made):
    assert checked(made).code == 0
    assert ok_json("vectors --check pack", made.parent)["passed"] is True
    done = subprocess.run([sys.executable, made / "read_pack.py", made], capture_output=True, text=True)
    assert done.returncode == 0 and "files are whole" in done.stdout
    assert len((made / "read_pack.py").read_text().splitlines()) <= 130 and "import arlab" not in (made / "read_pack.py").read_text()
    assert {path.name for path in made.parent.iterdir()} == {"pack"}
    assert (made / "SPEC.md").read_bytes() == (Path(__file__).resolve().parents[2] / "reference/codecs/SPEC.md").read_bytes()


def test_messages_are_whole_wires(kinds):
    """Each chunk's as long as a wire of so many elements is; of codecs with an oracle, those of inputs are its bytes."""
    tried = {"lengths": 0, "inputs": 0}
    for case in kinds.manifest["all_reduces"]:
        model, dtype = model_of(case["codec"]), "fp16" if "cast=fp16" in case["sum"] else case["dtype"]
        x = kinds.bytes(case["inputs"]).view(Pack.NUMBERS[case["dtype"]]).reshape(case["ranks"], case["elements"])
        x = x.astype(Pack.NUMBERS[dtype]).view(Pack.WORDS[dtype])
        ends, end = set(), 0
        for step, sender, _, begin, finish, wire in kinds.messages(case):
            ends.add((begin, finish))
            if model is None:
                assert wire.size == int(wire[:8].copy().view(np.uint64)[0])
                continue
            assert wire.size == model.wire_bytes(dtype, finish - begin), (case["sent"], begin, finish)
            tried["lengths"] += 1
            if step == 0 and hasattr(model, "encode") and not case["rounding_seed"]:
                assert np.array_equal(wire, model.encode(dtype, x[sender, begin:finish])), (case["sent"], begin, finish)
                tried["inputs"] += 1
        for begin, finish in sorted(ends):  # chunks follow each other to the end
            assert begin == end or case["algorithm"] == "one_shot"
            end = finish
        assert end == case["elements"]
    assert tried["lengths"] > 1500 and tried["inputs"] > 700, tried


def sums_of(case, dtype, model, x):
    """(step, from, to, begin, end) -> wire, and outputs, by hand: what SPEC.md and the pack's page say of native and fp32 sums."""
    numbers, ranks = Pack.NUMBERS[dtype], case["ranks"]

    def rounded(values):
        return values.astype(numbers).astype(np.float32)

    def decoded(wire, begin, end):
        return np.asarray(model.decode(dtype, wire, end - begin)).view(numbers).astype(np.float32)

    def encoded(values):
        return model.encode(dtype, values.astype(numbers).view(Pack.WORDS[dtype]))

    def total(parts, total):
        for part in parts:
            total = part if total is None else total + part
            total = total if case["sum"] == "fp32" else rounded(total)
        return rounded(total)

    wires, outputs = {}, np.zeros((ranks, case["elements"]), np.float32)
    chunks = sorted({(chunk["begin"], chunk["end"]) for message in case["messages"] for chunk in message["chunks"]})
    for owner, (begin, end) in enumerate(chunks):
        own = [x[rank, begin:end].astype(np.float32) for rank in range(ranks)]
        others = [rank for rank in range(ranks) if rank != owner]
        if case["algorithm"] == "one_shot":
            parts = [encoded(each) for each in own]
            wires |= {(0, rank, to, begin, end): parts[rank] for rank in range(ranks) for to in range(ranks) if to != rank}
            outputs[:, begin:end] = total([decoded(wire, begin, end) for wire in parts], None)
        elif case["algorithm"] == "two_shot":
            parts = [encoded(each) for each in own]
            wires |= {(0, rank, owner, begin, end): parts[rank] for rank in others}
            last = encoded(total([decoded(wire, begin, end) for wire in parts], np.zeros(end - begin, np.float32)))
            wires |= {(1, owner, rank, begin, end): last for rank in others}
            outputs[:, begin:end] = decoded(last, begin, end)
        else:  # around the ring, beginning behind the owner, then once more
            (first,) = {m["from"] for m in case["messages"] if m["step"] == 0 for c in m["chunks"] if c["begin"] == begin}
            wire = encoded(own[first])
            for step in range(2 * ranks - 2):
                sender, to = (first + step) % ranks, (first + step + 1) % ranks
                wires[step, sender, to, begin, end] = wire
                if step < ranks - 1:
                    wire = encoded(rounded(own[to] + decoded(wire, begin, end)))
            outputs[:, begin:end] = decoded(wire, begin, end)
    return wires, outputs


def test_all_reduces_are_made_again_from_the_pages(kinds):
    tried = 0
    for case in kinds.manifest["all_reduces"]:
        model, dtype = model_of(case["codec"]), case["dtype"]
        if case["sum"] not in ("native", "fp32") or case["input"] != "gaussian" or case["rounding_seed"] or not hasattr(model, "decode") or case["like"]:
            continue
        x = kinds.bytes(case["inputs"]).view(Pack.NUMBERS[dtype]).reshape(case["ranks"], case["elements"])
        wires, outputs = sums_of(case, dtype, model, x)
        there = {(step, sender, to, begin, end): wire for step, sender, to, begin, end, wire in kinds.messages(case)}
        assert there.keys() == wires.keys(), case["sent"]
        for key, wire in there.items():
            assert np.array_equal(wire, wires[key]), (case["sent"], key)
        assert np.array_equal(kinds.bytes(case["outputs"]), outputs.astype(Pack.NUMBERS[dtype]).view(np.uint8).reshape(-1)), case["outputs"]
        tried += 1
    assert tried > 50


def test_wires_of_messages_are_the_oracles(kinds):
    tried = set()
    for case in kinds.manifest["cases"]:
        name, dtype = case["codec"], case["dtype"]
        model = model_of(name)
        if not hasattr(model, "decode"):
            continue
        payload, wire = kinds.bytes(case["payload"]).view(Pack.WORDS[dtype]), kinds.bytes(case["wire"])
        decoded = np.asarray(model.decode(dtype, wire, case["elements"])).view(np.uint8).reshape(-1)
        assert np.array_equal(kinds.bytes(case["decoded"]), decoded), case["decoded"]
        if name.startswith("ef-"):
            continue
        if name.endswith("-stoch"):
            context = case["context"]
            given = wire_oracle.Context(**{field: context[field] for field in wire_oracle.Context._fields})
            expected = anybit_oracle.encode(name, dtype, payload, given)
        else:
            assert case["context"] is None and case["state"] is None
            expected = model.encode(dtype, payload)
        assert np.array_equal(wire, expected), case["wire"]
        tried.add(name)
    assert len(tried) >= 17, tried


def test_what_is_carried_from_message_to_message(kinds):
    """ef-int4-g32: v = x + e; the wire is that of v in the dtype, and e becomes v - decoded."""
    model, again = anybit_oracle.find("int4-g32"), 0
    for case in kinds.manifest["cases"]:
        if case["codec"] != "ef-int4-g32" or case["input"] not in ("gaussian", "gaussian_again"):
            continue
        numbers, words = Pack.NUMBERS[case["dtype"]], Pack.WORDS[case["dtype"]]
        x = kinds.bytes(case["payload"]).view(numbers).astype(np.float32)
        before = kinds.bytes(case["state"]["before"]).view(np.float32) if case["state"]["before"] else np.zeros_like(x)
        v = x + before
        wire = model.encode(case["dtype"], v.astype(numbers).view(words))
        assert np.array_equal(kinds.bytes(case["wire"]), wire)
        lost = v - np.asarray(model.decode(case["dtype"], wire, x.size)).view(numbers).astype(np.float32)
        assert np.array_equal(kinds.bytes(case["state"]["after"]).view(np.float32), lost)
        again += case["input"] == "gaussian_again" and before.any()
    assert again == 3


def test_the_reader_takes_every_wire_of_codes_apart(kinds):
    """Codes and entries put together by the oracles' layout are the wire; and whose form is null is said."""
    reader = reader_of(kinds.folder)
    pack = reader.load(kinds.folder)
    forms = {each["name"]: each["wire_format"] for each in pack["codecs"]}
    without = ("bf16", "fp16", "fp32", "lossless-", "rans-", "qr-", "fp8-e4m3-g256-torchft")
    assert {name for name, form in forms.items() if form is None} == {name for name in forms if name.startswith(without)}
    for name in ("int4-g32-sr", "int2-g32-sr-is", "had-int4-g32", "int8-gtensor", "logfmt4-g32", "mxfp4", "int8-gtensor-sym-static0.05", "nf4-g64"):
        for case in reader.cases(pack, name):
            codes, arrays = reader.unpack(forms[name], case["wire"], case["elements"], case["dtype"])
            model = model_of(name)
            layout = model.layout(case["dtype"], case["elements"]) if "int" in name else model.layout(case["elements"])
            expected, metadata = layout.split(case["wire"])
            assert np.array_equal(codes, expected) and len(arrays) == len(metadata)
            for got, right in zip(arrays.values(), metadata):
                assert np.array_equal(got.view(np.uint8), right.reshape(-1).view(np.uint8)), (name, case["input"])
    for case in reader.cases(pack, "shared-int12-g64"):
        codes, arrays = reader.unpack(forms["shared-int12-g64"], case["wire"], case["elements"], case["dtype"])
        scales = arrays["scales"].view(ml_dtypes.bfloat16).astype(np.float32)[np.arange(case["elements"]) // 64]
        values = np.where(codes >= 2048, codes.astype(np.int32) - 4096, codes).astype(np.float32) * scales
        kind = Pack.NUMBERS[case["dtype"]]
        with np.errstate(over="ignore"):
            assert np.array_equal(values.astype(kind), case["decoded"].view(kind), equal_nan=True)


def test_tails_are_made_again_by_numpy(kinds):
    """By the oracle of tests/python/test_tails.py; wires are arlab.encode's, which has oracles of its own."""
    reader = reader_of(kinds.folder)
    pack, made = reader.load(kinds.folder), []
    for tail in reader.tails(pack):
        kind, shape = Pack.NUMBERS[tail["dtype"]], (tail["rows"], tail["hidden"])
        residual, weight = tail["residual"].view(kind).reshape(shape), tail["weight"].view(kind)
        rounding = test_tails.NAMES[tail["rounding"]]
        out, y = test_tails.oracle(tail["sums"].reshape(shape), residual, weight, kind, rounding, tail["eps"], 0, 1024)
        assert test_tails.same(tail["residual_out"].view(kind).reshape(shape), out) and test_tails.same(tail["normalized"].view(kind).reshape(shape), y)
        made.append((tail["dtype"], tail["rounding"], tail["output"]))
        if tail["output"] is not None:
            assert np.array_equal(tail["wire"], arlab.encode(y, tail["output"]))
            assert test_tails.same(tail["quantized"].view(kind).reshape(shape), arlab.decode(tail["wire"], tail["output"], tail["dtype"], shape))
    assert {(dtype, name) for dtype, name, output in made if output is None} == {(d, name) for d in ("fp16", "bf16") for name in test_tails.NAMES}
    assert len({output for *_, output in made}) > 10


def test_records_and_all_reduces_of_others_are_there(kinds):
    cases = kinds.manifest["all_reduces"]
    assert {case["like"] for case in cases} == {None, "quickreduce", "quickreduce-vllm", "flashinfer-fp8", "vllm-fp8", "vllm-int8", "torchft-fp8", "nvls"}
    assert {"decode=fp32", "order=own", "own=exact", "result=sum", "add=fma", "add=fp32,round=none", "cast=fp16"} <= {case["sum"] for case in cases}
    assert {"fp16", "bf16", "fp32"} == {case["dtype"] for case in cases}
    for case in cases:  # and each is the result of this program's all-reduce
        if case["like"] or case["dtype"] == "fp32" or case["sum"] not in ("native", "fp32"):
            x = kinds.bytes(case["inputs"]).view(Pack.NUMBERS[case["dtype"]]).reshape(case["ranks"], -1)
            if case["like"]:
                chosen = {"quickreduce": {"codec": case["codec"]}, "quickreduce-vllm": {"codec": case["codec"]}, "nvls": {}}
                how = {"like": case["like"], **chosen.get(case["like"], {"block": 256})}
            else:
                how = {"codec": case["codec"], "sum": case["sum"], "algorithm": case["algorithm"]}
            outputs = arlab.all_reduce(x, **how).outputs
            assert np.array_equal(outputs.view(np.uint8).reshape(-1), kinds.bytes(case["outputs"])), case["outputs"]


def test_a_pack_without_names_has_every_family(tmp_path):
    """As the page says: all that are listed, and of every other family some."""
    ok("vectors --pack pack --dtype bf16", tmp_path)
    names = {each["name"] for each in json.loads((tmp_path / "pack/manifest.json").read_text())["codecs"]}
    assert set(arlab.codecs()) <= names
    parts = ("nf4-", "e4m3b15-", "lossless-", "rans-", "-stoch", "shared-int", "ef-", "-static", "-sym", "logfmt", "nvfp4-te", "-vllm", "-flashinfer", "-torchft")
    assert [part for part in parts if not any(part in name for name in names)] == []
    assert checked(tmp_path / "pack").code == 0


def test_an_encoder_of_ones_own_and_one_that_is_wrong(made):
    reader = reader_of(made)
    pack = reader.load(made)

    def right(payload, dtype):
        return model_of("int4-g128").encode(dtype, payload.view(Pack.WORDS[dtype]))

    assert list(reader.compare(pack, "int4-g128", encode=right)) == []

    def wrong(payload, dtype):
        wire = right(payload, dtype).copy()
        wire[2] ^= 0x10  # element 5
        return wire

    (line,) = [line for line in reader.compare(pack, "int4-g128", encode=wrong, dtype="bf16") if "gaussian:" in line]
    assert line.startswith("int4-g128 bf16 gaussian: encode: element 5: code 0x")


@pytest.mark.parametrize("codec", ["int6-g64", "mxfp4", "nvfp4"])
def test_layouts_are_the_wire_at_other_places(made, codec):
    reader = reader_of(made)
    pack = reader.load(made)
    (layout,) = [each for each in pack["layouts"] if each["codec"] == codec]
    form = {each["name"]: each["wire_format"] for each in pack["codecs"]}[codec]
    files, rows, blocks = layout["files"], layout["rows"], layout["blocks_per_row"]
    codes, arrays = reader.unpack(form, reader.array(pack, files["wire"]), rows * layout["columns"])
    assert np.array_equal(codes, reader.array(pack, files["codes"]))
    assert np.array_equal(arrays["scales"].view(np.uint8), reader.array(pack, files["scales"]))
    inter = reader.array(pack, files["interleaved"]).reshape(rows * blocks, -1)
    width = form["arrays"][0]["bytes"]
    assert np.array_equal(inter[:, :width].reshape(-1), arrays["scales"].view(np.uint8))
    if width == 1:
        swizzled = reader.array(pack, files["scales_128x4"])
        assert np.array_equal(reader.unswizzle(swizzled, rows, blocks).reshape(-1), arrays["scales"])
        assert np.count_nonzero(swizzled) == np.count_nonzero(arrays["scales"])


def test_what_one_shot_sends_decodes_to_its_input(made):
    reader = reader_of(made)
    pack = reader.load(made)
    for case in pack["all_reduces"]:
        sent = reader.array(pack, case["sent"])
        at = 0
        for message in case["messages"]:
            assert message["at"] == at and message["bytes"] == sum(chunk["bytes"] for chunk in message["chunks"])
            at += message["bytes"]
        assert at == sent.size
        outputs = reader.array(pack, case["outputs"], Pack.WORDS[case["dtype"]]).reshape(case["ranks"], case["elements"])
        assert (outputs == outputs[0]).all() or case["sum"] == "result=sum"
    others = ("decode=fp32", "decode=fp32,add=fp32", "order=own", "own=exact", "result=sum", "add=fma", "cast=fp16")
    of = {(case["algorithm"], case["dtype"], case["sum"], case["ranks"]) for case in pack["all_reduces"]}
    assert of == {(a, d, "native", r) for a in ("one_shot", "two_shot", "ring") for d in ("fp16", "bf16") for r in (2, 4)} | {
        (a, d, "fp32", 4) for a in ("one_shot", "two_shot") for d in ("fp16", "bf16")
    } | {(a, "fp32", "native", 4) for a in ("two_shot", "ring")} | {("two_shot", "bf16", sum, 4) for sum in others}


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", "codecs/mxfp4/bf16_gaussian.wire.bin", "inputs/bf16_tail_1.bin", "README.md"])
def test_a_flipped_byte_is_found(made, tmp_path, name):
    shutil.copytree(made, tmp_path / "pack")
    content = bytearray((tmp_path / "pack" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "pack" / name).write_bytes(content)
    result = checked(tmp_path / "pack")
    assert result.code == 1 and name in result.stderr
    with pytest.raises(ValueError, match=name):
        reader_of(made).load(tmp_path / "pack")


def write_manifest(pack, manifest):
    text = json.dumps(manifest).encode()
    (pack / "manifest.json").write_bytes(text)
    (pack / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


def test_a_wrong_wire_with_right_sums_is_found(made, tmp_path):
    shutil.copytree(made, tmp_path / "pack")
    name = "codecs/mxfp4/bf16_gaussian.wire.bin"
    wire = bytearray((tmp_path / "pack" / name).read_bytes())
    wire[7] ^= 1
    (tmp_path / "pack" / name).write_bytes(wire)
    manifest = json.loads((tmp_path / "pack/manifest.json").read_text())
    manifest["files"][name]["sha256"] = hashlib.sha256(wire).hexdigest()
    write_manifest(tmp_path / "pack", manifest)
    reader_of(made).load(tmp_path / "pack")
    result = checked(tmp_path / "pack")
    assert result.code == 1 and f"{name}: " in result.stderr and "from byte 7 on" in result.stderr


@pytest.mark.parametrize("change, message", [
    ({"codecs": 3}, "is not of the form of arlab.vector_pack/2: codecs is no list"), ({"codecs": [{"name": 1}]}, "one of its codecs has no name"),
    ({"files": {"../secret": {"sha256": ""}}}, "outside"), ({"files": {"/etc/hostname": {"sha256": ""}}}, "outside"), ({"files": {"inputs/../../secret": {"sha256": ""}}}, "outside"),
    ({"files": []}, "files is no object"), ({"files": {"README.md": 1}}, "file 'README.md' has no sha256"), ({"dtype": 5}, "dtype is neither"), ({"cases": {}}, "cases is no list"),
    ({"files": {"README.md": {"sha256": 5}}}, "has no sha256"), ({"schema": "arlab.vector_pack/3"}, "not a vector pack, whose manifest.json says arlab.vector_pack/2"),
    ({"schema": "arlab.vector_pack/1"}, "a pack of arlab.vector_pack/1, whose wires of all-reduces are cut off: make it anew"), ({"codecs": [{"name": "int99-g8"}]}, "int99-g8"),
])  # fmt: skip
def test_a_manifest_of_another_form_is_refused(made, tmp_path, change, message):
    shutil.copytree(made, tmp_path / "pack")
    (tmp_path / "secret").write_text("")
    write_manifest(tmp_path / "pack", json.loads((made / "manifest.json").read_text()) | change)
    result = checked(tmp_path / "pack")
    assert result.code in (1, 2) and message in result.stderr and result.stderr.count("\n") == 1 and "exception" not in result.stderr, result


@pytest.mark.parametrize("name", ["manifest.json", "README.md", "inputs/bf16_gaussian.bin", "inputs"])
def test_links_are_not_followed(made, tmp_path, name):
    """A file of somebody else's, in the place of one in the pack, is neither read nor hashed."""
    shutil.copytree(made, tmp_path / "pack")
    (tmp_path / "pack" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "pack" / name).symlink_to(tmp_path / "elsewhere")
    result = checked(tmp_path / "pack")
    assert result.code == 2 and "is a link" in result.stderr and result.stderr.count("\n") == 1
    with pytest.raises(ValueError, match="is a link"):
        reader_of(made).load(tmp_path / "pack")


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "inputs/../../secret"])
def test_the_reader_stays_in_the_pack(made, tmp_path, name):
    shutil.copytree(made, tmp_path / "pack")
    secret = b"secret"
    (tmp_path / "secret").write_bytes(secret)
    manifest = json.loads((made / "manifest.json").read_text())
    write_manifest(tmp_path / "pack", manifest | {"files": {name: {"bytes": len(secret), "sha256": hashlib.sha256(secret).hexdigest()}}})
    reader = reader_of(made)
    with pytest.raises(ValueError, match="is not in the pack"):
        reader.load(tmp_path / "pack")
    case = manifest["cases"][0]
    write_manifest(tmp_path / "pack", manifest | {"cases": [case | {"payload": name}]})
    with pytest.raises(ValueError, match="has no sum in the manifest"):
        list(reader.cases(reader.load(tmp_path / "pack"), case["codec"]))


def test_bad_input(tmp_path):
    (tmp_path / "empty").mkdir()
    refused("vectors --pack pack --codec int4-g12", tmp_path, "int4-g12")
    refused("vectors --pack pack --check", tmp_path, "--check", "--pack")
    refused("vectors --check empty", tmp_path, "manifest.json")
    refused("vectors --check empty --codec mxfp4", tmp_path, "--codec")
    assert {path.name for path in tmp_path.iterdir()} == {"empty"}
