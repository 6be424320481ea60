"""Serving engines and libarlab_nccl.so: what experiments/site/pages/engines.md says, as far as it goes without an engine and GPUs."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import engine_client
import numpy as np
import pytest

import arlab

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "experiments/site/pages/engines.md").read_text()
LIBRARY = Path(os.environ["ARLAB_BIN"]).parent / "lib/libarlab_nccl.so"
BLOCKS = {"vllm": "vllm serve ", "sglang": "python3 -m sglang.launch_server "}

#: A module that stands for vLLM: it loads the file that it is told, adds up once, and "generates" what the sum is.
FAKE = f"""
import os, sys, types
sys.path.insert(0, {str(Path(__file__).parent)!r})
import engine_client, numpy as np
__version__ = "0"
def SamplingParams(**options): return options
class LLM:
    def __init__(self, model, tensor_parallel_size, disable_custom_all_reduce):
        assert tensor_parallel_size == 2 and disable_custom_all_reduce
    def generate(self, prompts, sampling):
        given = engine_client.some_tensors()
        total = engine_client.all_reduce(os.environ["VLLM_NCCL_SO_PATH"], given)[0] if "VLLM_NCCL_SO_PATH" in os.environ else sum(given)
        ids = np.float16(total)[: sampling["max_tokens"]].view(np.uint16).tolist()
        return [types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=ids)]) for _ in prompts]
"""


def lines_of(engine):
    (block,) = [block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if BLOCKS[engine] in block]
    return block.splitlines()


@pytest.mark.parametrize("engine", engine_client.ENGINES)
def test_the_library_has_what_engines_look_up(engine):
    lib = engine_client.library(LIBRARY)
    assert not [name for name in engine_client.ENGINES[engine] if not hasattr(lib, name)]


@pytest.mark.parametrize("engine", engine_client.ENGINES)
def test_the_pages_lines_make_an_engines_calls_ours(engine, tmp_path):
    (tmp_path / "build").symlink_to(LIBRARY.parents[1])
    *exports, command = lines_of(engine)
    assert all(line.startswith("export ") for line in exports) and command.startswith(BLOCKS[engine])
    variable = f"{engine.upper()}_NCCL_SO_PATH"
    program = (
        f"import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r}); import engine_client, numpy as np\n"
        "given = engine_client.some_tensors()\n"
        f"np.save('sums.npy', engine_client.all_reduce(os.environ['{variable}'], given))\n"
    )
    (tmp_path / "engine.py").write_text(program)
    script = "\n".join([*exports, f"exec {sys.executable} engine.py"])
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "ARLAB_BOOTSTRAP_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 2: all_reduce 1 by rules, 0 by the library, 0 plain", done.stderr)) == 2
    given = [each.astype(np.float16) for each in engine_client.some_tensors()]
    wanted = arlab.all_reduce(given, algorithm="two_shot", codec="qr-q4").outputs[0]
    assert all(
        np.array_equal(each.view(np.uint16), np.asarray(wanted).view(np.uint16))
        for each in np.load(tmp_path / "sums.npy")
    )


def try_vllm(folder, *more):
    (folder / "vllm.py").write_text(FAKE)
    script = REPOSITORY / "experiments/gpu/try_vllm.py"
    command = [
        sys.executable,
        str(script),
        "--model",
        "any",
        "--out",
        "out.csv",
        "--tokens",
        "8",
        "--batch",
        "1",
        "--turns",
        "1",
        *more,
    ]
    paths = f"{folder}:{os.environ['PYTHONPATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "ARLAB_BOOTSTRAP_DIR": str(folder)},
    )


def test_the_script_says_who_made_the_calls(tmp_path):
    done = try_vllm(tmp_path, "--library", str(LIBRARY), "--rules", "1M-:two_shot/qr-q4")
    assert done.returncode == 0, done.stderr
    rows = list(
        csv.DictReader(line for line in (tmp_path / "out.csv").read_text().splitlines() if not line.startswith("#"))
    )
    assert [(row["way"], row["tokens"], row["by_rules"]) for row in rows] == [("nccl", "64", "0"), ("arlab", "64", "2")]
    assert float(rows[0]["same_tokens"]) == 1 > float(rows[1]["same_tokens"])


def test_the_script_fails_where_nothing_has_a_codec(tmp_path):
    done = try_vllm(tmp_path, "--library", str(LIBRARY), "--rules", "64M-:two_shot/qr-q4")
    assert done.returncode == 1 and (tmp_path / "out.csv").exists()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    done = try_vllm(tmp_path, "--library", "none.so")
    assert done.returncode == 2 and "none.so: there is no such file" in done.stderr
    missing = "none/out.csv: there is no such folder"
    for option, words in (("--ranks=-3", "--ranks -3: allowed"), ("--out=none/out.csv", missing)):
        done = try_vllm(tmp_path, "--library", str(LIBRARY), option)
        assert done.returncode == 2 and words in done.stderr
