#include "kernels/nccl/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace arlab::nccl {
namespace {

/// Of a rank's payloads, in all and of one call.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostElements = std::size_t{4} << 20;
constexpr std::size_t kLinesBytes = std::size_t{1} << 16;

constexpr std::string_view kHeader =
    "communicator,ranks,call,collective,dtype,elements,bytes,took,host_us,payload\n";

std::string_view type_name(int type) {
  constexpr std::string_view kNames[] = {"int8",  "uint8",  "int32",    "uint32",
                                         "int64", "uint64", "fp16",     "fp32",
                                         "fp64",  "bf16",   "fp8-e4m3", "fp8-e5m2"};
  return element_bytes(type) == 0 ? "unknown" : kNames[type];
}

Failure cannot_write(const std::string& path) {
  return {kInvalidArgument,
          fmt::format("ARLAB_NCCL_RECORD: {} cannot be written: {}", path, std::strerror(errno))};
}

void write_at(int file, std::string_view bytes, off_t at, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw cannot_write(path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
}

}  // namespace

Recorder::Recorder(const std::string& folder, std::string communicator, int rank, int ranks)
    : folder_(folder),
      communicator_(std::move(communicator)),
      rank_(rank),
      ranks_(ranks),
      room_(kMostBytes) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) throw cannot_write(folder);
  const std::string path = folder + "/calls.csv";
  calls_file_ = kernels::FileDescriptor(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat status = {};
  if (!calls_file_.is_open() || flock(calls_file_.number(), LOCK_EX) != 0 ||
      fstat(calls_file_.number(), &status) != 0) {
    throw cannot_write(path);
  }
  if (status.st_size == 0) write_at(calls_file_.number(), kHeader, 0, path);
  (void)flock(calls_file_.number(), LOCK_UN);
}

Recorder::~Recorder() { flush(); }

void Recorder::add(const CallRecord& call) {
  ++calls_;
  if (rank_ != 0) return;
  lines_ += fmt::format("{},{},{},{},{},{},{},{},{:.3f},{}\n", communicator_, ranks_, calls_,
                        call.collective, type_name(call.type), call.elements, call.bytes, call.took,
                        call.host_us, call.payload);
  if (lines_.size() > kLinesBytes) flush();
}

void Recorder::flush() {
  // At once, so that lines of several communicators stay whole. Nothing depends on them: a full disk is no reason to stop.
  if (!lines_.empty() && write(calls_file_.number(), lines_.data(), lines_.size()) < 0) {
    fmt::print(stderr, "arlab: calls were not recorded: {}\n", std::strerror(errno));
  }
  lines_.clear();
}

std::size_t Recorder::sampled(DType dtype, std::size_t elements) {
  if (!std::has_single_bit(++all_reduces_)) return 0;
  return std::min({elements, kMostElements, room_ / size_of(dtype)});
}

std::string Recorder::keep(DType dtype, const std::string& payload) {
  room_ -= payload.size();
  const std::string name = fmt::format("all_reduce-{}-{}.safetensors", communicator_, calls_ + 1);
  const std::string path = folder_ + "/" + name;
  const std::size_t ranks = static_cast<std::size_t>(ranks_);
  std::string header =
      fmt::format(R"({{"payload":{{"dtype":"{}","shape":[{},{}],"data_offsets":[0,{}]}}}})",
                  dtype == DType::fp16   ? "F16"
                  : dtype == DType::bf16 ? "BF16"
                                         : "F32",
                  ranks, payload.size() / size_of(dtype), ranks * payload.size());
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();
  header.insert(0, reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  const kernels::FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) throw cannot_write(path);
  write_at(file.number(), header, 0, path);
  const std::size_t at = header.size() + static_cast<std::size_t>(rank_) * payload.size();
  write_at(file.number(), payload, static_cast<off_t>(at), path);
  return name;
}

}  // namespace arlab::nccl
