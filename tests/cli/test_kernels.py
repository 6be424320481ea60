"""arlab kernels: compiled ahead for GPUs that are not here, by NVRTC where there is one; and folders of them."""

import glob
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from program import PROGRAM, REPOSITORY, ok, refused, run

BUILD = "kernels build --codec qr-q8,int4-g32 --algorithm ring --ranks 2 --arch sm_90"
#: Ring has one kernel for each codec, beside encode, decode and decode_add.
KERNELS = 8
COMPILERS = ("/usr/local/cuda*/lib64/libnvrtc.so.1[3-9]", f"{REPOSITORY}/.venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[3-9]")

needs_compiler = pytest.mark.skipif(
    not any(glob.glob(pattern) for pattern in COMPILERS), reason="no NVRTC (requirements-nvrtc.txt)"
)


def environment(cache, **more):
    return {**os.environ, "ARLAB_KERNEL_CACHE": str(cache), **more}


def figures(command, folder, env):
    done = run(f"{command} --format json", folder, env=env, timeout=600)
    assert done.code == 0, done
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def built():
    """The folder that travels. /tmp is none: everybody may write there."""
    if not any(glob.glob(pattern) for pattern in COMPILERS):
        pytest.skip("no NVRTC (requirements-nvrtc.txt)")
    places = [PROGRAM.parent, *PROGRAM.parent.resolve().parents]
    if any(place.stat().st_mode & 0o22 or place.stat().st_uid not in (0, os.geteuid()) for place in places):
        pytest.skip(f"others may write to {PROGRAM.parent}, or to a folder above it")
    with tempfile.TemporaryDirectory(dir=PROGRAM.parent) as folder:
        env = environment(Path(folder) / "cache")
        assert figures(f"{BUILD} --jobs 2 --out {folder}/kernels", folder, env)["compiled"] == KERNELS
        yield Path(folder)


@needs_compiler
def test_kernels_are_built_listed_and_removed(built, tmp_path):
    env = environment(built / "kernels")
    again = figures(BUILD, tmp_path, env)
    assert (again["kernels"], again["compiled"]) == (KERNELS, 0)
    found = figures("kernels list", tmp_path, env)["kernels"]
    assert len(found) == KERNELS and {each["architecture"] for each in found} == {"sm_90"}
    assert all("NVRTC" in each["compiler"] and each["bytes"] > 1000 and each["unused_s"] >= 0 for each in found)
    assert {each["kernel"].split()[0] for each in found} == {"ring", "encode", "decode", "decode_add"}
    header, *rows = ok("kernels list --format csv", tmp_path, env=env).splitlines()
    assert header == "kernel,architecture,compiler,bytes,unused_s,file" and len(rows) == KERNELS

    shutil.copytree(built / "kernels", tmp_path / "copy")
    (tmp_path / "copy").chmod(0o700)
    env = environment(tmp_path / "copy")
    assert [figures("kernels clear", tmp_path, env)["removed"] for _ in range(2)] == [KERNELS, 0]
    assert figures("kernels list", tmp_path, env)["kernels"] == []


@needs_compiler
def test_kernels_with_tails_are_built(tmp_path, tmp_path_factory):
    """In the collective's kernel where rows are short enough, else behind it, where rows are encoded as they are made."""
    env = environment(tmp_path_factory.mktemp("cache") / "kernels")
    tail = "--tail hidden=2048,residual=add,norm=rms,out=int8-g32"
    command = f"kernels build --codec bf16 --algorithm one_shot --ranks 2 --arch sm_90 {tail}"
    figures(command, tmp_path, env)
    names = {each["kernel"].split()[0].split("/")[0] for each in figures("kernels list", tmp_path, env)["kernels"]}
    assert {"one_shot_lamport_tail", "tail_rows_encoded", "encode"} <= names, names
    refused(f"{command},hidden=7", tmp_path, "hidden", env=env)


@needs_compiler
def test_kernels_of_a_header_are_built(tmp_path, tmp_path_factory):
    """Also for GPUs of another kind; again once the header is another."""
    header = tmp_path / "mine.h"
    ok("new codec mine8-g64 --header mine.h", tmp_path)
    env = environment(tmp_path_factory.mktemp("cache") / "kernels")
    build = f"{BUILD.replace('qr-q8,int4-g32', 'mine8-g64')} --codec-header mine.h --dtype bf16"
    assert [figures(build, tmp_path, env)["compiled"] for _ in range(2)] == [4, 0]
    assert figures(build.replace("sm_90", "sm_100"), tmp_path, env)["compiled"] == 4
    found = figures("kernels list", tmp_path, env)["kernels"]
    assert {each["kernel"].split()[0] for each in found} >= {"ring", "encode", "decode", "decode_add"}
    assert any("FormatOfHeader<::arlab::Mine8G64, 8, false>" in each["kernel"] for each in found)
    text = header.read_text()
    header.write_text(text.replace("largest / 127", "largest / 126"))
    assert figures(build, tmp_path, env)["compiled"] == 4
    header.write_text(text)
    assert figures(build, tmp_path, env)["compiled"] == 0
    # The system's compiler takes what GPUs cannot.
    header.write_text(text.replace("round_to_even(", "std::nearbyint(").replace("<limits>", "<limits>\n#include <cmath>"))
    line = header.read_text()[: header.read_text().index("nearbyint")].count("\n") + 1
    refused(build, tmp_path, f"arlab: mine.h:{line}: ", "nearbyint", "compiled by NVRTC", env=env)


@needs_compiler
def test_a_folder_that_has_travelled_needs_no_compiler(built, tmp_path):
    nowhere = {"ARLAB_NVRTC": "/nowhere"}
    env = environment(built / "cache", ARLAB_KERNEL_FOLDER=str(built / "kernels"), **nowhere)
    used = figures(BUILD, tmp_path, env)
    assert (used["kernels"], used["compiled"]) == (KERNELS, 0)
    # Another architecture has none.
    refused(BUILD.replace("sm_90", "sm_100"), tmp_path, "ARLAB_NVRTC: /nowhere cannot be loaded", env=env)
    refused(BUILD, tmp_path, "ARLAB_NVRTC: /nowhere cannot be loaded", env=environment(built / "cache", **nowhere))


@needs_compiler
@pytest.mark.parametrize("command", ["check-codec qr-q8", "conform --codec qr-q8", "bench"])
def test_a_folder_that_others_may_write_is_refused(built, tmp_path, command):
    folder = built / "others"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    refused(f"{command} --platform cuda --kernel-folder {folder}", tmp_path, "--kernel-folder", "others")
    refused(f"{command} --platform cuda --kernel-folder {folder}/none", tmp_path, "--kernel-folder", "none")


@pytest.mark.parametrize("command", ["check-codec qr-q8", "conform --codec qr-q8 --ranks 2", "bench --ranks 2"])
def test_a_folder_for_a_platform_that_takes_none_is_refused(tmp_path, command):
    refused(f"{command} --platform host --kernel-folder {tmp_path}", tmp_path, "--kernel-folder", "platform host")
    refused("check-codec qr-q8 --kernel-folder here", tmp_path, "--kernel-folder", "--platform")


def test_bad_input(tmp_path, tmp_path_factory):
    env = environment(tmp_path_factory.mktemp("cache") / "kernels")
    refused("kernels build --codec qr-q4", tmp_path, "--arch")
    refused("kernels build --codec qr-q4 --arch gfx90a", tmp_path, "ARLAB_HIPRTC", "/none", env={**env, "ARLAB_HIPRTC": "/none"})
    refused("kernels build --codec rans-int4-g32 --arch sm_90", tmp_path, "rans-int4-g32", "no kernels", env=env)
    refused("kernels build --codec qr-q4 --dtype int8 --arch sm_90", tmp_path, "int8", env=env)
    refused("kernels build --codec qr-q4 --ranks 9 --arch sm_90", tmp_path, "--ranks is '9'", "2 to 8", env=env)
    refused("kernels build --codec qr-q4 --algorithm rings --arch sm_90", tmp_path, "rings", env=env)
    (tmp_path / "file").touch()
    refused("kernels build --codec qr-q4 --arch sm_90 --out file/kernels", tmp_path, "file/kernels", env=env)
    refused("kernels list", tmp_path, "not used", env=environment(tmp_path / "file"))


@needs_compiler
def test_an_unknown_architecture_is_named(tmp_path):
    refused("kernels build --codec qr-q4 --arch sm_90,sm_1", tmp_path, "sm_1", "sm_90", env=environment(tmp_path / "cache"))


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
def test_kernels_of_amd_gpus_are_built_where_a_hiprtc_compiles_them(tmp_path, architecture):
    env = environment(tmp_path / "cache")
    build = f"{BUILD} --dtype fp16 --out kernels".replace("sm_90", architecture)
    done = run(f"{build} --format json", tmp_path, env=env, timeout=600)
    if done.code == 0:
        made = json.loads(done.stdout)
        assert made["kernels"] == made["compiled"] == KERNELS
        return
    missing = "no compiler for AMD GPUs: .*" if "no compiler" in done.stderr else f"architecture {architecture}: hipRTC .* does not compile for it.*"
    assert done.code == 2 and done.stdout == "" and re.fullmatch(f"arlab: {missing}\n", done.stderr), done
