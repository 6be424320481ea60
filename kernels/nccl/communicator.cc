#include "kernels/nccl/communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "reference/error.h"

namespace arlab::nccl {

using kernels::Bootstrap;
using kernels::CallTable;
using kernels::CommunicatorOptions;
using kernels::Platform;
using kernels::RankCommunicator;
using kernels::Result;
using kernels::Status;
using kernels::TableRule;

/// The first message of ranks to each other.
struct Hello {
  kernels::RandomToken secret;
  kernels::RandomToken process;  // numbers of processes are the same in several containers
  std::uint64_t table;
  std::int32_t device;
  std::int32_t has_library;
  kernels::MessageText<104> place;
  kernels::MessageText<512> error;
};

namespace {

template <class T>
T& value_of(Result<T>& result, Code code) {
  require(result.status(), code);
  return result.value();
}

std::string_view variable(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

/// An integer from 1 to `most`, or `usual` where it is not set.
int number_in(const char* name, int usual, int most) {
  const std::string_view text = variable(name);
  if (text.empty()) return usual;
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 1 || value > most) {
    throw Failure(kInvalidArgument, fmt::format("{}={}: allowed is an integer from 1 to {}", name,
                                                quote(text), most));
  }
  return value;
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::uint64_t boot() { return hash_of(kernels::boot_id()); }

kernels::RandomToken random_token() {
  auto token = kernels::random_token();
  return value_of(token, kSystemError);
}

// ---------------------------------------------------------------- where ranks meet

/// Contents of an ncclUniqueId of ours.
struct Id {
  std::array<char, 8> magic;
  std::uint64_t boot;           // the maker's host's
  kernels::RandomToken name;    // the socket's
  kernels::RandomToken secret;  // which ranks show each other there
};
constexpr std::array<char, 8> kMagic = {'a', 'r', 'l', 'a', 'b', 0, 0, 1};

UniqueId make_own_id() {
  const Id id = {kMagic, boot(), random_token(), random_token()};
  UniqueId made = {};
  std::memcpy(made.bytes, &id, sizeof(id));
  return made;
}

std::optional<Id> read_id(const UniqueId& unique) {
  Id id;
  std::memcpy(&id, unique.bytes, sizeof(id));
  if (id.magic != kMagic) return std::nullopt;
  return id;
}

/// Another one after a fork.
kernels::RandomToken this_process() {
  static std::mutex mutex;
  static pid_t process = 0;
  static kernels::RandomToken token;
  const std::lock_guard lock(mutex);
  if (std::exchange(process, getpid()) != getpid()) token = random_token();
  return token;
}

template <class Message>
std::vector<Message> exchange(Bootstrap& bootstrap, const Message& mine) {
  auto messages = kernels::gather_messages(bootstrap, mine);
  return std::move(value_of(messages, kRemoteError));
}

/// Common state of ranks of one process.
struct Shared {
  std::shared_ptr<LocalTeam> team;
  std::vector<int> devices;
  std::mutex mutex;
  std::map<std::pair<int, int>, std::shared_ptr<LocalTeam>> pairs;
};

/// By the name of the communicator: rank 0 makes it.
std::mutex shared_mutex;
std::map<std::string, std::weak_ptr<Shared>>& all_shared() {
  static auto& all = *new std::map<std::string, std::weak_ptr<Shared>>;
  return all;
}

CommunicatorOptions options_of(std::chrono::milliseconds timeout, int blocks) {
  return {.blocks = blocks,
          .timeout_nanoseconds = static_cast<std::uint64_t>(timeout.count()) * 1'000'000};
}

/// The kernels' limit.
constexpr int kMostRanks = 8;

/// Blocks of a team for send and recv: there may be one for each other rank.
constexpr int kPairBlocks = 16;

std::size_t checked_bytes(const Call& call, int ranks) {
  if (call.count > (std::size_t{1} << 40)) {
    throw Failure(kInvalidArgument, fmt::format("{} elements: allowed are up to 2^40", call.count));
  }
  const bool has_slots = call.kind == Kind::reduce_scatter || call.kind == Kind::all_gather;
  return call.count * element_bytes(call.type) * (has_slots ? static_cast<std::size_t>(ranks) : 1);
}

bool adds(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce;
}
bool is_pairwise(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

const Platform& find_platform() {
  std::string name(variable("ARLAB_NCCL_PLATFORM"));
  if (name.empty()) name = kernels::usual_platform().name();
  Result<const Platform*> found = kernels::find_platform(name);
  if (!found.ok()) {
    throw Failure(kInvalidArgument, "ARLAB_NCCL_PLATFORM: " + found.status().message());
  }
  RealLibrary::set_name(name == "cuda"   ? "libnccl.so.2"
                        : name == "rocm" ? "librccl.so.1"
                                         : nullptr);
  RealLibrary::require_named();
  return *found.value();
}

}  // namespace

const Platform& platform() {
  static const Platform& found = find_platform();
  return found;
}

UniqueId make_unique_id() {
  (void)platform();
  constexpr int kMost = 1 << 20;
  const bool elsewhere =
      number_in("LOCAL_WORLD_SIZE", kMost, kMost) < number_in("WORLD_SIZE", 1, kMost) ||
      number_in("OMPI_COMM_WORLD_LOCAL_SIZE", kMost, kMost) <
          number_in("OMPI_COMM_WORLD_SIZE", 1, kMost);
  if (elsewhere) {
    const RealLibrary* const library = RealLibrary::find();
    if (library == nullptr) {
      throw Failure(kInvalidUsage,
                    "the launcher has ranks on several hosts (LOCAL_WORLD_SIZE, "
                    "OMPI_COMM_WORLD_LOCAL_SIZE), which need the real "
                    "library: " +
                        RealLibrary::missing());
    }
    UniqueId id = {};
    library->GetUniqueId.checked(&id);
    return id;
  }
  return make_own_id();
}

// ---------------------------------------------------------------- making one

struct Communicator::Meeting {
  std::vector<Hello> hellos;
  bool one_process = false;   // all ranks are in one
  bool own_processes = true;  // each rank has one
};

Communicator::Communicator(Handle real, int device)
    : rank_(0),
      ranks_(1),
      device_(device),
      platform_(platform()),
      calls_(platform_.device_calls()),
      real_(real) {
  const RealLibrary& library = *RealLibrary::find();
  library.CommCount.checked(real, &ranks_);
  library.CommUserRank.checked(real, &rank_);
}

Communicator::Communicator(int ranks, const UniqueId& id, int rank, int device, void* config)
    : rank_(rank),
      ranks_(ranks),
      device_(device),
      platform_(platform()),
      calls_(platform_.device_calls()) {
  require(kernels::check_rank(rank, ranks), kInvalidArgument);
  const std::string_view debug = variable("ARLAB_NCCL_DEBUG");
  says_counts_ = !debug.empty() && debug != "0";
  if (read_id(id)) {
    meet(id, config);
  } else if (RealLibrary::find() != nullptr) {
    open_real(id, config);
  } else {
    throw Failure(
        kInvalidArgument,
        "the unique id is not of arlab's ncclGetUniqueId, and there is no other library: " +
            RealLibrary::missing());
  }
  const std::string folder(variable("ARLAB_NCCL_RECORD"));
  if (!folder.empty()) {
    // All ranks have the same id, and no other communicator has it.
    const std::string name =
        !name_.empty() ? name_.substr(0, 8)
                       : fmt::format("library-{:016x}", hash_of({id.bytes, sizeof(id.bytes)}));
    recorder_ = std::make_unique<Recorder>(folder, name, rank_, ranks_);
  }
}

void Communicator::meet(const UniqueId& unique, void* config) {
  const Id id = *read_id(unique);
  name_ = kernels::hex(id.name);
  if (id.boot != boot()) {
    throw Failure(kInvalidUsage,
                  fmt::format("rank {} is on another host than who made the unique id: arlab's "
                              "ranks are on one",
                              rank_));
  }
  Hello hello = {.secret = id.secret,
                 .process = this_process(),
                 .table = 0,
                 .device = device_,
                 .has_library = RealLibrary::find() != nullptr,
                 .place = {},
                 .error = {}};
  // A fault that this rank finds is its own error at once, of which it tells those who are there already.
  std::optional<Failure> wrong;
  timeout_ = std::chrono::seconds(5);
  try {
    constexpr int kDay = 86400;
    const int seconds = number_in("ARLAB_NCCL_TIMEOUT_S", 600, kDay);
    table_ = CallTable::from_environment();
    hello.table = hash_of(to_toml(table_));
    Result<std::string> place = calls_.place(device_);
    hello.place = value_of(place, kDeviceError);
    timeout_ = std::chrono::seconds(seconds);
  } catch (const InvalidInput& input) {
    wrong.emplace(kInvalidArgument, input.what());
  } catch (const Failure& failure) {
    wrong = failure;
  }
  if (wrong) hello.error = wrong->what();

  Meeting meeting;
  try {
    Result<std::string> folder = kernels::meeting_folder();
    auto bootstrap =
        kernels::socket_bootstrap(rank_, ranks_, value_of(folder, kSystemError), "nccl-" + name_,
                                  static_cast<std::uint64_t>(timeout_.count()));
    bootstrap_ = std::move(value_of(bootstrap, kRemoteError));
    meeting.hellos = exchange(*bootstrap_, hello);
  } catch (const Failure&) {
    if (wrong) throw *wrong;
    throw;
  }
  if (wrong) throw *wrong;

  const Hello& first = meeting.hellos[0];
  bool all_have_library = true;
  bool share = false;
  for (std::size_t rank = 0; rank < meeting.hellos.size(); ++rank) {
    const Hello& other = meeting.hellos[rank];
    if (other.secret != id.secret) {
      throw Failure(kInvalidArgument,
                    fmt::format("rank {} has another unique id than rank {}", rank, rank_));
    }
    if (const std::string error = other.error.string(); !error.empty()) {
      throw Failure(kInvalidArgument, fmt::format("rank {}: {}", rank, error));
    }
    if (other.table != first.table) {
      throw Failure(kInvalidArgument, fmt::format("rank {} has another table than rank 0", rank));
    }
    all_have_library = all_have_library && other.has_library != 0;
    for (std::size_t before = 0; before < rank; ++before) {
      share = share || meeting.hellos[before].place.string() == other.place.string();
      meeting.own_processes =
          meeting.own_processes && meeting.hellos[before].process != other.process;
    }
  }
  meeting.one_process = std::ranges::all_of(
      meeting.hellos, [&](const Hello& hello) { return hello.process == first.process; });

  if (all_have_library && !share) {
    struct {
      UniqueId id;
      int code;
    } mine = {};
    if (rank_ == 0) mine.code = RealLibrary::find()->GetUniqueId(&mine.id);
    const auto theirs = exchange(*bootstrap_, mine).front();
    require("ncclGetUniqueId", theirs.code);
    open_real(theirs.id, config);
  }
  why_no_team_ = share ? "ranks share a device, which the real library refuses"
                 : !all_have_library
                     ? "not all ranks have the real library: " + RealLibrary::missing()
                     : "the real library makes all calls";
  const bool has_rules = std::ranges::any_of(
      table_.rules(), [](const TableRule& rule) { return rule.algorithm != kernels::kByLibrary; });
  if (ranks_ > 1 && (has_rules || real_ == nullptr)) make_team(meeting);
  if (says_counts_ && rank_ == 0) {
    fmt::print(stderr, "arlab: {} ranks on platform {}, {} rules, {}\n", ranks_, platform_.name(),
               table_.rules().size(),
               real_ != nullptr ? "all other calls by the real library" : why_no_team_);
  }
}

void Communicator::open_real(const UniqueId& id, void* config) {
  const RealLibrary& library = *RealLibrary::find();
  int code = config == nullptr ? library.CommInitRank(&real_, ranks_, id, rank_)
                               : library.CommInitRankConfig(&real_, ranks_, id, rank_, config);
  // One that does not block is waited for: what ranks do next needs it.
  while (code == kInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    library.CommGetAsyncError.checked(real_, &code);
  }
  require("ncclCommInitRank", code);
}

void Communicator::make_team(const Meeting& meeting) {
  const auto count = static_cast<std::size_t>(ranks_);
  const bool is_mixed = !meeting.one_process && !meeting.own_processes;
  if (ranks_ > kMostRanks || is_mixed) {
    const std::string what =
        is_mixed ? "some ranks share a process and some do not"
                 : fmt::format("{} ranks: arlab's communicators have 2 to {}", ranks_, kMostRanks);
    if (real_ == nullptr) throw Failure(kInvalidUsage, what + "; " + why_no_team_);
    why_no_team_ = what;
    return;
  }
  const CommunicatorOptions options = options_of(timeout_, 0);
  if (meeting.own_processes) {
    auto rank = platform_.create_communicator(device_, *bootstrap_, options);
    team_ = member_of_process(calls_, std::move(value_of(rank, kRemoteError)));
    return;
  }
  std::shared_ptr<Shared> shared;
  std::string said;
  if (rank_ == 0) {
    shared = std::make_shared<Shared>();
    for (const Hello& hello : meeting.hellos) shared->devices.push_back(hello.device);
    auto ranks = platform_.make_communicators(shared->devices, options);
    if (ranks.ok()) {
      shared->team = std::make_shared<LocalTeam>(calls_, std::move(ranks.value()), timeout_);
      const std::lock_guard lock(shared_mutex);
      all_shared()[name_] = shared;
    } else {
      said = ranks.status().message();
    }
  }
  auto parts = bootstrap_->all_gather(said);
  said = value_of(parts, kRemoteError)[0];
  if (!said.empty()) throw Failure(kDeviceError, kernels::readable(said));
  if (rank_ != 0) {
    const std::lock_guard lock(shared_mutex);
    shared = all_shared()[name_].lock();
  }
  require(bootstrap_->barrier(), kRemoteError);  // before rank 0 may let go of it
  if (rank_ == 0) {
    const std::lock_guard lock(shared_mutex);
    all_shared().erase(name_);
  }
  if (shared == nullptr || shared->devices.size() != count) {
    throw Failure(kInternalError, "rank 0 made no team");
  }
  team_ = LocalTeam::member(shared->team, rank_);
  shared_ = std::move(shared);
}

Member& Communicator::pair_with(int peer) {
  const auto found = pairs_.find(peer);
  if (found != pairs_.end()) return *found->second;
  const auto [low, high] = std::minmax(rank_, peer);
  const int place = rank_ == low ? 0 : 1;
  const CommunicatorOptions options = options_of(timeout_, kPairBlocks);
  std::unique_ptr<Member> member;
  if (shared_ == nullptr) {
    Result<std::string> folder = kernels::meeting_folder();
    auto bootstrap = kernels::socket_bootstrap(place, 2, value_of(folder, kSystemError),
                                               fmt::format("nccl-{}-{}-{}", name_, low, high),
                                               static_cast<std::uint64_t>(timeout_.count()));
    auto rank = platform_.create_communicator(device_, *value_of(bootstrap, kRemoteError), options);
    member = member_of_process(calls_, std::move(value_of(rank, kRemoteError)));
  } else {
    auto& shared = *static_cast<Shared*>(shared_.get());
    const std::lock_guard lock(shared.mutex);
    std::shared_ptr<LocalTeam>& pair = shared.pairs[{low, high}];
    if (pair == nullptr) {
      const int devices[] = {shared.devices[static_cast<std::size_t>(low)],
                             shared.devices[static_cast<std::size_t>(high)]};
      auto ranks = platform_.make_communicators(devices, options);
      pair =
          std::make_shared<LocalTeam>(calls_, std::move(value_of(ranks, kDeviceError)), timeout_);
    }
    member = LocalTeam::member(pair, place);
  }
  const std::lock_guard lock(pairs_mutex_);
  return *pairs_.emplace(peer, std::move(member)).first->second;
}

void Communicator::say_what_was_called() {
  recorder_.reset();
  if (!std::exchange(says_counts_, false)) return;
  std::string text;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const auto& of = counts_[kind];
    if (of[0] + of[1] + of[2] == 0) continue;
    text += fmt::format("{} {} {} by rules, {} by the library, {} plain", text.empty() ? "" : ";",
                        kKindNames[kind], of[0].load(), of[1].load(), of[2].load());
  }
  fmt::print(stderr, "arlab: rank {} of {}:{}\n", rank_, ranks_, text.empty() ? " no calls" : text);
}

Communicator::~Communicator() {
  say_what_was_called();
  pairs_.clear();
  team_.reset();
  if (!scratch_.empty()) (void)calls_.use_device(device_);
  for (const auto& [stream, parts] : scratch_) {
    for (const auto& part : parts) calls_.release(part.first);
  }
}

// ---------------------------------------------------------------- who makes a call

const TableRule* Communicator::rule_of(const Call& call) const {
  constexpr Collective kCollective[] = {Collective::all_reduce, Collective::reduce_scatter,
                                        Collective::all_gather, Collective::broadcast};
  const auto kind = static_cast<std::size_t>(call.kind);
  if (team_ == nullptr || kind >= std::size(kCollective) || !has_dtype(call.type)) return nullptr;
  if (adds(call.kind) && call.op != kSum) return nullptr;
  const TableRule* const rule =
      table_.find(kCollective[kind], dtype_of(call.type), checked_bytes(call, ranks_));
  return rule != nullptr && rule->algorithm != kernels::kByLibrary ? rule : nullptr;
}

std::string Communicator::refusal(const Call& call) const {
  const std::string what =
      fmt::format("{} of type {}", kKindNames[static_cast<std::size_t>(call.kind)], call.type);
  if (element_bytes(call.type) == 0) return what + ": there is no such type";
  if (!adds(call.kind)) return {};
  if (call.op != kSum)
    return fmt::format("{} with operation {}: arlab makes sums only", what, call.op);
  if (!has_dtype(call.type)) return what + ": arlab adds up half, float and bfloat16 only";
  return {};
}

HandledBy Communicator::took(const Call& call, const TableRule* rule) const {
  if (rule == nullptr) {
    if (real_ != nullptr) return HandledBy::library;
    if (const std::string why = refusal(call); !why.empty()) {
      throw Failure(kInvalidUsage, why + "; " + why_no_team_);
    }
  }
  const bool has_root =
      is_pairwise(call.kind) || call.kind == Kind::broadcast || call.kind == Kind::reduce;
  if (has_root && (call.root < 0 || call.root >= ranks_)) {
    throw Failure(kInvalidArgument,
                  fmt::format("rank {}: allowed are 0 to {}", call.root, ranks_ - 1));
  }
  const bool sends =
      call.kind != Kind::recv && (call.kind != Kind::broadcast || call.root == rank_);
  const bool receives =
      call.kind != Kind::send && (call.kind != Kind::reduce || call.root == rank_);
  if (call.count != 0 && ((sends && call.send == nullptr) || (receives && call.recv == nullptr))) {
    throw Failure(kInvalidArgument, fmt::format("{}: a buffer is null",
                                                kKindNames[static_cast<std::size_t>(call.kind)]));
  }
  return rule != nullptr ? HandledBy::rule : HandledBy::plain;
}

// ---------------------------------------------------------------- calls

void* Communicator::scratch(void* stream, std::size_t bytes) {
  // Enqueued or captured calls may use the smaller ones still.
  auto& parts = scratch_[stream];
  if (parts.empty() || parts.back().second < bytes) {
    constexpr std::size_t kLeast = std::size_t{1} << 16;
    const std::size_t size = std::max({bytes, kLeast, parts.empty() ? 0 : 2 * parts.back().second});
    require(calls_.use_device(device_), kDeviceError);
    Result<void*> memory = calls_.allocate(size);
    parts.emplace_back(value_of(memory, kDeviceError), size);
  }
  return parts.back().first;
}

void Communicator::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0 || to == from) return;
  require(calls_.use_device(device_), kDeviceError);
  require(calls_.copy(to, from, bytes, stream), kDeviceError);
  if (!calls_.is_emulated()) return;
  Result<bool> captured = calls_.is_captured(stream);
  if (!value_of(captured, kDeviceError)) require(calls_.wait(stream), kDeviceError);
}

Work Communicator::work_of(const Call& call, const TableRule* rule) {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const auto rank = static_cast<std::size_t>(rank_);
  const std::size_t bytes = call.count * element_bytes(call.type);
  const bool is_pair = is_pairwise(call.kind);
  const bool has_slots = call.kind == Kind::reduce_scatter || call.kind == Kind::all_gather;
  const std::size_t slots = has_slots ? ranks : 1;

  // Data that only move may be anything: words of 4 bytes or of 2, where they are of none of our dtypes.
  DType dtype = DType::fp32;
  std::size_t slot = bytes;
  if (has_dtype(call.type)) {
    dtype = dtype_of(call.type);
  } else if (element_bytes(call.type) == 1) {
    dtype = DType::fp16;
    slot = (bytes + 1) / 2 * 2;
  }
  const auto places =
      reinterpret_cast<std::uintptr_t>(call.send) | reinterpret_cast<std::uintptr_t>(call.recv);
  const bool is_staged = slot != bytes || places % size_of(dtype) != 0;

  Work work;
  work.stream = call.stream;
  work.request.dtype = dtype;
  work.request.elements = slots * slot / size_of(dtype);
  work.request.codec = rule == nullptr || rule->codec.empty() ? name_of(dtype) : rule->codec;
  if (rule != nullptr) work.request.options = rule->options;
  const auto take = [&](Collective usual) {
    work.request.algorithm = rule != nullptr ? rule->algorithm : kernels::usual_algorithm(usual);
  };
  auto* const recv = static_cast<std::byte*>(call.recv);
  const auto staging = [&] {
    return static_cast<std::byte*>(scratch(call.stream, std::max<std::size_t>(slots * slot, 1)));
  };
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      take(Collective::all_reduce);
      work.input = call.send;
      work.output = call.kind == Kind::reduce && call.root != rank_ ? staging() : recv;
      break;
    case Kind::reduce_scatter: {
      // Slots of other ranks are left as they are in the output, which so is the input, or all of another tensor.
      take(Collective::reduce_scatter);
      work.input = call.send;
      if (recv == static_cast<const std::byte*>(call.send) + rank * bytes) {
        work.output = const_cast<void*>(call.send);
      } else {
        work.output = staging();
        const std::byte* const sum = static_cast<std::byte*>(work.output) + rank * bytes;
        work.behind = {{recv, sum, bytes}};
      }
      break;
    }
    case Kind::all_gather: {
      take(Collective::all_gather);
      std::byte* const all = is_staged ? staging() : recv;
      work.input = work.output = all;
      if (all + rank * slot != call.send) work.before = {{all + rank * slot, call.send, bytes}};
      for (std::size_t from = 0; is_staged && from < ranks; ++from) {
        work.behind.push_back({recv + from * bytes, all + from * slot, bytes});
      }
      break;
    }
    case Kind::broadcast:
    case Kind::send:
    case Kind::recv: {
      take(Collective::broadcast);
      const bool is_root = is_pair ? call.kind == Kind::send : call.root == rank_;
      const int place = rank_ < call.root ? 0 : 1;  // in a pair
      work.request.root = !is_pair ? call.root : is_root ? place : 1 - place;
      work.input = is_root ? call.send : recv;
      work.output = recv;
      // Who sends to one other has no output.
      if (is_staged || call.kind == Kind::send) work.output = staging();
      if (is_staged) {
        work.input = work.output;
        if (is_root) work.before = {{work.output, call.send, bytes}};
        if (recv != nullptr) work.behind = {{recv, work.output, bytes}};
      }
      break;
    }
  }
  return work;
}

std::string Communicator::sample(const Call& call) {
  try {
    return sample_or_throw(call);
  } catch (const std::exception& why) {  // which is no reason not to make the call
    recorder_->stop(why);
    return {};
  }
}

std::string Communicator::sample_or_throw(const Call& call) {
  if (call.kind != Kind::all_reduce || !has_dtype(call.type)) return {};
  require(calls_.use_device(device_), kDeviceError);
  Result<bool> captured = calls_.is_captured(call.stream);
  if (value_of(captured, kDeviceError)) return {};
  const DType dtype = dtype_of(call.type);
  const std::size_t elements = recorder_->sampled(dtype, call.count);
  if (elements == 0) return {};
  std::string payload(elements * size_of(dtype), '\0');
  require(calls_.copy(payload.data(), call.send, payload.size(), call.stream), kDeviceError);
  require(calls_.wait(call.stream), kDeviceError);
  return recorder_->keep(dtype, payload, started_.size());
}

void Communicator::start(std::span<const Call> calls) {
  std::vector<Call> pairwise;
  for (const Call& call : calls) {
    if (is_pairwise(call.kind) && real_ == nullptr) {
      pairwise.push_back(call);
    } else {
      start_one(call);
    }
  }
  if (!pairwise.empty()) start_pairs(std::move(pairwise));
}

void Communicator::start_one(const Call& call) {
  const TableRule* const rule = rule_of(call);
  const HandledBy by = took(call, rule);
  Started started = {.call = call, .took = by};
  if (recorder_ != nullptr) {
    started.begin = std::chrono::steady_clock::now();
    started.payload = sample(call);
  }
  if (by == HandledBy::library) {
    by_library(call);
  } else if (call.count != 0 && ranks_ == 1) {
    const std::size_t bytes = call.count * element_bytes(call.type);
    copy(call.recv, call.send, bytes, call.stream);
  } else if (call.count != 0) {
    team_->start(work_of(call, rule));
    started.member = team_.get();
  }
  started_.push_back(std::move(started));
}

void Communicator::start_pairs(std::vector<Call> calls) {
  // Both ranks of a pair come to it in the same order, whatever else they have to do: by pairs, of which the one that is least
  // has both its ranks waiting; from the lower rank to the higher first; and each way as they are called.
  const auto key = [&](const Call& call) {
    const auto [low, high] = std::minmax(rank_, call.root);
    return std::tuple(low, high, (call.kind == Kind::send) != (rank_ == low));
  };
  std::ranges::stable_sort(calls, {}, key);
  std::vector<Call> to_itself;
  for (const Call& call : calls) {
    Started started = {.call = call, .took = took(call, nullptr)};
    if (recorder_ != nullptr) started.begin = std::chrono::steady_clock::now();
    if (call.root == rank_) {
      to_itself.push_back(call);
    } else if (call.count != 0) {
      Member& pair = pair_with(call.root);
      pair.start(work_of(call, nullptr));
      started.member = &pair;
    }
    started_.push_back(std::move(started));
  }
  // Sends come before recvs here.
  const std::size_t sends = to_itself.size() / 2;
  for (std::size_t i = 0; i < to_itself.size(); ++i) {
    const bool is_send = to_itself[i].kind == Kind::send;
    if (is_send != (i < sends) || to_itself.size() % 2 != 0) {
      throw Failure(kInvalidUsage,
                    fmt::format("rank {} does not send to itself what it receives", rank_));
    }
    if (!is_send) continue;
    const Call& send = to_itself[i];
    const Call& recv = to_itself[i + sends];
    if (send.count * element_bytes(send.type) != recv.count * element_bytes(recv.type)) {
      throw Failure(kInvalidUsage, fmt::format("rank {} sends itself {} elements and receives {}",
                                               rank_, send.count, recv.count));
    }
    copy(recv.recv, send.send, send.count * element_bytes(send.type), recv.stream);
  }
}

void Communicator::finish() {
  std::optional<Failure> failure;
  for (Started& each : started_) {
    try {
      if (each.member != nullptr) each.member->wait();
    } catch (const Failure& why) {
      if (!failure) failure = why;
      continue;
    }
    ++counts_[static_cast<std::size_t>(each.call.kind)][static_cast<std::size_t>(each.took)];
    if (recorder_ == nullptr) continue;
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - each.begin;
    recorder_->add({.collective = kKindNames[static_cast<std::size_t>(each.call.kind)],
                    .type = each.call.type,
                    .elements = each.call.count,
                    .bytes = checked_bytes(each.call, ranks_),
                    .took = kHandledByNames[static_cast<std::size_t>(each.took)],
                    .host_us = time.count(),
                    .payload = std::move(each.payload)});
  }
  started_.clear();
  if (failure) throw *failure;
}

void Communicator::by_library(const Call& call) {
  const RealLibrary& library = *RealLibrary::find();
  const auto& [kind, send, recv, count, type, op, root, stream] = call;
  switch (kind) {
    case Kind::all_reduce:
      library.AllReduce.checked(send, recv, count, type, op, real_, stream);
      break;
    case Kind::reduce_scatter:
      library.ReduceScatter.checked(send, recv, count, type, op, real_, stream);
      break;
    case Kind::all_gather:
      library.AllGather.checked(send, recv, count, type, real_, stream);
      break;
    case Kind::broadcast:
      library.Broadcast.checked(send, recv, count, type, root, real_, stream);
      break;
    case Kind::reduce:
      library.Reduce.checked(send, recv, count, type, op, root, real_, stream);
      break;
    case Kind::send:
      library.Send.checked(send, count, type, root, real_, stream);
      break;
    case Kind::recv:
      library.Recv.checked(recv, count, type, root, real_, stream);
      break;
  }
}

// ---------------------------------------------------------------- the rest

std::shared_ptr<Communicator> Communicator::split(int color, int key, void* config) {
  if (bootstrap_ == nullptr) {
    Handle made = nullptr;
    RealLibrary::find()->CommSplit.checked(real_, color, key, &made, config);
    return made == nullptr ? nullptr : std::make_shared<Communicator>(made, device_);
  }
  struct Message {
    std::int32_t color;
    std::int32_t key;
    UniqueId id;
  };
  std::unique_lock lock(split_mutex_);
  const auto all = exchange(*bootstrap_, Message{color, key, make_own_id()});
  lock.unlock();
  if (color < 0) return nullptr;
  std::vector<int> together;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (all[static_cast<std::size_t>(rank)].color == color) together.push_back(rank);
  }
  std::ranges::stable_sort(together, {},
                           [&](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  const auto place = std::ranges::find(together, rank_) - together.begin();
  return std::make_shared<Communicator>(static_cast<int>(together.size()),
                                        all[static_cast<std::size_t>(together[0])].id,
                                        static_cast<int>(place), device_, config);
}

void Communicator::check() {
  if (team_ != nullptr) team_->check();
  const std::lock_guard lock(pairs_mutex_);
  for (const auto& pair : pairs_) pair.second->check();
}

void Communicator::give_up() {
  if (team_ != nullptr) team_->give_up();
  const std::lock_guard lock(pairs_mutex_);
  for (const auto& pair : pairs_) pair.second->give_up();
}

}  // namespace arlab::nccl
