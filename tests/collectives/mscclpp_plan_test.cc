// Execution plans of MSCCL++: those written by hand here are the collectives that they say, and give
// the bits that they must; without one of what orders them, they are refused.

#include "reference/collectives/mscclpp_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/tensors/synthetic.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

using Json = nlohmann::json;

constexpr const char* kPlans[] = {"packets", "relay", "ports", "gets", "loop", "groups"};

Json plan_of(const std::string& name) {
  std::ifstream file(fmt::format("{}/{}.json", ARLAB_MSCCLPP, name));
  EXPECT_TRUE(file) << name;
  return Json::parse(file);
}

void expect_message(const Json& plan, const std::string& expected) {
  expect_contains(message_of([&] { schedule_from_plan(plan); }), expected);
}

TEST(Mscclpp, PlansAreTheCollectivesThatTheySay) {
  for (const char* name : kPlans) {
    const WrittenSchedule written = schedule_from_plan(plan_of(name));
    ASSERT_FALSE(written.has_size());
    for (const std::uint64_t elements : {6, 4098, 60'000}) {
      const Schedule schedule = written.at(elements, 1);
      const CheckReport report = check(schedule);
      EXPECT_TRUE(report.correct) << name << ": " << report.violation;
      EXPECT_EQ(report.ranks_identical, ends_alike(schedule.collective)) << name;
    }
  }
}

/// Returns the results of a plan on each rank, for fp32 inputs.
std::vector<float> run(const Json& plan, const Tensor& inputs, std::size_t elements) {
  const Schedule schedule = schedule_from_plan(plan).at(elements, 1);
  Tensor outputs = make_tensor(inputs.dtype, inputs.shape);
  execute(schedule, *find_codec("fp32"), inputs.dtype, inputs.bytes(), outputs.bytes(),
          {.threads = 1});
  const auto values = elements_of<float>(std::as_const(outputs).bytes());
  return {values.begin(), values.end()};
}

/// Each third of the tensor is added by its owner: who begins, who comes behind, as the plan says.
TEST(Mscclpp, SumsAreAddedInTheOrderOfThePlan) {
  constexpr std::size_t kElements = 3000;
  constexpr std::size_t kPart = kElements / 3;
  const Tensor inputs = make_synthetic("gaussian:sigma=1,seed=3", DType::fp32, 3, kElements);
  const auto in = elements_of<float>(std::as_const(inputs).bytes());
  for (const std::string name : {"packets", "ports", "gets"}) {
    const std::vector<float> out = run(plan_of(name), inputs, kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::size_t owner = i / kPart;
      const std::size_t first = owner == 0 ? 1 : 0;
      const std::size_t last = owner == 2 ? 1 : 2;
      const auto of = [&](std::size_t rank) { return in[rank * kElements + i]; };
      const float expected = name == "packets" ? (of(first) + of(last)) + of(owner)
                                               : (of(owner) + of(first)) + of(last);
      ASSERT_EQ(out[owner * kElements + i], expected) << name << ", element " << i;
    }
  }
}

/// Packets are added to a zero, which takes the sign from a negative one; other sums are not.
TEST(Mscclpp, PacketsAreAddedToZero) {
  Tensor inputs = make_tensor(DType::fp32, {3, 30});
  for (float& value : elements_of<float>(inputs.bytes())) value = -0.0F;
  for (const float value : run(plan_of("packets"), inputs, 30)) EXPECT_FALSE(std::signbit(value));
  for (const float value : run(plan_of("ports"), inputs, 30)) EXPECT_TRUE(std::signbit(value));
}

// ---------------------------------------------------------------- what orders them

/// Calls visit(a copy of the plan without one operation, its name), for what orders others.
template <class Visit>
void for_each_left_out(const Json& plan, const Visit& visit) {
  const std::set<std::string> kOrders = {"nop",     "signal",      "wait",    "rlxsignal",
                                         "rlxwait", "sem_acquire", "barrier", "sem_release"};
  for (std::size_t gpu = 0; gpu < plan["gpus"].size(); ++gpu) {
    for (std::size_t block = 0; block < plan["gpus"][gpu]["threadblocks"].size(); ++block) {
      const auto path = fmt::format("/gpus/{}/threadblocks/{}/ops", gpu, block);
      const Json& ops = plan.at(Json::json_pointer(path));
      const bool is_loop = ops.front()["name"] == "pipeline";
      const Json::json_pointer list(is_loop ? path + "/0/ops" : path);
      for (std::size_t i = 0; i < plan.at(list).size(); ++i) {
        const std::string name = plan.at(list)[i]["name"];
        if (!kOrders.contains(name)) continue;
        Json without = plan;
        without.at(list).erase(i);
        visit(without, fmt::format("{}, gpu {}, tb {}, op {}: {}", plan["name"].get<std::string>(),
                                   gpu, block, i, name));
      }
    }
  }
}

TEST(Mscclpp, EveryOrderIsNeeded) {
  int races = 0;
  int hangs = 0;
  for (const char* name : kPlans) {
    for_each_left_out(plan_of(name), [&](const Json& without, const std::string& what) {
      const std::string message = message_of([&] { schedule_from_plan(without); });
      const bool is_race = message.find("nothing orders them") != std::string::npos;
      const bool is_hang = message.find("waits for ever") != std::string::npos;
      EXPECT_TRUE(is_race || is_hang) << what << ": " << message;
      races += is_race ? 1 : 0;
      hangs += is_hang ? 1 : 0;
    });
  }
  EXPECT_GT(races, 50);
  EXPECT_GT(hangs, 20);
}

TEST(Mscclpp, RacesAreNamed) {
  Json groups = plan_of("groups");
  groups["gpus"][0]["threadblocks"][1]["ops"].erase(2);  // the nop behind its first wait
  expect_message(groups,
                 "MSCCL++: gpu 0, tb 1, op 2 reads input 0 of gpu 1 and the kernel before, on gpu "
                 "1, uses it; nothing orders them (signal, wait, semaphore, barrier, nop)");
  // A relaxed signal makes no writes visible.
  Json loop = plan_of("loop");
  for (Json& gpu : loop["gpus"]) {
    Json& ops = gpu["threadblocks"][0]["ops"][0]["ops"];
    for (Json& op : ops) {
      if (op["name"] == "signal" || op["name"] == "wait") {
        op["name"] = "rlx" + op["name"].get<std::string>();
      }
    }
  }
  expect_message(loop, "tb 1, op 0, op 2 reads scratch 1 of gpu 0 and gpu 0, tb 0, op 0, op 1");
  // Two thread blocks at one end of a channel.
  loop = plan_of("loop");
  loop["gpus"][0]["threadblocks"][2]["channels"][0]["channel_ids"][0] = 0;
  loop["gpus"][1]["threadblocks"][2]["channels"][0]["channel_ids"][0] = 0;
  expect_message(loop, "nothing orders them");
  // Packets are read as packets, and come once.
  Json relay = plan_of("relay");
  Json& own = relay["gpus"][0]["threadblocks"][0]["ops"];
  own.push_back(own[0]);
  own[2]["name"] = "copy";
  expect_message(relay, "gpu 0, tb 0, op 2: packets stand in scratch, and there nothing else does");
  Json packets = plan_of("packets");
  Json& ops = packets["gpus"][0]["threadblocks"][0]["ops"];
  ops.push_back(ops[0]);
  expect_message(packets, "gpu 0, tb 0, op 2 writes packets to scratch 0 of gpu 1 a second time");
}

TEST(Mscclpp, RefusesWhatIsNotRead) {
  const auto changed = [](const char* plan, const auto& change, const std::string& expected) {
    Json json = plan_of(plan);
    change(json);
    expect_message(json, expected);
  };
  const std::tuple<const char*, const char*, Json, const char*> values[] = {
      {"gets", "/version", 2, "an execution plan, version 2: not read"},
      {"gets", "/gpus/0/inputChunks", 2, "an execution plan of the first version"},
      {"gets", "/collective", "sendrecv", "collective is 'sendrecv'; allowed are allreduce"},
      {"gets", "/inplace", 1, "inplace is not true or false"},
      {"gets", "/gpus/1/id", 2, "gpu 1: its id is 2"},
      {"gets", "/gpus/1/input_chunks", 6, "gpu 1: input_chunks is not that of the others"},
      {"gets", "/gpus/1/output_chunks", 2, "gpu 1: output_chunks is 2"},
      {"gets", "/gpus/0/channels/0/connected_to/0", 9, "gpu 0: a peer is 9"},
      {"gets", "/gpus/0/threadblocks/0/ops/3/name", "xyz",
       "tb 0, op 3: name is 'xyz'; allowed are nop, "},
      {"gets", "/gpus/0/threadblocks/0/ops/3/src_buff/0/index", 7, "no chunks 7 to 8 of the input"},
      {"gets", "/gpus/0/threadblocks/0/ops/3/src_buff/0/buffer_id", 7, "there is no buffer_id 7"},
      {"gets", "/gpus/0/threadblocks/0/ops/0/channel_ids/0", 7,
       "there is no channel 7; there are 1"},
      {"gets", "/gpus/0/threadblocks/0/ops/3/more", 1, "key 'more' is not read"},
      {"gets", "/gpus/0/threadblocks/0/more", 1, "key 'more' is not read"},
      {"gets", "/gpus/0/more", 1, "key 'more' is not read"},
      {"gets", "/reduce_op", "max", "the plan: key 'reduce_op' is not read"},
      {"gets", "/gpus/0/threadblocks/0/ops/5/reduce_op", "min", "op 5: reduce_op is 'min'"},
      {"gets", "/gpus/0/threadblocks/0/ops/5/src_buff/0/size", 2, "sizes in src_buff and dst_buff"},
      {"gets", "/gpus/0/threadblocks/0/ops/5/src_buff/0/index", 1, "it adds piece"},
      {"gets", "/gpus/0/threadblocks/1/id", 0, "gpu 0, tb 0 stands twice"},
      {"groups", "/gpus/0/threadblocks/0/ops/3/tbg_info/tb_id", 2, "tb_id is 2; allowed is less"},
      {"groups", "/gpus/0/threadblocks/0/ops/3/tbg_info/tbg_size", 65535, "cuts chunks"},
      {"loop", "/gpus/0/threadblocks/0/ops/0/iter_context/num_chunks", 2, "runs over 2"},
      {"loop", "/gpus/0/threadblocks/0/ops/0/ops/0/name", "cpkt", "packets in a pipeline"},
      {"loop", "/gpus/0/threadblocks/1/ops/0/ops/2/src_buff/0/switch_channel_id", 1,
       "no channel 1"},
      {"loop", "/gpus/0/channels/1/rank_groups/0/ranks/0", 5, "a switch has a gpu 5"},
      {"ports", "/gpus/0/threadblocks/0/ops/0/channel_type", "memory",
       "channel_type is 'memory'; allowed is port"},
      {"ports", "/gpus/0/channels/0/connected_to/0", 2, "but has no port channel there"},
  };
  for (const auto& [plan, path, value, expected] : values) {
    changed(plan, [&](Json& json) { json[Json::json_pointer(path)] = value; }, expected);
  }
  changed("gets", [](Json& json) { json["gpus"] = Json::array(); }, "there are 0 gpus");
  changed("gets", [](Json& json) { json.erase("name"); }, "the plan: name is missing");
}

}  // namespace
}  // namespace arlab
