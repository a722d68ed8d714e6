#include "core/operand_buffers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "core/operands.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Keeps the payload aligned to 256 bytes.
constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuard{0x5C};

uint64_t SendBytes(const Problem& problem) {
  return problem.send_elements() * SizeBytes(problem.cls.dtype);
}
uint64_t RecvBytes(const Problem& problem) {
  return problem.recv_elements() * SizeBytes(problem.cls.dtype);
}

std::span<std::byte> Payload(std::vector<std::byte>& bytes) {
  return std::span(bytes).subspan(kGuardBytes, bytes.size() - 2 * kGuardBytes);
}

void SetGuards(std::vector<std::byte>& bytes) {
  std::fill_n(bytes.begin(), kGuardBytes, kGuard);
  std::fill_n(bytes.end() - kGuardBytes, kGuardBytes, kGuard);
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

uint64_t OperandBuffers::AllocatedBytes(const Problem& problem) {
  if (problem.cls.in_place)
    return std::max(SendBytes(problem), RecvBytes(problem)) + 2 * kGuardBytes;
  return SendBytes(problem) + RecvBytes(problem) + 4 * kGuardBytes;
}

uint64_t OperandBuffers::StagingBytes(const Problem& problem) {
  const uint64_t first =
      problem.cls.in_place ? std::max(SendBytes(problem), RecvBytes(problem)) : SendBytes(problem);
  return first + std::max(first, RecvBytes(problem)) + 4 * kGuardBytes;
}

Result<std::unique_ptr<OperandBuffers>> OperandBuffers::Allocate(Device& device,
                                                                 const Problem& problem, int rank) {
  std::unique_ptr<OperandBuffers> buffers(new OperandBuffers(device, problem, rank));
  const uint64_t first_bytes =
      problem.cls.in_place ? std::max(SendBytes(problem), RecvBytes(problem)) : SendBytes(problem);
  Result<std::unique_ptr<DeviceBuffer>> first = device.Allocate(first_bytes + 2 * kGuardBytes);
  if (!first) return tl::make_unexpected(first.error());
  buffers->first_ = std::move(*first);
  auto* first_payload = static_cast<std::byte*>(buffers->first_->data()) + kGuardBytes;
  buffers->send_ = first_payload + buffers->SendOffset();
  buffers->recv_ = first_payload + buffers->RecvOffset();
  try {
    buffers->staging_.resize(first_bytes + 2 * kGuardBytes);
    buffers->seen_.reserve(StagingBytes(problem) - buffers->staging_.size());
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kEnvironment,
                fmt::format("cannot allocate {} bytes of host memory to check results",
                            StagingBytes(problem)),
                ToText(problem), "memory or its limit is used up", "tune smaller sizes");
  }
  if (!problem.cls.in_place) {
    Result<std::unique_ptr<DeviceBuffer>> second =
        device.Allocate(RecvBytes(problem) + 2 * kGuardBytes);
    if (!second) return tl::make_unexpected(second.error());
    buffers->second_ = std::move(*second);
    buffers->recv_ = static_cast<std::byte*>(buffers->second_->data()) + kGuardBytes;
  }
  return buffers;
}

Status OperandBuffers::Fill(uint32_t salt) {
  SetGuards(staging_);
  const std::span<std::byte> payload = Payload(staging_);
  Poison(payload);
  const bool has_send =
      problem_.cls.collective != Collective::kBroadcast || rank_ == problem_.cls.root;
  if (has_send) FillSend(problem_, rank_, salt, payload.subspan(SendOffset(), SendBytes(problem_)));
  if (Status written = device_.Write(*first_, staging_); !written) return written;
  if (second_ == nullptr) return {};
  seen_.resize(second_->bytes());
  SetGuards(seen_);
  Poison(Payload(seen_));
  return device_.Write(*second_, seen_);
}

Result<OperandCheck> OperandBuffers::Check(uint32_t salt) {
  OperandCheck check;
  seen_.resize(first_->bytes());
  if (Status read = device_.Read(*first_, seen_); !read) return tl::make_unexpected(read.error());
  check.wrote_outside = !GuardsIntact(seen_);
  if (second_ != nullptr) {
    check.changed_send = seen_ != staging_;
    seen_.resize(second_->bytes());
    if (Status read = device_.Read(*second_, seen_); !read)
      return tl::make_unexpected(read.error());
    check.wrote_outside = check.wrote_outside || !GuardsIntact(seen_);
  }
  const uint64_t offset = second_ == nullptr ? RecvOffset() : 0;
  check.wrong_elements = CountWrongElements(problem_, rank_, salt,
                                            Payload(seen_).subspan(offset, RecvBytes(problem_)));
  return check;
}

}  // namespace cotune
