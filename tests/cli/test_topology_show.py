"""arlab topology show: what a machine is made of, and what it could carry."""

import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from program import (
    HANGS_AFTER, PROGRAM, REPOSITORY, contents, error_line, ok, ok_json, refused, run,
)  # fmt: skip

MACHINES = REPOSITORY / "sim" / "topology" / "machines"
NAMES = ["l40-8", "mi300x-8", "h800-8", "ring:12", "torus:4x4x2", "fat_tree:32", "dragonfly:40"]


def show(name, folder):
    return ok_json(f"topology show {name}", folder)


def test_l40_by_hand(tmp_path):
    """Within a group a port out and one in; between groups the bridge as well."""
    report = show("l40-8", tmp_path)
    assert (report["ranks"], report["switches"], report["links"]) == (8, 2, 18)
    numbers = {each["quantity"]: each for each in report["quantities"]}
    port = numbers["link.bandwidth_gb_per_s"]["value"]
    bridge = numbers["bridge.bandwidth_gb_per_s"]["value"]
    for a in range(8):
        for b in range(8):
            near = a // 4 == b // 4
            gb_per_s = None if a == b else port if near else min(port, bridge)
            hops = None if a == b else 2 if near else 3
            assert report["pair_matrix_gb_per_s"][a][b] == gb_per_s
            assert report["pair_matrix_hops"][a][b] == hops
    assert report["bisection_gb_per_s"] == bridge and report["bisection_exact"] is True
    assert "maximum flow" in report["bisection_method"]
    links = {each["link_class"]: each for each in report["link_classes"]}
    assert {name: each["links"] for name, each in links.items()} == {
        "port_out": 8, "port_in": 8, "bridge": 2,
    }  # fmt: skip
    assert links["bridge"]["bandwidth_source"] == numbers["bridge.bandwidth_gb_per_s"]["source"]


def test_counted_by_hand(tmp_path):
    mesh = show("full:6", tmp_path)
    link = mesh["link_classes"][0]["bandwidth_gb_per_s"]
    assert mesh["links"] == 30 and mesh["bisection_gb_per_s"] == 9 * link
    assert mesh["pair_hops"] == {"min": 1, "median": 1, "max": 1}
    ring = show("ring:6", tmp_path)
    assert ring["links"] == 12 and ring["bisection_gb_per_s"] == 2 * link
    assert ring["pair_matrix_hops"][0] == [None, 1, 2, 3, 2, 1]
    torus = show("torus:4x4x4", tmp_path)
    assert torus["pair_matrix_hops"] is None  # too many for a table
    assert torus["pair_hops"] == {"min": 1, "median": 3, "max": 6}
    assert torus["bisection_gb_per_s"] == 2 * 16 * link
    single = show("full:1", tmp_path)
    assert single["bisection_gb_per_s"] == 0 and single["pair_hops"] is None


def test_faults_and_stragglers(tmp_path):
    text = (MACHINES / "l40-8.toml").read_text()
    text += """
[[faults]]
from = "rank3"
to = "switch0"
bandwidth_factor = 0.5
note = "a cable"

[[faults]]
from = "switch1"
to = "rank6"
bandwidth_factor = 0
note = "unplugged"

[[stragglers]]
rank = 1
delay_us = { value = 5.0, source = "assumed", note = "throttled" }
"""
    (tmp_path / "mine.toml").write_text(text)
    report = show("mine.toml", tmp_path)
    assert [each["note"] for each in report["faults"]] == ["a cable", "unplugged"]
    assert report["stragglers"][0]["rank"] == 1 and report["stragglers"][0]["delay_us"] == 5
    out = next(each for each in report["link_classes"] if each["link_class"] == "port_out")
    assert out["slowest_gb_per_s"] == out["bandwidth_gb_per_s"] / 2
    assert report["unreachable_pairs"] == 7
    assert report["pair_matrix_gb_per_s"][0][6] is None
    assert report["pair_matrix_gb_per_s"][3][2] == out["bandwidth_gb_per_s"] / 2
    table = ok("topology show mine.toml", tmp_path)
    for words in ("a cable", "unplugged", "throttled", "stragglers", "faults"):
        assert words in table
    ok("topology show mine.toml --out mine.png", tmp_path)


@pytest.mark.parametrize("name", ["fat_tree:65536", "full:32768", "torus:32x32x64", "ring:20000"])
def test_large_ones_are_quick(tmp_path, name):
    report = show(name, tmp_path)
    assert report["bisection_gb_per_s"] > 0 and report["pairs"].startswith("a sample")


KINDS = {"png": b"\x89PNG", "svg": b"<?xml"}


@pytest.mark.parametrize("name", NAMES)
def test_pictures(tmp_path, name):
    for kind, begin in KINDS.items():
        ok(f"topology show {name} --out it.{kind}", tmp_path)
        assert (tmp_path / f"it.{kind}").read_bytes().startswith(begin)
    assert set(contents(tmp_path)) == {"it.png", "it.svg"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_picture_twice(tmp_path, kind):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        ok(f"topology show l40-8 --out it.{kind}", tmp_path / folder)
    one, other = ((tmp_path / folder / f"it.{kind}").read_bytes() for folder in ("a", "b"))
    assert one == other


def test_the_picture_is_there_even_if_nobody_reads_the_table(tmp_path):
    with open("/dev/full", "w") as full:
        result = run("topology show l40-8 --out it.png", tmp_path, stdout=full)
    assert result.code == 2 and "standard output" in error_line(result.stderr)
    assert contents(tmp_path).keys() == {"it.png"}


def test_no_python_no_picture(tmp_path):
    result = run("topology show l40-8 --out it.png", tmp_path, env={"ARLAB_PYTHON": "/nowhere/python"})
    assert result.code == 1 and "plots failed" in result.stderr and "l40-8" in result.stdout
    assert not contents(tmp_path)


def test_refused(tmp_path):
    refused("topology draw l40-8", tmp_path, "draw", "show")
    refused("topology show", tmp_path, "TOPOLOGY")
    refused("topology show l40-9", tmp_path, "l40-9")
    refused("topology show none.toml", tmp_path, "none.toml")
    refused("topology show l40-8 --out l40.pdf", tmp_path, "l40.pdf", ".png or .svg")
    refused("topology show l40-8 --out none/l40.png", tmp_path, "none")
    refused("topology show full:65 --out it.png", tmp_path, "too large to draw", "65", "64")


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "folder.png").mkdir()
    refused("topology show l40-8 --out folder.png", tmp_path, "folder.png", "not a regular file")
    result = run(
        "topology show l40-8 --out it.png", tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert result.code == 2 and "l40-8" in result.stdout
    line = error_line(result.stderr)
    assert "cannot write it.png: File too large" in line and "install" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_a_picture_with_a_name_as_long_as_names_can_be(tmp_path):
    name = "a" * 251 + ".png"
    ok(f"topology show l40-8 --out {name}", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_is_left_in_the_temporary_folder(tmp_path):
    """Whatever ends the program: there are no temporary files."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "slow").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "slow").chmod(0o755)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "ARLAB_PYTHON": str(tmp_path / "slow")}
    for number in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [PROGRAM, "topology", "show", "l40-8", "--out", "it.png"],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():  # the picture is being drawn
            time.sleep(0.01)
        os.killpg(process.pid, number)
        assert process.wait(HANGS_AFTER) == -number
        process.stdout.close()
    assert not list((tmp_path / "tmp").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"tmp", "slow"}


# ---------------------------------------------------------------- as a file, and from other files

IMPORTS = REPOSITORY / "tests" / "sim" / "imports"


@pytest.mark.parametrize("name", [*NAMES, "h200-8"])
def test_as_toml_it_is_the_same_machine(tmp_path, name):
    (tmp_path / "it.toml").write_text(ok(f"topology show {name} --format toml", tmp_path))
    assert ok_json("topology show it.toml", tmp_path) == show(name, tmp_path)
    assert show(name, tmp_path)["toml"] == (tmp_path / "it.toml").read_text()
    refused(f"topology show {name} --format toml --out it.png", tmp_path, "--out")
    refused(f"topology compare {name} {name} --format toml", tmp_path, "allowed are table, json, csv")


def test_what_a_file_with_a_base_says(tmp_path):
    for name, base in (("mine", "h200-8"), ("next", "mine.toml")):
        (tmp_path / f"{name}.toml").write_text(f'base = "{base}"\nname = "{name}"\n')
        assert show(f"{name}.toml", tmp_path)["summary"] == f"as {base}, with changes in {name}.toml"
    # A number in place of a section.
    number = '{ value = 4, source = "assumed", note = "n" }'
    (tmp_path / "x.toml").write_text(f'base = "h200-2x8"\nname = "x"\nnic = {number}\n')
    refused("topology show x.toml", tmp_path, "key 'nic': it is a value with its source", "did you mean 'nics'?")


ONE_GPU = """
base = "h100-8"
name = "ones"
kind = "fat_tree"
ranks = {{ value = 4, source = "assumed", note = "4 servers" }}
group_size = {{ value = {gpus}, source = "published", note = "one server" }}
nics = {{ value = 4, source = "published", note = "one server" }}
leaf_servers = {{ value = {servers}, source = "assumed", note = "all" }}
{more}
[nic]
bandwidth_gb_per_s = {{ value = 25, source = "published", note = "200 Gbit/s" }}
latency_us = {{ value = 1, source = "assumed", note = "a card" }}
[uplink]
bandwidth_gb_per_s = {{ value = 100, source = "assumed", note = "not oversubscribed" }}
latency_us = {{ value = 1, source = "assumed", note = "a switch" }}
"""
ONE_GPU_NETWORK = """[library.network]
low_latency_hop_us = { value = 15, source = "assumed", note = "as p5" }
simple_hop_us = { value = 15, source = "assumed", note = "as p5" }
"""


def test_the_library_between_servers_of_one_gpu_and_four_cards(tmp_path):
    """Nothing passes over links of the base there, so that its [library] holds; in servers of two it does not."""
    library = "simulate --library --codec bf16 --dtype bf16 --bytes 256M --topology"
    for more in ("", ONE_GPU_NETWORK):
        (tmp_path / "ones.toml").write_text(ONE_GPU.format(gpus=1, servers=4, more=more))
        told = ok_json(f"{library} ones.toml", tmp_path)
        assert told["algorithm"] in ("ring", "tree") and told["extrapolated"]
        assert 50 < told["busbw_gb_per_s"] < 100  # by the four cards
        refused(f"{library} ones.toml --algorithm nvls", tmp_path, "its library has no nvls there")
    one_card = (tmp_path / "ones.toml").read_text().replace("nics = { value = 4", "nics = { value = 1")
    (tmp_path / "ones.toml").write_text(one_card)
    assert ok_json(f"{library} ones.toml", tmp_path)["busbw_gb_per_s"] < 25
    (tmp_path / "twos.toml").write_text(ONE_GPU.format(gpus=2, servers=2, more=""))
    refused(f"{library} twos.toml", tmp_path, "does not say how NCCL or RCCL runs there", "with its links and as many GPUs, or with one")
    (tmp_path / "twos.toml").write_text(ONE_GPU.format(gpus=2, servers=2, more=ONE_GPU_NETWORK))
    refused(f"{library} twos.toml", tmp_path, "[library] of base 'h100-8' is of servers of its 8 GPUs; others need a whole one")
    (tmp_path / "matrix.txt").write_text(
        "\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tPIX\tPIX\t0-31\nNIC0\tPIX\t X \tPIX\nNIC1\tPIX\tPIX\t X \n")
    ok("topology import matrix.txt --base h100-8 --servers 2 --out imported.toml", tmp_path)
    assert ok_json(f"{library} imported.toml", tmp_path)["ranks"] == 2


def test_import(tmp_path):
    kinds = {"dgx.txt": "switch", "nccl.xml": "switch", "pcie.txt": "graph", "hybrid.txt": "graph", "astra.yml": "graph", "astra.toml": "torus", "rocm.txt": "graph", "rocm.json": "full_mesh", "amd.txt": "full_mesh", "amd.json": "full_mesh", "amd.csv": "full_mesh", "cards.txt": "full_mesh"}  # fmt: skip
    assert {path.name for path in IMPORTS.iterdir()} == set(kinds)
    for name, kind in kinds.items():
        text = ok(f"topology import {IMPORTS / name}", tmp_path)
        said = ok_json(f"topology import {IMPORTS / name} --out mine.toml", tmp_path)
        assert {row["source"] for row in said["numbers"]} <= {"published", "assumed"}
        assert (tmp_path / "mine.toml").read_text() == text.replace(f'name = "{IMPORTS.joinpath(name).stem}"', 'name = "mine"')
        report = show("mine.toml", tmp_path)
        assert report["kind"] == kind and report["unreachable_pairs"] == 0
        assert all(each["note"] for each in report["quantities"])
        told = ok_json("simulate --topology mine.toml --algorithm two_shot --codec qr-q4 --bytes 1M", tmp_path)
        assert told["latency_us"] > 0
        assert said["assumed"] == [row["quantity"] for row in said["numbers"] if row["source"] == "assumed"]
        assert bool(said["assumed"]) == (not name.startswith("astra"))
    (tmp_path / "cloud.xml").write_text('<system version="1"><cpu numaid="0">' + "".join(
        f'<pci busid="000{i}:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>' for i in range(8)) + "</cpu></system>")  # fmt: skip
    refused("topology import cloud.xml --out it.toml", tmp_path, "by PCI class only", "--base NAME", "--no-nvlink")
    assert not (tmp_path / "it.toml").exists()
    told = ok_json("topology import cloud.xml --base a100-8 --out it.toml", tmp_path)
    assert told["kind"] == "switch" and "links of a100-8" in show("it.toml", tmp_path)["summary"]
    assert ok_json("topology import cloud.xml --no-nvlink --out it.toml", tmp_path)["kind"] == "graph"
    refused(f"topology import {IMPORTS / 'nccl.xml'} --no-nvlink", tmp_path, "it lists NVLinks")
    based = ok_json(f"topology import {IMPORTS / 'dgx.txt'} --from nvidia-smi --base h200-8 --servers 2", tmp_path)
    assert based["device"] == show("h200-8", tmp_path)["device"] and based["ranks"] == 16
    ok("topology show mine.toml --out it.png", tmp_path)
    (tmp_path / "two.toml").write_text(based["toml"])
    ok("topology show two.toml --out two.png", tmp_path)
    refused("topology import none.txt", tmp_path, "none.txt", "cannot be read")
    refused(f"topology import {IMPORTS / 'dgx.txt'} --from smi", tmp_path, "'smi'", "nvidia-smi, amd-smi, nccl-xml, astra-sim")
    refused(f"topology import {IMPORTS / 'dgx.txt'} --out it.png", tmp_path, ".toml")
    refused("topology show l40-8 --base h200-8", tmp_path, "'--base' is not an option of arlab topology show")
    (tmp_path / "damaged.txt").write_text((IMPORTS / "dgx.txt").read_text().replace("NV18", "NV", 1))
    refused("topology import damaged.txt", tmp_path, "damaged.txt: row GPU0", "'NV'", "allowed are")


def test_errors_say_which_nodes_there_are(tmp_path):
    fault = '[[faults]]\nfrom = "{}"\nto = "{}"\nbandwidth_factor = 0.5\nnote = "n"\n'
    for ends, words in (
        (("rank3", "switch99"), "there is no switch99; there are rank0 to rank15, switch0 to switch1 (inside the servers), switch2 to switch9 (the leaves, 8 rails in each pod), switch10 (the core)"),
        (("rank3", "switch7"), "there is no link from rank3 to switch7; from there, links lead to switch0, switch5"),
    ):  # fmt: skip
        (tmp_path / "mine.toml").write_text('base = "fat_tree:16"\nname = "mine"\n' + fault.format(*ends))
        refused("topology show mine.toml", tmp_path, "mine", words)
    (tmp_path / "mine.toml").write_text('base = "nope"')
    refused("topology show mine.toml", tmp_path, "mine.toml: key 'base': unknown topology 'nope'")


def machines_that_say_not_oversubscribed(folder):
    """Returns the machines, shipped or in a study or in the pages, with a text that says so."""
    shipped = {path.stem: path.read_text() for path in MACHINES.glob("*.toml")}
    for path in (REPOSITORY / "experiments").rglob("*.toml"):
        if "fat_tree" in path.read_text():
            shipped[str(path)] = path.read_text()
    for page in [*REPOSITORY.rglob("sim/**/*.md"), *(REPOSITORY / "experiments").rglob("*.md"), REPOSITORY / "README.md"]:
        for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)):
            if "[uplink]" in block:
                name = folder / f"{page.parent.name}-{number}.toml"
                name.write_text(block)
                shipped[str(name)] = block
    return [name for name, text in shipped.items() if re.search("oversubscri|no fewer uplinks", text)]


def test_what_says_no_oversubscription_has_none(tmp_path):
    names = machines_that_say_not_oversubscribed(tmp_path)
    assert {"p5-2x8", "p4de-2x8"} < set(names) and sum(name.endswith(".toml") for name in names) >= 4
    for name in names:
        assert show(name, tmp_path)["oversubscribed"] == [], name


def test_leaves_whose_cards_exceed_their_uplink_are_named(tmp_path):
    """Four servers of 8 behind the same leaves: what four cards bring is four times the uplink."""
    (tmp_path / "narrow.toml").write_text("""
base = "h200-8"
name = "narrow"
kind = "fat_tree"
ranks = { value = 32, source = "assumed", note = "four servers" }
group_size = { value = 8, source = "assumed", note = "8 GPUs each" }
nics = { value = 8, source = "assumed", note = "a card for each GPU" }
leaf_servers = { value = 4, source = "assumed", note = "all behind the same leaves" }
[nic]
bandwidth_gb_per_s = { value = 46.0, source = "assumed", note = "400 Gbit/s are 50" }
latency_us = { value = 2.0, source = "assumed", note = "typical" }
[uplink]
bandwidth_gb_per_s = { value = 46.0, source = "assumed", note = "one link" }
latency_us = { value = 1.0, source = "assumed", note = "typical" }
""")
    said = show("narrow.toml", tmp_path)["oversubscribed"]
    assert said == ["leaf 0: 4 cards of 46 GB/s on an uplink of 46 GB/s; 7 more after it are alike"]
    assert said[0] in ok("topology show narrow.toml", tmp_path)
    (tmp_path / "wide.toml").write_text('base = "narrow.toml"\nname = "wide"\n[uplink]\n'
                                        'bandwidth_gb_per_s = { value = 184.0, source = "assumed", note = "four links" }\n')  # fmt: skip
    assert show("wide.toml", tmp_path)["oversubscribed"] == []
    # One of the uplinks has lost half of its links.
    (tmp_path / "worn.toml").write_text('base = "wide.toml"\nname = "worn"\n[[faults]]\nfrom = "switch6"\nto = "switch12"\n'
                                        'bandwidth_factor = 0.5\nnote = "worn"\n')  # fmt: skip
    assert show("worn.toml", tmp_path)["oversubscribed"] == ["leaf 2: 4 cards of 46 GB/s on an uplink of 92 GB/s"]


# ---------------------------------------------------------------- compare


def test_compare_says_what_differs(tmp_path):
    report = ok_json("topology compare mi300x-8 h200-8", tmp_path)
    rows = {each["quantity"]: each for each in report["differences"]}
    a, b = show("mi300x-8", tmp_path), show("h200-8", tmp_path)
    assert rows["bisection_gb_per_s"]["a"] == a["bisection_gb_per_s"]
    assert rows["bisection_gb_per_s"]["b"] == b["bisection_gb_per_s"]
    ratio = b["bisection_gb_per_s"] / a["bisection_gb_per_s"]
    assert rows["bisection_gb_per_s"]["b_over_a"] == pytest.approx(ratio)
    assert "ranks" not in rows  # both have 8
    assert all(each["a"] != each["b"] for each in report["differences"])
    assert len(report["times"]) == 6
    tried = report["times_of"].split(", ")
    assert {"one_shot", "two_shot", "ring", "tree", "hierarchical", "halving_doubling"} <= set(tried)
    assert {row[f"algorithm_{side}"] for row in report["times"] for side in "ab"} <= set(tried)
    for row in report["times"]:
        for side, machine in (("a", "mi300x-8"), ("b", "h200-8")):
            algorithm = row[f"algorithm_{side}"]
            command = f"simulate --topology {machine} --algorithm {algorithm} --codec {row['codec']} --bytes {row['bytes']}"
            assert ok_json(command, tmp_path)["latency_us"] == row[f"{side}_us"]


def test_compare_of_one_with_itself(tmp_path):
    report = ok_json("topology compare h200-8 h200-8", tmp_path)
    assert report["differences"] == []
    assert all(row["b_over_a"] == 1 for row in report["times"])


def test_compare_takes_the_best_of_all_algorithms(tmp_path):
    """Across servers hierarchical is the fastest: half of a port, which the others have no use for, shows."""
    servers = {"mine": 1, "degraded": 0.5}
    for name, share in servers.items():
        (tmp_path / f"{name}.toml").write_text(f"""
base = "fat_tree:16"
name = "{name}"
[[faults]]
from = "rank3"
to = "switch0"
bandwidth_factor = {share}
note = "a port"
""")
    report = ok_json("topology compare mine.toml degraded.toml", tmp_path)
    rows = {(row["bytes"], row["codec"]): row for row in report["times"]}
    large = rows[64 << 20, "fp16"]
    assert large["algorithm_a"].startswith("hierarchical") and large["b_over_a"] > 1.05
    for algorithm in report["times_of"].split(", "):
        for name, side in zip(servers, "ab"):
            command = f"simulate --topology {name}.toml --algorithm {algorithm} --codec fp16 --bytes 64M"
            assert ok_json(command, tmp_path)["latency_us"] >= large[f"{side}_us"], (algorithm, name)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("compare mi300x-8", "OTHER is required"),
        ("compare mi300x-8 nonsense", "nonsense"),
        ("compare mi300x-8 h200-8 --out a.png", "'--out' is not an option of arlab topology compare"),
        ("show mi300x-8 h200-8", "not expected: h200-8"),
        ("draw mi300x-8", "show, flows, compare"),
    ],
)
def test_compare_what_cannot_be(tmp_path, arguments, fragment):
    refused(f"topology {arguments}", tmp_path, fragment)
