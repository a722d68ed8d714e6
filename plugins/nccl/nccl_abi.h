// The part of NCCL's ABI that this backend uses. Declared here, so that building needs no NCCL;
// nccl_abi_test compares it with nccl.h, which `./dev setup` installs.
#ifndef COTUNE_PLUGINS_NCCL_NCCL_ABI_H_
#define COTUNE_PLUGINS_NCCL_NCCL_ABI_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "gpu/driver/cuda_types.h"

namespace cotune::nccl {

using NcclComm = struct NcclCommOpaque*;
using NcclWindow = struct NcclWindowOpaque*;

using NcclResult = int;
enum : NcclResult {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

using NcclDataType = int;
enum : NcclDataType {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

using NcclRedOp = int;
enum : NcclRedOp { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4 };

struct NcclUniqueId {
  char internal[128];
};

// Undefined fields take NCCL's default. NCCL reads as many bytes as both sides know, and takes the
// fields as `version` had them: with the running library's own version none is reinterpreted.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 0;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

constexpr int kNcclWinCollSymmetric = 1;
constexpr size_t kNcclWinAlignment = 4096;

// X(member, symbol, arguments): what every supported version has.
// clang-format off
#define COTUNE_NCCL_FUNCTIONS(X)                                                                   \
  X(GetUniqueId, ncclGetUniqueId, (NcclUniqueId* id))                                              \
  X(CommInitRankConfig, ncclCommInitRankConfig,                                                    \
    (NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config))                    \
  X(CommSplit, ncclCommSplit,                                                                      \
    (NcclComm comm, int color, int key, NcclComm* child, NcclConfig* config))                      \
  X(CommFinalize, ncclCommFinalize, (NcclComm comm))                                               \
  X(CommDestroy, ncclCommDestroy, (NcclComm comm))                                                 \
  X(CommAbort, ncclCommAbort, (NcclComm comm))                                                     \
  X(CommGetAsyncError, ncclCommGetAsyncError, (NcclComm comm, NcclResult* error))                  \
  X(AllReduce, ncclAllReduce,                                                                      \
    (const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op,               \
     NcclComm comm, gpu::CuStream stream))                                                         \
  X(AllGather, ncclAllGather,                                                                      \
    (const void* send, void* receive, size_t count, NcclDataType type, NcclComm comm,              \
     gpu::CuStream stream))                                                                        \
  X(ReduceScatter, ncclReduceScatter,                                                              \
    (const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op,               \
     NcclComm comm, gpu::CuStream stream))                                                         \
  X(Broadcast, ncclBroadcast,                                                                      \
    (const void* send, void* receive, size_t count, NcclDataType type, int root, NcclComm comm,    \
     gpu::CuStream stream))                                                                        \
  X(Send, ncclSend,                                                                                \
    (const void* send, size_t count, NcclDataType type, int peer, NcclComm comm,                   \
     gpu::CuStream stream))                                                                        \
  X(Recv, ncclRecv,                                                                                \
    (void* receive, size_t count, NcclDataType type, int peer, NcclComm comm,                      \
     gpu::CuStream stream))                                                                        \
  X(GroupStart, ncclGroupStart, ())                                                                \
  X(GroupEnd, ncclGroupEnd, ())

// The same for what came with 2.27; null before.
#define COTUNE_NCCL_WINDOW_FUNCTIONS(X)                                                            \
  X(CommWindowRegister, ncclCommWindowRegister,                                                    \
    (NcclComm comm, void* pointer, size_t bytes, NcclWindow* window, int flags))                   \
  X(CommWindowDeregister, ncclCommWindowDeregister, (NcclComm comm, NcclWindow window))

// The same for what some builds of 2.28 brought, and later ones have; null elsewhere.
#define COTUNE_NCCL_LATE_FUNCTIONS(X)                                                              \
  X(CommRevoke, ncclCommRevoke, (NcclComm comm, int flags))
// clang-format on

// Members are named as NCCL names its functions.
// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses)
struct NcclFunctions {
  const char* (*GetErrorString)(NcclResult result) = nullptr;
  const char* (*GetLastError)(NcclComm comm) = nullptr;
#define COTUNE_DECLARE(member, symbol, arguments) NcclResult(*member) arguments = nullptr;
  COTUNE_NCCL_FUNCTIONS(COTUNE_DECLARE)
  COTUNE_NCCL_WINDOW_FUNCTIONS(COTUNE_DECLARE)
  COTUNE_NCCL_LATE_FUNCTIONS(COTUNE_DECLARE)
#undef COTUNE_DECLARE
};
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)

// ---- The tuner plugin interface ----

constexpr int kTunerAlgorithms = 7;
constexpr int kTunerProtocols = 3;

// Rows and columns of the cost table.
enum class Algorithm : int { kTree = 0, kRing = 1 };
enum class Protocol : int { kLl = 0, kLl128 = 1, kSimple = 2 };

// ncclFunc_t.
enum TunerCollective : int {
  kTunerBroadcast = 0,
  kTunerReduce = 1,
  kTunerAllGather = 2,
  kTunerReduceScatter = 3,
  kTunerAllReduce = 4,
};

using TunerLogger = void (*)(int level, unsigned long flags, const char* file, int line,
                             const char* format, ...);

// NCCL hands over a plain array of numAlgo * numProto floats as float**.
struct TunerV3 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, TunerLogger logger, void** context);
  NcclResult (*get_coll_info)(void* context, int collective, size_t bytes, int pipe_ops,
                              float** cost_table, int algorithms, int protocols, int* channels);
  NcclResult (*destroy)(void* context);
};

struct TunerV4 {
  const char* name;
  NcclResult (*init)(size_t ranks, size_t nodes, TunerLogger logger, void** context);
  NcclResult (*get_coll_info)(void* context, int collective, size_t bytes, int pipe_ops,
                              float** cost_table, int algorithms, int protocols,
                              int registered_buffers, int* channels);
  NcclResult (*destroy)(void* context);
};

struct TunerV5 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes,
                     TunerLogger logger, void* nvlink_domain, void* constants);
  NcclResult (*get_coll_info)(void* context, int collective, size_t bytes, int pipe_ops,
                              float** cost_table, int algorithms, int protocols,
                              int registered_buffers, int* channels);
  NcclResult (*finalize)(void* context);
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_NCCL_ABI_H_
