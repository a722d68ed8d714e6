// One problem as calls of NCCL.
#ifndef COTUNE_PLUGINS_NCCL_COLLECTIVE_CALL_H_
#define COTUNE_PLUGINS_NCCL_COLLECTIVE_CALL_H_

#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

NcclDataType DataTypeOf(ElementType type);
NcclRedOp RedOpOf(Reduction reduction);

struct CallBuffers {
  const void* send = nullptr;
  void* receive = nullptr;
};

// Enqueues the problem on the stream. The buffers fit; the context is current. Nothing to do for an
// empty problem.
NcclResult Enqueue(const NcclLibrary& nccl, const Problem& problem, const CallBuffers& buffers,
                   NcclComm comm, gpu::CuStream stream);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_COLLECTIVE_CALL_H_
