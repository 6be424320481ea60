"""QuickReduce's interface and vLLM's operators, by processes on emulated GPUs."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab
import arlab.quickreduce as qr

BF16 = np.dtype(ml_dtypes.bfloat16)


def values(rank, dtype, elements=2056):
    """Other ones on each rank: random, and of all sizes."""
    random = np.random.default_rng(rank + 1)
    x = random.normal(size=elements) * np.exp(random.normal(size=elements) * 3)
    x[:4] = [1e5 * (rank + 1), -3e4, 0.0, 6e-8]
    return np.clip(x, -6e4, 6e4).astype(dtype) if dtype == np.float16 else x.astype(dtype)


def meet(rank, ranks, pipe, work, arguments):
    """A rank: its handle goes out, those of all come back, and `work` says what it has then."""
    try:
        qr.init(ranks, rank, timeout_s=2, meeting_timeout_s=arguments.pop("meeting_timeout_s", 20))
        pipe.send(qr.get_comm_handle())
        qr.set_comm_handles(pipe.recv())
        pipe.send(work(rank, **arguments))
    except Exception as error:  # noqa: BLE001
        pipe.send(f"{type(error).__name__}: {error}")


def run(ranks, work, change=lambda rank, handles: handles, absent=(), **arguments):
    """Returns the outcomes of all ranks that are there."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(ranks):
        here, there = spawn.Pipe()
        processes.append(spawn.Process(target=meet, args=(rank, ranks, there, work, dict(arguments)), daemon=True))
        processes[-1].start()
        pipes.append(here)
    handles = [pipe.recv() for pipe in pipes]
    for rank in absent:
        processes[rank].kill()
    here = [rank for rank in range(ranks) if rank not in absent]
    for rank in here:
        pipes[rank].send(change(rank, list(handles)))
    results = [pipes[rank].recv() if pipes[rank].poll(60) else "nothing came" for rank in here]
    for process in processes:
        process.join(20)
    return results


def all_profiles(rank):
    assert (qr.get_rank(), qr.get_world_size()) == (rank, len(os.environ["RANKS"]))
    results = []
    for profile in qr.PROFILES:
        for dtype in (np.dtype(np.float16), BF16):
            tensor = values(rank, dtype)
            result = qr.allreduce(profile, tensor)
            assert result is tensor
            results.append(result.tobytes())
    return results


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_two_steps_and_every_profile(ranks, monkeypatch):
    monkeypatch.setenv("RANKS", "x" * ranks)
    expected = []
    for codec in qr.PROFILES.values():
        for dtype in (np.dtype(np.float16), BF16):
            inputs = np.stack([values(rank, dtype) for rank in range(ranks)])
            named = codec or ("fp16" if dtype == np.float16 else "bf16")
            expected.append(arlab.all_reduce(inputs, like="quickreduce", codec=named).outputs[0].tobytes())
    assert len(set(expected)) == len(expected)
    got = run(ranks, all_profiles)
    assert got == [expected] * ranks


def exchanged(rank):
    """An all-gather of two ranks, by files."""

    def gather(mine):
        folder = Path(os.environ["HANDLES"])
        (folder / f"{rank}.part").write_bytes(mine)
        (folder / f"{rank}.part").rename(folder / f"{rank}")
        while len(list(folder.glob("[01]"))) < 2:
            time.sleep(0.01)
        return [(folder / f"{each}").read_bytes() for each in range(2)]

    return gather


def operators(rank):
    number = qr.init_custom_qr(rank, 2)
    handle = qr.qr_get_handle(number)
    assert handle.dtype == np.uint8
    qr.qr_open_handles(number, [np.frombuffer(each, np.uint8) for each in exchanged(rank)(handle.tobytes())])
    results = []
    for level in range(5):
        for cast in (False, True):
            inp = values(rank, BF16)
            before, out = inp.tobytes(), np.zeros_like(inp)
            qr.qr_all_reduce(number, inp, out, level, cast)
            assert inp.tobytes() == before
            results.append(out.tobytes())
    qr.qr_destroy(number)
    with pytest.raises(ValueError, match="is no communicator"):
        qr.qr_all_reduce(number, inp, out, 0)
    return results


def test_the_operators_of_vllm(tmp_path, monkeypatch):
    """Handles go by files."""
    monkeypatch.setenv("HANDLES", str(tmp_path))
    inputs = np.stack([values(rank, BF16) for rank in range(2)])
    expected = []
    for codec in qr.LEVELS.values():
        expected.append(arlab.all_reduce(inputs, like="quickreduce", codec=codec or "bf16").outputs[0].tobytes())
        if codec is None:
            half = np.clip(inputs.astype(np.float32), -65504, 65504).astype(np.float16)
            expected.append(arlab.all_reduce(half).outputs[0].astype(np.float32).astype(BF16).tobytes())
        else:
            expected.append(arlab.all_reduce(inputs, like="quickreduce-vllm", codec=codec).outputs[0].tobytes())
    assert len(set(expected)) == len(expected)
    assert run(2, operators) == [expected] * 2
    assert qr.qr_max_size() == 2**31


def swapped(rank, handles):
    return handles[::-1]


def too_few(rank, handles):
    return handles[:1]


def damaged(rank, handles):
    return [handles[0][:-3], *handles[1:]]


def of_another_machine(rank, handles):
    return [handles[0], json.dumps({**json.loads(handles[1]), "boot": "another"}).encode()]


def of_a_stranger(rank, handles):
    """Rank 1 is told of a rank 0 that does not exist."""
    stranger = json.dumps({**json.loads(handles[0]), "meeting": "0" * 32}).encode()
    return [stranger, handles[1]] if rank == 1 else handles


def told_otherwise(rank, handles):
    """Both meet at rank 0's, but were told of two different ranks 2."""
    return [*handles[:2], handles[2] if rank != 1 else handles[2] + b" "]


def of_another_process(rank, handles):
    """Rank 0 is told of a rank 0 that another process is."""
    stranger = json.dumps({**json.loads(handles[0]), "meeting": "0" * 32}).encode()
    return [stranger, handles[1]] if rank == 0 else handles


def nothing(rank):
    return "met"


@pytest.mark.parametrize(
    "ranks, change, said",
    [
        (2, swapped, "ArgumentError: the handle at place 0 is of rank 1 of 2"),
        (2, too_few, "ArgumentError: 1 handles: allowed are those of the 2 ranks"),
        (2, damaged, "ArgumentError: the handle at place 0 is none"),
        (2, of_another_machine, "ArgumentError: the handle at place 1 is of another machine|ArgumentError: the handle of rank 1 is not"),
        (2, of_a_stranger, "Error: rank [01] did not arrive"),
        (2, of_another_process, "ArgumentError: the handle of rank 0 is not the one that this process has|Error: rank 0 did not arrive"),
        (3, told_otherwise, "Error: rank 1 was given other handles than rank 0"),
    ],
)
def test_handles_that_do_not_fit(ranks, change, said):
    for result in run(ranks, nothing, change, meeting_timeout_s=1):
        assert re.match(said, result) and "\n" not in result


@pytest.mark.parametrize(
    "handle",
    [
        b"[" * 1000, b"[" * 100000, b'{"a":' * 150, b"", b"null", b"[]", b"1", b"9" * 5000, b"\xff" * 40, "text", None, 3, [1, 2], [[1], [2, 3]], {},
        object(), np.zeros((2, 2), np.uint8), np.zeros(4, np.int8), np.float16(1),
    ],
    ids=lambda handle: str(handle)[:20],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_handle_is_one_line(handle, place):
    reduce = qr.QuickReduce(0, 2, meeting_timeout_s=0.1)
    handles = [reduce.handle, qr.QuickReduce(1, 2).handle]
    handles[place] = handle
    with pytest.raises(ValueError, match=f"(the handle at place {place} is none|the handle of rank {place} is .*): allowed ") as error:
        reduce.open(handles)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize(
    "change",
    [
        {"meeting": ["0"] * 32}, {"meeting": {str(i): 0 for i in range(32)}}, {"meeting": "0" * 31}, {"meeting": "G" * 32}, {"meeting": 5},
        {"arlab": 2}, {"arlab": True}, {"arlab": [1]}, {"rank": True}, {"rank": 0.0}, {"rank": []}, {"ranks": None}, {"ranks": 10**400}, {"boot": 7},
        {"boot": None}, {"more": "x" * 1000},
    ],
    ids=lambda change: str(change)[:30],
)  # fmt: skip
def test_a_handle_with_something_else_in_it_is_one_line(change):
    reduce = qr.QuickReduce(1, 2, meeting_timeout_s=0.1)
    other = json.dumps({**json.loads(qr.QuickReduce(0, 2).handle), **change}).encode()
    with pytest.raises(ValueError, match="the handle at place 0 is (none|of rank)") as error:
        reduce.open([other, reduce.handle])
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("handles", [None, 5, [], "ab", (x for x in "abc"), iter([b""] * 10**6)], ids=lambda handles: str(handles)[:12])
def test_what_are_no_handles_is_one_line(handles):
    with pytest.raises(ValueError, match="handle"):
        qr.QuickReduce(0, 2).open(handles)


def test_a_rank_that_is_gone_is_named():
    assert run(2, nothing, absent=[1], meeting_timeout_s=1) == ["Error: rank 1 did not arrive within 1000 ms"]


def test_what_is_wrong_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr(qr, "_own", None)
    with pytest.raises(ValueError, match="comes first"):
        qr.get_comm_handle()
    for ranks, rank in ((1, 0), (9, 0), (4, 4), (4, -1)):
        with pytest.raises(ValueError, match="allowed are 2 to 8 ranks"):
            qr.init(ranks, rank)
    qr.init(2, 0)
    with pytest.raises(ValueError, match="have not been given yet"):
        qr.allreduce(1, np.ones(8, np.float16))
    with pytest.raises(ValueError, match="profile 6: allowed are"):
        qr.allreduce(6, np.ones(8, np.float16))
    with pytest.raises(ValueError, match="allowed are bytes"):
        qr.set_comm_handles([qr.get_comm_handle(), 3])
    for level in (-1, 5):
        with pytest.raises(ValueError, match=r"quant_level .*, 3 \(INT4\), 4 \(INT3\)"):
            qr.qr_all_reduce(1, None, None, level)
    for size in (0, -1, 1.5, "8", True, 2**31 + 1, [8], 10**5000):
        with pytest.raises(ValueError, match="qr_max_size .*: allowed are 1 to 2147483648 bytes"):
            qr.init_custom_qr(0, 2, size)
    for wrong in ([1], "1", None, 1.0, True, 99, {}, 10**5000):
        for call in (qr.qr_destroy, qr.qr_get_handle, lambda fa: qr.qr_open_handles(fa, []), lambda fa: qr.qr_all_reduce(fa, None, None, 0)):
            with pytest.raises(ValueError, match="is no communicator"):
                call(wrong)
        with pytest.raises(ValueError, match="profile"):
            qr.allreduce([5] if wrong == 1 else wrong, np.ones(8, np.float16))
        for call in (lambda: qr.init(2, wrong), lambda: qr.init(wrong if wrong != 1 else [], 0)):
            with pytest.raises(ValueError, match="allowed are 2 to 8 ranks"):
                call()
    for options, said in (
        ({"device": 99}, "device 99: allowed are 0 to"), ({"device": "0"}, "device"), ({"platform": "x"}, "platform 'x': allowed are"),
        ({"platform": ["host"]}, "platform"), ({"timeout_s": -1}, "timeout_s -1: allowed"), ({"timeout_s": "5"}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s nan"), ({"meeting_timeout_s": float("inf")}, "meeting_timeout_s inf"), ({"max_bytes": 0}, "max_bytes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            qr.init_custom_qr(0, 2, **options)
    with pytest.raises(ValueError, match=r"quant_level 4 \(INT3\) on 3 ranks: allowed are 2 ranks"):
        qr.qr_all_reduce(qr.init_custom_qr(0, 3), None, None, 4)
    with pytest.raises(ValueError, match="cast_bf2half 'no'"):
        qr.qr_all_reduce(1, None, None, 0, "no")


def test_the_variables_of_vllm():
    name = "VLLM_ROCM_QUICK_REDUCE_"
    assert qr.settings({}) == qr.settings({f"{name}QUANTIZATION": "", "OTHER": "1"}) == (None, True, 2**31, None, 0)
    said = {f"{name}QUANTIZATION": "INT6", f"{name}CAST_BF16_TO_FP16": "0", f"{name}MAX_SIZE_BYTES_MB": "64"}
    assert qr.settings(said) == ("INT6", False, 64 << 20, None, 0)
    more = {f"{name}QUANTIZATION": "INT3", f"{name}MIN_SIZE_BYTES_MB": "0", f"{name}QUANTIZATION_MIN_SIZE_KB": "256"}
    assert qr.settings(more) == ("INT3", True, 2**31, 0, 256 << 10)
    assert [qr.settings(more).codec_of(each) for each in (262143, 262144)] == [None, "qr-q3"]
    with pytest.raises(ValueError, match=f"{name}MIN_SIZE_BYTES_MB is 65: allowed are 0 to 64, the largest size"):
        qr.settings({**said, f"{name}MIN_SIZE_BYTES_MB": "65"})
    assert qr.settings({**said, f"{name}MIN_SIZE_BYTES_MB": "64"}).min_bytes == 64 << 20
    for key, value in (("QUANTIZATION", "int4"), ("CAST_BF16_TO_FP16", "2"), ("MAX_SIZE_BYTES_MB", "4096"), ("MAX_SIZE_BYTES_MB", "-1"),
                       ("MAX_SIZE_BYTES_MB", "0"), ("MAX_SIZE_BYTES_MB", "00"), ("MAX_SIZE_BYTES_MB", "1e3"), ("MAX_SIZE_BYTES_MB", "²"),
                       ("MAX_SIZE_BYTES_MB", "9" * 5000), ("MAX_SIZE_BYTES_MB", "0" * 5000 + "9999"),
                       ("MIN_SIZE_BYTES_MB", "-1"), ("MIN_SIZE_BYTES_MB", "2049"),
                       ("QUANTIZATION_MIN_SIZE_KB", "-1"), ("QUANTIZATION_MIN_SIZE_KB", "1.5")):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name}{key} is {re.escape(ascii(value)[:40])}.*: allowed are"):
            qr.settings({f"{name}{key}": value})


def test_the_variables_of_sglang():
    vllm, name = "VLLM_ROCM_QUICK_REDUCE_", "ROCM_QUICK_REDUCE_"
    said = {f"{name}QUANTIZATION": "INT4", f"{name}MAX_SIZE_BYTES_MB": "0"}
    assert qr.settings(said) == ("INT4", True, 2**31, None, 0)
    said |= {f"{name}QUANTIZATION": "FP", f"{name}CAST_BF16_TO_FP16": "0", f"{name}MAX_SIZE_BYTES_MB": "8"}
    assert qr.settings(said) == ("FP", False, 8 << 20, None, 0)
    same = {f"{name}QUANTIZATION": "INT8", f"{vllm}QUANTIZATION": "INT8"}
    same |= {f"{name}CAST_BF16_TO_FP16": "True", f"{vllm}CAST_BF16_TO_FP16": "1"}
    assert qr.settings({**same, f"{vllm}MIN_SIZE_BYTES_MB": "1"}) == ("INT8", True, 2**31, 1 << 20, 0)
    for wrong, said in (
        ({**same, f"{name}QUANTIZATION": "INT4"}, f"{vllm}QUANTIZATION and {name}QUANTIZATION contradict each other"),
        ({**same, f"{vllm}QUANTIZATION": "NONE"}, f"{vllm}QUANTIZATION and {name}QUANTIZATION contradict each other"),
        ({f"{name}QUANTIZATION": "INT3"}, f"{name}QUANTIZATION is 'INT3': allowed are FP, INT8, INT6, INT4, NONE"),
        ({f"{name}MAX_SIZE_BYTES_MB": "-1"}, f"{name}MAX_SIZE_BYTES_MB is '-1': allowed are 0 to 2048"),
        ({f"{name}MIN_SIZE_BYTES_MB": "1"}, f"unknown variable '{name}MIN_SIZE_BYTES_MB': known are {name}QUANTI"),
        ({f"{vllm}QUANTISATION": "INT4"}, f"unknown variable '{vllm}QUANTISATION': known are {vllm}QUANTIZATION, "),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}") as error:
            qr.settings(wrong)
        assert "\n" not in str(error.value)


def test_int3_is_for_two_ranks(monkeypatch):
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "INT3")
    with pytest.warns(UserWarning, match="INT3 is for 2 ranks, not 4"):
        reduce = qr.QuickAllReduce(lambda handle: [handle], 0, 4)
    assert reduce.disabled and not reduce.should_quick_allreduce(np.ones(1 << 22, np.float16))
    with pytest.raises(ValueError, match="not to be used"):
        reduce.quick_all_reduce(np.ones(8, np.float16))


def refused_outputs(rank):
    """Returns the outputs of a refused cast; no rank waits for the others."""
    small = qr.init_custom_qr(rank, 2, 4096)
    qr.qr_open_handles(small, exchanged(rank)(qr.qr_get_handle(small).tobytes()))
    tensor = np.ones((2, 1024), BF16)
    out = np.zeros_like(tensor)
    said = []
    read_only = np.zeros_like(tensor)
    read_only.flags.writeable = False
    for tensor_, output in (
        (tensor, out.astype(np.float32)), (tensor, np.zeros(1024, BF16)), (tensor, np.zeros((2, 2, 1024), BF16)), (tensor, np.zeros(2047, BF16)),
        (tensor, np.zeros((2, 2048), BF16)[:, ::2]), (tensor, read_only), (tensor, [0]), ([0], out), (np.ones(2049, BF16), np.ones(2049, BF16)),
    ):  # fmt: skip
        for cast in (True, False):
            try:
                qr.qr_all_reduce(small, tensor_, output, 0, cast)
                said.append("nothing")
            except ValueError as error:
                said.append(str(error))
    qr.qr_all_reduce(small, tensor, out, 0, True)
    return said, out.tolist() == [[2.0] * 1024] * 2


def test_an_output_that_does_not_fit_is_refused_before_the_call(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    for said, right in run(2, refused_outputs):
        assert right, "ranks that were refused alike can go on"
        assert "nothing" not in said[:2] + said[4:], said
        assert said[0] == "the output is fp32 of shape [2, 1024] on host: needed is bf16 of shape [2, 1024] on host, as the tensor is"
        assert "shape [1024]" in said[2] and said[-2:] == ["the tensor has 4098 bytes: allowed are 4096"] * 2, said
        assert not [each for each in said if "\n" in each]


def infinities(rank):
    tensor = np.array([np.inf, -np.inf, np.nan, 1e5, -1e5, 65504] * 8, BF16)
    half = qr._as_fp16(tensor)
    number = qr.init_custom_qr(rank, 2)
    qr.qr_open_handles(number, exchanged(rank)(qr.qr_get_handle(number).tobytes()))
    out = np.zeros_like(tensor)
    qr.qr_all_reduce(number, tensor if rank == 0 else np.zeros_like(tensor), out, 0, True)
    return half[:6].tolist(), out[:5].astype(np.float32).tolist()


def test_what_is_cast_is_the_largest_number_but_infinities_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    for half, sums in run(2, infinities):
        assert half[:2] == [np.inf, -np.inf] and np.isnan(half[2]) and half[3:] == [65504, -65504, 65504]
        assert sums[:2] == [np.inf, -np.inf] and np.isnan(sums[2]) and sums[3:] == [65536, -65536]


def chosen(rank):
    pieces = {}
    reduce = qr.QuickAllReduce(exchanged(rank), rank, 2)
    for dtype, mib in ((np.float16, 1), (np.float16, 2), (BF16, 2), (np.float32, 2)):
        tensor = np.ones((mib << 20) // np.dtype(dtype).itemsize, dtype)
        pieces[f"{np.dtype(dtype).name} {mib}"] = reduce.should_quick_allreduce(tensor)
    pieces["odd"] = reduce.should_quick_allreduce(np.ones((1 << 20) + 1, np.float16))
    pieces["8 bytes more"] = reduce.should_quick_allreduce(np.ones((1 << 20) + 4, np.float16))
    pieces["16 bytes more"] = reduce.should_quick_allreduce(np.ones((1 << 20) + 8, np.float16))
    pieces["largest"] = reduce.should_quick_allreduce(np.ones(1 << 21, np.float16))
    pieces["16 bytes above it"] = reduce.should_quick_allreduce(np.ones((1 << 21) + 8, np.float16))
    pieces["large"] = reduce.should_quick_allreduce(np.ones(3 << 19, np.float16)[: 3 << 19].repeat(2))
    result = reduce.quick_all_reduce(values(rank, BF16))
    return pieces, result.tobytes()


def test_vllms_choice(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "INT8")
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB", "4")
    expected = arlab.all_reduce(np.stack([values(rank, BF16) for rank in range(2)]), like="quickreduce-vllm", codec="qr-q8")
    for pieces, result in run(2, chosen):
        yes = ["float16 2", "bfloat16 2", "16 bytes more", "largest"]
        no = ["float16 1", "float32 2", "odd", "8 bytes more", "16 bytes above it", "large"]
        assert pieces == {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
        assert result == expected.outputs[0].tobytes()


def smallest_sizes(rank):
    reduce = qr.QuickAllReduce(exchanged(rank), rank, 2)
    halves = values(rank, np.dtype(np.float16), 4096)
    taken = [reduce.should_quick_allreduce(each) for each in (halves, halves[:1024], np.ones(1 << 19, np.float16))]
    return taken, [reduce.quick_all_reduce(each.copy()).tobytes() for each in (halves, halves[:1024])]


@pytest.mark.parametrize("min_mib, taken", [("", [False, False, True]), ("0", [True] * 3), ("2", [False] * 3)])
def test_vllms_two_smallest_sizes(min_mib, taken, tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "INT3")
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB", min_mib)
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB", "4")
    inputs = np.stack([values(rank, np.dtype(np.float16), 4096) for rank in range(2)])
    quantized = arlab.all_reduce(inputs, like="quickreduce", codec="qr-q3").outputs[0].tobytes()
    as_it_is = arlab.all_reduce(inputs[:, :1024], like="quickreduce", codec="fp16").outputs[0].tobytes()
    assert run(2, smallest_sizes) == [(taken, [quantized, as_it_is])] * 2


def lines_of_the_page(rank):
    """`meet` has met already: what the page does is met again here, in a world of its own."""
    page = (Path(__file__).parents[2] / "experiments/site/pages/howto.md").read_text()
    lines = re.search(r"<!-- test: quickreduce -->\n```python\n(.*?)```", page, re.DOTALL)[1]
    tensor = values(rank, np.dtype(np.float16))
    exec(lines, {"world_size": 2, "rank": rank, "tensor": tensor, "exchange": exchanged(rank)})
    return tensor.tobytes()


def test_the_lines_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    inputs = np.stack([values(rank, np.dtype(np.float16)) for rank in range(2)])
    assert run(2, lines_of_the_page) == [arlab.all_reduce(inputs, like="quickreduce", codec="qr-q4").outputs[0].tobytes()] * 2


@pytest.mark.parametrize("words", [["1"], ["9"], ["x"], ["9" * 5000], ["2", "3"], ["²"]], ids=str)
def test_the_demonstration_of_other_ranks_is_one_line(words):
    done = subprocess.run([sys.executable, "-m", "arlab.quickreduce", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and "RANKS" in done.stderr


def test_the_demonstration():
    done = subprocess.run([sys.executable, "-m", "arlab.quickreduce", "3"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [f"Demo {rank} got result [3.0, 3.0, 3.0, 3.0] ..." for rank in range(3)]
