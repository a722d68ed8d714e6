// A library that stands in for libnccl.so.2: it computes nothing, but keeps NCCL's rules about
// communicators, asks its tuner plugin as NCCL does, and writes down what it was called with.
#ifndef COTUNE_PLUGINS_NCCL_TESTING_FAKE_NCCL_H_
#define COTUNE_PLUGINS_NCCL_TESTING_FAKE_NCCL_H_

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/nccl/nccl_abi.h"
#include "plugins/nccl/nccl_tuner.h"

namespace cotune::nccl {

// One enqueued operation.
struct FakeCall {
  std::string name;
  int rank = -1;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  NcclDataType type = -1;
  NcclRedOp op = -1;
  int peer = -1;  // or the root
  gpu::CuStream stream = nullptr;
  int group_depth = 0;
  bool took_symmetric_kernel = false;
  // The tuner's decision, as row, column and channels of the cost table; -1: it was not asked.
  int algorithm = -1;
  int protocol = -1;
  int channels = -1;
};

struct FakeNcclState {
  std::mutex mutex;
  std::condition_variable changed;

  // The behaviour of the library.
  int version = 22809;
  bool init_hangs = false;            // ncclCommInitRankConfig stays in progress
  bool split_hangs = false;           // ncclCommSplit does
  bool collectives_hang = false;      // a collective stays in its call until revoked or aborted
  bool has_symmetric_kernels = true;  // for registered buffers
  NcclResult init_result = kNcclSuccess;
  NcclResult collective_result = kNcclSuccess;
  NcclResult async_error = kNcclSuccess;  // of direct communicators
  AllowedDecisions forbidden = 0;         // cells that NCCL does not allow
  const TunerV5* static_tuner = nullptr;  // of the program, in place of NCCL_TUNER_PLUGIN
  // Whether kernels are on the GPU that wait for a peer: an abort has them leave, and notifies.
  std::atomic<bool>* kernels = nullptr;
  // True while streams are captured. A communicator with a captured call is freed by nothing
  // while graphs_live; whoever takes that back notifies `changed`.
  std::atomic<bool>* is_capturing = nullptr;
  bool graphs_live = false;
  bool aborts_hang = false;  // ncclCommAbort never returns; the kernels leave even so

  // The calls that it received.
  std::vector<FakeCall> calls;
  std::vector<std::string> misuse;  // of NCCL's rules; must stay empty
  std::string tuner_symbol;         // that was found in NCCL_TUNER_PLUGIN
  int communicators = 0;            // alive
  int windows = 0;
  int aborts = 0;  // that have begun
  int revokes = 0;
  int finalizes = 0;
  int calls_inside = 0;  // collectives that have not returned
};

}  // namespace cotune::nccl

// The library's one state. FAKE_NCCL_VERSION in the environment goes before its version.
extern "C" COTUNE_EXPORT cotune::nccl::FakeNcclState* fake_nccl_state();

#endif  // COTUNE_PLUGINS_NCCL_TESTING_FAKE_NCCL_H_
