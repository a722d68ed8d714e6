#include "plugins/nccl/testing/fake_nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

namespace cotune::nccl {

// Ranks that make a communicator together.
struct FakeMeeting {
  int expected = 0;
  std::set<int> arrived;
  std::set<int> finalized;
  std::map<int, int> splits;  // of each rank, so far
  std::map<int, std::shared_ptr<FakeMeeting>> children;
};

struct NcclCommOpaque {
  int rank = 0;
  int ranks = 0;
  bool is_blocking = true;
  bool is_freed = false;
  bool is_stopped = false;
  bool never_ready = false;
  bool is_finalized = false;
  bool is_revoked = false;
  bool is_captured = false;
  std::shared_ptr<FakeMeeting> own;
  std::shared_ptr<FakeMeeting> pending;  // what this one waits for
  NcclComm* child_place = nullptr;       // where the split's result goes
  NcclComm child = nullptr;
  NcclResult failure = kNcclSuccess;
  std::map<uintptr_t, size_t> windows;
};

namespace {

// Never freed, so that a use after free is seen.
struct Library {
  FakeNcclState state;
  std::vector<std::unique_ptr<NcclCommOpaque>> communicators;
  std::map<std::string, std::shared_ptr<FakeMeeting>> meetings;
  int ids = 0;
  bool has_looked_for_tuner = false;
  const TunerV5* v5 = nullptr;
  const TunerV4* v4 = nullptr;
  const TunerV3* v3 = nullptr;
};

Library& Fake() {
  static auto* library = new Library;
  return *library;
}

// As in fake_cuda.cc.
thread_local int group_depth __attribute__((tls_model("initial-exec"))) = 0;

using Lock = std::unique_lock<std::mutex>;

int Version() {
  const char* text = getenv("FAKE_NCCL_VERSION");
  return text == nullptr ? Fake().state.version : atoi(text);
}

bool IsUsable(NcclComm comm, const char* call) {
  if (comm != nullptr && !comm->is_freed) return true;
  Fake().state.misuse.push_back(std::string(call) +
                                (comm == nullptr ? " of null" : " of a freed communicator"));
  return false;
}

void LookForTuner() {
  Library& fake = Fake();
  if (fake.has_looked_for_tuner) return;
  fake.has_looked_for_tuner = true;
  fake.v5 = fake.state.static_tuner;
  if (fake.v5 != nullptr) return;
  const char* path = getenv("NCCL_TUNER_PLUGIN");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto find = [&](const char* symbol) {
    void* found = dlsym(library, symbol);
    if (found != nullptr) fake.state.tuner_symbol = symbol;
    return found;
  };
  const int version = Version();
  if (version >= 22800) fake.v5 = static_cast<const TunerV5*>(find("ncclTunerPlugin_v5"));
  if (version >= 22400 && fake.v5 == nullptr) {
    fake.v4 = static_cast<const TunerV4*>(find("ncclTunerPlugin_v4"));
  }
  if (version >= 22200 && fake.v5 == nullptr && fake.v4 == nullptr) {
    fake.v3 = static_cast<const TunerV3*>(find("ncclTunerPlugin_v3"));
  }
}

void Logger(int, unsigned long, const char*, int, const char*, ...) {}

void InitTuner(const NcclCommOpaque& comm) {
  void* context = nullptr;
  const auto ranks = static_cast<size_t>(comm.ranks);
  const Library& fake = Fake();
  if (fake.v5 != nullptr) fake.v5->init(&context, 17, ranks, 1, Logger, nullptr, nullptr);
  if (fake.v4 != nullptr) fake.v4->init(ranks, 1, Logger, &context);
  if (fake.v3 != nullptr) fake.v3->init(ranks, 1, Logger, &context);
}

NcclComm NewCommunicator(int ranks, int rank, const NcclConfig& config,
                         const std::shared_ptr<FakeMeeting>& meeting) {
  Library& fake = Fake();
  if (config.size != sizeof(NcclConfig) || config.magic != 0xcafebeef ||
      config.version != static_cast<unsigned int>(Version())) {
    fake.state.misuse.push_back("a configuration that was not initialised");
  }
  fake.communicators.push_back(std::make_unique<NcclCommOpaque>());
  NcclComm comm = fake.communicators.back().get();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->is_blocking = config.blocking != 0;
  comm->own = meeting;
  ++fake.state.communicators;
  LookForTuner();
  InitTuner(*comm);
  return comm;
}

// The decision about one collective, by the table that NCCL would make.
void Decide(int collective, FakeCall& call) {
  const Library& fake = Fake();
  float table[kTunerAlgorithms][kTunerProtocols];
  for (int a = 0; a < kTunerAlgorithms; ++a) {
    for (int p = 0; p < kTunerProtocols; ++p) {
      const bool is_forbidden = (fake.state.forbidden >> (a * kTunerProtocols + p)) & 1;
      // NCCL's own pick is NVLS with Simple, then ring with LL.
      table[a][p] = is_forbidden ? -1.0f : 10.0f + static_cast<float>((a + 6) % 7 + p);
      if (a == 4 && p == 2 && !is_forbidden) table[a][p] = 1;
    }
  }
  auto* rows = reinterpret_cast<float**>(table);
  int channels = 99;
  const auto ask = [&](auto* tuner, auto... registered) {
    if (tuner == nullptr) return;
    channels = 0;
    if (tuner->get_coll_info(nullptr, collective, call.count, 1, rows, kTunerAlgorithms,
                             kTunerProtocols, registered..., &channels) != kNcclSuccess) {
      Fake().state.misuse.push_back("the tuner failed a collective");
    }
  };
  ask(fake.v5, 0);
  ask(fake.v4, 0);
  ask(fake.v3);
  const float* best = nullptr;
  for (const float& cost : reinterpret_cast<float(&)[kTunerAlgorithms * kTunerProtocols]>(table)) {
    if (cost >= 0 && (best == nullptr || cost < *best)) best = &cost;
  }
  const auto cell = static_cast<int>(best - &table[0][0]);
  call.algorithm = cell / kTunerProtocols;
  call.protocol = cell % kTunerProtocols;
  call.channels = channels;
}

bool IsRegistered(const NcclCommOpaque& comm, const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return std::any_of(comm.windows.begin(), comm.windows.end(), [&](const auto& window) {
    return window.first <= address && address < window.first + window.second;
  });
}

constexpr int kNoCollective = -1;

NcclResult Enqueue(NcclComm comm, int collective, FakeCall call) {
  Library& fake = Fake();
  Lock lock(fake.state.mutex);
  if (!IsUsable(comm, call.name.c_str())) return kNcclInvalidArgument;
  if (!comm->is_blocking) fake.state.misuse.push_back(call.name + " on a deferred communicator");
  if (fake.state.is_capturing != nullptr && *fake.state.is_capturing) comm->is_captured = true;
  call.rank = comm->rank;
  call.group_depth = group_depth;
  call.took_symmetric_kernel = collective != kNoCollective && fake.state.has_symmetric_kernels &&
                               IsRegistered(*comm, call.send) && IsRegistered(*comm, call.receive);
  if (collective != kNoCollective && !call.took_symmetric_kernel) Decide(collective, call);
  fake.state.calls.push_back(call);
  ++fake.state.calls_inside;
  fake.state.changed.notify_all();
  fake.state.changed.wait(
      lock, [&] { return !fake.state.collectives_hang || comm->is_stopped || comm->is_freed; });
  --fake.state.calls_inside;
  fake.state.changed.notify_all();
  if (comm->is_stopped || comm->is_freed) return kNcclInternalError;
  return fake.state.collective_result;
}

void EndKernels() {
  std::atomic<bool>* const kernels = Fake().state.kernels;
  if (kernels == nullptr) return;
  *kernels = false;
  kernels->notify_all();
}

bool IsInGraph(const NcclCommOpaque& comm) { return comm.is_captured && Fake().state.graphs_live; }

bool IsReady(NcclCommOpaque& comm) {
  if (comm.never_ready) return false;
  if (comm.is_finalized) {
    if (IsInGraph(comm)) return false;
    return comm.own->finalized.size() == static_cast<size_t>(comm.own->expected);
  }
  return !comm.pending ||
         comm.pending->arrived.size() == static_cast<size_t>(comm.pending->expected);
}

}  // namespace
}  // namespace cotune::nccl

using namespace cotune::nccl;  // NOLINT: the functions below are NCCL's names
using cotune::gpu::CuStream;

extern "C" {

FakeNcclState* fake_nccl_state() { return &Fake().state; }

COTUNE_EXPORT NcclResult ncclGetVersion(int* version) {
  *version = Version();
  return kNcclSuccess;
}

COTUNE_EXPORT const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "remote process exited" : "fake error";
}

COTUNE_EXPORT const char* ncclGetLastError(NcclComm) { return "last\nwords"; }

COTUNE_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const Lock lock(Fake().state.mutex);
  std::memset(id, 0, sizeof(*id));
  const std::string text = "id " + std::to_string(++Fake().ids);
  std::memcpy(id->internal, text.data(), text.size());
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id,
                                                int rank, NcclConfig* config) {
  Library& fake = Fake();
  const Lock lock(fake.state.mutex);
  auto& meeting = fake.meetings[id.internal];
  if (meeting == nullptr) meeting = std::make_shared<FakeMeeting>();
  meeting->expected = ranks;
  meeting->arrived.insert(rank);
  *comm = NewCommunicator(ranks, rank, *config, meeting);
  (*comm)->pending = meeting;
  (*comm)->never_ready = fake.state.init_hangs;
  (*comm)->failure = fake.state.init_result;
  if ((*comm)->is_blocking) fake.state.misuse.push_back("init that no deadline can end");
  return kNcclInProgress;
}

#ifndef COTUNE_FAKE_NCCL_WITHOUT_SPLIT
COTUNE_EXPORT NcclResult ncclCommSplit(NcclComm parent, int, int key, NcclComm* child,
                                       NcclConfig* config) {
  Library& fake = Fake();
  const Lock lock(fake.state.mutex);
  if (!IsUsable(parent, "ncclCommSplit")) return kNcclInvalidArgument;
  if (parent->is_blocking) fake.state.misuse.push_back("split that no deadline can end");
  const int index = parent->own->splits[parent->rank]++;
  auto& meeting = parent->own->children[index];
  if (meeting == nullptr) meeting = std::make_shared<FakeMeeting>();
  meeting->expected = parent->ranks;
  meeting->arrived.insert(key);
  parent->child = NewCommunicator(parent->ranks, key, *config, meeting);
  parent->child_place = child;
  parent->pending = meeting;
  parent->never_ready = fake.state.split_hangs;
  return kNcclInProgress;
}
#endif

COTUNE_EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  Library& fake = Fake();
  const Lock lock(fake.state.mutex);
  if (!IsUsable(comm, "ncclCommGetAsyncError")) return kNcclInvalidArgument;
  if (comm->is_blocking) {
    *error = fake.state.async_error;
    return kNcclSuccess;
  }
  *error = comm->failure;
  if (comm->failure == kNcclSuccess && !IsReady(*comm)) *error = kNcclInProgress;
  if (*error == kNcclSuccess && comm->child_place != nullptr) {
    *comm->child_place = comm->child;
    comm->child_place = nullptr;
  }
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  Library& fake = Fake();
  Lock lock(fake.state.mutex);
  if (!IsUsable(comm, "ncclCommAbort")) return kNcclInvalidArgument;
  if (comm->is_stopped && !comm->is_revoked) {
    fake.state.misuse.push_back("a second ncclCommAbort of one communicator");
  }
  // As NCCL: first kernels and calls leave, and the communicator stays until the graphs have gone,
  // unless it was revoked.
  comm->is_stopped = true;
  EndKernels();
  ++fake.state.aborts;
  fake.state.changed.notify_all();
  if (comm->is_revoked && IsInGraph(*comm)) {
    fake.state.misuse.push_back("a communicator freed while a graph reaches it");
  }
  fake.state.changed.wait(
      lock, [&] { return !fake.state.aborts_hang && (comm->is_revoked || !IsInGraph(*comm)); });
  comm->is_freed = true;
  fake.state.windows -= static_cast<int>(comm->windows.size());
  // The background work ends, and hands over what it has.
  if (comm->child_place != nullptr) *comm->child_place = comm->child;
  --fake.state.communicators;
  fake.state.changed.notify_all();
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclCommRevoke(NcclComm comm, int) {
  Library& fake = Fake();
  const Lock lock(fake.state.mutex);
  if (!IsUsable(comm, "ncclCommRevoke")) return kNcclInvalidArgument;
  comm->is_stopped = true;
  comm->is_revoked = true;
  EndKernels();
  ++fake.state.revokes;
  fake.state.changed.notify_all();
  return kNcclSuccess;
}

// Waits for all ranks of the host.
COTUNE_EXPORT NcclResult ncclCommFinalize(NcclComm comm) {
  const Lock lock(Fake().state.mutex);
  if (!IsUsable(comm, "ncclCommFinalize")) return kNcclInvalidArgument;
  if (comm->is_blocking) Fake().state.misuse.push_back("finalize that no deadline can end");
  ++Fake().state.finalizes;
  comm->is_finalized = true;
  comm->own->finalized.insert(comm->rank);
  return kNcclInProgress;
}

COTUNE_EXPORT NcclResult ncclCommDestroy(NcclComm comm) {
  Lock lock(Fake().state.mutex);
  if (!IsUsable(comm, "ncclCommDestroy")) return kNcclInvalidArgument;
  if (!comm->is_finalized) Fake().state.misuse.push_back("destroy that no deadline can end");
  Fake().state.changed.wait(lock, [&] { return !IsInGraph(*comm); });
  comm->is_freed = true;
  --Fake().state.communicators;
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclCommWindowRegister(NcclComm comm, void* pointer, size_t bytes,
                                                NcclWindow* window, int flags) {
  const Lock lock(Fake().state.mutex);
  if (!IsUsable(comm, "ncclCommWindowRegister")) return kNcclInvalidArgument;
  if (flags != kNcclWinCollSymmetric) Fake().state.misuse.push_back("a window of other flags");
  comm->windows[reinterpret_cast<uintptr_t>(pointer)] = bytes;
  ++Fake().state.windows;
  *window = static_cast<NcclWindow>(pointer);
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclCommWindowDeregister(NcclComm comm, NcclWindow window) {
  const Lock lock(Fake().state.mutex);
  if (!IsUsable(comm, "ncclCommWindowDeregister")) return kNcclInvalidArgument;
  if (IsInGraph(*comm))
    Fake().state.misuse.push_back("a window that a graph reaches is taken away");
  if (comm->windows.erase(reinterpret_cast<uintptr_t>(window)) != 1) {
    Fake().state.misuse.push_back("a window that is not registered");
  }
  --Fake().state.windows;
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclAllReduce(const void* send, void* receive, size_t count,
                                       NcclDataType type, NcclRedOp op, NcclComm comm,
                                       CuStream stream) {
  return Enqueue(comm, kTunerAllReduce,
                 {.name = "AllReduce",
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .op = op,
                  .stream = stream});
}

COTUNE_EXPORT NcclResult ncclAllGather(const void* send, void* receive, size_t count,
                                       NcclDataType type, NcclComm comm, CuStream stream) {
  return Enqueue(comm, kTunerAllGather,
                 {.name = "AllGather",
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .stream = stream});
}

COTUNE_EXPORT NcclResult ncclReduceScatter(const void* send, void* receive, size_t count,
                                           NcclDataType type, NcclRedOp op, NcclComm comm,
                                           CuStream stream) {
  return Enqueue(comm, kTunerReduceScatter,
                 {.name = "ReduceScatter",
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .op = op,
                  .stream = stream});
}

COTUNE_EXPORT NcclResult ncclBroadcast(const void* send, void* receive, size_t count,
                                       NcclDataType type, int root, NcclComm comm,
                                       CuStream stream) {
  return Enqueue(comm, kTunerBroadcast,
                 {.name = "Broadcast",
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .peer = root,
                  .stream = stream});
}

COTUNE_EXPORT NcclResult ncclSend(const void* send, size_t count, NcclDataType type, int peer,
                                  NcclComm comm, CuStream stream) {
  return Enqueue(
      comm, kNoCollective,
      {.name = "Send", .send = send, .count = count, .type = type, .peer = peer, .stream = stream});
}

COTUNE_EXPORT NcclResult ncclRecv(void* receive, size_t count, NcclDataType type, int peer,
                                  NcclComm comm, CuStream stream) {
  return Enqueue(comm, kNoCollective,
                 {.name = "Recv",
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .peer = peer,
                  .stream = stream});
}

COTUNE_EXPORT NcclResult ncclGroupStart() {
  ++group_depth;
  return kNcclSuccess;
}

COTUNE_EXPORT NcclResult ncclGroupEnd() {
  const Lock lock(Fake().state.mutex);
  if (--group_depth < 0) Fake().state.misuse.push_back("a group ended that was not started");
  return kNcclSuccess;
}

}  // extern "C"
