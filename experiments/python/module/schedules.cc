// Schedules, the builder that writes them, and algorithms that are written in Python.

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule_builder.h"
#include "reference/collectives/schedule_json.h"
#include "reference/words.h"
#include "sim/library/library_plan.h"

namespace arlab::python {

namespace {

/// Returns the alignment of the codec, which may be empty, and of the options' inner one.
std::uint64_t alignment_of(const std::string& codec, lab::CollectiveSpec& asked) {
  const CodecPtr outer = codec.empty() ? nullptr : find_codec(split_codecs(codec, asked.options));
  const CodecPtr inner = asked.inner(outer);
  return inner == nullptr ? 1 : Codecs(outer ? *outer : *inner, *inner).alignment();
}

Schedule make(const nb::object& algorithm, std::uint32_t ranks, std::uint64_t elements,
              const std::string& codec, const nb::dict& options) {
  lab::CollectiveSpec asked = collective_spec(algorithm, options);
  const std::uint64_t alignment = alignment_of(codec, asked);
  return without_python([&] { return asked.make(ranks, elements, alignment); });
}

Schedule make_marked(const std::string& algorithm, std::uint32_t ranks, std::uint64_t elements,
                     const std::string& codec, const nb::dict& options) {
  lab::CollectiveSpec asked = collective_spec(nb::str(algorithm.c_str()), options);
  const std::uint64_t alignment = alignment_of(codec, asked);
  return without_python(
      [&] { return lab::marked_schedule(algorithm, asked.request(ranks, elements, alignment)); });
}

nb::dict check_of(const Schedule& schedule) {
  const CheckReport report = without_python([&] { return check(schedule); });
  nb::dict about;
  about["correct"] = report.correct;
  about["violation"] = report.violation;
  about["ranks_identical"] = report.ranks_identical;
  about["divergence"] = report.divergence;
  return about;
}

std::string json_of(const Schedule& schedule, bool fractions) {
  std::string text;
  write_schedule_json(
      schedule, nlohmann::ordered_json::object(), [&text](std::string_view part) { text += part; },
      fractions ? ChunksAs::fractions : ChunksAs::elements);
  return text;
}

/// The schedule of JSON text: as it is written, or, where it is for any size, at this one.
Schedule from_json(const std::string& text, std::optional<std::uint64_t> elements,
                   std::uint64_t alignment) {
  const WrittenSchedule written = written_schedule_from_json(text);
  if (elements) return written.at(*elements, alignment);
  if (!written.has_size()) fail("the schedule is for tensors of any size: name the elements");
  return written.as_written();
}

std::vector<nb::tuple> chunks_of(const Schedule& schedule) {
  std::vector<nb::tuple> chunks;
  for (const Chunk& chunk : schedule.chunks)
    chunks.push_back(nb::make_tuple(chunk.begin, chunk.end));
  return chunks;
}

/// Turns a builder's mistake in an algorithm into wrong input.
template <class Call>
auto checked(Call call) {
  try {
    return call();
  } catch (const std::logic_error& error) {
    throw InvalidInput(error.what());
  }
}

Collective collective_of(const std::string& name) {
  return member_named(name, "collective", std::span<const Collective>(kCollectives));
}

/// A builder as Python has it: it knows the request that it is for.
struct Builder {
  ScheduleRequest request;
  ScheduleBuilder builder;

  Builder(const std::string& name, const ScheduleRequest& asked, Collective collective)
      : request(asked), builder(name, asked, collective) {}

  ChunkId chunk(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end || end > request.elements) {
      fail("chunk [{}, {}): allowed is begin < end <= {}", begin, end, request.elements);
    }
    return checked([&] { return builder.add_chunk({begin, end}); });
  }
  void require_rank(std::uint32_t rank) const {
    if (rank >= request.world_size) {
      fail("there is no rank {}: allowed is 0 to {}", rank, request.world_size - 1);
    }
  }
};

void register_python_algorithm(const std::string& name, const std::string& summary,
                               const std::string& source, const std::string& collective,
                               bool has_inner_codec, const nb::callable& write,
                               const nb::callable& fingerprint) {
  const auto function = std::make_shared<KeptFunction>(write);
  const Collective wanted = collective_of(collective);
  Algorithm algorithm;
  algorithm.name = name;
  algorithm.summary = summary;
  algorithm.source = source;
  algorithm.collective = wanted;
  if (has_inner_codec) algorithm.options.push_back(inner_codec_option());
  algorithm.write = [name, wanted, function](const ScheduleRequest& request) {
    std::optional<Schedule> schedule;
    call_python(*function, [&](nb::handle python) {
      const nb::object builder = nb::cast(Builder(name, request, wanted));
      python(builder);
      schedule = checked([&] { return nb::cast<Builder&>(builder).builder.finish(); });
    });
    return std::move(*schedule);
  };
  register_algorithm(std::move(algorithm));
  keep_python_fingerprint("algorithm", name, fingerprint);
}

void define_builder(nb::module_& module) {
  nb::class_<Value>(module, "Value",
                    "A value while a schedule is written: what it is and where it is.")
      .def_ro("rank", &Value::rank)
      .def_ro("chunk", &Value::chunk)
      .def_ro("encoded", &Value::encoded);
  nb::class_<Builder>(
      module, "ScheduleBuilder",
      "Writes a schedule, op by op: what a function under @arlab.algorithm gets. chunk() and "
      "split() "
      "name parts of the tensor, input(), encode(), send() and reduce() make values of them, "
      "output() says what a rank ends with; every mistake is an ArgumentError at once.")
      .def("__init__",
           [](Builder* self, const std::string& name, std::uint32_t ranks, std::uint64_t elements,
              std::uint64_t alignment, const std::string& collective) {
             new (self)
                 Builder(name, {.world_size = ranks, .elements = elements, .alignment = alignment},
                         collective_of(collective));
           })
      .def_prop_ro("ranks", [](const Builder& self) { return self.request.world_size; })
      .def_prop_ro(
          "elements", [](const Builder& self) { return self.request.elements; }, "Per rank.")
      .def_prop_ro(
          "alignment", [](const Builder& self) { return self.request.alignment; },
          "Chunks begin and end at multiples of it, or at the end.")
      .def_prop_ro(
          "slot_elements", [](const Builder& self) { return self.builder.slot_elements(); },
          "Of a slot for one rank, where the collective has slots; else of the tensor.")
      .def_prop_ro(
          "group_size",
          [](const Builder& self) {
            return self.request.options.group_size().value_or(
                default_group_size(self.request.world_size));
          },
          "Asked for, or that of the fewest groups of equal size, at least two.")
      .def(
          "split",
          [](const Builder& self, std::uint64_t parts, std::optional<std::uint64_t> begin,
             std::optional<std::uint64_t> end) {
            const Chunk range{begin.value_or(0), end.value_or(self.request.elements)};
            if (parts == 0 || range.begin > range.end || range.end > self.request.elements) {
              fail("split of [{}, {}) into {} parts: allowed are 1 or more, of [0, {})",
                   range.begin, range.end, parts, self.request.elements);
            }
            std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
            for (const Chunk& chunk : self.builder.split(range, parts)) {
              ranges.emplace_back(chunk.begin, chunk.end);
            }
            return ranges;
          },
          nb::arg("parts"), nb::arg("begin") = nb::none(), nb::arg("end") = nb::none(),
          "Cuts [begin, end), by default the tensor, into nearly equal ranges at multiples of the "
          "alignment; those at the end are empty when there is too little to share.")
      .def("chunk", &Builder::chunk, nb::arg("begin"), nb::arg("end"),
           "Makes a range of elements a chunk.")
      .def(
          "at_step", [](Builder& self, std::uint32_t step) { self.builder.at_step(step); },
          nb::arg("step"),
          "The step of all ops that follow. What is sent in a step is used in a later one.")
      .def(
          "input",
          [](Builder& self, std::uint32_t rank, ChunkId chunk) {
            self.require_rank(rank);
            return self.builder.input(rank, chunk);
          },
          nb::arg("rank"), nb::arg("chunk"), "What a rank starts with.")
      .def(
          "encode",
          [](Builder& self, const Value& value, bool inner) {
            const CodecRole role = inner ? inner_role(self.request.options) : CodecRole::outer;
            return checked([&] { return self.builder.encode(value, role); });
          },
          nb::arg("value"), nb::arg("inner") = false,
          "`inner`: with the codec of messages inside groups, where one is named.")
      .def(
          "send",
          [](Builder& self, const Value& value, std::uint32_t to) {
            self.require_rank(to);
            return checked([&] { return self.builder.send(value, to); });
          },
          nb::arg("value"), nb::arg("to"),
          "The same bytes at another rank; a value that is there already does not move.")
      .def(
          "reduce",
          [](Builder& self, const std::vector<Value>& values, bool from_zero) {
            if (values.empty()) fail("reduce of no values: allowed is 1 or more");
            return checked([&] {
              return self.builder.reduce(values, from_zero ? Start::zero : Start::first);
            });
          },
          nb::arg("values"), nb::arg("from_zero") = true,
          "The sum of values that are on one rank, in this order, from +0 or from the first on.")
      .def(
          "output",
          [](Builder& self, const Value& value, std::optional<std::uint64_t> begin) {
            checked([&] {
              begin ? self.builder.output(value, *begin) : self.builder.output(value);
              return 0;
            });
          },
          nb::arg("value"), nb::arg("begin") = nb::none(),
          "The value ends in its rank's output, at its chunk's place or from element `begin` on.")
      .def("finish", [](Builder& self) { return checked([&] { return self.builder.finish(); }); });
}

}  // namespace

void define_schedules(nb::module_& module) {
  nb::class_<Schedule>(module, "Schedule")
      .def(nb::init<const Schedule&>())
      .def_ro("algorithm", &Schedule::algorithm)
      .def_ro("ranks", &Schedule::world_size)
      .def_ro("elements", &Schedule::elements)
      .def_ro("alignment", &Schedule::alignment)
      .def_prop_ro("collective",
                   [](const Schedule& s) { return std::string(name_of(s.collective)); })
      .def_prop_ro("steps",
                   [](const Schedule& s) { return s.ops.empty() ? 0 : s.ops.back().step + 1; })
      .def_prop_ro("ops", [](const Schedule& s) { return s.ops.size(); })
      .def_prop_ro("chunks", chunks_of)
      .def("check", check_of)
      .def("volume",
           [](const Schedule& s, std::uint32_t group_size) {
             const Volume volume = volume_of(s, group_size);
             return nb::make_tuple(volume.total, volume.cross_group);
           })
      .def("to_json", json_of);
  module.def("make_schedule", make);
  module.def("make_marked_schedule", make_marked);
  module.def("schedule_from_json", from_json, nb::arg("text"), nb::arg("elements").none(),
             nb::arg("alignment"));
  module.def("default_group_size", [](Rank ranks) { return default_group_size(ranks); });
  module.def("algorithm_options", [](const std::string& algorithm) {
    nb::list options;
    for (const Field& field : find_simulated_algorithm(algorithm).options) {
      options.append(description(field, field.otherwise));
    }
    return options;
  });
  module.def("check_options", [](const std::string& algorithm, const nb::dict& options) {
    lab::CollectiveSpec spec;
    std::vector<BoundField> known;
    for (const Field& option : find_simulated_algorithm(algorithm).options) {
      known.push_back({option, &spec.options});
    }
    set_fields(known, options);
  });
  module.def("algorithms", [] {
    std::vector<std::pair<std::string, std::string>> names;
    for (const Algorithm& algorithm : all_algorithms()) {
      names.emplace_back(algorithm.name, std::string(name_of(algorithm.collective)));
    }
    return names;
  });
  module.def("register_algorithm", register_python_algorithm);
  define_builder(module);
}

}  // namespace arlab::python
