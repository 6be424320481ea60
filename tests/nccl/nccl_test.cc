// Programs that know only NCCL's interface, on emulated GPUs: ranks in processes and in threads, every collective bit for bit as the
// reference has it, and all that can go wrong.

#include "kernels/platform/host/hip/hip_runtime.h"
//
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "tests/kernels/in_processes.h"
#include "tests/nccl/nccl_prototypes.h"

namespace {
/// Bytes that the recorder, whose calls come here, finds on the disk.
std::int64_t room_on_disk = INT64_MAX;
}  // namespace

extern "C" ssize_t pwrite(int file, const void* bytes, std::size_t count, off_t at) {
  using Function = ssize_t (*)(int, const void*, std::size_t, off_t);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pwrite"));
  if (room_on_disk <= 0) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t written =
      real(file, bytes, std::min(count, static_cast<std::size_t>(room_on_disk)), at);
  if (written > 0) room_on_disk -= written;
  return written;
}

namespace arlab {
namespace {

using namespace std::chrono_literals;
using kernels::all_of;
using kernels::in_processes;
using Bytes = std::vector<std::byte>;

/// Ends a rank with what is wrong.
struct Wrong {
  std::string what;
};

void require(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) {
    throw Wrong{
        fmt::format("{}: {} ({})", call, static_cast<int>(result), ncclGetLastError(nullptr))};
  }
}
#define REQUIRE(call) require(call, #call)

/// Variables of the environment, for as long as it lives; and a folder of mode 700 where ranks meet.
class Environment {
 public:
  struct Variable {
    std::string name;
    std::string value;
  };
  Environment(std::initializer_list<Variable> variables) {
    set("ARLAB_BOOTSTRAP_DIR", meeting_.folder());
    set("ARLAB_NCCL_TIMEOUT_S", "100");
    for (const auto& [name, value] : variables) set(name, value);
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  const std::string& folder() const { return meeting_.folder(); }

 private:
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  kernels::Meeting meeting_;
  std::vector<std::string> names_;
};

ncclUniqueId new_id() {
  // In another process, since the ranks fork from this one.
  ncclUniqueId id = {};
  const auto said = in_processes({0}, [](int) {
    ncclUniqueId made;
    REQUIRE(ncclGetUniqueId(&made));
    return std::string(made.internal, sizeof(made.internal));
  });
  EXPECT_EQ(said[0].size(), sizeof(id.internal));
  std::memcpy(id.internal, said[0].data(), std::min(said[0].size(), sizeof(id.internal)));
  return id;
}

using Body = std::function<void(int rank, ncclComm_t comm)>;

std::string said_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Wrong& wrong) {
    return wrong.what;
  } catch (const std::exception& exception) {  // a rank's process must not go on with other tests
    return exception.what();
  }
  return "right";
}

/// No rank waits for one that has found something wrong.
void run(const Body& body, int rank, ncclComm_t comm) {
  try {
    body(rank, comm);
  } catch (...) {
    (void)ncclCommAbort(comm);
    throw;
  }
}

/// Returns the words of ranks in a process each, which call `body` with their communicator.
std::vector<std::string> as_processes(int ranks, const Body& body, bool destroys = true) {
  const ncclUniqueId id = new_id();
  return in_processes(all_of(ranks), [&](int rank) {
    return said_by([&] {
      ncclComm_t comm = nullptr;
      (void)hipSetDevice(rank % 8);
      REQUIRE(ncclCommInitRank(&comm, ranks, id, rank));
      run(body, rank, comm);
      if (destroys) REQUIRE(ncclCommDestroy(comm));
    });
  });
}

/// The same of threads of one process; rank r on device r modulo `devices`.
std::vector<std::string> as_threads(int ranks, int devices, const Body& body) {
  const auto said = in_processes({0}, [&](int) {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return std::string(ncclGetLastError(nullptr));
    std::vector<std::string> lines(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        lines[static_cast<std::size_t>(rank)] = said_by([&] {
          ncclComm_t comm = nullptr;
          (void)hipSetDevice(rank % devices);
          REQUIRE(ncclCommInitRank(&comm, ranks, id, rank));
          run(body, rank, comm);
          REQUIRE(ncclCommDestroy(comm));
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  });
  std::vector<std::string> lines;
  std::istringstream in(said[0]);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> all_right(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks), "right");
}

// ---------------------------------------------------------------- what the reference has

struct Type {
  ncclDataType_t nccl;
  DType dtype;
};
constexpr Type kTypes[] = {
    {ncclFloat16, DType::fp16}, {ncclBfloat16, DType::bf16}, {ncclFloat32, DType::fp32}};

/// Different values on every rank, and all that is difficult: NaNs, infinities, subnormal numbers.
Tensor inputs_of(int ranks, DType dtype, std::size_t elements, int seed) {
  const auto count = static_cast<std::size_t>(ranks);
  return make_synthetic(
      fmt::format("{}:seed={}", seed % 2 == 0 ? "adversarial" : "gaussian", seed + 1), dtype, count,
      std::max<std::size_t>(elements, 1));
}

/// The outputs of all ranks.
Bytes expected(const char* algorithm, std::string codec_name, const Tensor& inputs) {
  if (codec_name.empty()) codec_name = name_of(inputs.dtype);
  const CodecPtr codec = find_codec(codec_name);
  Bytes outputs(inputs.bytes().size());
  execute(make_schedule(algorithm, {.world_size = static_cast<Rank>(inputs.ranks()),
                                    .elements = inputs.elements_per_rank(),
                                    .alignment = codec->info().alignment}),
          *codec, inputs.dtype, inputs.bytes(), outputs, {.threads = 1});
  return outputs;
}

void require_same(const void* got, const std::byte* want, std::size_t bytes,
                  const std::string& what) {
  if (std::memcmp(got, want, bytes) != 0) throw Wrong{what + " has other bits than the reference"};
}

/// Memory in which nothing is that was not put there.
Bytes unset(std::size_t bytes) { return Bytes(std::max<std::size_t>(bytes, 1), std::byte{0xDB}); }

/// A table's algorithm and codec for each collective; empty: values as they are.
struct Rules {
  const char* all_reduce = "two_shot";
  const char* all_reduce_codec = "";
  const char* slots_codec = "";  // used by reduce_scatter, all_gather and broadcast
};

/// Every collective of a rank, in place and not, compared with the reference.
void compare_all(int rank, int ranks, ncclComm_t comm, const Rules& rules, std::size_t count,
                 int seed) {
  const auto me = static_cast<std::size_t>(rank);
  const auto all = static_cast<std::size_t>(ranks);
  for (const Type& type : kTypes) {
    const std::string what = fmt::format("{} elements of {}", count, name_of(type.dtype));
    const std::size_t bytes = count * size_of(type.dtype);
    const Tensor one = inputs_of(ranks, type.dtype, count, seed);
    const Tensor slots = inputs_of(ranks, type.dtype, count * all, seed + 1);
    const std::byte* const mine = one.bytes().data() + me * bytes;
    const std::byte* const my_slots = slots.bytes().data() + me * bytes * all;
    for (const bool in_place : {false, true}) {
      Bytes out = unset(bytes);
      Bytes all_out = unset(bytes * all);

      if (in_place) std::memcpy(out.data(), mine, bytes);
      REQUIRE(ncclAllReduce(in_place ? out.data() : mine, out.data(), count, type.nccl, ncclSum,
                            comm, nullptr));
      if (count != 0) {
        const Bytes want = expected(rules.all_reduce, rules.all_reduce_codec, one);
        require_same(out.data(), &want[me * bytes], bytes, "all_reduce of " + what);
      }

      // In place, a slot of the input is the output.
      Bytes scattered = unset(bytes * all);
      if (in_place) std::memcpy(scattered.data(), my_slots, bytes * all);
      std::byte* const slot = in_place ? scattered.data() + me * bytes : scattered.data();
      REQUIRE(ncclReduceScatter(in_place ? scattered.data() : my_slots, slot, count, type.nccl,
                                ncclSum, comm, nullptr));
      if (count != 0) {
        const Bytes want = expected("reduce_scatter", rules.slots_codec, slots);
        require_same(slot, &want[me * bytes * all + me * bytes], bytes,
                     "reduce_scatter of " + what);
      }
      if (!in_place && bytes != 0 && scattered.back() != std::byte{0xDB})
        throw Wrong{"wrote too much"};

      std::byte* const own = all_out.data() + me * bytes;
      if (in_place) std::memcpy(own, mine, bytes);
      REQUIRE(
          ncclAllGather(in_place ? own : mine, all_out.data(), count, type.nccl, comm, nullptr));
      if (count != 0) {
        Tensor gathered = make_tensor(type.dtype, {all, count * all});
        for (std::size_t from = 0; from < all; ++from) {
          std::memcpy(&gathered.bytes()[(from * all + from) * bytes], one.rank_bytes(from).data(),
                      bytes);
        }
        const Bytes want = expected("all_gather", rules.slots_codec, gathered);
        require_same(all_out.data(), want.data(), bytes * all, "all_gather of " + what);
      }

      const int root = (seed + in_place) % ranks;
      out = unset(bytes);
      if (in_place && rank == root) std::memcpy(out.data(), mine, bytes);
      if (in_place) {
        REQUIRE(ncclBcast(out.data(), count, type.nccl, root, comm, nullptr));
      } else {
        REQUIRE(ncclBroadcast(rank == root ? mine : nullptr, out.data(), count, type.nccl, root,
                              comm, nullptr));
      }
      if (count != 0) {
        Tensor first = one;  // the root's tensor where the reference looks for it
        std::memcpy(first.bytes().data(), one.rank_bytes(static_cast<std::size_t>(root)).data(),
                    bytes);
        const Bytes want = expected("broadcast", rules.slots_codec, first);
        require_same(out.data(), want.data(), bytes,
                     fmt::format("broadcast from {} of {}", root, what));
      }

      out = unset(bytes);
      if (in_place) std::memcpy(out.data(), mine, bytes);
      REQUIRE(ncclReduce(in_place ? out.data() : mine, rank == root ? out.data() : nullptr, count,
                         type.nccl, ncclSum, root, comm, nullptr));
      if (count != 0 && rank == root) {
        const Bytes want = expected("two_shot", "", one);
        require_same(out.data(), want.data(), bytes, "reduce of " + what);
      }
    }
  }
}

constexpr std::size_t kCounts[] = {0, 1, 7, 1000, 4103};

TEST(Nccl, ProcessesHaveTheReferencesBits) {
  const Environment environment{};
  for (const int ranks : {2, 3, 4}) {
    EXPECT_EQ(as_processes(ranks,
                           [&](int rank, ncclComm_t comm) {
                             int seed = 0;
                             for (const std::size_t count : kCounts)
                               compare_all(rank, ranks, comm, {}, count, ++seed);
                           }),
              all_right(ranks));
  }
}

TEST(Nccl, ThreadsHaveTheReferencesBits) {
  const Environment environment{};
  for (const int devices : {1, 3}) {
    EXPECT_EQ(as_threads(3, devices,
                         [&](int rank, ncclComm_t comm) {
                           int seed = 10;
                           for (const std::size_t count : kCounts) {
                             if (seed % 3 == rank)
                               std::this_thread::sleep_for(5ms);  // late, in turn
                             compare_all(rank, 3, comm, {}, count, ++seed);
                           }
                         }),
              all_right(3));
  }
}

TEST(Nccl, ATableSaysHowCallsTravel) {
  const kernels::Meeting folder;
  const std::string table = folder.folder() + "/table.toml";
  {
    std::ofstream file(table);
    for (const char* collective : {"reduce_scatter", "all_gather", "broadcast"}) {
      file << "[[rule]]\ncollective = \"" << collective << "\"\nalgorithm = \"" << collective
           << "\"\ncodec = \"int8-g32\"\n";
    }
  }
  const Environment environment{{"ARLAB_TABLE", table},
                                {"ARLAB_ALL_REDUCE", "0-:one_shot/int8-g32"}};
  const Body body = [&](int rank, ncclComm_t comm) {
    compare_all(rank, 2, comm, {"one_shot", "int8-g32", "int8-g32"}, 1500, 21);
  };
  EXPECT_EQ(as_processes(2, body), all_right(2));
  EXPECT_EQ(as_threads(2, 1, body), all_right(2));
}

TEST(Nccl, SixteenBitsCarryFp32AndNothingElse) {
  const Environment environment{{"ARLAB_ALL_REDUCE", "0-:two_shot/wire-bf16"}};
  const Body body = [](int rank, ncclComm_t comm) {
    const auto me = static_cast<std::size_t>(rank);
    constexpr std::size_t kCount = 3000;
    for (const Type& type : kTypes) {
      const Tensor inputs = inputs_of(2, type.dtype, kCount, 61);
      Bytes out = unset(inputs.rank_bytes(me).size());
      REQUIRE(ncclAllReduce(inputs.rank_bytes(me).data(), out.data(), kCount, type.nccl, ncclSum,
                            comm, nullptr));
      const bool narrow = type.dtype == DType::fp32;
      const Bytes want = expected("two_shot", narrow ? "wire-bf16" : "", inputs);
      require_same(out.data(), &want[me * out.size()], out.size(),
                   std::string(name_of(type.dtype)));
    }
  };
  EXPECT_EQ(as_processes(2, body), all_right(2));
}

TEST(Nccl, SizesChooseTheRule) {
  const Environment environment{{"ARLAB_ALL_REDUCE", "1K-8K:one_shot/qr-q8,8K-:two_shot/qr-q4"}};
  EXPECT_EQ(as_processes(2,
                         [&](int rank, ncclComm_t comm) {
                           const auto me = static_cast<std::size_t>(rank);
                           int seed = 30;
                           const auto compare = [&](const char* algorithm, const char* codec,
                                                    std::size_t count) {
                             const Tensor inputs = inputs_of(2, DType::fp16, count, seed += 2);
                             Bytes out = unset(2 * count);
                             REQUIRE(ncclAllReduce(inputs.rank_bytes(me).data(), out.data(), count,
                                                   ncclFloat16, ncclSum, comm, nullptr));
                             const Bytes want = expected(algorithm, codec, inputs);
                             require_same(out.data(), &want[me * 2 * count], 2 * count,
                                          fmt::format("{} {}", algorithm, codec));
                           };
                           compare("two_shot", "", 511);  // no rule
                           compare("one_shot", "qr-q8", 512);
                           compare("one_shot", "qr-q8", 4095);
                           compare("two_shot", "qr-q4", 4096);
                         }),
            all_right(2));
}

TEST(Nccl, WhatOnlyMovesMayBeOfAnyType) {
  const Environment environment{};
  const Body body = [](int rank, ncclComm_t comm) {
    for (const auto& [type, size] : {std::pair(ncclInt8, 1), {ncclInt32, 4}, {ncclInt64, 8}}) {
      // Odd numbers of bytes, and odd addresses.
      for (const std::size_t count : {1U, 333U, 1000U}) {
        const std::size_t shift = size == 1 && count != 333 ? 1 : 0;
        const std::size_t bytes = count * static_cast<std::size_t>(size);
        const auto value = [&](int from, std::size_t at) {
          return static_cast<std::byte>((static_cast<std::size_t>(from + 1) * 41 + at * 7) & 0xFF);
        };
        Bytes mine(bytes + shift);
        for (std::size_t i = 0; i < bytes; ++i) mine[shift + i] = value(rank, i);
        Bytes all(3 * bytes + shift + 1, std::byte{0xDB});
        REQUIRE(ncclAllGather(&mine[shift], &all[shift], count, type, comm, nullptr));
        for (std::size_t i = 0; i < 3 * bytes; ++i) {
          if (all[shift + i] != value(static_cast<int>(i / bytes), i % bytes))
            throw Wrong{"all_gather"};
        }
        if (all.back() != std::byte{0xDB}) throw Wrong{"all_gather wrote too much"};
        Bytes out(bytes + shift + 1, std::byte{0xDB});
        REQUIRE(ncclBroadcast(&mine[shift], &out[shift], count, type, 2, comm, nullptr));
        for (std::size_t i = 0; i < bytes; ++i) {
          if (out[shift + i] != value(2, i)) throw Wrong{"broadcast"};
        }
        if (out.back() != std::byte{0xDB}) throw Wrong{"broadcast wrote too much"};
      }
    }
  };
  EXPECT_EQ(as_processes(3, body), all_right(3));
  EXPECT_EQ(as_threads(3, 2, body), all_right(3));
}

TEST(Nccl, SendAndRecvInGroups) {
  const Environment environment{};
  const Body body = [](int rank, ncclComm_t comm) {
    constexpr std::size_t kCount = 777;
    const auto value = [](int from, int to) { return static_cast<float>(100 * from + to) + 0.5F; };
    // All to all, with oneself; then a ring, one way.
    std::vector<float> send(3 * kCount);
    std::vector<float> recv(3 * kCount, -1.0F);
    for (int to = 0; to < 3; ++to) {
      std::fill_n(&send[static_cast<std::size_t>(to) * kCount], kCount, value(rank, to));
    }
    REQUIRE(ncclGroupStart());
    for (int peer = 0; peer < 3; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * kCount;
      REQUIRE(ncclRecv(&recv[at], kCount, ncclFloat32, peer, comm, nullptr));
      REQUIRE(ncclSend(&send[at], kCount, ncclFloat32, peer, comm, nullptr));
    }
    REQUIRE(ncclGroupEnd());
    for (std::size_t i = 0; i < recv.size(); ++i) {
      if (recv[i] != value(static_cast<int>(i / kCount), rank)) throw Wrong{"all to all"};
    }
    REQUIRE(ncclGroupStart());
    REQUIRE(ncclSend(send.data(), kCount, ncclFloat32, (rank + 1) % 3, comm, nullptr));
    REQUIRE(ncclRecv(recv.data(), kCount, ncclFloat32, (rank + 2) % 3, comm, nullptr));
    REQUIRE(ncclGroupEnd());
    for (std::size_t i = 0; i < kCount; ++i) {
      if (recv[i] != value((rank + 2) % 3, 0)) throw Wrong{"ring"};
    }
  };
  EXPECT_EQ(as_processes(3, body), all_right(3));
  EXPECT_EQ(as_threads(3, 1, body), all_right(3));
}

/// All ranks in one thread, which makes their calls in groups.
TEST(Nccl, OneThreadHasSeveralRanks) {
  const Environment environment{{"ARLAB_ALL_REDUCE", "0-:two_shot/qr-q4"}};
  for (const bool init_all : {true, false}) {
    EXPECT_EQ(in_processes({0},
                           [&](int) {
                             return said_by([&] {
                               ncclComm_t comms[2] = {};
                               const int devices[] = {0, 3};
                               if (init_all) {
                                 REQUIRE(ncclCommInitAll(comms, 2, devices));
                               } else {
                                 ncclUniqueId id;
                                 REQUIRE(ncclGetUniqueId(&id));
                                 REQUIRE(ncclGroupStart());
                                 for (int rank = 0; rank < 2; ++rank) {
                                   (void)hipSetDevice(devices[rank]);
                                   REQUIRE(ncclCommInitRank(&comms[rank], 2, id, rank));
                                 }
                                 REQUIRE(ncclGroupEnd());
                               }
                               const Tensor inputs = inputs_of(2, DType::bf16, 3000, 3);
                               const Bytes want = expected("two_shot", "qr-q4", inputs);
                               Bytes out = unset(2 * 6000);
                               (void)hipSetDevice(5);
                               REQUIRE(ncclGroupStart());
                               for (std::size_t rank = 0; rank < 2; ++rank) {
                                 REQUIRE(ncclAllReduce(inputs.rank_bytes(rank).data(),
                                                       &out[rank * 6000], 3000, ncclBfloat16,
                                                       ncclSum, comms[rank], nullptr));
                               }
                               REQUIRE(ncclGroupEnd());
                               require_same(out.data(), want.data(), want.size(), "a group");
                               int device = -1;
                               (void)hipGetDevice(&device);
                               if (device != 5) throw Wrong{"the current device has changed"};
                               for (int rank = 0; rank < 2; ++rank) {
                                 int is[3] = {-1, -1, -1};
                                 REQUIRE(ncclCommUserRank(comms[rank], &is[0]));
                                 REQUIRE(ncclCommCount(comms[rank], &is[1]));
                                 REQUIRE(ncclCommCuDevice(comms[rank], &is[2]));
                                 if (is[0] != rank || is[1] != 2 || is[2] != devices[rank])
                                   throw Wrong{"who it is"};
                                 REQUIRE(ncclCommFinalize(comms[rank]));
                                 REQUIRE(ncclCommDestroy(comms[rank]));
                               }
                             });
                           }),
              all_right(1));
  }
}

TEST(Nccl, StreamsAndGraphs) {
  const Environment environment{{"ARLAB_ALL_REDUCE", "0-:two_shot/qr-q8"}};
  const Body body = [](int rank, ncclComm_t comm) {
    const auto me = static_cast<std::size_t>(rank);
    constexpr std::size_t kCount = 2500;
    hipStream_t stream = nullptr;
    (void)hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
    Bytes in(2 * kCount);
    Bytes out = unset(2 * kCount);
    Bytes gathered = unset(4 * kCount);
    Bytes slot = unset(kCount);
    hipGraph_t graph = nullptr;
    hipGraphExec_t executable = nullptr;
    (void)hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal);
    REQUIRE(ncclAllReduce(in.data(), out.data(), kCount, ncclFloat16, ncclSum, comm, stream));
    REQUIRE(ncclAllGather(in.data(), gathered.data(), kCount, ncclFloat16, comm, stream));
    REQUIRE(
        ncclReduceScatter(in.data(), slot.data(), kCount / 2, ncclFloat16, ncclSum, comm, stream));
    if (hipStreamEndCapture(stream, &graph) != hipSuccess) throw Wrong{"no capture"};
    (void)hipGraphInstantiateWithFlags(&executable, graph, 0);
    if (out != unset(2 * kCount)) throw Wrong{"ran while it was captured"};
    for (int replay = 0; replay < 2; ++replay) {
      const Tensor inputs = inputs_of(2, DType::fp16, kCount, 50 + replay);
      std::memcpy(in.data(), inputs.rank_bytes(me).data(), in.size());
      (void)hipGraphLaunch(executable, stream);
      // The codec does not take this dtype.
      float one = 1;
      REQUIRE(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclSum, comm, stream));
      if (one != 2) throw Wrong{"a sum between replays"};
      if (hipStreamSynchronize(stream) != hipSuccess) throw Wrong{"no replay"};
      ncclResult_t error = ncclInvalidUsage;
      REQUIRE(ncclCommGetAsyncError(comm, &error));
      REQUIRE(error);
      const Bytes want = expected("two_shot", "qr-q8", inputs);
      require_same(out.data(), &want[me * in.size()], in.size(), "a replay");
      require_same(gathered.data(), inputs.bytes().data(), gathered.size(), "a gather in a replay");
      const Bytes sums = expected("reduce_scatter", "", inputs);
      require_same(slot.data(), &sums[me * in.size() + me * kCount], kCount, "a sum in a replay");
    }
    (void)hipGraphExecDestroy(executable);
    (void)hipGraphDestroy(graph);
    (void)hipStreamDestroy(stream);
  };
  EXPECT_EQ(as_processes(2, body), all_right(2));
}

TEST(Nccl, SplitsMeet) {
  const Environment environment{};
  const Body body = [](int rank, ncclComm_t comm) {
    // Ranks 0 and 2 in the other order; rank 1 alone; rank 3 in none.
    const int color = rank == 3 ? -1 : rank % 2;
    ncclComm_t part = comm;
    REQUIRE(ncclCommSplit(comm, color, -rank, &part, nullptr));
    if (rank == 3) {
      if (part != nullptr) throw Wrong{"a part without a color"};
      return;
    }
    int place = -1;
    int ranks = -1;
    REQUIRE(ncclCommUserRank(part, &place));
    REQUIRE(ncclCommCount(part, &ranks));
    if (ranks != (rank == 1 ? 1 : 2) || place != (rank == 0 ? 1 : 0)) throw Wrong{"another place"};
    float value = static_cast<float>(rank) + 1;
    REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, part, nullptr));
    if (value != (rank == 1 ? 2.0F : 4.0F)) throw Wrong{"another sum"};
    REQUIRE(ncclCommDestroy(part));
  };
  EXPECT_EQ(as_processes(4, body), all_right(4));
  EXPECT_EQ(as_threads(4, 2, body), all_right(4));
}

TEST(Nccl, TwoSplitsInAGroupComeInTheirOrder) {
  const Environment environment{{"ARLAB_NCCL_TIMEOUT_S", "10"}};
  const Body body = [](int rank, ncclComm_t comm) {
    for (int turn = 0; turn < 3; ++turn) {
      ncclComm_t parts[3] = {};
      REQUIRE(ncclGroupStart());
      REQUIRE(ncclCommSplit(comm, 0, -rank, &parts[0], nullptr));        // all, the other way round
      REQUIRE(ncclCommSplit(comm, rank % 2, rank, &parts[1], nullptr));  // every second
      REQUIRE(ncclCommSplit(comm, rank == 0 ? -1 : 7, rank, &parts[2], nullptr));  // all but one
      REQUIRE(ncclGroupEnd());
      if ((parts[2] == nullptr) != (rank == 0))
        throw Wrong{"a part without a color, or none with one"};
      int all = 0;
      REQUIRE(ncclCommCount(comm, &all));
      const auto of_parts = [&](int odd) { return (all + 1 - odd) / 2; };
      const int wanted[] = {all, of_parts(rank % 2), all - 1};
      for (int part = 0; part < 3; ++part) {
        if (parts[part] == nullptr) continue;
        int ranks = 0;
        REQUIRE(ncclCommCount(parts[part], &ranks));
        if (ranks != wanted[part]) throw Wrong{fmt::format("part {} has {} ranks", part, ranks)};
      }
      int place = -1;
      REQUIRE(ncclCommUserRank(parts[0], &place));
      if (place != all - 1 - rank) throw Wrong{"another place"};
      float value = 1;
      REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, parts[0], nullptr));
      if (value != static_cast<float>(all)) throw Wrong{"another sum"};
      for (ncclComm_t part : parts) {
        if (part != nullptr) REQUIRE(ncclCommDestroy(part));
      }
    }
  };
  EXPECT_EQ(as_processes(2, body), all_right(2));
  EXPECT_EQ(as_threads(3, 2, body), all_right(3));
}

// ---------------------------------------------------------------- what goes wrong

TEST(Nccl, AnAbortIsFeltAtOnce) {
  const Environment environment{{"ARLAB_NCCL_TIMEOUT_S", "30"}};
  const auto begin = std::chrono::steady_clock::now();
  const auto said = as_threads(2, 2, [](int rank, ncclComm_t comm) {
    float value = 1;
    if (rank == 1) {
      std::this_thread::sleep_for(300ms);  // until the other one waits
      throw Wrong{"gone"};
    }
    (void)ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
    throw Wrong{ncclGetLastError(comm)};
  });
  EXPECT_EQ(said, (std::vector<std::string>{"ncclAllReduce: rank 1 has given up", "gone"}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(Nccl, SumsAreOfWholeElementsInMemory) {
  const Environment environment{};
  const auto said = as_processes(1 + 1, [](int, ncclComm_t comm) {
    alignas(4) std::byte memory[64] = {};
    (void)ncclAllReduce(memory + 1, memory + 1, 8, ncclFloat16, ncclSum, comm, nullptr);
    throw Wrong{ncclGetLastError(comm)};
  });
  EXPECT_EQ(said, std::vector<std::string>(
                      2, "ncclAllReduce: a buffer of fp16 is not at a multiple of 2 bytes"));
}

TEST(Nccl, ATableThatCannotBeReadIsOneLine) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"ARLAB_ALL_REDUCE", "16K-:no_shot/bf16"},
      {"ARLAB_TABLE", "/nowhere/table.toml"},
      {"ARLAB_NCCL_TIMEOUT_S", "soon"},
  };
  for (const auto& [name, value] : kWrong) {
    const Environment environment{{name, value}};
    const ncclUniqueId id = new_id();
    const auto said = in_processes(all_of(2), [&](int rank) {
      ncclComm_t comm = nullptr;
      ::testing::internal::CaptureStderr();
      const ncclResult_t result = ncclCommInitRank(&comm, 2, id, rank);
      const std::string printed = ::testing::internal::GetCapturedStderr();
      const std::string line = ncclGetLastError(nullptr);
      if (result != ncclInvalidArgument)
        return fmt::format("{}: {}", static_cast<int>(result), line);
      if (comm != nullptr) return std::string("a communicator");
      return printed == "arlab: " + line + "\n" ? line : "printed: " + printed;
    });
    for (const std::string& line : said) {
      EXPECT_EQ(line.find("ncclCommInitRank: " + std::string(name)), 0U) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
}

TEST(Nccl, OneRanksWrongTableIsToldToAll) {
  const Environment environment{};
  const auto told = [](const char* of_0, const char* of_1) {
    const ncclUniqueId id = new_id();
    return in_processes(all_of(2), [&](int rank) {
      setenv("ARLAB_ALL_REDUCE", rank == 0 ? of_0 : of_1, 1);
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, 2, id, rank);
      return fmt::format("{} {}", static_cast<int>(result), ncclGetLastError(nullptr));
    });
  };
  const auto wrong = told("", "1:x");
  EXPECT_EQ(wrong[0].find("4 ncclCommInitRank: rank 1: ARLAB_ALL_REDUCE"), 0U) << wrong[0];
  EXPECT_EQ(wrong[1].find("4 ncclCommInitRank: ARLAB_ALL_REDUCE"), 0U) << wrong[1];
  EXPECT_EQ(
      told("", "1K-:two_shot/qr-q4"),
      std::vector<std::string>(2, "4 ncclCommInitRank: rank 1 has another table than rank 0"));
}

TEST(Nccl, ARankThatDiesIsNamedOnAllOthers) {
  constexpr int kSeconds = 3;
  const Environment environment{{"ARLAB_NCCL_TIMEOUT_S", std::to_string(kSeconds)}};
  const auto begin = std::chrono::steady_clock::now();
  const auto said = as_processes(3, [](int rank, ncclComm_t comm) {
    float value = 1;
    REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr));
    if (rank == 1) kill(getpid(), SIGKILL);
    const ncclResult_t result =
        ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
    ncclResult_t later = ncclSuccess;
    REQUIRE(ncclCommGetAsyncError(comm, &later));
    if (result != ncclRemoteError || later != ncclRemoteError) throw Wrong{"no error"};
    const std::string line = ncclGetLastError(comm);
    REQUIRE(ncclCommAbort(comm));
    throw Wrong{line};
  });
  for (const int rank : {0, 2}) {
    const std::string& line = said[static_cast<std::size_t>(rank)];
    EXPECT_NE(
        line.find(fmt::format("rank 1 did not arrive within 3000 ms (seen by rank {})", rank)),
        std::string::npos)
        << line;
  }
  EXPECT_EQ(said[1], "signal 9");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(kSeconds * 8));
}

TEST(Nccl, AStrangerDoesNotGetIn) {
  const Environment environment{{"ARLAB_NCCL_TIMEOUT_S", "2"}};
  ncclUniqueId id = new_id();
  const auto join = [&](const std::function<void(ncclUniqueId&)>& change) {
    return in_processes({0, 1}, [&](int rank) {
      ncclUniqueId mine = id;
      if (rank == 1) change(mine);
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, 2, mine, rank);
      return fmt::format("{} {}", static_cast<int>(result), ncclGetLastError(nullptr));
    });
  };
  // Another name, another secret, another host, no id at all.
  const auto name = join([](ncclUniqueId& mine) { mine.internal[16] ^= 1; });
  EXPECT_EQ(name[0], "6 ncclCommInitRank: rank 1 did not arrive within 2000 ms");
  EXPECT_EQ(name[1].find("6 ncclCommInitRank: rank 0 did not arrive at "), 0U) << name[1];
  const auto secret = join([](ncclUniqueId& mine) { mine.internal[40] ^= 1; });
  EXPECT_EQ(secret[0], "4 ncclCommInitRank: rank 1 has another unique id than rank 0");
  EXPECT_EQ(secret[1], "4 ncclCommInitRank: rank 0 has another unique id than rank 1");
  const auto host = join([](ncclUniqueId& mine) { mine.internal[8] ^= 1; });
  EXPECT_EQ(host[1].find("5 ncclCommInitRank: rank 1 is on another host"), 0U) << host[1];
  const auto none = join([](ncclUniqueId& mine) { std::memset(&mine, 7, sizeof(mine)); });
  EXPECT_EQ(none[1].find("4 ncclCommInitRank: the unique id is not of arlab's"), 0U) << none[1];
}

TEST(Nccl, DifferentSizesAreNamedOnAll) {
  const Environment environment{};
  const Body body = [](int rank, ncclComm_t comm) {
    Bytes buffer(4000);
    const std::size_t count = rank == 1 ? 999 : 1000;
    const ncclResult_t result =
        ncclAllReduce(buffer.data(), buffer.data(), count, ncclFloat16, ncclSum, comm, nullptr);
    const std::string line = result == ncclRemoteError ? ncclGetLastError(comm) : "no error";
    REQUIRE(ncclCommAbort(comm));
    throw Wrong{line};
  };
  const std::string wanted =
      "the ranks' calls differ: rank 0 called two_shot of 1000 fp16 elements with codec fp16, rank "
      "1 called two_shot of "
      "999 fp16 elements with codec fp16";
  for (const auto& said : {as_processes(2, body), as_threads(2, 2, body)}) {
    ASSERT_EQ(said.size(), 2U);
    for (const std::string& line : said) EXPECT_NE(line.find(wanted), std::string::npos) << line;
  }
}

TEST(Nccl, WhatComesFromOutsideIsChecked) {
  const Environment environment{};
  const auto said = as_processes(2, [](int, ncclComm_t comm) {
    std::string wrong;
    const auto refuses = [&](ncclResult_t result, int code, const char* line) {
      const std::string got = ncclGetLastError(comm);
      if (static_cast<int>(result) != code || got.find(line) == std::string::npos) {
        wrong += fmt::format("{} {} instead of {}; ", static_cast<int>(result), got, line);
      }
    };
    Bytes buffer(64);
    void* const b = buffer.data();
    ncclComm_t nobodys = reinterpret_cast<ncclComm_t>(b);
    refuses(ncclAllReduce(b, b, 1, ncclFloat16, ncclSum, nullptr, nullptr), 4,
            "ncclAllReduce: the communicator is null");
    refuses(ncclAllReduce(b, b, 1, ncclFloat16, ncclSum, nobodys, nullptr), 4,
            "this is no communicator");
    refuses(ncclCommDestroy(nobodys), 4, "ncclCommDestroy: this is no communicator");
    refuses(ncclAllReduce(nullptr, b, 1, ncclFloat16, ncclSum, comm, nullptr), 4,
            "a buffer is null");
    refuses(ncclAllReduce(b, b, std::size_t{1} << 50, ncclFloat16, ncclSum, comm, nullptr), 4,
            "allowed are up to 2^40");
    refuses(ncclAllReduce(b, b, 1, static_cast<ncclDataType_t>(15), ncclSum, comm, nullptr), 5,
            "there is no such type");
    refuses(ncclAllReduce(b, b, 1, ncclInt32, ncclSum, comm, nullptr), 5,
            "adds up half, float and bfloat16 only");
    refuses(ncclAllReduce(b, b, 1, ncclFloat16, ncclMax, comm, nullptr), 5, "makes sums only");
    refuses(ncclBroadcast(b, b, 1, ncclFloat16, 2, comm, nullptr), 4, "rank 2: allowed are 0 to 1");
    refuses(ncclSend(b, 1, ncclFloat16, -1, comm, nullptr), 4, "rank -1: allowed are 0 to 1");
    refuses(ncclGroupEnd(), 5, "there is no group to end");
    ncclComm_t other = nullptr;
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id));
    refuses(ncclCommInitRank(&other, 2, id, 2), 4, "rank 2: allowed are 0 to 1");
    refuses(ncclCommInitRank(nullptr, 2, id, 0), 4, "comm is null");
    refuses(ncclGetUniqueId(nullptr), 4, "uniqueId is null");
    refuses(ncclAlltoAll(b, b, 1, ncclFloat16, comm, nullptr), 5, "");
    void* handle = b;
    REQUIRE(ncclCommRegister(comm, b, 64, &handle));
    REQUIRE(ncclCommDeregister(comm, handle));
    void* memory = nullptr;
    REQUIRE(ncclMemAlloc(&memory, 100));
    REQUIRE(ncclMemFree(memory));
    if (!wrong.empty()) throw Wrong{wrong};
  });
  EXPECT_EQ(said, all_right(2));
}

// ---------------------------------------------------------------- the real library, and recording

int fake_calls(const char* name) {
  void* const library = dlopen(FAKE_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw Wrong{"the library was not loaded"};
  return reinterpret_cast<int (*)(const char*)>(dlsym(library, "fake_calls"))(name);
}

TEST(Nccl, WhatTheTableDoesNotTakePassesOn) {
  const Environment environment{{"ARLAB_NCCL_LIBRARY", FAKE_LIBRARY},
                                {"ARLAB_ALL_REDUCE", "1K-:two_shot/qr-q4"},
                                {"ARLAB_NCCL_DEBUG", "1"}};
  const auto said = as_processes(
      2,
      [](int rank, ncclComm_t comm) {
        const auto me = static_cast<std::size_t>(rank);
        const auto marked = [](const Bytes& bytes) { return bytes[0] == std::byte{0x5A}; };
        const auto passes = [&](const char* name, int calls, const Bytes& out) {
          if (fake_calls(name) != calls)
            throw Wrong{fmt::format("{} times {}", fake_calls(name), name)};
          if (!marked(out)) throw Wrong{std::string(name) + " does not come back"};
        };
        int version = 0;
        REQUIRE(ncclGetVersion(&version));
        if (version != 20001) throw Wrong{"another version"};
        const Tensor inputs = inputs_of(2, DType::fp16, 1000, 7);
        Bytes out = unset(2000);
        REQUIRE(ncclAllReduce(inputs.rank_bytes(me).data(), out.data(), 1000, ncclFloat16, ncclSum,
                              comm, nullptr));
        const Bytes want = expected("two_shot", "qr-q4", inputs);
        require_same(out.data(), &want[me * 2000], 2000, "a rule's call");
        if (fake_calls("ncclAllReduce") != 0) throw Wrong{"a rule's call was passed on"};
        const void* in = inputs.bytes().data();
        int calls = 0;
        for (const auto& [count, type, op] : {std::tuple(500, ncclFloat16, ncclSum),
                                              {1000, ncclFloat16, ncclAvg},
                                              {1000, ncclInt32, ncclSum}}) {
          out = unset(4000);
          REQUIRE(ncclAllReduce(in, out.data(), static_cast<std::size_t>(count), type, op, comm,
                                nullptr));
          passes("ncclAllReduce", ++calls, out);
        }
        out = unset(4000);
        REQUIRE(ncclAllGather(in, out.data(), 1000, ncclFloat16, comm, nullptr));
        passes("ncclAllGather", 1, out);
        out = unset(4000);
        REQUIRE(ncclAlltoAll(in, out.data(), 12345, ncclFloat16, comm, nullptr));
        passes("ncclAlltoAll", 1, out);
        // In a group with one that is ours.
        const int groups = fake_calls("ncclGroupStart");
        out = unset(4000);
        Bytes ours = unset(2000);
        REQUIRE(ncclGroupStart());
        REQUIRE(ncclAllReduce(inputs.rank_bytes(me).data(), ours.data(), 1000, ncclFloat16, ncclSum,
                              comm, nullptr));
        REQUIRE(ncclRecv(out.data(), 10, ncclFloat16, 1 - rank, comm, nullptr));
        REQUIRE(ncclGroupEnd());
        passes("ncclRecv", 1, out);
        require_same(ours.data(), &want[me * 2000], 2000, "a rule's call in a group");
        if (fake_calls("ncclGroupStart") != groups + 1 || fake_calls("ncclGroupEnd") != groups + 1)
          throw Wrong{"no group"};
        ::testing::internal::CaptureStderr();
        REQUIRE(ncclCommDestroy(comm));
        const std::string counts = ::testing::internal::GetCapturedStderr();
        if (counts !=
            fmt::format("arlab: rank {} of 2: all_reduce 2 by rules, 3 by the library, 0 plain; "
                        "all_gather 0 by rules, "
                        "1 by the library, 0 plain; recv 0 by rules, 1 by the library, 0 plain\n",
                        rank)) {
          throw Wrong{counts};
        }
        if (fake_calls("ncclCommDestroy") != 1) throw Wrong{"not destroyed"};
      },
      false);
  EXPECT_EQ(said, all_right(2));
}

TEST(Nccl, RanksThatShareADeviceAreNotPassedOn) {
  const Environment environment{{"ARLAB_NCCL_LIBRARY", FAKE_LIBRARY}};
  for (const int devices : {1, 2}) {
    EXPECT_EQ(
        as_threads(2, devices,
                   [&](int, ncclComm_t comm) {
                     float value = 1;
                     REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr));
                     if ((value == 2) != (devices == 1)) throw Wrong{"made by another"};
                   }),
        all_right(2));
  }
}

TEST(Nccl, MoreRanksThanATeamHasPassOn) {
  for (const bool has_library : {true, false}) {
    const Environment environment{{"ARLAB_NCCL_LIBRARY", has_library ? FAKE_LIBRARY : ""},
                                  {"ARLAB_ALL_REDUCE", "0-:two_shot/qr-q4"}};
    const auto said = as_processes(9, [](int, ncclComm_t comm) {
      float value = 1;
      REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr));
      if (fake_calls("ncclAllReduce") != 1) throw Wrong{"not passed on"};
    });
    if (has_library) {
      EXPECT_EQ(said, all_right(9));
      continue;
    }
    for (const std::string& line : said) {
      EXPECT_NE(line.find("9 ranks: arlab's communicators have 2 to 8"), std::string::npos) << line;
    }
  }
}

TEST(Nccl, ProcessesWithSeveralThreadsEachPassOn) {
  for (const bool has_library : {true, false}) {
    const Environment environment{{"ARLAB_NCCL_LIBRARY", has_library ? FAKE_LIBRARY : ""},
                                  {"ARLAB_ALL_REDUCE", "0-:two_shot/qr-q4"}};
    const ncclUniqueId id = new_id();
    const auto said = in_processes({0, 1}, [&](int process) {
      std::string lines[2];
      std::thread threads[2];
      for (int thread = 0; thread < 2; ++thread) {
        threads[thread] = std::thread([&, thread] {
          lines[thread] = said_by([&] {
            ncclComm_t comm = nullptr;
            (void)hipSetDevice(thread);
            REQUIRE(ncclCommInitRankConfig(&comm, 4, id, 2 * process + thread, nullptr));
            float value = 1;
            REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr));
            if (fake_calls("ncclAllReduce") == 0) throw Wrong{"not passed on"};
          });
        });
      }
      for (std::thread& thread : threads) thread.join();
      return lines[0] + "; " + lines[1];
    });
    for (const std::string& line : said) {
      if (has_library) {
        EXPECT_EQ(line, "right; right");
      } else {
        EXPECT_NE(line.find("some ranks share a process and some do not"), std::string::npos)
            << line;
      }
    }
  }
}

TEST(Nccl, AnIdOfTheRealLibraryIsForTheRealLibrary) {
  // As where a launcher has ranks on several hosts.
  const Environment environment{{"ARLAB_NCCL_LIBRARY", FAKE_LIBRARY},
                                {"WORLD_SIZE", "16"},
                                {"LOCAL_WORLD_SIZE", "8"},
                                {"ARLAB_ALL_REDUCE", "0-:two_shot/qr-q4"}};
  const auto said = in_processes({0}, [](int) {
    return said_by([] {
      ncclUniqueId id;
      REQUIRE(ncclGetUniqueId(&id));
      if (id.internal[0] != 7) throw Wrong{"an id of ours"};
      ncclComm_t comm = nullptr;
      REQUIRE(ncclCommInitRank(&comm, 16, id, 3));
      float value = 1;
      REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr));
      if (fake_calls("ncclAllReduce") != 1) throw Wrong{"not passed on"};
      REQUIRE(ncclCommDestroy(comm));
    });
  });
  EXPECT_EQ(said, all_right(1));
}

TEST(Nccl, ALibraryThatIsNamedIsLoadedOrAnError) {
  const kernels::Meeting folder;
  const std::string text = folder.folder() + "/text.so";
  const std::string pipe = folder.folder() + "/pipe.so";
  std::ofstream(text) << "no library";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::pair<std::string, const char*> kWrong[] = {
      {NCCL_LIBRARY, "is this library itself; name the real one in ARLAB_NCCL_LIBRARY"},
      {"/nowhere/libnccl.so", "/nowhere/libnccl.so cannot be loaded ("},
      {"libc.so.6", "libc.so.6 is no such library"},
      {text, "text.so cannot be loaded ("},
      {pipe, "pipe.so cannot be loaded (not a regular file)"},
      {folder.folder(), "cannot be loaded (not a regular file)"},
  };
  for (const auto& [file, why] : kWrong) {
    const Environment environment{{"ARLAB_NCCL_LIBRARY", file}};
    const auto said = in_processes({0}, [](int) {
      ncclUniqueId id = {};
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, 1, id, 0) != ncclInvalidArgument) return std::string("went on");
      return ncclGetUniqueId(&id) == ncclInvalidArgument ? std::string(ncclGetLastError(nullptr))
                                                         : "went on";
    });
    EXPECT_EQ(said[0].find("ncclGetUniqueId: ARLAB_NCCL_LIBRARY: "), 0U) << said[0];
    EXPECT_NE(said[0].find(why), std::string::npos) << said[0];
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(Nccl, RecordsWhatIsCalled) {
  const kernels::Meeting folder;
  const std::string recorded = folder.folder() + "/recorded";
  const Environment environment{{"ARLAB_NCCL_RECORD", recorded},
                                {"ARLAB_ALL_REDUCE", "1K-:two_shot/qr-q4"}};
  const Tensor inputs = inputs_of(2, DType::bf16, 1001, 8);
  EXPECT_EQ(
      as_processes(
          2,
          [&](int rank, ncclComm_t comm) {
            Bytes out(2002 * 2);
            const void* const mine = inputs.rank_bytes(static_cast<std::size_t>(rank)).data();
            REQUIRE(ncclAllReduce(mine, out.data(), 1001, ncclBfloat16, ncclSum, comm, nullptr));
            REQUIRE(ncclAllReduce(mine, out.data(), 10, ncclFloat16, ncclSum, comm, nullptr));
            REQUIRE(ncclAllReduce(mine, out.data(), 10, ncclFloat16, ncclSum, comm, nullptr));
            REQUIRE(ncclAllGather(mine, out.data(), 1000, ncclInt8, comm, nullptr));
          }),
      all_right(2));
  const std::vector<std::string> lines = lines_of(recorded + "/calls.csv");
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0],
            "communicator,ranks,call,collective,dtype,elements,bytes,took,host_us,payload");
  const auto has = [&](std::size_t line, const std::string& what) {
    EXPECT_NE(lines[line].find(what), std::string::npos) << lines[line];
  };
  has(1, ",2,1,all_reduce,bf16,1001,2002,rule,");
  has(2, ",2,2,all_reduce,fp16,10,20,plain,");
  has(3, ",2,3,all_reduce,fp16,10,20,plain,");
  has(4, ",2,4,all_gather,int8,1000,2000,plain,");
  EXPECT_EQ(lines[3].back(), ',');  // only the first, the second, the fourth
  const std::string payload = lines[1].substr(lines[1].rfind(',') + 1);
  const Tensor read = read_safetensors(recorded + "/" + payload, "");
  EXPECT_EQ(read.shape, (std::vector<std::size_t>{2, 1001}));
  EXPECT_EQ(read.dtype, DType::bf16);
  EXPECT_EQ(read.data, inputs.data);
}

TEST(Nccl, CallsOfAGroupAreRecordedApart) {
  const kernels::Meeting folder;
  const std::string recorded = folder.folder() + "/recorded";
  const Environment environment{{"ARLAB_NCCL_RECORD", recorded}};
  EXPECT_EQ(
      as_processes(2,
                   [&](int rank, ncclComm_t comm) {
                     float first[2] = {static_cast<float>(rank), 1};
                     float second[3] = {static_cast<float>(rank), 2, 3};
                     REQUIRE(ncclGroupStart());
                     REQUIRE(ncclAllReduce(first, first, 2, ncclFloat32, ncclSum, comm, nullptr));
                     REQUIRE(ncclAllReduce(second, second, 3, ncclFloat32, ncclSum, comm, nullptr));
                     REQUIRE(ncclGroupEnd());
                   }),
      all_right(2));
  const std::vector<std::string> lines = lines_of(recorded + "/calls.csv");
  ASSERT_EQ(lines.size(), 3U);
  for (const std::size_t call : {std::size_t{1}, std::size_t{2}}) {
    const std::string payload = lines[call].substr(lines[call].rfind(',') + 1);
    EXPECT_TRUE(payload.ends_with(fmt::format("-{}.safetensors", call))) << payload;
    EXPECT_EQ(read_safetensors(recorded + "/" + payload, "").shape,
              (std::vector<std::size_t>{2, call + 1}));
  }
}

/// Names of the files in a folder, those that begin with a dot, too.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    names.push_back(each.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TEST(Nccl, RecordingEndsWhereItsRoomDoes) {
  const kernels::Meeting folder;
  const std::string recorded = folder.folder() + "/recorded";
  const Environment environment{{"ARLAB_NCCL_RECORD", recorded}};
  constexpr std::size_t kCount = std::size_t{3} << 20;  // 12 MiB
  EXPECT_EQ(as_processes(1,
                         [&](int, ncclComm_t comm) {
                           std::vector<float> values(kCount, 1.0F);
                           for (int call = 0; call < 64; ++call) {
                             REQUIRE(ncclAllReduce(values.data(), values.data(), kCount,
                                                   ncclFloat32, ncclSum, comm, nullptr));
                           }
                         }),
            all_right(1));
  // The 1st, 2nd, 4th, 8th and 16th whole, of the 32nd what has room, of the 64th nothing.
  std::vector<std::uintmax_t> mebibytes;
  for (const std::string& name : files_in(recorded)) {
    if (name == "calls.csv") continue;
    mebibytes.push_back(std::filesystem::file_size(recorded + "/" + name) >> 20);
  }
  std::ranges::sort(mebibytes);
  EXPECT_EQ(mebibytes, (std::vector<std::uintmax_t>{4, 12, 12, 12, 12, 12}));
  EXPECT_EQ(lines_of(recorded + "/calls.csv").size(), 65U);
}

void four_all_reduces(int rank, ncclComm_t comm) {
  for (int call = 0; call < 4; ++call) {
    std::vector<float> values(1000, static_cast<float>(rank) + 1);
    REQUIRE(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm,
                          nullptr));
    if (values != std::vector<float>(1000, 3.0F)) throw Wrong{"another sum"};
  }
}

/// Returns the words of two ranks on recorded calls, and all that they print.
std::pair<std::vector<std::string>, std::string> recorded_calls(
    const std::string& recorded, const Body& body = four_all_reduces) {
  const kernels::Meeting folder;
  const std::string printed = folder.folder() + "/printed";
  const Environment environment{{"ARLAB_NCCL_RECORD", recorded}, {"ARLAB_NCCL_TIMEOUT_S", "10"}};
  const ncclUniqueId id = new_id();
  const auto said = in_processes(all_of(2), [&](int rank) {
    return said_by([&] {
      if (std::freopen(printed.c_str(), "a", stderr) == nullptr) throw Wrong{"freopen"};
      (void)std::setvbuf(stderr, nullptr, _IONBF, 0);  // as it was
      ncclComm_t comm = nullptr;
      REQUIRE(ncclCommInitRank(&comm, 2, id, rank));
      body(rank, comm);
      REQUIRE(ncclCommDestroy(comm));
    });
  });
  std::string text;
  for (const std::string& line : lines_of(printed)) text += line + "\n";
  return {said, text};
}

TEST(Nccl, RecordsAreForThisUserOnly) {
  namespace fs = std::filesystem;
  const auto mode_of = [](const std::string& path) {
    return static_cast<unsigned>(fs::symlink_status(path).permissions());
  };
  const kernels::Meeting around;
  const std::string recorded = around.folder() + "/recorded";
  umask(0);
  EXPECT_EQ(recorded_calls(recorded), std::pair(all_right(2), std::string()));
  EXPECT_EQ(mode_of(recorded), 0700U);
  const std::vector<std::string> names = files_in(recorded);
  EXPECT_EQ(names.size(), 4U);  // and the payloads of three calls
  for (const std::string& name : names) EXPECT_EQ(mode_of(recorded + "/" + name), 0600U) << name;

  // A folder that others could write, read, or lead elsewhere is refused, and nothing is written.
  const std::string target = around.folder() + "/target";
  std::ofstream(target) << "untouched";
  const std::string calls = recorded + "/calls.csv";
  struct Refused {
    const char* what;
    std::function<void()> make;
    const char* said;
  };
  const Refused all[] = {
      {"mode 755", [&] { fs::permissions(recorded, fs::perms(0755)); },
       "others can come to it (mode 755)"},
      {"mode 720", [&] { fs::permissions(recorded, fs::perms(0720)); },
       "others can come to it (mode 720)"},
      {"a link to a folder",
       [&] {
         fs::create_directory(around.folder() + "/elsewhere");
         fs::permissions(around.folder() + "/elsewhere", fs::perms(0700));
         fs::remove(recorded);
         fs::create_directory_symlink(around.folder() + "/elsewhere", recorded);
       },
       "it cannot be written"},
      {"a file", [&] { fs::remove(recorded), std::ofstream(recorded) << "file"; },
       "it cannot be written"},
      {"calls for all",
       [&] {
         std::ofstream(calls) << "x";
         fs::permissions(calls, fs::perms(0666));
       },
       "calls.csv: others can come to it (mode 666)"},
      {"a link to a file",
       [&] {
         fs::permissions(target, fs::perms(0600));
         fs::create_symlink(target, calls);
       },
       "calls.csv: it cannot be written"},
      {"a pipe", [&] { ASSERT_EQ(mkfifo(calls.c_str(), 0600), 0); },
       "calls.csv: it cannot be written"},
  };
  for (const Refused& refused : all) {
    fs::remove_all(recorded);
    fs::create_directory(recorded);
    fs::permissions(recorded, fs::perms(0700));
    refused.make();
    const auto [said, printed] = recorded_calls(recorded);
    EXPECT_EQ(said, all_right(2)) << refused.what;
    for (const char* part :
         {"arlab: ARLAB_NCCL_RECORD: ", refused.said, "; nothing more is recorded\n"}) {
      EXPECT_NE(printed.find(part), std::string::npos) << refused.what << ": " << printed;
    }
    EXPECT_EQ(std::ranges::count(printed, '\n'), 2) << printed;  // from both ranks
  }
  EXPECT_EQ(lines_of(target), std::vector<std::string>{"untouched"});
  EXPECT_TRUE(files_in(around.folder() + "/elsewhere").empty());
  if (geteuid() != 0) return;  // only root makes folders of others
  fs::remove_all(recorded);
  fs::create_directory(recorded);
  fs::permissions(recorded, fs::perms(0700));
  ASSERT_EQ(chown(recorded.c_str(), 65534, 65534), 0);
  const auto [said, printed] = recorded_calls(recorded);
  EXPECT_EQ(said, all_right(2));
  EXPECT_NE(printed.find("it belongs to user 65534"), std::string::npos) << printed;
  EXPECT_TRUE(files_in(recorded).empty());
}

TEST(Nccl, RecordingFailsNoCall) {
  const kernels::Meeting around;
  int number = 0;
  // Whatever goes wrong, calls are made, and files are whole.
  const auto printed_by = [&](const Body& body) {
    const std::string recorded = fmt::format("{}/recorded{}", around.folder(), number++);
    const auto [said, printed] = recorded_calls(recorded, body);
    EXPECT_EQ(said, all_right(2));
    for (const std::string& name : files_in(recorded)) {
      if (name == "calls.csv") {
        std::ifstream file(recorded + "/calls.csv");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        EXPECT_TRUE(text.ends_with('\n')) << text;
        for (const std::string& line : lines_of(recorded + "/calls.csv")) {
          EXPECT_EQ(std::ranges::count(line, ','), 9) << line;
        }
      } else {
        EXPECT_FALSE(name.ends_with(".part")) << name;
        EXPECT_EQ(read_safetensors(recorded + "/" + name, "").shape,
                  (std::vector<std::size_t>{2, 1000}));
      }
    }
    return printed;
  };
  const auto many_calls = [](ncclComm_t comm) {
    for (int call = 0; call < 100; ++call) {
      std::byte in{1};
      std::byte out[2];
      REQUIRE(ncclAllGather(&in, out, 1, ncclInt8, comm, nullptr));
    }
  };
  EXPECT_EQ(printed_by([&](int rank, ncclComm_t comm) {
              many_calls(comm);
              four_all_reduces(rank, comm);
            }),
            "");
  constexpr int kBoth = -1;
  for (const int of_rank : {kBoth, 0, 1}) {
    const auto with = [&](const std::function<void()>& before, bool has_payloads) {
      return printed_by([&, before, has_payloads](int rank, ncclComm_t comm) {
        if (of_rank == kBoth || of_rank == rank) before();
        has_payloads ? four_all_reduces(rank, comm) : many_calls(comm);
      });
    };
    const auto expect_said = [&](const std::string& printed, const char* reason) {
      EXPECT_NE(printed.find(fmt::format("{}; nothing more is recorded\n", reason)),
                std::string::npos)
          << printed;
      EXPECT_EQ(std::ranges::count(printed, '\n'), of_rank == kBoth ? 2 : 1) << printed;
    };
    for (const std::int64_t room : {0, 50, 1000, 4000, 5000}) {
      expect_said(with([=] { room_on_disk = room; }, true), "No space left on device");
    }
    const rlimit of_files = {5000, 5000};
    expect_said(with([=] { (void)setrlimit(RLIMIT_FSIZE, &of_files); }, true), "File too large");
    const rlimit descriptors = {3, 3};
    expect_said(with([=] { (void)setrlimit(RLIMIT_NOFILE, &descriptors); }, true),
                "Too many open files");
    if (of_rank == 1) continue;  // rank 0 writes the lines
    for (const std::int64_t room : {0, 50, 1000}) {
      const std::string printed = with([=] { room_on_disk = room; }, false);
      EXPECT_NE(printed.find("calls.csv: it cannot be written: No space left on device; nothing"),
                std::string::npos)
          << printed;
    }
  }
}

}  // namespace
}  // namespace arlab
