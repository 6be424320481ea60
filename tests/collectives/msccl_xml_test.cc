// Algorithms of MSCCL: two written by hand are all-reduces, and give the bits that they must.

#include "reference/collectives/msccl_xml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

std::string path_of(const char* name) { return fmt::format("{}/{}", ARLAB_MSCCL, name); }

std::string text_of(const char* name) {
  std::ifstream file(path_of(name));
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_message(const std::string& xml, const std::string& expected) {
  expect_contains(message_of([&] { schedule_from_msccl(xml); }), expected);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(Msccl, AreTheAllReducesThatTheySay) {
  for (const char* name : {"ring.xml", "allpairs.xml"}) {
    const WrittenSchedule written = schedule_from_msccl(text_of(name));
    ASSERT_FALSE(written.has_size());
    for (const std::uint64_t elements : {1, 5, 4096, 100'000}) {
      const Schedule schedule = written.at(elements, 32);
      const CheckReport report = check(schedule);
      EXPECT_TRUE(report.correct) << name << ": " << report.violation;
      EXPECT_TRUE(report.ranks_identical) << name << ": " << report.divergence;
      EXPECT_EQ(schedule.collective, Collective::all_reduce);
      EXPECT_EQ(schedule.world_size, 4u);
    }
  }
}

/// As much travels as in our own algorithms, in as many steps.
TEST(Msccl, HaveTheVolumeOfTheirKind) {
  const auto of = [](const Schedule& s) {
    const Volume volume = volume_of(s, 4);
    return std::tuple(volume.total_elements, volume.messages, s.ops.back().step);
  };
  const auto ours = [&](const char* name) {
    return of(make_schedule(name, {.world_size = 4, .elements = 4096}));
  };
  EXPECT_EQ(of(schedule_from_msccl(text_of("ring.xml")).at(4096, 1)), ours("ring"));
  EXPECT_EQ(of(schedule_from_msccl(text_of("allpairs.xml")).at(4096, 1)), ours("two_shot"));
}

/// On data under a codec: the ring adds as ours does, so it gives the same bits.
TEST(Msccl, TheRingGivesTheBitsOfRing) {
  const CodecPtr codec = find_codec("int4-g32");
  const Tensor inputs = make_synthetic("gaussian:sigma=1,seed=1", DType::fp16, 4, 10'000);
  const auto run = [&](const Schedule& schedule) {
    Tensor outputs = make_tensor(inputs.dtype, inputs.shape);
    execute(schedule, *codec, inputs.dtype, inputs.bytes(), outputs.bytes(), {.threads = 1});
    return outputs.data;
  };
  const std::size_t alignment = codec->info().alignment;
  EXPECT_EQ(
      run(schedule_from_msccl(text_of("ring.xml")).at(10'000, alignment)),
      run(make_schedule("ring", {.world_size = 4, .elements = 10'000, .alignment = alignment})));
}

TEST(Msccl, IsAnAlgorithmByItsFile) {
  const Algorithm& algorithm = find_algorithm(path_of("ring.xml"));
  const Schedule schedule = algorithm.write({.world_size = 4, .elements = 64});
  EXPECT_TRUE(check(schedule).correct);
  EXPECT_TRUE(is_schedule_file("a.xml"));
}

/// A program that moves pieces to wrong places is not an all-reduce, and check() says so.
TEST(Msccl, MistakesAreFoundByTheChecker) {
  const std::string ring = text_of("ring.xml");
  const std::pair<const char*, const char*> mistakes[] = {
      {R"(type="rrcs")", R"(type="rcs")"},                               // forgets to add
      {R"(s="6" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1")",  // to a wrong place
       R"(s="6" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="2")"}};
  for (const auto& [right, wrong] : mistakes) {
    const Schedule schedule = schedule_from_msccl(replaced(ring, right, wrong)).at(64, 1);
    EXPECT_FALSE(check(schedule).correct) << wrong;
  }
}

TEST(Msccl, OtherCollectives) {
  const char* gather = R"(<algo name="g" coll="allgather" inplace="1">
    <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
    </tb></gpu>
    <gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
    </tb></gpu></algo>)";
  const Schedule gathered = schedule_from_msccl(gather).at(64, 1);
  EXPECT_TRUE(check(gathered).correct) << check(gathered).violation;
  EXPECT_TRUE(check(gathered).ranks_identical);
  const char* exchange = R"(<algo name="x" coll="alltoall" inplace="0">
    <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1"><tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="1" deps="0"/>
    </tb><tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
    </tb></gpu>
    <gpu id="1" i_chunks="2" o_chunks="2" s_chunks="1"><tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
      <step s="1" type="r" srcbuf="i" srcoff="1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
      <step s="2" type="cpy" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
    </tb></gpu></algo>)";
  const Schedule exchanged = schedule_from_msccl(exchange).at(64, 1);
  EXPECT_TRUE(check(exchanged).correct) << check(exchanged).violation;
}

// ---------------------------------------------------------------- in place

/// A ring of all-gather in the output alone: the input already stands there.
std::string gather_in_place(Rank ranks, std::uint32_t outputs) {
  std::string xml =
      fmt::format(R"(<algo name="g" coll="allgather" inplace="1" ngpus="{}">)", ranks);
  const std::uint32_t parts = outputs / ranks;
  for (Rank rank = 0; rank < ranks; ++rank) {
    xml += fmt::format(
        R"(<gpu id="{}" i_chunks="0" o_chunks="{}" s_chunks="0"><tb id="0" send="{}" recv="{}" chan="0">)",
        rank, outputs, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (Rank round = 0; round < ranks; ++round) {
      const char* type = round == 0 ? "s" : round + 1 == ranks ? "r" : "rcs";
      const std::uint32_t at = (rank + ranks - round) % ranks * parts;
      xml += fmt::format(
          R"(<step s="{}" type="{}" srcbuf="o" srcoff="{}" dstbuf="o" dstoff="{}" cnt="{}" depid="-1" deps="-1"/>)",
          round, type, at, at, parts);
    }
    xml += "</tb></gpu>";
  }
  return xml + "</algo>";
}

TEST(Msccl, AnInputInPlaceIsAPartOfTheOutput) {
  for (const Rank ranks : {2U, 3U, 8U}) {
    for (const std::uint32_t parts : {1U, 2U}) {
      const Schedule s =
          schedule_from_msccl(gather_in_place(ranks, ranks * parts)).at(64 * ranks * parts, 1);
      const CheckReport report = check(s);
      EXPECT_TRUE(report.correct) << report.violation;
      EXPECT_TRUE(report.ranks_identical) << report.divergence;
      EXPECT_EQ(volume_of(s, ranks).messages, ranks * (ranks - 1));
    }
  }
  expect_message(gather_in_place(3, 8),
                 "o_chunks is 8; allowed are multiples of 3 where i_chunks is 0");
  const std::string apart = replaced(gather_in_place(2, 2), R"(inplace="1")", R"(inplace="0")");
  expect_message(apart, "i_chunks is 0; allowed are multiples of 1");
  expect_message(replaced(gather_in_place(2, 2), R"(o_chunks="2")", R"(o_chunks="4")"),
                 "gpu 1: o_chunks is 2, that of others is 4");
}

// ---------------------------------------------------------------- steps that nothing orders

/// Each program is right in the order in which its blocks stand, and races: what is missing is in
/// the second column.
TEST(Msccl, StepsThatNothingOrdersAreRefusedByName) {
  const std::string pairs = text_of("allpairs.xml");
  // The sum takes what another block receives.
  expect_message(replaced(pairs, R"(depid="1" deps="1")", R"(depid="-1" deps="-1")"),
                 "gpu 0, tb 1, step 1 writes scratch 2 of gpu 0 and gpu 0, tb 0, step 3 reads it; "
                 "nothing orders them");
  // Another block sends what is not summed yet.
  expect_message(replaced(pairs, R"(depid="0" deps="4")", R"(depid="-1" deps="-1")"),
                 "gpu 0, tb 1, step 2 reads input 0 of gpu 0 and gpu 0, tb 0, step");
  const auto two_blocks = [](const char* first, const char* second, const char* peer) {
    std::string xml = R"(<algo name="x" coll="allreduce" inplace="1">)";
    for (const char* rank : {"0", "1"}) {
      xml += fmt::format(R"(<gpu id="{}" i_chunks="2" o_chunks="0" s_chunks="2">)", rank);
      const char* other = *rank == '0' ? "1" : "0";
      xml += fmt::format(R"(<tb id="0" send="{0}" recv="{0}" chan="0">{1}</tb>)", other, first);
      xml += fmt::format(R"(<tb id="1" send="{0}" recv="{0}" chan="{2}">{1}</tb></gpu>)", other,
                         second, peer);
    }
    return xml + "</algo>";
  };
  const char* exchange =
      R"(<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1"/>
         <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="1"/>)";
  const auto sum = [](const char* depends) {
    return fmt::format(
        R"(<step s="0" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="2" {}/>)",
        depends);
  };
  const std::string right = two_blocks(exchange, sum(R"(depid="0" deps="1")").c_str(), "1");
  const Schedule schedule = schedule_from_msccl(right).at(64, 1);
  EXPECT_TRUE(check(schedule).correct) << check(schedule).violation;
  // In place, what is sent as input is written as output; and its tb 1 waits for the send alone.
  expect_message(two_blocks(exchange, sum(R"(depid="-1" deps="-1")").c_str(), "1"),
                 "nothing orders them");
  expect_message(two_blocks(exchange, sum(R"(depid="0" deps="0")").c_str(), "1"),
                 "gpu 0, tb 0, step 1 writes scratch 0 of gpu 0 and gpu 0, tb 1, step 0 reads it; "
                 "nothing orders them");
  // The waiting step is never told.
  expect_message(replaced(right, R"(hasdep="1")", R"(hasdep="0")"),
                 "gpu 0, tb 1, step 0 waits for ever: for step 1 of tb 0, whose hasdep is 0");
  // Two blocks at one end of a channel.
  expect_message(two_blocks(exchange, exchange, "0"),
                 "uses channel 0 to gpu 1 and gpu 0, tb 0, step 0 uses it");
  // A block moves pieces on by less than it moves.
  const char* shift =
      R"(<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="i" dstoff="1" cnt="2" depid="-1" deps="-1"/>)";
  std::string wide = two_blocks(shift, "", "1");
  for (int gpu = 0; gpu < 2; ++gpu) wide = replaced(wide, R"(i_chunks="2")", R"(i_chunks="3")");
  expect_message(wide, "gpu 0, tb 0, step 0 writes pieces that it has still to read");
}

/// A small program, its XML, and its truth by going through all orders in which it may run.
struct SmallProgram {
  struct Step {
    std::string type;
    int from = 0;  ///< the first half of the pieces: input, in place output; the others: scratch
    int to = 0;
    int after_block = -1;
    int after_step = -1;
    bool tells = true;
  };
  static constexpr int kGpus = 2;
  static constexpr int kPieces = 8;      ///< pieces per GPU
  int blocks = 0;                        ///< per GPU; block i uses channel i
  std::vector<std::vector<Step>> steps;  ///< [gpu * blocks + block]

  explicit SmallProgram(std::mt19937& random) {
    const auto below = [&random](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    const char* types[] = {"s",    "s",  "r",  "r",   "rcs", "rrs", "rrc",
                           "rrcs", "re", "re", "cpy", "cpy", "nop"};
    blocks = 2 + below(2);
    steps.resize(static_cast<std::size_t>(kGpus * blocks));
    for (std::vector<Step>& block : steps) block.resize(static_cast<std::size_t>(1 + below(3)));
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      for (int b = 0; b < blocks; ++b) {
        for (std::size_t k = 0; k < at(gpu, b).size(); ++k) {
          Step& step = at(gpu, b)[k];
          step = {types[below(13)], below(kPieces), below(kPieces)};
          step.tells = below(20) > 0;
          if (below(3) > 0) continue;
          step.after_block = b > 0 && below(8) > 0 ? below(b) : below(blocks);
          step.after_step = below(static_cast<int>(at(gpu, step.after_block).size()));
        }
      }
    }
    // Most steps that would wait for a message without a sender copy in its place.
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      for (int b = 0; b < blocks; ++b) {
        auto sent = std::ranges::count_if(at(1 - gpu, b), &SmallProgram::sends);
        for (Step& step : at(gpu, b)) {
          if (receives(step) && --sent < 0 && below(8) > 0) step.type = "cpy";
        }
      }
    }
  }

  std::vector<Step>& at(int gpu, int block) {
    return steps[static_cast<std::size_t>(gpu * blocks + block)];
  }

  std::string xml() {
    std::string text = R"(<algo name="small" coll="allreduce" inplace="1">)";
    const auto place = [](const char* what, int piece) {
      return fmt::format(R"({0}buf="{1}" {0}off="{2}")", what,
                         piece < kPieces / 2 ? "io"[piece % 2] : 's', piece % (kPieces / 2));
    };
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      text += fmt::format(R"(<gpu id="{}" i_chunks="4" o_chunks="4" s_chunks="4">)", gpu);
      for (int b = 0; b < blocks; ++b) {
        text += fmt::format(R"(<tb id="{0}" send="{1}" recv="{1}" chan="{0}">)", b, 1 - gpu);
        for (const Step& s : at(gpu, b)) {
          text += fmt::format(R"(<step type="{}" {} {} cnt="1" depid="{}" deps="{}" hasdep="{}"/>)",
                              s.type, place("src", s.from), place("dst", s.to), s.after_block,
                              s.after_step, int{s.tells});
        }
        text += "</tb>";
      }
      text += "</gpu>";
    }
    return text + "</algo>";
  }

  static bool sends(const Step& s) {
    return s.type != "r" && s.type != "rrc" && s.type != "re" && s.type != "cpy" && s.type != "nop";
  }
  static bool receives(const Step& s) { return s.type[0] == 'r' && s.type != "re"; }
  static bool reads(const Step& s, int piece) {
    if (s.type == "nop" || s.type == "r" || s.type == "rcs") return false;
    return s.from == piece || (s.type == "re" && s.to == piece);
  }
  static bool writes(const Step& s, int piece) {
    return s.type != "nop" && s.type != "s" && s.type != "rrs" && s.to == piece;
  }
  static bool conflict(const Step& a, const Step& b) {
    for (int piece = 0; piece < kPieces; ++piece) {
      if (writes(a, piece) && (reads(b, piece) || writes(b, piece))) return true;
      if (reads(a, piece) && writes(b, piece)) return true;
    }
    return false;
  }

  /// So many steps of each block have run: which is the next one, if it may run?
  using State = std::vector<int>;
  const Step* enabled(const State& state, int gpu, int block) {
    const auto done = [&](int g, int b) { return state[static_cast<std::size_t>(g * blocks + b)]; };
    if (done(gpu, block) == static_cast<int>(at(gpu, block).size())) return nullptr;
    const Step& step = at(gpu, block)[static_cast<std::size_t>(done(gpu, block))];
    if (step.after_block >= 0) {
      bool told = false;
      for (int k = step.after_step; k < done(gpu, step.after_block); ++k) {
        told |= at(gpu, step.after_block)[static_cast<std::size_t>(k)].tells;
      }
      if (!told) return nullptr;
    }
    if (!receives(step)) return &step;
    int waiting = 0;
    for (int k = 0; k < done(1 - gpu, block); ++k)
      waiting += sends(at(1 - gpu, block)[static_cast<std::size_t>(k)]);
    for (int k = 0; k < done(gpu, block); ++k)
      waiting -= receives(at(gpu, block)[static_cast<std::size_t>(k)]);
    return waiting > 0 ? &step : nullptr;
  }

  struct Truth {
    bool races = false;
    bool hangs = false;
  };
  Truth truth() {
    Truth truth;
    std::set<State> seen;
    std::vector<State> open = {State(steps.size())};
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      if (!seen.insert(state).second) continue;
      bool moves = false;
      bool ends = true;
      for (int gpu = 0; gpu < kGpus; ++gpu) {
        for (int b = 0; b < blocks; ++b) {
          const auto i = static_cast<std::size_t>(gpu * blocks + b);
          ends &= state[i] == static_cast<int>(steps[i].size());
          const Step* step = enabled(state, gpu, b);
          if (step == nullptr) continue;
          moves = true;
          for (int c = 0; c < b; ++c) {
            const Step* other = enabled(state, gpu, c);
            truth.races |= other != nullptr && conflict(*step, *other);
          }
          open.push_back(state);
          ++open.back()[i];
        }
      }
      truth.hangs |= !moves && !ends;
    }
    return truth;
  }
};

/// The verdict is that of all orders, tried one by one.
TEST(Msccl, RacesAreThoseOfAllOrders) {
  int races = 0;
  int clean = 0;
  for (std::uint32_t seed = 0; seed < 6'000; ++seed) {
    std::mt19937 random(seed);
    SmallProgram program(random);
    const SmallProgram::Truth truth = program.truth();
    const std::string xml = program.xml();
    const std::string message = refusal_of([&] { schedule_from_msccl(xml); });
    const bool hangs = message.find("for ever") != std::string::npos;
    const bool raced = message.find("nothing orders them") != std::string::npos;
    ASSERT_EQ(hangs, truth.hangs) << "seed " << seed << ": " << message << "\n" << xml;
    ASSERT_EQ(raced, truth.races && !truth.hangs) << "seed " << seed << ": " << message << "\n"
                                                  << xml;
    if (!hangs) ++(raced ? races : clean);
  }
  EXPECT_GT(races, 300);
  EXPECT_GT(clean, 300);
}

TEST(Msccl, RefusesWhatIsWrong) {
  const std::string ring = text_of("ring.xml");
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"(<step s="1")", R"(<step s="2")",
       "gpu 0, tb 0, step 1: its s is '2'; steps must stand in their order"},
      {"</algo>", "", "not XML, at byte"},
      {"<algo ", "<algorithm ", "not XML"},
      {R"(coll="allreduce")", R"(coll="sum")", "coll is 'sum'; allowed are allreduce, alltoall"},
      {R"(coll="allreduce")", "", "attribute coll is missing"},
      {R"(ngpus="4")", R"(ngpus="8")", "ngpus is 8, but there are 4"},
      {R"(<gpu id="0")", R"(<gpu id="1")", "gpu 1 stands twice"},
      {R"(<gpu id="0")", R"(<gpu id="9")", "their ids must be 0, 1, 2"},
      {R"(i_chunks="4")", R"(i_chunks="0")", "i_chunks is 4, that of others is 0"},
      {R"(i_chunks="4")", R"(i_chunks="many")", "i_chunks is 'many'; allowed is an integer"},
      {R"(send="1")", R"(send="4")", "its peer is 4; allowed are other gpus of 0 to 3"},
      {R"(send="1")", R"(send="-1")", "gpu 0, tb 0, step 0: it sends, but its tb has send = -1"},
      {R"(recv="3")", R"(recv="-1")", "gpu 0, tb 0, step 1: it receives, but its tb has recv = -1"},
      {R"(type="rrs")", R"(type="xyz")", "type is 'xyz'; allowed are s, r, rcs"},
      {R"(srcbuf="i")", R"(srcbuf="q")", "srcbuf is 'q'; allowed are i, o, s"},
      {R"(srcoff="3")", R"(srcoff="4")", "there is no piece 4 of buffer i, which has 4"},
      {R"(srcoff="2")", R"(srcoff="1")", "it adds piece 2 of the tensor to piece 1"},
      {R"(srcbuf="i" srcoff="0")", R"(srcbuf="s" srcoff="0")", "no piece 0 of buffer s"},
      {R"(chan="0")", R"(chan="1")", "waits for ever"},
      {R"(depid="-1" deps="-1")", R"(depid="0" deps="1")", "waits for ever"},
      {R"(depid="-1" deps="-1")", R"(depid="7" deps="1")", "step 1 of tb 7, which is not there"},
      {R"(type="rrs" srcbuf="i" srcoff="2" dstbuf="i" dstoff="2" cnt="1")",
       R"(type="rrs" srcbuf="i" srcoff="2" dstbuf="i" dstoff="2" cnt="2")",
       "it receives 2 pieces, but 1 were sent"},
  };
  for (const auto& [what, by, expected] : cases) expect_message(replaced(ring, what, by), expected);
  expect_message(replaced(ring, R"(i_chunks="4" o_chunks="0")", R"(i_chunks="0" o_chunks="0")"),
                 "gpu 1: i_chunks is 4, that of others is 0");
  expect_message("", "not XML");
  expect_message("<algo coll=\"allreduce\"/>", "there are 0 <gpu>");
}

}  // namespace
}  // namespace arlab
