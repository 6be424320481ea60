// The ranks of a communicator that arlab runs itself: one process each, or threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/nccl/abi.h"
#include "kernels/runtime/platforms.h"

namespace arlab::nccl {

/// On the stream of a call, before or behind it.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// A rank's part in a call of its team.
struct Work {
  kernels::CollectiveRequest request;
  const void* input = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
  std::vector<Copy> before = {};
  std::vector<Copy> behind = {};
};

/// One rank's part of a team.
class Member {
 public:
  virtual ~Member() = default;
  /// A call, of which all members' are needed before it runs. wait() must follow for each, in this order: a thread that has
  /// several ranks starts the calls of all first. Both throw Failure.
  virtual void start(Work work) = 0;
  virtual void wait() = 0;
  /// Throws what went wrong on the device. Waits for no kernel.
  virtual void check() = 0;
  virtual void give_up() = 0;
};

/// A rank with a process of its own.
std::unique_ptr<Member> member_of_process(const kernels::DeviceCalls& calls,
                                          std::unique_ptr<kernels::RankCommunicator> rank);

/// Ranks that are threads of this process, or one thread's. A call is launched for all by whoever comes last, so that no kernel
/// waits for one that is not there yet: streams may be shared, and emulated GPUs need it.
class LocalTeam {
 public:
  LocalTeam(const kernels::DeviceCalls& calls,
            std::vector<std::unique_ptr<kernels::RankCommunicator>> ranks,
            std::chrono::milliseconds timeout);

  static std::unique_ptr<Member> member(std::shared_ptr<LocalTeam> team, int rank);

 private:
  friend class LocalMember;
  struct Posted {
    Work work;
    bool done = false;
    std::optional<Failure> failure = {};
  };
  using PostedPtr = std::shared_ptr<Posted>;

  PostedPtr post(int rank, Work work);
  void wait(int rank, const PostedPtr& posted);
  void launch(const std::vector<PostedPtr>& call);
  void give_up(int rank);
  void fail(const Failure& failure);

  const kernels::DeviceCalls& calls_;
  std::vector<std::unique_ptr<kernels::RankCommunicator>> ranks_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<std::deque<PostedPtr>> queues_;  // by rank
  std::optional<Failure> failed_;              // then no call does anything
};

/// Throws a Failure unless it is fine.
void require(const kernels::Status& status, Code code);

}  // namespace arlab::nccl
