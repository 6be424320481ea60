"""arlab model time and arlab model validate."""

import csv
import json

import pytest
from program import REPOSITORY, ok, ok_csv, ok_json, refused

LLAMA = "model time --model llama-3-8b --topology a100-8 --tokens 512"
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def test_an_engine_adds_declared_times_to_each_step(tmp_path):
    command = "model time --model qwen2.5-72b --topology {} --library --phase decode --batch 8 --tokens 64"
    for topology, factor, words in (("mi300x-8", 1.3, "fitted: vLLM"), ("h200-8", 2.5, "assumed, no time")):
        alone, vllm = (ok_json(command.format(topology) + more, tmp_path) for more in ("", " --engine vllm"))
        assert "engine" not in alone and alone == ok_json(command.format(topology) + " --engine none", tmp_path)
        assert vllm["engine_us"] == 3000 + 80 * 135 + 8 * 30
        assert vllm["tpot_us"] == pytest.approx(alone["tpot_us"] + vllm["engine_us"])
        assert vllm["library_us"] == pytest.approx(vllm["tpot_us"])
        assert vllm["tpot_us_high"] == pytest.approx(vllm["tpot_us"] * factor)
        assert vllm["tpot_us_low"] == pytest.approx(vllm["tpot_us"] / factor)
        assert vllm["us_low"] < vllm["tpot_us_low"] * 1.001 and vllm["us_high"] > vllm["tpot_us_high"] / 1.001
        assert (topology == "h200-8") == any("no time of it on this device" in each for each in vllm.get("assumed", []))
        prefill = ok_json(command.format(topology).replace("decode", "prefill") + " --engine vllm", tmp_path)
        assert prefill["engine"] == "vllm" and prefill["engine_us"] == vllm["engine_us"]
        assert "tpot_us_low" not in prefill
        line = next(line for line in ok(command.format(topology) + " --engine vllm", tmp_path).splitlines() if line.startswith("engine "))
        assert words in line
    sglang = ok_json(command.format("mi300x-8") + " --engine sglang", tmp_path)
    assert sglang["tpot_us_high"] == pytest.approx(sglang["tpot_us"] * 2.5)
    refused(command.format("h200-8") + " --engine vLLM", tmp_path, "--engine is 'vLLM': did you mean 'vllm'?")


def test_an_engine_meets_the_published_time_between_tokens(tmp_path):
    """vLLM, Qwen2.5-72B, 10 requests a second, with ShareGPT's lengths, as the source says none. Without an engine it is
    missed."""
    command = "model time --model qwen2.5-72b --topology mi300x-8 --rate 10 --requests 500 --tokens 220 --output-tokens 200 --max-batch 256 --dtype fp16"
    with open(REPOSITORY / "experiments/published/vllm_tpot_mi300x_tp8.csv") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in rows:
        level = row["level"].replace("INT", "qr-q")
        how = "--library" if level == "base" else f"--algorithm two_shot --codec {level}"
        measured = float(row["tpot_ms"]) * 1e3
        found = ok_json(f"{command} {how} --engine vllm", tmp_path)
        tpot = next(each["mean_us"] for each in found["latencies"] if each["latency"] == "tpot")
        assert tpot == pytest.approx(measured, rel=0.3), level
        assert found["tpot_us_low"] < measured < found["tpot_us_high"]
    alone = ok_json(f"{command} --library", tmp_path)
    assert next(each["mean_us"] for each in alone["latencies"] if each["latency"] == "tpot") < 0.5 * float(rows[0]["tpot_ms"]) * 1e3


@pytest.mark.parametrize(
    ("topology", "more", "fastest"),
    [
        ("h200-8", "--phase decode", "one_shot"), ("h200-8", "", "two_shot"), ("p5-2x8", "", "hierarchical"),
        ("p5-2x8", "--phase decode", "one_shot"), ("h200-8", "--rate 1 --requests 10 --output-tokens 64", "two_shot"),
    ],
)  # fmt: skip
def test_without_an_algorithm_the_fastest_is_taken_and_named(tmp_path, topology, more, fastest):
    command = f"model time --model llama-3-8b --topology {topology} --codec fp8-e4m3-g128 {more}"
    found = ok_json(command, tmp_path)
    assert found["algorithm"] == fastest == min(found["us_by_algorithm"], key=found["us_by_algorithm"].get)
    assert set(found["us_by_algorithm"]) == {"two_shot", "one_shot", "hierarchical", "ring"}
    line = next(line for line in ok(command, tmp_path).splitlines() if line.startswith("algorithm "))
    assert line.split()[1] == fastest and "the fastest of two_shot, one_shot, hierarchical, ring" in line
    named = ok_json(f"{command} --algorithm {fastest}", tmp_path)
    assert {**named, "us_by_algorithm": found["us_by_algorithm"]} == found
    if "--rate" not in more:
        key = "tpot_us" if "decode" in more else "ttft_us"
        times = {name: ok_json(f"{command} --algorithm {name}", tmp_path)[key] for name in found["us_by_algorithm"]}
        assert times == found["us_by_algorithm"]


def test_of_one_rank_and_of_algorithms_that_do_not_fit(tmp_path):
    alone = ok_json(f"{LLAMA} --ranks 1", tmp_path)
    assert alone["algorithm"] == "two_shot" and "us_by_algorithm" not in alone
    refused(f"{LLAMA} --codec no-such-codec", tmp_path, "no-such-codec")
    assert ok_json(f"{LLAMA} --library", tmp_path)["algorithm"] == "its own choice, library"


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


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}


def test_weights_have_the_bits_that_the_config_says(tmp_path):
    (tmp_path / "plain.json").write_text(json.dumps(CONFIG))
    (tmp_path / "fp8.json").write_text(json.dumps(CONFIG | FP8))
    (tmp_path / "other.json").write_text(json.dumps(CONFIG | {"quantization_config": {"quant_method": "vptq"}}))
    command = "model time --topology h200-2 --phase decode --model"
    plain, fp8, other = (ok_json(f"{command} {name}.json", tmp_path) for name in ("plain", "fp8", "other"))
    assert plain["weight_bits_by_kind"] == {"attention": 16, "dense": 16, "embedding": 16, "head": 16} and plain["weight_bits"] == 16
    bits = 8 + 32 / 128**2
    assert fp8["weight_bits_by_kind"] == {"attention": bits, "dense": bits, "embedding": 16, "head": 16}

    def bytes_of(found):
        return {row["operation"]: row["bytes"] for row in found["operations"]}

    # gate and up: 4096 x 2 x 7168 weights of a rank, a row in and a row out.
    weights, rows = 4096 * 14336, 2 * (4096 + 14336)
    assert bytes_of(plain)["gate and up"] == 2 * weights + rows
    assert bytes_of(fp8)["gate and up"] == bits / 8 * weights + rows
    assert bytes_of(fp8)["logits"] == bytes_of(plain)["logits"]
    assert 0.5 < fp8["compute_us"] / plain["compute_us"] < 0.7
    assert fp8["communication_us"] == pytest.approx(plain["communication_us"])
    assert "attention, dense 8.002; head, embedding 16 (quantization_config: fp8)" in " ".join(ok(f"{command} fp8.json", tmp_path).split())
    assert other["tpot_us"] == plain["tpot_us"]
    assert "'vptq' is not modelled: 16-bit weights" in " ".join(ok(f"{command} other.json", tmp_path).split())
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "beside/hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}))
    assert ok_json(f"{command} beside/config.json", tmp_path)["weight_bits_by_kind"]["dense"] == 4.5
    # The option goes before the file, and is refused where it changes nothing.
    given = ok_json(f"{command} plain.json --weight-bits {bits}", tmp_path)
    assert (given["tpot_us"], given["weight_bits"]) == (fp8["tpot_us"], fp8["weight_bits"])
    kinds = ok_json(f"{command} fp8.json --weight-bits 4.5,head=8", tmp_path)["weight_bits_by_kind"]
    assert kinds == {"attention": 4.5, "dense": 4.5, "embedding": 16, "head": 8}
    refused(f"{command} plain.json --weight-bits 16", tmp_path, "--weight-bits 16 changes nothing")
    refused(f"{command} plain.json --weight-bits experts=4", tmp_path, "--weight-bits: 'experts=4': allowed are", "attention, dense, head, embedding")
    refused(f"{command} plain.json --weight-bits 4bit", tmp_path, "--weight-bits: '4bit'")
    served = ok_json(f"{command.replace(' --phase decode', '')} fp8.json --rate 1 --requests 10", tmp_path)
    assert served["weight_bits_by_kind"] == fp8["weight_bits_by_kind"]


def test_whether_weights_and_keys_fit_into_the_memory_is_said(tmp_path):
    def found(more):
        return ok_json(f"model time {more}", tmp_path)

    # 671e9 weights: too many in bf16 for eight GPUs of 141 GiB, not in fp8 as they are published.
    published = found("--model deepseek-v3 --topology h200-8")
    assert published["fits_memory"] is True and published["memory_gib"] == 141
    assert published["weights_gib"] == pytest.approx(671e9 / 8 / 2**30, rel=0.1)
    assert published["weights_gb"] == pytest.approx(688.6 - 14, rel=0.01)  # its page, with 14e9 weights that predict further tokens
    wide = found("--model deepseek-v3 --topology h200-8 --weight-bits 16")
    assert wide["fits_memory"] is False
    text = " ".join(ok("model time --model llama-3-70b --topology l40s-2", tmp_path).split())
    assert "GiB of weights and" in text and "do not fit into the 48 GiB of each GPU" in text
    # 2 x 8 heads of 128 elements in 2 bytes for 32 layers, tokens of the prompts, on two GPUs.
    small = found("--model llama-3-8b --topology l40s-2 --batch 3 --tokens 1000")
    assert small["kv_cache_gib"] == pytest.approx(2 * 8 * 128 * 2 * 32 * 3000 / 2 / 2**30) and small["fits_memory"] is True
    assert small["weights_gib"] == pytest.approx(8.03e9 * 2 / 2 / 2**30, rel=0.001)
    assert found("--model llama-3-8b --topology l40s-2 --batch 1000 --tokens 2000")["fits_memory"] is False
    # A batch that is full of the longest.
    served = found("--model llama-3-8b --topology l40s-2 --rate 0.01 --requests 20 --max-batch 8 --tokens 992 --output-tokens 8")
    assert served["kv_cache_gib"] == pytest.approx(2 * 8 * 128 * 2 * 32 * 8000 / 2 / 2**30) and served["fits_memory"] is True
    # Another device has another memory: it is not that of the base.
    (tmp_path / "own.toml").write_text('base = "h200-8"\nname = "own"\n[device]\nname = "NVIDIA H300"\n')
    own = found("--model llama-3-8b --topology own.toml")
    assert own["fits_memory"] is None and own["memory_gib"] is None
    assert "the memory of the GPUs is not known" in " ".join(ok("model time --model llama-3-8b --topology own.toml", tmp_path).split())


def test_configs_as_python_writes_them(tmp_path):
    odd = CONFIG | {"time_step_limit": [0.0, float("inf")], "a": float("nan"), "b": -float("inf"), 'quo"te \\': "NaN Infinity"}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    (tmp_path / "nested.json").write_text(json.dumps({"model_type": "some_vl", "text_config": CONFIG, "vision_config": {}} | FP8))
    plain = ok_json(LLAMA, tmp_path)
    assert ok_json(LLAMA.replace("llama-3-8b", "odd.json"), tmp_path)["ttft_us"] == plain["ttft_us"]
    nested = ok_json(LLAMA.replace("llama-3-8b", "nested.json"), tmp_path)
    assert nested["parameters"] == plain["parameters"] and nested["weight_bits_by_kind"]["dense"] < 9
    (tmp_path / "bad.json").write_text(json.dumps(CONFIG | {"hidden_size": float("inf")}))
    refused(LLAMA.replace("llama-3-8b", "bad.json"), tmp_path, "key 'hidden_size': it must be an integer")
    experts = CONFIG | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    for width, shared in ((0, False), (512, True)):
        (tmp_path / "shared.json").write_text(json.dumps(experts | {"shared_expert_intermediate_size": width}))
        operations = [row["operation"] for row in ok_json(LLAMA.replace("llama-3-8b", "shared.json"), tmp_path)["operations"]]
        assert ("shared: down" in operations) == shared


def test_a_mixture_of_experts_exchanges_tokens(tmp_path):
    command = "model time --model qwen3-30b-a3b --topology h800-8 --tokens 8192 --codec int4-g32"
    found = ok_json(command, tmp_path)
    sent = [row["operation"] for row in found["operations"] if row["kind"] == "communication"]
    assert sent == ["attention all-reduce", "dispatch", "combine", "all-gather"]
    assert ok_json(f"{command} --combine quantized", tmp_path)["ttft_us"] < found["ttft_us"]


def test_experts_and_sequences_are_spread_over_groups(tmp_path):
    command = "model time --model deepseek-v3 --topology h200-8 --batch 16 --phase decode"

    def found(more=""):
        return ok_json(f"{command} {more}", tmp_path)

    def sent(answer):
        return [row["operation"] for row in answer["operations"] if row["kind"] == "communication"]

    whole = found()
    assert found("--tp 8 --dp 1 --ep 8") == whole
    # Every expert is cut over all: no tokens are exchanged, sums are added up.
    cut = found("--ep 1")
    assert sent(cut) == ["attention all-reduce", "ffn all-reduce", "attention all-reduce", "ffn all-reduce"]
    # Shared experts are cut, too, where all ranks have all tokens.
    shared = 58 * 3 * 7168 * 2048
    assert whole["weights_gib"] - cut["weights_gib"] == pytest.approx(shared * (7 / 8) * 8.002 / 8 / 2**30, rel=1e-3)
    # Groups of one GPU have all of the attention and their own sequences; they exchange tokens, and nothing else.
    groups = found("--dp 8")
    assert sent(groups) == ["dispatch", "combine"] and groups["ranks"] == 8 and groups["batch"] == 16
    assert groups["weights_gib"] > whole["weights_gib"] and groups["kv_cache_gib"] == pytest.approx(whole["kv_cache_gib"] / 8)
    halves = found("--tp 4 --dp 2")
    assert sent(halves)[2:] == ["attention all-reduce", "dispatch", "combine", "all-gather"]
    assert whole["weights_gib"] < halves["weights_gib"] < groups["weights_gib"]
    both = found("--dp 2 --ep 4")
    assert sent(both)[2:] == ["attention all-reduce", "tokens all-gather", "ffn all-reduce"]
    text = " ".join(ok(f"{command} --tp 4 --dp 2 --ep 4", tmp_path).split())
    assert "tensor-parallel 4 x data-parallel 2, experts over 4" in text and "GiB of buffers, fit into the 141 GiB" in text


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--dp 3", "--dp 3 of 8 ranks: --tp times --dp must be the ranks"),
        ("--tp 4 --dp 2 --ranks 4 --batch 2", "--dp 2 and --tp 4 of 4 ranks"),
        ("--tp 8 --dp 2 --batch 2", "16 ranks are more than the 8"),
        ("--dp 2", "--dp 2: allowed are 1 to the 1 sequences of --batch"),
        ("--dp 2 --rate 1", "--dp: allowed for one step"),
        ("--tp 65536 --dp 65536 --batch 65536", "4294967296 ranks"),
        ("--ep 3", "--ep 3 does not divide the 8 ranks"),
        ("--ep 0", "--ep"),
        ("--combine quantized --model llama-3-8b", "the way back from experts, and model 'llama-3-8b' has none"),
        ("--ep 2 --model llama-3-8b", "--ep spreads experts, and model 'llama-3-8b' has none"),
        ("--ep 8 --model six.json", "8 ranks do not divide its 6 experts"),
        ("--ep 1 --model six.json", "8 ranks do not divide its 100 elements of an expert"),
    ],
)
def test_groups_that_cannot_be_are_said_in_one_line(tmp_path, more, part):
    (tmp_path / "six.json").write_text(json.dumps(CONFIG | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 100}))
    model = "" if "--model" in more else "--model mixtral-8x7b"
    refused(f"model time {model} --topology h200-8 {more}", tmp_path, part)


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
    assert "constants were fitted to kernels that have all multiprocessors" in found["extrapolated"]
    refused(f"{command} --sms 133", tmp_path, "has 1 to 132")
    refused(f"{command.replace('qr-q8', 'bf16')} --sms 8 --library", tmp_path, "--sms limits arlab's kernels")


def test_requests_that_arrive_wait(tmp_path):
    how = "model time --model llama-3-8b --topology a100-8 --algorithm two_shot --codec int4-g32 --tokens 512"
    command = f"{how} --output-tokens 32 --requests 200"
    quiet = ok_json(f"{command} --rate 0.5", tmp_path)
    busy = ok_json(f"{command} --rate 40 --seed 3", tmp_path)
    assert busy["schema"] == "arlab.model.serving/1" and busy == ok_json(f"{command} --rate 40 --seed 3", tmp_path)
    assert 0 < quiet["load"] < busy["load"] < busy["uncompressed_load"] < 1
    for before, after in zip(quiet["latencies"], busy["latencies"], strict=True):
        assert before["mean_us"] < after["mean_us"] < after["uncompressed_mean_us"]
        assert after["p50_us"] <= after["p90_us"] <= after["p99_us"]
    # Alone, a request has the times that a prompt and a token have.
    ttft, tpot, itl = quiet["latencies"]
    assert ttft["p50_us"] == pytest.approx(ok_json(how, tmp_path)["ttft_us"])
    assert ok_json(f"{how} --phase decode", tmp_path)["tpot_us"] == pytest.approx(itl["p50_us"], rel=0.01)
    assert tpot["mean_us"] == pytest.approx(itl["mean_us"])
    assert [row["latency"] for row in ok_csv(f"{command} --rate 0.5", tmp_path)] == ["ttft", "tpot", "itl"]


def test_more_requests_than_can_be_served_have_no_latency(tmp_path):
    command = "model time --model llama-3-8b --topology a100-8 --codec int4-g32 --tokens 512 --output-tokens 32 --rate"
    capacity = 100 / ok_json(f"{command} 100", tmp_path)["load"]
    found = ok_json(f"{command} {1.5 * capacity}", tmp_path)
    assert found["load"] == pytest.approx(1.5) and found["end_s"] is None
    assert all(row[key] is None for row in found["latencies"] for key in ("mean_us", "p99_us", "uncompressed_mean_us"))
    assert "the queue grows without end" in ok(f"{command} {1.5 * capacity}", tmp_path)
    assert found["capacity_per_s"] == pytest.approx(capacity)
    assert "requests/s that can be served: the queue grows without end" in found["overload"] and "--arrivals" in found["overload"]
    # A rate between the two: the codec serves it, and without one the queue grows.
    between = ok_json(f"{command} {0.98 * capacity}", tmp_path)
    assert between["latencies"][0]["mean_us"] > 0 and between["latencies"][0]["uncompressed_mean_us"] is None
    assert "that can be served uncompressed" in between["overload"]
    assert ok_json(f"{command} {0.5 * capacity}", tmp_path)["overload"] is None


def test_years_between_requests_take_no_digits_away(tmp_path):
    one = "model time --model llama-3-8b --topology a100-8 --algorithm two_shot --tokens 512"
    command = f"{one} --output-tokens 4 --requests 1000 --rate"
    alone = ok_json(one, tmp_path)["ttft_us"]
    for rate in ("1e-3", "1e-9"):
        ttft, _, itl = ok_json(f"{command} {rate}", tmp_path)["latencies"]
        for key in ("mean_us", "p50_us", "p99_us"):
            assert ttft[key] == pytest.approx(alone, rel=1e-9)
        assert itl["p99_us"] == pytest.approx(itl["p50_us"], rel=1e-3)


def test_a_trace_of_arrivals(tmp_path):
    (tmp_path / "a.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,256,4\n0,512,1\n10,100,2\n")
    found = ok_json("model time --model llama-3-8b --topology a100-8 --arrivals a.csv", tmp_path)
    assert found["requests"] == 3 and found["load"] is None and found["end_s"] > 10
    assert found["latencies"][0]["p50_us"] == found["latencies"][0]["p90_us"]  # two at once


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--rate 0", "--rate is 0: allowed is 1e-09 to 1000000"),
        ("--rate 9.9e-10", "--rate is 9.9e-10: allowed is 1e-09 to 1000000"),
        ("--rate nan", "--rate"),
        ("--max-batch 4", "--max-batch and --max-tokens: allowed only with --rate or --arrivals"),
        ("--seed 4", "--rate"),
        ("--rate 1 --batch 2", "--rate"),
        ("--rate 1 --phase decode", "--phase decode: arriving requests go through both phases"),
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
        ("--model none.json", "none.json"),
        ("--model deep.json", "it is not JSON"),
        ("--model wide.json --tokens 16777216 --batch 65536", "allowed are at most 1099511627776"),
        ("--phase training", "--phase is 'training': allowed are prefill, decode"),
        ("--overlap all", "--overlap is 'all': allowed are none, batches"),
        ("--kernels big", "allowed are fused, separate"),
        ("--combine some", "allowed are none, quantized"),
        ("--codec qr-q4 --library --algorithm ring", "a library sends values as they are"),
        ("--tokens 0", "--tokens"),
        ("--batch 99999999", "--batch"),
        ("--trace none/layer.json", "none"),
        ("--codec", "--codec"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tmp_path, more, part):
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


def test_lists_are_rows(tmp_path):
    """Each has the answer that it has alone."""
    command = "model time --model llama-3-8b --topology {} --codec {} --algorithm {}"
    report = ok_json(command.format("h200-8,h100-8", "bf16,qr-q4", "two_shot"), tmp_path)
    rows = report["times"]
    assert report["schema"] == "arlab.model.time.list/1" and len(rows) == 4
    for row in rows:
        alone = ok_json(command.format(row["topology"], row["codec"], row["algorithm"]), tmp_path)
        assert alone["schema"] == "arlab.model.time/1" and row.items() <= alone.items()
    refused(command.format("h200-8", "bf16,bf16", "two_shot"), tmp_path, "'bf16' is named twice")
    refused(command.format("h200-8", "bf16,qr-q4", "two_shot") + " --rate 3", tmp_path, "--rate", "lists")


def test_norms_in_the_kernels_of_all_reduces_save_their_launches(tmp_path):
    command = "model time --model llama-3-70b --topology h200-8 --algorithm one_shot --codec bf16 --phase decode --batch 8"
    fused, tails = ok_json(command, tmp_path), ok_json(f"{command} --kernels tails", tmp_path)
    assert tails["norm_kernels_us"] == fused["tpot_us"] > tails["tpot_us"] and tails["assumed"]
    assert tails["library_us"] == fused["library_us"]
    behind = ok_json(f"{command.replace('one_shot', 'two_shot')} --kernels tails", tmp_path)
    assert "kernels of two_shot have tails behind them, which takes what --kernels fused does" in behind["assumed"]
    refused(f"{command.replace('one_shot', 'ring')} --library --kernels tails", tmp_path, "the library's all-reduce has none")


def test_the_library_chooses_by_itself_and_networks_are_said(tmp_path):
    """A ring is not what NCCL takes for small tensors across servers, nor for large ones where a switch adds."""
    counts = {"ranks": 16, "group_size": 8, "nics": 8, "leaf_servers": 2}
    links = {"nic": (46, 2), "uplink": (1000, 1)}
    lines = ['base = "h200-8"', 'name = "open"', 'kind = "fat_tree"']
    lines += [f"{key} = {{ value = {count}, source = 'assumed', note = 'a guess' }}" for key, count in counts.items()]
    for link, values in links.items():
        lines.append(f"[{link}]")
        for key, value in zip(("bandwidth_gb_per_s", "latency_us"), values):
            lines.append(f"{key} = {{ value = {value}, source = 'assumed', note = 'a guess' }}")
    (tmp_path / "open.toml").write_text("\n".join(lines))
    for topology, phase in (("h200-2x8", "decode --batch 8"), ("h200-8", "prefill --batch 8")):
        command = f"model time --model llama-3-70b --topology {topology} --phase {phase}"
        ours = ok_json(command, tmp_path)
        ring = ok_json(f"{command} --library --algorithm ring", tmp_path)
        chosen = ok_json(f"{command} --library", tmp_path)
        time = "ttft_us" if "prefill" in phase else "tpot_us"
        assert chosen[time] == chosen["library_us"] == ours["library_us"] < ring[time]
        assert ours["speedup_over_library"] == pytest.approx(ours["library_us"] / ours[time])
        assert len(ours.get("assumed", [])) == ("2x8" in topology)
        assert "2x8" not in topology or ours["assumed"][0].endswith("only, without the floor per hop of NCCL's network")
    for command in (
        "model time --model llama-3-8b --topology open.toml --library",
        "simulate --topology open.toml,h200-8 --library --codec fp16 --bytes 1M",
        "sweep --topology open.toml --bytes 1M --algorithm ring --codec fp16 --library",
    ):
        assert "the network between servers is RoCE" in str(ok_json(command, tmp_path)["assumed"]), command
        assert command[0] == "m" or "RoCE" in ok_csv(command.replace("1M", "1M,2M"), tmp_path)[0]["assumed"]
