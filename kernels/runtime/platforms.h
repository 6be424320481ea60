// The platforms that kernels were built for, without their types: for the command line, the
// conformance harness and tests.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/collective_request.h"
#include "kernels/runtime/conformance_record.h"
#include "kernels/runtime/status.h"
#include "reference/codecs/context.h"
#include "reference/dtype.h"
#include "reference/layers/linear.h"

namespace arlab::kernels {

/// Error of a call in place whose kernels need another tensor as output.
inline constexpr const char* kNeedsAnotherOutput =
    "this schedule reads its input again after it has stored there: the output must be another "
    "tensor";

struct GroupCall {
  CollectiveRequest collective;
  bool in_place = false;
  /// The tensors start so many elements behind an address that is a multiple of 256.
  std::size_t offset_elements = 0;
  /// Operands of a request with a tail: on all ranks the same.
  std::span<const std::byte> residual = {};
  std::span<const std::byte> weight = {};
  /// Its further results, of all ranks one after the other.
  std::span<std::byte> residual_out = {};
  std::span<std::byte> wire = {};
  /// Calls before this one, for codecs with random numbers; else those that were made.
  std::optional<std::uint32_t> random_calls = {};
};

struct TimingRequest {
  int calls = 20;    ///< in a graph
  int replays = 20;  ///< replays of the graph
  /// Work of a rank between two calls; the times are then what calls add to that.
  bool gemm = false;  ///< a matrix product on all multiprocessors
  bool cold = false;  ///< memory is overwritten, until caches hold nothing else
};

/// How long calls took, in microseconds.
struct CallTimes {
  std::vector<double> device;  ///< time of a call in a graph: one figure for each replay
  std::vector<double> host;    ///< time of a call outside of graphs, on a rank's host: likewise
};

/// A team of ranks in this process.
class Group {
 public:
  virtual ~Group() = default;

  /// Who reduces: arlab, or a vendor's library and its version.
  virtual std::string name() const { return "arlab"; }

  /// Runs the collective on all ranks and waits. `inputs` and `outputs` hold the tensors of all
  /// ranks one after the other.
  virtual Status run(const GroupCall& call, std::span<const std::byte> inputs,
                     std::span<std::byte> outputs) = 0;

  /// Which kernel run() would take, and why.
  virtual Result<std::string> explain(const CollectiveRequest& request) = 0;

  /// Compiles the kernels of all these calls, on all cores, and loads them, where kernels are compiled on demand. A call that
  /// cannot be made is left out: it says so when it is made.
  virtual Status prepare(std::span<const CollectiveRequest> calls,
                         const CompileProgress& progress) {
    (void)calls, (void)progress;
    return {};
  }

  /// How long calls take, on the device and on the host. The ranks' tensors hold `pattern` again
  /// and again, from a different place on.
  virtual Result<CallTimes> time(const GroupCall& call, std::span<const std::byte> pattern,
                                 const TimingRequest& request) = 0;
};

/// A codec, by name, with one of its dtypes.
using CodecAndDType = std::pair<std::string, DType>;

/// Kernels to compile for GPUs that need not be here: of all-reduces and other collectives as they are by default, of any length,
/// and of codecs by themselves.
struct AheadRequest {
  std::vector<std::string> codecs = {};
  std::vector<std::string> algorithms = {};
  std::vector<DType> dtypes = {};  ///< a codec is compiled for those that it takes
  std::vector<int> ranks = {};
  std::optional<Tail> tail = {};                ///< calls are all-reduces with it
  std::vector<std::string> architectures = {};  ///< sm_90
  std::filesystem::path folder = {};            ///< where they are kept; empty: in the cache
  unsigned jobs = 0;                            ///< 0: all cores
};
struct CompiledAhead {
  std::filesystem::path folder;
  std::size_t kernels = 0;
  std::size_t compiled = 0;  ///< the others were there
};

/// A rank's Communicator, whatever the platform: it works on memory of its device.
class RankCommunicator {
 public:
  virtual ~RankCommunicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual int device() const = 0;
  /// As Communicator::run; `stream` is the platform's, null for the default one.
  virtual Status run(const CollectiveRequest& request, const void* input, void* output,
                     void* stream, const TailTensors& tail = {}) = 0;
  /// As Communicator::prepare.
  virtual Status prepare(const CollectiveRequest& request) = 0;
  /// As Communicator::explain.
  virtual Result<std::string> explain(const CollectiveRequest& request) = 0;
  /// Bytes of memory that as_sent() takes beside its tensors.
  virtual Result<std::size_t> room_of_as_sent(const std::string& codec, DType dtype,
                                              std::size_t elements) const = 0;
  /// Enqueues: output becomes what others decode of the input. `room` is aligned to 16 bytes. All ranks call it, as they call run().
  virtual Status as_sent(const std::string& codec, DType dtype, std::size_t elements,
                         const void* input, void* room, void* output, void* stream) = 0;
  /// Waits for this rank's work on the stream.
  virtual Status wait(void* stream) = 0;
  /// As Communicator::set_random_calls.
  virtual Status set_random_calls(std::uint32_t calls) = 0;
  /// As Communicator::check.
  virtual Status check() = 0;
  /// As Communicator::give_up.
  virtual Status give_up() = 0;
  /// Makes further work on the stream wait for this rank's, wherever that runs.
  virtual Status join(void* stream) = 0;
  Status synchronize(void* stream) {
    Status status = wait(stream);
    return status.ok() ? check() : status;
  }

  /// While what is returned lives, no other thread makes calls of the platform. Needed where one
  /// thread runs the kernels of all, so that it never waits for those of a team that are only half
  /// there.
  virtual std::shared_ptr<void> hold_other_threads() const = 0;
};

/// A rank's part in a call of its team.
struct RankCall {
  RankCommunicator* rank;
  const void* input;
  void* output;
  void* stream;  ///< work already on it is waited for
  TailTensors tail = {};
};

/// A call of all ranks of a team in this process, which has ended when it returns, whatever happens.
Status run_together(const CollectiveRequest& request, std::span<const RankCall> ranks);

/// Calls of the platform's own API, for who takes the place of a library that programs call with memory and streams of theirs
/// (kernels/nccl). Memory and copies are of the calling thread's current device.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
  /// Whether kernels run only while the host waits for them.
  virtual bool is_emulated() const = 0;
  virtual Result<int> current_device() const = 0;
  virtual Status use_device(int device) const = 0;
  /// Where it is in the machine: ranks with the same place share a device.
  virtual Result<std::string> place(int device) const = 0;
  /// Also while a stream of this thread is captured.
  virtual Result<void*> allocate(std::size_t bytes) const = 0;
  virtual void release(void* memory) const = 0;
  /// Enqueues a copy between memory of devices, or of the host.
  virtual Status copy(void* to, const void* from, std::size_t bytes, void* stream) const = 0;
  virtual Status wait(void* stream) const = 0;
  virtual Result<bool> is_captured(void* stream) const = 0;
};

class Platform {
 public:
  virtual ~Platform() = default;

  virtual std::string_view name() const = 0;

  /// How many devices there are; the error says why none can be used.
  virtual Result<int> devices() const = 0;

  virtual const DeviceCalls& device_calls() const = 0;

  /// True when there are kernels for the codec.
  virtual bool has_codec(const std::string& codec) const = 0;

  /// As Group::prepare, of encode(), decode() and decode_add().
  virtual Status prepare(std::span<const CodecAndDType> codecs,
                         const CompileProgress& progress) const {
    (void)codecs, (void)progress;
    return {};
  }
  /// Prepares quantize_int8() and linear_int8().
  virtual Status prepare_layers(const CompileProgress& progress) const {
    (void)progress;
    return {};
  }

  /// Which compiler makes its kernels when they are called for; or why none does. Empty where they were compiled ahead.
  virtual Result<std::string> compiler() const { return std::string(); }

  /// Compiles kernels without a device. The error names an unknown architecture, or says why there is no compiler.
  virtual Result<CompiledAhead> compile_ahead(const AheadRequest& request,
                                              const CompileProgress& progress) const;

  /// From now on this process looks there first for compiled kernels; nothing is written there. The error says who else
  /// may write there, or that the platform's kernels are in the program.
  virtual Status add_kernel_folder(const std::filesystem::path& folder) const;

  /// The hash of the sources that kernels are compiled from when they are called for; empty where the program has them.
  virtual std::string kernels_hash() const { return {}; }

  /// Its maker's name of device 0.
  virtual Result<std::string> device_name() const = 0;

  /// The codec's kernels on device 0; as Codec has them. `wire` has codec.wire_bytes() bytes.
  virtual Status encode(const std::string& codec, DType dtype, std::span<const std::byte> payload,
                        std::span<std::byte> wire, const EncodeContext& context = {}) const = 0;
  virtual Status decode(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                        std::span<std::byte> payload) const = 0;
  virtual Status decode_add(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                            std::span<std::byte> sum) const = 0;

  /// The kernels of int8 layers on device 0; as reference/layers/linear.h has them. `values`
  /// [rows, columns], y [x.rows, w.rows] of the dtype.
  virtual Status quantize_int8(DType dtype, std::span<const std::byte> values, std::size_t rows,
                               const OperandFormat& format, const std::optional<Int8Scale>& given,
                               Int8Matrix& to) const = 0;
  virtual Status linear_int8(const Int8Matrix& x, const Int8Matrix& w, DType dtype,
                             std::span<std::byte> y) const = 0;

  /// Where calls take sentinels only when they have passed: what says so.
  virtual std::optional<ConformanceRecord> record() const = 0;

  /// Bytes of the host's memory that a team of ranks in this process takes, without tensors.
  virtual std::size_t team_bytes(std::span<const int> devices,
                                 const CommunicatorOptions& options) const = 0;

  /// As Communicator::in_process. Every rank works on a stream of its own, behind what is on the
  /// caller's, so that ranks which share a device run at the same time; wait() waits for that.
  virtual Result<std::vector<std::unique_ptr<RankCommunicator>>> make_communicators(
      std::span<const int> devices, const CommunicatorOptions& options) const = 0;

  /// As Communicator::create.
  virtual Result<std::unique_ptr<RankCommunicator>> create_communicator(
      int device, Bootstrap& bootstrap, const CommunicatorOptions& options) const = 0;

  /// The devices that make_group() takes for so many ranks.
  std::vector<int> devices_of_group(int ranks) const;

  /// Rank r is on device r modulo the number of devices. With `processes`, each process is a rank of these: all run the same
  /// calls with the tensors of all ranks, and end with the results, times and errors of all.
  virtual Result<std::unique_ptr<Group>> make_group(
      int ranks, const CommunicatorOptions& options,
      const std::shared_ptr<Bootstrap>& processes = nullptr) const = 0;

  /// The vendor's collectives (NCCL, RCCL): all_reduce of plain dtypes, the algorithm and codec of
  /// calls are not looked at. A device per rank.
  virtual Result<std::unique_ptr<Group>> make_vendor_group(int ranks) const = 0;
};

/// The platforms that this program was built for.
const std::vector<const Platform*>& built_platforms();

/// For programs that name none: the platform of this machine's GPUs, cuda before rocm, else that of emulated ones. Where there
/// is none of these, the first, whose devices() says what is missing.
const Platform& usual_platform();

/// By name; the error says which were built.
Result<const Platform*> find_platform(std::string_view name);

}  // namespace arlab::kernels
