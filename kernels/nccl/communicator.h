// A communicator as NCCL's programs have it: which of the table, the real library and plain kernels makes each call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/nccl/abi.h"
#include "kernels/nccl/real_library.h"
#include "kernels/nccl/recorder.h"
#include "kernels/nccl/team.h"
#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/call_table.h"
#include "kernels/runtime/platforms.h"

namespace arlab::nccl {

enum class Kind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  send,
  recv
};
inline constexpr const char* kKindNames[] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send", "recv"};
inline constexpr std::size_t kKinds = std::size(kKindNames);

/// A collective, as a rank calls it.
struct Call {
  Kind kind = Kind::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = kSum;
  int root = 0;  ///< for send and recv: the other rank
  void* stream = nullptr;
};

/// Who makes a call: a rule of the table; the real library; or arlab, with values as they are.
enum class HandledBy : std::uint8_t { rule, library, plain };
inline constexpr const char* kHandledByNames[] = {"rule", "library", "plain"};

/// The platform that calls run on: ARLAB_NCCL_PLATFORM, or the one with GPUs that is built. Throws a Failure.
const kernels::Platform& platform();

/// A new one, for ranks of this host; the real library's where a launcher says that ranks are on several hosts.
UniqueId make_unique_id();

class Communicator {
 public:
  /// All ranks call it. Throws a Failure, on all ranks where they hear of it.
  Communicator(int ranks, const UniqueId& id, int rank, int device, void* config);
  /// One that the real library has made: it makes all calls.
  Communicator(Handle real, int device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  Handle real() const { return real_; }
  Handle handle() { return real_ != nullptr ? real_ : this; }

  /// Who will make the call. Throws a Failure when nobody can.
  HandledBy took(const Call& call) const { return took(call, rule_of(call)); }

  /// The calls of a group, of which the real library's are made at once. Those of other ranks must start before finish().
  void start(std::span<const Call> calls);
  void finish();

  /// Ranks with the same color meet in a new one, in the order of their keys; null for those with a negative color.
  std::shared_ptr<Communicator> split(int color, int key, void* config);

  /// The counts, and what is still to be recorded; the last that it does.
  void say_what_was_called();

  /// Throws what has gone wrong on the device.
  void check();
  void give_up();

 private:
  struct Meeting;
  struct Started {
    Call call;
    HandledBy took;
    std::chrono::steady_clock::time_point begin = {};
    std::string payload = {};
    Member* member = nullptr;  // which it must wait for
  };

  void meet(const UniqueId& id, void* config);
  void make_team(const Meeting& meeting);
  void open_real(const UniqueId& id, void* config);
  const kernels::TableRule* rule_of(const Call& call) const;
  HandledBy took(const Call& call, const kernels::TableRule* rule) const;
  std::string refusal(const Call& call) const;
  void start_one(const Call& call);
  void start_pairs(std::vector<Call> calls);
  void by_library(const Call& call);
  Work work_of(const Call& call, const kernels::TableRule* rule);
  Member& pair_with(int peer);
  /// Copies from a rank to itself.
  void copy(void* to, const void* from, std::size_t bytes, void* stream);
  /// Keeps the payload of some all-reduces; the name of its file.
  std::string sample(const Call& call);
  std::string sample_or_throw(const Call& call);
  void* scratch(void* stream, std::size_t bytes);

  int rank_;
  int ranks_;
  int device_;
  const kernels::Platform& platform_;
  const kernels::DeviceCalls& calls_;
  std::string name_;  // where ranks meet
  std::chrono::milliseconds timeout_{};
  bool says_counts_ = false;
  kernels::CallTable table_;
  std::unique_ptr<kernels::Bootstrap> bootstrap_;
  std::mutex split_mutex_;  // the bootstrap's, which has one conversation at a time
  Handle real_ = nullptr;
  std::unique_ptr<Member> team_;
  std::shared_ptr<void> shared_;  // by the ranks of this process
  std::mutex pairs_mutex_;        // check() is called by other threads
  std::map<int, std::unique_ptr<Member>> pairs_;
  std::unique_ptr<Recorder> recorder_;
  std::string why_no_team_;
  std::vector<Started> started_;
  std::map<void*, std::vector<std::pair<void*, std::size_t>>>
      scratch_;  // by stream, the largest last
  std::atomic<std::uint64_t> counts_[kKinds][3] = {};
};

}  // namespace arlab::nccl
