// Encoding and decoding, kernels of platforms, communicators, and the check of any all-reduce.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "experiments/lab/bits/reduction.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "kernels/conformance/all_reduce_check.h"
#include "kernels/conformance/tail_check.h"
#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/call_table.h"
#include "kernels/runtime/platforms.h"
#include "reference/codecs/mistakes.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/memory.h"
#include "reference/words.h"

namespace arlab::python {
namespace {

using namespace arlab::kernels;

void require(const Status& status) {
  if (status.is_refusal()) throw InvalidInput(status.message());
  if (!status.ok()) throw CallFailed(status.message());
}
template <class T>
T value_of(Result<T> result) {
  require(result.status());
  return std::move(result.value());
}

// ---------------------------------------------------------------- the checks of all-reduces and of tails

using Regions = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<2>>;

/// Calls Python with what a call is about and all regions as rows of one array; Python returns why it failed, or nothing.
Status call_function(const nb::callable& function,
                     std::initializer_list<std::pair<const char*, std::size_t>> numbers,
                     std::span<const std::span<std::byte>> regions) {
  const nb::gil_scoped_acquire python;
  const std::size_t ranks = regions.size();
  const std::size_t bytes = regions[0].size();
  auto memory = std::make_unique<std::vector<std::uint8_t>>(ranks * bytes);
  std::vector<std::uint8_t>& rows = *memory;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::memcpy(&rows[rank * bytes], regions[rank].data(), bytes);
  }
  nb::dict about;
  for (const auto& [name, number] : numbers) about[name] = number;
  // Python owns the memory from here on, and may keep it.
  const nb::capsule owner(memory.release(), [](void* pointer) noexcept {
    delete static_cast<std::vector<std::uint8_t>*>(pointer);
  });
  const Regions array(rows.data(), {ranks, bytes}, owner);
  const auto failure = nb::cast<std::string>(function(about, array));
  if (!failure.empty()) return Status::error(failure);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::memcpy(regions[rank].data(), &rows[rank * bytes], bytes);
  }
  return {};
}

using ReportTexts = std::pair<std::string, std::string>;  ///< a report as JSON, and for people

ReportTexts check(const nb::callable& function, int ranks, const std::string& dtype,
                  const std::vector<std::size_t>& lengths, int runs, std::uint64_t seed,
                  bool in_place, const std::string& codec, const std::string& claim) {
  const AllReduceCheckRequest request{.ranks = ranks,
                                      .dtype = parse_dtype(dtype),
                                      .lengths = lengths,
                                      .runs = runs,
                                      .in_place = in_place,
                                      .seed = seed,
                                      .codec = codec,
                                      .claim = claim};
  // Threads of the reference may run codecs that are written in Python.
  const nb::gil_scoped_release others_may_run;
  const auto report = value_of(check_all_reduce(
      [&](const AllReduceCall& call) {
        return call_function(function,
                             {{"elements", call.elements},
                              {"input_at", call.input_at},
                              {"output_at", call.output_at}},
                             call.regions);
      },
      request));
  return {to_json(report).dump(), to_text(report)};
}

ReportTexts check_fused(const nb::callable& function, int ranks, const std::string& dtype,
                        const std::string& tail, const std::vector<std::size_t>& hidden,
                        std::size_t rows, int runs, std::uint64_t seed, bool has_residual_out,
                        const std::string& claim) {
  TailCheckRequest request{.ranks = ranks,
                           .dtype = parse_dtype(dtype),
                           .tail = parse_tail(tail),
                           .hidden = hidden,
                           .rows = rows,
                           .runs = runs,
                           .has_residual_out = has_residual_out,
                           .seed = seed,
                           .claim = claim};
  const nb::gil_scoped_release others_may_run;
  const auto report = value_of(check_tail(
      [&](const TailCall& call) {
        return call_function(function,
                             {{"rows", call.rows},
                              {"hidden", call.hidden},
                              {"eps_bits", std::bit_cast<std::uint32_t>(call.eps)},
                              {"has_residual", call.has_residual ? 1 : 0},
                              {"input_at", call.input_at},
                              {"residual_at", call.residual_at},
                              {"weight_at", call.weight_at},
                              {"normalized_at", call.normalized_at},
                              {"residual_out_at", call.residual_out_at}},
                             call.regions);
      },
      request));
  return {to_json(report).dump(), to_text(report)};
}

// ---------------------------------------------------------------- codecs, of the reference or of a platform

/// Copies of the data that a platform's codec reads and writes: ours, and the device's.
constexpr std::size_t kCopiesOfACall = 2;

nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> encode(
    const std::string& platform, const std::string& codec, const std::string& dtype,
    std::uintptr_t payload, std::size_t elements, const ContextNumbers& numbers,
    std::uintptr_t state) {
  EncodeContext context = context_of(numbers);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  if (state != 0) context.state = {reinterpret_cast<float*>(state), elements};
  const CodecPtr found = find_codec(codec);
  const DType type = parse_dtype(dtype);
  const std::span<const std::byte> values = bytes_at(payload, elements * size_of(type));
  const std::size_t bytes = found->wire_bytes(type, elements);
  require_memory(platform.empty() ? bytes : kCopiesOfACall * (values.size() + bytes),
                 fmt::format("encode of {} elements", elements));
  std::vector<std::byte> wire(bytes);
  require(without_python([&]() -> Status {
    if (!platform.empty()) {
      return value_of(find_platform(platform))->encode(codec, type, values, wire, context);
    }
    accelerated(found)->encode(type, values, wire, nullptr, context);
    return {};
  }));
  wire.resize(found->sent_of(wire).size());
  return array_of(std::move(wire));
}

nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> decode(const std::string& platform,
                                                         const std::string& codec,
                                                         const std::string& dtype,
                                                         std::uintptr_t wire, std::size_t bytes,
                                                         std::size_t elements) {
  const CodecPtr found = find_codec(codec);
  const DType type = parse_dtype(dtype);
  const std::size_t expected = found->wire_bytes(type, elements);
  const bool is_variable = found->info().has_variable_wire;
  if (is_variable ? bytes > expected : bytes != expected) {
    fail("{} bytes of wire: {} elements of {} have {}{}", bytes, elements, codec,
         is_variable ? "at most " : "", expected);
  }
  const std::span<const std::byte> given = bytes_at(wire, bytes);
  std::vector<std::byte> whole(given.begin(), given.end());
  whole.resize(expected);
  if (found->sent_of(whole).size() != bytes && bytes != expected) {
    fail("{} bytes of wire are not what it says it has: {}", bytes, found->sent_of(whole).size());
  }
  const std::size_t room = elements * size_of(type);
  require_memory(platform.empty() ? room : kCopiesOfACall * (bytes + room),
                 fmt::format("decode of {} elements", elements));
  std::vector<std::byte> payload(room);
  require(without_python([&]() -> Status {
    if (!platform.empty()) {
      return value_of(find_platform(platform))->decode(codec, type, whole, payload);
    }
    accelerated(found)->decode(type, whole, payload);
    return {};
  }));
  return array_of(std::move(payload));
}

std::vector<std::string> codecs(const std::string& platform) {
  const Platform* const found = value_of(find_platform(platform));
  std::vector<std::string> names;
  for (const std::string& name : listed_codecs()) {
    if (found->has_codec(name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> platforms() {
  std::vector<std::string> names;
  for (const Platform* platform : built_platforms()) names.emplace_back(platform->name());
  return names;
}

std::string name_of_usual_platform() { return std::string(usual_platform().name()); }

std::string compiler(const std::string& platform) {
  return value_of(value_of(find_platform(platform))->compiler());
}

void add_kernel_folder(const std::string& platform, const std::string& folder) {
  const Status added = value_of(find_platform(platform))->add_kernel_folder(folder);
  if (!added.ok()) fail("kernel_folder: platform {}: {}", platform, added.message());
}

// ---------------------------------------------------------------- communicators

void check_timeout(const char* name, double seconds) {
  if (!(seconds > 0 && seconds <= 1e6)) {
    fail("{} of {} s: allowed are more than 0 and up to 1e6", name, seconds);
  }
}

CommunicatorOptions options_of(int blocks, int sms, std::size_t slot_bytes, double timeout_s) {
  CommunicatorOptions options;
  options.blocks = blocks;
  options.multiprocessors = sms;
  if (slot_bytes != 0) options.slot_bytes = slot_bytes;
  check_timeout("a timeout", timeout_s);
  options.timeout_nanoseconds = static_cast<std::uint64_t>(timeout_s * 1e9);
  return options;
}

std::vector<std::unique_ptr<RankCommunicator>> in_process(const std::string& platform,
                                                          const std::vector<int>& devices,
                                                          int blocks, int sms,
                                                          std::size_t slot_bytes,
                                                          double timeout_s) {
  const CommunicatorOptions options = options_of(blocks, sms, slot_bytes, timeout_s);
  const Platform* const found = value_of(find_platform(platform));
  require_memory(found->team_bytes(devices, options), fmt::format("a team of {}", devices.size()));
  return value_of(found->make_communicators(devices, options));
}

/// The all-gather of PyTorch or of another library: bytes in, a list of bytes out. `raised` keeps its exception.
GatherFunction python_gather(const nb::callable& gather,
                             const std::shared_ptr<std::optional<nb::python_error>>& raised) {
  return [gather, raised](std::string_view mine) -> Result<std::vector<std::string>> {
    const nb::gil_scoped_acquire python;
    try {
      std::vector<std::string> parts;
      for (const nb::handle part : gather(nb::bytes(mine.data(), mine.size()))) {
        const auto bytes = nb::cast<nb::bytes>(part);
        parts.emplace_back(bytes.c_str(), bytes.size());
      }
      return parts;
    } catch (nb::python_error& error) {
      const std::string said = said_by(error);
      raised->emplace(std::move(error));
      return Status::error(fmt::format("gather failed: {}", readable(said)));
    } catch (const nb::cast_error&) {
      return Status::error("gather failed: it must return bytes of every rank");
    }
  };
}

std::unique_ptr<RankCommunicator> join(const std::string& platform, int device,
                                       Result<std::unique_ptr<Bootstrap>> bootstrap,
                                       const CommunicatorOptions& options) {
  const std::unique_ptr<Bootstrap> met = value_of(std::move(bootstrap));
  return value_of(value_of(find_platform(platform))->create_communicator(device, *met, options));
}

/// (address, shape, DLPack's type code and bits, device type, device, whether it may be written to)
/// of a contiguous tensor.
nb::tuple describe(const nb::object& object) {
  nb::ndarray<nb::ro, nb::c_contig> tensor;
  if (!nb::try_cast(object, tensor, false)) throw nb::type_error("no contiguous tensor");
  nb::ndarray<nb::c_contig> writable;
  std::vector<std::size_t> shape;
  for (std::size_t axis = 0; axis < tensor.ndim(); ++axis) shape.push_back(tensor.shape(axis));
  return nb::make_tuple(
      reinterpret_cast<std::uintptr_t>(tensor.data()), shape, static_cast<int>(tensor.dtype().code),
      static_cast<int>(tensor.dtype().bits) * tensor.dtype().lanes, tensor.device_type(),
      tensor.device_id(), nb::try_cast(object, writable, false));
}

CollectiveRequest request_of(const std::string& algorithm, const std::string& codec,
                             const nb::dict& options, const std::string& dtype,
                             std::size_t elements, std::uint64_t seed, const std::string& sum,
                             const std::string& tail) {
  lab::CollectiveSpec spec = collective_spec(nb::str(algorithm.c_str()), options);
  const Sum how = parse_sum(sum);
  lab::give_own(how, spec);
  CollectiveRequest request{.algorithm = algorithm,
                            .codec = codec,
                            .dtype = parse_dtype(dtype),
                            .elements = elements,
                            .options = spec.options,
                            .seed = seed,
                            .sum = how};
  if (!tail.empty()) {
    constexpr std::string_view kAtOwners = "owners:";
    request.tail_at_owners = tail.starts_with(kAtOwners);
    request.tail = parse_tail(tail.substr(request.tail_at_owners ? kAtOwners.size() : 0));
    kernels::require_tail(request, find_algorithm(algorithm).collective);
  }
  return request;
}

/// Where the tensors of a rank's tail are: residual, weight, the residual's output, wire. 0 stands for none.
using TailAddresses = std::array<std::uintptr_t, 4>;
TailTensors tensors_at(const TailAddresses& at) {
  return {address(at[0]), address(at[1]), const_cast<void*>(address(at[2])),
          const_cast<void*>(address(at[3]))};
}

Collective collective_named(const std::string& name) {
  return member_named<Collective>(name, "a collective", kCollectives);
}

/// Returns the table's choice for a call: an algorithm, a codec and options; None without one.
nb::object choice(const CallTable& table, const std::string& collective, const std::string& dtype,
                  std::uint64_t bytes) {
  const TableRule* const rule = table.find(collective_named(collective), parse_dtype(dtype), bytes);
  if (rule == nullptr || rule->algorithm == kByLibrary) return nb::none();
  nb::dict options;
  for (const auto& [name, value] : rule->options) {
    const auto* const number = std::get_if<std::uint64_t>(&value);
    const auto* const flag = std::get_if<bool>(&value);
    options[name.c_str()] = number != nullptr ? nb::object(nb::int_(*number))
                            : flag != nullptr ? nb::object(nb::bool_(*flag))
                                              : nb::object(nb::str(words_of(value).c_str()));
  }
  const nb::object codec =
      rule->codec.empty() ? nb::none() : nb::object(nb::str(rule->codec.c_str()));
  return nb::make_tuple(rule->algorithm, codec, options);
}

void define_table(nb::module_& module) {
  nb::class_<CallTable>(module, "CallTable")
      .def_static("read", &CallTable::read)
      .def_static("parse", [](const std::string& text,
                              const std::string& origin) { return CallTable::parse(text, origin); })
      .def_static("of_words",
                  [](const std::string& words) { return CallTable::parse_words(words, "table"); })
      .def_static("from_environment", &CallTable::from_environment)
      .def("choice", choice, nb::arg("collective"), nb::arg("dtype"), nb::arg("bytes"))
      .def("explain", [](const CallTable& table, const std::string& collective,
                         const std::string& dtype, std::uint64_t bytes) {
        return table.explain(collective_named(collective), parse_dtype(dtype), bytes);
      });
}

void define_communicator(nb::module_& module) {
  // Made once for all calls like it: reading names takes longer than a small call.
  nb::class_<CollectiveRequest>(module, "Request")
      .def("__init__",
           [](CollectiveRequest* self, const std::string& algorithm, const std::string& codec,
              const nb::dict& options, const std::string& dtype, std::size_t elements,
              std::uint64_t seed, const std::string& sum, const std::string& tail) {
             new (self) CollectiveRequest(
                 request_of(algorithm, codec, options, dtype, elements, seed, sum, tail));
           })
      .def_prop_ro("wire_bytes", wire_bytes_of)
      // The tail, where there is one: whether it adds a residual, whether it normalizes, and the length of a row.
      .def_prop_ro("tail", [](const CollectiveRequest& request) {
        const Tail& tail = *request.tail;
        return nb::make_tuple(tail.adds_residual, tail.normalizes, tail.hidden);
      });
  nb::class_<RankCommunicator>(module, "Communicator")
      .def_prop_ro("rank", &RankCommunicator::rank)
      .def_prop_ro("ranks", &RankCommunicator::ranks)
      .def_prop_ro("device", &RankCommunicator::device)
      .def(
          "run",
          [](RankCommunicator& self, const CollectiveRequest& request, std::uintptr_t input,
             std::uintptr_t output, std::uintptr_t stream, const TailAddresses& tail) {
            require(without_python([&] {
              return self.run(request, address(input), const_cast<void*>(address(output)),
                              const_cast<void*>(address(stream)), tensors_at(tail));
            }));
          },
          nb::arg("request"), nb::arg("input"), nb::arg("output"), nb::arg("stream"),
          nb::arg("tail") = TailAddresses{})
      .def("prepare",
           [](RankCommunicator& self, const CollectiveRequest& request) {
             require(without_python([&] { return self.prepare(request); }));
           })
      .def("explain",
           [](RankCommunicator& self, const CollectiveRequest& request) {
             std::string why;
             require(without_python([&]() -> Status {
               Result<std::string> explained = self.explain(request);
               if (explained.ok()) why = explained.value();
               return explained.status();
             }));
             return why;
           })
      .def("room_of_as_sent",
           [](const RankCommunicator& self, const std::string& codec, const std::string& dtype,
              std::size_t elements) {
             return value_of(self.room_of_as_sent(codec, parse_dtype(dtype), elements));
           })
      .def("as_sent",
           [](RankCommunicator& self, const std::string& codec, const std::string& dtype,
              std::size_t elements, std::uintptr_t input, std::uintptr_t room,
              std::uintptr_t output, std::uintptr_t stream) {
             require(without_python([&] {
               return self.as_sent(codec, parse_dtype(dtype), elements, address(input),
                                   const_cast<void*>(address(room)),
                                   const_cast<void*>(address(output)),
                                   const_cast<void*>(address(stream)));
             }));
           })
      .def("set_random_calls",
           [](RankCommunicator& self, std::uint32_t calls) {
             require(without_python([&] { return self.set_random_calls(calls); }));
           })
      .def("synchronize", [](RankCommunicator& self, std::uintptr_t stream) {
        require(
            without_python([&] { return self.synchronize(const_cast<void*>(address(stream))); }));
      });

  module.def("in_process", in_process);
  module.def(
      "run_together",
      [](const std::vector<RankCommunicator*>& ranks, const CollectiveRequest& request,
         const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs,
         const std::vector<std::uintptr_t>& streams, const std::vector<TailAddresses>& tails) {
        std::vector<RankCall> calls;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
          calls.push_back({ranks[rank], address(inputs[rank]),
                           const_cast<void*>(address(outputs[rank])),
                           const_cast<void*>(address(streams[rank])),
                           tails.empty() ? TailTensors{} : tensors_at(tails[rank])});
        }
        require(without_python([&] { return run_together(request, calls); }));
      });
  module.def(
      "from_environment", [](const std::string& platform, int device, int blocks, int sms,
                             std::size_t slot_bytes, double timeout_s, double bootstrap_timeout_s) {
        const CommunicatorOptions options = options_of(blocks, sms, slot_bytes, timeout_s);
        check_timeout("a bootstrap timeout", bootstrap_timeout_s);
        const auto milliseconds = static_cast<std::uint64_t>(std::ceil(bootstrap_timeout_s * 1000));
        const nb::gil_scoped_release others_may_run;
        return join(platform, device, bootstrap_from_environment(milliseconds), options);
      });
  // Ranks that were told the same (`agreed`) meet at a socket of this name.
  module.def("from_meeting", [](const std::string& platform, int device, int blocks, int sms,
                                std::size_t slot_bytes, double timeout_s, double meeting_timeout_s,
                                int rank, int ranks, const std::string& name,
                                const nb::bytes& agreed) {
    const CommunicatorOptions options = options_of(blocks, sms, slot_bytes, timeout_s);
    check_timeout("a meeting's timeout", meeting_timeout_s);
    const auto milliseconds = static_cast<std::uint64_t>(std::ceil(meeting_timeout_s * 1000));
    const std::string mine(agreed.c_str(), agreed.size());
    const nb::gil_scoped_release others_may_run;
    auto bootstrap = socket_bootstrap(rank, ranks, value_of(meeting_folder()), name, milliseconds);
    require(bootstrap.status());
    const std::vector<std::string> told = value_of(bootstrap.value()->all_gather(mine));
    for (std::size_t other = 0; other < told.size(); ++other) {
      if (told[other] == told[0]) continue;
      require(Status::error(fmt::format("rank {} was given other handles than rank 0", other)));
    }
    return join(platform, device, std::move(bootstrap), options);
  });
  module.def("from_gather", [](const std::string& platform, int device, int blocks, int sms,
                               std::size_t slot_bytes, double timeout_s, int rank, int ranks,
                               const nb::callable& gather) {
    const auto raised = std::make_shared<std::optional<nb::python_error>>();
    try {
      return join(platform, device, function_bootstrap(rank, ranks, python_gather(gather, raised)),
                  options_of(blocks, sms, slot_bytes, timeout_s));
    } catch (const CallFailed& failed) {
      if (!*raised) throw;
      if (!(*raised)->matches(PyExc_Exception)) throw nb::python_error(std::move(**raised));
      nb::raise_from(**raised, nb::module_::import_("arlab._errors").attr("Error").ptr(), "%s",
                     failed.what());
      throw nb::python_error();
    }
  });
}

std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

/// Describes the errors of a wire, or of values decoded from one.
template <auto function>
std::string explain(const std::string& codec, const std::string& dtype, const nb::bytes& from,
                    const nb::bytes& got) {
  return function(find_codec(codec), parse_dtype(dtype), span_of(from), span_of(got));
}

}  // namespace

void define_kernels(nb::module_& module) {
  module.def("explain_wire", explain<explain_wire>);
  module.def("explain_values", explain<explain_values>);
  module.def("check_all_reduce", check, nb::arg("function"), nb::arg("ranks"), nb::arg("dtype"),
             nb::arg("lengths"), nb::arg("runs"), nb::arg("seed"), nb::arg("in_place"),
             nb::arg("codec"), nb::arg("claim"));
  module.def("check_tail", check_fused, nb::arg("function"), nb::arg("ranks"), nb::arg("dtype"),
             nb::arg("tail"), nb::arg("hidden"), nb::arg("rows"), nb::arg("runs"), nb::arg("seed"),
             nb::arg("has_residual_out"), nb::arg("claim"));
  module.def("platforms", platforms);
  module.def("usual_platform", name_of_usual_platform);
  module.def("compiler", compiler);
  module.def("add_kernel_folder", add_kernel_folder);
  module.def("kernel_codecs", codecs);
  module.def("encode", encode);
  module.def("decode", decode);
  module.def("devices", [](const std::string& platform) {
    return value_of(value_of(find_platform(platform))->devices());
  });
  module.def("describe", describe);
  define_table(module);
  define_communicator(module);
}

}  // namespace arlab::python
