"""reference/codecs/SPEC.md holds: its worked examples, by the program and the oracles, and headings that are cited."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import anybit_oracle
import logfmt_oracle
import microscaling_oracle
import narrow_oracle
import quickreduce_oracle
from wire_oracle import PAYLOADS, pack_codes

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "reference/codecs/SPEC.md"
LAYERS = REPOSITORY / "reference/layers/SPEC.md"
PAGES = {"layers/": LAYERS, "tails/": LAYERS.parents[1] / "tails/SPEC.md"}
FAMILIES = {  # families that the page defines, each with an example of its own
    "plain": r"fp32|fp16|bf16",
    "16 bits for fp32": r"wire-fp16",
    "16 bits for fp32, stochastic": r"wire-bf16-stoch",
    **{name: name for name in quickreduce_oracle.CODECS},
    "any-bit": r"int\d-g\d+",
    "symmetric": r"int\d-g\d+-sym",
    "tensor": r"int\d-gtensor",
    "given": r"int\d-gtensor-static.*",
    "given, symmetric": r"int\d-gtensor-sym-static.*",
    "spikes": r"int\d-g\d+-sr",
    "integer scales": r"int\d-g\d+-sr-is",
    "Hadamard": r"had-int\d-g\d+",
    "stochastic": r"int\d-g\d+-stoch",
    "stochastic FP8": r"fp8-e4m3-g\d+-stoch",
    "error feedback": r"ef-.*",
    "shared scales": r"shared-int\d+-g\d+",
    "lossless exponents": r"lossless-e\d-g\d+",
    "LogFMT": r"logfmt\d-g\d+",
    **{element: element for element in ("mxfp4", "mxfp6-e2m3", "mxfp8-e4m3")},
    **{rule: f"mxfp4-{rule}" for rule in ("ceil", "even", "rceil")},
    "MXINT8": r"mxint8",
    "codebooks": r"nf4-g\d+",
    "scaled FP8": r"fp8-e4m3-g\d+",
    "scaled FP8 of torch": r"fp8-e4m3-g\d+-torch",
    "FP8 per row": r"fp8-e4m3-token\d+",
    "FP8 with a given scale": r"fp8-e4m3-static.*",
    "FP8 with powers of two": r"fp8-e4m3-g\d+-ue8m0",
    "other kernels' blocks": r"fp8-e4m3-g\d+-flashinfer",
    "NVFP4": r"nvfp4",
    "vLLM's roundings": r"nvfp4-vllm",
    "TransformerEngine's roundings": r"nvfp4-te",
    "four over six": r"nvfp4-te-4over6",
    "given tensor scale": r"nvfp4-ts.*",
    "records of rows": r"nvfp4-g\d+-flashinfer",
}


# ---------------------------------------------------------------- examples


class Part(NamedTuple):
    """A line of the wire: bytes from an offset on, and the key of what they hold."""

    offset: int
    bytes: bytes
    name: str


class Example(NamedTuple):
    lines: dict  # key: its lines
    wire: list  # Parts

    @property
    def codec(self):
        return self.lines["codec"][0]

    @property
    def dtype(self):
        return self.lines["dtype"][0]

    def patterns(self, key):
        """Returns the bit patterns of `input` or `decoded`, which are those of the numbers above them."""
        numbers, patterns = (line.split() for line in self.lines[key])
        t = PAYLOADS[self.dtype]
        bits = np.array([int(pattern, 16) for pattern in patterns], t.word)
        assert all(len(pattern) == 2 * t.bytes for pattern in patterns)
        rounded = np.array(numbers, np.float64).astype(t.type).astype(np.float32)
        assert hexadecimal(t.from_fp32(rounded)) == hexadecimal(bits)
        return bits

    def part(self, name):
        return b"".join(part.bytes for part in self.wire if part.name == name)


def parse_part(line):
    fields = re.fullmatch(r"(\d+): ((?:[0-9A-F]{2} ?)+?)(?: \* (\d+))?(?: {2,}(\w+))?", line)
    assert fields, line
    return Part(int(fields[1]), bytes.fromhex(fields[2]) * int(fields[3] or 1), fields[4] or "")


def parse_example(text):
    lines, key = {}, None
    for line in text.splitlines():
        key, content = (line[:10].strip() or key), line[10:]
        lines.setdefault(key, []).append(content)
    wire = [parse_part(line) for line in lines["wire"]]
    end = 0
    for part in wire:
        assert part.offset == end, f"{lines['codec']}: offset {part.offset}, not {end}"
        end += len(part.bytes)
    return Example(lines, wire)


def examples():
    texts = re.findall(r"^```example\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return [parse_example(text) for text in texts]


def oracle(codec):
    codec = codec.removeprefix("ef-")
    if codec in quickreduce_oracle.CODECS:
        return quickreduce_oracle.CODECS[codec]
    for start, known in (("logfmt", logfmt_oracle), ("wire-", narrow_oracle)):
        if codec.startswith(start):
            return known.find(codec)
    return (anybit_oracle if codec.startswith(("int", "had-")) else microscaling_oracle).find(codec)


def packed(example, codes):
    """The codes as planes, or as an atom that zeros fill up."""
    if example.codec.startswith("qr-"):
        model = oracle(example.codec)
        atom = np.full(quickreduce_oracle.ATOM, model.levels, np.uint8)
        atom[: len(codes)] = codes
        return model.pack(atom.reshape(1, -1, 8)).tobytes()
    bits = int(re.search(r"\d", example.codec)[0]) if "fp4" not in example.codec else 4
    return pack_codes(np.array([codes], np.uint8), bits).tobytes()


def hexadecimal(patterns):
    return [f"{pattern:X}" for pattern in patterns]


def name_of(example):
    return f"{example.codec}-{example.dtype}"


each_example = pytest.mark.parametrize("example", examples(), ids=name_of)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_an_example(family):
    assert any(re.fullmatch(FAMILIES[family], example.codec) for example in examples())


@each_example
def test_the_program_does_what_the_example_says(tmp_path, example):
    x, t = example.patterns("input"), PAYLOADS[example.dtype]
    wire = b"".join(part.bytes for part in example.wire)
    np.save(tmp_path / "in.npy", x.view(np.float32) if example.dtype == "fp32" else x)

    def run(command):
        command = [PROGRAM, *command.split(), "--codec", example.codec, "--dtype", example.dtype]
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    run("encode in.npy encoded")
    assert (tmp_path / "encoded").read_bytes().hex(" ") == wire.hex(" ")
    (tmp_path / "wire").write_bytes(wire)
    run(f"decode --elements {len(x)} wire out.npy")
    assert hexadecimal(np.load(tmp_path / "out.npy").view(t.word)) == hexadecimal(example.patterns("decoded"))


def has_oracle(codec):
    return codec not in PAYLOADS and not codec.startswith(("lossless", "shared")) and not codec.endswith("flashinfer")


@pytest.mark.parametrize("example", [e for e in examples() if has_oracle(e.codec)], ids=name_of)
def test_the_oracle_does_what_the_example_says(example):
    x = example.patterns("input")
    wire = np.frombuffer(b"".join(part.bytes for part in example.wire), np.uint8)
    model = oracle(example.codec)
    assert model.encode(example.dtype, x).tobytes().hex(" ") == wire.tobytes().hex(" ")
    assert hexadecimal(model.decode(example.dtype, wire, len(x))) == hexadecimal(example.patterns("decoded"))


@each_example
def test_metadata_and_codes_are_what_is_on_the_wire(example):
    for key in {part.name for part in example.wire} - {"", "codes"}:
        numbers = re.search(r"= ((?:[0-9A-F]{2}){1,4}(?: [0-9A-F]+)*)$", example.lines[key][-1])[1]
        little_endian = b"".join(bytes.fromhex(number)[::-1] for number in numbers.split())
        assert little_endian == example.part(key), key
    if "codes" in example.lines:
        codes = [int(code) for code in example.lines["codes"][0].split()]
        assert packed(example, codes) == example.part("codes")


def test_the_tenth_powers_of_two_are_those_of_the_table():
    row = re.search(r"^\| fp32 bits \|.*$", PAGE.read_text(), re.M)[0]
    significands = anybit_oracle.integer_scales()[128:138].view(np.uint32)
    assert re.findall(r"`(3F[0-9A-F]{6})`", row) == hexadecimal(significands)


FORMATS = {
    "bf16": ml_dtypes.bfloat16, "fp16": np.float16, "e5m2": ml_dtypes.float8_e5m2, "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_element_formats_are_those_of_the_table(name):
    row = re.search(rf"^\| {name} \| 1 \+ (\d) \+ (\d+) \| (\d+) \| (\S+) \|", PAGE.read_text(), re.M)
    about = ml_dtypes.finfo(FORMATS[name])
    assert (int(row[1]), int(row[2])) == (about.nexp, about.nmant)
    assert 2.0 ** (1 - int(row[3])) == float(about.smallest_normal)
    largest = float.fromhex(row[4]) if "x" in row[4] else float(row[4])
    assert largest == float(about.max)


# ---------------------------------------------------------------- tables of sizes


def rows_of_sizes():
    """Yields the cells of each codec in the tables at the head of sections, which have an example."""
    for section in re.split(r"^##+ ", PAGE.read_text(), flags=re.M):
        head, _, table = section.partition("| codec | bits per element | bytes of a chunk | scale | rounding | range | whose |\n")
        assert not table or "```example" in table, head
        for row in table.partition("\n\n")[0].splitlines()[1:]:
            yield [cell.strip(" `") for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("row", list(rows_of_sizes()), ids=lambda row: row[0])
def test_bytes_of_a_chunk_are_what_the_program_writes(tmp_path, row):
    codec, bits, size, *words = row
    of, elements = re.match(r"(\d+) of (\d+)", size).groups()
    assert len(words) == 4 and all(words) and float(bits.split(",")[0]) == round(8 * int(of) / int(elements), 4)
    dtype = "fp32" if codec.startswith(("fp32", "wire-")) else "bf16" if codec.startswith(("bf16", "lossless")) else "fp16"
    np.save(tmp_path / "in.npy", np.zeros(int(elements), PAYLOADS[dtype].word if dtype != "fp32" else np.float32))
    command = [PROGRAM, "encode", "in.npy", "wire", "--codec", codec, "--dtype", dtype]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "wire").stat().st_size == int(of)


def test_every_listed_codec_has_its_sizes():
    command = [PROGRAM, "list", "codecs", "--format", "json"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["codecs"]
    bits = {row[0]: row[1] for row in rows_of_sizes()}
    assert {each["name"]: each["wire_bits_per_element"] for each in listed} == {
        each["name"]: pytest.approx(float(bits[each["name"]]), abs=0.01) for each in listed
    }


# ---------------------------------------------------------------- citations


def headings(page=PAGE):
    return re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sources():
    for folder in ("reference", "kernels", "sim", "experiments", "tests"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".hip", ".py", ".md", ".txt", ".pml") and path != Path(__file__):
                yield path
    yield from REPOSITORY.glob("*.md")


def prose(path):
    """The file without the line breaks of its comments."""
    return re.sub(r"\s+(?:///?<?|#)?\s*", " ", path.read_text(encoding="utf-8"))


def test_every_heading_that_is_cited_exists():
    found = 0
    for path in sources():
        text = prose(path)
        for mention in re.finditer(r'(\w+/)?SPEC\.md((?:(?:,| and|, and) "[^"]*")*)(#[\w-]+)?', text):
            known = headings(PAGES.get(mention[1] or path.parent.name + "/", PAGE))
            cited = re.findall(r'"([^"]*)"', mention[2])
            where = f"{path}: ...{text[mention.start() - 40 : mention.end() + 40]}..."
            assert cited or path.suffix not in (".h", ".cc", ".hip"), f"{where}: which heading?"
            assert set(cited) <= set(known), where
            assert mention[3] is None or mention[3][1:] in map(anchor, known), where
            found += len(cited)
    assert found > 30


def test_links_inside_of_the_page_lead_somewhere():
    links = re.findall(r"\]\(#([^)]*)\)", PAGE.read_text())
    assert links and set(links) <= {anchor(heading) for heading in headings()}


def test_no_specification_is_cited_that_is_not_here():
    elsewhere = re.compile(
        r"\bspec(ification)?('s)?,? sections?\b|\bsections? \d of the (codecs' )?spec|\bspec/\w+\.md|the spec leaves", re.I
    )
    for path in sources():
        mention = elsewhere.search(prose(path))
        assert not mention, f"{path}: {mention[0]}"
