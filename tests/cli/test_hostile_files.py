"""Machine files that lack a key, or have one of thousands of parts. tests/fuzz has damaged files of all kinds."""

import pytest
from program import REPOSITORY, ok, refused, run

MACHINE = (REPOSITORY / "sim/topology/machines/h20-8.toml").read_text()
SIMULATE = "simulate --algorithm ring --codec fp16 --bytes 1M --topology"


def test_the_machine_itself(tmp_path):
    (tmp_path / "own.toml").write_text(MACHINE)
    ok(f"{SIMULATE} own.toml", tmp_path)


def test_a_missing_key_is_named(tmp_path):
    lines = [line for line in MACHINE.splitlines() if " = " in line and not line.startswith("#")]
    assert len(lines) >= 10
    for line in lines:
        whole = MACHINE[MACHINE.index(line) :].split("\n]\n")[0] + "\n]" if line.endswith("[") else line
        (tmp_path / "own.toml").write_text(MACHINE.replace(whole + "\n", "", 1))
        key = line.split(" = ")[0]
        # A switch can do neither where the file does not say so.
        says = {"multicast": "needs a switch that can do it", "reduction": "unknown key"}.get(key, "missing key")
        refused(f"{SIMULATE} own.toml", tmp_path, "own.toml", says, key)


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 50000) + " = 1", "[" + " . ".join(["'a'"] * 50000) + "]",
        'b = [{a="""x"""", ' + "a." * 50000 + "a = 1}]",
    ],
)  # fmt: skip
def test_keys_of_thousands_of_parts(tmp_path, text):
    (tmp_path / "k.toml").write_text(text)
    (tmp_path / "own.toml").write_text(MACHINE)
    for command in ("topology show k.toml", "study k.toml --out out", "validate --plan k.toml", SIMULATE + " k.toml"):
        result = run(command, tmp_path)
        assert result.code == 2 and result.stderr.count("\n") == 1, (command, result)
    refused("topology show k.toml", tmp_path, "k.toml: line", "a key of too many parts: allowed are 17")


def test_dots_in_texts_and_numbers_are_no_keys(tmp_path):
    dots = "." * 100
    comment = f"# {dots}\nown = [{'1.5, ' * 100}]\ntext = '{dots}'\n"
    (tmp_path / "own.toml").write_text(comment + MACHINE)
    refused("topology show own.toml", tmp_path, "own.toml", "own")  # parsed, and the unknown keys named
