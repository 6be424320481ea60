// A network small enough to write down: for tests that need the files of one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace arlab::models {

/// Writes .gguf files, right or wrong.
class GgufWriter {
 public:
  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string& to, std::string_view text) {
    put<std::uint64_t>(to, text.size());
    to += text;
  }

  void integer(std::string_view key, std::uint32_t value) {
    begin(key, 4);
    put(values_, value);
  }
  void number(std::string_view key, float value) {
    begin(key, 6);
    put(values_, value);
  }
  void text(std::string_view key, std::string_view value) {
    begin(key, 8);
    put_text(values_, value);
  }
  void texts(std::string_view key, const std::vector<std::string>& all) {
    begin(key, 9);
    put<std::uint32_t>(values_, 8);
    put<std::uint64_t>(values_, all.size());
    for (const std::string& each : all) put_text(values_, each);
  }
  /// `shape`: innermost axis first, as the format has it.
  void tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              std::string_view bytes) {
    put_text(tensors_, name);
    put<std::uint32_t>(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t extent : shape) put(tensors_, extent);
    put(tensors_, type);
    put<std::uint64_t>(tensors_, data_.size());
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
  }
  void floats(std::string_view name, const std::vector<std::uint64_t>& shape, float first,
              float step) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    std::string bytes;
    for (std::uint64_t i = 0; i < count; ++i) {
      put(bytes, first + step * static_cast<float>(static_cast<int>(i * 7 % 11) - 5));
    }
    tensor(name, shape, 0, bytes);
  }
  std::string file() const {
    std::string all = "GGUF";
    put<std::uint32_t>(all, 3);
    put<std::uint64_t>(all, tensor_count_);
    put<std::uint64_t>(all, value_count_);
    all += values_ + tensors_;
    all.resize((all.size() + 31) / 32 * 32);
    return all + data_;
  }

 private:
  void begin(std::string_view key, std::uint32_t type) {
    put_text(values_, key);
    put(values_, type);
    ++value_count_;
  }
  std::string values_;
  std::string tensors_;
  std::string data_;
  std::uint64_t value_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

/// Two layers, width 8, four query heads on two, FFN 8, the bytes a to f and two merges of them.
inline std::string tiny_gguf() {
  GgufWriter w;
  w.text("general.architecture", "llama");
  w.integer("llama.block_count", 2);
  w.integer("llama.context_length", 256);
  w.integer("llama.embedding_length", 8);
  w.integer("llama.feed_forward_length", 8);
  w.integer("llama.attention.head_count", 4);
  w.integer("llama.attention.head_count_kv", 2);
  w.number("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  w.number("llama.rope.freq_base", 100);
  w.text("tokenizer.ggml.model", "gpt2");
  w.text("tokenizer.ggml.pre", "smollm");
  w.texts("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f", "ab", "abc"});
  w.texts("tokenizer.ggml.merges", {"a b", "ab c"});
  w.floats("token_embd.weight", {8, 8}, 0.1F, 0.2F);
  w.floats("output_norm.weight", {8}, 1, 0.1F);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string of = layer;
    w.floats(of + "attn_norm.weight", {8}, 1, 0.1F);
    w.floats(of + "ffn_norm.weight", {8}, 1, -0.1F);
    w.floats(of + "attn_q.weight", {8, 8}, 0, 0.15F);
    w.floats(of + "attn_k.weight", {8, 4}, 0, 0.15F);
    w.floats(of + "attn_v.weight", {8, 4}, 0.1F, 0.15F);
    for (const char* square : {"attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
      w.floats(of + square + ".weight", {8, 8}, 0.05F, 0.1F);
    }
  }
  return w.file();
}

}  // namespace arlab::models
