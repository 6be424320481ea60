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
    """What comes of all ranks that are there."""
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
    for level in range(4):
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
    """Rank 1 is told of a rank 0 that nobody is."""
    stranger = json.dumps({**json.loads(handles[0]), "meeting": "0" * 32}).encode()
    return [stranger, handles[1]] if rank == 1 else handles


def told_otherwise(rank, handles):
    """Both meet at rank 0's, but were told of two different ranks 2."""
    return [*handles[:2], handles[2] if rank != 1 else handles[2] + b" "]


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
        (3, told_otherwise, "Error: rank 1 was given other handles than rank 0"),
    ],
)
def test_handles_that_do_not_fit(ranks, change, said):
    for result in run(ranks, nothing, change, meeting_timeout_s=1):
        assert re.match(said, result) and "\n" not in result


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
    for level in (-1, 4):
        with pytest.raises(ValueError, match="quant_level"):
            qr.qr_all_reduce(1, None, None, level)
    with pytest.raises(ValueError, match="qr_max_size 0"):
        qr.init_custom_qr(0, 2, 0)


def test_the_variables_of_vllm():
    name = "VLLM_ROCM_QUICK_REDUCE_"
    assert qr.settings({}) == (None, True, 2**31)
    said = {f"{name}QUANTIZATION": "INT6", f"{name}CAST_BF16_TO_FP16": "0", f"{name}MAX_SIZE_BYTES_MB": "64"}
    assert qr.settings(said) == ("INT6", False, 64 << 20)
    for key, value in (("QUANTIZATION", "int4"), ("CAST_BF16_TO_FP16", "2"), ("MAX_SIZE_BYTES_MB", "4096"), ("MAX_SIZE_BYTES_MB", "-1")):
        with pytest.raises(ValueError, match=f"{name}{key} is '{value}': allowed are"):
            qr.settings({f"{name}{key}": value})


def chosen(rank):
    pieces = {}
    reduce = qr.QuickAllReduce(exchanged(rank), rank, 2)
    for dtype, mib in ((np.float16, 1), (np.float16, 2), (BF16, 2), (np.float32, 2)):
        tensor = np.ones((mib << 20) // np.dtype(dtype).itemsize, dtype)
        pieces[f"{np.dtype(dtype).name} {mib}"] = reduce.should_quick_allreduce(tensor)
    pieces["odd"] = reduce.should_quick_allreduce(np.ones((1 << 20) + 1, np.float16))
    pieces["large"] = reduce.should_quick_allreduce(np.ones(3 << 19, np.float16)[: 3 << 19].repeat(2))
    result = reduce.quick_all_reduce(values(rank, BF16))
    return pieces, result.tobytes()


def test_vllms_choice(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDLES", str(tmp_path))
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "INT8")
    monkeypatch.setenv("VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB", "4")
    expected = arlab.all_reduce(np.stack([values(rank, BF16) for rank in range(2)]), like="quickreduce-vllm", codec="qr-q8")
    for pieces, result in run(2, chosen):
        assert pieces == {"float16 1": False, "float16 2": True, "bfloat16 2": True, "float32 2": False, "odd": False, "large": False}
        assert result == expected.outputs[0].tobytes()


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


def test_the_demonstration():
    done = subprocess.run([sys.executable, "-m", "arlab.quickreduce", "3"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [f"Demo {rank} got result [3.0, 3.0, 3.0, 3.0] ..." for rank in range(3)]
