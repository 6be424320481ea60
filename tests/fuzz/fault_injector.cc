// Preloaded (LD_PRELOAD) into a program that is to be tested:
//
//   FAULT_CALL=write FAULT_NUMBER=3     its third call of this kind fails, as it does on a bad day
//   FAULT_FROM=1                        and all calls of the kind after that one
//   FAULT_COUNTS=FILE                   gets a line "KIND CALLS" per kind when the program ends
//   FAULT_PROGRAM=arlab                 of this program alone, not of those that it starts
//   FORBIDDEN_CALLS=FILE                gets a line per use of the network, which fails, in every
//                                       program
//
// Calls count from the start of main() to its return: what libraries do before and after is theirs.
// The C library's calls of itself are not seen; its streams are, by fopen and fwrite.
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Kind { kMalloc, kMmap, kOpen, kWrite, kRename, kFsync, kThread, kSocket, kConnect, kAccept };
constexpr std::array kNames = {"malloc", "mmap",   "open",   "write",   "rename",
                               "fsync",  "thread", "socket", "connect", "accept"};

std::array<std::atomic<long>, kNames.size()> calls;
std::atomic<bool> is_counting{false};
int failing_kind = -1;
long failing_number = 0;
bool all_after = false;
int (*real_main)(int, char**, char**) = nullptr;

/// The next function of this name. Not by a call that takes memory: malloc is never asked for here.
template <class Function>
Function next(const char* name, Function) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Counts a call; whether it is to fail.
bool fails(Kind kind, int error) {
  if (!is_counting) return false;
  const long number = ++calls[kind];
  if (kind != failing_kind) return false;
  if (all_after ? number < failing_number : number != failing_number) return false;
  errno = error;
  return true;
}

void read_orders() {
  const char* program = getenv("FAULT_PROGRAM");
  if (program != nullptr && strcmp(program, program_invocation_short_name) != 0) return;
  if (const char* call = getenv("FAULT_CALL")) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (strcmp(kNames[i], call) == 0) failing_kind = static_cast<int>(i);
    }
  }
  if (const char* number = getenv("FAULT_NUMBER")) failing_number = atol(number);
  all_after = getenv("FAULT_FROM") != nullptr;
  is_counting = true;
}

void write_counts() {
  is_counting = false;
  const char* path = getenv("FAULT_COUNTS");
  if (path == nullptr) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    dprintf(file, "%s %ld\n", kNames[i], calls[i].load());
  }
  close(file);
}

int counted_main(int argc, char** argv, char** environment) {
  read_orders();
  const bool ours = is_counting;
  const int code = real_main(argc, argv, environment);
  if (ours) write_counts();
  return code;
}

/// Notes a use of the network; whether that is forbidden.
bool is_forbidden(const char* what, int family) {
  const char* path = getenv("FORBIDDEN_CALLS");
  if (path == nullptr) return false;
  const int file = next("open", open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  dprintf(file, "%s of family %d by %s\n", what, family, program_invocation_short_name);
  close(file);
  errno = EACCES;
  return true;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*linker_fini)(), void* stack_end) {
  real_main = main;
  const auto real = next("__libc_start_main", __libc_start_main);
  return real(counted_main, argc, argv, init, fini, linker_fini, stack_end);
}

// ---- memory

void* malloc(size_t bytes) noexcept {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return fails(kMalloc, ENOMEM) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  if (fails(kMalloc, ENOMEM)) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t at) noexcept {
  if (fails(kMmap, ENOMEM)) return MAP_FAILED;
  return next("mmap", mmap)(address, bytes, protection, flags, file, at);
}

// ---- files

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : mode_t{0};
  va_end(more);
  return fails(kOpen, EMFILE) ? -1 : next("open", open)(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : mode_t{0};
  va_end(more);
  return fails(kOpen, EMFILE) ? -1 : next("open", open)(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return fails(kOpen, EMFILE) ? nullptr : next("fopen", fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return fails(kOpen, EMFILE) ? nullptr : next("fopen", fopen)(path, mode);
}
ssize_t write(int file, const void* bytes, size_t count) {
  return fails(kWrite, ENOSPC) ? -1 : next("write", write)(file, bytes, count);
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* stream) {
  if (stream != stderr && fails(kWrite, ENOSPC)) {
    constexpr int kErrorSeen = 0x20;  // flag that ferror() reads
    stream->_flags |= kErrorSeen;
    return 0;
  }
  return next("fwrite", fwrite)(bytes, size, count, stream);
}
int rename(const char* from, const char* to) noexcept {
  return fails(kRename, EACCES) ? -1 : next("rename", rename)(from, to);
}
int fsync(int file) { return fails(kFsync, EIO) ? -1 : next("fsync", fsync)(file); }
int fdatasync(int file) { return fails(kFsync, EIO) ? -1 : next("fdatasync", fdatasync)(file); }

// ---- threads and sockets

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  if (fails(kThread, EAGAIN)) return EAGAIN;
  return next("pthread_create", pthread_create)(thread, attributes, start, argument);
}
int socket(int family, int type, int protocol) noexcept {
  if (family != AF_UNIX && is_forbidden("socket", family)) return -1;
  return fails(kSocket, EMFILE) ? -1 : next("socket", socket)(family, type, protocol);
}
int connect(int socket, const struct sockaddr* address, socklen_t bytes) {
  return fails(kConnect, ECONNREFUSED) ? -1 : next("connect", connect)(socket, address, bytes);
}
int accept4(int socket, struct sockaddr* address, socklen_t* bytes, int flags) {
  return fails(kAccept, EMFILE) ? -1 : next("accept4", accept4)(socket, address, bytes, flags);
}
int accept(int socket, struct sockaddr* address, socklen_t* bytes) {
  return fails(kAccept, EMFILE) ? -1 : next("accept", accept)(socket, address, bytes);
}
int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints,
                struct addrinfo** result) {
  if (is_forbidden("getaddrinfo", hints == nullptr ? AF_UNSPEC : hints->ai_family)) return EAI_FAIL;
  return next("getaddrinfo", getaddrinfo)(node, service, hints, result);
}
}
