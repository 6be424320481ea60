#include "kernels/runtime/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "kernels/collectives/launch.h"
#include "kernels/collectives/staged_plan.h"
#include "kernels/runtime/team_memory.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

struct AlgorithmKernel {
  const char* name;
  LaunchCollective launch;
  int tiles_of_each;  ///< how many wires of a chunk's tile travel in one exchange
};
constexpr std::array<AlgorithmKernel, 5> kAlgorithms = {{{"one_shot", launch_one_shot, 1},
                                                         {"two_shot", launch_two_shot, 2},
                                                         {"ring", launch_ring, 1},
                                                         {"hierarchical", launch_hierarchical, 1},
                                                         {"all_to_all", launch_all_to_all, 1}}};

/// Whether there is a kernel with places, and it is not slower: found by measuring. Places of
/// one_shot take longer to begin than flags; in two_shot, wires do that need two accesses of each
/// thread.
bool works_in_places(const AlgorithmKernel& algorithm, const Occupancy& occupancy, const Team& team,
                     std::size_t tiles, std::size_t tile_bytes, std::size_t most_blocks) {
  constexpr std::size_t kShortWire = 1408;
  const bool large = 8 * tiles > most_blocks;
  if (algorithm.launch == launch_one_shot) {
    return occupancy.one_shot_places && team.one_shot_places.count != 0 && large;
  }
  return algorithm.launch == launch_two_shot && occupancy.two_shot_places &&
         team.two_shot_places.count != 0 && (large || tile_bytes <= kShortWire);
}

std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// Cuts the work as the reference's Schedule does, and then into tiles and rounds.
Result<Call> plan(const CollectiveRequest& request, const AlgorithmKernel& algorithm,
                  const CodecChoice& choice, const Team& team, const CommunicatorOptions& options,
                  int multiprocessors) {
  Call call{};
  call.team = team;
  try {
    const CodecPtr codec = find_codec(request.codec);
    const auto ranks = static_cast<Rank>(team.layout.ranks);
    const std::size_t alignment = codec->info().alignment;
    if (alignment > kTile || kTile % alignment != 0 || !codec->info().splits_at_alignment) {
      return Status::error(fmt::format(
          "codec {} has no collective kernels: its blocks must divide a tile of {} elements",
          request.codec, kTile));
    }
    const Schedule schedule =
        make_schedule(request.algorithm,
                      {.world_size = ranks, .elements = request.elements, .alignment = alignment});
    std::size_t tiles = 0;
    call.all_tiles_whole = true;
    for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
      const Chunk& chunk = schedule.chunks[i];
      call.chunk[i] = {chunk.begin, chunk.end};
      tiles = std::max(tiles, ceil_divide(chunk.size(), kTile));
      call.all_tiles_whole = call.all_tiles_whole && chunk.size() % kTile == 0;
    }
    call.chunk_tiles = static_cast<unsigned>(tiles);
    call.group_size = static_cast<int>(default_group_size(ranks));
    call.tile_bytes =
        static_cast<unsigned>(ceil_divide(codec->wire_bytes(request.dtype, kTile), 16) * 16);
    const std::size_t bytes = call.tile_bytes * static_cast<std::size_t>(algorithm.tiles_of_each);
    call.tiles_per_slot = static_cast<int>(options.slot_bytes / bytes);
    if (call.tiles_per_slot == 0) {
      return Status::error(
          fmt::format("slots of {} bytes cannot hold a tile of codec {} in {}: {} bytes",
                      options.slot_bytes, request.codec, request.algorithm, bytes));
    }
    const Occupancy occupancy = occupancy_of(choice, request.dtype);
    const int resident = multiprocessors * occupancy.blocks;
    const auto most_blocks = static_cast<std::size_t>(std::min(team.layout.blocks, resident));
    const std::size_t blocks = std::min(most_blocks, tiles);
    // No more tiles in a round than there are, nor than a block works on at once, so that their
    // sums follow them closely.
    call.tiles_per_slot = static_cast<int>(std::min<std::size_t>(
        static_cast<std::size_t>(call.tiles_per_slot), ceil_divide(tiles, blocks)));
    if (occupancy.batch != 1) call.tiles_per_slot = std::min(call.tiles_per_slot, occupancy.batch);
    call.blocks = static_cast<int>(blocks);
    call.rounds = static_cast<int>(
        ceil_divide(tiles, blocks * static_cast<std::size_t>(call.tiles_per_slot)));
    call.is_small = tiles <= blocks;
    call.in_places =
        works_in_places(algorithm, occupancy, team, tiles, call.tile_bytes, most_blocks);
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
  return call;
}

/// As plan(), for a codec of measured.h.
Result<StagedCollective> plan_staged(const CollectiveRequest& request, const Team& team,
                                     const CommunicatorOptions& options, int multiprocessors) {
  StagedCollective collective;
  try {
    const CodecPtr codec = find_codec(request.codec);
    const auto ranks = static_cast<Rank>(team.layout.ranks);
    (void)codec->wire_bytes(request.dtype, request.elements);  // throws for other dtypes
    const Schedule schedule = make_schedule(
        request.algorithm,
        {.world_size = ranks, .elements = request.elements, .alignment = codec->info().alignment});
    for (const Chunk& chunk : schedule.chunks) {
      collective.chunks.push_back({chunk.begin, chunk.end});
    }
    collective.group_size = static_cast<int>(default_group_size(ranks));
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
  collective.algorithm = request.algorithm;
  collective.codec = request.codec;
  collective.team = team;
  collective.most_blocks = std::min(team.layout.blocks, multiprocessors);
  collective.most_statistics = options.measured_groups;
  return collective;
}

}  // namespace

namespace {

Status enable_peer_access(std::span<const int> devices) {
  for (const int device : devices) {
    for (const int peer : devices) {
      if (peer == device) continue;
      int can = 0;
      Status status = status_of(hipSetDevice(device), "a device cannot be used");
      if (!status.ok()) return status;
      status = status_of(hipDeviceCanAccessPeer(&can, device, peer), "peer access");
      if (!status.ok()) return status;
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
  Status status = check_options(devices.size(), options);
  if (!status.ok()) return status;
  status = enable_peer_access(devices);
  if (!status.ok()) return status;

  const Result<int> multiprocessors = multiprocessors_of_each(devices);
  if (!multiprocessors.ok()) return multiprocessors.status();

  auto memory = std::make_shared<TeamMemory>();
  const BufferLayout layout =
      layout_of(options, static_cast<int>(devices.size()), multiprocessors.value());
  std::vector<Team> teams(devices.size());
  std::vector<Statistics*> statistics(devices.size());
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const Result<RankMemory> made =
        make_rank(*memory, static_cast<int>(rank), devices[rank], layout, options, teams[rank]);
    if (!made.ok()) return made.status();
    for (Team& team : teams) team.buffer[rank] = made.value().buffer;
    statistics[rank] = made.value().statistics;
  }

  std::vector<Communicator> communicators;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    communicators.push_back(Communicator(teams[rank], devices[rank], multiprocessors.value(),
                                         options, memory, statistics[rank]));
    status = communicators.back().make_event();
    if (!status.ok()) return status;
  }
  return {std::move(communicators)};
}

Communicator::Communicator(Team team, int device, int multiprocessors,
                           const CommunicatorOptions& options, std::shared_ptr<TeamMemory> memory,
                           Statistics* statistics)
    : team_(team),
      device_(device),
      multiprocessors_(multiprocessors),
      options_(options),
      memory_(std::move(memory)),
      statistics_(statistics) {}

Status Communicator::make_event() {
  (void)hipSetDevice(device_);
  Status status = status_of(hipEventCreateWithFlags(&last_call_, hipEventDisableTiming),
                            "an event cannot be made");
  if (!status.ok()) return status;
  return status_of(hipDeviceSynchronize(), "a device cannot be used");
}

Communicator::Communicator(Communicator&& other) noexcept
    : team_(other.team_),
      device_(other.device_),
      multiprocessors_(other.multiprocessors_),
      options_(other.options_),
      memory_(std::move(other.memory_)),
      statistics_(other.statistics_),
      last_call_(std::exchange(other.last_call_, nullptr)),
      last_stream_(other.last_stream_),
      called_(other.called_) {}

Communicator::~Communicator() {
  if (!memory_) return;
  (void)hipSetDevice(device_);
  (void)hipDeviceSynchronize();
  if (last_call_ != nullptr) (void)hipEventDestroy(last_call_);
}

Status Communicator::order_after_last_call(hipStream_t stream, bool& capturing) {
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  Status status = status_of(hipStreamIsCapturing(stream, &capture), "the stream cannot be used");
  if (!status.ok()) return status;
  capturing = capture != hipStreamCaptureStatusNone;
  if (capturing || !called_ || stream == last_stream_) return {};
  return status_of(hipStreamWaitEvent(stream, last_call_, 0), "streams cannot be ordered");
}

Status Communicator::run(const CollectiveRequest& request, const void* input, void* output,
                         hipStream_t stream) {
  const auto* algorithm =
      std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                   [&](const AlgorithmKernel& a) { return request.algorithm == a.name; });
  if (algorithm == kAlgorithms.end()) {
    std::string known;
    for (const AlgorithmKernel& a : kAlgorithms) known += fmt::format(" {}", a.name);
    return Status::error(
        fmt::format("algorithm {} has no kernels; there are:{}", request.algorithm, known));
  }
  // Most codecs are one kernel; the others a sequence of them (collectives/staged.h).
  std::function<Status()> launch;
  if (const Result<CodecChoice> codec = choose_codec(request.codec); codec.ok()) {
    Result<Call> call = plan(request, *algorithm, codec.value(), team_, options_, multiprocessors_);
    if (!call.ok()) return call.status();
    call.value().input = input;
    call.value().output = output;
    call.value().aligned = reinterpret_cast<std::uintptr_t>(input) % 16 == 0 &&
                           reinterpret_cast<std::uintptr_t>(output) % 16 == 0;
    launch = [=, choice = codec.value(), call = call.value()] {
      return status_of(algorithm->launch(call, choice, request.dtype, stream),
                       "a kernel cannot be started");
    };
  } else {
    const Result<MeasuredChoice> measured = choose_measured(request.codec);
    if (!measured.ok()) return measured.status();
    Result<StagedCollective> collective = plan_staged(request, team_, options_, multiprocessors_);
    if (!collective.ok()) return collective.status();
    collective.value().statistics = statistics_;
    collective.value().input = input;
    collective.value().output = output;
    launch = [=, choice = measured.value(), collective = collective.value()] {
      return run_staged(collective, choice, request.dtype, stream);
    };
  }

  Status status = status_of(hipSetDevice(device_), "a device cannot be used");
  if (!status.ok()) return status;
  bool capturing = false;
  status = order_after_last_call(stream, capturing);
  if (!status.ok()) return status;
  status = launch();
  if (!status.ok() || capturing) return status;
  called_ = true;
  last_stream_ = stream;
  return status_of(hipEventRecord(last_call_, stream), "an event cannot be recorded");
}

Status Communicator::check() {
  std::uint32_t words[2] = {};
  (void)hipSetDevice(device_);
  const std::uint32_t* sources[2] = {
      team_.status, reinterpret_cast<const std::uint32_t*>(team_.buffer[team_.rank])};
  for (int i = 0; i < 2; ++i) {
    Status status = status_of(hipMemcpy(&words[i], sources[i], 4, hipMemcpyDeviceToHost),
                              "the state of a communicator cannot be read");
    if (!status.ok()) return status;
  }
  const std::uint32_t culprit = words[0] != 0 ? words[0] : words[1];
  if (culprit == 0) return {};
  return Status::error(fmt::format("rank {} did not arrive within {} ms (seen by rank {})",
                                   culprit - 1, options_.timeout_nanoseconds / 1'000'000,
                                   team_.rank));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
