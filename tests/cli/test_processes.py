"""`conform --processes` and `bench --processes`: a process per rank, as mpirun or torchrun starts them."""

import csv
import json
import os
import shutil
import socket
import subprocess

import pytest
from program import PROGRAM, WITH_MISTAKES, ok_json, refused

CONFORM = "conform --platform host --codec qr-q4 --algorithm two_shot --elements 3000"
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ranks(commands, folder, program=PROGRAM):
    """As torchrun starts them: (code, stdout, stderr) of each."""
    port = str(free_port())
    started = []
    for rank, command in enumerate(commands):
        said = {"RANK": str(rank), "WORLD_SIZE": str(len(commands)), "MASTER_PORT": port, "LOCAL_WORLD_SIZE": str(len(commands))}
        started.append(
            subprocess.Popen(
                [program, *command.split()], cwd=folder, env={**os.environ, **said}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    return [(*process.communicate(timeout=100), process.returncode) for process in started]


@pytest.mark.parametrize("world_size", [2, 4])
def test_every_process_is_a_rank(world_size, tmp_path):
    results = ranks([f"{CONFORM} --processes --format json"] * world_size, tmp_path)
    assert [code for *_, code in results] == [0] * world_size
    assert [stdout for stdout, *_ in results[1:]] == [""] * (world_size - 1)
    together = ok_json(f"{CONFORM} --ranks {world_size}", tmp_path)
    assert json.loads(results[0][0])["checks"] == together["checks"] and together["mismatches"] == 0


def test_what_cannot_run_in_place_runs_out_of_place(tmp_path):
    command = "conform --platform host --codec nvfp4 --algorithm hierarchical_reduce_scatter --elements 300 --format json"
    results = ranks([f"{command} --processes"] * 2, tmp_path)
    assert [code for *_, code in results] == [0, 0], results
    assert json.loads(results[0][0])["checks"] == ok_json(f"{command.removesuffix(' --format json')} --ranks 2", tmp_path)["checks"]


def test_a_wrong_bit_is_seen(tmp_path):
    results = ranks([f"{CONFORM} --processes"] * 2, tmp_path, WITH_MISTAKES)
    assert results[0][2] == 1 and "kernels and reference differ" in results[0][1]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_mpirun(tmp_path):
    command = ["mpirun", "-n", "3", PROGRAM, *f"{CONFORM} --processes --format json".split()]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=100, check=True)
    assert {check["ranks"] for check in json.loads(done.stdout)["checks"]} == {"1", "3"}


def test_times_are_of_all(tmp_path):
    command = "bench --platform host --algorithm one_shot --codec qr-q4 --bytes 16K --replays 3 --calls 2 --processes"
    results = ranks([f"{command} --format csv --out times.csv", f"{command} --format csv --out times.csv"], tmp_path)
    assert [code for *_, code in results] == [0, 0] and results[1][0] == ""
    (row,) = csv.DictReader(results[0][0].splitlines())
    assert float(row["time_us"]) > 0 and "\nhost,,2,one_shot,qr-q4,bf16,16384," in (tmp_path / "times.csv").read_text()


def test_ranks_that_ask_for_something_else(tmp_path):
    results = ranks([f"{CONFORM} --processes", f"{CONFORM.replace('qr-q4', 'qr-q6')} --processes"], tmp_path)
    for _, stderr, code in results:
        assert code == 2 and "rank" in stderr and stderr.count("\n") == 1


def test_what_is_refused(tmp_path):
    refused(f"{CONFORM} --processes", tmp_path, "--processes: WORLD_SIZE is not in the environment")
    refused(f"{CONFORM} --processes --ranks 2", tmp_path, "--ranks")
    refused("bench --platform host --vendor --processes", tmp_path, "--vendor")
    alone = ranks([f"{CONFORM} --processes"], tmp_path)
    assert alone[0][2] == 2 and "1 ranks; allowed are 2 to 8" in alone[0][1]
