#include "plugins/nccl/collective_call.h"

namespace cotune::nccl {
namespace {

// Every rank sends to every rank, itself included, as one operation.
NcclResult AllToAll(const NcclLibrary& nccl, const Problem& problem, const CallBuffers& buffers,
                    NcclComm comm, gpu::CuStream stream) {
  const NcclDataType type = DataTypeOf(problem.type);
  const uint64_t block_bytes = problem.count * sdk::ElementBytes(problem.type);
  NcclResult result = nccl->GroupStart();
  if (result != kNcclSuccess) return result;
  for (int peer = 0; peer < problem.world_size && result == kNcclSuccess; ++peer) {
    const uint64_t offset_bytes = static_cast<uint64_t>(peer) * block_bytes;
    const auto* send = static_cast<const unsigned char*>(buffers.send) + offset_bytes;
    auto* receive = static_cast<unsigned char*>(buffers.receive) + offset_bytes;
    result = nccl->Send(send, problem.count, type, peer, comm, stream);
    if (result == kNcclSuccess) {
      result = nccl->Recv(receive, problem.count, type, peer, comm, stream);
    }
  }
  // Also after a failure: the group of this thread must not stay open.
  const NcclResult ended = nccl->GroupEnd();
  return result == kNcclSuccess ? ended : result;
}

}  // namespace

NcclDataType DataTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return kNcclFloat32;
    case ElementType::kF64:
      return kNcclFloat64;
    case ElementType::kF16:
      return kNcclFloat16;
    case ElementType::kBf16:
      return kNcclBfloat16;
    case ElementType::kI32:
      return kNcclInt32;
    case ElementType::kI64:
      return kNcclInt64;
    case ElementType::kU8:
      return kNcclUint8;
  }
  return kNcclUint8;
}

NcclRedOp RedOpOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return kNcclSum;
    case Reduction::kProduct:
      return kNcclProd;
    case Reduction::kMin:
      return kNcclMin;
    case Reduction::kMax:
      return kNcclMax;
    case Reduction::kAverage:
      return kNcclAvg;
  }
  return kNcclSum;
}

NcclResult Enqueue(const NcclLibrary& nccl, const Problem& problem, const CallBuffers& buffers,
                   NcclComm comm, gpu::CuStream stream) {
  if (problem.count == 0) return kNcclSuccess;
  const NcclDataType type = DataTypeOf(problem.type);
  const NcclRedOp op = RedOpOf(problem.reduction);
  switch (problem.collective) {
    case Collective::kAllReduce:
      return nccl->AllReduce(buffers.send, buffers.receive, problem.count, type, op, comm, stream);
    case Collective::kAllGather:
      return nccl->AllGather(buffers.send, buffers.receive, problem.count, type, comm, stream);
    case Collective::kReduceScatter:
      return nccl->ReduceScatter(buffers.send, buffers.receive, problem.count, type, op, comm,
                                 stream);
    case Collective::kBroadcast:
      return nccl->Broadcast(buffers.send, buffers.receive, problem.count, type, problem.root, comm,
                             stream);
    case Collective::kAllToAll:
      return AllToAll(nccl, problem, buffers, comm, stream);
  }
  return kNcclInvalidArgument;
}

}  // namespace cotune::nccl
