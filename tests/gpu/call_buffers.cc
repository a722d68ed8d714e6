#include "tests/gpu/call_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuard{0x5C};

uint64_t ElementBytes(const Problem& problem) { return SizeBytes(problem.cls.dtype); }

// The size of the one buffer that a call in place works in.
uint64_t SharedBytes(const Problem& problem) {
  return std::max(problem.send_elements(), problem.recv_elements()) * ElementBytes(problem);
}

// The offset of this rank's own block in a buffer of all blocks, for the collective that has it
// there.
uint64_t BlockOffset(const Problem& problem, int rank, Collective collective) {
  const bool is_shifted = problem.cls.in_place && problem.cls.collective == collective;
  return is_shifted ? static_cast<uint64_t>(rank) * problem.count * ElementBytes(problem) : 0;
}

}  // namespace

Result<std::unique_ptr<CallBuffers>> CallBuffers::Allocate(Device& device, const Problem& problem,
                                                           int rank, const Placement& placement,
                                                           SymmetricRegion* symmetric) {
  std::unique_ptr<CallBuffers> made(new CallBuffers(device, problem, rank));
  const auto allocate = [&](uint64_t bytes) {
    return symmetric == nullptr ? device.Allocate(bytes) : symmetric->Take(bytes);
  };
  const uint64_t element = ElementBytes(problem);
  const bool in_place = problem.cls.in_place;
  const uint64_t send_base = kGuardBytes + placement.send_offset * element;
  const uint64_t recv_base = kGuardBytes + placement.recv_offset * element;
  const uint64_t send_bytes = in_place ? SharedBytes(problem) : problem.send_elements() * element;
  COTUNE_TRY(auto send, allocate(send_base + send_bytes + kGuardBytes));
  made->send_ = std::move(send);
  made->send_image_.resize(made->send_->bytes());
  made->send_begin_ = send_base + BlockOffset(problem, rank, Collective::kAllGather);
  made->send_at_ = static_cast<std::byte*>(made->send_->data()) + made->send_begin_;
  if (in_place) {
    made->recv_begin_ = send_base + BlockOffset(problem, rank, Collective::kReduceScatter);
    made->recv_at_ = static_cast<std::byte*>(made->send_->data()) + made->recv_begin_;
    return made;
  }
  COTUNE_TRY(auto recv, allocate(recv_base + problem.recv_elements() * element + kGuardBytes));
  made->recv_ = std::move(recv);
  made->recv_image_.resize(made->recv_->bytes());
  made->recv_begin_ = recv_base;
  made->recv_at_ = static_cast<std::byte*>(made->recv_->data()) + recv_base;
  return made;
}

Status CallBuffers::Fill(std::span<const std::byte> sent, std::span<const std::byte> right) {
  std::fill(send_image_.begin(), send_image_.end(), kGuard);
  std::vector<std::byte>& recv_image = recv_ == nullptr ? send_image_ : recv_image_;
  std::fill(recv_image.begin(), recv_image.end(), kGuard);
  std::transform(right.begin(), right.end(), recv_image.begin() + static_cast<int64_t>(recv_begin_),
                 [](std::byte b) { return ~b; });
  // In a broadcast in place only the root has data to send.
  const bool is_receiver = problem_.cls.in_place &&
                           problem_.cls.collective == Collective::kBroadcast &&
                           rank_ != problem_.cls.root;
  if (!is_receiver && !sent.empty()) {
    std::memcpy(send_image_.data() + send_begin_, sent.data(), sent.size());
  }
  if (Status written = device_.Write(*send_, send_image_); !written) return written;
  return recv_ == nullptr ? Status{} : device_.Write(*recv_, recv_image_);
}

Status CallBuffers::Check(DeviceBuffer& buffer, const std::vector<std::byte>& written,
                          uint64_t begin, uint64_t end, std::vector<std::byte>& seen) {
  seen.resize(written.size());
  if (Status read = device_.Read(buffer, seen); !read) return read;
  const auto is_unchanged = [&](uint64_t from, uint64_t to) {
    return std::memcmp(seen.data() + from, written.data() + from, to - from) == 0;
  };
  if (is_unchanged(0, begin) && is_unchanged(end, seen.size())) return {};
  for (uint64_t i = 0; i < seen.size(); ++i) {
    if ((i >= begin && i < end) || seen[i] == written[i]) continue;
    return Fail(ErrorCode::kWrongResult,
                fmt::format("byte {} of the {} buffer has changed, counted from its first",
                            static_cast<int64_t>(i) - static_cast<int64_t>(begin),
                            &buffer == recv_.get() || recv_ == nullptr ? "receive" : "send"));
  }
  return {};
}

Result<std::vector<std::byte>> CallBuffers::Read() {
  const uint64_t recv_bytes = problem_.recv_elements() * ElementBytes(problem_);
  std::vector<std::byte> seen;
  if (recv_ == nullptr) {
    // A call in place may use all of the buffer, and only what it receives is defined.
    const uint64_t payload = SharedBytes(problem_);
    const uint64_t begin = send_begin_ - BlockOffset(problem_, rank_, Collective::kAllGather);
    COTUNE_RETURN_IF_ERROR(Check(*send_, send_image_, begin, begin + payload, seen));
  } else {
    std::vector<std::byte> sent;
    COTUNE_RETURN_IF_ERROR(Check(*send_, send_image_, 0, 0, sent));
    COTUNE_RETURN_IF_ERROR(Check(*recv_, recv_image_, recv_begin_, recv_begin_ + recv_bytes, seen));
  }
  const auto first = seen.begin() + static_cast<int64_t>(recv_begin_);
  return std::vector<std::byte>(first, first + static_cast<int64_t>(recv_bytes));
}

}  // namespace cotune::gputest
