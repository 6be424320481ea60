"""arlab.models: times of whole models, as the program has them."""

import json

import arlab
import pytest


def test_time_has_its_parts():
    found = arlab.models.time("llama-3-8b", topology="a100-8", codec="int4-g32", tokens=256, batch=2)
    assert found.ttft_us == pytest.approx(found.compute_us + found.communication_us)
    assert found.tpot_us is None and 0 < found.communication_share < 1
    table = found.operations
    assert (table["us"] * table["count"]).sum() == pytest.approx(found.ttft_us)
    assert "llama-3-8b" in repr(found)
    decode = arlab.models.time("llama-3-8b", topology="a100-8", phase="decode", algorithm="one_shot")
    assert decode.ttft_us is None and decode.tpot_us > 0
    alone = arlab.models.time("llama-3-8b", topology="a100-8", ranks=1, attention=False)
    assert "attention" not in set(alone.operations["operation"]) and alone.speedup_over_library is None


def test_weights_may_have_other_bits():
    plain, four, kinds = (
        arlab.models.time("llama-3-8b", topology="h200-2", phase="decode", **given)
        for given in ({}, {"weight_bits": 4.25}, {"weight_bits": "8,head=8"})
    )
    assert four.tpot_us < kinds.tpot_us < plain.tpot_us and (plain.fits_memory, plain.memory_gib) == (True, 141)
    assert kinds.weight_bits_by_kind == {"attention": 8, "dense": 8, "embedding": 16, "head": 8}
    with pytest.raises(ValueError, match="changes nothing"):
        arlab.models.time("llama-3-8b", topology="h200-2", weight_bits=16)


def test_a_config_and_a_trace(tmp_path):
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = arlab.models.time(tmp_path / "config.json", topology="h200-2", trace=tmp_path / "layer.json", batch=2, overlap="batches")
    assert found.hidden_communication_us > 0
    assert json.loads((tmp_path / "layer.json").read_text())["traceEvents"]


def test_requests_that_arrive(tmp_path):
    found = arlab.models.time("llama-3-8b", topology="a100-8", codec="int4-g32", rate=20, requests=50, output_tokens=8, max_batch=4)
    assert 0 < found.load < found.uncompressed_load < 1 and "load" in repr(found)
    assert list(found.latencies["latency"]) == ["ttft", "tpot", "itl"] and (found.latencies["mean_us"] > 0).all()
    (tmp_path / "a.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,256,4\n")
    alone = arlab.models.time("llama-3-8b", topology="a100-8", arrivals=tmp_path / "a.csv")
    prompt = arlab.models.time("llama-3-8b", topology="a100-8", tokens=256)
    assert alone.latencies["p99_us"][0] == pytest.approx(prompt.ttft_us)
    with pytest.raises(ValueError, match="rate"):
        arlab.models.time("llama-3-8b", topology="a100-8", rate=-1)


def test_experts_are_spread_and_kinds_of_layers_are_told(tmp_path):
    config = {
        "model_type": "kimi_vl", "text_config": {
            "model_type": "deepseek_v3", "num_hidden_layers": 3, "hidden_size": 256, "num_attention_heads": 8, "vocab_size": 512,
            "intermediate_size": 512, "kv_lora_rank": 64, "q_lora_rank": None, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
            "v_head_dim": 32, "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "n_shared_experts": 1,
            "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
        },
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = arlab.models.time(tmp_path / "config.json", topology="h200-8", tp=2, dp=4, ep=8, batch=8, phase="decode", tokens=99)
    dense, sparse = found.layer_kinds
    assert (dense["layers"], sparse["layers"]) == (1, 2) and "16 experts" in sparse["kind"] and "latent" in dense["kind"]
    assert sparse["kv_cache_bytes_per_sequence"] == 100 * (64 + 16) * 2
    experts = 16 * 3 * 256 * 64
    assert sparse["parameters"] - dense["parameters"] == experts + 16 * 256 + 3 * 256 * (64 - 512)
    assert found.buffers_gib > 0 and "multi-token prediction" in found.left_out and "left_out" in repr(found)
    with pytest.raises(ValueError, match="--tp times --dp must be the ranks"):
        arlab.models.time(tmp_path / "config.json", topology="h200-8", ranks=8, tp=2, dp=2)
