#include "core/benchmark/operand_buffers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "core/benchmark/guarded_buffer.h"
#include "core/benchmark/operands.h"
#include "core/benchmark/value_hash.h"
#include "fmt/format.h"

namespace cotune {
namespace {

uint64_t SendBytes(const Problem& problem) {
  return problem.send_elements() * SizeBytes(problem.cls.dtype);
}
uint64_t RecvBytes(const Problem& problem) {
  return problem.recv_elements() * SizeBytes(problem.cls.dtype);
}

// The bytes of the send buffer's allocation, the only one in place.
uint64_t FirstBytes(const Problem& problem) {
  return problem.cls.in_place ? std::max(SendBytes(problem), RecvBytes(problem))
                              : SendBytes(problem);
}

// Returns whether the results of timed calls, each of which reads the result of the one before,
// leave the range of the dtype.
bool GrowsInPlace(const ProblemClass& cls) {
  return cls.in_place && (cls.reduction == Reduction::kSum || cls.reduction == Reduction::kProduct);
}

bool IsReplicated(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kBroadcast;
}

tl::unexpected<Error> NoHostMemory(const Problem& problem) {
  return Fail(ErrorCode::kEnvironment,
              fmt::format("cannot allocate {} bytes of host memory to check results",
                          OperandBuffers::BytesToCount(problem)),
              ToText(problem), "memory or its limit is used up", "tune smaller sizes");
}

}  // namespace

uint64_t OperandBuffers::SendOffset() const {
  const bool shifted = problem_.cls.in_place && problem_.cls.collective == Collective::kAllGather;
  return shifted ? rank_ * SendBytes(problem_) : 0;
}

uint64_t OperandBuffers::RecvOffset() const {
  const bool shifted =
      problem_.cls.in_place && problem_.cls.collective == Collective::kReduceScatter;
  return shifted ? rank_ * RecvBytes(problem_) : 0;
}

uint64_t OperandBuffers::CallBytes(const Problem& problem) {
  if (problem.cls.in_place) return FirstBytes(problem) + 2 * kGuardBytes;
  return FirstBytes(problem) + RecvBytes(problem) + 4 * kGuardBytes;
}

uint64_t OperandBuffers::BytesFor(const Problem& problem, int32_t copies) {
  // The buffers themselves, and each kind of data before and after a call.
  const auto calls = static_cast<uint64_t>(copies) * CallBytes(problem);
  const uint64_t timed = GrowsInPlace(problem.cls) ? 1 : 0;
  if (problem.cls.in_place) return calls + (2 * kDataKinds + timed) * CallBytes(problem);
  return calls + kDataKinds * CallBytes(problem);
}

int32_t OperandBuffers::AffordableCopies(int32_t wanted) const {
  if (symmetric_ != nullptr) {
    const uint64_t more = symmetric_->left_bytes() / RegionBytes(problem_, 1);
    return static_cast<int32_t>(std::min<uint64_t>(static_cast<uint64_t>(wanted), 1 + more));
  }
  const std::optional<uint64_t> available = device_.AvailableBytes();
  if (!available || wanted == 1) return wanted;
  const uint64_t affordable = 1 + *available / 2 / CallBytes(problem_);
  return static_cast<int32_t>(std::min<uint64_t>(static_cast<uint64_t>(wanted), affordable));
}

uint64_t OperandBuffers::BytesToCount(const Problem& problem) {
  return FirstBytes(problem) + std::max(FirstBytes(problem), RecvBytes(problem)) + 4 * kGuardBytes;
}

uint64_t OperandBuffers::RegionBytes(const Problem& problem, int32_t copies) {
  const uint64_t first_bytes = FirstBytes(problem) + 2 * kGuardBytes;
  const uint64_t second_bytes = RecvBytes(problem) + 2 * kGuardBytes;
  return static_cast<uint64_t>(copies) *
         (problem.cls.in_place ? SymmetricRegion::BytesFor({first_bytes})
                               : SymmetricRegion::BytesFor({first_bytes, second_bytes}));
}

Result<std::unique_ptr<OperandBuffers>> OperandBuffers::Allocate(Device& device,
                                                                 const Problem& problem, int rank,
                                                                 SymmetricRegion* symmetric) {
  std::unique_ptr<OperandBuffers> buffers(new OperandBuffers(device, problem, rank));
  buffers->symmetric_ = symmetric;
  if (symmetric != nullptr) symmetric->Reset();
  COTUNE_TRY(Operands operands, buffers->MakeOperands());
  buffers->copies_.push_back(std::move(operands));
  for (uint32_t kind = 0; kind < kDataKinds; ++kind) {
    COTUNE_TRY(Image image, buffers->MakeImage(kind));
    buffers->images_[kind] = std::move(image);
  }
  if (GrowsInPlace(problem.cls)) {
    COTUNE_TRY(buffers->timed_first_,
               buffers->PoisonedBuffer(FirstBytes(problem) + 2 * kGuardBytes));
    COTUNE_RETURN_IF_ERROR(PutBlocks(device, *buffers->timed_first_, buffers->SendOffset(),
                                     TimedSendBlocks(problem, rank)));
  }
  return buffers;
}

Result<std::unique_ptr<DeviceBuffer>> OperandBuffers::AllocateOperand(uint64_t payload_bytes) {
  const uint64_t bytes = payload_bytes + 2 * kGuardBytes;
  return symmetric_ == nullptr ? device_.Allocate(bytes) : symmetric_->Take(bytes);
}

Result<OperandBuffers::Operands> OperandBuffers::MakeOperands() {
  Operands made;
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> first, AllocateOperand(FirstBytes(problem_)));
  made.first = std::move(first);
  auto* first_payload = static_cast<std::byte*>(made.first->data()) + kGuardBytes;
  made.send = first_payload + SendOffset();
  made.recv = first_payload + RecvOffset();
  if (problem_.cls.in_place) return made;
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> second, AllocateOperand(RecvBytes(problem_)));
  made.second = std::move(second);
  made.recv = static_cast<std::byte*>(made.second->data()) + kGuardBytes;
  return made;
}

Status OperandBuffers::AddCopies(int32_t copies) {
  while (this->copies() < copies) {
    COTUNE_TRY(Operands operands, MakeOperands());
    if (Status filled = FillCopy(operands, timed_first()); !filled) return filled;
    copies_.push_back(std::move(operands));
  }
  return {};
}

Result<std::unique_ptr<DeviceBuffer>> OperandBuffers::PoisonedBuffer(uint64_t bytes) {
  Result<std::unique_ptr<DeviceBuffer>> buffer = device_.Allocate(bytes);
  if (!buffer) return buffer;
  COTUNE_RETURN_IF_ERROR(PoisonBetweenGuards(device_, **buffer));
  return buffer;
}

Result<OperandBuffers::Image> OperandBuffers::MakeImage(uint32_t kind) {
  try {
    return TryToMakeImage(kind);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kEnvironment, "cannot allocate host memory to make data",
                ToText(problem_), "memory or its limit is used up", "start fewer ranks");
  }
}

Result<OperandBuffers::Image> OperandBuffers::TryToMakeImage(uint32_t kind) {
  const Operands& operands = copies_[0];
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> first, PoisonedBuffer(operands.first->bytes()));
  const bool has_send =
      problem_.cls.collective != Collective::kBroadcast || rank_ == problem_.cls.root;
  Status made;
  if (has_send) made = PutBlocks(device_, *first, SendOffset(), SendBlocks(problem_, rank_, kind));
  COTUNE_RETURN_IF_ERROR(made);
  const bool in_place = operands.second == nullptr;
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> result, in_place
                                                       ? device_.Allocate(first->bytes())
                                                       : PoisonedBuffer(operands.second->bytes()));
  // Bytes that a call does not write stay as they were.
  if (in_place) made = device_.Copy(*result, *first);
  COTUNE_TRY(const auto expected, ExpectedBlocks(problem_, rank_, kind));
  if (made) made = PutBlocks(device_, *result, in_place ? RecvOffset() : 0, expected);
  COTUNE_RETURN_IF_ERROR(made);
  // A period stands for all of the result, because ranks whose results equal the expected one
  // expect the same: it is exact, or computed by divisions that round alike everywhere. It has no
  // negative zeros and no NaNs, so that other bits are another result.
  ValueHash hash(problem_.cls.dtype);
  for (const OperandBlock& block : expected) hash.Add(block.period);
  return Image{std::move(first), std::move(result), hash.Digest()};
}

Status OperandBuffers::Fill(uint32_t salt, int32_t copies) {
  for (int32_t copy = 0; copy < copies; ++copy) {
    if (Status filled = FillCopy(At(copy), *images_[salt % kDataKinds].first); !filled)
      return filled;
  }
  return {};
}

Status OperandBuffers::FillForTiming(int32_t copies) {
  if (timed_first_ == nullptr) return {};
  for (int32_t copy = 0; copy < copies; ++copy) {
    COTUNE_RETURN_IF_ERROR(FillCopy(At(copy), *timed_first_));
  }
  return {};
}

std::vector<std::string> OperandBuffers::ReplicatedOutputs() const {
  if (!IsReplicated(problem_.cls.collective)) return {};
  return {"the result"};
}

Status OperandBuffers::FillCopy(const Operands& copy, DeviceBuffer& first) {
  if (Status copied = device_.Copy(*copy.first, first); !copied) return copied;
  if (copy.second == nullptr) return {};
  return PoisonBetweenGuards(device_, *copy.second);
}

Result<OperandCheck> OperandBuffers::Check(uint32_t salt, int32_t copies) {
  OperandCheck all;
  for (int32_t copy = 0; copy < copies; ++copy) {
    Result<OperandCheck> check = CheckCopy(At(copy), salt % kDataKinds);
    if (!check || !check->is_right()) return check;
    all.AddHashes(*check);
  }
  return all;
}

Result<OperandCheck> OperandBuffers::CheckCopy(const Operands& copy, uint32_t kind) {
  const Image& image = images_[kind];
  DeviceBuffer& received = copy.second == nullptr ? *copy.first : *copy.second;
  COTUNE_TRY(const bool is_right, device_.Equal(received, *image.result));
  Result<bool> keeps_send = true;
  if (copy.second != nullptr) keeps_send = device_.Equal(*copy.first, *image.first);
  COTUNE_RETURN_IF_ERROR(keeps_send);
  if (is_right && *keeps_send) {
    OperandCheck check;
    if (IsReplicated(problem_.cls.collective)) check.replicated_hashes = {image.hash};
    return check;
  }
  try {
    return CountDifferences(copy, kind);
  } catch (const std::bad_alloc&) {
    return NoHostMemory(problem_);
  }
}

Result<OperandCheck> OperandBuffers::CountDifferences(const Operands& copy, uint32_t kind) {
  OperandCheck check;
  std::vector<std::byte> seen(copy.first->bytes());
  COTUNE_RETURN_IF_ERROR(device_.Read(*copy.first, seen));
  check.wrote_outside = !GuardsIntact(seen);
  if (copy.second != nullptr) {
    std::vector<std::byte> sent(copy.first->bytes());
    COTUNE_RETURN_IF_ERROR(device_.Read(*images_[kind].first, sent));
    check.changed_send = seen != sent;
    // One at a time, as StagingBytes says.
    sent = {};
    seen = {};
    seen.resize(copy.second->bytes());
    COTUNE_RETURN_IF_ERROR(device_.Read(*copy.second, seen));
    check.wrote_outside = check.wrote_outside || !GuardsIntact(seen);
  }
  const uint64_t offset = problem_.cls.in_place ? RecvOffset() : 0;
  COTUNE_TRY(const uint64_t wrong,
             CountWrongElements(problem_, rank_, kind,
                                Payload(seen).subspan(offset, RecvBytes(problem_))));
  check.wrong_elements = wrong;
  if (check.is_right() && IsReplicated(problem_.cls.collective)) {
    check.replicated_hashes = {
        HashOfValue(problem_.cls.dtype, Payload(seen).subspan(offset, RecvBytes(problem_)))};
  }
  return check;
}

}  // namespace cotune
