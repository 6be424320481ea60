// NCCL's functions: what is said with them, checked; groups; and one line for what goes wrong.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/nccl/communicator.h"
#include "reference/error.h"

namespace arlab::nccl {
namespace {

/// The interface that these functions are of, where no real library says its own.
constexpr int kVersion = 22103;

// ---------------------------------------------------------------- errors

std::mutex last_error_mutex;
std::string& last_error() {
  static auto& line = *new std::string;
  return line;
}

/// A rank that is a thread asks for its own, whatever other ranks have met since.
thread_local std::string last_error_of_thread;

int failed(const char* function, int code, const char* why) {
  std::string line = fmt::format("{}: {}", function, why);
  last_error_of_thread = line;
  const std::lock_guard lock(last_error_mutex);
  // Not again for every time that a watchdog asks.
  if (last_error() != line) fmt::print(stderr, "arlab: {}\n", line);
  last_error() = std::move(line);
  return code;
}

/// Returns the body's result, or the code of its exception. The program's device stays the current one.
template <class Body>
int guarded(const char* function, Body body) {
  struct KeepsDevice {
    std::optional<int> device = {};
    ~KeepsDevice() {
      if (device.has_value()) (void)platform().device_calls().use_device(*device);
    }
  };
  try {
    KeepsDevice keeps;
    const kernels::Result<int> current = platform().device_calls().current_device();
    if (current.ok()) keeps.device = current.value();
    return body();
  } catch (const Failure& failure) {
    return failed(function, failure.code(), failure.what());
  } catch (const InvalidInput& input) {
    return failed(function, kInvalidArgument, input.what());
  } catch (const std::bad_alloc&) {
    return failed(function, kSystemError, "out of memory");
  } catch (const std::exception& exception) {
    return failed(function, kInternalError, exception.what());
  }
}

template <class T>
void require_pointer(const T* pointer, const char* what) {
  if (pointer == nullptr) throw Failure(kInvalidArgument, fmt::format("{} is null", what));
}

// ---------------------------------------------------------------- communicators

using CommunicatorPtr = std::shared_ptr<Communicator>;

std::shared_mutex registry_mutex;
std::unordered_map<Handle, CommunicatorPtr>& registry() {
  static auto& all = *new std::unordered_map<Handle, CommunicatorPtr>;
  return all;
}

/// Programs end without ncclCommDestroy, too.
struct AtTheEnd {
  ~AtTheEnd() {
    for (const auto& [handle, communicator] : registry()) communicator->say_what_was_called();
  }
} const at_the_end;

void add(const CommunicatorPtr& made, Handle* to) {
  const std::unique_lock lock(registry_mutex);
  *to = made->handle();
  registry()[*to] = made;
}

int current_device() {
  const kernels::Result<int> device = platform().device_calls().current_device();
  require(device.status(), kDeviceError);
  return device.value();
}

CommunicatorPtr find(Handle handle) {
  require_pointer(handle, "the communicator");
  {
    const std::shared_lock lock(registry_mutex);
    const auto found = registry().find(handle);
    if (found != registry().end()) return found->second;
  }
  // One that functions have made which only the real library has. It looks at what it is given.
  if (RealLibrary::found() == nullptr) throw Failure(kInvalidArgument, "this is no communicator");
  auto wrapped = std::make_shared<Communicator>(handle, current_device());
  add(wrapped, &handle);
  return wrapped;
}

CommunicatorPtr take(Handle handle) {
  CommunicatorPtr communicator = find(handle);
  const std::unique_lock lock(registry_mutex);
  registry().erase(handle);
  return communicator;
}

// ---------------------------------------------------------------- groups

/// A communicator that is made at the end of a group.
struct Join {
  Handle* to;
  int device;
  std::function<CommunicatorPtr()> make;
  const Communicator* parent = nullptr;  // is split: its ranks meet for one after the other
};

struct Group {
  int depth = 0;
  bool of_real = false;  // the real library has a group open, too
  std::vector<Join> joins;
  std::vector<std::pair<CommunicatorPtr, std::vector<Call>>> calls;  // in the order of the first
};
thread_local Group group;

/// Ranks of one thread wait for each other, so each has a thread for that. What is split twice is split in the order of the calls,
/// which is the same on all its ranks.
void run_joins(std::vector<Join>& joins) {
  std::vector<CommunicatorPtr> made(joins.size());
  std::vector<std::optional<Failure>> failures(joins.size());
  const auto join = [&](std::size_t i) {
    try {
      require(platform().device_calls().use_device(joins[i].device), kDeviceError);
      made[i] = joins[i].make();
    } catch (const Failure& failure) {
      failures[i] = failure;
    } catch (const std::exception& exception) {
      failures[i].emplace(kInternalError, exception.what());
    }
  };
  std::map<const Communicator*, std::vector<std::size_t>> of_parent;
  std::vector<std::vector<std::size_t>> orders;
  for (std::size_t i = 0; i < joins.size(); ++i) {
    if (joins[i].parent == nullptr) {
      orders.push_back({i});
    } else {
      of_parent[joins[i].parent].push_back(i);
    }
  }
  for (auto& [parent, order] : of_parent) orders.push_back(std::move(order));
  const auto join_each = [&](const std::vector<std::size_t>& order) {
    for (std::size_t at = 0; at < order.size(); ++at) {
      join(order[at]);
      // Whoever did not come to this one comes to none behind it.
      for (std::size_t rest = at + 1; failures[order[at]] && rest < order.size(); ++rest) {
        failures[order[rest]] = failures[order[at]];
      }
      if (failures[order[at]]) return;
    }
  };
  std::vector<std::thread> threads;
  for (const auto& order : orders) threads.emplace_back(join_each, std::cref(order));
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < joins.size(); ++i) {
    if (made[i] != nullptr) {
      add(made[i], joins[i].to);
    } else {
      *joins[i].to = nullptr;
    }
  }
  for (const auto& failure : failures) {
    if (failure) throw *failure;
  }
}

int run_group(Group all) {
  std::optional<Failure> failure;
  const auto attempt = [&](auto body) {
    try {
      body();
    } catch (const Failure& why) {
      if (!failure) failure = why;
    }
  };
  int code = kSuccess;
  if (!all.joins.empty()) attempt([&] { run_joins(all.joins); });
  for (auto& [communicator, calls] : all.calls) {
    if (!failure) attempt([&] { communicator->start(calls); });
  }
  if (all.of_real) attempt([&] { code = RealLibrary::found()->GroupEnd.checked(); });
  for (auto& [communicator, calls] : all.calls) attempt([&] { communicator->finish(); });
  if (failure) throw *failure;
  return code;
}

int enqueue(Handle handle, const Call& call) {
  CommunicatorPtr communicator = find(handle);
  if (group.depth == 0) {
    std::exception_ptr failure;
    try {
      communicator->start(std::span(&call, 1));
    } catch (...) {
      failure = std::current_exception();
    }
    communicator->finish();
    if (failure) std::rethrow_exception(failure);
    return kSuccess;
  }
  (void)communicator->took(call);
  for (auto& [known, calls] : group.calls) {
    if (known != communicator) continue;
    calls.push_back(call);
    return kSuccess;
  }
  group.calls.emplace_back(std::move(communicator), std::vector{call});
  return kSuccess;
}

int join(Join join) {
  if (group.depth != 0) {
    group.joins.push_back(std::move(join));
    return kSuccess;
  }
  const CommunicatorPtr made = join.make();
  *join.to = nullptr;
  if (made != nullptr) add(made, join.to);
  return kSuccess;
}

void start_group() {
  if (group.depth++ != 0 || RealLibrary::found() == nullptr) return;
  RealLibrary::found()->GroupStart.checked();
  group.of_real = true;
}

int end_group() {
  if (group.depth == 0) throw Failure(kInvalidUsage, "there is no group to end");
  if (--group.depth != 0) return kSuccess;
  return run_group(std::exchange(group, Group()));
}

/// A call of the real library that arrives here is meant for it.
#define ARLAB_PASS_INSIDE(Name, ...)                       \
  if (is_inside_real() && RealLibrary::found() != nullptr) \
  return RealLibrary::found()->Name(__VA_ARGS__)

const RealLibrary& library_with_operations(Handle comm) {
  if (find(comm)->real() != nullptr) return *RealLibrary::find();
  throw Failure(kInvalidUsage, "only the real library has operations of one's own");
}

int init_rank(const char* function, Handle* comm, int ranks, const UniqueId& id, int rank,
              void* config) {
  return guarded(function, [&]() -> int {
    ARLAB_PASS_INSIDE(CommInitRankConfig, comm, ranks, id, rank, config);
    require_pointer(comm, "comm");
    const int device = current_device();
    return join({comm, device,
                 [=] { return std::make_shared<Communicator>(ranks, id, rank, device, config); }});
  });
}

}  // namespace
}  // namespace arlab::nccl

using namespace arlab;
using namespace arlab::nccl;

extern "C" {

int ncclGetVersion(int* version) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(GetVersion, version);
    require_pointer(version, "version");
    (void)platform();
    const RealLibrary* const library = RealLibrary::find();
    *version = kVersion;
    return library == nullptr ? kSuccess : library->GetVersion(version);
  });
}

int ncclGetUniqueId(UniqueId* id) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(GetUniqueId, id);
    require_pointer(id, "uniqueId");
    *id = make_unique_id();
    return kSuccess;
  });
}

int ncclCommInitRank(Handle* comm, int ranks, UniqueId id, int rank) {
  return init_rank(__func__, comm, ranks, id, rank, nullptr);
}

int ncclCommInitRankConfig(Handle* comm, int ranks, UniqueId id, int rank, void* config) {
  return init_rank(__func__, comm, ranks, id, rank, config);
}

int ncclCommInitAll(Handle* comms, int ranks, const int* devices) {
  return guarded(__func__, [&]() -> int {
    require_pointer(comms, "comm");
    if (ranks < 1) throw Failure(kInvalidArgument, fmt::format("{} devices: at least 1", ranks));
    const UniqueId id = make_unique_id();
    std::vector<Join> joins;
    for (int rank = 0; rank < ranks; ++rank) {
      const int device = devices == nullptr ? rank : devices[rank];
      joins.push_back({comms + rank, device, [=] {
                         return std::make_shared<Communicator>(ranks, id, rank, device, nullptr);
                       }});
    }
    run_joins(joins);
    return kSuccess;
  });
}

int ncclCommSplit(Handle comm, int color, int key, Handle* made, void* config) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommSplit, comm, color, key, made, config);
    require_pointer(made, "newcomm");
    CommunicatorPtr from = find(comm);
    const int device = from->device();
    return join({made, device, [=] { return from->split(color, key, config); }, from.get()});
  });
}

int ncclCommFinalize(Handle comm) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommFinalize, comm);
    const CommunicatorPtr communicator = find(comm);
    if (communicator->real() == nullptr) return kSuccess;
    return RealLibrary::find()->CommFinalize.checked(communicator->real());
  });
}

int ncclCommDestroy(Handle comm) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommDestroy, comm);
    CommunicatorPtr communicator = take(comm);
    const Handle real = communicator->real();
    communicator.reset();
    if (real == nullptr) return kSuccess;
    return RealLibrary::find()->CommDestroy.checked(real);
  });
}

int ncclCommAbort(Handle comm) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommAbort, comm);
    CommunicatorPtr communicator = take(comm);
    communicator->give_up();
    const Handle real = communicator->real();
    communicator.reset();
    if (real == nullptr) return kSuccess;
    return RealLibrary::find()->CommAbort.checked(real);
  });
}

int ncclCommCount(Handle comm, int* count) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommCount, comm, count);
    require_pointer(count, "count");
    *count = find(comm)->ranks();
    return kSuccess;
  });
}

int ncclCommCuDevice(Handle comm, int* device) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommCuDevice, comm, device);
    require_pointer(device, "device");
    *device = find(comm)->device();
    return kSuccess;
  });
}

int ncclCommUserRank(Handle comm, int* rank) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommUserRank, comm, rank);
    require_pointer(rank, "rank");
    *rank = find(comm)->rank();
    return kSuccess;
  });
}

int ncclCommGetAsyncError(Handle comm, int* error) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommGetAsyncError, comm, error);
    require_pointer(error, "asyncError");
    *error = kSuccess;
    const CommunicatorPtr communicator = find(comm);
    if (communicator->real() != nullptr) {
      RealLibrary::find()->CommGetAsyncError.checked(communicator->real(), error);
    }
    try {
      communicator->check();
    } catch (const Failure& failure) {
      *error = failed("ncclCommGetAsyncError", failure.code(), failure.what());
    }
    return kSuccess;
  });
}

const char* ncclGetErrorString(int code) {
  constexpr const char* kTexts[] = {"no error",
                                    "a call of a device failed",
                                    "a call of the system failed",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "another rank failed, or did not arrive",
                                    "in progress"};
  return code >= 0 && code < static_cast<int>(std::size(kTexts)) ? kTexts[code] : "unknown error";
}

const char* ncclGetLastError(Handle) {
  if (!last_error_of_thread.empty()) return last_error_of_thread.c_str();
  thread_local std::string copy;
  const std::lock_guard lock(last_error_mutex);
  copy = last_error();
  return copy.c_str();
}

int ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, Handle comm,
                  void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(AllReduce, send, recv, count, type, op, comm, stream);
    return enqueue(comm, {Kind::all_reduce, send, recv, count, type, op, 0, stream});
  });
}

int ncclReduce(const void* send, void* recv, std::size_t count, int type, int op, int root,
               Handle comm, void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(Reduce, send, recv, count, type, op, root, comm, stream);
    return enqueue(comm, {Kind::reduce, send, recv, count, type, op, root, stream});
  });
}

int ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op,
                      Handle comm, void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(ReduceScatter, send, recv, count, type, op, comm, stream);
    return enqueue(comm, {Kind::reduce_scatter, send, recv, count, type, op, 0, stream});
  });
}

int ncclAllGather(const void* send, void* recv, std::size_t count, int type, Handle comm,
                  void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(AllGather, send, recv, count, type, comm, stream);
    return enqueue(comm, {Kind::all_gather, send, recv, count, type, kSum, 0, stream});
  });
}

int ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root, Handle comm,
                  void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(Broadcast, send, recv, count, type, root, comm, stream);
    return enqueue(comm, {Kind::broadcast, send, recv, count, type, kSum, root, stream});
  });
}

int ncclBcast(void* buffer, std::size_t count, int type, int root, Handle comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

int ncclSend(const void* send, std::size_t count, int type, int peer, Handle comm, void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(Send, send, count, type, peer, comm, stream);
    return enqueue(comm, {Kind::send, send, nullptr, count, type, kSum, peer, stream});
  });
}

int ncclRecv(void* recv, std::size_t count, int type, int peer, Handle comm, void* stream) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(Recv, recv, count, type, peer, comm, stream);
    return enqueue(comm, {Kind::recv, nullptr, recv, count, type, kSum, peer, stream});
  });
}

int ncclGroupStart() {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(GroupStart);
    start_group();
    return kSuccess;
  });
}

int ncclGroupEnd() {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(GroupEnd);
    return end_group();
  });
}

// Arlab's own calls need no registered memory.
int ncclCommRegister(Handle comm, void* buffer, std::size_t bytes, void** handle) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommRegister, comm, buffer, bytes, handle);
    require_pointer(handle, "handle");
    const CommunicatorPtr communicator = find(comm);
    *handle = nullptr;
    if (communicator->real() == nullptr) return kSuccess;
    return RealLibrary::find()->CommRegister(communicator->real(), buffer, bytes, handle);
  });
}

int ncclCommDeregister(Handle comm, void* handle) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(CommDeregister, comm, handle);
    const CommunicatorPtr communicator = find(comm);
    if (communicator->real() == nullptr) return kSuccess;
    return RealLibrary::find()->CommDeregister(communicator->real(), handle);
  });
}

int ncclMemAlloc(void** memory, std::size_t bytes) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(MemAlloc, memory, bytes);
    require_pointer(memory, "ptr");
    if (RealLibrary::find() != nullptr) return RealLibrary::find()->MemAlloc(memory, bytes);
    const kernels::Result<void*> made = platform().device_calls().allocate(bytes);
    require(made.status(), kDeviceError);
    *memory = made.value();
    return kSuccess;
  });
}

int ncclMemFree(void* memory) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(MemFree, memory);
    if (RealLibrary::find() != nullptr) return RealLibrary::find()->MemFree(memory);
    if (memory != nullptr) platform().device_calls().release(memory);
    return kSuccess;
  });
}

int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Handle comm) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(RedOpCreatePreMulSum, op, scalar, type, residence, comm);
    return library_with_operations(comm).RedOpCreatePreMulSum(op, scalar, type, residence, comm);
  });
}

int ncclRedOpDestroy(int op, Handle comm) {
  return guarded(__func__, [&]() -> int {
    ARLAB_PASS_INSIDE(RedOpDestroy, op, comm);
    return library_with_operations(comm).RedOpDestroy(op, comm);
  });
}

}  // extern "C"
