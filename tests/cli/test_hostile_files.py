"""Files that are wrong in hundreds of ways: a clear refusal, never a crash or a hang."""

import copy
import json
import random
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy as np
import pytest
from program import REPOSITORY, error_line, ok, parse_json, refused, run

SCHEMA = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
WRITTEN_BY_THE_PROGRAM = ["group_size", "volume", "check"]  # and ignored when read
MACHINE = (REPOSITORY / "sim/topology/machines/l40-8.toml").read_text()
SIMULATE = "simulate --algorithm ring --codec fp16 --bytes 1M --topology"
RANKS, ELEMENTS = 3, 24


@pytest.fixture
def schedules(tmp_path):
    """Two small ones."""
    command = f"schedule --ranks {RANKS} --elements {ELEMENTS} --algorithm"
    return [json.loads(ok(f"{command} {name}", tmp_path)) for name in ("two_shot", "ring")]


def in_parallel(function, items):
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(function, items))


# ---------------------------------------------------------------- schedules, mutated

VALUES = [
    0, 1, 2, 3, 23, 24, 25, -1, 1 << 16, (1 << 16) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 2,
    (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 0.5, 1e300, -0.0,
    "", "input", "zero", "first", "send", "encode", "reduce", "x" * 100, "\n",
    None, True, False, [], {}, [[]], ["input"], [0, 0],
]  # fmt: skip


def places(value, path=()):
    """Every place in a JSON value, from the top."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def mutate(schedule, generator):
    """A copy with one to three values replaced, deleted, doubled or swapped with another."""
    mutated = copy.deepcopy(schedule)
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        *path, key = generator.choice([path for path in places(mutated) if path])
        parent = mutated
        for step in path:
            parent = parent[step]
        kind = generator.choice(["replace", "replace", "replace", "delete", "double", "swap"])
        if kind == "replace" or isinstance(parent, dict) and kind != "delete":
            parent[key] = copy.deepcopy(generator.choice(VALUES))
        elif kind == "delete":
            del parent[key]
        elif kind == "double":
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            other = generator.randrange(len(parent))
            parent[key], parent[other] = parent[other], parent[key]
    return mutated


def test_mutated_schedules(tmp_path, schedules):
    """What is accepted follows the schema, is proved correct, and can be reduced and simulated."""
    generator = random.Random(20)
    data = f"--synthetic gaussian --ranks {RANKS} --elements {ELEMENTS}"

    def judge(case):
        number, mutated = case
        file = f"{number}.json"
        (tmp_path / file).write_text(json.dumps(mutated))
        result = run(f"schedule --schedule {file}", tmp_path)
        users = [f"reduce --codec fp16 {data}", "simulate --codec fp16 --topology full:8"]
        user = run(f"{users[number % 2]} --schedule {file}", tmp_path)
        if result.code == 0:
            plain = {
                key: value for key, value in mutated.items() if key not in WRITTEN_BY_THE_PROGRAM
            }
            VALIDATOR.validate(plain)
            assert parse_json(result.stdout)["check"]["correct"] is True
            if user.code != 0:  # other ranks or elements than the data has
                assert user.code == 2 and error_line(user.stderr), mutated
        else:
            assert result.code in (1, 2) and result.stdout == "", (result, mutated)
            assert f"{file}: " in error_line(result.stderr)
            assert user.code == 2 and user.stdout == "" and error_line(user.stderr), (user, mutated)
        return result.code

    cases = enumerate(mutate(generator.choice(schedules), generator) for _ in range(500))
    codes = in_parallel(judge, cases)
    assert all(codes.count(code) >= 10 for code in (0, 1, 2)), "mutations of every kind"


def test_damaged_text(tmp_path, schedules):
    """Cut, overwritten or doubled somewhere."""
    generator = random.Random(21)
    text = json.dumps(schedules[0]).encode()

    def judge(number):
        at, end = sorted(generator.randrange(len(text)) for _ in range(2))
        noise = bytes(generator.randrange(256) for _ in range(generator.choice([0, 1, 1, 8])))
        damaged = generator.choice(
            [
                text[:at],
                text[at:],
                text[:at] + noise + text[at + len(noise) :],
                text[:at] + text[end:],
                text[:end] + text[at:],
            ]
        )
        (tmp_path / f"{number}.json").write_bytes(damaged)
        result = run(f"schedule --schedule {number}.json", tmp_path)
        if result.code != 0:
            assert result.code in (1, 2) and result.stdout == "", damaged
            assert error_line(result.stderr)

    in_parallel(judge, range(200))


def nested(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "before, after",
    [
        ('"world_size": 3', f'"world_size": {nested(200_000)}'),
        ('"schema": "arlab.schedule/1"', f'"schema": {nested(200_000)}'),
        ('"algorithm": "two_shot"', f'"algorithm": {nested(200_000)}'),
        ('"chunks": [', f'"chunks": [{nested(200_000)}, '),
        ('"ops": [', f'"ops": [{nested(200_000)}, '),
        ('"world_size": 3', '"world_size": ' + '{"x":' * 100_000 + "1" + "}" * 100_000),
        ('"schema": "arlab', '"x": ' + nested(200_000) + ', "schema": "arlab'),
        ('"world_size": 3', '"world_size": "' + "x" * 3_000_000 + '"'),
        ('"world_size": 3', '"world_size": ' + "9" * 1_000_000),
        ('"schema": "arlab', ", ".join(f'"k{i}": 0' for i in range(60_000)) + ', "schema": "arlab'),
    ],
    ids=[
        "deep world size", "deep schema", "deep algorithm", "deep chunk", "deep op",
        "deep object", "deep extra key", "long string", "long number", "many keys",
    ],
)  # fmt: skip
def test_excessive_schedules(tmp_path, schedules, before, after):
    text = json.dumps(schedules[0])
    assert before in text
    (tmp_path / "own.json").write_text(text.replace(before, after, 1))
    refused("schedule --schedule own.json", tmp_path, "own.json")


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "null", "[]", "7", '"arlab.schedule/1"', "{}", "{", "[" * 100_000, nested(300_000),
        '{"schema": }', "// no\n{}",
        "{'schema': 'arlab.schedule/1'}", "\0", "\xff", "\ufeff", "NaN",
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_schedule_at_all(tmp_path, text):
    (tmp_path / "own.json").write_text(text, encoding="latin-1" if text == "\xff" else "utf-8")
    refused("schedule --schedule own.json", tmp_path, "own.json")


def test_a_key_twice_is_refused(tmp_path, schedules):
    """JSON readers do not agree on which of the two holds."""
    text = json.dumps(schedules[0]).replace('"world_size": 3', '"world_size": 8, "world_size": 3')
    (tmp_path / "own.json").write_text(text)
    refused("schedule --schedule own.json", tmp_path, "own.json", "world_size")


# ---------------------------------------------------------------- topologies


def test_the_machine_itself(tmp_path):
    (tmp_path / "own.toml").write_text(MACHINE)
    ok(f"{SIMULATE} own.toml", tmp_path)


def test_a_missing_key_is_named(tmp_path):
    lines = [line for line in MACHINE.splitlines() if " = " in line and not line.startswith("#")]
    assert len(lines) >= 10
    for line in lines:
        whole = MACHINE[MACHINE.index(line) :].split("\n]\n")[0] + "\n]" if line.endswith("[") else line
        (tmp_path / "own.toml").write_text(MACHINE.replace(whole + "\n", "", 1))
        refused(f"{SIMULATE} own.toml", tmp_path, "own.toml", "missing key", line.split(" = ")[0])


@pytest.mark.parametrize(
    "before, after, fragments",
    [
        ('kind = "numa"', 'kind = "tours"', ["kind", "tours", "full_mesh, ring, switch, numa, torus"]),
        ('kind = "numa"', 'kind = "torus"', ["missing key 'shape'"]),
        ('kind = "numa"', "kind = 7", ["kind", "string"]),
        ('kind = "numa"', 'kind = "switch"', ["unknown key"]),
        ('name = "l40-8"', 'name = ""', ["name", "empty"]),
        ('name = "l40-8"', 'name = "a\\nb"', ["name", "one line"]),
        ('name = "l40-8"', 'name = "l40-8"\nnmae = "x"', ["nmae", "name"]),
        ('name = "l40-8"', 'name = "l40-8"\nname = "again"', ["line"]),
        ('name = "l40-8"', 'name = "l40-8', ["line"]),
        ("ranks = { value = 8", "ranks = { value = 0", ["ranks.value", "1 to 65536"]),
        ("ranks = { value = 8", "ranks = { value = -8", ["ranks.value", "1 to 65536"]),
        ("ranks = { value = 8", "ranks = { value = 8.0", ["ranks.value", "1 to 65536"]),
        ("ranks = { value = 8", "ranks = { value = 1000000", ["ranks.value", "1 to 65536"]),
        ("group_size = { value = 4", "group_size = { value = 3", ["group_size.value", "3", "8"]),
        (
            "latency_us = { value = ",
            "latency_us = { value = -",
            ["link.latency_us.value", "out of range", "1e-06"],
        ),
        ("latency_us = { value = ", "latency_us = { value = inf, x = ", ["link.latency_us"]),
        ("latency_us = { value = ", "latency_us = { value = nan, x = ", ["link.latency_us"]),
        (
            "latency_us = { value = ",
            'latency_us = { value = "1", x = ',
            ["link.latency_us.value", "number"],
        ),
        ("latency_us = { value = ", "latency_us = { velue = ", ["link.latency_us", "value"]),
        ("latency_us = {", "latency_us = 3 # {", ["link.latency_us", "table"]),
        (
            'source = "',
            'source = "un',
            ["source", "datasheet, measured, fitted, published, assumed"],
        ),
        ("[link]", "[links]", ["link"]),
        ("[link]", "[[link]]", ["link", "table"]),
        ("[device]", "[device]\nx = " + "[" * 5000, ["line"]),
        ("[device]", "[device]\nx = " + "{x=" * 5000, ["line"]),
        ("[device]", "\xff", ["line"]),
        ("[device]", "\0", ["line"]),
    ],
    ids=range(27),
)
def test_a_wrong_machine_is_explained(tmp_path, before, after, fragments):
    assert before in MACHINE
    text = MACHINE.replace(before, after, 1)
    (tmp_path / "own.toml").write_text(text, encoding="latin-1" if "\xff" in text else "utf-8")
    refused(f"{SIMULATE} own.toml", tmp_path, "own.toml", *fragments)


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


def test_damaged_machines(tmp_path):
    generator = random.Random(22)
    text = MACHINE.encode()

    def judge(number):
        at = generator.randrange(len(text))
        noise = bytes(generator.randrange(256) for _ in range(generator.choice([0, 1, 1, 4])))
        damaged = generator.choice(
            [text[:at], text[:at] + noise + text[at + len(noise) :], text[:at] + noise + text[at:]]
        )
        (tmp_path / f"{number}.toml").write_bytes(damaged)
        result = run(f"{SIMULATE} {number}.toml --format json", tmp_path)
        if result.code == 0:
            assert parse_json(result.stdout)["latency_us"] > 0
        else:
            assert result.code == 2 and result.stdout == "", damaged
            assert error_line(result.stderr)

    in_parallel(judge, range(200))


# ---------------------------------------------------------------- tensors


def test_damaged_tensors(tmp_path):
    """The readers have their own tests; here that the program keeps its word when they refuse."""
    generator = random.Random(23)
    np.save(tmp_path / "good.npy", np.ones((3, 16), np.float16))
    whole = (tmp_path / "good.npy").read_bytes()

    def judge(number):
        at = generator.randrange(130)
        damaged = generator.choice(
            [whole[:at], whole[:at] + bytes([generator.randrange(256)]) + whole[at + 1 :]]
        )
        (tmp_path / f"{number}.npy").write_bytes(damaged)
        result = run(
            f"reduce --algorithm ring --codec fp16 --input {number}.npy --out {number}.out",
            tmp_path,
        )
        if result.code != 0:
            assert result.code == 2 and result.stdout == "", damaged
            assert f"{number}.npy" in error_line(result.stderr)
            assert not (tmp_path / f"{number}.out").exists()

    in_parallel(judge, range(100))
    assert not list(tmp_path.glob(".*")), "temporary files"
