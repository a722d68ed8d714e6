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

// Of the send buffer's allocation, which is all in place.
uint64_t FirstBytes(const Problem& problem) {
  return problem.cls.in_place ? std::max(SendBytes(problem), RecvBytes(problem))
                              : SendBytes(problem);
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
  // The buffers themselves, and each kind of data before and after a call.
  if (problem.cls.in_place) {
    return (1 + 2 * kDataKinds) * (FirstBytes(problem) + 2 * kGuardBytes);
  }
  return (1 + kDataKinds) * (FirstBytes(problem) + RecvBytes(problem) + 4 * kGuardBytes);
}

uint64_t OperandBuffers::StagingBytes(const Problem& problem) {
  return FirstBytes(problem) + std::max(FirstBytes(problem), RecvBytes(problem)) + 4 * kGuardBytes;
}

uint64_t OperandBuffers::RegionBytes(const Problem& problem) {
  const uint64_t first_bytes = FirstBytes(problem) + 2 * kGuardBytes;
  if (problem.cls.in_place) return SymmetricRegion::BytesFor({first_bytes});
  return SymmetricRegion::BytesFor({first_bytes, RecvBytes(problem) + 2 * kGuardBytes});
}

Result<std::unique_ptr<OperandBuffers>> OperandBuffers::Allocate(Device& device,
                                                                 const Problem& problem, int rank,
                                                                 SymmetricRegion* symmetric) {
  std::unique_ptr<OperandBuffers> buffers(new OperandBuffers(device, problem, rank));
  if (symmetric != nullptr) symmetric->Reset();
  const auto allocate = [&](uint64_t bytes) {
    return symmetric == nullptr ? device.Allocate(bytes) : symmetric->Take(bytes);
  };
  Result<std::unique_ptr<DeviceBuffer>> first = allocate(FirstBytes(problem) + 2 * kGuardBytes);
  if (!first) return tl::make_unexpected(first.error());
  buffers->first_ = std::move(*first);
  auto* first_payload = static_cast<std::byte*>(buffers->first_->data()) + kGuardBytes;
  buffers->send_ = first_payload + buffers->SendOffset();
  buffers->recv_ = first_payload + buffers->RecvOffset();
  if (!problem.cls.in_place) {
    Result<std::unique_ptr<DeviceBuffer>> second = allocate(RecvBytes(problem) + 2 * kGuardBytes);
    if (!second) return tl::make_unexpected(second.error());
    buffers->second_ = std::move(*second);
    buffers->recv_ = static_cast<std::byte*>(buffers->second_->data()) + kGuardBytes;
  }
  for (uint32_t kind = 0; kind < kDataKinds; ++kind) {
    Result<Image> image = buffers->MakeImage(kind);
    if (!image) return tl::make_unexpected(image.error());
    buffers->images_[kind] = std::move(*image);
  }
  return buffers;
}

Result<std::unique_ptr<DeviceBuffer>> OperandBuffers::Put(const std::vector<std::byte>& bytes) {
  Result<std::unique_ptr<DeviceBuffer>> buffer = device_.Allocate(bytes.size());
  if (!buffer) return buffer;
  if (Status written = device_.Write(**buffer, bytes); !written) {
    return tl::make_unexpected(written.error());
  }
  return buffer;
}

Result<OperandBuffers::Image> OperandBuffers::MakeImage(uint32_t kind) {
  try {
    std::vector<std::byte> bytes(first_->bytes());
    SetGuards(bytes);
    Poison(Payload(bytes));
    const bool has_send =
        problem_.cls.collective != Collective::kBroadcast || rank_ == problem_.cls.root;
    if (has_send) {
      FillSend(problem_, rank_, kind, Payload(bytes).subspan(SendOffset(), SendBytes(problem_)));
    }
    Result<std::unique_ptr<DeviceBuffer>> first = Put(bytes);
    if (!first) return tl::make_unexpected(first.error());
    if (second_ != nullptr) {
      bytes.resize(second_->bytes());
      SetGuards(bytes);
    }
    const uint64_t offset = second_ == nullptr ? RecvOffset() : 0;
    FillExpected(problem_, rank_, kind, Payload(bytes).subspan(offset, RecvBytes(problem_)));
    Result<std::unique_ptr<DeviceBuffer>> result = Put(bytes);
    if (!result) return tl::make_unexpected(result.error());
    return Image{std::move(*first), std::move(*result)};
  } catch (const std::bad_alloc&) {
    return NoHostMemory(problem_);
  }
}

Status OperandBuffers::Fill(uint32_t salt) {
  const Image& image = images_[salt % kDataKinds];
  if (Status copied = device_.Copy(*first_, *image.first); !copied) return copied;
  if (second_ == nullptr) return {};
  constexpr std::byte kPoison{0xFF};
  const uint64_t payload_bytes = second_->bytes() - 2 * kGuardBytes;
  Status filled = device_.Fill(*second_, 0, kGuardBytes, kGuard);
  if (filled) filled = device_.Fill(*second_, kGuardBytes, payload_bytes, kPoison);
  if (filled) {
    filled = device_.Fill(*second_, kGuardBytes + payload_bytes, kGuardBytes, kGuard);
  }
  return filled;
}

Result<OperandCheck> OperandBuffers::Check(uint32_t salt) {
  const uint32_t kind = salt % kDataKinds;
  Image& image = images_[kind];
  DeviceBuffer& received = second_ == nullptr ? *first_ : *second_;
  const Result<bool> is_right = device_.Equal(received, *image.result);
  if (!is_right) return tl::make_unexpected(is_right.error());
  Result<bool> keeps_send = true;
  if (second_ != nullptr) keeps_send = device_.Equal(*first_, *image.first);
  if (!keeps_send) return tl::make_unexpected(keeps_send.error());
  if (*is_right && *keeps_send) return OperandCheck{};
  try {
    return CountDifferences(kind, image);
  } catch (const std::bad_alloc&) {
    return NoHostMemory(problem_);
  }
}

Result<OperandCheck> OperandBuffers::CountDifferences(uint32_t kind, Image& image) {
  OperandCheck check;
  std::vector<std::byte> seen(first_->bytes());
  if (Status read = device_.Read(*first_, seen); !read) return tl::make_unexpected(read.error());
  check.wrote_outside = !GuardsIntact(seen);
  if (second_ != nullptr) {
    std::vector<std::byte> sent(first_->bytes());
    if (Status read = device_.Read(*image.first, sent); !read) {
      return tl::make_unexpected(read.error());
    }
    check.changed_send = seen != sent;
    // One at a time, as StagingBytes says.
    sent = {};
    seen = {};
    seen.resize(second_->bytes());
    if (Status read = device_.Read(*second_, seen); !read) return tl::make_unexpected(read.error());
    check.wrote_outside = check.wrote_outside || !GuardsIntact(seen);
  }
  const uint64_t offset = second_ == nullptr ? RecvOffset() : 0;
  check.wrong_elements =
      CountWrongElements(problem_, rank_, kind, Payload(seen).subspan(offset, RecvBytes(problem_)));
  return check;
}

}  // namespace cotune
