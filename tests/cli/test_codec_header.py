"""--codec-header: a codec of one's own from one C++ header, in every command, with a build of nothing."""

import os
import stat

import numpy as np
import pytest
from program import REPOSITORY, contents, error_line, ok, ok_json, refused, run

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
EXAMPLE = PAGE.split("<!-- example: example_codec.h -->\n```cpp\n")[1].split("\n```")[0] + "\n"
STRUCT_LINE = EXAMPLE.splitlines().index("struct AbsMax8 {") + 1
MINE = "--codec-header mine.h --codec absmax8-g64"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Returns the folder of compiled headers for all tests of this file."""
    folder = tmp_path_factory.mktemp("cache") / "kernels"
    os.environ["ARLAB_KERNEL_CACHE"] = str(folder)
    yield folder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.h").write_text(EXAMPLE)
    return tmp_path


def changed(folder, old, new):
    assert EXAMPLE.count(old) == 1, old
    (folder / "mine.h").write_text(EXAMPLE.replace(old, new))


# ---------------------------------------------------------------- it is a codec as others are


def test_commands_take_it(folder):
    listed = {row["name"]: row for row in ok_json("list codecs --codec-header mine.h", folder)["codecs"]}
    assert listed["absmax8-g64"]["summary"] == "8-bit symmetric integers, fp32 scale"
    assert "absmax8-g64" not in {row["name"] for row in ok_json("list codecs", folder)["codecs"]}
    reduced = ok_json(f"reduce {MINE} --algorithm two_shot --ranks 4 --synthetic gaussian --elements 8K", folder)
    assert reduced["codec"] == "absmax8-g64" and reduced["ranks_identical"] and 40 < reduced["sqnr_db"] < 60
    assert ok_json("check-codec absmax8-g64 --codec-header mine.h", folder)["violations"] == 0


def test_packs_and_models_take_it(folder):
    assert ok_json("vectors pack --pack --codec absmax8-g64 --codec-header mine.h", folder)["codecs"] == 1
    assert ok_json("vectors pack --check --codec-header mine.h", folder)["passed"] is True
    refused("vectors pack --check", folder, "unknown codec 'absmax8-g64'")
    words = "model time --model llama-3-8b --topology a100-8 --algorithm two_shot"
    assert ok_json(f"{words} {MINE}", folder) != ok_json(f"{words} --codec bf16", folder)


def test_simulations_count_its_wire_and_operations(folder):
    def simulated(codec, words=""):
        found = ok_json(f"simulate --topology full:4 --algorithm two_shot --bytes 1M {words} --codec {codec}", folder)
        return found["latency_us"], found["wire_bits_per_element"]

    mine = simulated("absmax8-g64", "--codec-header mine.h")
    assert mine[1] == 8 + 32 / 64
    changed(folder, ".encode_ops_per_element = 5", ".encode_ops_per_element = 5000")
    slow = simulated("absmax8-g64", "--codec-header mine.h")
    assert slow[0] > mine[0] and slow[1] == mine[1]


def test_wires_come_and_go(folder):
    x = np.random.default_rng(1).normal(size=4097).astype(np.float16)
    np.save(folder / "x.npy", x)
    ok(f"encode x.npy wire.bin {MINE}", folder)
    assert (folder / "wire.bin").stat().st_size == 4097 + 4 * 65
    ok(f"decode wire.bin back.npy {MINE} --dtype fp16", folder)
    back = np.load(folder / "back.npy")
    assert back.shape == x.shape and 0 < np.abs(back - x).max() < 0.02


def test_several_headers_are_known(folder):
    other = EXAMPLE.replace("absmax8-g64", "other-g32").replace("kBlock = 64", "kBlock = 32").replace("AbsMax8", "Other")
    (folder / "other.h").write_text(other)
    words = "--codec-header mine.h --codec-header other.h --codec rs=absmax8-g64,ag=other-g32"
    found = ok_json(f"reduce {words} --algorithm two_shot --ranks 4 --synthetic gaussian --elements 8K", folder)
    assert found["ranks_identical"]
    refused("list codecs --codec-header mine.h --codec-header mine.h", folder, "mine.h has a codec absmax8-g64, too")


STUDY = """
title = "own"
ranks = [2]
algorithms = ["one_shot", "two_shot"]
codecs = ["absmax8-g64"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=3"
elements = 2048
"""


def rows(folder):
    return [line for line in (folder / "out/results.csv").read_text().splitlines() if not line.startswith("#")]


def test_a_study_that_is_resumed_knows_another_header(folder):
    (folder / "own.toml").write_text(STUDY)
    words = "study own.toml --out out --no-plots --codec-header mine.h"
    assert run(words, folder).code == 0
    first = rows(folder)
    assert len(first) == 3
    again = run(words + " --resume", folder)
    assert again.code == 0 and rows(folder) == first
    changed(folder, "largest / 127", "largest / 100")
    refusal = run(words + " --resume", folder)
    assert refusal.code == 2 and "codec absmax8-g64" in error_line(refusal.stderr)
    assert run(words, folder).code == 0 and rows(folder) != first


# ---------------------------------------------------------------- the cache


def without_compiler(folder):
    """An environment in which no program is found."""
    return {**{name: value for name, value in os.environ.items() if name != "CXX"}, "PATH": str(folder / "nowhere")}


def test_a_second_use_needs_no_compiler(folder, cache):
    ok("list codecs --codec-header mine.h", folder)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    before = contents(cache)
    report = ok_json(f"reduce {MINE} --algorithm two_shot --ranks 2 --synthetic gaussian --elements 8K", folder, env=without_compiler(folder))
    assert report["ranks_identical"]
    assert contents(cache).keys() == before.keys()
    changed(folder, "largest / 127", "largest / 126")
    refused(f"reduce {MINE} --algorithm two_shot --ranks 2 --synthetic gaussian --elements 8K", folder, "mine.h: ", "C++ compiler", "apt install g++", env=without_compiler(folder))


def test_a_damaged_library_is_made_again(folder, cache):
    changed(folder, "largest / 127", "largest / 125")
    before = set(cache.iterdir())
    ok("list codecs --codec-header mine.h", folder)
    (made,) = set(cache.iterdir()) - before
    whole = made.read_bytes()
    made.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    ok("list codecs --codec-header mine.h", folder)
    assert len(made.read_bytes()) > 1000 and made.read_bytes()[-1] == whole[-1]


def test_without_a_cache_it_works_and_says_so(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("open")
    elsewhere.chmod(0o755)
    done = run("list codecs --codec-header mine.h", folder, env={**os.environ, "ARLAB_KERNEL_CACHE": str(elsewhere)})
    assert done.code == 0 and "absmax8-g64" in done.stdout
    assert done.stderr.count("\n") == 1 and "is not used" in done.stderr and list(elsewhere.iterdir()) == []


# ---------------------------------------------------------------- what is wrong with a header

LIST = "list codecs --codec-header mine.h"
NEEDS = [
    ("  static constexpr std::size_t kBlock = 64;\n", "kBlock, a power of two from 8 to 256"),
    ("  constexpr unsigned bits() const { return 8; }\n", "unsigned bits() const"),
    ("  constexpr Scale nan_scale() const { return std::numeric_limits<float>::quiet_NaN(); }\n", "Scale nan_scale() const"),
    ('  static std::vector<std::string> listed() { return {"absmax8-g64"}; }\n', "listed()"),
]


@pytest.mark.parametrize(("line", "need"), NEEDS)
def test_what_is_missing_is_named_at_the_struct(folder, line, need):
    replacement = line.replace("kBlock", "kSize").replace("bits()", "bit()")
    replacement = replacement.replace("nan_scale", "nan").replace("listed", "list")
    changed(folder, line, replacement)
    refused(LIST, folder, f"arlab: mine.h:{STRUCT_LINE}: struct arlab::AbsMax8 needs ", need)


@pytest.mark.parametrize(
    ("old", "new", "need"),
    [
        ("kBlock = 64", "kBlock = 48", "a power of two from 8 to 256"),
        ("kBlock = 64", "kBlock = 512", "a power of two from 8 to 256"),
        ("using Scale = float", "using Scale = double", "using Scale, float or std::uint8_t"),
        ("constexpr unsigned bits()", "constexpr int bits()", "unsigned bits() const"),
        ("ScaledBlock<Scale> scale_of(float largest)", "ScaledBlock<Scale> scale(float largest)", "scale_of(float) const"),
        ("ScaledCode quantize(float x, float scale)", "ScaledCode quantize(float x)", "quantize(float, float) const"),
        ("constexpr float dequantize(", "constexpr double dequantize(", "dequantize(std::uint32_t, Scale) const"),
        ("static CodecInfo info(", "CodecInfo info(", "static CodecInfo info(const std::string&)"),
        ("parse(std::string_view name)", "parsed(std::string_view name)", "parse(std::string_view)"),
        ("using Scale = float;", "using Scale = float;\n  const char* text = nullptr;", "members that are numbers: no pointers"),
        ("using Scale = float;", "using Scale = float;\n  std::string text;", "members that are numbers: no pointers"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_missing(folder, old, new, need):
    changed(folder, old, new)
    text = (folder / "mine.h").read_text()
    if "quantize(float x)" in text:
        (folder / "mine.h").write_text(text.replace("x / scale", "x / 2"))
    refused(LIST, folder, f"arlab: mine.h:{STRUCT_LINE}: struct arlab::AbsMax8 needs ", need)


def test_what_does_not_compile_is_shown_where_it_is(folder):
    changed(folder, "round_to_even(", "round_to_evn(")
    line = (folder / "mine.h").read_text()[: (folder / "mine.h").read_text().index("round_to_evn")].count("\n") + 1
    refused(LIST, folder, f"arlab: mine.h:{line}: ", "round_to_evn")


def test_a_checkout_beside_it_is_not_read(folder):
    (folder / "reference/codecs").mkdir(parents=True)
    (folder / "part.h").write_text('#include "reference/codecs/scaled_format.h"\n')
    changed(folder, "#pragma once\n", '#pragma once\n#include "part.h"\n')
    for name in ("scaled_format.h", "compiled_codec.h"):
        (folder / "reference/codecs" / name).write_bytes((REPOSITORY / "reference/codecs" / name).read_bytes())
    ok(LIST, folder)


def test_what_does_not_compile_in_what_it_includes(folder):
    (folder / "sub").mkdir()
    (folder / "sub/part.h").write_text("#pragma once\n\nint x = ;\n")
    changed(folder, "#pragma once\n", '#pragma once\n#include "sub/part.h"\n')
    refused(LIST, folder, "sub/part.h:3: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return 8; }", "return 9; }", "bits() is 9: allowed are 1 to 8"),
        ("return 8; }", "return 0; }", "bits() is 0: allowed are 1 to 8"),
        ("constexpr unsigned bits() const { return 8; }", "unsigned bits() const { static unsigned n = 0; return 4 + ++n % 2; }", "needed is the same number always"),
        ("return 8; }", "return 7; }", "quantize() gives the code"),
        ('{"absmax8-g64"}; }', '{"absmax8-g64", "absmax8-g99"}; }', "lists 'absmax8-g99' but does not find it"),
        ('{"absmax8-g64"}; }', "{}; }", "at least one listed name"),
        ('{"absmax8-g64"}; }', '{"qr-q4"}; }', "'qr-q4' is already registered"),
        ('{"absmax8-g64"}; }', '{"Absmax"}; }', "allowed in a name are a to z"),
        ("{.name = name,", '{.name = "other",', "finds 'other' under the name 'absmax8-g64'"),
        ('return {"absmax8-g64"}; }', 'throw std::runtime_error("not yet"); }', "it threw: not yet"),
    ],
)  # fmt: skip
def test_what_it_says_wrongly_of_itself(folder, old, new, said):
    text = EXAMPLE.replace("#include <limits>", "#include <limits>\n#include <stdexcept>")
    assert text.count(old) == 1
    (folder / "mine.h").write_text(text.replace(old, new))
    refused(LIST, folder, f"arlab: mine.h:{STRUCT_LINE + 1}: struct arlab::AbsMax8: ", said)


def test_bits_that_differ_each_time(folder):
    changed(folder, "return {static_cast<std::uint32_t>(static_cast<int>(code)) & 0xFF, code != q};", "static unsigned n = 0; return {++n & 0xFF, false};")
    text = (folder / "mine.h").read_text()
    (folder / "mine.h").write_text(text.replace("constexpr ScaledCode quantize", "ScaledCode quantize"))
    refused(LIST, folder, f"arlab: mine.h:{STRUCT_LINE}: struct arlab::AbsMax8: codec absmax8-g64: ", "wire byte")


def test_headers_that_cannot_be_read(folder):
    os.mkfifo(folder / "pipe.h")
    (folder / "folder.h").mkdir()
    (folder / "empty.h").write_text("")
    (folder / "two.h").write_text(EXAMPLE + EXAMPLE.replace("AbsMax8", "Second").replace("#pragma once", ""))
    for file, said in (
        ("none.h", "No such file"), ("pipe.h", "not a regular file"), ("folder.h", "not a regular file"),
        ("empty.h", "no struct of a codec"), ("two.h", "a second codec beside struct arlab::AbsMax8"), ("''", "empty"),
    ):  # fmt: skip
        refused(f"list codecs --codec-header {file}", folder, said)
    for included, said in (('"none.h"', "none.h"), ('"pipe.h"', "not a regular file")):
        changed(folder, "#pragma once\n", f"#pragma once\n#include {included}\n")
        refused(LIST, folder, said)


def test_what_it_includes_otherwise_is_refused(folder):
    """The hash of a header would not know of it."""
    (folder / "a part.h").write_text("#pragma once\n")
    for included, is_known in ((f"<{folder}/a part.h>", False), ('"a part.h"', True), ("PART", False)):
        changed(folder, "#pragma once\n", f'#pragma once\n#define PART "{folder}/a part.h"\n#include {included}\n')
        if is_known:
            ok(LIST, folder)
        else:
            (folder / "a part.h").write_text(f"#pragma once\n// {included.strip('<>')}\n")
            refused(LIST, folder, "mine.h: it includes ", "a part.h", "another way")


def test_compilers_that_are_none(folder):
    changed(folder, "largest / 127", "largest / 124")
    environment = {**os.environ, "CXX": "no-such-compiler -O0"}
    refused(LIST, folder, "CXX is 'no-such-compiler -O0'", "no such program", env=environment)
    refused(LIST, folder, "mine.h: false: it said nothing", env={**os.environ, "CXX": "false"})


def test_a_compiler_with_options_is_one(folder):
    changed(folder, "largest / 127", "largest / 123")
    assert "absmax8-g64" in ok(LIST, folder, env={**os.environ, "CXX": "c++ -g"})


def test_nothing_is_left_in_the_temporary_folder(folder, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    changed(folder, "largest / 127", "largest / 122")
    ok(LIST, folder, env={**os.environ, "TMPDIR": str(temporary)})
    changed(folder, "largest / 127", "largest /")
    refused(LIST, folder, "mine.h:", env={**os.environ, "TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []
    refused(LIST, folder, "nowhere", env={**os.environ, "TMPDIR": str(temporary / "nowhere")})


# ---------------------------------------------------------------- arlab new codec --header


def test_new_codec_writes_a_header(tmp_path):
    report = ok_json("new codec zebra5-g16 --block 16 --header zebra.h", tmp_path)
    assert report["codec"] == "zebra5-g16" and report["header"] == "zebra.h"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["zebra.h"]
    text = (tmp_path / "zebra.h").read_text()
    assert "struct Zebra5G16 {" in text and "kBlock = 16;" in text and "absmax" not in text.lower()
    assert report["then"] == "arlab check-codec zebra5-g16 --codec-header zebra.h"
    assert ok_json(report["then"].removeprefix("arlab "), tmp_path)["violations"] == 0
    refused("new codec zebra5-g16 --header zebra.h", tmp_path, "zebra.h is there already")
    refused("new codec zebra5-g16 --header zebra.cc", tmp_path, "ends in .h or .hpp")
    refused("new codec zebra5-g16 --header none/zebra.h", tmp_path, "there is no folder none")
    refused("new codec zebra5-g16 --header a.h --tree .", tmp_path, "--tree")
