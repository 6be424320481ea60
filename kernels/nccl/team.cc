#include "kernels/nccl/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace arlab::nccl {

using kernels::DeviceCalls;
using kernels::RankCommunicator;
using kernels::Status;

void require(const Status& status, Code code) {
  if (!status.ok()) throw Failure(code, status.message());
}

namespace {

void copy_all(const DeviceCalls& calls, const std::vector<Copy>& copies, void* stream) {
  for (const Copy& copy : copies) {
    require(calls.copy(copy.to, copy.from, copy.bytes, stream), kDeviceError);
  }
}

/// Kernels load and store whole elements.
void require_aligned(const Work& work) {
  const std::size_t size = size_of(work.request.dtype);
  const auto places =
      reinterpret_cast<std::uintptr_t>(work.input) | reinterpret_cast<std::uintptr_t>(work.output);
  if (places % size == 0) return;
  throw Failure(kInvalidArgument, fmt::format("a buffer of {} is not at a multiple of {} bytes",
                                              name_of(work.request.dtype), size));
}

/// Up to the kernels; finish() is the rest.
void begin(const DeviceCalls& calls, RankCommunicator& rank, const Work& work) {
  require_aligned(work);
  if (!work.before.empty()) {
    require(calls.use_device(rank.device()), kDeviceError);
    copy_all(calls, work.before, work.stream);
  }
  require(rank.run(work.request, work.input, work.output, work.stream), kInvalidArgument);
}
void finish(const DeviceCalls& calls, RankCommunicator& rank, const Work& work) {
  require(rank.join(work.stream), kDeviceError);
  if (work.behind.empty()) return;
  require(calls.use_device(rank.device()), kDeviceError);
  copy_all(calls, work.behind, work.stream);
}

/// Nobody else makes kernels of emulated GPUs run. What is captured runs later.
bool is_waited_for(const DeviceCalls& calls, const RankCommunicator& rank, const Work& work) {
  if (!calls.is_emulated()) return false;
  require(calls.use_device(rank.device()), kDeviceError);
  const kernels::Result<bool> captured = calls.is_captured(work.stream);
  require(captured.status(), kDeviceError);
  return !captured.value();
}
void wait_for(const DeviceCalls& calls, RankCommunicator& rank, const Work& work) {
  require(calls.use_device(rank.device()), kDeviceError);
  require(calls.wait(work.stream), kDeviceError);
}

class ProcessMember final : public Member {
 public:
  ProcessMember(const DeviceCalls& calls, std::unique_ptr<RankCommunicator> rank)
      : calls_(calls), rank_(std::move(rank)) {}

  void start(Work work) override {
    const std::lock_guard lock(mutex_);
    begin(calls_, *rank_, work);
    finish(calls_, *rank_, work);
    if (!is_waited_for(calls_, *rank_, work)) return;
    wait_for(calls_, *rank_, work);
    require(rank_->check(), kRemoteError);
  }
  void wait() override {}
  void check() override {
    const std::lock_guard lock(mutex_);
    require(rank_->check(), kRemoteError);
  }
  void give_up() override { (void)rank_->give_up(); }

 private:
  const DeviceCalls& calls_;
  std::mutex mutex_;  // a program's watchdog looks for errors on a thread of its own
  std::unique_ptr<RankCommunicator> rank_;
};

}  // namespace

std::unique_ptr<Member> member_of_process(const DeviceCalls& calls,
                                          std::unique_ptr<RankCommunicator> rank) {
  return std::make_unique<ProcessMember>(calls, std::move(rank));
}

class LocalMember final : public Member {
 public:
  LocalMember(std::shared_ptr<LocalTeam> team, int rank) : team_(std::move(team)), rank_(rank) {}

  void start(Work work) override { started_.push_back(team_->post(rank_, std::move(work))); }
  void wait() override {
    const auto posted = std::move(started_.front());
    started_.pop_front();
    team_->wait(rank_, posted);
  }
  void check() override {
    const std::lock_guard lock(team_->mutex_);
    if (team_->failed_) throw *team_->failed_;
    require(team_->ranks_[static_cast<std::size_t>(rank_)]->check(), kRemoteError);
  }
  void give_up() override { team_->give_up(rank_); }

 private:
  std::shared_ptr<LocalTeam> team_;
  int rank_;
  std::deque<LocalTeam::PostedPtr> started_;
};

LocalTeam::LocalTeam(const DeviceCalls& calls, std::vector<std::unique_ptr<RankCommunicator>> ranks,
                     std::chrono::milliseconds timeout)
    : calls_(calls), ranks_(std::move(ranks)), timeout_(timeout), queues_(ranks_.size()) {}

std::unique_ptr<Member> LocalTeam::member(std::shared_ptr<LocalTeam> team, int rank) {
  return std::make_unique<LocalMember>(std::move(team), rank);
}

LocalTeam::PostedPtr LocalTeam::post(int rank, Work work) {
  auto posted = std::make_shared<Posted>(std::move(work));
  const std::lock_guard lock(mutex_);
  if (failed_) throw *failed_;
  queues_[static_cast<std::size_t>(rank)].push_back(posted);
  while (std::ranges::none_of(queues_, [](const auto& queue) { return queue.empty(); })) {
    std::vector<PostedPtr> call;
    for (auto& queue : queues_) {
      call.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    try {
      launch(call);
    } catch (const Failure& failure) {
      for (const PostedPtr& each : call) each->failure = failure;
      // Some ranks' kernels may be there without those of others.
      failed_ = failure;
    }
    for (const PostedPtr& each : call) each->done = true;
  }
  moved_.notify_all();
  return posted;
}

void LocalTeam::launch(const std::vector<PostedPtr>& call) {
  {
    const std::shared_ptr<void> others_wait = ranks_.front()->hold_other_threads();
    for (std::size_t rank = 0; rank < call.size(); ++rank) {
      begin(calls_, *ranks_[rank], call[rank]->work);
    }
  }
  // All, before any of them waits: streams may be the same.
  for (std::size_t rank = 0; rank < call.size(); ++rank) {
    finish(calls_, *ranks_[rank], call[rank]->work);
  }
  bool waits = false;
  for (std::size_t rank = 0; rank < call.size(); ++rank) {
    if (!is_waited_for(calls_, *ranks_[rank], call[rank]->work)) continue;
    wait_for(calls_, *ranks_[rank], call[rank]->work);
    waits = true;
  }
  for (std::size_t rank = 0; waits && rank < call.size(); ++rank) {
    require(ranks_[rank]->check(), kRemoteError);
  }
}

void LocalTeam::wait(int rank, const PostedPtr& posted) {
  std::unique_lock lock(mutex_);
  const bool in_time =
      moved_.wait_for(lock, timeout_, [&] { return posted->done || failed_.has_value(); });
  if (!in_time) {
    std::size_t late = 0;
    while (!queues_[late].empty()) ++late;
    fail(Failure(kRemoteError, fmt::format("rank {} did not arrive within {} ms (seen by rank {})",
                                           late, timeout_.count(), rank)));
  }
  if (posted->failure) throw *posted->failure;
  if (!posted->done) throw *failed_;
}

void LocalTeam::give_up(int rank) {
  const std::lock_guard lock(mutex_);
  fail(Failure(kRemoteError, fmt::format("rank {} has given up", rank)));
  for (const auto& each : ranks_) (void)each->give_up();
}

void LocalTeam::fail(const Failure& failure) {
  if (!failed_) failed_ = failure;
  for (auto& queue : queues_) queue.clear();
  moved_.notify_all();
}

}  // namespace arlab::nccl
