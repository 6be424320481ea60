#include "kernels/runtime/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "kernels/runtime/prepared_call.h"
#include "kernels/runtime/prepared_tail.h"
#include "kernels/runtime/team_memory.h"
#include "reference/collectives/algorithm.h"
#include "reference/definitions.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

Status enable_peer_access(std::span<const int> devices) {
  int there = 0;
  ARLAB_RETURN_IF_ERROR(status_of(hipGetDeviceCount(&there), "devices cannot be counted"));
  for (const int device : devices) {
    if (device < 0 || device >= there) {
      return Status::refusal(
          fmt::format("device {} is not there: allowed are 0 to {}", device, there - 1));
    }
  }
  for (const int device : devices) {
    for (const int peer : devices) {
      if (peer == device) continue;
      int can = 0;
      ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device), "a device cannot be used"));
      ARLAB_RETURN_IF_ERROR(status_of(hipDeviceCanAccessPeer(&can, device, peer), "peer access"));
      if (can == 0) {
        return Status::error(
            fmt::format("device {} has no peer access to device {}", device, peer));
      }
      const hipError_t error = hipDeviceEnablePeerAccess(peer, 0);
      if (error == hipErrorPeerAccessAlreadyEnabled) {
        (void)hipGetLastError();
      } else if (error != hipSuccess) {
        return status_of(error, "peer access");
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Communicator>> Communicator::in_process(std::span<const int> devices,
                                                           const CommunicatorOptions& options) {
  ARLAB_RETURN_IF_ERROR(check_options(devices.size(), options));
  ARLAB_RETURN_IF_ERROR(enable_peer_access(devices));

  ARLAB_ASSIGN_OR_RETURN(const int multiprocessors, multiprocessors_of_each(devices, options));

  auto memory = std::make_shared<TeamMemory>();
  const BufferLayout layout = layout_of(options, static_cast<int>(devices.size()), multiprocessors);
  std::vector<Team> teams(devices.size());
  std::vector<Statistics*> statistics(devices.size());
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    ARLAB_ASSIGN_OR_RETURN(
        const RankMemory made,
        make_rank(*memory, static_cast<int>(rank), devices[rank], layout, options, teams[rank]));
    for (Team& team : teams) team.buffer[rank] = made.buffer;
    statistics[rank] = made.statistics;
  }

  std::vector<Communicator> communicators;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    communicators.push_back(Communicator(teams[rank], devices[rank], multiprocessors, options,
                                         memory, statistics[rank],
                                         {devices.begin(), devices.end()}));
    ARLAB_RETURN_IF_ERROR(communicators.back().make_streams());
  }
  return {std::move(communicators)};
}

Communicator::Communicator(Team team, int device, int multiprocessors,
                           const CommunicatorOptions& options, std::shared_ptr<TeamMemory> memory,
                           Statistics* statistics, std::vector<int> devices)
    : team_(team),
      device_(device),
      multiprocessors_(multiprocessors),
      options_(options),
      memory_(std::move(memory)),
      statistics_(statistics),
      devices_(std::move(devices)) {}

Status Communicator::make_streams() {
  (void)hipSetDevice(device_);
  ARLAB_RETURN_IF_ERROR(status_of(hipEventCreateWithFlags(&last_call_, hipEventDisableTiming),
                                  "an event cannot be made"));
  ARLAB_RETURN_IF_ERROR(status_of(hipStreamCreateWithFlags(&beside_, hipStreamNonBlocking),
                                  "a stream cannot be made"));
  if (options_.multiprocessors != 0) {
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(multiprocessors_ + 31) / 32);
    for (int i = 0; i < multiprocessors_; ++i)
      mask[static_cast<std::size_t>(i) / 32] |= std::uint32_t{1} << i % 32;
    ARLAB_RETURN_IF_ERROR(status_of(
        hipExtStreamCreateWithCUMask(&limited_, static_cast<std::uint32_t>(mask.size()),
                                     mask.data()),
        fmt::format(
            "kernels cannot be kept to {} multiprocessors (NVIDIA's driver does so with even "
            "numbers)",
            multiprocessors_)
            .c_str()));
    for (hipEvent_t* event : {&before_, &behind_}) {
      ARLAB_RETURN_IF_ERROR(status_of(hipEventCreateWithFlags(event, hipEventDisableTiming),
                                      "an event cannot be made"));
    }
  }
  return status_of(hipDeviceSynchronize(), "a device cannot be used");
}

Communicator::Communicator(Communicator&& other) noexcept
    : team_(other.team_),
      device_(other.device_),
      multiprocessors_(other.multiprocessors_),
      options_(other.options_),
      memory_(std::move(other.memory_)),
      statistics_(other.statistics_),
      devices_(std::move(other.devices_)),
      agreed_(std::move(other.agreed_)),
      prepared_(std::move(other.prepared_)),
      last_call_(std::exchange(other.last_call_, nullptr)),
      last_stream_(other.last_stream_),
      called_(other.called_),
      limited_(std::exchange(other.limited_, nullptr)),
      before_(std::exchange(other.before_, nullptr)),
      behind_(std::exchange(other.behind_, nullptr)),
      beside_(std::exchange(other.beside_, nullptr)) {}

Communicator::~Communicator() {
  if (!memory_) return;
  (void)hipSetDevice(device_);
  (void)hipDeviceSynchronize();
  for (hipEvent_t event : {last_call_, before_, behind_}) {
    if (event != nullptr) (void)hipEventDestroy(event);
  }
  for (hipStream_t stream : {limited_, beside_}) {
    if (stream != nullptr) (void)hipStreamDestroy(stream);
  }
}

Status Communicator::order_after_last_call(hipStream_t stream) {
  if (!called_ || stream == last_stream_) return {};
  return status_of(hipStreamWaitEvent(stream, last_call_, 0), "streams cannot be ordered");
}

Result<Communicator::Prepared*> Communicator::prepared(const CollectiveRequest& request) {
  const Algorithm* file = nullptr;
  try {
    if (is_schedule_file(request.algorithm)) file = &find_algorithm(request.algorithm);
  } catch (const InvalidInput& error) {
    return Status::refusal(error.what());
  }
  // A name may stand for another codec or algorithm since; graphs may still run the call of before.
  const std::uint64_t definitions = definitions_made();
  for (Prepared& known : prepared_) {
    if (known.definitions == definitions && known.request == request && known.file == file) {
      return &known;
    }
  }
  ARLAB_ASSIGN_OR_RETURN(
      std::shared_ptr<const PreparedCall> call,
      PreparedCall::prepare(request, {team_, options_, multiprocessors_, statistics_}));
  constexpr std::size_t kMostPrepared = 64;
  if (prepared_.size() == kMostPrepared) prepared_.erase(prepared_.begin());
  prepared_.push_back({request, file, definitions, std::move(call)});
  return &prepared_.back();
}

Result<std::shared_ptr<const PreparedCall>> Communicator::ready(const CollectiveRequest& request,
                                                                bool capturing) {
  ARLAB_ASSIGN_OR_RETURN(Prepared* const call, prepared(request));
  if (!call->is_loaded) {
    ARLAB_RETURN_IF_ERROR(load(*call->call, capturing));
    call->is_loaded = true;
  }
  return call->call;
}

#if defined(ARLAB_KERNELS_ON_DEMAND)
namespace {

/// A codec of the same name may have other kernels since, on all ranks.
std::uint64_t key_of(std::uint64_t call, std::span<const WantedKernel> kernels) {
  for (const WantedKernel& kernel : kernels) {
    call = call * 0x9E3779B97F4A7C15u + std::hash<std::string>()(kernel.unit);
  }
  return call;
}

}  // namespace

Status Communicator::load(const PreparedCall& call, bool capturing) {
  ARLAB_ASSIGN_OR_RETURN(const std::vector<WantedKernel> kernels, call.kernels());
  return load(kernels, call.hash(), capturing);
}

Status Communicator::load(std::span<const WantedKernel> kernels, std::uint64_t call,
                          bool capturing) {
  KernelStore& store = KernelStore::of_process();
  if (capturing && !store.has(kernels, device_)) {
    return Status::error(
        "a stream is captured, and kernels of this call are not loaded: Communicator.prepare(...) "
        "with the same arguments loads them before the capture, as a call outside of one does");
  }
  const auto load = [&] { return store.load(kernels, devices_); };
  const std::uint64_t key = key_of(call, kernels);
  if (agreed_.contains(key)) return load();
  ARLAB_RETURN_IF_ERROR(memory_->together(load, beside_));
  agreed_.insert(key);
  return {};
}

Status Communicator::prepare(std::span<const CollectiveRequest> requests,
                             const CompileProgress& progress) {
  std::set<std::uint64_t> calls;
  std::map<std::string, WantedKernel> wanted;  // by unit
  for (const CollectiveRequest& request : requests) {
    const Result<Prepared*> call = prepared(request);
    if (!call.ok()) continue;
    ARLAB_ASSIGN_OR_RETURN(const std::vector<WantedKernel> kernels, call.value()->call->kernels());
    for (const WantedKernel& kernel : kernels) wanted.emplace(kernel.unit, kernel);
    calls.insert(key_of(call.value()->call->hash(), kernels));
  }
  std::vector<WantedKernel> kernels;
  for (auto& [unit, kernel] : wanted) kernels.push_back(std::move(kernel));
  ARLAB_RETURN_IF_ERROR(memory_->together(
      [&] { return KernelStore::of_process().load(kernels, devices_, progress); }, beside_));
  agreed_.merge(calls);
  return {};
}
#else
Status Communicator::prepare(std::span<const CollectiveRequest>, const CompileProgress&) {
  return {};
}

Status Communicator::load(const PreparedCall&, bool) { return {}; }
#endif

Status Communicator::prepare(const CollectiveRequest& request) {
  return ready(request, false).status();
}

Status Communicator::launch(const PreparedCall& call, const Tensors& tensors, hipStream_t stream) {
  if (limited_ == nullptr) return call.launch(tensors, stream);
  constexpr const char* kWhat = "streams cannot be ordered";
  ARLAB_RETURN_IF_ERROR(status_of(hipEventRecord(before_, stream), kWhat));
  ARLAB_RETURN_IF_ERROR(status_of(hipStreamWaitEvent(limited_, before_, 0), kWhat));
  const Status launched = call.launch(tensors, limited_);
  // Whatever happened: a stream that is captured takes its side streams with it to the end.
  Status status = status_of(hipEventRecord(behind_, limited_), kWhat);
  if (status.ok()) status = status_of(hipStreamWaitEvent(stream, behind_, 0), kWhat);
  return launched.ok() ? status : launched;
}

Status Communicator::run(const CollectiveRequest& request, const void* input, void* output,
                         hipStream_t stream, const TailTensors& tail) {
  ARLAB_RETURN_IF_ERROR(require_tail_tensors(request, tail));
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), "a device cannot be used"));
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  ARLAB_RETURN_IF_ERROR(
      status_of(hipStreamIsCapturing(stream, &capture), "the stream cannot be used"));
  const bool capturing = capture != hipStreamCaptureStatusNone;
  ARLAB_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedCall> call, ready(request, capturing));
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), "a device cannot be used"));
  if (!capturing) ARLAB_RETURN_IF_ERROR(order_after_last_call(stream));
  Status status = launch(*call, {input, output, tail}, stream);
  if (status.ok() && call->is_counted()) {
    status = started(launch_count_call(team_.random_calls, stream));
  }
  if (!status.ok() || capturing) return status;
  called_ = true;
  last_stream_ = stream;
  return status_of(hipEventRecord(last_call_, stream), "an event cannot be recorded");
}

Status Communicator::set_random_calls(std::uint32_t calls) {
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), "a device cannot be used"));
  if (called_) {
    ARLAB_RETURN_IF_ERROR(status_of(hipStreamSynchronize(last_stream_), "a kernel failed"));
  }
  return fill_words(reinterpret_cast<std::uint8_t*>(team_.random_calls), 1, calls);
}

Result<std::string> Communicator::explain(const CollectiveRequest& request) {
  ARLAB_ASSIGN_OR_RETURN(const Prepared* const call, prepared(request));
  return call->call->explanation();
}

Status Communicator::check() {
  std::uint32_t words[2] = {};
  (void)hipSetDevice(device_);
  const std::uint32_t* sources[2] = {
      team_.status, reinterpret_cast<const std::uint32_t*>(team_.buffer[team_.rank])};
  constexpr const char* kWhat = "the state of a communicator cannot be read";
  for (int i = 0; i < 2; ++i) {
    ARLAB_RETURN_IF_ERROR(
        status_of(hipMemcpyAsync(&words[i], sources[i], 4, hipMemcpyDeviceToHost, beside_), kWhat));
  }
  ARLAB_RETURN_IF_ERROR(status_of(hipStreamSynchronize(beside_), kWhat));
  for (const Prepared& prepared : prepared_) {
    const std::string failure = prepared.call->failure();
    if (!failure.empty()) return Status::error(failure);
  }
  const std::uint32_t reason = words[0] != 0 ? words[0] : words[1];
  if (reason == 0) return {};
  const int rank = GiveUpReason::rank(reason);
  if (GiveUpReason::is_calls_differ(reason)) {
    return calls_differ(std::min(rank, GiveUpReason::other(reason)),
                        std::max(rank, GiveUpReason::other(reason)));
  }
  return Status::error(fmt::format("rank {} did not arrive within {} ms (seen by rank {})", rank,
                                   options_.timeout_nanoseconds / 1'000'000, team_.rank));
}

Status Communicator::give_up() {
  constexpr const char* kWhat = "a communicator cannot be given up";
  const std::uint32_t reason = GiveUpReason::did_not_arrive(team_.rank);
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), kWhat));
  std::uint32_t known = 0;  // all have a reason already, and keep it
  ARLAB_RETURN_IF_ERROR(status_of(
      hipMemcpyAsync(&known, team_.buffer[team_.rank], sizeof(known), hipMemcpyDefault, beside_),
      kWhat));
  ARLAB_RETURN_IF_ERROR(status_of(hipStreamSynchronize(beside_), kWhat));
  for (int rank = 0; known == 0 && rank < team_.layout.ranks; ++rank) {
    ARLAB_RETURN_IF_ERROR(status_of(
        hipMemcpyAsync(team_.buffer[rank], &reason, sizeof(reason), hipMemcpyDefault, beside_),
        kWhat));
  }
  return status_of(hipStreamSynchronize(beside_), kWhat);
}

/// Kernels that end for this reason have waited for what both ranks tell of their calls, but its
/// words may still be on their way.
namespace {

std::string text_of(const CallDescription& call) {
  return fmt::format("called {} of {} {} elements with codec {}", call.algorithm, call.elements,
                     name_of(static_cast<DType>(call.dtype)), call.codec);
}

}  // namespace

Status Communicator::calls_differ(int rank, int other) const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(options_.timeout_nanoseconds);
  std::string error = "the ranks' calls differ:";
  std::vector<std::string> texts;
  for (const int teller : {rank, other}) {
    CallDescription call{};
    for (;;) {
      ARLAB_RETURN_IF_ERROR(
          status_of(hipMemcpy(&call, team_.buffer[team_.rank] + BufferLayout::call(teller),
                              sizeof(call), hipMemcpyDeviceToHost),
                    "the state of a communicator cannot be read"));
      const bool is_whole = call.announced != 0 && call.hash == hash_of(call);
      if (is_whole || std::chrono::steady_clock::now() > deadline) {
        texts.push_back(is_whole ? text_of(call) : "has not told its own");
        error += fmt::format("{} rank {} {}", teller == rank ? "" : ",", teller, texts.back());
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (texts.front() == texts.back() && texts.front().starts_with("called")) {
    error += ": what stands behind these names differs, or seeds, options or schedules do";
  }
  return Status::error(error);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
