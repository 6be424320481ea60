// Tables and fits: descriptions that are read, and fits that find what made a table. How far the
// simulator is from the published ones, tests/cli/test_validate.py says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "sim/calibration/bench_file.h"
#include "sim/calibration/fit.h"
#include "sim/calibration/machine_text.h"
#include "sim/topology/quantities.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for every test, gone at the end.
class Calibration : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("arlab_calibration_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string refusal(const std::string& description) const {
    return message_of([&] { read_measurements(write("description.toml", description)); });
  }

  fs::path folder_;
};

constexpr const char* kTable = R"(# made by hand
bytes,fp16,q4
65536,10.5,20.25
1M,30,
)";

constexpr const char* kDescription = R"(
[[tables]]
name = "mine"
file = "mine.csv"
source = "measured"
quantity = "latency_us"
dtype = "fp16"
topology = "mi300x-4"
rows_are = "bytes"
[tables.columns]
fp16 = { algorithm = "two_shot", codec = "fp16" }
q4 = { algorithm = "two_shot", codec = "qr-q4" }
[[fits]]
name = "links"
tables = ["mine"]
shared = ["link.bandwidth_gb_per_s"]
own = []
chosen = 2
[[fits.hold_outs]]
name = "one column"
columns = ["q4"]
)";

TEST_F(Calibration, ReadsDescriptionAndTable) {
  write("mine.csv", kTable);
  const Measurements m = read_measurements(write("description.toml", kDescription));
  ASSERT_EQ(m.tables.size(), 1u);
  EXPECT_EQ(m.tables[0].name, "mine");
  EXPECT_EQ(m.tables[0].source, Source::measured);
  ASSERT_EQ(m.cells.size(), 3u);  // an empty cell is none
  EXPECT_EQ(m.cells[1].column, "q4");
  EXPECT_EQ(m.cells[1].codec, "qr-q4");
  EXPECT_EQ(m.cells[1].bytes, 65536u);
  EXPECT_EQ(m.cells[1].value, 20.25);
  EXPECT_EQ(m.cells[2].bytes, 1u << 20);
  const FitDefinition& fit = m.fit("links");
  EXPECT_EQ(fit.chosen, 2u);
  EXPECT_EQ(m.cells_of(fit).size(), 3u);
  EXPECT_FALSE(m.holds_out(fit.hold_outs[0], m.cells[0]));
  EXPECT_TRUE(m.holds_out(fit.hold_outs[0], m.cells[1]));
}

constexpr const char* kList = R"(# made by hand
machine,collective,gpus,bytes,us
a,sum,4,65536,30
a,sum,4,65536,10
a,sum,4,65536,11
a,sum,8,65536,1
b,sum,4,65536,2
a,sum,4,1024,3
a,copy,4,131072,7
a,other,4,131072,8
)";

constexpr const char* kListed = R"(
[[tables]]
name = "mine"
file = "list.csv"
source = "measured"
quantity = "latency_us"
dtype = "fp16"
topology = "h100-4"
rows_are = "cells"
column = "collective"
value = "us"
least_bytes = "2K"
where = { machine = "a", gpus = "4" }
[tables.columns]
sum = { algorithm = "all_reduce", codec = "fp16", library = true }
copy = { algorithm = "all_gather", codec = "fp16", library = true }
)";

TEST_F(Calibration, ReadsListsOfCells) {
  write("list.csv", kList);
  const Measurements m = read_measurements(write("description.toml", kListed));
  ASSERT_EQ(m.cells.size(), 2u);
  EXPECT_EQ(m.cells[0].column, "sum");
  EXPECT_EQ(m.cells[0].value, 11);  // the median
  EXPECT_EQ(m.cells[0].row_number, 0u);
  EXPECT_EQ(m.cells[1].column, "copy");
  EXPECT_EQ(m.cells[1].bytes, 131072u);
  EXPECT_EQ(m.cells[1].row_number, 1u);
  const CellSimulator simulator(m, m.cells);
  EXPECT_GT(simulator.latency_us(0, simulator.machines().at("h100-4")), 0);

  const std::pair<const char*, const char*> wrong[] = {
      {"column = \"collective\"", "column = \"colour\""},
      {"value = \"us\"", "value = \"ms\""},
      {"gpus = \"4\"", "gpus = \"5\""},
      {"gpus = \"4\"", "gpu = \"4\""},
      {"least_bytes = \"2K\"", "least_bytes = \"two\""}};
  for (const auto& [right, replacement] : wrong) {
    std::string text = kListed;
    refusal(text.replace(text.find(right), std::string(right).size(), replacement));
  }
}

TEST_F(Calibration, WrongDescriptionsAreRefusedInOneLine) {
  struct Case {
    const char* what;
    const char* replacement;
    const char* expected;
  };
  const Case cases[] = {
      {"\"mine.csv\"", "\"other.csv\"", "cannot be read"},
      {"\"measured\"", "\"rumour\"", "allowed are published, measured"},
      {"\"latency_us\"", "\"latency\"", "is 'latency': did you mean 'latency_us'?"},
      {"\"fp16\"\ntopology", "\"fp17\"\ntopology", "fp17"},
      {"rows_are = \"bytes\"", "rows_are = \"sizes\"", "allowed are bytes, machines, cells"},
      {"rows_are = \"bytes\"", "rows_are = \"machines\"", "'bytes' is missing"},
      {"topology = \"mi300x-4\"\n", "", "no topology is given"},
      {"algorithm = \"two_shot\", codec = \"fp16\"", "algorithm = \"two_shots\", codec = \"fp16\"",
       "unknown algorithm 'two_shots'"},
      {"codec = \"qr-q4\"", "codec = \"qr-q5\"", "qr-q5"},
      {"q4 = {", "q5 = {", "there is no column 'q5'"},
      {"tables = [\"mine\"]", "tables = [\"yours\"]", "there is no table 'yours'"},
      {"columns = [\"q4\"]", "columns = \"q4\"", "array of strings"},
      {"columns = [\"q4\"]", "rows = \"third\"", "allowed are odd, even"},
      {"chosen = 2", "chosen = -2", "integer from 0"},
      {"name = \"links\"", "name = \"links\"\ncolour = 1", "unknown key"},
      {"[[fits]]", "[[fit]]", "array of tables"},
  };
  write("mine.csv", kTable);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.replacement);
    std::string text = kDescription;
    const std::size_t at = text.find(c.what);
    ASSERT_NE(at, std::string::npos);
    const std::string message =
        refusal(text.replace(at, std::string(c.what).size(), c.replacement));
    EXPECT_NE(message.find(c.expected), std::string::npos) << message;
  }
}

TEST_F(Calibration, WrongTablesAreRefusedWithTheRow) {
  const std::pair<const char*, const char*> cases[] = {
      {"bytes,fp16,q4\n65536,10.5\n", "row '65536' has 2 cells"},
      {"bytes,fp16,q4\n65536,10.5,fast\n", "'fast' is not a number above 0"},
      {"bytes,fp16,q4\n65536,10.5,-1\n", "'-1' is not a number above 0"},
      {"bytes,fp16,q4\n65536,nan,1\n", "'nan' is not a number above 0"},
      {"bytes,fp16,q4\n64Q,1,1\n", "'64Q' is not a size"},
      {"bytes,fp16,q4\n0,1,1\n", "'0' is not a size"},
      {"bytes,fp16,q4\n99999999999G,1,1\n", "is not a size"},
      {"# nothing\n", "it has no rows"},
  };
  for (const auto& [table, expected] : cases) {
    SCOPED_TRACE(expected);
    write("mine.csv", table);
    const std::string message = refusal(kDescription);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

double quantity(const Topology& topology, const std::string& key) {
  double value = 0;
  for (const NamedQuantity& named : quantities_of(topology)) {
    if (named.key == key) value = named.quantity.value;
  }
  return value;
}

/// A table that the simulator itself made, with other constants.
class OwnTable : public Calibration {
 protected:
  void SetUp() override {
    Calibration::SetUp();
    write("mine.csv", kTable);
    measurements_ = read_measurements(write("description.toml", kDescription));
    measurements_.cells.clear();
    for (const char* codec : {"fp16", "qr-q6", "qr-q4"}) {
      for (std::uint64_t bytes = 1 << 15; bytes <= 1 << 26; bytes *= 4) {
        measurements_.cells.push_back({.row = std::to_string(bytes),
                                       .column = codec,
                                       .topology = "mi300x-4",
                                       .algorithm = "two_shot",
                                       .codec = codec,
                                       .bytes = bytes,
                                       .value = 1});
      }
    }
    Topology truth = find_topology("mi300x-4");
    for (const auto& [key, factor] : kTruth) {
      for_each_quantity(truth, [&, k = key, f = factor](const std::string& name, Quantity& q) {
        if (name == k) q.value *= f;
      });
    }
    const CellSimulator simulator(measurements_, measurements_.cells);
    for (std::size_t i = 0; i < simulator.size(); ++i) {
      measurements_.cells[i].value = simulator.latency_us(i, truth);
    }
  }

  static constexpr std::pair<const char*, double> kTruth[] = {{"link.bandwidth_gb_per_s", 1.3},
                                                              {"overhead.launch_us", 0.7},
                                                              {"device.codec_tile_us_per_op", 1.2}};
  Measurements measurements_;
};

TEST_F(OwnTable, FitFindsTheConstantsThatMadeIt) {
  FitDefinition fit = measurements_.fit("links");
  fit.shared.clear();
  for (const auto& [key, factor] : kTruth) fit.shared.emplace_back(key);
  const CellSimulator simulator(measurements_, measurements_.cells);
  EXPECT_GT(summarize(simulator.simulate_all(simulator.machines())).mape_percent, 10);

  // From every second cell; the others are predicted.
  std::vector<std::size_t> seen;
  for (std::size_t i = 0; i < simulator.size(); i += 2) seen.push_back(i);
  const FitResult fitted = fit_constants(fit, simulator, seen);
  EXPECT_TRUE(fitted.converged);
  ASSERT_EQ(fitted.constants.size(), std::size(kTruth));
  for (std::size_t i = 0; i < std::size(kTruth); ++i) {
    const FittedConstant& constant = fitted.constants[i];
    EXPECT_EQ(constant.key, kTruth[i].first);
    EXPECT_NEAR(constant.value / constant.start, kTruth[i].second, 2e-3) << constant.key;
    EXPECT_LT(constant.sigma_percent, 1) << constant.key;
    EXPECT_EQ(quantity(fitted.machines.at("mi300x-4"), constant.key), constant.value);
  }
  EXPECT_LT(summarize(simulator.simulate_all(fitted.machines)).max_ape_percent, 0.1);
}

TEST_F(OwnTable, WhatNoCellDependsOnIsFrozen) {
  FitDefinition fit = measurements_.fit("links");
  fit.own = {"device.all_to_all_efficiency", "library.simple_us"};
  const CellSimulator simulator(measurements_, measurements_.cells);
  std::vector<std::size_t> all(simulator.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto frozen = [&](bool neutral) {
    std::map<std::string, FittedConstant> by_key;
    for (const FittedConstant& each : fit_constants(fit, simulator, all, neutral, 1).constants) {
      by_key[each.key] = each;
    }
    EXPECT_EQ(by_key.size(), 3u);
    EXPECT_EQ(by_key.at("link.bandwidth_gb_per_s").frozen, "");
    return by_key.at("library.simple_us");
  };
  // A fit leaves it as the machine has it; a hold-out takes what no held-out cell has said.
  EXPECT_EQ(frozen(false).value, frozen(false).start);
  EXPECT_EQ(frozen(false).frozen, "no cell depends on it: left as it was");
  EXPECT_EQ(frozen(true).value, 1);
  fit.neutral.machines = {"h200-8"};
  EXPECT_EQ(frozen(true).value, quantity(find_topology("h200-8"), "library.simple_us"));
  EXPECT_EQ(frozen(true).frozen, "no cell depends on it: h200-8's");
  fit.neutral.values["library.simple_us"] = 7;
  EXPECT_EQ(frozen(true).value, 7);
}

/// A cell can determine only the sum of two times that always come together.
TEST_F(OwnTable, WhatCellsDoNotTellApartIsFrozenOneByOne) {
  FitDefinition fit = measurements_.fit("links");
  fit.shared = {"link.bandwidth_gb_per_s", "overhead.launch_us", "link.latency_us"};
  const CellSimulator simulator(measurements_, measurements_.cells);
  std::vector<std::size_t> all(simulator.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const FitResult fitted = fit_constants(fit, simulator, all, false, 1);
  std::size_t frozen = 0;
  for (const FittedConstant& each : fitted.constants) {
    const bool is_in_the_sum = each.key != "link.bandwidth_gb_per_s";
    if (!each.frozen.empty()) {
      ++frozen;
      EXPECT_TRUE(is_in_the_sum);
    } else {
      EXPECT_LE(each.sigma_percent, kMostSigmaPercent);
    }
  }
  EXPECT_EQ(frozen, 1u);
  const Uncertainty& known = fitted.machines.at("mi300x-4").uncertainty.value();
  EXPECT_EQ(known.constants.size(), 2u);
  EXPECT_EQ(known.kernels->ranks, std::vector<Rank>{4});
  EXPECT_EQ(known.kernels->least_bytes, 1u << 15);
  EXPECT_EQ(known.kernels->algorithms, std::vector<std::string>{"two_shot"});
  EXPECT_EQ(known.kernels->codecs, (std::vector<std::string>{"fp16", "qr-q4", "qr-q6"}));
  EXPECT_FALSE(known.library.has_value());
  // Two cells tell one constant, with a spread; one cell, even if it is there twice, tells none.
  for (const std::size_t told : {0u, 1u}) {
    const std::vector<std::size_t> few = {0, told};
    const FitResult sparse = fit_constants(fit, simulator, few, false, 1);
    EXPECT_EQ(sparse.converged, told > 0);
    std::size_t fitted_constants = 0;
    for (const FittedConstant& each : sparse.constants) {
      if (each.frozen.empty()) ++fitted_constants;
      EXPECT_TRUE(each.frozen.empty() || each.value == each.start) << each.key;
    }
    EXPECT_EQ(fitted_constants, told);
  }
}

TEST_F(OwnTable, FitRefusesKeysThatNoMachineHas) {
  FitDefinition fit = measurements_.fit("links");
  fit.shared = {"link.colour"};
  const CellSimulator simulator(measurements_, measurements_.cells);
  const std::vector<std::size_t> all = {0};
  EXPECT_THROW(fit_constants(fit, simulator, all), InvalidInput);
  fit.shared.clear();
  fit.own = {"bridge.latency_us"};
  EXPECT_THROW(fit_constants(fit, simulator, all), InvalidInput);
}

TEST(Errors, AreOfTheLatencyAndSummedUp) {
  std::vector<SimulatedCell> cells(4);
  cells[0].error_percent = 1;
  cells[1].error_percent = -3;
  cells[2].error_percent = 8;
  cells[2].measurement = {.row = "1M", .column = "q4", .topology = "box"};
  const ErrorSummary summary = summarize(cells);
  EXPECT_EQ(summary.cells, 4u);
  EXPECT_DOUBLE_EQ(summary.mape_percent, 3);
  EXPECT_DOUBLE_EQ(summary.max_ape_percent, 8);
  EXPECT_EQ(summary.worst, "box, row 1M, q4: +8.0 %");
}

/// Rows of two codecs: measured 10 and 12; the simulator's errors decide which one it picks.
TEST(RankCodecs, CountsRowsWhoseBestIsNearTheFastest) {
  const auto row = [](std::size_t number, double second, double error, TableQuantity quantity) {
    std::vector<SimulatedCell> cells(3);
    cells[0].measurement = {.row_number = number, .column = "a", .value = 10};
    cells[1].measurement = {.row_number = number, .column = "b", .value = second};
    cells[2].measurement = {.row_number = number, .column = "lib", .library = true, .value = 1};
    cells[1].error_percent = error;
    for (SimulatedCell& cell : cells) cell.quantity = quantity;
    return cells;
  };
  const auto ranked = [](const std::vector<SimulatedCell>& cells) {
    const Ranking ranking = rank_codecs(cells);
    EXPECT_EQ(ranking.rows, 1u);
    return std::pair(ranking.exact, ranking.right);
  };
  using Counts = std::pair<std::size_t, std::size_t>;
  const auto us = TableQuantity::latency_us;
  EXPECT_EQ(ranked(row(0, 12, 0, us)), Counts(1, 1));
  EXPECT_EQ(ranked(row(0, 12, -30, us)), Counts(0, 0));    // picks b, 20 % slower
  EXPECT_EQ(ranked(row(0, 10.4, -10, us)), Counts(0, 1));  // picks b, 4 % slower
  // As bandwidth 10 is slower than 12.
  const auto gb = TableQuantity::algbw_gb_per_s;
  EXPECT_EQ(ranked(row(0, 12, 0, gb)), Counts(1, 1));
  EXPECT_EQ(ranked(row(0, 12, 50, gb)), Counts(0, 0));  // picks a
}

TEST(MachineText, ReplacesOneNumberAndKeepsTheRest) {
  const std::string text =
      "# words\n[link]\nlatency_us = { value = 1.0, source = \"assumed\", note = \"value = 3\" }\n"
      "[bridge]\nlatency_us = { value = 2, source = \"assumed\", note = \"n\" }\n";
  std::string expected = text;
  expected.replace(expected.find("value = 2"), 9, "value = 2.5");
  EXPECT_EQ(with_quantity(text, "test", "bridge.latency_us", 2.5), expected);
  EXPECT_THROW(with_quantity(text, "test", "bridge.bandwidth_gb_per_s", 1), InvalidInput);
  EXPECT_THROW(machine_text("full:8"), InvalidInput);
  const std::string machine = machine_text("mi300x-8");
  const std::string changed = with_quantity(machine, "m", "stores.release_us", 0.25);
  EXPECT_EQ(parse_topology(changed, "m").device.stores->release_us.value, 0.25);
  EXPECT_EQ(with_quantity(changed, "m", "stores.release_us",
                          parse_topology(machine, "m").device.stores->release_us.value),
            machine);
}

TEST(MachineText, SaysWhereANewNumberComesFrom) {
  const std::string changed =
      with_quantity(machine_text("a100-8"), "m", "link.bandwidth_gb_per_s",
                    Quantity{123.456, Source::fitted, "a \"file\"\nof \\ mine"});
  const Quantity now = parse_topology(changed, "m").link_type("link").bandwidth_gb_per_s;
  EXPECT_EQ(now.value, 123.46);
  EXPECT_EQ(now.source, Source::fitted);
  EXPECT_EQ(now.note.find('"'), std::string::npos);
  EXPECT_TRUE(now.note.starts_with("a 'file'")) << now.note;
}

TEST(MachineText, SaysWhatIsKnownOfConstants) {
  Uncertainty known{.scatter_percent = 2.5,
                    .note = "first",
                    .constants = {"overhead.launch_us", "link.bandwidth_gb_per_s"},
                    .sigma_percent = {10, 0.5},
                    .correlation = {{}, {-0.25}}};
  const std::string once = with_uncertainty(machine_text("h20-8"), known);
  known.note = "second";
  const std::string twice = with_uncertainty(once, known);
  EXPECT_EQ(twice.size(), once.size() + 1) << "it takes the place of the first";
  const Uncertainty read = *parse_topology(twice, "m").uncertainty;
  EXPECT_EQ(read.note, "second");
  EXPECT_EQ(read.constants, known.constants);
  EXPECT_EQ(read.sigma_percent, known.sigma_percent);
  EXPECT_EQ(read.correlation, known.correlation);
  EXPECT_EQ(read.scatter_percent, known.scatter_percent);
}

// ---------------------------------------------------------------- files of arlab bench

TEST(BenchFiles, FindMachinesByName) {
  EXPECT_EQ(machine_named("h200", 4), "h200-4");
  EXPECT_EQ(machine_named("NVIDIA H200", 2), "h200-2");
  EXPECT_EQ(machine_named("NVIDIA H20", 8), "h20-8");
  EXPECT_EQ(machine_named("AMD Instinct MI300X", 8), "mi300x-8");
  EXPECT_EQ(machine_named("h200-8", 2), "h200-2");
  for (const char* name : {"NVIDIA", "NVIDIA H2", "", "h200-16"}) {
    EXPECT_THROW(machine_named(name, 8), InvalidInput) << name;
  }
  EXPECT_EQ(machines_like("h200-2"), (std::vector<std::string>{"h200-2", "h200-4", "h200-8"}));
}

TEST_F(Calibration, ReadsBenchFilesInAnyOrderOfColumns) {
  const fs::path path = write("h200_allreduce_x.csv",
                              "# H200, a date, a command\n"
                              "bytes,time_us,library,platform,machine,ranks,algorithm,codec,dtype\n"
                              "2097152,20.5,arlab,cuda,h200,8,two_shot,qr-q4,bf16\r\n"
                              "1024,10,nccl,cuda,h200,2,all_reduce,fp16,fp16\n"
                              "2048,11,rccl,cuda,h200,4,ring,fp16,fp16\n"
                              "1024,10,torch_symm_mem,cuda,h200,2,multimem,fp16,fp16\n");
  const BenchFiles bench = read_bench_files({&path, 1});
  const Measurements& m = bench.measurements;
  EXPECT_EQ(bench.left_out, 1u);
  ASSERT_EQ(m.cells.size(), 3u);
  EXPECT_EQ(m.tables[0].name, "h200_allreduce_x: h200-8");
  EXPECT_EQ(m.tables[0].source, Source::measured);
  EXPECT_EQ(m.cells[0].column, "two_shot qr-q4 bf16");
  EXPECT_EQ(m.cells[0].dtype, DType::bf16);
  EXPECT_EQ(m.cells[0].value, 20.5);
  EXPECT_FALSE(m.cells[0].library);
  EXPECT_EQ(m.cells[1].algorithm, "ring");
  EXPECT_TRUE(m.cells[1].library);
  // More GPUs are predicted from the fewest; those in between are not looked at.
  const FitDefinition& fit = m.fit("h200");
  ASSERT_EQ(fit.hold_outs.size(), 2u);
  EXPECT_EQ(fit.hold_outs[0].name, "4 GPUs, fitted on 2");
  EXPECT_TRUE(m.holds_out(fit.hold_outs[0], m.cells[2]));
  EXPECT_TRUE(m.ignores(fit.hold_outs[0], m.cells[0]));
  EXPECT_FALSE(m.ignores(fit.hold_outs[0], m.cells[1]));
  EXPECT_EQ(fit.hold_outs[1].name, "8 GPUs, fitted on 2");
  EXPECT_TRUE(m.ignores(fit.hold_outs[1], m.cells[2]));
}

TEST_F(Calibration, WhatIsTheSameInAllRowsMayBeAComment) {
  const std::string header =
      "# measured on two of them\n# kernels: abc\n# platform: cuda\n# machine: h100-2\n# ranks: "
      "2\n";
  const std::string rows =
      "library,algorithm,codec,wire_bits,sms,bytes,time_us\n"
      "arlab,two_shot,qr-q4,4.5,,1024,10\n"
      "arlab,two_shot,qr-q4,4.5,8,1024,40\n"
      "nccl 2.28.3,all_reduce,bf16,16,,1024,20\n"
      "flashinfer 0.7,one_shot lamport,bf16,16,,1024,5\n";
  const fs::path path = write("times.csv", header + "# dtype: bf16\n" + rows);
  EXPECT_EQ(header_of(path).at("kernels"), "abc");
  const BenchFiles bench = read_bench_files({&path, 1});
  EXPECT_EQ(bench.left_out, 2u) << "a budget, and another library";
  const Measurements& m = bench.measurements;
  ASSERT_EQ(m.cells.size(), 2u);
  EXPECT_EQ(m.cells[0].topology, "h100-2");
  EXPECT_EQ(m.cells[0].dtype, DType::bf16);
  EXPECT_EQ(m.cells[0].value, 10);
  EXPECT_TRUE(m.cells[1].library);
  // Times of the codec determine its instructions, those of others do not.
  const std::vector<std::string>& keys = m.fit("h100").shared;
  EXPECT_EQ(std::ranges::count(keys, "codecs.qr-q4.slots"), 1);
  EXPECT_EQ(std::ranges::count(keys, "codecs.qr-q8.slots"), 0);
  const auto refused = [](const fs::path& file) {
    try {
      read_bench_files({&file, 1});
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(write("a.csv", header + rows)).find("may stand in comments"),
            std::string::npos);
  EXPECT_NE(refused(write("b.csv", header + "# dtype: bf17\n" + rows)).find("bf17"),
            std::string::npos);
}

/// Times that a codec's constants have made say what they were.
TEST_F(Calibration, FindsWhatACodecTakes) {
  Topology truth = find_topology("h100-2");
  for (CodecTimes& codec : truth.device.codecs) {
    if (codec.codec == "int4-g128") codec.slots *= 1.3, codec.cycles *= 0.8;
  }
  Measurements m;
  m.tables = {{"times", "", Source::measured, TableQuantity::latency_us}};
  for (std::uint64_t bytes = 1 << 14; bytes <= 1 << 28; bytes *= 2) {
    m.cells.push_back({.row = std::to_string(bytes),
                       .topology = "h100-2",
                       .algorithm = "two_shot",
                       .codec = "int4-g128",
                       .dtype = DType::bf16,
                       .bytes = bytes,
                       .value = 1});
  }
  const CellSimulator simulator(m, m.cells);
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < m.cells.size(); ++i) {
    all.push_back(i);
    m.cells[i].value = simulator.latency_us(i, truth);
  }
  FitDefinition fit;
  fit.name = "mine";
  fit.shared = {"codecs.int4-g128.cycles", "codecs.int4-g128.slots"};
  const CellSimulator measured(m, m.cells);
  const FitResult result = fit_constants(fit, measured, all);
  ASSERT_EQ(result.constants.size(), 2u);
  EXPECT_NEAR(result.constants[0].value / result.constants[0].start, 0.8, 0.05);
  EXPECT_NEAR(result.constants[1].value / result.constants[1].start, 1.3, 0.05);
  std::string text = to_toml(find_topology("h100-2"));
  text = with_quantity(text, "h100-2", "codecs.int4-g128.slots", 1.25);
  text = with_quantity(text, "h100-2", "codecs.fp16.cycles", 3);
  for (const CodecTimes& codec : parse_topology(text, "h100-2").device.codecs) {
    if (codec.codec == "int4-g128") {
      EXPECT_EQ(codec.slots, 1.25);
    }
    if (codec.codec == "fp16") {
      EXPECT_EQ(codec.cycles, 3);
    }
  }
}

}  // namespace
}  // namespace arlab
