"""No memory, or not enough for what was asked: one line, exit code 2, never a signal; and what has room runs."""

import resource

import pytest
from program import error_line, ok, refused, run

MIB = 1 << 20


def limited(command, folder, mib):
    return run(
        command,
        folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)),
        timeout=60,
    )


# Each of their emulated threads has two mappings, of which a process may have 65,530.
@pytest.mark.parametrize(
    "command",
    [
        "conform --platform host --codec qr-q4 --algorithm one_shot --ranks 2 --elements 300000",
        "bench --platform host --algorithm two_shot --codec int4-g32 --ranks 8 --bytes 512K --calls 1 --replays 1",
    ],
)
def test_sizes_that_take_more_blocks_than_run_at_once(command, tmp_path):
    ok(command, tmp_path, timeout=120)


@pytest.mark.parametrize(
    "command, need, advice",
    [
        (
            "conform --platform host --codec fp16 --algorithm ring --ranks 2 --elements 1000G",
            "conform of 2 ranks with 1073741824000 elements each needs about",
            "; --elements up to ",
        ),
        ("bench --platform host --ranks 2 --codec bf16 --bytes 1000G", "bench of 2 ranks", "; --bytes up to "),
        ("judge --calls c --answers a --ranks 8 --dtype fp32 --lengths 1000G", "judge of 8 ranks", "; --lengths up to "),
        ("reduce --algorithm ring --codec fp16 --synthetic gaussian --elements 1000G --ranks 8", "this reduce", ""),
    ],
)
def test_what_needs_too_much_is_refused_before_it_begins(command, need, advice, tmp_path):
    refused(command, tmp_path, "not enough memory: " + need, " are available" + advice)


def test_what_would_fit_fits_the_limit(tmp_path):
    command = "conform --platform host --codec fp16 --algorithm ring --ranks 2 --elements 1G"
    up_to = []
    for mib in (1000, 2000):
        result = limited(command, tmp_path, mib)
        assert result.code == 2, result
        up_to.append(int(error_line(result.stderr).split("--elements up to ")[1].split()[0]))
    # 5 copies of 2 ranks of 2 bytes.
    assert up_to[1] - up_to[0] == pytest.approx(1000 * MIB / 20, rel=0.05)


@pytest.mark.parametrize(
    "command",
    [
        "conform --platform host --codec qr-q4 --algorithm two_shot --ranks 3 --elements 5003",
        "bench --platform host --algorithm one_shot --codec bf16 --bytes 1M --ranks 2 --calls 1 --replays 1",
        "simulate --topology full:64 --algorithm two_shot --codec qr-q4 --bytes 64M",
        "reduce --algorithm two_shot --codec qr-q4 --synthetic gaussian --elements 1M --ranks 8 --threads 1",
    ],
)
def test_any_limit_ends_in_a_result_or_a_line(command, tmp_path):
    for mib in (60, 100, 130, 170, 250, 400):
        result = limited(command, tmp_path, mib)
        assert result.code in (0, 2), f"{mib} MiB: {result!s}"
        if result.code == 2:
            assert "memory" in error_line(result.stderr), f"{mib} MiB: {result!s}"
