"""The codec of CONTRIBUTING.md in Python gives the bytes of the one in C++ that `arlab new codec --header` writes."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import arlab

EXAMPLES = Path(os.environ["ARLAB_EXAMPLES"])
PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"


@pytest.fixture(scope="module", autouse=True)
def codec_in_cpp(tmp_path_factory):
    header = tmp_path_factory.mktemp("new") / "absmax8.h"
    subprocess.run([PROGRAM, "new", "codec", "absmax8-g64", "--header", header], check=True, capture_output=True)
    assert arlab.codec_from_header(header) == "absmax8-g64"


def page_codec(change=lambda text: text):
    text = (EXAMPLES / "example_codec.py").read_text()
    names = {"np": np, "arlab": arlab}
    exec(change(text), names)
    return names["AbsMax8"]()


def test_codec_in_python_gives_the_bytes_of_the_one_in_cpp():
    own = page_codec()
    report = arlab.conformance.check_codec(own.encode, own.decode, "absmax8-g64", block=4096)
    assert report.passed, str(report)
    assert sum(case["wire_bytes"] for case in report.cases) > 900_000
    assert {case["dtype"] for case in report.cases} == {"fp16", "bf16", "fp32"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.rint(", "np.floor("),
        ("-127, 127", "-126, 127"),
        ("np.float32(127)", "np.float32(128)"),
        ("np.where(finite, factor, np.float32(np.nan))", "factor"),
        ("np.abs(", "("),
    ],
)
def test_other_arithmetic_is_found(right, wrong):
    def change(text):
        assert right in text
        return text.replace(right, wrong)

    own = page_codec(change)
    report = arlab.conformance.check_codec(own.encode, own.decode, "absmax8-g64", block=4096)
    assert not report.passed


def test_page_codec_has_the_properties_of_every_codec():
    page_codec()
    assert arlab.check_codec("absmax8-python").violation is None
