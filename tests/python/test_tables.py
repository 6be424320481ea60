"""Tables of calls: which algorithm and codec by collective, dtype and size, on emulated GPUs."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
TABLE = """
[[rule]]
collective = "all_reduce"
dtype = "bf16"
to_bytes = "4K"
algorithm = "one_shot"

[[rule]]
collective = "all_reduce"
dtype = "bf16"
from_bytes = 4096
to_bytes = 8192
algorithm = "hierarchical"
group_size = 2
inner_codec = "bf16"
codec = "qr-q4"

[[rule]]
collective = "all_reduce"
dtype = "fp16"
from_bytes = 4096
algorithm = "two_shot"
codec = "int4-g32"

[[rule]]
collective = "all_gather"
algorithm = "all_gather"
codec = "qr-q8"

[[rule]]
collective = "broadcast"
algorithm = "library"
"""
RULE = '[[rule]]\ncollective = "all_reduce"\nalgorithm = "two_shot"\n'


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch):
    for name in ("ARLAB_TABLE", "ARLAB_ALL_REDUCE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "table.toml").write_text(TABLE)
    return tmp_path / "table.toml"


def tensors(elements, dtype, ranks=4):
    return [np.random.default_rng(rank).normal(size=elements).astype(dtype) for rank in range(ranks)]


def results(group, collective, inputs, **call):
    copies = [each.copy() for each in inputs]
    getattr(group, collective)(copies, **call)
    return [each.tobytes() for each in copies]


@pytest.mark.parametrize(
    "collective, dtype, elements, named",
    [
        ("all_reduce", ml_dtypes.bfloat16, 2047, {"algorithm": "one_shot"}),
        ("all_reduce", ml_dtypes.bfloat16, 2048, {"algorithm": "hierarchical", "codec": "qr-q4", "group_size": 2, "inner_codec": "bf16"}),
        ("all_reduce", ml_dtypes.bfloat16, 4096, {"algorithm": "two_shot"}),
        ("all_reduce", np.float16, 2047, {"algorithm": "two_shot"}),
        ("all_reduce", np.float16, 2048, {"algorithm": "two_shot", "codec": "int4-g32"}),
        ("all_reduce", np.float32, 2048, {"algorithm": "two_shot"}),
        ("all_gather", np.float16, 2048, {"codec": "qr-q8"}),
        ("all_gather", np.float32, 2048, {"codec": "fp32"}),  # which qr-q8 does not take
        ("all_to_all", np.float32, 2048, {"codec": "fp32"}),
        ("broadcast", np.float16, 300, {"codec": "fp16"}),
    ],
)
def test_a_call_goes_as_the_table_says(collective, dtype, elements, named, file):
    inputs = tensors(elements, dtype)
    devices = [0, 1, 2, 3]
    got = results(arlab.Group(devices, table=file), collective, inputs)
    assert got == results(arlab.Group(devices), collective, inputs, **named)
    if "codec" in named and named["codec"] not in ("fp16", "fp32"):
        assert got != results(arlab.Group(devices), collective, inputs, codec="fp32" if dtype == np.float32 else None)


def test_what_a_call_names_goes_before_the_table(file):
    inputs, devices = tensors(2048, np.float16), [0, 1, 2, 3]
    with_table, without = arlab.Group(devices, table=file), arlab.Group(devices)
    for named in ({"codec": "qr-q8"}, {"algorithm": "two_shot"}, {"algorithm": "one_shot", "codec": "qr-q6"}):
        assert results(with_table, "all_reduce", inputs, **named) == results(without, "all_reduce", inputs, **named)


def test_words_and_variables(file, monkeypatch):
    inputs, devices = tensors(2048, np.float16), [0, 1, 2, 3]
    expected = results(arlab.Group(devices), "all_reduce", inputs, algorithm="one_shot", codec="qr-q6")
    words = "0-4K:two_shot/qr-q4,4K-1M:one_shot/qr-q6,1M-:two_shot"
    assert results(arlab.Group(devices, table=words), "all_reduce", inputs) == expected
    monkeypatch.setenv("ARLAB_ALL_REDUCE", words)
    assert results(arlab.Group(devices), "all_reduce", inputs) == expected
    monkeypatch.setenv("ARLAB_TABLE", str(file))
    with pytest.raises(ValueError, match="overlaps"):
        arlab.Group(devices)
    monkeypatch.delenv("ARLAB_ALL_REDUCE")
    assert results(arlab.Group(devices), "all_reduce", inputs) == results(arlab.Group(devices, table=file), "all_reduce", inputs)


def test_why_is_one_call_away(file):
    group = arlab.Group([0, 1, 2, 3], table=file)
    rule, kernel = group.explain(np.zeros(2048, np.float16)).split("\n")
    assert rule == f"all_reduce of fp16, 4096 bytes: {file}, line 18 (all_reduce of fp16, from 4096 bytes on): two_shot, codec int4-g32"
    assert "two_shot" in kernel
    assert "no rule of the table takes it" in group.explain(np.zeros(2047, np.float16))
    assert group.explain(np.zeros(2048, np.float16), codec="qr-q4").startswith("named by the call\n")
    assert "there is no table" in arlab.Group([0, 1]).explain(np.zeros(8, np.float32))
    assert "all_gather of all dtypes" in group.explain(np.zeros(8, np.float16), collective="all_gather")


@pytest.mark.parametrize(
    "text, said",
    [
        (RULE + "to_bytes = 10\n" + RULE + "from_bytes = 9", "line 5: it overlaps t.toml, line 1: both take all_reduce of fp16, 9 bytes"),
        (RULE + "to_bytes = 10\n" + RULE + "from_bytes = 11", "between it and t.toml, line 1 no rule takes all_reduce of fp16 from 10 to 11 bytes"),
        (RULE + 'dtype = "fp16"\n' + RULE, "both take all_reduce of fp16, 0 bytes"),
        (RULE + "from_bytes = 4\nto_bytes = 4", "4 to 4 bytes: allowed is a range"),
        (RULE + "from_bytes = -1", "key 'from_bytes': allowed is a number of bytes"),
        (RULE + 'codec = "qr-q5"', "unknown codec 'qr-q5'"),
        (RULE + 'codec = "logfmt4"\ndtype = "fp8"', "fp8"),
        (RULE.replace("two_shot", "too_shot"), "too_shot"),
        (RULE.replace("two_shot", "all_gather"), "'all_gather' is an all-gather, not an all-reduce"),
        (RULE.replace("all_reduce", "all_deduce"), "key 'collective' is 'all_deduce'"),
        (RULE + "group_size = 2", "unknown key 'group_size'"),
        (RULE.replace("two_shot", "hierarchical") + "group_size = 0", "group_size"),
        (RULE.replace("two_shot", "library") + 'codec = "qr-q4"', "algorithm 'library' has a codec"),
        ('[[rule]]\nalgorithm = "two_shot"', "line 1: missing key 'collective'"),
        ("rule = 3", "allowed are only [[rule]]"),
        ("[[rules]]\n", "'rules': allowed are only [[rule]]"),
        ("[[rule]\n", "line 1"),
    ],
)
def test_a_table_that_is_wrong_is_refused_in_one_line(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(text)
    with pytest.raises(ValueError) as error:
        arlab.Group([0, 1], table="t.toml")
    assert said in str(error.value) and "t.toml" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("words", ["", "two_shot", "1M:two_shot", "1M-2M", "1M-2M:", "1M-2M:two_shot/", "x-:two_shot", "1M-x:two_shot", "0-:x/y"])
def test_words_that_are_wrong(words):
    with pytest.raises(ValueError, match="table, "):
        arlab.Group([0, 1], table=words)


def test_a_file_that_is_not_there(monkeypatch):
    monkeypatch.setenv("ARLAB_TABLE", "nowhere.toml")
    with pytest.raises(ValueError, match="ARLAB_TABLE: the table 'nowhere.toml' cannot be read: No such file"):
        arlab.Group([0, 1])


def test_a_rule_for_all_dtypes_takes_those_that_both_its_codecs_take():
    rule = RULE.replace("two_shot", "hierarchical") + 'group_size = 2\ncodec = "{}"\ninner_codec = "{}"\n'
    for codecs in (("int8-g32", "qr-q4"), ("qr-q4", "int8-g32")):  # qr-q4 does not take fp32
        table = arlab._arlab.CallTable.parse(rule.format(*codecs), "t.toml")
        chosen = {dtype: table.choice("all_reduce", dtype, 1024) for dtype in ("fp16", "bf16", "fp32")}
        assert chosen["fp16"] == chosen["bf16"] and chosen["fp16"][:2] == ("hierarchical", codecs[0]), chosen
        assert chosen["fp32"] != chosen["fp16"] and (chosen["fp32"] is None or chosen["fp32"][0] == "two_shot"), chosen


def test_select_keeps_what_notes_say(tmp_path):
    """Its own rules replace those of their dtype; all others stay as they were, whatever is in their texts."""
    note = "back\\slash \\n \\\\ \"quoted\" tab\t line\nnext \u007f \u00e9 #[x]"
    quoted = note.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n").replace("\x7f", "\\u007F")
    (tmp_path / "t.toml").write_text(RULE + f'dtype = "bf16"\nnote = "{quoted}"\n')
    command = "select --topology h200-2 --no-budget --dtype fp16 --table t.toml"
    for _ in range(2):
        subprocess.run([PROGRAM, *command.split()], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
        rules = tomllib.loads((tmp_path / "t.toml").read_text())["rule"]
        assert note in [rule.get("note") for rule in rules] and {rule["dtype"] for rule in rules} == {"fp16", "bf16"}
        arlab.Group([0, 1], table=tmp_path / "t.toml")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to nothing"])
@pytest.mark.parametrize("by", ["argument", "variable"])
def test_what_is_no_file_is_one_line(tmp_path, monkeypatch, kind, by):
    place = tmp_path / "t.toml"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    if by == "variable":
        monkeypatch.setenv("ARLAB_TABLE", str(place))
    reason = "No such file" if kind == "link to nothing" else "not a regular file"
    with pytest.raises(ValueError, match=f"^({'ARLAB_TABLE: ' if by == 'variable' else ''}the table '{place}' cannot be read: {reason})") as error:
        arlab.Group([0, 1], table=str(place) if by == "argument" else None)
    assert "\n" not in str(error.value)


def test_a_table_that_would_end_the_program_is_one_line(tmp_path):
    (tmp_path / "t.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="allowed is a table of up to 1 MiB"):
        arlab.Group([0, 1], table=tmp_path / "t.toml")


def test_select_writes_one(tmp_path):
    """For a dtype and a collective after the other, from simulated and from measured times."""
    times = "# machine: h200-2\n# ranks: 2\n# dtype: bf16\n# platform: cuda\nlibrary,algorithm,codec,bytes,time_us\n"
    for size, plain, coded in ((4096, 2, 5), (1 << 20, 20, 10)):
        times += f"arlab,two_shot,bf16,{size},{plain}\narlab,two_shot,int8-g128,{size},{coded}\n"
    (tmp_path / "times.csv").write_text(times)
    for more in ("--dtype fp16", "--dtype bf16 --times times.csv", "--dtype fp16 --collective all_gather", "--dtype fp16"):
        command = f"select --topology h200-2 --no-budget --table table.toml {more}"
        subprocess.run([PROGRAM, *command.split()], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    text = (tmp_path / "table.toml").read_text()
    assert "latencies measured: times.csv; arlab select --topology h200-2" in text and "all_gather" in text
    group = arlab.Group([0, 1], table=tmp_path / "table.toml")
    small, large = (group.explain(np.zeros(elements, ml_dtypes.bfloat16)) for elements in (2048, 1 << 19))
    assert "two_shot, codec bf16" in small and "two_shot, codec int8-g128" in large
    assert "from 0 " in group.explain(np.zeros(8, np.float16)) or "0 to " in group.explain(np.zeros(8, np.float16))
    assert "no rule" not in group.explain(np.zeros(8, np.float16), collective="all_gather")
    refused = subprocess.run(
        [PROGRAM, *"select --topology h200-2 --dtype fp16 --times times.csv".split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 2 and "no times of fp16 on 2 ranks" in refused.stderr

def test_the_lines_of_the_page(capsys):
    page = (Path(__file__).parents[2] / "experiments/site/pages/choose.md").read_text()
    exec(re.search(r"<!-- test: table -->\n```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert "two_shot, codec qr-q4\n" in capsys.readouterr().out
    rule = re.search(r"A rule of the file:\n\n```toml\n(.*?)```", page, re.DOTALL)[1]
    assert arlab._arlab.CallTable.parse(rule, "page").choice("all_reduce", "bf16", 1 << 20) == ("two_shot", "qr-q4", {})
