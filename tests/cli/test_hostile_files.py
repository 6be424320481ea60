"""Machine files that lack a key; files that nest deep, and those that are none. tests/fuzz has damaged files of all kinds."""

import hashlib
import os

import pytest
from program import REPOSITORY, ok, refused, run

MACHINE = (REPOSITORY / "sim/topology/machines/h20-8.toml").read_text()
SIMULATE = "simulate --algorithm ring --codec fp16 --bytes 1M --topology"


def test_the_machine_itself(tmp_path):
    (tmp_path / "own.toml").write_text(MACHINE)
    ok(f"{SIMULATE} own.toml", tmp_path)


def test_a_missing_key_is_named(tmp_path):
    lines = [line for line in MACHINE.splitlines() if " = " in line and not line.startswith(("#", "memory_gb", "machines", "dtypes"))]  # these are optional
    assert len(lines) >= 10
    for line in lines:
        whole = MACHINE[MACHINE.index(line) :].split("\n]\n")[0] + "\n]" if line.endswith("[") else line
        (tmp_path / "own.toml").write_text(MACHINE.replace(whole + "\n", "", 1))
        key = line.split(" = ")[0]
        # A switch can do neither where the file does not say so.
        says = {"multicast": "needs a switch that can do it", "reduction": "unknown key"}.get(key, "missing key")
        refused(f"{SIMULATE} own.toml", tmp_path, "own.toml", says, key)


#: Commands that read a TOML file of their own, {} its name.
OF_TOML = [
    "topology show {}", "study {} --out out", "validate --tables {}", SIMULATE + " {}", "model validate --tables {}", "simulate --workload {} --topology h200-8",
    "model time --model {} --topology h200-8", "select --topology full:4 --no-budget --synthetic gaussian --bytes 64K --table {}",
]  # fmt: skip


@pytest.mark.parametrize(
    "text, said",
    [
        (".".join(["a"] * 50000) + " = 1", "parts"), ("[" + " . ".join(["'a'"] * 50000) + "]", "parts"), ("[[" + ".".join(["a"] * 50000) + "]]", "parts"),
        ('b = [{a="""x"""", ' + "a." * 50000 + "a = 1}]", "parts"), ("a = " + "[" * 50000, "brackets"), ("a = " + "{a = " * 50000, "brackets"),
        ("a = " + "[{a.b = " * 50000 + "1" + "}]" * 50000, "brackets"), ("a = " + "[" * 33 + "]" * 33, "brackets"),
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_keys_and_values_of_thousands_of_parts(tmp_path, text, said):
    (tmp_path / "k.toml").write_text(text)
    allowed = {"parts": "a key of too many parts: allowed are 17", "brackets": "brackets in too many others: allowed are 32"}[said]
    for command in OF_TOML[:4]:
        refused(command.format("k.toml"), tmp_path, "k.toml: line 1", allowed)


def test_every_reader_of_toml_has_the_bound(tmp_path):
    (tmp_path / "k.toml").write_text("\n" + ".".join(["a"] * 50000) + " = 1")
    for command in OF_TOML:
        refused(command.format("k.toml"), tmp_path, "k.toml: line 2: a key of too many parts: allowed are 17")


def test_values_in_as_many_others_as_are_allowed(tmp_path):
    (tmp_path / "own.toml").write_text(MACHINE + "\nown = " + "[" * 32 + "']]'" + "]" * 32 + " # [[[\n" + 'b = "[[[\\"["\n' + "c = [" * 3 + "]" * 3 + "\n[d]\n")
    refused("topology show own.toml", tmp_path, "own.toml", "own")  # parsed, and the unknown keys named


DEEP = "[" * 100000 + "]" * 100000


@pytest.mark.parametrize(
    "name, text, command",
    [
        ("config.json", '{"model_type": ' + DEEP + "}", "model time --model config.json --topology h200-8"),
        ("config.json", '{"a":' * 100000, "model time --model config.json --topology h200-8"),
        ("s.json", DEEP, "simulate --topology full:4 --algorithm s.json --codec fp16 --bytes 1M"),
        ("s.xml", "<a>" * 200000, "simulate --topology full:4 --algorithm s.xml --codec fp16 --bytes 1M"),
        ("s.xml", "<algo>" + "<a>" * 200000 + "</a>" * 200000 + "</algo>", "simulate --topology full:4 --algorithm s.xml --codec fp16 --bytes 1M"),
        ("t.xml", "<system>" + "<a>" * 200000 + "</a>" * 200000 + "</system>", "topology import t.xml"),
        ("t.yaml", "a: " + DEEP, "topology import t.yaml"), ("t.yaml", "- " * 100000, "topology import t.yaml"),
        ("pack/manifest.json", DEEP, "vectors --check pack"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_files_that_nest_deep_are_one_line(tmp_path, name, text, command):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if name.startswith("pack"):
        (path.parent / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "  manifest.json\n")
    refused(command, tmp_path)


#: A command that reads a file of this name, and nothing else that is missing.
OF_FILES = OF_TOML + [
    "model time --model {}.json --topology h200-8", "simulate --topology full:4 --algorithm {}.json --codec fp16 --bytes 1M",
    "simulate --topology full:4 --algorithm {}.xml --codec fp16 --bytes 1M", "topology import {}.xml", "topology import {}.txt", "topology import {}.yaml",
    "encode --codec fp16 --dtype fp16 {}.npy out.bin", "decode --codec fp16 --dtype fp16 {} out.npy", "decode --codec fp16 --dtype fp16 --elements 4 {} out.npy",
    "reduce --algorithm ring --codec fp16 --dtype fp16 --input {}.npy", "reduce --algorithm ring --codec fp16 --dtype fp16 --input {}.safetensors",
    "validate --against measured --file {}.csv", "select --topology full:4 --no-budget --synthetic gaussian --bytes 64K --times {}.csv",
    "model perplexity --model {}.gguf --text {}.gguf --ranks 2 --codec qr-q4 --algorithm ring", "sweep --setup {} --topology full:4 --codec fp16 --bytes 1M",
    "report {}.csv --out page",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize("command", OF_FILES)
def test_no_reader_waits_for_a_pipe(tmp_path, command, kind):
    words = command.split()
    name = next(word for word in words if "{}" in word).format("it")
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    elif kind == "folder":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    result = run(command.format(*["it"] * command.count("{}")), tmp_path)
    assert result.code == 2 and result.stderr.count("\n") == 1 and name in result.stderr, result


def test_no_record_or_cache_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ARLAB_SENTINELS_NEED_RECORD", "1")
    monkeypatch.setenv("ARLAB_CACHE", str(tmp_path))
    os.mkfifo(tmp_path / "sentinels.tsv")
    refused(
        "conform --platform host --ranks 2 --elements 8 --algorithm one_shot --protocol sentinels", tmp_path, "sentinels.tsv", "not a regular file",
    )  # fmt: skip


def test_dots_in_texts_and_numbers_are_no_keys(tmp_path):
    dots = "." * 100
    comment = f"# {dots}\nown = [{'1.5, ' * 100}]\ntext = '{dots}'\n"
    (tmp_path / "own.toml").write_text(comment + MACHINE)
    refused("topology show own.toml", tmp_path, "own.toml", "own")  # parsed, and the unknown keys named
