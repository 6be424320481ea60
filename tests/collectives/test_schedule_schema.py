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
    program = Path(os.environ["ARLAB_BIN"]).resolve() / "schedule_stream"
    read = text.encode(errors="surrogateescape")
    run = subprocess.run([program, mode], input=read, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().splitlines()


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


U32, U64 = "not an integer from 0 to 4294967295", "not an integer from 0 to 18446744073709551615"


def place(path):
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]


# The reader's words on the file, behind "schedule: ".
MALFORMED = [(without(path), f"{place(path)} is missing") for path in keys(TREE)] + [
    ([], "the file is an array, not an object"),
    (None, "the file is null, not an object"),
    ("two_shot", "the file is 'two_shot', not an object"),
    (changed(("wordl_size",), 4), "unknown key 'wordl_size': did you mean 'world_size'?"),
    (changed(("size",), 4), "unknown key 'size': allowed are schema, collective, algorithm, world_size, "
     "elements, alignment, agreement, row, chunks, ops, outputs, group_size, volume, check"),
    *((changed(path, value), f"{place(path)} is {words}") for path, value, words in [
        (("schema",), "arlab.schedule/2", "'arlab.schedule/2'; allowed: arlab.schedule/1"),
        (("collective",), "all_together", "'all_together'; allowed: all_reduce, all_to_all, dispatch_combine, "
         "reduce_scatter, all_gather, broadcast"),
        (("algorithm",), 7, "7, not a text"),
        (("world_size",), -1, f"-1, {U32}"),
        (("world_size",), "4", f"'4', {U32}"),
        (("elements",), 0.5, f"0.5, {U64}"),
        (("elements",), -1, f"-1, {U64}"),
        (("chunks",), {}, "an object, not an array"),
        (("chunks",), 3, "3, not an array"),
        (("chunks", 0), [0, 5000], "an array, not an object"),
        (("chunks", 0, "begin"), -1, f"-1, {U64}"),
        (("chunks", 0, "end"), 0.5, f"0.5, {U64}"),
        (("chunks", 0, "end"), 1 << 64, f"1.8446744073709552e+19, {U64}"),
        (("ops",), {}, "an object, not an array"),
        (("ops", 0, "op"), "broadcast", "'broadcast'; allowed: encode, send, reduce, tail"),
        (("ops", 0, "from"), "own", "'own'; allowed: \"input\" or the index of an earlier op"),
        (("ops", 0, "from"), 4294967295, "4294967295, which no op can have"),
        (("ops", 0, "codec"), "innermost", "'innermost'; allowed: outer, inner, output"),
        (("ops", 0, "codec"), 1, "1; allowed: outer, inner, output"),
        (("row",), 0, "0; allowed are 1 and more, or no row"),
        (("outputs", 0, "tensor"), "norm", "'norm'; allowed: sum, residual, normalized, quantized"),
        (("ops", 1, "rank"), 4294967296, f"4294967296, {U32}"),
        (("ops", 1, "to"), -4, f"-4, {U32}"),
        (("ops", 4, "start"), "one", "'one'; allowed: zero, first"),
        (("ops", 4, "start"), 0, "0; allowed: zero, first"),
        (("ops", 4, "from"), 3, "3, not an array"),
        (("ops", 4, "from", 0), None, f"null, {U32}"),
        (("ops", 5), 5, "5, not an object"),
        (("ops", 5, "rank"), True, f"true, {U32}"),
        (("ops", 6, "from"), [5], f"an array, {U32}"),
        (("outputs",), None, "null, not an array"),
        (("outputs", 0), [0, 0, 9, 0], "an array, not an object"),
        (("outputs", 3, "begin"), -1, f"-1, {U64}"),
    ]),
    *((changed((*path, key), value), f"{place(path)}: unknown key '{key}': allowed are {allowed}")
      for path, key, value, allowed in [
        (("chunks", 0), "size", 4, "begin, end"),
        (("ops", 0), "to", 1, "op, step, rank, chunk, codec, from"),
        (("ops", 1), "codec", "inner", "op, step, rank, to, chunk, from"),
        (("ops", 1), "start", "zero", "op, step, rank, to, chunk, from"),
        (("ops", 4), "to", 1, "op, step, rank, chunk, start, from"),
        (("outputs", 0), "end", 5000, "rank, chunk, from, begin, tensor"),
    ]),
]  # fmt: skip


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
    schedules = [schedule for schedule, _ in MALFORMED]
    assert reader_says(schedules) == [f"schedule: {words}" for _, words in MALFORMED]
    assert not [schedule for schedule in schedules if VALIDATOR.is_valid(schedule)]


@pytest.mark.parametrize(
    "path, value, violation",
    [
        (("world_size",), 0, "world size 0 is out of range: allowed is 1 to 65536"),
        (("world_size",), 65537, "world size 65537 is out of range: allowed is 1 to 65536"),
        (("elements",), 0, "0 elements per rank is out of range: allowed is 1 to 1099511627776"),
        (("elements",), 2**40 + 1, f"{2**40 + 1} elements per rank is out of range: allowed is 1 to {2**40}"),
        (("alignment",), 0, "the alignment is 0"),
        (("chunks", 0, "end"), 0, "chunk 0: elements [0, 0) is empty or reaches beyond the 5000 elements"),
        (("ops", 1, "from"), "input", "op 1 (send on rank 1, chunk 0): sends a raw value; only encoded values travel"),
        (("ops", 4, "from"), [], "op 4 (reduce on rank 0, chunk 0): adds nothing"),
    ],
)
def test_what_the_schema_refuses_beyond_types_the_checker_refuses(path, value, violation):
    assert not VALIDATOR.is_valid(changed(path, value))
    assert reader_says([changed(path, value)]) == [f"violation: {violation}"]


def test_what_names_no_value_the_checker_refuses():
    for path, value, violation in [
        (("ops", 6, "from"), 99, "op 6 (encode on rank 2, chunk 0): uses value 99, which does not exist yet"),
        (("outputs", 1, "from"), 99, "output 1 of rank 1: there is no value 99"),
        (("ops",), [], "output 0 of rank 0: there is no value 9"),
    ]:
        assert reader_says([changed(path, value)]) == [f"violation: {violation}"]


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
    deeper = "schedule: it nests deeper than 4 levels"
    assert reader_says_of_texts([deep, "[" * 1_000_000, '{"ops":' * 100_000, *texts[:2], *texts[4:6]]) == [deeper] * 7
    texts += [" ", "null", "7", "{}", "{", "\0", "\ufeff", "NaN", '{"elements": 1e400}', '{"\udcff": 1}']
    for wrong, answer in zip(texts, reader_says_of_texts(texts), strict=True):
        assert answer.startswith("schedule: "), (answer, wrong[:100])


def test_what_is_not_json_is_refused_at_its_byte():
    text = json.dumps(TREE)
    twice = '{"ops": [{"rank": 0, "step": 1, "rank": 0}]}'
    assert reader_says_of_texts(["", '{"schema": arlab}', "{'schema': 1}", text + "{}", twice]) == [
        "schedule: not JSON, at byte 1",
        "schedule: not JSON, at byte 12",
        "schedule: not JSON, at byte 2",
        f"schedule: not JSON, at byte {len(text) + 1}",
        "schedule: the key 'rank' stands twice in one object",
    ]
    for answer in reader_says_of_texts(text[:length] for length in range(0, len(text), 7)):
        assert answer.startswith("schedule: not JSON, at byte ")
