// Stands where NCCL would: notes what is called, and leaves a mark in what a collective puts out.

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/nccl/nccl_prototypes.h"

struct ncclComm {
  int ranks;
  int rank;
};

namespace {

std::mutex mutex;
std::map<std::string, int>& calls() {
  static std::map<std::string, int> all;
  return all;
}
ncclResult_t note(const char* name) {
  const std::lock_guard lock(mutex);
  ++calls()[name];
  return ncclSuccess;
}
ncclResult_t mark(const char* name, void* recv) {
  std::memset(recv, 0x5A, 1);
  return note(name);
}

}  // namespace

extern "C" {

/// How often a function has been called in this process.
int fake_calls(const char* name) {
  const std::lock_guard lock(mutex);
  return calls()[name];
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 20001;
  return note(__func__);
}
const char* ncclGetErrorString(ncclResult_t) { return "an error of the fake"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return note(__func__);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  ncclUniqueId mine;
  std::memset(&mine, 7, sizeof(mine));
  if (std::memcmp(&mine, &id, sizeof(id)) != 0) return ncclInvalidArgument;
  *comm = new ncclComm{ranks, rank};
  return note(__func__);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return note(__func__);
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return note(__func__);
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return note(__func__);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return note(__func__);
}
ncclResult_t ncclGroupStart() { return note(__func__); }
ncclResult_t ncclGroupEnd() { return note(__func__); }
ncclResult_t ncclAllReduce(const void*, void* recv, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           ncclStream_t) {
  // As the real one may: by a public name, which must come back to it.
  int version = 0;
  ncclUniqueId id = {};
  (void)ncclGroupStart();
  (void)ncclGetVersion(&version);
  (void)ncclGetUniqueId(&id);
  (void)ncclGroupEnd();
  return version == 20001 && id.internal[0] == 7 ? mark(__func__, recv) : ncclInvalidUsage;
}
ncclResult_t ncclReduceScatter(const void*, void* recv, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, ncclStream_t) {
  return mark(__func__, recv);
}
ncclResult_t ncclAllGather(const void*, void* recv, size_t, ncclDataType_t, ncclComm_t,
                           ncclStream_t) {
  return mark(__func__, recv);
}
ncclResult_t ncclBroadcast(const void*, void* recv, size_t, ncclDataType_t, int, ncclComm_t,
                           ncclStream_t) {
  return mark(__func__, recv);
}
ncclResult_t ncclReduce(const void*, void* recv, size_t, ncclDataType_t, ncclRedOp_t, int,
                        ncclComm_t, ncclStream_t) {
  return mark(__func__, recv);
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, ncclStream_t) {
  return note(__func__);
}
ncclResult_t ncclRecv(void* recv, size_t, ncclDataType_t, int, ncclComm_t, ncclStream_t) {
  return mark(__func__, recv);
}
ncclResult_t ncclAlltoAll(const void*, void* recv, size_t count, ncclDataType_t, ncclComm_t comm,
                          ncclStream_t) {
  // Arguments arrive, over the stack and in registers.
  return count == 12345 && comm->ranks == 2 ? mark(__func__, recv) : ncclInvalidArgument;
}

}  // extern "C"
