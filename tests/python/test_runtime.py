"""Codecs and communicators from Python, on emulated GPUs: ranks in one process, and in one each."""

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"


def gaussian(elements, dtype=np.float16, seed=1):
    return np.random.default_rng(seed).normal(size=elements).astype(dtype)


def reference(tensors, algorithm, codec, dtype, folder, inner_codec=None):
    """Returns the program's result for every rank."""
    stacked = np.stack(tensors)
    np.save(folder / "in.npy", stacked.view(np.uint16) if dtype == "bf16" else stacked)
    command = f"reduce --algorithm {algorithm} --codec {codec} --ranks {len(tensors)} --dtype {dtype}"
    command += f" --inner-codec {inner_codec}" if inner_codec else ""
    subprocess.run(
        [PROGRAM, *command.split(), "--input", folder / "in.npy", "--out", folder / "out.npy", "--format", "json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    return np.load(folder / "out.npy")


def same_bits(a, b):
    return a.tobytes() == b.tobytes()


# ---- codecs


def test_codecs(tmp_path):
    assert "host" in arlab.platforms() and arlab.devices() == 8
    assert {"fp16", "qr-q4", "int5-g128"} <= set(arlab.codecs())
    tensor = gaussian(5000)
    np.save(tmp_path / "in.npy", tensor)
    subprocess.run(
        [PROGRAM, *"encode --codec qr-q4 --dtype fp16 in.npy out.bin".split()],
        cwd=tmp_path, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    wire = arlab.encode(tensor, "qr-q4", platform="host")
    assert same_bits(wire, arlab.encode(tensor, "qr-q4"))
    assert wire.dtype == np.uint8 and wire.size == arlab.wire_bytes("qr-q4", "fp16", 5000)
    assert wire.tobytes() == (tmp_path / "out.bin").read_bytes()
    decoded = arlab.decode(wire, "qr-q4", np.float16, 5000, platform="host")
    assert same_bits(decoded, arlab.decode(wire, "qr-q4", np.float16, 5000))
    assert decoded.dtype == np.float16 and np.abs(decoded - tensor).max() < 1


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: arlab.encode(gaussian(8, np.float64), "fp16"), "the tensor is float64: allowed are float16"),
        (lambda: arlab.encode(gaussian(8, ">f2"), "fp16"), "the tensor is >f2, in another byte order"),
        (lambda: arlab.encode(gaussian(8, ">f4"), "fp32"), "the tensor is >f4, in another byte order"),
        (lambda: arlab.encode([1.0], "fp16"), "the tensor is list: needed is a contiguous array"),
        (lambda: arlab.decode(np.zeros(3, np.uint8), "fp16", np.float16, 2), "3 bytes of wire: 2 elements of fp16 have 4"),
        (lambda: arlab.decode(np.zeros(4, np.uint8), "fp16", np.int16, 2), "dtype int16: allowed are"),
        (lambda: arlab.decode(np.zeros(4, np.uint8), "fp16", ">f2", 2), "dtype >f2, in another byte order"),
        (lambda: arlab.wire_bytes("qr-q4", "fp64", 2), "dtype 'fp64': allowed are fp16, bf16, fp32"),
        (lambda: arlab.Group([0, 1], kernel_folder="kernels"), "kernel_folder: platform host: its kernels are in the program"),
        (lambda: arlab.Group([0, 1], platform="cuda", kernel_folder="/none"), "kernel_folder: platform cuda: the kernels in /none are not used"),
        (lambda: arlab.Communicator.from_environment(0, kernel_folder="kernels"), "kernel_folder: platform host"),
        (lambda: arlab.Communicator.from_gather(list, 0, 2, 0, kernel_folder="kernels"), "kernel_folder: platform host"),
        (lambda: arlab.devices("tpu"), "not in this build"),
        (lambda: arlab.codecs("tpu"), "not in this build"),
        (lambda: arlab.encode(gaussian(8), "qr-q4", platform="tpu"), "not in this build"),
        (lambda: arlab.Group([0, 1], platform="tpu"), "not in this build"),
        (lambda: arlab.Group([0]), "1 ranks: allowed are 2 to 8"),
        (lambda: arlab.Group([0, -1]), "device -1 is not there"),
        (lambda: arlab.Group([0, 2**40]), r"Group: devices is \[0, 1099511627776\]: allowed is"),
        (lambda: arlab.Group([0, 0], sms=2), "ranks that share a device"),
        (lambda: arlab.Group([0, 1], blocks=-5), "-5 blocks: allowed are 0 to 1024"),
        (lambda: arlab.Group([0, 1], slot_bytes=-5), "Group: slot_bytes is -5: allowed is an integer from 0"),
        (lambda: arlab.Group([0, 1], timeout_s="x"), "Group: timeout_s is 'x': allowed is a number"),
        (lambda: arlab.Group([0, 1]).all_reduce([gaussian(8), gaussian(8)], codec="foo"), "unknown codec 'foo'"),
        (lambda: arlab.Group([0, 1]).reduce_scatter([gaussian(7), gaussian(7)]), "do not make 2 equal slots"),
        (lambda: arlab.wire_bytes("int4-g32", "fp16", -1), "wire_bytes: elements is -1: allowed is an integer from 0"),
        (lambda: arlab.wire_bytes("int4-g32", "fp16", 1.5), "wire_bytes: elements is 1.5"),
        (lambda: arlab.wire_bytes("int4-g32", "fp16", 2**70), "wire_bytes: elements is 1180591620717411303424"),
        (lambda: arlab.wire_bytes(5, "fp16", 1), "wire_bytes: codec is 5: allowed is a text"),
        (lambda: arlab.decode(np.zeros(4, np.uint8), "fp16", np.float16, -1), "decode: elements is -1"),
        (lambda: arlab.schedule("ring", -1, 10), "schedule: ranks is -1"),
        (lambda: arlab.schedule("ring", 2**40, 10), r"schedule: ranks is 1099511627776: allowed .* 2\^31 - 1"),
        (lambda: arlab.schedule("ring", 2, 10).volume_of(-2), "volume_of: group_size is -2"),
        (lambda: arlab.Context(seed=1).random(-1), "Context.random: shape is -1"),
        (lambda: arlab.Context(seed=-1).random(1), "seed=-1.*: allowed are integers from 0 on, of 32 bits"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(arlab.ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- ranks in this process


def test_group_with_another_codec_inside_groups(tmp_path):
    tensors = [gaussian(3001, np.float16, seed) for seed in range(4)]
    expected = reference(tensors, "hierarchical", "qr-q4", "fp16", tmp_path, inner_codec="int8-g32")
    group = arlab.Group([0, 1, 2, 3], blocks=2, slot_bytes=16384)
    results = group.all_reduce(tensors, algorithm="hierarchical", codec="qr-q4", inner_codec="int8-g32")
    assert all(same_bits(a, b) for a, b in zip(results, expected))


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "reduce_scatter"])
def test_sums_in_fp32(algorithm):
    tensors = [gaussian(3003, np.float16, seed) for seed in range(3)]
    group = arlab.Group([0, 1, 2])
    call = group.reduce_scatter if algorithm == "reduce_scatter" else partial(group.all_reduce, algorithm=algorithm)
    of_sum = {"native": None, "fp32": arlab.Sum(add="fp32"), "decode=fp32,add=fp32": "decode=fp32,add=fp32"}
    results = {}
    for name, sum in of_sum.items():
        if algorithm == "reduce_scatter":
            expected = arlab.reduce_scatter(tensors, codec="qr-q4", sum=name).outputs
        else:
            expected = arlab.all_reduce(tensors, algorithm=algorithm, codec="qr-q4", sum=name).outputs
        results[name] = call([tensor.copy() for tensor in tensors], codec="qr-q4", sum=sum)
        assert all(same_bits(a, b) for a, b in zip(results[name], expected)), name
    assert not same_bits(results["native"][0], results["fp32"][0])


@pytest.mark.parametrize("codecs", [{"codec": "wire-bf16-stoch"}, {"codec": "int4-g32", "inner_codec": "wire-fp16"}], ids=str)
def test_a_reduce_scatter_in_two_hops(codecs):
    """With two codecs sums wait in the output, which is then another tensor."""
    tensors = [gaussian(4 * 3000, np.float32, seed) for seed in range(4)]
    group, how = arlab.Group([0, 1, 2, 3]), {"algorithm": "hierarchical_reduce_scatter", "group_size": 2, **codecs}
    expected = arlab.reduce_scatter(tensors, **how).outputs
    made = group.reduce_scatter(tensors, out=[np.empty_like(tensor) for tensor in tensors], **how)
    assert all(same_bits(a, b) for a, b in zip(made, expected))
    if "inner_codec" in codecs:
        with pytest.raises(arlab.Error, match="the output must be another tensor"):
            group.reduce_scatter([tensor.copy() for tensor in tensors], **how)
    for call in (arlab.reduce_scatter, group.reduce_scatter):
        for other in ("two_shot", arlab.Ring(), arlab.schedule("all_gather", 4, 12000)):
            with pytest.raises(ValueError, match="not reduce_scatter: allowed are reduce_scatter, hierarchical_reduce"):
                call(tensors, algorithm=other)


def test_a_budget_of_multiprocessors(tmp_path):
    tensors = [gaussian(30001, np.float16, seed) for seed in range(3)]
    expected = reference(tensors, "two_shot", "qr-q4", "fp16", tmp_path)
    group = arlab.Group([0, 1, 2], sms=2)
    for _ in range(2):
        results = group.all_reduce([tensor.copy() for tensor in tensors], codec="qr-q4")
        assert all(same_bits(a, b) for a, b in zip(results, expected))


@pytest.mark.parametrize("algorithm, codec, dtype", [
    ("two_shot", "qr-q4", "fp16"), ("one_shot", "fp16", "fp16"), ("ring", "int5-g128", "bf16"), ("two_shot", "fp32", "fp32"),
])  # fmt: skip
def test_group_has_the_references_bits(tmp_path, algorithm, codec, dtype):
    kind = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}[dtype]
    tensors = [gaussian(3001, kind, seed) for seed in range(3)]
    expected = reference(tensors, algorithm, codec, dtype, tmp_path)
    group = arlab.Group([0, 1, 2], blocks=2, slot_bytes=16384)
    out = [np.empty_like(tensor) for tensor in tensors]
    before = [tensor.copy() for tensor in tensors]
    assert group.all_reduce(tensors, algorithm=algorithm, codec=codec, out=out)[0] is out[0]
    assert all(same_bits(a, b) for a, b in zip(out, expected))
    assert all(same_bits(a, b) for a, b in zip(tensors, before))
    group.all_reduce(tensors, algorithm=algorithm, codec=codec)
    assert all(same_bits(a, b) for a, b in zip(tensors, expected))


def test_a_schedule_file_is_an_algorithm_that_is_read_again_when_it_changes(tmp_path):
    own = tmp_path / "own.json"
    tensors = [gaussian(3001, np.float16, seed) for seed in range(3)]
    group = arlab.Group([0, 1, 2], blocks=2, slot_bytes=16384)
    out = [np.empty_like(tensor) for tensor in tensors]
    for algorithm in ("two_shot", "one_shot"):
        command = f"schedule --algorithm {algorithm} --ranks 3 --elements 3 --fractions"
        written = subprocess.run([PROGRAM, *command.split()], check=True, stdout=subprocess.PIPE).stdout
        own.write_bytes(written)
        expected = reference(tensors, algorithm, "qr-q4", "fp16", tmp_path)
        for _ in range(2):
            group.all_reduce(tensors, algorithm=str(own), codec="qr-q4", out=out)
            assert all(same_bits(a, b) for a, b in zip(out, expected))
    own.unlink()
    with pytest.raises(arlab.Error, match="own.json"):
        group.all_reduce(tensors, algorithm=str(own), codec="qr-q4", out=out)
    own.write_bytes(written)
    with pytest.raises(arlab.Error, match="for 3 ranks, not 2"):
        arlab.Group([0, 1]).all_reduce(tensors[:2], algorithm=str(own), codec="qr-q4", out=out[:2])


def test_all_to_all():
    tensors = [gaussian(6, seed=rank) for rank in range(3)]
    out = [np.empty_like(tensor) for tensor in tensors]
    arlab.Group([0, 1, 2]).all_to_all(tensors, out=out)
    for i in range(3):
        for j in range(3):
            assert same_bits(out[j][2 * i : 2 * i + 2], tensors[i][2 * j : 2 * j + 2])


class Tensor:
    """It speaks DLPack, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("in_place", [False, True])
def test_halves_of_an_all_reduce_and_a_broadcast(in_place):
    tensors = [np.arange(6, dtype=np.float16) + 10 * rank for rank in range(3)]
    group = arlab.Group([0, 1, 2])

    def result_of(collective):
        given = [tensor.copy() for tensor in tensors]
        out = given if in_place else [np.empty_like(tensor) for tensor in tensors]
        collective(given, out=None if in_place else out)
        return np.stack(out)

    scattered = np.stack(tensors)
    gathered = np.tile(np.concatenate([tensors[i][2 * i : 2 * i + 2] for i in range(3)]), (3, 1))
    for i in range(3):
        scattered[i, 2 * i : 2 * i + 2] = sum(tensor[2 * i : 2 * i + 2] for tensor in tensors)
    assert same_bits(result_of(group.reduce_scatter), scattered)
    assert same_bits(result_of(group.all_gather), gathered)
    assert same_bits(result_of(group.broadcast), np.tile(tensors[0], (3, 1)))


def test_tensors_that_speak_dlpack():
    arrays = [gaussian(100, seed=rank) for rank in range(2)]
    total = arrays[0] + arrays[1]
    arlab.Group([0, 1]).all_reduce([Tensor(array) for array in arrays])
    assert all(same_bits(array, total) for array in arrays)


def test_the_check_of_our_own_kernels():
    group = arlab.Group([0, 1], blocks=1)
    report = arlab.conformance.check(
        lambda tensors: group.all_reduce(tensors, algorithm="ring", codec="qr-q8") and None,
        world_size=2, lengths=[1, 3000], mode="in_place", codec="qr-q8", claim="ring/qr-q8/native",
    )  # fmt: skip
    assert report.passed, report


def test_bad_calls():
    group = arlab.Group([0, 1])
    good = gaussian(8)
    for tensors, message in [
        ([good], "1 tensors and 1 outputs for 2 ranks"),
        ([good, gaussian(9)], "rank 1's tensor has 9 elements of fp16, rank 0's 8 of fp16"),
        ([good, gaussian(8, np.float32)], "rank 1's tensor has 8 elements of fp32"),
        ([good, gaussian(16)[::2]], "rank 1's tensor is not contiguous"),
        ([good, Tensor(gaussian(16)[::2])], "rank 1's tensor is Tensor: needed is a contiguous"),
        ([good, gaussian(8, ">f2")], "rank 1's tensor is >f2, in another byte order"),
        ([good, good], "rank 0's output overlaps rank 1's tensor: allowed is rank 0's own tensor, all of it"),
        ([good, None], "rank 1's tensor is NoneType"),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            group.all_reduce(tensors)
        assert isinstance(caught.value, arlab.Error) and "\n" not in str(caught.value)
    read_only = gaussian(8)
    read_only.flags.writeable = False
    with pytest.raises(arlab.Error, match="rank 1's tensor is read-only"):
        group.all_reduce([good, read_only])
    with pytest.raises(arlab.Error, match="rank 1's tensor is read-only"):
        group.all_reduce([good, Tensor(read_only)])
    assert group.all_reduce([good, read_only], out=[gaussian(8), gaussian(8)])
    assert group.all_reduce([good, Tensor(read_only)], out=[gaussian(8), gaussian(8)])
    with pytest.raises(arlab.Error, match="rank 0's output has 7 elements"):
        group.all_reduce([good, good], out=[gaussian(7), gaussian(7)])
    with pytest.raises(arlab.Error, match="a timeout of 0 s"):
        arlab.Group([0, 1], timeout_s=0)
    with pytest.raises(arlab.Error, match=r"slots of 16368 bytes: allowed are multiples of 16 from 16384 to 2\^40"):
        arlab.Communicator.from_gather(lambda mine: [mine, mine], 0, 2, 0, slot_bytes=16368)
    # Nothing of that did harm.
    tensors = [good.copy(), good.copy()]
    group.all_reduce(tensors)
    assert same_bits(tensors[0], good + good)


@pytest.mark.parametrize("wrapped", [lambda array: array, Tensor], ids=["numpy", "dlpack"])
def test_memory_that_a_rank_writes_is_its_own(wrapped):
    group = arlab.Group([0, 1])
    row = gaussian(100)
    before = row.copy()
    a, b, c, d = (wrapped(row[at : at + 20]) for at in (0, 20, 40, 60))
    into_a, behind_b = wrapped(row[19:39]), wrapped(row[21:41])
    for tensors, out, message in [
        ([a, into_a], None, "rank 0's output overlaps rank 1's tensor"),
        ([a, b], [c, c], "rank 1's output overlaps rank 0's output"),
        ([a, b], [b, a], "rank 0's output overlaps rank 1's tensor"),
        ([a, b], [c, behind_b], "rank 1's output overlaps rank 1's tensor: allowed is rank 1's own tensor, all of it"),
        ([a, into_a], [a, c], "rank 0's output overlaps rank 1's tensor"),
    ]:
        with pytest.raises(arlab.ArgumentError, match=message):
            group.all_reduce(tensors, out=out)
    assert same_bits(row, before)
    # Inputs may be shared, and outputs that touch do not overlap.
    group.all_reduce([a, into_a], out=[c, d])
    assert same_bits(row[40:60], before[:20] + before[19:39]) and same_bits(row[60:80], row[40:60])
    group.all_reduce([a, a], out=[b, c])
    assert same_bits(row[20:40], before[:20] + before[:20])


def test_calls_can_be_prepared():
    group, tensors = arlab.Group([0, 1]), [gaussian(3000, seed=rank) for rank in range(2)]
    group.prepare(tensors[0], codec="qr-q4")
    group.prepare(tensors[0], collective="all_to_all")
    expected = arlab.Group([0, 1]).all_reduce([tensor.copy() for tensor in tensors], codec="qr-q4")
    assert all(map(same_bits, group.all_reduce(tensors, codec="qr-q4"), expected))


# ---- ranks that share devices, sizes, threads, signals


def test_calls_wait_for_what_callers_have_enqueued_and_for_each_other():
    group = arlab.Group([0, 0])
    tensors = [np.ones(100, np.float16) for _ in range(2)]
    for _ in range(5):
        group.all_reduce(tensors)
    assert all((tensor == 32).all() for tensor in tensors)


# 8 ranks of 64 blocks are twice as many emulated threads as a process may have mappings.
def test_large_tensors():
    elements = 1 << 18
    tensors = [np.ones(elements, np.float16) for _ in range(8)]
    arlab.Group(range(8)).all_reduce(tensors, codec="int4-g32")
    assert all((tensor == 8).all() for tensor in tensors)
    pair = [np.ones(elements, np.float16) for _ in range(2)]  # with places, where all blocks have to run at once
    arlab.Group([0, 1]).all_reduce(pair, codec="qr-q4")
    assert all((tensor == 2).all() for tensor in pair)
    one = np.ones(elements, np.float16)
    assert same_bits(arlab.decode(arlab.encode(one, "qr-q8"), "qr-q8", np.float16, elements), one)


def test_threads_have_groups_of_their_own(tmp_path):
    tensors = [gaussian(3001, seed=rank) for rank in range(3)]
    expected = {algorithm: reference(tensors, algorithm, "qr-q8", "fp16", tmp_path) for algorithm in ("ring", "two_shot")}
    wire = arlab.encode(tensors[0], "qr-q8")
    wrong = []

    def reduce(algorithm, devices):
        for _ in range(5):
            group = arlab.Group(devices, blocks=2, slot_bytes=16384)
            out = [np.empty_like(tensor) for tensor in tensors]
            for _ in range(5):
                group.all_reduce(tensors, algorithm=algorithm, codec="qr-q8", out=out)
                if not all(same_bits(a, b) for a, b in zip(out, expected[algorithm])):
                    wrong.append(algorithm)

    def encode():
        for _ in range(50):
            if not same_bits(arlab.encode(tensors[0], "qr-q8"), wire):
                wrong.append("encode")

    def checked(work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [
        threading.Thread(target=checked, args=arguments)
        for arguments in [(reduce, "ring", [0, 1, 2]), (reduce, "two_shot", [0, 1, 2]), (reduce, "ring", [2, 2, 0]), (encode,)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def run_program(program, **options):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, **options)


def test_interrupts_come_when_a_call_has_ended():
    done = run_program("""
import _thread, threading, time
import numpy as np, arlab
group = arlab.Group([0, 1])
interrupts = 0
ready = threading.Event()
def interrupt():  # one at a time, so that none comes while another is being caught
    while ready.wait():
        ready.clear()
        time.sleep(0.01)
        _thread.interrupt_main()
threading.Thread(target=interrupt, daemon=True).start()
while interrupts < 10:
    try:
        ready.set()
        while True:
            tensors = [np.ones(20000, np.float16) for _ in range(2)]
            group.all_reduce(tensors)
            assert all((tensor == 2).all() for tensor in tensors)
    except KeyboardInterrupt:
        interrupts += 1
tensors = [np.ones(20000, np.float16) for _ in range(2)]
group.all_reduce(tensors)
assert all((tensor == 2).all() for tensor in tensors)
print("fine")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "del arlab", "os._exit(0)"])
def test_a_program_may_end_with_a_group_and_in_a_call(ending):
    done = run_program(f"""
import os, threading
import numpy as np, arlab
group = arlab.Group([0, 1])
other = arlab.Group([0, 1])
tensors = [np.ones(1000, np.float16) for _ in range(2)]
group.all_reduce(tensors)
started = threading.Event()
def work():
    tensors = [np.ones(1 << 20, np.float16) for _ in range(2)]
    started.set()
    other.all_reduce(tensors, codec="qr-q4")
threading.Thread(target=work, daemon=True).start()
started.wait()
{ending}
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_process_cannot_use_what_its_parent_uses():
    done = run_program("""
import os
import numpy as np, arlab
group = arlab.Group([0, 1])
tensors = [np.ones(10, np.float16) for _ in range(2)]
group.all_reduce(tensors)
if os.fork() == 0:
    for call in (lambda: group.all_reduce(tensors), lambda: arlab.encode(tensors[0], "fp16", platform="host")):
        try:
            call()
        except arlab.Error as error:
            print(error)
    raise SystemExit(0)
assert os.wait()[1] == 0
group.all_reduce(tensors)
assert (tensors[0] == 4).all()
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("the process was forked while emulated GPUs were in use: start it anew instead (spawn)") == 2


def test_no_memory_is_an_error():
    done = run_program("""
import resource
import numpy as np, arlab
tensors = [np.ones(1 << 20, np.float16) for _ in range(2)]
group = arlab.Group([0, 1])
group.all_reduce(tensors)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
for left in (1, 3, 5, 8, 20, 40, 80):
    resource.setrlimit(resource.RLIMIT_AS, (used + (left << 20), before[1]))
    for call in (lambda: arlab.Group(range(8)), lambda: arlab.encode(tensors[0], "qr-q4", platform="host")):
        try:
            call()
        except (arlab.Error, MemoryError) as error:
            message = str(error)
            assert "memory" in message and "\\n" not in message or isinstance(error, MemoryError), message
resource.setrlimit(resource.RLIMIT_AS, before)
tensors = [np.ones(100, np.float16) for _ in range(2)]
group.all_reduce(tensors)
assert (tensors[0] == 2).all()
arlab.encode(tensors[0], "qr-q4")
print("fine")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


# ---- a process per rank


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_rank(rank, world_size, environment, results):
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    try:
        communicator = arlab.Communicator.from_environment(timeout_s=60)
        tensor = gaussian(3000, seed=rank)
        with pytest.raises(ValueError, match=f"rank {rank}'s output overlaps"):
            communicator.all_reduce(tensor[1:], out=tensor[:-1])
        out = communicator.all_reduce(tensor, algorithm="ring", codec="qr-q6", out=np.empty_like(tensor))
        results.put((rank, out.tobytes()))
        assert (communicator.rank, communicator.world_size, communicator.device) == (rank, world_size, rank)
    except Exception as error:  # noqa: BLE001
        results.put((rank, str(error)))


def run_processes(world_size, environment):
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    ranks = [spawn.Process(target=run_rank, args=(rank, world_size, environment, results)) for rank in range(world_size)]
    for process in ranks:
        process.start()
    got = dict(results.get(timeout=90) for _ in ranks)
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    return got


@pytest.mark.parametrize("folder", [True, False])
def test_communicators_from_the_environment(tmp_path, folder):
    (tmp_path / "meeting").mkdir(mode=0o700)
    environment = (
        {"ARLAB_BOOTSTRAP_DIR": str(tmp_path / "meeting")}
        if folder
        else {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_WORLD_SIZE": "3"}
    )
    got = run_processes(3, environment)
    expected = reference([gaussian(3000, seed=rank) for rank in range(3)], "ring", "qr-q6", "fp16", tmp_path)
    assert got == {rank: expected[rank].tobytes() for rank in range(3)}
    assert not list((tmp_path / "meeting").iterdir())


@pytest.mark.parametrize("variables, options, message", [
    ({"RANK": "x"}, {}, "RANK='x': allowed is an integer"),
    ({"RANK": "\u0663"}, {}, "RANK='\u0663': allowed is an integer"),
    ({"RANK": "x"}, {"device": 0}, "RANK='x': allowed is an integer from 0 to 1"),
    ({"LOCAL_RANK": "y", "RANK": "0"}, {}, "LOCAL_RANK='y': allowed is an integer"),
    ({"RANK": "1"}, {}, "rank 0 did not arrive at .*/port-29500 within 50 ms"),
    *[({}, {"bootstrap_timeout_s": seconds}, "a bootstrap timeout of .* s: allowed are more than 0 and up to 1e6")
      for seconds in [-1, 0, float("nan"), float("inf"), 1e300]],
])  # fmt: skip
def test_bad_environments(tmp_path, monkeypatch, variables, options, message):
    (tmp_path / "meeting").mkdir(mode=0o700)
    usual = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500", "ARLAB_BOOTSTRAP_DIR": str(tmp_path / "meeting")}
    for name in ["LOCAL_RANK", "LOCAL_WORLD_SIZE"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in (usual | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(arlab.Error, match=message) as caught:
        arlab.Communicator.from_environment(**({"bootstrap_timeout_s": 0.05} | options))
    assert not str(caught.value).startswith("LOCAL_RANK") or "LOCAL_RANK" in variables


def test_gather_errors():
    def broken(mine):
        raise OSError("no route")

    def unreadable(mine):
        raise OSError("no \udcff route\n")

    with pytest.raises(arlab.Error, match=r"gather failed: 'no \\udcff route\\x0a'"):
        arlab.Communicator.from_gather(unreadable, 0, 2, 0)
    with pytest.raises(arlab.Error, match=r"^rank 1: 'no\\xff'$"):
        arlab.Communicator.from_gather(lambda mine: [mine, b"no\xff" + mine[3:]], 0, 2, 0)
    with pytest.raises(arlab.Error, match="gather failed: .*no route"):
        arlab.Communicator.from_gather(broken, 0, 2, 0)
    with pytest.raises(arlab.Error, match="ranks 0 and 1 are in one process"):
        arlab.Communicator.from_gather(lambda mine: [mine, mine], 0, 2, 0)
    with pytest.raises(arlab.Error, match="rank 2: allowed are 0 to 1"):
        arlab.Communicator.from_gather(lambda mine: [mine, mine], 2, 2, 0)


def test_every_name_is_there():
    assert all(getattr(arlab, name) for name in arlab.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'all_reduced'"):
        arlab.all_reduced  # noqa: B018
