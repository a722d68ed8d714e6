// The captured all_to_all calls that NCCL does not complete, found before NCCL gets them.
#ifndef COTUNE_PLUGINS_NCCL_CAPTURED_EXCHANGE_H_
#define COTUNE_PLUGINS_NCCL_CAPTURED_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "gpu/driver/cuda_driver.h"
#include "plugins/nccl/collective_call.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// The facts about one process by which NCCL decides if it registers a buffer of a captured send or
// receive (maps it into the peer, which then reads or writes it directly).
struct GraphRegistration {
  int nccl_version = 0;
  bool is_on = true;                     // NCCL_GRAPH_REGISTER
  bool has_default_ll_threshold = true;  // NCCL_P2P_LL_THRESHOLD is not set

  // Reads the environment, as NCCL does at the first captured call.
  static GraphRegistration OfProcess(int nccl_version);
};

// The kinds of handles by which other processes can map the memory of a buffer; 0: none, as of
// cudaMalloc. A bit mask of CUmemAllocationHandleType.
using HandleKinds = uint64_t;
HandleKinds HandleKindsOf(const gpu::CudaDriver& driver, const void* buffer);

// Why a captured call must not reach NCCL, "" if it may. Each rank decides by its own buffers,
// which are alike on all ranks. Pure.
//
// NCCL (2.23 to 2.30) registers the send buffer and the receive buffer of a captured exchange one
// by one, each if its memory can be exported, and its kernels take for granted that both ends of a
// transfer are registered or none. A sender that is registered waits for the address of a receive
// buffer, which its peer never gives: the call hangs. A receiver that is registered takes its
// buffer for written after one step: the first call ends with wrong data, and leaves an address
// behind for whose removal the second one waits for ever. Seen on 2 H100 with NCCL 2.28.9, each
// time; the same by ncclAlltoAll, and whatever protocol is forced. NCCL registers nothing for
// blocks of up to 16 KiB times its number of channels to a peer (32 there). No function of
// NCCL returns that number, so that the limit here is that of one channel.
std::string WhyNotCaptured(const Problem& problem, const GraphRegistration& registration,
                           HandleKinds send, HandleKinds receive);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_CAPTURED_EXCHANGE_H_
