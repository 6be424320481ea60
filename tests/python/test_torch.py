"""arlab.torch: partial sums of row-parallel layers.

The arithmetic is NumPy's and is tested everywhere. Hooks of a model are tested where PyTorch can be imported; it is not
in requirements.txt, for its size, and those tests are skipped without it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from arlab.torch import _capture as capturing
from arlab.torch import capture, partial_sums

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed: the hooks of arlab.torch are not tested")


def values(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def read(path):
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_rank_r_has_the_r_th_part_of_the_inputs(ranks):
    x, weight = values(5, 7, 12), values(8, 12, seed=2)
    sums = partial_sums(x, weight, ranks)
    assert sums.shape == (ranks, 5, 7, 8) and sums.dtype == np.float32
    size = 12 // ranks
    for rank in range(ranks):
        alone = np.zeros_like(x)
        alone[..., rank * size : (rank + 1) * size] = x[..., rank * size : (rank + 1) * size]
        assert np.allclose(sums[rank], alone @ weight.T, rtol=1e-5, atol=1e-5)
    assert np.allclose(sums.sum(0), x @ weight.T, rtol=1e-5, atol=1e-5)
    if ranks > 1:
        assert not np.allclose(sums[1:].sum(0), x @ weight.T, rtol=1e-2, atol=1e-2)


def test_a_partial_sum_is_rounded_once():
    x, weight = np.array([[1, 1, 1]], np.float32), np.array([[2.0**24, 1, 1]], np.float32)
    assert partial_sums(x, weight, 1)[0, 0, 0] == 2.0**24 + 2  # in float32, 1 would be lost twice


@pytest.mark.parametrize(
    "x, weight, ranks, reason",
    [
        ((2, 12), (8, 12), 5, "12 inputs do not divide by 5 ranks"),
        ((2, 12), (8, 12), 0, "12 inputs do not divide by 0 ranks"),
        ((2, 11), (8, 12), 2, r"shape \(2, 11\) does not fit a weight of shape \(8, 12\)"),
        ((2, 12), (12,), 2, "does not fit a weight"),
    ],
)
def test_what_does_not_fit(x, weight, ranks, reason):
    with pytest.raises(ValueError, match=reason):
        partial_sums(values(*x), values(*weight), ranks)


@pytest.mark.parametrize("dtype, kind", [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_the_file_is_one_for_the_program(dtype, kind, tmp_path):
    sums = {"a.down_proj": partial_sums(values(6, 64), values(96, 64, seed=3), 4), "b": values(4, 5, 32)}
    bits = {name: capturing._bits(each, dtype) for name, each in sums.items()}
    path = tmp_path / "sums.safetensors"
    path.write_bytes(capturing._safetensors(bits, dtype, {"title": "of a test"}))
    assert read(path)[1] == {"title": "of a test"}
    words = [PROGRAM, "reduce", "--input", path, "--tensor", "a.down_proj", "--algorithm", "two_shot"]
    words += ["--codec", dtype, "--format", "json"]
    said = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    assert (said["ranks"], said["dtype"], said["elements"]) == (4, dtype, 6 * 96)
    if dtype == "fp16":
        for name, tensor in read(path)[0].items():
            assert tensor.tobytes() == sums[name].astype(kind).tobytes()


def test_it_is_there_with_the_package():
    said = "import arlab, sys; print(arlab.torch.capture.__name__, arlab.statistics.__name__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "capture arlab.statistics False\n"


def test_without_pytorch_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"^arlab\.torch\.capture needs PyTorch: pip install torch .*$"):
        capture(None, "x.safetensors", ranks=2)


# ---------------------------------------------------------------- hooks


def small_model():
    """Two layers of a network whose row-parallel Linear has a bias."""
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj = torch.nn.Linear(16, 24)
            self.down_proj = torch.nn.Linear(24, 16)

        def forward(self, x):
            return x + self.down_proj(torch.relu(self.up_proj(x)))

    torch.manual_seed(4)
    return torch.nn.Sequential(Block(), Block())


@needs_torch
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_partial_sums_add_up_to_the_output_without_its_bias(ranks, tmp_path):
    model, x = small_model(), torch.from_numpy(values(3, 5, 16))
    outputs = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda layer, _, y, name=name: outputs.setdefault(name, (y - getattr(layer, "bias", 0))))
    expected = model(x)
    path = tmp_path / "sums.safetensors"
    with capture(model, path, ranks=ranks) as running:
        assert torch.equal(model(x), expected)
        assert not path.exists()
    assert running.layers == ["0.down_proj", "1.down_proj"]
    tensors, metadata = read(path)
    assert set(tensors) == set(running.layers) and "after the all-reduce" in metadata["bias"]
    for name, tensor in tensors.items():
        assert tensor.shape == (ranks, 15, 16) and tensor.dtype == np.float16
        exact = outputs[name].detach().numpy().reshape(15, 16)
        assert np.allclose(tensor.astype(np.float64).sum(0), exact, rtol=0, atol=ranks * 2e-3)
    model(x)  # hooks are gone
    assert read(path)[0].keys() == tensors.keys()


@needs_torch
def test_tokens_of_all_calls_follow_each_other(tmp_path):
    model, path = small_model().to(torch.bfloat16), tmp_path / "sums.safetensors"
    first, second = (torch.from_numpy(values(n, 16, seed=n)).to(torch.bfloat16) for n in (4, 3))
    for limit, tokens in ((None, 7), (6, 6), (2, 2)):
        with capture(model, path, ranks=2, layers="0.*down*", dtype=torch.bfloat16, max_tokens=limit):
            model(first)
            model(second)
        header = path.read_bytes()
        entry = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])["0.down_proj"]
        assert (entry["dtype"], entry["shape"]) == ("BF16", [2, tokens, 16])


@needs_torch
@pytest.mark.parametrize(
    "options, reason",
    [
        ({"layers": "*.o_proj", "ranks": 2}, r"no Linear layer of the model is named \*\.o_proj; it has 0\.up_proj, 0\.down_p"),
        ({"layers": ["0"], "ranks": 2}, "no Linear layer of the model is named 0; it has"),
        ({"ranks": 5}, "0.down_proj: 24 inputs do not divide by 5 ranks"),
        ({"ranks": 0}, "ranks is 0; it must be at least 1"),
        ({}, "ranks is missing: it may be left out only where torch.distributed is initialized"),
        ({"ranks": 2, "dtype": "fp32"}, "dtype is 'fp32'; it must be fp16 or bf16"),
        ({"ranks": 2, "max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_captured(options, reason, tmp_path):
    with pytest.raises(ValueError, match=reason) as error:
        capture(small_model(), tmp_path / "sums.safetensors", **options)
    assert "\n" not in str(error.value)


@needs_torch
def test_nothing_is_written_where_something_failed(tmp_path):
    model, path = small_model(), tmp_path / "sums.safetensors"
    with pytest.raises(ValueError, match=r"0\.down_proj was not called inside the context"):
        with capture(model, path, ranks=2):
            pass
    with pytest.raises(ZeroDivisionError):
        with capture(model, path, ranks=2):
            model(torch.zeros(1, 16))
            1 // 0
    model[1].down_proj.weight.data *= 1e6
    with pytest.raises(ValueError, match='1.down_proj has .* partial sums beyond 65504, the largest of fp16; dtype="bf16"'):
        with capture(model, path, ranks=2):
            model(torch.ones(1, 16))
    assert list(tmp_path.iterdir()) == []


RANK = """
import sys, torch
from torch import distributed
sys.path.insert(0, sys.argv[3])
from test_torch import small_model, values
from arlab.torch import capture

rank, folder = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
model, x = small_model(), torch.from_numpy(values(5, 16))
for block in model:  # this rank's half of the 24 neurons
    own = slice(12 * rank, 12 * rank + 12)
    block.up_proj.weight.data, block.up_proj.bias.data = block.up_proj.weight.data[own], block.up_proj.bias.data[own]
    block.down_proj.weight.data = block.down_proj.weight.data[:, own]
    block.down_proj.bias.data /= 2
    block.down_proj.register_forward_hook(lambda layer, _, y: (distributed.all_reduce(y), y)[1])
with torch.no_grad(), capture(model, f"{folder}/split.safetensors"):
    model(x)
try:
    with capture(model, f"{folder}/failed.safetensors"):
        rank == 0 and [block.up_proj(x) for block in model]
except ValueError as error:
    print(error)
distributed.destroy_process_group()  # else gloo's threads may end the process by std::terminate
"""


@needs_torch
def test_in_a_split_run_each_process_gives_its_own(tmp_path):
    words = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*words, str(rank), tmp_path, Path(__file__).parent], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert all("rank 0: 0.down_proj was not called inside the context" in each for each in said)
    model = small_model()
    with torch.no_grad(), capture(model, tmp_path / "whole.safetensors", ranks=2):
        model(torch.from_numpy(values(5, 16)))
    split, whole = (read(tmp_path / f"{name}.safetensors")[0] for name in ("split", "whole"))
    assert split.keys() == whole.keys() and not (tmp_path / "failed.safetensors").exists()
    for name in split:
        assert split[name].shape == (2, 5, 16)
        assert np.allclose(split[name].astype(np.float32), whole[name].astype(np.float32), rtol=2e-3, atol=1e-4)
