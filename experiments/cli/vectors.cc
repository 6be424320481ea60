// arlab vectors: golden vectors for somebody else's kernel. For every input a payload, the wire
// bytes that the reference encodes it to, and the payload that these decode to.

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/tensors/npy.h"
#include "reference/tensors/synthetic.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct VectorInput {
  const char* name;
  const char* synthetic;
  std::size_t elements;
};

// Ordinary values; every bit pattern; what breaks kernels; lengths that are not whole atoms or
// blocks.
constexpr VectorInput kInputs[] = {
    {"gaussian", "gaussian:sigma=1,seed=1", 65536},
    {"gaussian_large", "gaussian:sigma=1000,seed=2", 8192},
    {"gaussian_small", "gaussian:sigma=1e-4,seed=3", 8192},
    {"outliers", "outliers:seed=4", 65536},
    {"sweep", "sweep:seed=5", 65536},
    {"adversarial", "adversarial:seed=6", 65536},
    {"patterns", "patterns", 65536},
    {"tail_1", "gaussian:sigma=1,seed=7", 1},
    {"tail_31", "gaussian:sigma=1,seed=8", 31},
    {"tail_2049", "adversarial:seed=9", 2049},
    {"tail_5000", "gaussian:sigma=1,seed=10", 5000},
};

constexpr const char* kReadme =
    "Golden vectors, made by `arlab vectors`.\n"
    "\n"
    "manifest.json lists the cases. For each: NAME.payload.npy (what goes in; bf16 as raw uint16\n"
    "patterns), NAME.wire.bin (the exact wire bytes) and NAME.decoded.npy (what these decode to). "
    "A\n"
    "kernel conforms when its encode gives the wire bytes and its decode the decoded bits: all of "
    "them,\n"
    "no tolerance.\n";

struct VectorsCommand {
  std::string codec;
  std::string folder;
  std::string dtype;
  Format format = Format::table;

  void run() const {
    const CodecPtr c = find_codec(codec);
    std::vector<DType> dtypes = c->info().dtypes;
    if (!dtype.empty()) dtypes = {parse_dtype(dtype)};
    for (const DType type : dtypes)
      c->wire_bytes(type, 1);  // throws when the codec does not take it

    fs::path target = fs::absolute(folder).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();  // "vectors/" is "vectors"
    std::error_code error;
    if (fs::exists(target, error) &&
        !(fs::is_directory(target, error) && fs::is_empty(target, error))) {
      fail("{} exists and is not an empty folder; name a new one", folder);
    }
    require_folder_of(target.string());
    // All or nothing: the files move to their place when all are written.
    const fs::path partial = target.parent_path() / fmt::format(".arlab-vectors-{}", getpid());
    if (!fs::create_directory(partial, error)) {
      fail("cannot make a folder beside {}: {}", folder, error ? error.message() : "it exists");
    }
    try {
      const Report report = write_all(*c, dtypes, partial);
      fs::create_directory(target, error);
      for (const fs::directory_entry& file : fs::directory_iterator(partial)) {
        fs::rename(file.path(), target / file.path().filename());
      }
      fs::remove(partial);
      print(report, format);
    } catch (const fs::filesystem_error& problem) {
      fs::remove_all(partial, error);
      fail("cannot write {}: {}", folder, problem.code().message());
    } catch (const InvalidInput& problem) {
      fs::remove_all(partial, error);
      fail("{}: {}", folder, problem.what());
    } catch (...) {
      fs::remove_all(partial, error);
      throw;
    }
  }

  Report write_all(const Codec& c, const std::vector<DType>& dtypes, const fs::path& into) const {
    Report report{"arlab.vectors/1",
                  {{"codec", c.name()}, {"folder", folder}, {"program", "arlab " ARLAB_VERSION}},
                  "cases",
                  {{"name", "dtype", "input", "elements", "wire_bytes", "clamped"}, {}}};
    for (const DType type : dtypes) {
      for (const VectorInput& input : kInputs) {
        const std::string name = fmt::format("{}_{}", name_of(type), input.name);
        const Tensor made = make_synthetic(input.synthetic, type, 1, input.elements);
        const Tensor payload{type, {input.elements}, made.data};
        std::vector<std::byte> wire(c.wire_bytes(type, input.elements));
        EncodeCounts counts;
        c.encode(type, payload.bytes(), wire, &counts);
        Tensor decoded = make_tensor(type, {input.elements});
        c.decode(type, wire, decoded.bytes());
        write_npy(into / (name + ".payload.npy"), payload);
        write_file(into / (name + ".wire.bin"), {wire});
        write_npy(into / (name + ".decoded.npy"), decoded);
        report.rows.rows.push_back({name, std::string(name_of(type)), input.synthetic,
                                    input.elements, wire.size(), counts.clamped});
      }
    }
    const std::string manifest = render(report, Format::json);
    write_file(into / "manifest.json", {std::as_bytes(std::span(manifest))});
    write_file(into / "README.txt", {std::as_bytes(std::span(std::string_view(kReadme)))});
    return report;
  }
};

}  // namespace

void add_vectors(CLI::App& app) {
  auto command = std::make_shared<VectorsCommand>();
  CLI::App* sub = app.add_subcommand("vectors", "Write golden vectors for somebody else's kernel");
  sub->add_option("--codec", command->codec, "Codec (see arlab list codecs)")->required();
  sub->add_option("--dtype", command->dtype, "One dtype only [all that the codec takes]");
  sub->add_option("OUTDIR", command->folder, "A new or empty folder")->required();
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
