// Platform on the HIP API. Compiled once per platform.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/layers/int8_layers.h"
#include "kernels/runtime/between.h"
#include "kernels/runtime/communicator.h"
#include "kernels/runtime/hip_status.h"
#include "kernels/runtime/platforms.h"
#include "kernels/runtime/select.h"
#include "kernels/runtime/team_memory.h"
#include "kernels/runtime/timing.h"
#include "kernels/runtime/vendor_library.h"
#include "reference/codecs/registry.h"
#include "reference/definitions.h"

#if defined(__HIP_PLATFORM_HOST__)
#include "kernels/platform/host/host_lock.h"
#endif
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/ahead.h"
#include "kernels/compile/sources.h"
#endif

#define ARLAB_STRING_OF(name) #name
#define ARLAB_NAME_OF(name) ARLAB_STRING_OF(name)

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// Keeps other threads from making calls, where one thread runs the kernels of all.
#if defined(__HIP_PLATFORM_HOST__)
using HostLock = emulator::HostLock;
#else
struct HostLock {
  HostLock() {}
};
#endif

/// Memory of the current device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory(DeviceMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory() {
    if (memory_ != nullptr) (void)hipFree(memory_);
  }

  /// At least so many bytes; what they held is lost.
  Status require(std::size_t bytes) {
    if (bytes <= bytes_) return {};
    if (memory_ != nullptr) (void)hipFree(std::exchange(memory_, nullptr));
    bytes_ = 0;
    Status status = status_of(hipMalloc(&memory_, bytes), "no memory on the device");
    if (status.ok()) bytes_ = bytes;
    return status;
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

Status copy_in(std::byte* to, std::span<const std::byte> from) {
  return status_of(hipMemcpy(to, from.data(), from.size(), hipMemcpyHostToDevice),
                   "a copy to the device failed");
}
Status copy_out(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return {};
  return status_of(hipMemcpy(to.data(), from, to.size(), hipMemcpyDeviceToHost),
                   "a copy from the device failed");
}

/// An Int8Matrix in the memory of the current device.
class Int8Memory {
 public:
  Status require(std::size_t rows, std::size_t columns) {
    ARLAB_RETURN_IF_ERROR(codes_.require(rows * int8_row_bytes(columns)));
    ARLAB_RETURN_IF_ERROR(scales_.require(rows * sizeof(Int8Scale)));
    return sums_.require(rows * sizeof(std::int32_t));
  }
  DeviceInt8 on_device() const {
    return {reinterpret_cast<std::int8_t*>(codes_.data()),
            reinterpret_cast<Int8Scale*>(scales_.data()),
            reinterpret_cast<std::int32_t*>(sums_.data())};
  }
  Status write(const Int8Matrix& from) {
    ARLAB_RETURN_IF_ERROR(require(from.rows, from.columns));
    const std::size_t row_bytes = int8_row_bytes(from.columns);
    std::vector<std::int8_t> codes(from.rows * row_bytes);
    for (std::size_t r = 0; r < from.rows; ++r) {
      std::copy_n(&from.codes[r * from.columns], from.columns, &codes[r * row_bytes]);
    }
    ARLAB_RETURN_IF_ERROR(copy_in(codes_.data(), std::as_bytes(std::span(codes))));
    ARLAB_RETURN_IF_ERROR(copy_in(scales_.data(), std::as_bytes(std::span(from.scales))));
    return copy_in(sums_.data(), std::as_bytes(std::span(from.sums)));
  }
  /// Replaces all of `to`, but for its rows and columns.
  Status read(Int8Matrix& to) const {
    const std::size_t row_bytes = int8_row_bytes(to.columns);
    std::vector<std::int8_t> codes(to.rows * row_bytes);
    to.scales.resize(to.rows);
    to.sums.resize(to.rows);
    ARLAB_RETURN_IF_ERROR(copy_out(std::as_writable_bytes(std::span(codes)), codes_.data()));
    ARLAB_RETURN_IF_ERROR(copy_out(std::as_writable_bytes(std::span(to.scales)), scales_.data()));
    ARLAB_RETURN_IF_ERROR(copy_out(std::as_writable_bytes(std::span(to.sums)), sums_.data()));
    to.codes.clear();
    for (std::size_t r = 0; r < to.rows; ++r) {
      const auto row = codes.begin() + static_cast<std::ptrdiff_t>(r * row_bytes);
      to.codes.insert(to.codes.end(), row, row + static_cast<std::ptrdiff_t>(to.columns));
    }
    return {};
  }

 private:
  DeviceMemory codes_;
  DeviceMemory scales_;
  DeviceMemory sums_;
};

/// A rank of a group: its stream and tensors.
struct Member {
  int device = 0;
  hipStream_t stream = nullptr;
  DeviceMemory input;
  DeviceMemory output;
  DeviceMemory residual;
  DeviceMemory residual_out;
  DeviceMemory weight;
  DeviceMemory wire;

  explicit Member(int on_device) : device(on_device) {}
  Member(Member&& other) noexcept
      : device(other.device),
        stream(std::exchange(other.stream, nullptr)),
        input(std::move(other.input)),
        output(std::move(other.output)),
        residual(std::move(other.residual)),
        residual_out(std::move(other.residual_out)),
        weight(std::move(other.weight)),
        wire(std::move(other.wire)) {}
  Member& operator=(Member&&) = delete;
  ~Member() {
    if (stream == nullptr) return;
    (void)hipSetDevice(device);
    (void)hipStreamDestroy(stream);
  }
};

/// The common part of groups, whoever reduces.
class GroupOnDevices : public Group {
 public:
  Status run(const GroupCall& call, std::span<const std::byte> inputs,
             std::span<std::byte> outputs) override {
    const std::size_t bytes = call.collective.elements * size_of(call.collective.dtype);
    const std::size_t offset = offset_of(call);
    if (inputs.size() != members_.size() * bytes || outputs.size() != inputs.size()) {
      return Status::error(
          fmt::format("{} ranks of {} bytes, but the inputs are {} and the outputs {}",
                      members_.size(), bytes, inputs.size(), outputs.size()));
    }
    // All memory first: allocating may wait for a device whose kernel waits for another rank.
    ARLAB_RETURN_IF_ERROR(require_memory(call));
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      (void)hipSetDevice(member.device);
      ARLAB_RETURN_IF_ERROR(
          copy_in(member.input.data() + offset, inputs.subspan(rank * bytes, bytes)));
      ARLAB_RETURN_IF_ERROR(copy_in_tail(member, call));
      if (!call.in_place) {
        // An output's earlier contents must not look like a result.
        ARLAB_RETURN_IF_ERROR(
            status_of(hipMemset(member.output.data(), 0xDB, offset + bytes), "memset"));
      }
      ARLAB_RETURN_IF_ERROR(status_of(hipDeviceSynchronize(), "a device failed"));
    }
    Status status;
    {
      const HostLock lock;
      status = enqueue(call);
    }
    // A kernel that failed is why others waited for it in vain.
    for (const Member& member : members_) {
      (void)hipSetDevice(member.device);
      const Status ended = status_of(hipStreamSynchronize(member.stream), "a kernel failed");
      if (status.ok()) status = ended;
    }
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      (void)hipSetDevice(member.device);
      const Status checked = check(rank);
      if (status.ok()) status = checked;
      if (status.ok()) {
        status = copy_out(outputs.subspan(rank * bytes, bytes), result_of(member, call) + offset);
      }
      if (status.ok()) status = copy_out_tail(rank, call);
    }
    return status;
  }

  Result<CallTimes> time(const GroupCall& call, std::span<const std::byte> pattern,
                         const TimingRequest& request) override {
    if (pattern.empty()) return Status::error("an empty pattern");
    std::vector<int> devices;
    for (const Member& member : members_) devices.push_back(member.device);
    ARLAB_RETURN_IF_ERROR(load_kernels_between(devices, request));
    ARLAB_RETURN_IF_ERROR(require_memory(call));
    const std::size_t bytes =
        offset_of(call) + call.collective.elements * size_of(call.collective.dtype);
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      (void)hipSetDevice(members_[rank].device);
      // From a different element on for each rank.
      const std::size_t from = rank * 4096 % pattern.size();
      Member& member = members_[rank];
      ARLAB_RETURN_IF_ERROR(repeat(pattern, from, {member.input.data(), bytes}));
      if (!call.collective.tail) continue;
      ARLAB_RETURN_IF_ERROR(repeat(pattern, 0, {member.residual.data(), bytes}));
      ARLAB_RETURN_IF_ERROR(repeat(pattern, 0, {member.weight.data(), weight_bytes(call)}));
    }
    const HostLock lock;
    std::vector<RankStream> streams;
    for (const Member& member : members_) streams.push_back({member.device, member.stream});
    Result<CallTimes> times = time_calls(streams, request, [&] { return enqueue(call); });
    // A kernel that failed is why others waited for it in vain.
    if (!times.ok()) return times;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) ARLAB_RETURN_IF_ERROR(check(rank));
    return times;
  }

 protected:
  Status open_members(std::span<const int> devices) {
    for (const int device : devices) {
      members_.emplace_back(device);
      (void)hipSetDevice(device);
      ARLAB_RETURN_IF_ERROR(
          status_of(hipStreamCreateWithFlags(&members_.back().stream, hipStreamNonBlocking),
                    "a stream cannot be made"));
    }
    return {};
  }

  /// One call on every rank's stream.
  virtual Status enqueue(const GroupCall& call) = 0;
  /// After kernels have ended.
  virtual Status check(std::size_t rank) = 0;

  static std::size_t offset_of(const GroupCall& call) {
    return call.offset_elements * size_of(call.collective.dtype);
  }
  static std::byte* result_of(const Member& member, const GroupCall& call) {
    return call.in_place ? member.input.data() : member.output.data();
  }
  /// In place, the residual's is, too.
  static TailTensors tail_of(const Member& member, const GroupCall& call) {
    const std::optional<Tail>& tail = call.collective.tail;
    if (!tail) return {};
    const std::size_t offset = offset_of(call);
    TailTensors tensors;
    if (tail->adds_residual) {
      tensors.residual = member.residual.data() + offset;
      tensors.residual_out =
          (call.in_place ? member.residual.data() : member.residual_out.data()) + offset;
    }
    if (tail->normalizes) tensors.weight = member.weight.data() + offset;
    if (!tail->output.empty()) tensors.wire = member.wire.data();
    return tensors;
  }

  std::vector<Member>& members() { return members_; }

 private:
  Status require_memory(const GroupCall& call) {
    const std::size_t bytes =
        offset_of(call) + call.collective.elements * size_of(call.collective.dtype);
    for (Member& member : members_) {
      (void)hipSetDevice(member.device);
      ARLAB_RETURN_IF_ERROR(member.input.require(bytes));
      ARLAB_RETURN_IF_ERROR(member.output.require(bytes));
      if (!call.collective.tail) continue;
      ARLAB_RETURN_IF_ERROR(member.residual.require(bytes));
      ARLAB_RETURN_IF_ERROR(member.residual_out.require(bytes));
      ARLAB_RETURN_IF_ERROR(member.weight.require(weight_bytes(call)));
      ARLAB_RETURN_IF_ERROR(member.wire.require(wire_bytes_of(call.collective)));
    }
    return {};
  }
  static std::size_t weight_bytes(const GroupCall& call) {
    return offset_of(call) + call.collective.tail->hidden * size_of(call.collective.dtype);
  }
  /// Fills memory with the pattern, again and again.
  static Status repeat(std::span<const std::byte> pattern, std::size_t from,
                       std::span<std::byte> to) {
    for (std::size_t at = 0; at < to.size(); from = 0) {
      const std::size_t count = std::min(pattern.size() - from, to.size() - at);
      ARLAB_RETURN_IF_ERROR(copy_in(to.data() + at, pattern.subspan(from, count)));
      at += count;
    }
    return {};
  }
  static Status copy_in_tail(const Member& member, const GroupCall& call) {
    if (!call.collective.tail) return {};
    const std::size_t offset = offset_of(call);
    ARLAB_RETURN_IF_ERROR(copy_in(member.residual.data() + offset, call.residual));
    return copy_in(member.weight.data() + offset, call.weight);
  }
  Status copy_out_tail(std::size_t rank, const GroupCall& call) {
    if (!call.collective.tail) return {};
    const TailTensors from = tail_of(members_[rank], call);
    const std::size_t bytes = call.residual_out.size() / members_.size();
    const std::size_t wire = call.wire.size() / members_.size();
    ARLAB_RETURN_IF_ERROR(copy_out(call.residual_out.subspan(rank * bytes, bytes),
                                   static_cast<const std::byte*>(from.residual_out)));
    return copy_out(call.wire.subspan(rank * wire, wire), static_cast<const std::byte*>(from.wire));
  }

  std::vector<Member> members_;
};

class DeviceGroup final : public GroupOnDevices {
 public:
  Status open(std::span<const int> devices, const CommunicatorOptions& options) {
    ARLAB_ASSIGN_OR_RETURN(communicators_, Communicator::in_process(devices, options));
    return open_members(devices);
  }

  Result<std::string> explain(const CollectiveRequest& request) override {
    return communicators_.front().explain(request);
  }
  Status prepare(std::span<const CollectiveRequest> calls,
                 const CompileProgress& progress) override {
    return communicators_.front().prepare(calls, progress);
  }

 private:
  Status enqueue(const GroupCall& call) override {
    for (Communicator& communicator : communicators_) {
      if (!call.random_calls) break;
      ARLAB_RETURN_IF_ERROR(communicator.set_random_calls(*call.random_calls));
    }
    for (std::size_t rank = 0; rank < members().size(); ++rank) {
      Member& member = members()[rank];
      ARLAB_RETURN_IF_ERROR(communicators_[rank].run(
          call.collective, member.input.data() + offset_of(call),
          result_of(member, call) + offset_of(call), member.stream, tail_of(member, call)));
    }
    return {};
  }
  Status check(std::size_t rank) override { return communicators_[rank].check(); }

  std::vector<Communicator> communicators_;
};

/// This process's rank, and what the others say.
class ProcessesGroup final : public GroupOnDevices {
 public:
  explicit ProcessesGroup(std::shared_ptr<Bootstrap> processes)
      : processes_(std::move(processes)) {}

  Status open(int device, const CommunicatorOptions& options) {
    ARLAB_ASSIGN_OR_RETURN(Communicator communicator,
                           Communicator::create(device, *processes_, options));
    communicator_.emplace(std::move(communicator));
    return open_members(std::span(&device, 1));
  }

  Result<std::string> explain(const CollectiveRequest& request) override {
    return communicator_->explain(request);
  }
  Status prepare(std::span<const CollectiveRequest> calls,
                 const CompileProgress& progress) override {
    return communicator_->prepare(calls, progress);
  }

  Status run(const GroupCall& call, std::span<const std::byte> inputs,
             std::span<std::byte> outputs) override {
    const std::size_t bytes = call.collective.elements * size_of(call.collective.dtype);
    const std::size_t own = static_cast<std::size_t>(processes_->rank()) * bytes;
    const auto ranks = static_cast<std::size_t>(processes_->ranks());
    if (inputs.size() != ranks * bytes || outputs.size() != inputs.size()) {
      return Status::error(
          fmt::format("{} ranks of {} bytes, but the inputs are {}", ranks, bytes, inputs.size()));
    }
    GroupCall of_rank = call;
    of_rank.residual_out = part_of(call.residual_out);
    of_rank.wire = part_of(call.wire);
    ARLAB_RETURN_IF_ERROR(
        of_all(GroupOnDevices::run(of_rank, inputs.subspan(own, bytes), part_of(outputs))));
    for (const std::span<std::byte> all : {outputs, call.residual_out, call.wire}) {
      ARLAB_RETURN_IF_ERROR(gather(all));
    }
    return {};
  }

  /// Times of the slowest rank in every replay.
  Result<CallTimes> time(const GroupCall& call, std::span<const std::byte> pattern,
                         const TimingRequest& request) override {
    ARLAB_RETURN_IF_ERROR(of_all(load_kernels_between({&members().front().device, 1}, request)));
    Result<CallTimes> times = GroupOnDevices::time(call, pattern, request);
    ARLAB_RETURN_IF_ERROR(of_all(times.status()));
    for (std::vector<double>* each : {&times.value().device, &times.value().host}) {
      ARLAB_ASSIGN_OR_RETURN(const auto gathered,
                             processes_->all_gather({reinterpret_cast<const char*>(each->data()),
                                                     each->size() * sizeof(double)}));
      for (const std::string& of_rank : gathered) {
        for (std::size_t i = 0; i < std::min(each->size(), of_rank.size() / sizeof(double)); ++i) {
          double theirs = 0;
          std::memcpy(&theirs, of_rank.data() + i * sizeof(double), sizeof(double));
          (*each)[i] = std::max((*each)[i], theirs);
        }
      }
    }
    return times;
  }

 private:
  Status enqueue(const GroupCall& call) override {
    if (call.random_calls) {
      ARLAB_RETURN_IF_ERROR(communicator_->set_random_calls(*call.random_calls));
    }
    const Member& member = members().front();
    return communicator_->run(call.collective, member.input.data() + offset_of(call),
                              result_of(member, call) + offset_of(call), member.stream,
                              tail_of(member, call));
  }
  Status check(std::size_t) override { return communicator_->check(); }

  /// This rank's of what all have.
  std::span<std::byte> part_of(std::span<std::byte> all) const {
    const std::size_t bytes = all.size() / static_cast<std::size_t>(processes_->ranks());
    return all.subspan(static_cast<std::size_t>(processes_->rank()) * bytes, bytes);
  }
  /// Each rank's part becomes that of all.
  Status gather(std::span<std::byte> all) {
    const std::span<std::byte> mine = part_of(all);
    const std::size_t bytes = mine.size();
    for (std::size_t at = 0; at < bytes; at += kMostBootstrapBytes) {
      const std::size_t piece = std::min(kMostBootstrapBytes, bytes - at);
      ARLAB_ASSIGN_OR_RETURN(
          const auto pieces,
          processes_->all_gather({reinterpret_cast<const char*>(mine.data()) + at, piece}));
      for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
        if (pieces[rank].size() != piece) {
          return Status::error(fmt::format("rank {} makes another call", rank));
        }
        std::memcpy(all.data() + rank * bytes + at, pieces[rank].data(), piece);
      }
    }
    return {};
  }

  /// The error of the first rank that has one.
  Status of_all(const Status& mine) {
    ARLAB_ASSIGN_OR_RETURN(const auto said,
                           processes_->all_gather(mine.ok() ? "" : mine.message()));
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      if (!said[rank].empty()) {
        return Status::error(fmt::format("rank {}: {}", rank, readable(said[rank])));
      }
    }
    return {};
  }

  std::shared_ptr<Bootstrap> processes_;
  std::optional<Communicator> communicator_;
};

class VendorGroup final : public GroupOnDevices {
 public:
  Status open(std::span<const int> devices) {
    ARLAB_ASSIGN_OR_RETURN(library_, VendorLibrary::open(devices));
    return open_members(devices);
  }
  std::string name() const override { return library_->name(); }
  Result<std::string> explain(const CollectiveRequest&) override { return library_->name(); }

 private:
  Status enqueue(const GroupCall& call) override {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::vector<hipStream_t> streams;
    for (const Member& member : members()) {
      inputs.push_back(member.input.data() + offset_of(call));
      outputs.push_back(result_of(member, call) + offset_of(call));
      streams.push_back(member.stream);
    }
    return library_->all_reduce(inputs, outputs, call.collective.elements, call.collective.dtype,
                                streams);
  }
  Status check(std::size_t) override { return {}; }

  std::unique_ptr<VendorLibrary> library_;
};

class RankOnDevice final : public RankCommunicator {
 public:
  explicit RankOnDevice(Communicator communicator) : communicator_(std::move(communicator)) {}
  ~RankOnDevice() override {
    (void)hipSetDevice(device());
    if (own_ != nullptr) (void)hipStreamDestroy(own_);
    for (hipEvent_t event : {before_, behind_}) {
      if (event != nullptr) (void)hipEventDestroy(event);
    }
  }
  RankOnDevice(const RankOnDevice&) = delete;
  RankOnDevice& operator=(const RankOnDevice&) = delete;

  Status make_stream() {
    (void)hipSetDevice(device());
    ARLAB_RETURN_IF_ERROR(status_of(hipStreamCreateWithFlags(&own_, hipStreamNonBlocking),
                                    "a stream cannot be made"));
    for (hipEvent_t* event : {&before_, &behind_}) {
      ARLAB_RETURN_IF_ERROR(status_of(hipEventCreateWithFlags(event, hipEventDisableTiming),
                                      "an event cannot be made"));
    }
    return {};
  }

  int rank() const override { return communicator_.rank(); }
  int ranks() const override { return communicator_.ranks(); }
  int device() const override { return communicator_.device(); }
  Status run(const CollectiveRequest& request, const void* input, void* output, void* stream,
             const TailTensors& tail) override {
    const auto callers = static_cast<hipStream_t>(stream);
    if (own_ == nullptr) return communicator_.run(request, input, output, callers, tail);
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device()), "a device cannot be used"));
    ARLAB_RETURN_IF_ERROR(status_of(hipEventRecord(before_, callers), "an event"));
    ARLAB_RETURN_IF_ERROR(
        status_of(hipStreamWaitEvent(own_, before_, 0), "streams cannot be ordered"));
    return communicator_.run(request, input, output, own_, tail);
  }
  Status prepare(const CollectiveRequest& request) override {
    const RelaxedCaptureMode allowed;
    return communicator_.prepare(request);
  }
  Result<std::string> explain(const CollectiveRequest& request) override {
    return communicator_.explain(request);
  }
  Status set_random_calls(std::uint32_t calls) override {
    return communicator_.set_random_calls(calls);
  }
  Result<std::size_t> room_of_as_sent(const std::string& codec, DType dtype,
                                      std::size_t elements) const override {
    ARLAB_ASSIGN_OR_RETURN(const Room room, room_of(codec, dtype, elements));
    return room.bytes;
  }
  Status as_sent(const std::string& codec, DType dtype, std::size_t elements, const void* input,
                 void* room, void* output, void* stream) override {
    ARLAB_ASSIGN_OR_RETURN(const Room found, room_of(codec, dtype, elements));
    auto* const wire = static_cast<std::uint8_t*>(room);
    auto* const statistics = reinterpret_cast<Statistics*>(wire + found.statistics_at);
    const auto callers = static_cast<hipStream_t>(stream);
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device()), "a device cannot be used"));
    ARLAB_RETURN_IF_ERROR(load_as_sent(codec, dtype, callers));
    ARLAB_RETURN_IF_ERROR(started(
        launch_encode(found.choice, dtype, input, elements, wire, {}, statistics, callers)));
    return started(launch_decode(found.choice, dtype, wire, elements, output, callers));
  }
  Status wait(void* stream) override {
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device()), "a device cannot be used"));
    const auto worked_on = own_ != nullptr ? own_ : static_cast<hipStream_t>(stream);
    return status_of(hipStreamSynchronize(worked_on), "a kernel failed");
  }
  Status check() override {
    const RelaxedCaptureMode allowed;
    return communicator_.check();
  }
  Status give_up() override {
    const RelaxedCaptureMode allowed;
    return communicator_.give_up();
  }
  Status join(void* stream) override {
    if (own_ == nullptr) return {};
    constexpr const char* kWhat = "streams cannot be ordered";
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device()), "a device cannot be used"));
    ARLAB_RETURN_IF_ERROR(status_of(hipEventRecord(behind_, own_), kWhat));
    return status_of(hipStreamWaitEvent(static_cast<hipStream_t>(stream), behind_, 0), kWhat);
  }
  std::shared_ptr<void> hold_other_threads() const override { return std::make_shared<HostLock>(); }

 private:
  struct Room {
    CodecChoice choice;
    std::size_t statistics_at;  // behind the wire
    std::size_t bytes;
  };
  static Result<Room> room_of(const std::string& codec, DType dtype, std::size_t elements) {
    ARLAB_ASSIGN_OR_RETURN(const CodecChoice choice, choose_codec(codec));
    const std::size_t wire = (find_codec(codec)->wire_bytes(dtype, elements) + 15) / 16 * 16;
    const std::size_t statistics =
        statistics_of(choice, elements, groups_of_message(choice, elements));
    return Room{choice, wire, wire + statistics * sizeof(Statistics)};
  }

#if defined(ARLAB_KERNELS_ON_DEMAND)
  Status load_as_sent(const std::string& codec, DType dtype, hipStream_t stream) {
    const std::uint64_t definitions = definitions_made();
    std::optional<std::uint64_t>& known = as_sent_[{codec, dtype}];
    if (known == definitions) return {};
    hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
    ARLAB_RETURN_IF_ERROR(
        status_of(hipStreamIsCapturing(stream, &capture), "the stream cannot be used"));
    const CodecAndDType one(codec, dtype);
    ARLAB_RETURN_IF_ERROR(
        communicator_.load(kernels_of_codecs({&one, 1}), 0, capture != hipStreamCaptureStatusNone));
    known = definitions;
    return status_of(hipSetDevice(device()), "a device cannot be used");
  }
  /// Definitions of names that its kernels were loaded after.
  std::map<CodecAndDType, std::optional<std::uint64_t>> as_sent_;
#else
  static Status load_as_sent(const std::string&, DType, hipStream_t) { return {}; }
#endif

  Communicator communicator_;
  hipStream_t own_ = nullptr;    // null: the caller's
  hipEvent_t before_ = nullptr;  // all that was on the caller's stream
  hipEvent_t behind_ = nullptr;  // all that is on ours
};

class CallsOfDevice final : public DeviceCalls {
 public:
  bool is_emulated() const override {
#if defined(__HIP_PLATFORM_HOST__)
    return true;
#else
    return false;
#endif
  }
  Result<int> current_device() const override {
    int device = 0;
    ARLAB_RETURN_IF_ERROR(status_of(hipGetDevice(&device), "no device can be used"));
    return device;
  }
  Status use_device(int device) const override {
    return status_of(hipSetDevice(device), "a device cannot be used");
  }
  Result<std::string> place(int device) const override {
    char text[100] = {};
    ARLAB_RETURN_IF_ERROR(
        status_of(hipDeviceGetPCIBusId(text, static_cast<int>(sizeof(text)), device),
                  "a device cannot be used"));
    return std::string(text);
  }
  Result<void*> allocate(std::size_t bytes) const override {
    const RelaxedCaptureMode allowed;
    void* memory = nullptr;
    ARLAB_RETURN_IF_ERROR(status_of(hipMalloc(&memory, bytes), "no memory on the device"));
    return memory;
  }
  void release(void* memory) const override {
    const RelaxedCaptureMode allowed;
    (void)hipFree(memory);
  }
  Status copy(void* to, const void* from, std::size_t bytes, void* stream) const override {
    return status_of(
        hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, static_cast<hipStream_t>(stream)),
        "a copy failed");
  }
  Status wait(void* stream) const override {
    return status_of(hipStreamSynchronize(static_cast<hipStream_t>(stream)), "a kernel failed");
  }
  Result<bool> is_captured(void* stream) const override {
    hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
    ARLAB_RETURN_IF_ERROR(
        status_of(hipStreamIsCapturing(static_cast<hipStream_t>(stream), &capture),
                  "the stream cannot be used"));
    return capture != hipStreamCaptureStatusNone;
  }
};

class DevicePlatform final : public Platform {
 public:
  std::string_view name() const override { return ARLAB_NAME_OF(ARLAB_PLATFORM); }

  const DeviceCalls& device_calls() const override {
    static const CallsOfDevice calls;
    return calls;
  }

  Result<int> devices() const override {
    int count = 0;
    ARLAB_RETURN_IF_ERROR(status_of(hipGetDeviceCount(&count), "no device can be used"));
    if (count == 0) return Status::error("there is no device");
    return count;
  }

  Result<std::string> device_name() const override {
    char name[256] = {};
    ARLAB_RETURN_IF_ERROR(status_of(hipDeviceGetName(name, sizeof(name), 0), "no device"));
    return std::string(name);
  }

#if defined(ARLAB_KERNELS_ON_DEMAND)
  Result<std::string> compiler() const override {
    ARLAB_RETURN_IF_ERROR(KernelStore::compiler().status());
    return KernelStore::compiler_text();
  }

  Status prepare(std::span<const CodecAndDType> codecs,
                 const CompileProgress& progress) const override {
    constexpr int kDevice = 0;
    return KernelStore::of_process().load(kernels_of_codecs(codecs), {&kDevice, 1}, progress);
  }
  Status prepare_layers(const CompileProgress& progress) const override {
    constexpr int kDevice = 0;
    return KernelStore::of_process().load(kernels_of_layers(), {&kDevice, 1}, progress);
  }

  Result<CompiledAhead> compile_ahead(const AheadRequest& request,
                                      const CompileProgress& progress) const override {
    return compile_kernels_ahead(request, progress);
  }

  Status add_kernel_folder(const std::filesystem::path& folder) const override {
    ARLAB_ASSIGN_OR_RETURN(KernelCache* const cache, KernelCache::of_process());
    return cache->add_read_only(folder);
  }

  std::string kernels_hash() const override { return embedded_headers_hash(); }
#endif

  std::optional<ConformanceRecord> record() const override {
    if (!sentinels_need_record()) return std::nullopt;
    return conformance_record();
  }

  bool has_codec(const std::string& codec) const override { return choose_codec(codec).ok(); }

  Status encode(const std::string& codec, DType dtype, std::span<const std::byte> payload,
                std::span<std::byte> wire, const EncodeContext& context) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    DeviceMemory statistics;
    return on_device(
        codec, payload, wire, [&](const CodecChoice& choice, std::byte* from, std::byte* to) {
          const std::size_t groups = groups_of_message(choice, elements);
          ARLAB_RETURN_IF_ERROR(
              statistics.require(statistics_of(choice, elements, groups) * sizeof(Statistics)));
          return started(launch_encode(choice, dtype, from, elements,
                                       reinterpret_cast<std::uint8_t*>(to), context,
                                       reinterpret_cast<Statistics*>(statistics.data()), nullptr));
        });
  }
  Status decode(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    return on_device(codec, wire, payload,
                     [&](const CodecChoice& choice, std::byte* from, std::byte* to) {
                       const auto* bytes = reinterpret_cast<std::uint8_t*>(from);
                       return started(launch_decode(choice, dtype, bytes, elements, to, nullptr));
                     });
  }
  Status decode_add(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                    std::span<std::byte> sum) const override {
    const std::size_t elements = sum.size() / size_of(dtype);
    return on_device(
        codec, wire, sum, [&](const CodecChoice& choice, std::byte* from, std::byte* to) {
          const auto* bytes = reinterpret_cast<std::uint8_t*>(from);
          return started(launch_decode_add(choice, dtype, bytes, elements, to, nullptr));
        });
  }

  Status quantize_int8(DType dtype, std::span<const std::byte> values, std::size_t rows,
                       const OperandFormat& format, const std::optional<Int8Scale>& given,
                       Int8Matrix& to) const override {
    const std::size_t columns = rows == 0 ? 0 : values.size() / size_of(dtype) / rows;
    to = {.rows = rows, .columns = columns, .asymmetric = format.asymmetric};
    if (values.empty()) return Status::error("an empty matrix");
    const HostLock lock;
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(0), "no device can be used"));
    DeviceMemory source;
    DeviceMemory extremes;
    Int8Memory target;
    ARLAB_RETURN_IF_ERROR(source.require(values.size()));
    ARLAB_RETURN_IF_ERROR(extremes.require(rows * sizeof(Extremes)));
    ARLAB_RETURN_IF_ERROR(target.require(rows, columns));
    ARLAB_RETURN_IF_ERROR(copy_in(source.data(), values));
    const Int8Rule rule = {format.asymmetric, format.per_tensor, given.has_value(),
                           given.value_or(Int8Scale())};
    ARLAB_RETURN_IF_ERROR(started(launch_quantize_int8(dtype, source.data(), rows, columns, rule,
                                                       reinterpret_cast<Extremes*>(extremes.data()),
                                                       target.on_device(), nullptr)));
    ARLAB_RETURN_IF_ERROR(status_of(hipDeviceSynchronize(), "a kernel failed"));
    return target.read(to);
  }

  Status linear_int8(const Int8Matrix& x, const Int8Matrix& w, DType dtype,
                     std::span<std::byte> y) const override {
    if (y.size() != x.rows * w.rows * size_of(dtype)) {
      return Status::error(fmt::format("{} bytes for {} x {} results", y.size(), x.rows, w.rows));
    }
    if (y.empty()) return {};
    const HostLock lock;
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(0), "no device can be used"));
    Int8Memory of_x;
    Int8Memory of_w;
    DeviceMemory target;
    ARLAB_RETURN_IF_ERROR(of_x.write(x));
    ARLAB_RETURN_IF_ERROR(of_w.write(w));
    ARLAB_RETURN_IF_ERROR(target.require(y.size()));
    ARLAB_RETURN_IF_ERROR(
        started(launch_linear_int8(of_x.on_device(), x.rows, of_w.on_device(), w.rows, x.columns,
                                   dtype, target.data(), nullptr)));
    ARLAB_RETURN_IF_ERROR(status_of(hipDeviceSynchronize(), "a kernel failed"));
    return copy_out(y, target.data());
  }

  std::size_t team_bytes(std::span<const int> devices,
                         const CommunicatorOptions& options) const override {
#if defined(__HIP_PLATFORM_HOST__)
    return memory_of_team(devices, options);
#else
    (void)devices, (void)options;
    return 0;
#endif
  }

  Result<std::vector<std::unique_ptr<RankCommunicator>>> make_communicators(
      std::span<const int> devices, const CommunicatorOptions& options) const override {
    ARLAB_ASSIGN_OR_RETURN(std::vector<Communicator> team,
                           Communicator::in_process(devices, options));
    std::vector<std::unique_ptr<RankCommunicator>> ranks;
    for (Communicator& communicator : team) {
      auto rank = std::make_unique<RankOnDevice>(std::move(communicator));
      ARLAB_RETURN_IF_ERROR(rank->make_stream());
      ranks.push_back(std::move(rank));
    }
    return {std::move(ranks)};
  }

  Result<std::unique_ptr<RankCommunicator>> create_communicator(
      int device, Bootstrap& bootstrap, const CommunicatorOptions& options) const override {
    ARLAB_ASSIGN_OR_RETURN(Communicator communicator,
                           Communicator::create(device, bootstrap, options));
    return std::unique_ptr<RankCommunicator>(
        std::make_unique<RankOnDevice>(std::move(communicator)));
  }

  Result<std::unique_ptr<Group>> make_group(
      int ranks, const CommunicatorOptions& options,
      const std::shared_ptr<Bootstrap>& processes) const override {
    ARLAB_ASSIGN_OR_RETURN(const int count, devices());
    if (processes != nullptr) {
      auto group = std::make_unique<ProcessesGroup>(processes);
      ARLAB_RETURN_IF_ERROR(group->open(processes->rank() % count, options));
      return std::unique_ptr<Group>(std::move(group));
    }
    auto group = std::make_unique<DeviceGroup>();
    ARLAB_RETURN_IF_ERROR(group->open(devices_of_group(ranks), options));
    return std::unique_ptr<Group>(std::move(group));
  }

  Result<std::unique_ptr<Group>> make_vendor_group(int ranks) const override {
    ARLAB_ASSIGN_OR_RETURN(const int count, devices());
    if (ranks < 1 || ranks > count) {
      return Status::error(fmt::format("{} ranks, but {} devices", ranks, count));
    }
    std::vector<int> device_of_rank(static_cast<std::size_t>(ranks));
    std::iota(device_of_rank.begin(), device_of_rank.end(), 0);
    auto group = std::make_unique<VendorGroup>();
    ARLAB_RETURN_IF_ERROR(group->open(device_of_rank));
    return std::unique_ptr<Group>(std::move(group));
  }

 private:
  /// Copies `from` and `to` to device 0, launches, and copies `to` back.
  template <class Launch>
  static Status on_device(const std::string& codec, std::span<const std::byte> from,
                          std::span<std::byte> to, Launch launch) {
    ARLAB_ASSIGN_OR_RETURN(const CodecChoice choice, choose_codec(codec));
    const HostLock lock;  // an error on the device is this call's
    Status status = status_of(hipSetDevice(0), "no device can be used");
    DeviceMemory source;
    DeviceMemory target;
    if (status.ok()) status = source.require(from.size());
    if (status.ok()) status = target.require(to.size());
    if (status.ok()) status = copy_in(source.data(), from);
    if (status.ok()) status = copy_in(target.data(), to);
    if (status.ok()) status = launch(choice, source.data(), target.data());
    if (status.ok()) status = status_of(hipDeviceSynchronize(), "a kernel failed");
    const FormatKernels* kernels = format_kernels(choice);
    const std::string failure = kernels == nullptr ? "" : kernels->failure();
    if (status.ok() && !failure.empty()) status = Status::error(failure);
    if (status.ok()) status = copy_out(to, target.data());
    return status;
  }
};

}  // namespace

const Platform& device_platform() {
  static const DevicePlatform platform;
  return platform;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
