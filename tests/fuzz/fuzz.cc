// Every file format and the wire, damaged: what is read is valid, or is refused with one clear
// line, in bounded memory and time.
//
//   fuzz [FORMAT] [--cases N] [--seconds S] [--seed N] [--first CASE] [--write FILE]
//
// Cases are numbered; a format, a seed and a number make the same bytes everywhere. A failure is named with the command that
// repeats it, and ends the program with 1.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "experiments/lab/grids/study_file.h"
#include "experiments/models/model_files.h"
#include "kernels/runtime/call_table.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/msccl_xml.h"
#include "reference/collectives/schedule_json.h"
#include "reference/error.h"
#include "reference/tensors/npy.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "sim/calibration/bench_file.h"
#include "sim/calibration/measurements.h"
#include "sim/calibration/nccl_log.h"
#include "sim/simulator.h"
#include "sim/topology/import.h"
#include "sim/topology/topology.h"
#include "tests/models/tiny_model.h"
#include "tests/sim/machine.h"
#include "tests/words.h"

// ---- memory: counted, but where a sanitizer does so better
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace {
constexpr bool kCountsMemory = false;
std::size_t taken = 0;
std::size_t most_taken = 0;
}  // namespace
extern "C" void __sanitizer_set_death_callback(void (*)());
#else
namespace {
constexpr bool kCountsMemory = true;
std::size_t taken = 0;  // the program has one thread
std::size_t most_taken = 0;

void* take(std::size_t bytes, std::size_t alignment) {
  void* const memory =
      alignment == 0
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  taken += malloc_usable_size(memory);
  most_taken = std::max(most_taken, taken);
  return memory;
}
void give_back(void* memory) {
  taken -= malloc_usable_size(memory);
  std::free(memory);
}
}  // namespace

// The array forms of the standard library end here, too. Not inlined, for else GCC sees memory of
// operator new go to free and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return take(bytes, 0); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}
#endif

namespace arlab {
namespace {

namespace fs = std::filesystem;

// ---- damage

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(engine_() % std::max<std::size_t>(bound, 1));
  }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class Values>
  const auto& pick(const Values& values) {
    return values[below(std::size(values))];
  }

 private:
  std::mt19937_64 engine_;
};

using Texts = std::vector<std::string>;

const Texts kNumbers = [] {
  Texts numbers = testing::words(
      "0 1 -1 2 3 7 127 128 255 256 65535 65536 65537 2147483647 2147483648 4294967295 4294967296 "
      "9223372036854775807 "
      "9223372036854775808 18446744073709551615 18446744073709551616 99999999999999999999999 "
      "-9223372036854775808 0.5 1e-300 "
      "1e300 1e400 nan inf -0 0x10 1_0 1e5");
  numbers.emplace_back();
  return numbers;
}();
/// Tokens of all formats.
const Texts kTokens = [] {
  Texts tokens = testing::words(
      "\" ' \\ \\u0000 \\ud800 \xff \xc3\xa9 \xed\xa0\x80 \xef\xbb\xbf # , : = [ ] { } [[ ]] ( ) "
      "null true false \"\" [] {} "
      "\x7f \x1b[31m %s%n ../../etc/passwd /dev/zero . all {ranks} K G");
  for (const char* space : {"\n", "\r\n", " ", "\t"}) tokens.emplace_back(space);
  tokens.emplace_back(1, '\0');
  tokens.emplace_back(300, 'x');
  for (const char c : {'[', '{'}) tokens.emplace_back(2000, c);
  return tokens;
}();

/// Where a number in the text begins and ends, at or after `from`; the end of the text if none.
std::pair<std::size_t, std::size_t> number_at(const std::string& bytes, std::size_t from) {
  const std::size_t begin = std::min(bytes.find_first_of("0123456789", from), bytes.size());
  const std::size_t end = std::min(bytes.find_first_not_of("0123456789.eE+-", begin), bytes.size());
  return {begin, end};
}

/// Words of the seeds: keys, names, values that mean something to the reader.
Texts words_of(const Texts& seeds) {
  std::set<std::string> words;
  for (const std::string& seed : seeds) {
    std::string word;
    for (const char c : seed + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.') {
        word += c;
      } else {
        if (word.size() > 1 && word.size() < 40) words.insert(word);
        word.clear();
      }
    }
  }
  return {words.begin(), words.end()};
}

void damage(std::string& bytes, const Texts& seeds, const Texts& words, Random& random) {
  constexpr std::size_t kHead = 256;  // where formats say what follows
  constexpr std::size_t kMost = 1 << 16;
  const std::size_t at =
      random.below((random.one_in(2) ? std::min(kHead, bytes.size()) : bytes.size()) + 1);
  const std::size_t some = 1 + random.below(random.one_in(4) ? bytes.size() : 16);
  const auto put = [&](std::string_view text) {
    for (std::size_t i = 0; i < text.size() && at + i < bytes.size(); ++i) bytes[at + i] = text[i];
  };
  switch (random.below(13)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random.below(256));
      break;
    case 2:
      bytes.erase(at, some);
      break;
    case 3:
      bytes.resize(at);
      break;
    case 4:
      bytes.insert(at, bytes.substr(random.below(bytes.size()), some));
      break;
    case 5: {
      const std::string& other = random.pick(seeds);
      const std::size_t begin = random.below(other.size());
      bytes.replace(at, some, other.substr(begin, random.one_in(2) ? some : other.size()));
      break;
    }
    case 6:
      bytes.insert(at, random.pick(kTokens));
      break;
    case 7:
      if (!words.empty()) bytes.insert(at, random.pick(words));
      break;
    case 8:
    case 9: {
      const auto [begin, end] = number_at(bytes, at);
      bytes.replace(begin, end - begin, random.pick(kNumbers));
      break;
    }
    case 10: {  // a binary number at a limit, little-endian
      const std::uint64_t limits[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0x7fff,
                                      0x7fffffff,
                                      0x80000000,
                                      UINT64_MAX,
                                      UINT64_MAX >> 1,
                                      bytes.size(),
                                      bytes.size() - 8};
      const std::uint64_t limit = random.pick(limits);
      put({reinterpret_cast<const char*>(&limit), std::size_t{1} << random.below(4)});
      break;
    }
    case 11: {  // a word for another
      const std::size_t begin =
          std::min(bytes.find_first_of("abcdefghijklmnopqrstuvwxyz", at), bytes.size());
      const std::size_t end =
          std::min(bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", begin), bytes.size());
      if (!words.empty()) bytes.replace(begin, end - begin, random.pick(words));
      break;
    }
    default: {  // a line away, or twice
      const std::size_t begin =
          bytes.rfind('\n', at) == std::string::npos ? 0 : bytes.rfind('\n', at) + 1;
      const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
      const std::string line =
          bytes.substr(std::min(begin, end), end - std::min(begin, end)) + "\n";
      if (random.one_in(2)) {
        bytes.insert(std::min(begin, end), line);
      } else {
        bytes.erase(std::min(begin, end), line.size());
      }
    }
  }
  if (bytes.size() > kMost) bytes.resize(kMost);
}

// ---- formats

/// A file of these bytes, in a folder of its own.
class Files {
 public:
  Files() {
    std::string name = (fs::temp_directory_path() / "arlab-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { fs::remove_all(folder_); }

  fs::path write(const char* name, std::string_view bytes) const {
    const fs::path path = folder_ / name;
    fs::remove(path);  // faster than to overwrite it
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  fs::path operator/(const char* name) const { return folder_ / name; }

 private:
  fs::path folder_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string bytes_of_tree(const char* path) { return bytes_of(fs::path(ARLAB_SOURCE_DIR) / path); }

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Reads a file of a format: throws InvalidInput, or std::logic_error where something that was read is not as promised.
using Read = std::function<void(const std::string& bytes, const Files& files, Random& random)>;

struct Format {
  const char* name;
  std::size_t cases;  ///< in the test suite
  std::function<Texts(const Files&)> seeds;
  Read read;
  std::size_t most_memory = std::size_t{32} << 20;
  std::string_view file = {};  ///< every refusal names it
};

Texts npy_seeds(const Files& files) {
  Texts seeds;
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    for (const std::vector<std::size_t>& shape : {std::vector<std::size_t>{12}, {2, 3, 4}, {}}) {
      write_npy(files / "seed", make_tensor(dtype, shape));
      seeds.push_back(bytes_of(files / "seed"));
    }
  }
  return seeds;
}

void read_damaged_npy(const std::string& bytes, const Files& files, Random& random) {
  const std::optional<DType> dtypes[] = {std::nullopt, DType::fp16, DType::bf16, DType::fp32};
  const Tensor tensor = read_npy(files.write("in.npy", bytes), random.pick(dtypes));
  require(byte_count(tensor.dtype, tensor.shape) == tensor.data.size(),
          "its shape has other bytes");
  require(tensor.data.size() <= bytes.size(), "more data than there are bytes");
}

Texts safetensors_seeds(const Files&) {
  Texts seeds;
  for (
      const char* json :
      {R"({"x":{"dtype":"F16","shape":[4,8],"data_offsets":[0,64]}}   )",
       R"({"__metadata__":{"made by":"a test"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
       R"("x":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
       R"("b.c":{"dtype":"I64","shape":[6],"data_offsets":[16,64]}})"}) {
    std::string seed(8, '\0');
    seed[0] = static_cast<char>(std::strlen(json));
    seeds.push_back(seed + json + std::string(64, 'd'));
  }
  return seeds;
}

void read_damaged_safetensors(const std::string& bytes, const Files& files, Random&) {
  const fs::path path = files.write("in.safetensors", bytes);
  for (const SafetensorsEntry& entry : list_safetensors(path)) {
    const Tensor tensor = read_safetensors(path, entry.name);
    require(tensor.data.size() <= bytes.size(), "more data than there are bytes");
  }
}

/// A network that could be read computes something.
void run_network(const models::LoadedModel& model) {
  const std::vector<models::TokenId> ids(5, 0);
  const auto hidden = model.network.run(ids, nullptr, 1);
  require(hidden.size() == ids.size() * model.network.shape.hidden, "states of another size");
}

void read_damaged_gguf(const std::string& bytes, const Files& files, Random&) {
  const models::LoadedModel model = models::load_model(files.write("in.gguf", bytes).string());
  run_network(model);
  (void)model.tokenizer->encode("abcab", "the text");
}

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1,
"num_key_value_heads": 1, "head_dim": 2, "intermediate_size": 2, "vocab_size": 2, "rms_norm_eps": 1e-5,
"tie_word_embeddings": true, "rope_theta": 100.0, "max_position_embeddings": 64, "rope_scaling":
{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
"original_max_position_embeddings": 32}})";

/// The weights that kConfig asks for.
std::string weights_of_folder() {
  std::string header;
  std::size_t end = 0;
  const auto add = [&](const std::string& name, const char* shape, std::size_t bytes) {
    header +=
        fmt::format(R"({}"model.{}.weight":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})",
                    header.empty() ? "{" : ",", name, shape, end, end + bytes);
    end += bytes;
  };
  add("embed_tokens", "[2,2]", 16);
  add("norm", "[2]", 8);
  for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
    add(fmt::format("layers.0.{}", name), "[2]", 8);
  }
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    add(fmt::format("layers.0.{}", name), "[2,2]", 16);
  }
  header += "}";
  std::string bytes;
  models::GgufWriter::put<std::uint64_t>(bytes, header.size());
  bytes += header;
  for (std::size_t i = 0; i < end / sizeof(float); ++i) models::GgufWriter::put(bytes, 0.5F);
  return bytes;
}

constexpr const char* kTokenizer =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", ["ab", "a"]],
"ignore_merges": false}, "added_tokens": [{"id": 3, "content": "aba"}], "pre_tokenizer": {"type": "Sequence",
"pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "Split", "behavior": "Isolated",
"pattern": {"Regex": "\\s+|\\p{L}+"}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})";

/// A folder of Hugging Face; `which` of its files is damaged.
Read folder_reader(const char* which) {
  return [which](const std::string& bytes, const Files& files, Random&) {
    files.write("config.json", kConfig);
    files.write("tokenizer.json", kTokenizer);
    const auto weights = files.write("model.safetensors", weights_of_folder());
    files.write(which, bytes);
    const models::LoadedModel model = models::load_model(weights.string());
    run_network(model);
    (void)model.tokenizer->encode("abba", "the text");
  };
}

Texts schedule_seeds(const Files&) {
  Texts seeds;
  for (const Algorithm& algorithm : all_algorithms()) {
    seeds.push_back(
        schedule_to_json(make_schedule(algorithm.name, {.world_size = 4, .elements = 24})).dump());
  }
  return seeds;
}

void read_damaged_schedule(const std::string& bytes, const Files&, Random&) {
  const Schedule schedule = schedule_from_json(bytes);
  const CheckReport report = check(schedule);
  require(report.correct == report.violation.empty(), "a verdict without a reason");
  require(report.violation.find('\n') == std::string::npos, "a violation of two lines");
  if (!report.correct) return;
  const std::string text = schedule_to_json(schedule).dump();
  require(schedule_to_json(schedule_from_json(text)).dump() == text, "it changes when written");
}

const char kStudy[] = R"(title = "One line"
dtype = "fp16"
ranks = [2, 4, 8]
algorithms = "all"
codecs = ["fp16", "qr-q4", "int5-g128"]

[[input]]
name = "activations"
file = "data_tp{ranks}.safetensors"
tensors = ["layer0.ffn_down"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = "64K"

[simulate]
topology = "mi300x-8"
bytes = "64M"
)";

void read_damaged_study(const std::string& bytes, const Files& files, Random&) {
  const lab::Study study = lab::read_study(files.write("in.toml", bytes));
  require(!study.inputs.empty() && !study.ranks.empty() && !study.codecs.empty(), "an empty study");
}

constexpr const char* kCalls = R"(
[[rule]]
collective = "all_reduce"
dtype = "bf16"
to_bytes = "4K"
algorithm = "one_shot"
note = "a \"note\" \\ with \n all \u0007 of it"

[[rule]]
collective = "all_reduce"
dtype = "bf16"
from_bytes = 4096
algorithm = "hierarchical"
group_size = 2
inner_codec = "bf16"
codec = "qr-q4"

[[rule]]
collective = "all_gather"
algorithm = "all_gather"
codec = "qr-q8"
)";

void read_damaged_calls(const std::string& bytes, const Files& files, Random&) {
  const auto table = kernels::CallTable::read(files.write("in.toml", bytes));
  const std::string text = kernels::to_toml(table);
  require(kernels::to_toml(kernels::CallTable::parse(text, "itself")) == text,
          "a table that is written is another one");
}

Texts topology_seeds(const Files&) {
  Texts seeds;
  for (const fs::directory_entry& file :
       fs::directory_iterator(fs::path(ARLAB_SOURCE_DIR) / "sim/topology/machines")) {
    if (file.path().extension() == ".toml") seeds.push_back(bytes_of(file.path()));
  }
  seeds.push_back(to_toml(find_topology("fat_tree:16")));
  seeds.push_back(
      "base = \"h200-8\"\nname = \"mine\"\nkind = \"fat_tree\"\ninside = \"mesh\"\n"
      "group_size = { value = 4, source = \"assumed\", note = \"n\" }\n"
      "leaf_servers = { value = 1, source = \"assumed\", note = \"n\" }\n"
      "nics = { value = 2, source = \"assumed\", note = \"n\" }\n"
      "[pcie]\nbandwidth_gb_per_s = { value = 9, source = \"assumed\", note = \"n\" }\n"
      "latency_us = { value = 1, source = \"assumed\", note = \"n\" }\n"
      "[nic]\nbandwidth_gb_per_s = { value = 9, source = \"assumed\", note = \"n\" }\n"
      "latency_us = { value = 1, source = \"assumed\", note = \"n\" }\n"
      "[uplink]\nbandwidth_gb_per_s = { value = 9, source = \"assumed\", note = \"n\" }\n"
      "latency_us = { value = 1, source = \"assumed\", note = \"n\" }\n");
  Topology graph = machine(TopologyKind::graph, 4);
  graph.switches = 2;
  graph.link_types = {{"pcie", assumed(10), assumed(1)}};
  graph.domains = {{"upstream", assumed(5)}};
  graph.edges = {{{true, 0}, {true, 1}, "pcie", "", true}};
  for (Rank rank = 0; rank < 4; ++rank) {
    graph.edges.push_back(
        {{false, rank}, {true, rank / 2}, "pcie", rank == 0 ? "upstream" : "", true});
  }
  graph.faults = {{{true, 0}, {true, 1}, 0.5, "cable"}};
  graph.stragglers = {{3, assumed(12.5)}};
  seeds.push_back(to_toml(graph));
  std::sort(seeds.begin(), seeds.end());  // folders have no order
  return seeds;
}

/// Checks properties of every machine, wherever it comes from.
void require_readable(const Topology& topology) {
  require(topology.ranks.value >= 1, "no ranks");
  constexpr std::size_t kManyEdges = 1000;  // as text they take more than a case may
  if (topology.edges.size() > kManyEdges) return;
  require(parse_topology(to_toml(topology), "again") == topology, "it changes when written");
}

/// A machine that could be read takes a time, or says why not.
void read_damaged_topology(const std::string& bytes, const Files& files, Random& random) {
  const Topology topology = parse_topology(bytes, "in.toml", files / "");
  require(!topology.name.empty(), "no name");
  require_readable(topology);
  static const CodecPtr codec = find_codec("qr-q4");
  const Texts algorithms = {"two_shot", "all_to_all", "hierarchical_pipelined"};
  const Rank ranks = std::min<Rank>(topology.ranks.value, 6);
  const ScheduleRequest request{.world_size = ranks,
                                .elements = std::uint64_t{20480} * ranks,
                                .alignment = codec->info().alignment};
  const SimulationResult r =
      simulate({find_algorithm(random.pick(algorithms)), request, *codec, DType::fp16, topology});
  require(std::isfinite(r.latency_us) && r.latency > 0, "a time that is none");
  require(!r.bottleneck.empty(), "no bottleneck");
  for (const LinkClassUse& use : r.links) require(use.utilisation <= 1 + 1e-6, "more than full");
}

Texts seeds_in(const char* folder) {
  Texts seeds;
  for (const fs::directory_entry& file :
       fs::directory_iterator(fs::path(ARLAB_SOURCE_DIR) / folder)) {
    seeds.push_back(bytes_of(file.path()));
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

void import_damaged(const std::string& bytes, const Files&, Random& random) {
  ImportOptions options;
  if (random.one_in(3)) options.servers = static_cast<Rank>(1 + random.below(3));
  require_readable(import_topology(bytes, "in", options));
}

void read_damaged_program(const std::string& bytes, const Files&, Random&) {
  const bool is_xml = bytes.starts_with('<');
  const WrittenSchedule written =
      is_xml ? schedule_from_msccl(bytes) : written_schedule_from_json(bytes);
  const CheckReport report = check(written.at(24 * written.as_written().world_size, 1));
  require(report.correct == report.violation.empty(), "a verdict without a reason");
}

const char kBench[] =
    "# made by a test\n"
    "platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library\n"
    "cuda,NVIDIA H200,2,two_shot,qr-q4,fp16,1048576,17.5,arlab\n"
    "cuda,h200,4,one_shot,fp16,fp16,65536,9,arlab\n"
    "cuda,\"h200\",4,all_reduce,bf16,bf16,65536,21.25,nccl\n"
    "cuda,h200,4,multimem,bf16,bf16,65536,7,torch_symm_mem\n"
    "host,\"my \"\"own\"\", here\",2,ring,int5-g128,fp16,4096,1e3,arlab\n";

void read_damaged_bench(const std::string& bytes, const Files& files, Random&) {
  const fs::path path = files.write("in.csv", bytes);
  const BenchFiles read = read_bench_files({&path, 1});
  for (const Measurement& cell : read.measurements.cells) {
    require(std::isfinite(cell.value) && cell.value > 0 && cell.bytes > 0, "a time that is none");
    require(cell.table < read.measurements.tables.size(), "a cell of no table");
  }
}

const char kLog[] =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg "
    "iters: 1\n"
    "[1,0]<stdout>:#  Rank  0 Group  0 Pid 1 on a device  0 [0000:01:00] NVIDIA H200\n"
    "#  Rank  1 Group  0 Pid 1 on a device  1 [0000:02:00] NVIDIA H200\n"
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp\n"
    "  1048576  524288  half  sum  -1  10.00  104.86  104.86  0  9.50  110.38  110.38  N/A\n"
    "  2097152  524288  float  none  -1  20.00  104.86  104.86  0  2026-11-30 06:00:00\n";
const char kJsonLog[] =
    R"({"version": 3, "args": ["a/all_reduce_perf"], "nccl_version": 22809,
"config": {"nthreads": 1, "ngpus": 2, "devices": [{"rank": 0, "group": 0, "hostname": "a", "device_info": "b"}]},
"results": [{"size": 8, "count": 4, "type": "half", "redop": "sum", "root": "-1", "in_place": null,
"out_of_place": {"time": 8.0, "alg_bw": 0.001, "bus_bw": 0.001, "nwrong": 0.0}}]})";
const char kRecords[] =
    "numCycle, name, nodes, ranks, ranksPerNode, gpusPerRank, size, type, redop, inPlace, time, "
    "algBw, busBw, wrong\n"
    "0, AllReduce, 1, 2, 2, 1, 1048576, half, sum, 0, 10, 104.8576, 104.8576, 0\n";

void read_damaged_log(const std::string& bytes, const Files&, Random&) {
  (void)is_nccl_log(bytes);
  for (const LoggedRun& run : parse_nccl_log(bytes, "in.log").runs) {
    require(run.ranks >= 2 && !run.times.empty(), "a run of nobody");
    for (const LoggedTime& time : run.times) {
      const double us = time.out_of_place_us.value_or(time.in_place_us.value_or(0));
      require(std::isfinite(us) && us > 0 && time.bytes > 0, "a time that is none");
    }
  }
}

const char kTables[] = R"(
[[tables]]
name = "mine"
file = "table.csv"
source = "published"
quantity = "latency_us"
dtype = "fp16"
topology = "mi300x-2"
rows_are = "bytes"
[tables.columns]
fp16 = { algorithm = "two_shot", codec = "fp16" }
q4 = { algorithm = "one_shot", codec = "qr-q4", library = false }

[[tables]]
name = "machines"
file = "machines.csv"
source = "measured"
quantity = "algbw_gb_per_s"
dtype = "bf16"
bytes = "64M"
rows_are = "machines"
[tables.rows]
a = { topology = "h200-8" }
b = { topology = "a100-8", algorithm = "ring" }
[tables.columns]
bf16 = { algorithm = "two_shot", codec = "bf16" }

[[fits]]
name = "fit"
tables = ["mine", "machines"]
shared = ["overhead.launch_us"]
own = ["link.bandwidth_gb_per_s"]
chosen = 1
[[fits.hold_outs]]
name = "some"
tables = ["mine"]
rows = "odd"
)";
const char kTable[] = "# a paper\nbytes,fp16,q4\n64K,12.5,9\n1M,30,\n4096,7,6.5\n";
const char kMachinesTable[] = "machine,bf16\na,100\nb,50.5\n";

/// Either the description is damaged, or one of its tables.
void read_damaged_tables(const std::string& bytes, const Files& files, const char* which) {
  files.write("tables.toml", kTables);
  files.write("table.csv", kTable);
  files.write("machines.csv", kMachinesTable);
  files.write(which, bytes);
  const Measurements read = read_measurements(files / "tables.toml");
  for (const Measurement& cell : read.cells) {
    require(std::isfinite(cell.value) && cell.value > 0 && cell.bytes > 0, "a number that is none");
    require(cell.table < read.tables.size(), "a cell of no table");
  }
}

// ---- the wire

/// Every codec of the list and some members more, with every dtype that it takes.
std::vector<std::pair<CodecPtr, DType>> all_wires() {
  Texts names = listed_codecs();
  names.insert(names.end(), {"int3-g40-sr", "int7-g8-sym", "had-int6-g64", "int8-g1000-sym",
                             "int8-gtensor-sym-static0.05", "logfmt6-g128"});
  std::vector<std::pair<CodecPtr, DType>> wires;
  for (const std::string& name : names) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : codec->info().dtypes) wires.emplace_back(codec, dtype);
  }
  return wires;
}

std::vector<std::byte> payload_of(DType dtype, std::size_t elements) {
  return make_synthetic("adversarial:seed=1", dtype, 1, elements).data;
}

/// Foreign bytes decode, and add, to the same bits with vectors as without.
void decode_damaged(const std::string& bytes, const Files&, Random& random) {
  static const auto wires = all_wires();
  const auto& [codec, dtype] = random.pick(wires);
  std::size_t elements = random.below(bytes.size() / 2 + 40);
  if (random.one_in(4)) {
    elements = codec->elements_of_wire(dtype, bytes.size());
    require(codec->wire_bytes(dtype, elements) == bytes.size(), "elements_of_wire is wrong");
  }
  std::vector<std::byte> wire(codec->wire_bytes(dtype, elements));
  for (std::size_t i = 0; i < wire.size() && !bytes.empty(); ++i) {
    wire[i] = static_cast<std::byte>(bytes[i % bytes.size()]);
  }
  const CodecPtr vectors = accelerated(codec);
  std::vector<std::byte> scalar(elements * size_of(dtype));
  std::vector<std::byte> fast(scalar.size());
  codec->decode(dtype, wire, scalar);
  vectors->decode(dtype, wire, fast);
  if (scalar != fast) throw std::logic_error(codec->name() + " decodes otherwise with vectors");
  scalar = payload_of(dtype, elements);
  fast = scalar;
  codec->decode_add(dtype, wire, scalar);
  vectors->decode_add(dtype, wire, fast);
  if (scalar != fast) throw std::logic_error(codec->name() + " adds otherwise with vectors");
  if (wire.empty()) return;
  wire.pop_back();
  try {
    codec->decode(dtype, wire, scalar);
  } catch (const InvalidInput&) {
    return;
  }
  throw std::logic_error(codec->name() + " takes a wire that is too short");
}

Texts wire_seeds(const Files&) {
  Texts seeds = {std::string(64, '\xff'), std::string(64, '\0')};
  for (const char* name : {"fp16", "qr-q4", "qr-fp8", "int2-g32-sr", "logfmt4-g32", "mxfp4"}) {
    const CodecPtr codec = find_codec(name);
    std::vector<std::byte> wire(codec->wire_bytes(DType::fp16, 300));
    codec->encode(DType::fp16, payload_of(DType::fp16, 300), wire);
    seeds.emplace_back(reinterpret_cast<const char*>(wire.data()), wire.size());
  }
  return seeds;
}

Read tables_reader(const char* which) {
  return [which](const std::string& bytes, const Files& files, Random&) {
    read_damaged_tables(bytes, files, which);
  };
}

std::function<Texts(const Files&)> only(const char* seed) {
  return [seed](const Files&) { return Texts{seed}; };
}

std::vector<Format> all_formats() {
  const auto published = [](const Files&) {
    return Texts{kTables, bytes_of_tree("experiments/published/validation.toml")};
  };
  return {
      {"npy", 20'000, npy_seeds, read_damaged_npy, std::size_t{1} << 20, "in.npy: "},
      {"safetensors", 20'000, safetensors_seeds, read_damaged_safetensors, std::size_t{1} << 20,
       "in.safetensors: "},
      {"gguf", 5'000, [](const Files&) { return Texts{models::tiny_gguf()}; }, read_damaged_gguf},
      {"config", 2'000, only(kConfig), folder_reader("config.json")},
      {"tokenizer", 2'000, only(kTokenizer), folder_reader("tokenizer.json")},
      {"schedule", 20'000, schedule_seeds, read_damaged_schedule},
      {"study", 5'000, only(kStudy), read_damaged_study},
      {"calls", 5'000, only(kCalls), read_damaged_calls},
      {"topology", 10'000, topology_seeds, read_damaged_topology, std::size_t{256} << 20},
      {"import", 10'000, [](const Files&) { return seeds_in("tests/sim/imports"); },
       import_damaged},
      {"msccl", 10'000, [](const Files&) { return seeds_in("tests/collectives/msccl"); },
       read_damaged_program, std::size_t{256} << 20},
      {"mscclpp", 10'000, [](const Files&) { return seeds_in("tests/collectives/mscclpp"); },
       read_damaged_program, std::size_t{256} << 20},
      {"bench", 1'000, only(kBench), read_damaged_bench},
      {"log", 5'000, [](const Files&) { return Texts{kLog, kJsonLog, kRecords}; },
       read_damaged_log},
      {"tables", 5'000, published, tables_reader("tables.toml")},
      {"table", 5'000, only(kTable), tables_reader("table.csv")},
      {"wire", 20'000, wire_seeds, decode_damaged}};
}

// ---- cases

constexpr unsigned kMostSeconds = 60;  // for a case: more is a hang
constexpr std::size_t kMostCharacters = 1000;

struct Options {
  std::string format;
  std::uint64_t seed = 1;
  std::uint64_t first = 0;
  std::optional<std::uint64_t> cases;
  double seconds = 0;
  std::string write;
};

/// The running case, for a report by the end of the program: a crash, a hang, a sanitizer.
char running[200] = "no case\n";

void say_what_runs() {
  if (::write(STDERR_FILENO, running, std::strlen(running)) < 0) return;
}

extern "C" void on_fatal_signal(int number) {
  say_what_runs();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

/// Empty when the message is one clear line.
std::string fault_of(std::string_view message) {
  if (message.empty()) return "an empty message";
  if (message.size() > kMostCharacters) return "a message that is too long";
  if (message.find("internal error") != std::string_view::npos) return "an internal error";
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "a control character";
  }
  return {};
}

struct Outcome {
  std::uint64_t read = 0;
  std::uint64_t refused = 0;
  std::string refusal;  ///< the last one
};

/// Returns the reader's mistake, if it makes one.
std::string run_case(const Format& format, const std::string& bytes, const Files& files,
                     Random& random, Outcome& outcome) {
  const std::size_t before = most_taken = taken;
  std::string fault;
  try {
    format.read(bytes, files, random);
    ++outcome.read;
  } catch (const InvalidInput& error) {
    ++outcome.refused;
    outcome.refusal = error.what();
    fault = fault_of(error.what());
    if (outcome.refusal.find(format.file) == std::string::npos) fault = "the file is not named";
    if (!fault.empty()) fault += fmt::format(": {}", quote(error.what()));
  } catch (const std::exception& error) {
    fault = fmt::format("{}: {}", typeid(error).name(), error.what());
  }
  if (fault.empty() && kCountsMemory && most_taken - before > format.most_memory) {
    fault = fmt::format("it took {} bytes of memory", most_taken - before);
  }
  return fault;
}

/// Says whether nothing was wrong.
bool run_format(const Format& format, const Options& options) {
  const Files files;
  const Texts seeds = format.seeds(files);
  const Texts words = words_of(seeds);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const std::uint64_t cases = options.cases.value_or(format.cases);
  Outcome outcome;
  std::uint64_t number = options.first;
  const auto goes_on = [&] {
    return options.seconds > 0 ? seconds() < options.seconds : number < options.first + cases;
  };
  for (; goes_on(); ++number) {
    fmt::format_to_n(running, sizeof running - 1,
                     "while it ran: fuzz {} --seed {} --first {} --cases 1\n{}", format.name,
                     options.seed, number, '\0');
    ::alarm(kMostSeconds);
    std::seed_seq words_of_seed{options.seed, number, static_cast<std::uint64_t>(format.name[0])};
    std::uint32_t start_of_case[2];
    words_of_seed.generate(start_of_case, start_of_case + 2);
    Random random(start_of_case[0] | std::uint64_t{start_of_case[1]} << 32);
    std::string bytes = random.pick(seeds);
    for (std::size_t changes = 1 + random.below(4); changes > 0; --changes) {
      damage(bytes, seeds, words, random);
    }
    if (!options.write.empty()) std::ofstream(options.write, std::ios::binary) << bytes;
    const std::string fault = run_case(format, bytes, files, random, outcome);
    if (fault.empty()) continue;
    fmt::print(stderr, "{}: {}\n{}", format.name, fault, running);
    return false;
  }
  ::alarm(0);
  fmt::print("{}: {} read, {} refused, {:.1f} s\n", format.name, outcome.read, outcome.refused,
             seconds());
  if (cases == 1 && outcome.refused == 1) fmt::print("{}\n", outcome.refusal);
  // Refusing everything, or nothing, would be no test.
  const bool tells = number - options.first < 1000 || (outcome.read > 0 && outcome.refused > 0);
  if (!tells) fmt::print(stderr, "{}: all cases end alike\n", format.name);
  return tells;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--")) {
      options.format = name;
      continue;
    }
    if (++i == argc) fail("{} needs a value", name);
    if (name == "--seed") {
      options.seed = std::strtoull(argv[i], nullptr, 10);
    } else if (name == "--first") {
      options.first = std::strtoull(argv[i], nullptr, 10);
    } else if (name == "--cases") {
      options.cases = std::strtoull(argv[i], nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[i], nullptr);
    } else if (name == "--write") {
      options.write = argv[i];
    } else {
      fail("unknown option {}; allowed are --seed, --first, --cases, --seconds, --write", name);
    }
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(say_what_runs);
  std::signal(SIGALRM, on_fatal_signal);
#else
  for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    std::signal(number, on_fatal_signal);
  }
#endif
  bool is_good = true;
  bool found = false;
  for (const Format& format : all_formats()) {
    if (!options.format.empty() && options.format != format.name) continue;
    found = true;
    is_good = run_format(format, options) && is_good;
  }
  if (!found) fail("no format {}", quote(options.format));
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace arlab

int main(int argc, char** argv) {
  try {
    return arlab::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fuzz: {}\n", error.what());
    return 2;
  }
}
