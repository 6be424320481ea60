// Communicator::create: one process per rank.
//
// The ranks exchange rounds of messages. In each, a rank that failed says why, and all end
// with the same error, so that nobody waits for somebody who has given up.
//
//   hello     who and where a rank is, and its options, which all must share
//   offer     that it has a communication buffer; and then how to open it: an IPC handle, or of
//             emulated GPUs a descriptor
//   outcome   whether it could open the buffers of all others
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "kernels/runtime/communicator.h"
#include "kernels/runtime/team_memory.h"

#if defined(__HIP_PLATFORM_HOST__)
#include "kernels/platform/host/shared_memory.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

using Text = MessageText<248>;

struct Hello {
  Text error;
  Text host;
  Text boot;    // the machine's last start: the same in all of its containers
  Text device;  // its place in the machine
  std::int64_t process;
  std::int64_t multiprocessors;
  CommunicatorOptions options;
};
struct Offer {
  Text error;
  std::uint64_t bytes;  // the buffer's
};
struct Outcome {
  Text error;
};

/// Everybody's message; or the error of the first rank that has one.
template <class Message>
Result<std::vector<Message>> exchange(Bootstrap& bootstrap, const Message& mine) {
  Result<std::vector<Message>> messages = gather_messages(bootstrap, mine);
  if (!messages.ok()) return messages;
  for (std::size_t rank = 0; rank < messages.value().size(); ++rank) {
    const std::string error = messages.value()[rank].error.string();
    if (!error.empty()) return Status::error(fmt::format("rank {}: {}", rank, error));
  }
  return messages;
}

Hello make_hello(int device, int ranks, const CommunicatorOptions& options) {
  Hello hello = {};
  char name[200] = {};
  (void)gethostname(name, sizeof(name) - 1);
  hello.host = name;
  hello.boot = boot_id();
  hello.process = getpid();
  hello.options = options;
  Status status = check_options(static_cast<std::size_t>(ranks), options);
  if (status.ok()) status = status_of(hipSetDevice(device), "its device cannot be used");
  char place[100] = {};
  if (status.ok()) {
    status = status_of(hipDeviceGetPCIBusId(place, static_cast<int>(sizeof(place)), device),
                       "its device cannot be used");
  }
  hello.device = place;
  const Result<int> multiprocessors = multiprocessors_of(device);
  if (status.ok()) status = multiprocessors.status();
  if (status.ok()) hello.multiprocessors = multiprocessors.value();
  if (!status.ok()) hello.error = status.message();
  return hello;
}

/// The ranks can work together: on one host, in different processes, with the same options.
Status check_hellos(const std::vector<Hello>& hellos) {
  const Hello& first = hellos[0];
  for (std::size_t rank = 1; rank < hellos.size(); ++rank) {
    const Hello& hello = hellos[rank];
    if (hello.boot.string() != first.boot.string() ||
        (first.boot.string().empty() && hello.host.string() != first.host.string())) {
      return Status::error(fmt::format(
          "rank {} is on host {} and rank 0 on host {}: a communicator needs all ranks on one host",
          rank, hello.host.string(), first.host.string()));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (hellos[other].process == hello.process) {
        return Status::error(fmt::format(
            "ranks {} and {} are in one process: make such a team with in_process", other, rank));
      }
    }
    const CommunicatorOptions& a = first.options;
    const CommunicatorOptions& b = hello.options;
    if (a.blocks != b.blocks || a.slot_bytes != b.slot_bytes ||
        a.timeout_nanoseconds != b.timeout_nanoseconds || a.first_epoch != b.first_epoch ||
        a.two_pass_groups != b.two_pass_groups || a.multiprocessors != b.multiprocessors) {
      return Status::error(fmt::format("rank {} has other options than rank 0", rank));
    }
  }
  return {};
}

/// All buffers are as long as this rank's own, which is what its kernels take them for.
Status check_offers(const std::vector<Offer>& offers, std::uint64_t bytes) {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].bytes != bytes) {
      return Status::error(fmt::format("rank {} has a buffer of {} bytes: {} are needed", rank,
                                       offers[rank].bytes, bytes));
    }
  }
  return {};
}

#if defined(__HIP_PLATFORM_HOST__)

/// By which another process opens a buffer.
using BufferHandle = FileDescriptor;

Result<std::vector<BufferHandle>> exchange_handles(Bootstrap& bootstrap, void* own) {
  return bootstrap.all_gather_files(emulator::file_of_shared(own));
}

Result<void*> open_buffer(int rank, const BufferHandle& handle, std::size_t bytes) {
  void* const memory = emulator::open_shared(handle.number(), bytes);
  if (memory != nullptr) return memory;
  return Status::error(
      fmt::format("the buffer of rank {} cannot be opened: it is not {} bytes of an emulated GPU",
                  rank, bytes));
}

void close_buffer(void* memory) {
  (void)hipDeviceSynchronize();
  (void)emulator::close_shared(memory);
}

#else

using BufferHandle = hipIpcMemHandle_t;

Result<std::vector<BufferHandle>> exchange_handles(Bootstrap& bootstrap, void* own) {
  struct Message {
    Text error;
    BufferHandle handle;
  };
  Message mine = {};
  const Status status = status_of(hipIpcGetMemHandle(&mine.handle, own),
                                  "its buffer cannot be opened by other processes");
  if (!status.ok()) mine.error = status.message();
  ARLAB_ASSIGN_OR_RETURN(const auto messages, exchange(bootstrap, mine));
  std::vector<BufferHandle> handles;
  for (const Message& message : messages) handles.push_back(message.handle);
  return handles;
}

Result<void*> open_buffer(int rank, const BufferHandle& handle, std::size_t) {
  void* memory = nullptr;
  ARLAB_RETURN_IF_ERROR(
      status_of(hipIpcOpenMemHandle(&memory, handle, hipIpcMemLazyEnablePeerAccess),
                fmt::format("the buffer of rank {} cannot be opened", rank).c_str()));
  return memory;
}

void close_buffer(void* memory) { (void)hipIpcCloseMemHandle(memory); }

#endif

/// Multiprocessors of each rank when ranks share devices: the least of all ranks.
Result<int> multiprocessors_of_each(const std::vector<Hello>& hellos) {
  std::int64_t least = kMostBlocks;
  bool share = false;
  for (const Hello& hello : hellos) {
    const auto ranks = std::count_if(hellos.begin(), hellos.end(), [&](const Hello& other) {
      return other.device.string() == hello.device.string();
    });
    share = share || ranks > 1;
    least = std::min<std::int64_t>(least, hello.multiprocessors / ranks);
  }
  return limited_multiprocessors(static_cast<int>(least), share, hellos.front().options);
}

}  // namespace

/// This rank's memory, and that of the others, opened here.
class IpcTeamMemory final : public TeamMemory {
 public:
  IpcTeamMemory(int rank, int device, std::uint64_t timeout_nanoseconds)
      : rank_(rank),
        device_(device),
        timeout_(timeout_nanoseconds),
        departure_timeout_(std::min<std::chrono::nanoseconds>(timeout_, std::chrono::seconds(10))) {
  }

  /// Others may write to our buffer until they have said that they are done with it.
  ~IpcTeamMemory() override {
    (void)hipSetDevice(device_);
    const std::uint32_t yes = 1;
    for (std::uint8_t* const buffer : opened_) {
      if (own_ != nullptr) {
        (void)hipMemcpy(buffer + departed(rank_), &yes, sizeof(yes), hipMemcpyHostToDevice);
      }
      close_buffer(buffer);
    }
    if (own_ != nullptr && !others_have_departed()) leave();
  }

  Result<std::uint8_t*> open(int rank, const BufferHandle& handle, std::size_t bytes) {
    ARLAB_ASSIGN_OR_RETURN(void* const memory, open_buffer(rank, handle, bytes));
    opened_.push_back(static_cast<std::uint8_t*>(memory));
    return opened_.back();
  }

  Status together(const std::function<Status()>& prepare, hipStream_t beside) override;

  /// All ranks have opened all buffers, and may write from now on.
  void complete(std::uint8_t* own) { own_ = own; }

 private:
  /// Where rank `rank` says in a buffer that it will not write to it again: between the abort word
  /// and the flags.
  static std::size_t departed(int rank) {
    constexpr std::size_t kAt = 128;
    static_assert(kAt + kMaxRanks * sizeof(std::uint32_t) <= kPreparedAt);
    return kAt + static_cast<std::size_t>(rank) * sizeof(std::uint32_t);
  }

  // Behind those, where a rank says how far it is with a preparation. Those of even and of odd numbers have words of their own, so
  // that a rank which goes on to the next one has not overwritten what others still look at.
  static constexpr std::size_t kPreparedAt = 160;
  enum State : std::uint32_t { begun = 1, ready = 2, failed = 3 };
  std::size_t prepared(int rank) const {
    static_assert(kPreparedAt + 2 * kMaxRanks * sizeof(std::uint32_t) <= BufferLayout::kCallsAt);
    return kPreparedAt + (static_cast<std::size_t>(preparations_ % 2 * kMaxRanks) +
                          static_cast<std::size_t>(rank)) *
                             sizeof(std::uint32_t);
  }
  /// To all ranks.
  Status tell(State state, hipStream_t beside) const;
  /// Whether rank `rank`, which is waited for since then, has come so far.
  Result<bool> has_come(int rank, std::chrono::steady_clock::time_point since,
                        hipStream_t beside) const;
  /// Who has begun compiles; a process that has been killed does not say so.
  static constexpr std::chrono::minutes kLongestPreparation{10};

  bool others_have_departed() const {
    const auto deadline = std::chrono::steady_clock::now() + departure_timeout_;
    for (;;) {
      std::uint32_t words[BufferLayout::kFlagsAt / sizeof(std::uint32_t)] = {};
      if (hipMemcpy(words, own_, sizeof(words), hipMemcpyDeviceToHost) != hipSuccess) return false;
      std::size_t gone = 0;
      for (int rank = 0; rank < kMaxRanks; ++rank) {
        gone += rank != rank_ && words[departed(rank) / sizeof(std::uint32_t)] != 0;
      }
      if (gone == opened_.size()) return true;
      // After a failure nobody is waited for: who did not arrive will not depart.
      if (words[0] != 0 || std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int rank_;
  int device_;
  std::chrono::nanoseconds timeout_;
  std::chrono::nanoseconds departure_timeout_;
  std::uint8_t* own_ = nullptr;  // once the team is complete
  std::vector<std::uint8_t*> opened_;
  std::uint32_t preparations_ = 0;
};

Status IpcTeamMemory::tell(State state, hipStream_t beside) const {
  constexpr const char* kWhat = "another rank cannot be told that this one is ready";
  const std::uint32_t word = preparations_ * 4 + state;
  for (std::uint8_t* const buffer : opened_) {
    ARLAB_RETURN_IF_ERROR(status_of(hipMemcpyAsync(buffer + prepared(rank_), &word, sizeof(word),
                                                   hipMemcpyHostToDevice, beside),
                                    kWhat));
  }
  return status_of(hipStreamSynchronize(beside), kWhat);
}

Result<bool> IpcTeamMemory::has_come(int rank, std::chrono::steady_clock::time_point since,
                                     hipStream_t beside) const {
  constexpr const char* kWhat = "it cannot be seen whether other ranks are ready";
  std::uint32_t word = 0;
  ARLAB_RETURN_IF_ERROR(status_of(
      hipMemcpyAsync(&word, own_ + prepared(rank), sizeof(word), hipMemcpyDeviceToHost, beside),
      kWhat));
  ARLAB_RETURN_IF_ERROR(status_of(hipStreamSynchronize(beside), kWhat));
  const std::uint32_t state = word / 4 == preparations_ ? word % 4 : 0;
  if (state == ready) return true;
  if (state == failed) {
    return Status::error(fmt::format("rank {} cannot prepare this call; it says why", rank));
  }
  const std::chrono::nanoseconds most = state == begun ? timeout_ + kLongestPreparation : timeout_;
  if (std::chrono::steady_clock::now() - since > most) {
    return Status::error(
        fmt::format("rank {} did not arrive within {} ms (seen by rank {})", rank,
                    std::chrono::duration_cast<std::chrono::milliseconds>(most).count(), rank_));
  }
  return false;
}

Status IpcTeamMemory::together(const std::function<Status()>& prepare, hipStream_t beside) {
  const RelaxedCaptureMode allowed;
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), "a device cannot be used"));
  ++preparations_;
  ARLAB_RETURN_IF_ERROR(tell(begun, beside));
  const Status own = prepare();
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device_), "a device cannot be used"));
  ARLAB_RETURN_IF_ERROR(tell(own.ok() ? ready : failed, beside));
  ARLAB_RETURN_IF_ERROR(own);
  const auto since = std::chrono::steady_clock::now();
  for (int rank = 0; rank < static_cast<int>(opened_.size()) + 1; ++rank) {
    while (rank != rank_) {
      ARLAB_ASSIGN_OR_RETURN(const bool has, has_come(rank, since, beside));
      if (has) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return {};
}

Result<Communicator> Communicator::create(int device, Bootstrap& bootstrap,
                                          const CommunicatorOptions& options) {
  const int rank = bootstrap.rank();
  const int ranks = bootstrap.ranks();
  ARLAB_ASSIGN_OR_RETURN(const auto hellos,
                         exchange(bootstrap, make_hello(device, ranks, options)));
  ARLAB_RETURN_IF_ERROR(check_hellos(hellos));

  const auto memory = std::make_shared<IpcTeamMemory>(rank, device, options.timeout_nanoseconds);
  ARLAB_ASSIGN_OR_RETURN(const int multiprocessors, multiprocessors_of_each(hellos));
  const BufferLayout layout = layout_of(options, ranks, multiprocessors);
  Team team{};
  Offer offer = {};
  const Result<RankMemory> own = make_rank(*memory, rank, device, layout, options, team);
  Status status = own.status();
  if (status.ok()) status = status_of(hipDeviceSynchronize(), "its device cannot be used");
  if (!status.ok()) offer.error = status.message();
  offer.bytes = buffer_bytes(team.layout);
  ARLAB_ASSIGN_OR_RETURN(const auto offers, exchange(bootstrap, offer));
  ARLAB_RETURN_IF_ERROR(check_offers(offers, offer.bytes));
  ARLAB_ASSIGN_OR_RETURN(const auto handles, exchange_handles(bootstrap, own.value().buffer));

  Outcome outcome = {};
  for (int peer = 0; peer < ranks && status.ok(); ++peer) {
    if (peer == rank) {
      team.buffer[peer] = own.value().buffer;
      continue;
    }
    const Result<std::uint8_t*> buffer =
        memory->open(peer, handles[static_cast<std::size_t>(peer)], offer.bytes);
    status = buffer.status();
    if (status.ok()) team.buffer[peer] = buffer.value();
  }
  if (status.ok()) {
    Communicator communicator(team, device, multiprocessors, options, memory,
                              own.value().statistics, {device});
    status = communicator.make_streams();
    if (!status.ok()) outcome.error = status.message();
    ARLAB_ASSIGN_OR_RETURN(const auto outcomes, exchange(bootstrap, outcome));
    memory->complete(own.value().buffer);
    return {std::move(communicator)};
  }
  outcome.error = status.message();
  return exchange(bootstrap, outcome).status();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
