"""arlab model time and arlab model validate."""

import json
from pathlib import Path

import pytest
from program import ok, ok_csv, ok_json, refused

LLAMA = "model time --model llama-3-8b --topology a100-8 --tokens 512"
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def test_parts_add_up_to_the_time(tmp_path):
    for more, key in (("", "ttft_us"), ("--phase decode --batch 4", "tpot_us"), ("--batch 4 --overlap batches", "ttft_us")):
        found = ok_json(f"{LLAMA} --codec int4-g32 {more}", tmp_path)
        assert found["schema"] == "arlab.model.time/1"
        assert found[key] == pytest.approx(found["compute_us"] + found["communication_us"])
        assert found[{"ttft_us": "tpot_us", "tpot_us": "ttft_us"}[key]] is None
        assert 0 < found["communication_share"] < 1
        assert found["communication_share"] == pytest.approx(found["communication_us"] / found[key])
        rows = found["operations"]
        total = sum(row["total_us"] for row in rows)
        assert total == pytest.approx(found[key] + found["hidden_communication_us"])
        assert all(row["total_us"] == pytest.approx(row["count"] * row["us"]) for row in rows)


def test_csv_is_a_row_of_figures(tmp_path):
    (row,) = ok_csv(LLAMA, tmp_path)
    found = ok_json(LLAMA, tmp_path)
    assert float(row["ttft_us"]) == pytest.approx(found["ttft_us"]) and row["tpot_us"] == "" and "operation" not in row


def test_fewer_bits_fewer_tokens_and_faster_links_are_faster(tmp_path):
    def us(command):
        return ok_json(command, tmp_path)["ttft_us"]

    plain = us(LLAMA)
    assert us(f"{LLAMA} --codec int4-g32") < plain
    assert us(LLAMA.replace("512", "256")) < plain
    assert us(LLAMA.replace("a100", "h800")) < plain
    assert us(f"{LLAMA} --ranks 1") > us(f"{LLAMA} --ranks 2")
    assert ok_json(f"{LLAMA} --ranks 1", tmp_path)["communication_share"] == 0
    found = ok_json(f"{LLAMA} --codec int4-g32", tmp_path)
    assert found["speedup_over_library"] == pytest.approx(found["library_us"] / found["ttft_us"])
    library = ok_json(f"{LLAMA} --algorithm ring --library", tmp_path)
    assert library["ttft_us"] == pytest.approx(found["library_us"]) and library["speedup_over_library"] == pytest.approx(1)


def test_a_config_is_the_model_of_that_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    lines = [f'{key} = {json.dumps(value)}' for key, value in CONFIG.items()]
    (tmp_path / "model.toml").write_text("\n".join(lines))
    named = ok_json(LLAMA, tmp_path)
    for file in ("config.json", "model.toml"):
        of_file = ok_json(LLAMA.replace("llama-3-8b", file), tmp_path)
        assert of_file["model"] == file
        assert {**of_file, "model": ""} == {**named, "model": ""}


def test_a_mixture_of_experts_exchanges_tokens(tmp_path):
    command = "model time --model qwen3-30b-a3b --topology h800-8 --tokens 8192 --codec int4-g32"
    found = ok_json(command, tmp_path)
    sent = [row["operation"] for row in found["operations"] if row["kind"] == "communication"]
    assert sent == ["attention all-reduce", "dispatch", "combine", "all-gather"]
    assert ok_json(f"{command} --combine quantized", tmp_path)["ttft_us"] < found["ttft_us"]


def test_models_of_experts_by_their_config(tmp_path):
    models = Path(__file__).parent.parent / "sim" / "models"
    for name, billions, active, more in (
        ("deepseek-v3", 671.0, 36.6, {"dispatch": [58], "ffn all-reduce": [3], "kv up": [3, 58]}),
        ("gpt-oss-120b", 116.8, 5.1, {"attention": [18, 18]}),
        ("qwen3-235b-a22b", 235.1, 21.6, {"attention": [94]}),
    ):
        command = "model time --topology h200-8 --tokens 2048 --codec qr-q8 --model"
        found = ok_json(f"{command} {models / name}.json", tmp_path)
        assert (round(found["parameters"] / 1e9, 1), round(found["active_parameters"] / 1e9, 1)) == (billions, active)
        for operation, counts in more.items():
            assert [row["count"] for row in found["operations"] if row["operation"] == operation] == counts
        assert ok_json(f"{command} {name}", tmp_path)["ttft_us"] == found["ttft_us"]


def test_the_trace_is_the_layer(tmp_path):
    found = ok_json(f"{LLAMA} --trace layer.json", tmp_path)
    trace = json.loads((tmp_path / "layer.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    of_layer = [row for row in found["operations"] if row["count"] > 1]
    assert [span["name"] for span in spans] == [row["operation"] for row in of_layer]
    for span, row in zip(spans, of_layer, strict=True):
        assert span["dur"] == pytest.approx(row["us"])
    ok(f"{LLAMA} --batch 2 --overlap batches --trace two.json", tmp_path)
    spans = [event for event in json.loads((tmp_path / "two.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert {span["args"]["batch"] for span in spans} == {0, 1}
    for track in (1, 2):  # one at a time
        of_track = sorted((s["ts"], s["ts"] + s["dur"]) for s in spans if s["tid"] == track)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(of_track, of_track[1:], strict=False))


def test_products_have_what_collectives_leave(tmp_path):
    command = "model time --model llama-3-70b --topology h200-8 --batch 8 --codec qr-q8 --overlap batches"
    bound = ok_json(command, tmp_path)
    assert bound["taken_us"] == 0
    found = ok_json(f"{command} --sms 32", tmp_path)
    assert found["taken_us"] > 0 and found["compute_us"] == pytest.approx(bound["compute_us"] + found["taken_us"])
    assert found["ttft_us"] > bound["ttft_us"] and found["library_us"] > bound["library_us"]
    refused(f"{command} --sms 133", tmp_path, "has 1 to 132")
    refused(f"{command.replace('qr-q8', 'bf16')} --sms 8 --library", tmp_path, "--sms is of arlab's kernels")


def test_requests_that_arrive_wait(tmp_path):
    command = "model time --model llama-3-8b --topology a100-8 --codec int4-g32 --tokens 512 --output-tokens 32 --requests 200"
    quiet = ok_json(f"{command} --rate 0.5", tmp_path)
    busy = ok_json(f"{command} --rate 40 --seed 3", tmp_path)
    assert busy["schema"] == "arlab.model.serving/1" and busy == ok_json(f"{command} --rate 40 --seed 3", tmp_path)
    assert 0 < quiet["load"] < busy["load"] < busy["uncompressed_load"] < 1
    for before, after in zip(quiet["latencies"], busy["latencies"], strict=True):
        assert before["mean_us"] < after["mean_us"] < after["uncompressed_mean_us"]
        assert after["p50_us"] <= after["p90_us"] <= after["p99_us"]
    # Alone, a request has the times that a prompt and a token have.
    one = "model time --model llama-3-8b --topology a100-8 --codec int4-g32 --tokens 512"
    ttft, tpot, itl = quiet["latencies"]
    assert ttft["p50_us"] == pytest.approx(ok_json(one, tmp_path)["ttft_us"])
    assert ok_json(f"{one} --phase decode", tmp_path)["tpot_us"] == pytest.approx(itl["p50_us"], rel=0.01)
    assert tpot["mean_us"] == pytest.approx(itl["mean_us"])
    assert [row["latency"] for row in ok_csv(f"{command} --rate 0.5", tmp_path)] == ["ttft", "tpot", "itl"]


def test_more_requests_than_can_be_served_have_no_latency(tmp_path):
    command = "model time --model llama-3-8b --topology a100-8 --codec int4-g32 --tokens 512 --output-tokens 32 --rate"
    capacity = 100 / ok_json(f"{command} 100", tmp_path)["load"]
    found = ok_json(f"{command} {1.5 * capacity}", tmp_path)
    assert found["load"] == pytest.approx(1.5) and found["end_s"] is None
    assert all(row[key] is None for row in found["latencies"] for key in ("mean_us", "p99_us", "uncompressed_mean_us"))
    assert "the queue grows without end" in ok(f"{command} {1.5 * capacity}", tmp_path)
    # A rate between the two: the codec serves it, and without one the queue grows.
    between = ok_json(f"{command} {0.98 * capacity}", tmp_path)
    assert between["latencies"][0]["mean_us"] > 0 and between["latencies"][0]["uncompressed_mean_us"] is None


def test_a_trace_of_arrivals(tmp_path):
    (tmp_path / "a.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,256,4\n0,512,1\n10,100,2\n")
    found = ok_json("model time --model llama-3-8b --topology a100-8 --arrivals a.csv", tmp_path)
    assert found["requests"] == 3 and found["load"] is None and found["end_s"] > 10
    assert found["latencies"][0]["p50_us"] == found["latencies"][0]["p90_us"]  # two at once


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--rate 0", "--rate is 0: allowed is above 0"),
        ("--rate nan", "--rate"),
        ("--max-batch 4", "--max-batch and --max-tokens are of requests that arrive"),
        ("--seed 4", "--rate"),
        ("--rate 1 --batch 2", "--rate"),
        ("--rate 1 --phase decode", "--phase decode is of one step"),
        ("--rate 1 --tokens 9000", "a prompt of 9000 tokens is longer than a prefill may be; allowed are 8192"),
        ("--rate 1 --output-tokens 100000", "allowed are 2000000 in all"),
        ("--arrivals none.csv", "none.csv"),
        ("--arrivals a.csv", "line 2: prompt_tokens is 'x'; allowed is a whole number from 1"),
        ("--arrivals a.csv --rate 1", "--arrivals"),
    ],
)
def test_arrivals_that_cannot_be_are_said_in_one_line(tmp_path, more, part):
    (tmp_path / "a.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,x,4\n")
    refused(f"model time --model llama-3-8b --topology a100-8 {more}", tmp_path, part)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--model nothing", "unknown model 'nothing': known are llama-2-70b"),
        ("--model none.json", "none.json"),
        ("--model bad.json", "missing key 'num_hidden_layers'"),
        ("--model huge.json", "key 'hidden_size': it must be an integer from 1 to 1048576"),
        ("--model deep.json", "it is not JSON"),
        ("--model wide.json --tokens 16777216 --batch 65536", "allowed are at most 1099511627776"),
        ("--topology full:8", "topology 'full:8' has no section [compute]"),
        ("--ranks 3", "3 ranks do not divide its 4096"),
        ("--ranks 16", "16 ranks are more than the 8"),
        ("--dtype fp32", "allowed are fp16, bf16"),
        ("--phase training", "--phase is 'training': allowed are prefill, decode"),
        ("--overlap all", "--overlap is 'all': allowed are none, batches"),
        ("--overlap batches", "at least 2"),
        ("--kernels big", "allowed are fused, separate"),
        ("--combine some", "allowed are none, quantized"),
        ("--codec qr-q4 --library --algorithm ring", "a library sends values as they are"),
        ("--algorithm all_to_all", "algorithm 'all_to_all' does no all-reduce"),
        ("--tokens 0", "--tokens"),
        ("--batch 99999999", "--batch"),
        ("--trace none/layer.json", "none"),
        ("--codec", "--codec"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tmp_path, more, part):
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "huge.json").write_text(json.dumps(CONFIG | {"hidden_size": 2**40}))
    experts = {"num_experts": 4096, "num_experts_per_tok": 4096, "hidden_size": 2**20, "num_attention_heads": 8}
    (tmp_path / "wide.json").write_text(json.dumps(CONFIG | experts))
    (tmp_path / "deep.json").write_text("[" * 5)
    option = more.split()[0]
    options = {"--model": "llama-3-8b", "--topology": "a100-8"}
    options.pop(option, None)
    given = " ".join(f"{name} {value}" for name, value in options.items())
    refused(f"model time {given} {more}", tmp_path, part)


def test_every_table_is_compared(tmp_path):
    found = ok_json("model validate", tmp_path)
    tables = {(row["name"], row["quantity"], row["held_out"]): row for row in found["tables"]}
    assert tables["flashcomm2_ttft", "speedup", True]["cells"] == 4
    assert tables["sglang_quickreduce_ttft", "speedup", True]["cells"] == 18
    assert tables["h200_layers_2026-11-22", "layer_us", False]["cells"] == 8
    cells = ok_csv("model validate --cells", tmp_path)
    assert len(cells) == found["cells"]
    off = [abs(float(cell["error_percent"])) for cell in cells if cell["quantity"] == "speedup"]
    assert sum(off) / len(off) == pytest.approx(found["speedup_mean_error_percent"], abs=0.01)
    for cell in cells:
        error = 100 * (float(cell["simulated"]) / float(cell["value"]) - 1)
        assert float(cell["error_percent"]) == pytest.approx(error, abs=0.01)


def test_wrong_descriptions_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("gpu,x\nA,1\n")
    head = '[[tables]]\nname = "t"\nfile = "t.csv"\nsource = "published"\n'
    for text, part in (
        (head + 'kind = "other"', "unknown kind 'other'; allowed are speedups, layers"),
        (head + 'kind = "speedups"\ncolumn = "y"', "its file has no column 'y'"),
        (head + 'kind = "speedups"\ncolumn = "x"\nbatch = 1\ntokens = 1\ndtype = "bf16"\n[tables.rows]', "missing key 'tables[0].rows.A'"),
        (head.replace("t.csv", "u.csv") + 'kind = "layers"', "u.csv"),
        ("tables = 3", "tables"),
    ):
        (tmp_path / "d.toml").write_text(text)
        refused("model validate --tables d.toml", tmp_path, part)
