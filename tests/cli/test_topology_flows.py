"""`arlab topology flows`: what flows over PCIe get together, beside published rates of two machines, and every collapse."""

import csv
from pathlib import Path

import pytest
from program import ok_json, refused

TABLE = Path(__file__).parents[2] / "experiments" / "published" / "pcie_flows_gb_per_s.csv"
MACHINES = {"flat2": "rtx-pro-6000-8", "chips2": "rtx-pro-6000-chips-8"}


def rows() -> list[dict[str, str]]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def asked(topology: str, flows: str, folder: Path, by: str = "stores") -> dict:
    return ok_json(f"topology flows {topology} --flows '{flows}' --by {by}", folder)


def test_published_flows(tmp_path):
    errors = {}
    for row in rows():
        answer = asked(MACHINES[row["machine"]], row["flows"], tmp_path, "copies")
        assert bool(answer["collapses"]) == (row["collapse"] == "1"), row
        if row["collapse"] == "0":
            errors[row["machine"], row["flows"]] = 100 * (answer["sum_gb_per_s"] / float(row["gb_per_s"]) - 1)
    mean = sum(abs(error) for error in errors.values()) / len(errors)
    assert len(errors) == 27
    assert mean < 3.3, errors
    # Nobody says why a flow inside a chip should speed up another one that leaves it.
    assert -16 < errors.pop(("chips2", "0>4 1>2")) < -10
    assert all(abs(error) < 7.5 for error in errors.values()), errors


def test_a_kernel_stores_to_all_at_once(tmp_path):
    def total(flows):
        return asked("rtx-pro-6000-8", flows, tmp_path)["sum_gb_per_s"]

    assert total("0>1") == pytest.approx(56.3, rel=1e-3)
    assert total("0>4,4>0") == pytest.approx(109.3, rel=1e-3)
    three = asked("rtx-pro-6000-8", "0>1,0>2,0>3", tmp_path)
    assert [row["gb_per_s"] for row in three["flows"]] == pytest.approx([56.3 / 3] * 3, rel=1e-3)
    # One kernel that stores to two root ports is enough; a copy engine does one after the other.
    assert asked("rtx-pro-6000-chips-8", "0>4,0>6", tmp_path)["collapses"]
    assert not asked("rtx-pro-6000-chips-8", "0>4,0>6", tmp_path, "copies")["collapses"]


def test_a_collective_that_collapses_says_so(tmp_path):
    def told(topology):
        return ok_json(f"simulate --topology {topology} --algorithm one_shot --codec fp16 --bytes 1M", tmp_path)

    assert "uplink" in told("rtx-pro-6000-chips-8")["collapses"][0]
    assert told("rtx-pro-6000-8")["collapses"] == []
    assert "collapses" not in told("h200-8")


@pytest.mark.parametrize(
    ("flows", "said"),
    [("0>8", "0 to 7"), ("0-1", "allowed are 0>1"), ("0>0", "two different ranks"), ("0>1,0>1", "named twice")],
)
def test_bad_flows(flows, said, tmp_path):
    refused(f"topology flows rtx-pro-6000-8 --flows '{flows}'", tmp_path, said)
