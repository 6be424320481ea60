"""schedule.schema.json accepts what our programs write, and refuses what our reader refuses."""

import copy
import json
import os
import random
import subprocess
from pathlib import Path

import jsonschema
import pytest

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE / "../../reference/collectives/schedule.schema.json").read_text())
TREE = json.loads((HERE / "tree.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def schedule_stream(mode, text=""):
    program = Path(os.environ["ARLAB_BIN"]) / "schedule_stream"
    run = subprocess.run([program, mode], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.splitlines()


def reader_says(schedules):
    return reader_says_of_texts(json.dumps(schedule) for schedule in schedules)


def reader_says_of_texts(texts):
    texts = list(texts)
    answers = schedule_stream("read", "".join(text + "\n" for text in texts))
    assert len(answers) == len(texts) and all(len(answer) < 1000 for answer in answers)
    return answers


def at(schedule, path):
    for step in path:
        schedule = schedule[step]
    return schedule


def changed(path, value):
    schedule = copy.deepcopy(TREE)
    at(schedule, path[:-1])[path[-1]] = value
    return schedule


def without(path):
    schedule = copy.deepcopy(TREE)
    del at(schedule, path[:-1])[path[-1]]
    return schedule


def keys(value, path=()):
    """The paths of all members of objects."""
    if isinstance(value, dict):
        for key in value:
            yield (*path, key)
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from keys(inner, (*path, step))


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_schedule_written_is_valid():
    schedules = [json.loads(line) for line in schedule_stream("write")]
    assert len(schedules) > 50
    assert {schedule["algorithm"] for schedule in schedules} >= {"one_shot", "two_shot", "ring"}
    assert {schedule["collective"] for schedule in schedules} == {
        "all_reduce", "all_to_all", "dispatch_combine", "reduce_scatter", "all_gather", "broadcast"
    }  # fmt: skip
    for schedule in schedules:
        VALIDATOR.validate(schedule)
    assert set(reader_says(schedules)) == {"ok"}


def test_the_handwritten_tree_is_valid_and_correct():
    VALIDATOR.validate(TREE)
    assert reader_says([TREE]) == ["ok"]


MALFORMED = [without(path) for path in keys(TREE)] + [
    changed(("schema",), "arlab.schedule/2"),
    changed(("collective",), "all_together"),
    changed(("algorithm",), 7),
    changed(("world_size",), -1),
    changed(("world_size",), "4"),
    changed(("elements",), 0.5),
    changed(("chunks",), {}),
    changed(("chunks", 0, "begin"), -1),
    changed(("ops", 0, "op"), "broadcast"),
    changed(("ops", 0, "from"), "own"),
    changed(("ops", 0, "codec"), "innermost"),
    changed(("ops", 0, "codec"), 1),
    changed(("ops", 1, "codec"), "inner"),
    changed(("ops", 0, "from"), 4294967295),
    changed(("ops", 1, "rank"), 4294967296),
    changed(("ops", 4, "start"), "one"),
    changed(("ops", 4, "from"), 3),
    changed(("ops", 4, "from", 0), None),
    changed(("ops", 6, "from"), [5]),
    changed(("outputs", 0, "begin"), -1),
    changed(("outputs", 0), [0, 0, 9, 0]),
    changed(("wordl_size",), 4),
    changed(("ops", 0, "to"), 1),
    changed(("outputs", 0, "end"), 5000),
    [],
    None,
]


def in_fractions(schedule):
    schedule = copy.deepcopy(schedule)
    elements = schedule.pop("elements")
    del schedule["alignment"]
    for chunk in schedule["chunks"]:
        chunk.update({key: f"{chunk[key]}/{elements}" for key in ("begin", "end")})
    for output in schedule["outputs"]:
        output["begin"] = f"{output['begin']}/{elements}"
    return schedule


def test_a_schedule_of_any_size_has_fractions_and_only_these():
    VALIDATOR.validate(in_fractions(TREE))
    for path in [("chunks", 0, "end"), ("outputs", 0, "begin")]:
        mixed = in_fractions(TREE)
        at(mixed, path[:-1])[path[-1]] = 0
        assert not VALIDATOR.is_valid(mixed)
        assert not VALIDATOR.is_valid(changed(path, "1/2"))
        assert reader_says([changed(path, "1/2")])[0].startswith("schedule: ")
    assert reader_says([in_fractions(TREE)]) == ["schedule: elements is missing"]


def test_what_the_reader_refuses_the_schema_refuses():
    for schedule, answer in zip(MALFORMED, reader_says(MALFORMED), strict=True):
        assert answer.startswith("schedule: "), (answer, schedule)
        assert not VALIDATOR.is_valid(schedule), answer


@pytest.mark.parametrize(
    "schedule",
    [
        changed(("world_size",), 0),
        changed(("world_size",), 65537),
        changed(("elements",), 0),
        changed(("elements",), (1 << 40) + 1),
        changed(("alignment",), 0),
        changed(("chunks", 0, "end"), 0),
        changed(("ops", 1, "from"), "input"),
        changed(("ops", 4, "from"), []),
    ],
)
def test_what_the_schema_refuses_beyond_types_the_checker_refuses(schedule):
    assert not VALIDATOR.is_valid(schedule)
    assert reader_says([schedule])[0].startswith("violation: ")


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
        parent = at(mutated, path)
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


def test_what_the_reader_takes_follows_the_schema():
    """Thousands of schedules with some values changed are read, or refused in a line; and what is proved is valid."""
    generator = random.Random(20)
    written = [json.loads(line) for line in schedule_stream("write")]
    originals = sorted(written, key=lambda schedule: len(schedule["ops"]))[:20]
    mutated = [mutate(generator.choice(originals), generator) for _ in range(3000)]
    answers = reader_says(mutated)
    for schedule, answer in zip(mutated, answers, strict=True):
        assert answer == "ok" or answer.startswith(("violation: ", "schedule: ")), (answer, schedule)
        if answer == "ok":
            VALIDATOR.validate(schedule)
    for kind in ("ok", "violation: ", "schedule: "):
        assert sum(answer.startswith(kind) for answer in answers) >= 60, "mutations of every kind"


def test_excess_and_other_texts_are_refused_in_a_short_line():
    text, deep = json.dumps(TREE), "[" * 200_000 + "]" * 200_000
    texts = [
        text.replace('"world_size": 4', f'"world_size": {wrong}')
        for wrong in (deep, '{"x":' * 100_000 + "1" + "}" * 100_000, '"' + "x" * 3_000_000 + '"', "9" * 1_000_000)
    ]
    texts += [text.replace(list_, f"{list_}{deep}, ", 1) for list_ in ('"chunks": [', '"ops": [')]
    texts.append("{" + ", ".join(f'"k{i}": 0' for i in range(60_000)) + ", " + text[1:])
    assert all(wrong != text for wrong in texts)
    texts += ["", " ", "null", "7", '"arlab.schedule/1"', "{}", "{", deep, "[" * 100_000, '{"schema": }', "{'schema': 1}", "\0", "\ufeff", "NaN"]
    for wrong, answer in zip(texts, reader_says_of_texts(texts), strict=True):
        assert answer.startswith("schedule: "), (answer, wrong[:100])
