// Algorithms of MSCCL: two written by hand are all-reduces, and give the bits that they must.

#include "reference/collectives/msccl_xml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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

TEST(Msccl, RefusesWhatIsWrong) {
  const std::string ring = text_of("ring.xml");
  const std::tuple<const char*, const char*, const char*> cases[] = {
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
      {R"(srcbuf="i")", R"(srcbuf="q")", "srcbuf is 'q'; allowed are i (input)"},
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
  expect_message("", "not XML");
  expect_message("<algo coll=\"allreduce\"/>", "there are 0 <gpu>");
}

}  // namespace
}  // namespace arlab
