"""Bad usage and bad files: one line that says what is wrong and what is allowed, nothing else."""

import os
import resource

import numpy as np
import pytest
from program import contents, error_line, ok, refused, run, without_privileges
from safetensors import numpy as safetensors_numpy

ENCODE = "encode --codec fp16"
DECODE = "decode --codec fp16"
REDUCE = "reduce --algorithm ring --codec fp16"
DATA = "--synthetic gaussian --elements 64 --ranks 4"
SCHEDULE = "schedule --algorithm ring --ranks 4 --elements 64"
SIMULATE = "simulate --topology full:4 --algorithm ring --codec fp16 --bytes 1M"
MOST_RANKS = "65536"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with good files and bad ones."""
    folder = tmp_path_factory.mktemp("files")
    tensor = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float16)
    np.save(folder / "good.npy", tensor)
    whole = (folder / "good.npy").read_bytes()
    (folder / "truncated.npy").write_bytes(whole[:-1])
    (folder / "empty.npy").write_bytes(b"")
    np.save(folder / "single.npy", tensor.astype(np.float32))
    np.save(folder / "bits.npy", tensor.view(np.uint16))
    np.save(folder / "number.npy", np.float16(1))
    np.save(folder / "no_ranks.npy", np.zeros((0, 4), np.float16))
    np.save(folder / "no_elements.npy", np.zeros((4, 0), np.float16))
    safetensors_numpy.save_file({"a": tensor, "b": tensor}, folder / "two.safetensors")
    safetensors_numpy.save_file({"long": np.zeros((4, 8), np.int64)}, folder / "int64.safetensors")
    (folder / "wire.bin").write_bytes(tensor.tobytes())
    (folder / "directory").mkdir()
    (folder / "link.npy").symlink_to("good.npy")
    (folder / "dangling.npy").symlink_to("nowhere.npy")
    (folder / "loop.npy").symlink_to("loop.npy")
    os.mkfifo(folder / "pipe")
    (folder / "good.json").write_text(ok(SCHEDULE, folder))
    (folder / "good.txt").write_text("x")
    return folder


def cases(command, *table):
    return [
        pytest.param(f"{command} {arguments}", fragments, id=f"{command} {arguments}")
        for arguments, *fragments in table
    ]


COMMAND_LINES = [
    *cases(
        "",
        ["frobnicate", "frobnicate", "known are encode, judge, kernels, ", "(23 in all); see arlab --help"],
        ["LIST codecs", "LIST", "did you mean 'list'? see arlab --help"],
        ["''", "''", "known are bench, calibrate, "],
        ["--frobnicate", "--frobnicate"],
        ["--format json", "--format"],
        ["'list codecs'", "list codecs"],
        ["-- list codecs", ""],
    ),
    *cases(
        "list",
        ["", "WHAT", "--help"],
        ["kernels", "kernels", "codecs, algorithms, all-reduces, topologies, inputs"],
        ["''", "WHAT", "empty", "codecs, algorithms"],
        ["codecs inputs", "inputs"],
        ["codecs list inputs", "inputs"],
        ["codecs --frobnicate", "--frobnicate", "--help"],
        ["codecs --format xml", "--format", "xml", "table, json, csv"],
        ["codecs --format", "--format"],
        ["codecs --format ''", "--format", "empty", "table, json or csv"],
        ["codecs --format json --format csv", "--format"],
    ),
    *cases(
        "encode",
        ["", "--help"],
        ["good.npy out.bin", "--codec", "--help"],
        ["--codec fp16 good.npy", "OUT", "--help"],
        ["--codec fp16 good.npy out.bin more", "more"],
        ["--codec fp16 --frobnicate good.npy out.bin", "--frobnicate"],
        ["--codec fp16 --elements 8 good.npy out.bin", "--elements"],
        ["--codec '' good.npy out.bin", "--codec", "empty", "arlab list codecs"],
        ["--codec fp16 --codec bf16 good.npy out.bin", "--codec"],
        ["--codec fp32 good.npy out.bin", "fp32", "fp16"],
        ["--codec fp16 link.npy good.npy", "cannot write good.npy: link.npy is read: allowed is another file"],
    ),
    *cases(
        "decode",
        ["--codec fp16 wire.bin", "OUT"],
        ["wire.bin out.npy", "--codec"],
        ["--codec fp16 --dtype bf16 wire.bin out.npy", "fp16", "bf16"],
        ["--codec fp16 --elements wire.bin out.npy", "OUT"],
    ),
    *cases(
        REDUCE,
        ["", "--input", "--synthetic"],
        ["--synthetic gaussian --elements 64", "--ranks"],
        ["--synthetic gaussian --ranks 4", "--elements"],
        ["--elements 64 --ranks 4", "--synthetic"],
        ["--input good.npy --synthetic gaussian", "--input", "--synthetic"],
        ["--input good.npy --elements 64", "--input", "--elements"],
        ["--input good.npy --out link.npy", "cannot write link.npy: good.npy is read"],
        ["--input good.npy --ranks 3", "good.npy", "3", "(4, 64)"],
        ["--input good.npy --tensor a", "good.npy", "tensor"],
        [f"--tensor a {DATA}", "--tensor", "--input"],
        [f"{DATA} --schedule good.json", "--algorithm", "--schedule"],
        [f"{DATA} --algorithm ring", "--algorithm"],
        [f"{DATA} more", "more"],
        [f"{DATA} --dtype bf16", "fp16", "bf16"],
        [f"{DATA} --dtype half", "half", "fp16, bf16, fp32"],
        [f"{DATA} --accumulate foo", "--accumulate", "foo", "native, fp32"],
        [f"{DATA} --group-size 0", "--group-size", "'0'", "1 to 65536"],
        [f"{DATA} --threads 1025", "--threads", "1024"],
        [f"{DATA} --threads many", "--threads", "many"],
        [f"{DATA} --out missing/out.npy", "missing"],
        [f"{DATA} --out directory", "directory"],
        [f"{DATA} --out good.npy/out.npy", "good.npy/out.npy"],
    ),
    *cases(
        "reduce --codec fp16",
        [DATA, "--algorithm", "--schedule"],
        [f"{DATA} --algorithm star", "star", "known are ring, tree, two_shot, "],
        [f"{DATA} --algorithm ''", "algorithm"],
        ["--algorithm all_to_all --synthetic gaussian --elements 64 --ranks 3", "all_to_all", "64 elements per rank", "multiples of 3"],
        [f"{DATA} --schedule good.json --own exact", "--own", "good.json"],
        [f"{DATA} --schedule good.json --combine none", "--combine", "good.json"],
        ["--schedule good.json --synthetic gaussian --elements 65 --ranks 4", "good.json", "64", "65"],
        ["--schedule good.json --synthetic gaussian --elements 64 --ranks 5", "good.json", "4", "5"],
    ),
    *cases(f"reduce --algorithm ring {DATA}", ["", "--codec"]),
    *cases(
        f"{REDUCE} --elements 64 --ranks 4 --synthetic",
        ["normal", "normal", "gaussian"],
        ["''", "--synthetic"],
    ),
    *cases(
        "schedule",
        ["", "--algorithm", "--schedule"],
        ["--algorithm ring", "--ranks"],
        ["--algorithm ring --ranks 4", "--elements"],
        ["--algorithm ring --elements 64", "--ranks"],
        ["--algorithm ring --schedule good.json", "--algorithm", "--schedule"],
    ),
    *cases(
        SCHEDULE,
        ["--codec fp16 --alignment 8", "--codec", "--alignment"],
        ["--alignment 0", "--alignment", "0"],
        ["--alignment -1", "--alignment", "-1"],
    ),
    *cases(
        "simulate",
        ["--topology full:4 --codec fp16 --bytes 1M", "--algorithm", "--schedule"],
        ["--topology full:4 --algorithm ring --bytes 1M", "--codec"],
        ["--algorithm ring --codec fp16 --bytes 1M", "--topology"],
        ["--topology full:4 --algorithm ring --codec fp16", "--bytes"],
        ["--topology moon --algorithm ring --codec fp16 --bytes 1M", "moon", "known are mi455x-72, ", "arlab list topologies"],
        ["--topology '' --algorithm ring --codec fp16 --bytes 1M", "--topology", "empty", "arlab list topologies"],
        ["--topology missing.toml --algorithm ring --codec fp16 --bytes 1M", "missing.toml"],
        ["--topology directory.toml --algorithm ring --codec fp16 --bytes 1M", "directory.toml"],
    ),
    *cases(
        SIMULATE,
        ["--ranks 5", "5 ranks", "only 4"],
        ["--schedule good.json", "--algorithm", "--schedule"],
    ),
    *cases(
        "vectors",
        ["out", "--codec"],
        ["--codec fp16", "OUTDIR"],
        ["--codec fp16 good.npy", "good.npy"],
    ),
]


@pytest.mark.parametrize("command, fragments", COMMAND_LINES)
def test_command_line(files, command, fragments):
    refused(command, files, *fragments)


@pytest.mark.parametrize("ranks", ["0", "-1", "65537", "99999999999999999999", "1e2", "2.5", "four", "4K"])
def test_ranks_say_the_option_and_the_range(files, ranks):
    for command in [
        "schedule --algorithm ring --elements 64",
        f"{REDUCE} --synthetic gaussian --elements 64",
    ]:
        refused(f"{command} --ranks {ranks}", files, "--ranks", "1 to 65536")
    refused(f"{SIMULATE} --ranks {ranks}", files, "ranks")


@pytest.mark.parametrize(
    "count",
    [
        "0", "-1", "1e99", "12X", "12KK", "1.5M", "K", "0K", "' 1'", "0x40", "٣",
        "99999999999999999999", "17179869184G",
    ],
)  # fmt: skip
def test_counts_say_the_option_and_the_form(files, count):
    for command in [
        "schedule --algorithm ring --ranks 4 --elements",
        f"{REDUCE} --synthetic gaussian --ranks 4 --elements",
        "simulate --topology full:4 --algorithm ring --codec fp16 --bytes",
        "schedule --algorithm ring --ranks 4 --elements 64 --alignment",
    ]:
        refused(f"{command} {count}", files, command.split()[-1])


@pytest.mark.parametrize(
    "command",
    [
        f"{REDUCE} {DATA} --dtype ''",
        f"{REDUCE} {DATA} --own ''",
        f"{REDUCE} {DATA} --out ''",
        f"{REDUCE} --input two.safetensors --tensor ''",
        f"{DECODE} --elements '' wire.bin out.npy",
        f"{SCHEDULE} --codec ''",
        f"{SCHEDULE} --alignment ''",
        f"{SCHEDULE} --group-size ''",
        f"{SIMULATE} --ranks ''",
        f"{SIMULATE} --dtype ''",
    ],
)
def test_an_empty_value_is_not_a_missing_option(files, command):
    """`--ranks "$RANKS"` with an unset variable."""
    refused(command, files)


def test_more_than_the_machine_has(files):
    for elements in ["64G", "1048576G", "17179869183G"]:
        refused(f"{REDUCE} --synthetic gaussian --ranks 8 --elements {elements}", files, "GiB")
    size = "17179869183G"
    refused(
        f"simulate --topology full:4 --algorithm ring --codec fp16 --bytes {size}",
        files,
        "elements per rank is out of range",
    )


# ---------------------------------------------------------------- files

TENSORS = [
    ("missing.npy", ["missing.npy", "No such file"]),
    ("''", [""]),
    ("directory", ["directory"]),
    ("dangling.npy", ["dangling.npy", "No such file"]),
    ("loop.npy", ["loop.npy"]),
    ("good.npy/below.npy", ["good.npy/below.npy"]),
    ("good.txt", ["good.txt", ".npy, .safetensors and .gguf"]),
    ("good.NPY", ["good.NPY", ".npy, .safetensors and .gguf"]),
    ("empty.npy", ["empty.npy", "not a .npy file"]),
    ("truncated.npy", ["truncated.npy", "512 bytes", "511"]),
    ("single.npy", ["single.npy", "fp32", "codec fp16"]),
    ("two.safetensors", ["two.safetensors", "2 tensors: a, b"]),
    ("int64.safetensors", ["int64.safetensors", "I64", "F16, BF16, F32, and quantized"]),
]


@pytest.mark.parametrize("name, fragments", TENSORS)
def test_tensor_files(files, name, fragments):
    refused(f"{ENCODE} {name} out.bin", files, *fragments)
    if name != "''":
        refused(f"{REDUCE} --input {name} --out out.npy", files, *fragments)


@pytest.mark.parametrize(
    "arguments, fragments",
    [
        ("number.npy", ["number.npy", "[ranks, ...]"]),
        ("no_ranks.npy", ["no_ranks.npy", "(0, 4)", MOST_RANKS]),
        ("no_elements.npy", ["no_elements.npy", "no elements"]),
        ("good.npy --dtype bf16", ["bf16"]),
        ("two.safetensors --tensor c", ["two.safetensors", "'c': there are a, b"]),
        ("two.safetensors --tensor a --dtype bf16", ["two.safetensors", "fp16", "bf16"]),
        ("int64.safetensors --tensor long", ["int64.safetensors", "I64", "F16, BF16, F32, and quantized"]),
    ],
)
def test_tensors_that_cannot_be_reduced(files, arguments, fragments):
    refused(f"{REDUCE} --input {arguments} --out out.npy", files, *fragments)


@pytest.mark.parametrize("name", ["missing.bin", "directory", "pipe", "loop.npy", "wire.bin/below", "''"])
def test_wire_files(files, name):
    refused(f"{DECODE} {name} out.npy", files, name.strip("'"))


@pytest.mark.parametrize("name", ["missing.json", "directory", "pipe", "good.npy", "empty.npy", "good.txt"])
def test_schedule_files(files, name):
    refused(f"schedule --schedule {name}", files, name)
    refused(f"{SIMULATE.replace('--algorithm ring', '')} --schedule {name}", files, name)


def test_a_sparse_file_of_a_terabyte(tmp_path):
    """Refused for its size, before it fills the memory."""
    header = np.lib.format.magic(1, 0)
    dictionary = b"{'descr': '<f2', 'fortran_order': False, 'shape': (4, 137438953472), }"
    dictionary += b" " * (117 - len(dictionary)) + b"\n"
    header += len(dictionary).to_bytes(2, "little") + dictionary
    with open(tmp_path / "huge.npy", "wb") as file:
        file.write(header)
        file.truncate(len(header) + (1 << 40))
    with open(tmp_path / "huge.bin", "wb") as file:
        file.truncate(1 << 40)
    refused("encode --codec fp16 huge.npy out.bin", tmp_path, "memory")
    refused("decode --codec fp16 huge.bin out.npy", tmp_path, "memory")
    refused("reduce --algorithm ring --codec fp16 --input huge.npy --out out.npy", tmp_path, "memory")
    refused("schedule --schedule huge.bin", tmp_path, "memory")


# ---------------------------------------------------------------- outputs


@pytest.mark.parametrize("command", [f"{ENCODE} good.npy", f"{DECODE} wire.bin", f"{REDUCE} {DATA} --out"])
@pytest.mark.parametrize(
    "out, fragments",
    [
        ("missing/out", ["missing"]),
        ("directory", ["directory"]),
        ("directory/", ["directory/"]),
        (".", ["."]),
        ("/", ["/"]),
        ("good.txt/out", ["good.txt/out"]),
        ("pipe", ["pipe", "not a regular file"]),
        ("/dev/full", ["/dev/full", "not a regular file"]),
        ("/proc/out", ["/proc/out"]),
        ("x" * 300, ["name too long"]),
    ],
)
def test_outputs_that_cannot_be_written(files, command, out, fragments):
    before = contents(files)
    result = run(f"{command} {out}", files)
    assert (result.code, result.stdout) == (2, "")
    line = error_line(result.stderr)
    assert all(fragment.lower() in line.lower() for fragment in fragments), line
    assert contents(files) == before


@pytest.mark.parametrize(
    "command",
    [
        f"{ENCODE} large.npy out",
        f"{DECODE} large.bin out",
        "reduce --algorithm ring --codec fp16 --input large.npy --out out",
        "vectors --codec fp16 out",
    ],
)
def test_a_full_disk_leaves_nothing(tmp_path, command):
    np.save(tmp_path / "large.npy", np.zeros((4, 30_000), np.float16))
    (tmp_path / "large.bin").write_bytes(bytes(240_000))
    limit = 65_536
    refused(
        command, tmp_path, "out", "File too large",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        restore_signals=False,  # Python ignores SIGXFSZ, and so shall the program
    )  # fmt: skip


def test_a_failed_run_leaves_the_old_output(tmp_path):
    np.save(tmp_path / "bad.npy", np.zeros((4, 4)))
    (tmp_path / "out").write_text("old")
    for command in ["encode --codec fp16 bad.npy out", "decode --codec qr-q4 bad.npy out"]:
        refused(command, tmp_path)
    refused("reduce --algorithm ring --codec fp16 --input bad.npy --out out", tmp_path)
    assert (tmp_path / "out").read_text() == "old"


@pytest.mark.parametrize("command", ["list codecs", f"{REDUCE} {DATA}", SCHEDULE, SIMULATE])
@pytest.mark.parametrize("format_", ["table", "json", "csv"])
def test_standard_output_that_cannot_be_written(files, command, format_):
    with open("/dev/full", "w") as full:
        result = run(f"{command} --format {format_}", files, stdout=full)
    assert result.code == 2
    assert "output" in error_line(result.stderr)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a\rb", "\x07", "%s%n", "{}", "ünï", "x" * 200])
def test_hostile_names_stay_in_one_line(files, name):
    quoted = "'" + name + "'"
    for command in [
        quoted,
        f"list {quoted}",
        f"list codecs {quoted}",
        f"list codecs --format {quoted}",
        f"encode --codec {quoted} good.npy out.bin",
        f"encode --codec fp16 --dtype {quoted} good.npy out.bin",
        f"encode --codec fp16 {quoted}.npy out.bin",
        f"encode --codec fp16 good.npy {quoted}/out.bin",
        f"{REDUCE} --input two.safetensors --tensor {quoted}",
        f"{REDUCE} --elements 64 --ranks 4 --synthetic {quoted}",
        f"{REDUCE} --ranks 4 --synthetic gaussian --elements {quoted}",
        f"{REDUCE} --synthetic gaussian --elements 64 --ranks {quoted}",
        f"{SCHEDULE} --own {quoted}",
        f"simulate --topology {quoted} --algorithm ring --codec fp16 --bytes 1M",
        f"schedule --schedule {quoted}",
        f"study {quoted}",
    ]:
        refused(command, files)


# ---------------------------------------------------------------- ordinary conditions of a system


@pytest.fixture
def strange(tmp_path):
    """Pipes, loops, and a good tensor."""
    np.save(tmp_path / "good.npy", np.ones((4, 64), np.float16))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("path", ["a" * 300 + "/x", "loop/x"])
def test_paths_that_cannot_be(strange, path):
    why = "File name too long" if path[0] == "a" else "Too many levels of symbolic links"
    for command in [
        f"{ENCODE} good.npy {path}.bin",
        f"{DECODE} good.npy {path}.npy",
        f"{REDUCE} {DATA} --out {path}.npy",
        f"vectors --codec fp32 {path}",
        f"{SIMULATE} --trace {path}.json",
        f"topology show l40-8 --out {path}.png",
        f"select --topology l40-8 --out {path}.json",
        f"bench --platform host --ranks 2 --bytes 1K --out {path}.csv",
        f"{ENCODE} {path}.npy out.bin",
        f"schedule --schedule {path}",
        f"simulate --topology {path}.toml --algorithm ring --codec fp16 --bytes 1M",
        f"validate --tables {path}.toml",
        f"validate --against measured --file {path}.csv",
        f"study {path}.toml",
        f"judge --calls {path} --answers pipe --ranks 2 --dtype fp16",
    ]:
        refused(command, strange, why)
    refused(f"calibrate --fit mi300x --out {path}", strange, "not a folder")


def test_permission_denied(strange):
    (strange / "secret").mkdir()
    for name in ["study.toml", "data.npy", "times.csv"]:
        (strange / "secret" / name).write_text("x")
    os.chmod(strange / "secret", 0)
    try:
        for command in [
            "study secret/study.toml",
            f"{ENCODE} secret/data.npy out.bin",
            f"{ENCODE} good.npy secret/out.bin",
            f"{SIMULATE} --trace secret/t.json",
            "topology show secret/study.toml",
            "validate --tables secret/study.toml",
            "validate --against measured --file secret/times.csv",
            "schedule --schedule secret/study.toml",
            "vectors --codec fp16 secret/golden",
        ]:
            result = run(command, strange, preexec_fn=without_privileges)
            assert (result.code, result.stdout) == (2, ""), result
            assert "Permission denied" in error_line(result.stderr)
    finally:
        os.chmod(strange / "secret", 0o700)


def test_files_that_say_that_they_are_empty(tmp_path):
    """Those of /proc have a size of 0, and content; nothing of it was decoded."""
    refused(f"{DECODE} /proc/self/maps out.npy", tmp_path, "/proc/self/maps", "its size is 0")
    for name in ["/proc/self/mem", "/proc/self/maps"]:
        refused(f"validate --tables {name} --skip-hold-outs", tmp_path, name)
    (tmp_path / "empty").write_bytes(b"")
    ok(f"{DECODE} empty out.npy", tmp_path)


def test_names_as_long_as_names_can_be(tmp_path):
    np.save(tmp_path / "good.npy", np.ones((4, 64), np.float16))
    for length in (240, 255):
        names = ["x" * (length - len(ending)) + ending for ending in (".bin", ".npy", ".json")]
        ok(f"{ENCODE} good.npy {names[0]}", tmp_path)
        ok(f"{REDUCE} {DATA} --out {names[1]}", tmp_path)
        ok(f"{SIMULATE} --no-plots --trace {names[2]}", tmp_path)
        assert all((tmp_path / name).is_file() for name in names)


def test_no_more_threads(tmp_path):
    """Those that are there do the work, and the bits are the same."""
    command = "reduce --algorithm two_shot --codec qr-q4 --synthetic gaussian --ranks 4 --elements 20K"
    ok(f"{command} --threads 1 --out one.npy", tmp_path)

    def no_place_for_a_stack():
        most = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 47, most))  # all addresses that there are

    ok(f"{command} --threads 8 --out few.npy", tmp_path, preexec_fn=no_place_for_a_stack)
    assert (tmp_path / "few.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_memory_is_asked_for_before_data_is_made(tmp_path):
    """Memory of outputs and sums counts, too."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Inputs and outputs fit, the sums do not: 2 ranks of fp16 take 8 bytes, the sums 16 more.
    elements = physical // 12
    refused(
        f"{REDUCE} --synthetic gaussian --ranks 2 --elements {elements}", tmp_path,
        f"{24 * elements / 2**30:.1f} GiB",
    )  # fmt: skip
