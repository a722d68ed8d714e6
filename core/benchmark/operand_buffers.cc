#include "core/benchmark/operand_buffers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "core/benchmark/operands.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Keeps the payload aligned to 256 bytes.
constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuard{0x5C};
// NaN for floats, -1 and 255 for integers: no right answer contains it.
constexpr std::byte kPoison{0xFF};
// What a block begins with comes from the host: at most so often its period, 128 KiB to 1 MiB. A
// power of two, so that it ends at whole lines of memory.
constexpr uint64_t kFrontPeriods = 128;

uint64_t SendBytes(const Problem& problem) {
  return problem.send_elements() * SizeBytes(problem.cls.dtype);
}
uint64_t RecvBytes(const Problem& problem) {
  return problem.recv_elements() * SizeBytes(problem.cls.dtype);
}

// Of the send buffer's allocation, which is all in place.
uint64_t FirstBytes(const Problem& problem) {
  return problem.cls.in_place ? std::max(SendBytes(problem), RecvBytes(problem))
                              : SendBytes(problem);
}

// All buffers of one call.
uint64_t CallBytes(const Problem& problem) {
  if (problem.cls.in_place) return FirstBytes(problem) + 2 * kGuardBytes;
  return FirstBytes(problem) + RecvBytes(problem) + 4 * kGuardBytes;
}

tl::unexpected<Error> NoHostMemory(const Problem& problem) {
  return Fail(ErrorCode::kEnvironment,
              fmt::format("cannot allocate {} bytes of host memory to check results",
                          OperandBuffers::StagingBytes(problem)),
              ToText(problem), "memory or its limit is used up", "tune smaller sizes");
}

std::span<std::byte> Payload(std::vector<std::byte>& bytes) {
  return std::span(bytes).subspan(kGuardBytes, bytes.size() - 2 * kGuardBytes);
}

bool GuardsIntact(const std::vector<std::byte>& bytes) {
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  return std::all_of(bytes.begin(), bytes.begin() + kGuardBytes, is_guard) &&
         std::all_of(bytes.end() - kGuardBytes, bytes.end(), is_guard);
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

uint64_t OperandBuffers::AllocatedBytes(const Problem& problem, int32_t copies) {
  // The buffers themselves, and each kind of data before and after a call.
  const auto calls = static_cast<uint64_t>(copies) * CallBytes(problem);
  if (problem.cls.in_place) return calls + 2 * kDataKinds * CallBytes(problem);
  return calls + kDataKinds * CallBytes(problem);
}

int32_t OperandBuffers::WantedCopies(const Problem& problem, uint64_t cache_bytes) {
  const uint64_t call_bytes = CallBytes(problem);
  if (call_bytes < cache_bytes / 8 || call_bytes >= 2 * cache_bytes) return 1;
  return static_cast<int32_t>(1 + (2 * cache_bytes + call_bytes - 1) / call_bytes);
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

uint64_t OperandBuffers::StagingBytes(const Problem& problem) {
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
  Result<Operands> operands = buffers->MakeOperands();
  if (!operands) return Propagate(operands);
  buffers->copies_.push_back(std::move(*operands));
  for (uint32_t kind = 0; kind < kDataKinds; ++kind) {
    Result<Image> image = buffers->MakeImage(kind);
    if (!image) return Propagate(image);
    buffers->images_[kind] = std::move(*image);
  }
  return buffers;
}

Result<std::unique_ptr<DeviceBuffer>> OperandBuffers::AllocateOperand(uint64_t payload_bytes) {
  const uint64_t bytes = payload_bytes + 2 * kGuardBytes;
  return symmetric_ == nullptr ? device_.Allocate(bytes) : symmetric_->Take(bytes);
}

Result<OperandBuffers::Operands> OperandBuffers::MakeOperands() {
  Operands made;
  Result<std::unique_ptr<DeviceBuffer>> first = AllocateOperand(FirstBytes(problem_));
  if (!first) return Propagate(first);
  made.first = std::move(*first);
  auto* first_payload = static_cast<std::byte*>(made.first->data()) + kGuardBytes;
  made.send = first_payload + SendOffset();
  made.recv = first_payload + RecvOffset();
  if (problem_.cls.in_place) return made;
  Result<std::unique_ptr<DeviceBuffer>> second = AllocateOperand(RecvBytes(problem_));
  if (!second) return Propagate(second);
  made.second = std::move(*second);
  made.recv = static_cast<std::byte*>(made.second->data()) + kGuardBytes;
  return made;
}

Status OperandBuffers::AddCopies(int32_t copies) {
  while (this->copies() < copies) {
    Result<Operands> operands = MakeOperands();
    if (!operands) return Propagate(operands);
    if (Status filled = FillCopy(*operands, 0); !filled) return filled;
    copies_.push_back(std::move(*operands));
  }
  return {};
}

Result<std::unique_ptr<DeviceBuffer>> OperandBuffers::PoisonedBuffer(uint64_t bytes) {
  Result<std::unique_ptr<DeviceBuffer>> buffer = device_.Allocate(bytes);
  if (!buffer) return buffer;
  if (Status poisoned = PoisonBetweenGuards(**buffer); !poisoned) {
    return Propagate(poisoned);
  }
  return buffer;
}

Status OperandBuffers::PoisonBetweenGuards(DeviceBuffer& buffer) {
  const uint64_t payload_bytes = buffer.bytes() - 2 * kGuardBytes;
  Status filled = device_.Fill(buffer, 0, kGuardBytes, kGuard);
  if (filled) filled = device_.Fill(buffer, kGuardBytes, payload_bytes, kPoison);
  if (filled) filled = device_.Fill(buffer, kGuardBytes + payload_bytes, kGuardBytes, kGuard);
  return filled;
}

// Its front is made here and then copied on the device behind itself, so that data of any size is
// made as fast as the device can write it.
Status OperandBuffers::PutBlock(DeviceBuffer& buffer, uint64_t payload_offset,
                                const OperandBlock& block) {
  const uint64_t front_bytes = kFrontPeriods * block.period.size();
  std::vector<std::byte> front(std::min(block.bytes, front_bytes));
  FillFront(block, front);
  const uint64_t begin = kGuardBytes + payload_offset + block.begin_bytes;
  Status put = device_.Write(*device_.Part(buffer, begin, front.size()), front);
  for (uint64_t done = front.size(); put && done < block.bytes;) {
    const uint64_t bytes = std::min(done, block.bytes - done);
    put = device_.Copy(*device_.Part(buffer, begin + done, bytes),
                       *device_.Part(buffer, begin, bytes));
    done += bytes;
  }
  return put;
}

Status OperandBuffers::PutBlocks(DeviceBuffer& buffer, uint64_t payload_offset,
                                 const std::vector<OperandBlock>& blocks) {
  for (const OperandBlock& block : blocks) {
    if (Status put = PutBlock(buffer, payload_offset, block); !put) return put;
  }
  return {};
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
  Result<std::unique_ptr<DeviceBuffer>> first = PoisonedBuffer(operands.first->bytes());
  if (!first) return Propagate(first);
  const bool has_send =
      problem_.cls.collective != Collective::kBroadcast || rank_ == problem_.cls.root;
  Status made;
  if (has_send) made = PutBlocks(**first, SendOffset(), SendBlocks(problem_, rank_, kind));
  if (!made) return Propagate(made);
  const bool in_place = operands.second == nullptr;
  Result<std::unique_ptr<DeviceBuffer>> result =
      in_place ? device_.Allocate((*first)->bytes()) : PoisonedBuffer(operands.second->bytes());
  if (!result) return Propagate(result);
  // What a call does not write stays as it was.
  if (in_place) made = device_.Copy(**result, **first);
  if (made) {
    made = PutBlocks(**result, in_place ? RecvOffset() : 0, ExpectedBlocks(problem_, rank_, kind));
  }
  if (!made) return Propagate(made);
  return Image{std::move(*first), std::move(*result)};
}

Status OperandBuffers::Fill(uint32_t salt, int32_t copies) {
  for (int32_t copy = 0; copy < copies; ++copy) {
    if (Status filled = FillCopy(At(copy), salt % kDataKinds); !filled) return filled;
  }
  return {};
}

Status OperandBuffers::FillCopy(const Operands& copy, uint32_t kind) {
  if (Status copied = device_.Copy(*copy.first, *images_[kind].first); !copied) return copied;
  if (copy.second == nullptr) return {};
  return PoisonBetweenGuards(*copy.second);
}

Result<OperandCheck> OperandBuffers::Check(uint32_t salt, int32_t copies) {
  for (int32_t copy = 0; copy < copies; ++copy) {
    Result<OperandCheck> check = CheckCopy(At(copy), salt % kDataKinds);
    if (!check) return check;
    if (check->wrong_elements > 0 || check->wrote_outside || check->changed_send) return check;
  }
  return OperandCheck{};
}

Result<OperandCheck> OperandBuffers::CheckCopy(const Operands& copy, uint32_t kind) {
  const Image& image = images_[kind];
  DeviceBuffer& received = copy.second == nullptr ? *copy.first : *copy.second;
  const Result<bool> is_right = device_.Equal(received, *image.result);
  if (!is_right) return Propagate(is_right);
  Result<bool> keeps_send = true;
  if (copy.second != nullptr) keeps_send = device_.Equal(*copy.first, *image.first);
  if (!keeps_send) return Propagate(keeps_send);
  if (*is_right && *keeps_send) return OperandCheck{};
  try {
    return CountDifferences(copy, kind);
  } catch (const std::bad_alloc&) {
    return NoHostMemory(problem_);
  }
}

Result<OperandCheck> OperandBuffers::CountDifferences(const Operands& copy, uint32_t kind) {
  OperandCheck check;
  std::vector<std::byte> seen(copy.first->bytes());
  if (Status read = device_.Read(*copy.first, seen); !read) {
    return Propagate(read);
  }
  check.wrote_outside = !GuardsIntact(seen);
  if (copy.second != nullptr) {
    std::vector<std::byte> sent(copy.first->bytes());
    if (Status read = device_.Read(*images_[kind].first, sent); !read) {
      return Propagate(read);
    }
    check.changed_send = seen != sent;
    // One at a time, as StagingBytes says.
    sent = {};
    seen = {};
    seen.resize(copy.second->bytes());
    if (Status read = device_.Read(*copy.second, seen); !read) {
      return Propagate(read);
    }
    check.wrote_outside = check.wrote_outside || !GuardsIntact(seen);
  }
  const uint64_t offset = problem_.cls.in_place ? RecvOffset() : 0;
  check.wrong_elements =
      CountWrongElements(problem_, rank_, kind, Payload(seen).subspan(offset, RecvBytes(problem_)));
  return check;
}

}  // namespace cotune
