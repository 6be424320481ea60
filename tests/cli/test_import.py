"""arlab topology import of AMD's tools and of cards' rates; and what an imported machine's times are worth."""

import re
import tomllib

import pytest
from program import REPOSITORY, ok, ok_csv, ok_json, refused

SAMPLES = REPOSITORY / "tests/sim/imports"
GUESS = "times below 128 KiB are guesses: x 0.4 to 2.5"


def imported(name, folder, more=""):
    ok(f"topology import {name if '/' in str(name) else SAMPLES / name} --out in.toml {more}", folder)
    return tomllib.loads((folder / "in.toml").read_text())


def test_rocm_smi_is_a_graph_of_xgmi_and_pcie(tmp_path):
    machine = imported("rocm.txt", tmp_path)
    assert machine["kind"] == "graph" and machine["ranks"]["value"] == 4
    xgmi = {(edge["from"], edge["to"]) for edge in machine["edges"] if edge["type"] == "xgmi1"}
    assert xgmi == {("rank0", "rank1"), ("rank2", "rank3")}
    assert sum(edge["type"] == "socket" for edge in machine["edges"]) == 1, "two NUMA nodes"
    assert "mi300x-8" in machine["summary"]


@pytest.mark.parametrize("name", ["amd.txt", "amd.json", "amd.csv", "rocm.json"])
def test_all_forms_of_amds_tools_say_the_same(name, tmp_path):
    machine = imported(name, tmp_path)
    assert machine["kind"] == "full_mesh" and machine["ranks"]["value"] == 4
    rate = machine["link"]["bandwidth_gb_per_s"]
    assert rate["source"] == "assumed"
    assert rate["value"] == (48 if name == "rocm.json" else 2 * 48), "two links of 64 GB/s, three quarters of it"
    base = imported(name, tmp_path, "--base mi300x-4")
    shipped = tomllib.loads(ok("topology show mi300x-4 --format toml", tmp_path))
    assert base["link"] == shipped["link"]
    assert "guessed_below_bytes" not in base, "kernels and links of the base, which were measured"


def test_cards_have_the_rate_that_ibstat_or_ibv_devinfo_says(tmp_path):
    machine = imported("cards.txt", tmp_path, "--servers 2")
    assert machine["nics"]["value"] == 2 and "mlx5_2, whose port is down" in machine["summary"]
    rate = machine["nic"]["bandwidth_gb_per_s"]
    assert rate["value"] == 50 and rate["source"] == "published"
    text = (SAMPLES / "cards.txt").read_text()
    (tmp_path / "in.txt").write_text(text.replace("Rate: 400", "Rate: 200").replace("100.0 Gbps", "50.0 Gbps"))
    assert imported(tmp_path / "in.txt", tmp_path, "--servers 2")["nic"]["bandwidth_gb_per_s"]["value"] == 25
    (tmp_path / "in.txt").write_text(text.replace("100.0 Gbps", "25.0 Gbps"))
    nics = imported(tmp_path / "in.txt", tmp_path, "--servers 2")["nics"]
    assert nics["value"] == 1 and "the fastest of those closest to GPUs: NIC0 (PIX); without NIC1 (PIX)" in nics["note"]


@pytest.mark.parametrize(
    ("cpu", "gb_per_s"),
    [
        ('vendor="GenuineIntel" familyid="6" modelid="79"', 6),
        ('vendor="GenuineIntel" familyid="6" modelid="85"', 10),
        ('vendor="GenuineIntel" familyid="6" modelid="143"', 22),
        ('vendor="GenuineIntel" familyid="6" modelid="207"', 40),
        ('vendor="AuthenticAMD" familyid="143" modelid="49"', 16),
        ('vendor="AuthenticAMD" familyid="175" modelid="1"', 24),
        ('vendor="AuthenticAMD" familyid="191" modelid="2"', 32),
        ('vendor="CentaurHauls" familyid="7" modelid="91"', 9),
        ('vendor="  Shanghai  " familyid="7" modelid="59"', 6),
    ],
)
def test_sockets_are_as_fast_as_nccl_takes_the_processor(cpu, gb_per_s, tmp_path):
    def node(i):
        link = 'class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"'
        pci = f'<pci busid="0000:{i}0:00.0" {link}><gpu dev="{i}" sm="80"/></pci>'
        return f'<cpu numaid="{i}" host_hash="0x1" arch="x86_64" {cpu}>{pci}</cpu>'

    (tmp_path / "in.xml").write_text(f'<system version="1">{node(0)}{node(1)}</system>')
    socket = imported(tmp_path / "in.xml", tmp_path)["links"]["socket"]["bandwidth_gb_per_s"]
    assert socket["value"] == gb_per_s and "topo.h" in socket["note"]


ROWS = ["\t".join([f"GPU{i}", *("X" if i == j else "PIX" for j in range(4))]) for i in range(4)]
MATRIX = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(ROWS) + "\n"
WIDTHS = "\npcie.link.gen.max, pcie.link.width.max\n" + "3, 16\n" * 4


def test_small_times_of_an_imported_machine_are_said_to_be_guesses(tmp_path):
    """Public times of four V100 behind a PCIe switch, by one_shot: within the interval, and large ones within a quarter."""
    (tmp_path / "in.txt").write_text(MATRIX + WIDTHS)
    said = ok_json("topology import in.txt --out in.toml", tmp_path)
    assert said["guesses"] == GUESS
    for text in ((tmp_path / "in.toml").read_text(), ok("topology import in.txt --out in.toml", tmp_path)):
        assert "kernels of h100-8 (--base NAME takes others)" in text
    assert "--base NAME" not in ok("topology import in.txt --base h200-8", tmp_path)
    assert "of round numbers (--base NAME takes others)" in ok(f"topology import {SAMPLES / 'astra.yml'}", tmp_path)
    simulate = "simulate --topology in.toml --algorithm one_shot --codec fp16 --bytes"
    rows = ok_csv(f"{simulate} 4K,8K,16K,32K,128K,384K", tmp_path)
    for row, measured in zip(rows, (4.0, 5.0, 7.2, 11.8, 44.5, 120)):
        us = float(row["latency_us"])
        if int(row["bytes"]) < 128 << 10:
            low, high = float(row["latency_us_low"]), float(row["latency_us_high"])
            assert (low, high) == (pytest.approx(0.4 * us), pytest.approx(2.5 * us)) and low <= measured <= high
        else:
            assert float(row["latency_us_low"]) <= measured <= float(row["latency_us_high"])
            assert us == pytest.approx(measured, rel=0.25)
    small = ok_json(f"{simulate} 4K", tmp_path)
    assert GUESS in small["extrapolated"] and small["interval_from"] == GUESS
    assert GUESS not in ok_json(f"{simulate} 1M", tmp_path)["extrapolated"]
    own = re.sub("guessed_below_bytes = 131072", "guessed_below_bytes = 4096", (tmp_path / "in.toml").read_text())
    (tmp_path / "in.toml").write_text(own)
    assert ok_json(f"{simulate} 4K", tmp_path)["interval_from"] != GUESS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=== ROCm System Management Interface ===\n= Weight between two GPUs =\n", ["no table of link types"]),
        (lambda: (SAMPLES / "rocm.txt").read_text().replace("GPU3   PCIE", "GPX3   PCIE"), ["link types", "not whole"]),
        (lambda: (SAMPLES / "rocm.txt").read_text().replace("XGMI", "XXXX", 1), ["GPU 1 to GPU 0", "XXXX"]),
        (lambda: (SAMPLES / "amd.txt").read_text().replace("SELF         XGMI", "SELF"), ["3 entries for 4 columns"]),
        (lambda: (SAMPLES / "amd.json").read_text()[:300], ["not JSON"]),
        (lambda: (SAMPLES / "amd.txt").read_text().replace("XGMI", "N/A"), ["the link from GPU", "--base"]),
    ],
)
def test_what_amds_tools_do_not_say_gets_one_line(text, words, tmp_path):
    (tmp_path / "in.txt").write_text(text() if callable(text) else text)
    refused("topology import in.txt", tmp_path, "in.txt", *words)
