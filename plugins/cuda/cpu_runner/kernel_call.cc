#include "plugins/cuda/cpu_runner/kernel_call.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace cotune::cuda::cpu {
namespace {

constexpr size_t kGuardBytes = 48;
constexpr unsigned char kGuard = 0xA5;
// Buffers hold this byte while no launch uses them.
constexpr unsigned char kNotInUse = 0xEE;

Problem ProblemOf(const KernelVariant& v, const CallShape& shape) {
  return {v.collective, v.type, v.reduction, shape.count, v.world_size, shape.root};
}

std::vector<Bytes> ExactInputs(const Problem& problem, unsigned int salt) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < problem.world_size; ++r) inputs.push_back(ExactInput(problem, r, salt));
  return inputs;
}

// The offset of a rank's part in the larger buffer when both buffers are one.
uint64_t InPlaceOffset(const Problem& p, size_t rank) {
  return rank * p.count * ElementBytes(p.type);
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t size, size_t offset_bytes)
    : size_(size),
      begin_(kGuardBytes),
      memory_(size_ + 2 * kGuardBytes + 32 + offset_bytes, kGuard) {
  while (reinterpret_cast<uintptr_t>(memory_.data() + begin_) % 16 != 0) ++begin_;
  begin_ += offset_bytes;
  Write(Bytes(size, kNotInUse));
}

void GuardedBuffer::Write(const Bytes& content) {
  if (size_ != 0) std::memcpy(memory_.data() + begin_, content.data(), size_);
}

Bytes GuardedBuffer::content() const {
  const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(size_));
}

bool GuardedBuffer::GuardsAreWhole() const {
  const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
  const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
  return std::all_of(memory_.begin(), begin, is_guard) &&
         std::all_of(begin + static_cast<std::ptrdiff_t>(size_), memory_.end(), is_guard);
}

Call::Call(const KernelVariant& variant, const CallShape& shape)
    : Call(variant, shape, ExactInputs(ProblemOf(variant, shape), shape.salt)) {}

Call::Call(const KernelVariant& variant, const CallShape& shape, std::vector<Bytes> inputs)
    : variant_(variant),
      shape_(shape),
      problem_(ProblemOf(variant, shape)),
      inputs_(std::move(inputs)) {
  const size_t width = ElementBytes(problem_.type);
  const size_t send_bytes = SendElements(problem_) * width;
  const size_t receive_bytes = ReceiveElements(problem_) * width;
  buffers_.reserve(inputs_.size());
  for (size_t r = 0; r < inputs_.size(); ++r) {
    const size_t recv_bytes = shape.in_place ? std::max(send_bytes, receive_bytes) : receive_bytes;
    const size_t recv_offset = shape.in_place ? shape.offset_bytes : shape.offset_bytes * 3 % 16;
    buffers_.push_back({GuardedBuffer(shape.in_place ? 0 : send_bytes, shape.offset_bytes),
                        GuardedBuffer(recv_bytes, recv_offset),
                        {},
                        {}});
  }
}

Bytes Call::InPlaceContent(size_t rank) const {
  if (problem_.collective != "ALL_GATHER") return inputs_[rank];
  Bytes whole(ReceiveElements(problem_) * ElementBytes(problem_.type), kNotInUse);
  std::copy(inputs_[rank].begin(), inputs_[rank].end(),
            whole.begin() + static_cast<std::ptrdiff_t>(InPlaceOffset(problem_, rank)));
  return whole;
}

unsigned char* Call::SendOf(size_t rank) {
  if (!shape_.in_place) return buffers_[rank].send.data();
  const bool is_gather = problem_.collective == "ALL_GATHER";
  return buffers_[rank].recv.data() + (is_gather ? InPlaceOffset(problem_, rank) : 0);
}

unsigned char* Call::ReceiveOf(size_t rank) {
  const bool is_scatter = shape_.in_place && problem_.collective == "REDUCE_SCATTER";
  return buffers_[rank].recv.data() + (is_scatter ? InPlaceOffset(problem_, rank) : 0);
}

void Call::Launch(RanksOnCpu& ranks, int rank) {
  const auto r = static_cast<size_t>(rank);
  KernelArguments call = {};
  call.send = SendOf(r);
  call.recv = ReceiveOf(r);
  call.count = shape_.count;
  call.root = shape_.root;
  call.chunk_bytes = shape_.chunk_bytes;
  call.call = Record();
  for (size_t peer = 0; peer < buffers_.size(); ++peer) {
    call.peer_send[peer] = SendOf(peer);
    call.peer_recv[peer] = ReceiveOf(peer);
  }
  Buffers& own = buffers_[r];
  if (shape_.in_place) {
    own.recv.Write(InPlaceContent(r));
  } else {
    own.send.Write(inputs_[r]);
    own.recv.Write(Bytes(own.recv.content().size(), kNotInUse));
  }
  ranks.Launch(rank, variant_.function, call,
               {shape_.blocks, shape_.threads, shape_.resident_blocks});
  own.sent_after = own.send.content();
  own.received_after = own.recv.content();
  own.send.Write(Bytes(own.sent_after.size(), kNotInUse));
  own.recv.Write(Bytes(own.received_after.size(), kNotInUse));
}

Bytes Call::Received(int rank) const {
  const auto r = static_cast<size_t>(rank);
  const Bytes& all = buffers_[r].received_after;
  if (!shape_.in_place || problem_.collective != "REDUCE_SCATTER") return all;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(InPlaceOffset(problem_, r));
  return Bytes(begin,
               begin + static_cast<std::ptrdiff_t>(shape_.count * ElementBytes(problem_.type)));
}

std::string Call::Difference() const {
  for (int rank = 0; rank < problem_.world_size; ++rank) {
    if (std::string difference = DifferenceAt(rank); !difference.empty()) return difference;
  }
  return "";
}

std::string Call::DifferenceAt(int rank) const {
  const auto r = static_cast<size_t>(rank);
  const Buffers& own = buffers_[r];
  const Bytes expected = ExpectedOutput(problem_, rank, inputs_);
  const Bytes received = Received(rank);
  const std::string where = NameOf(variant_) + " count " + std::to_string(shape_.count) + " grid " +
                            std::to_string(shape_.blocks) + "x" + std::to_string(shape_.threads) +
                            " rank " + std::to_string(rank);
  if (received != expected) {
    const auto at = std::mismatch(received.begin(), received.end(), expected.begin());
    return where + ": wrong from byte " + std::to_string(at.first - received.begin());
  }
  if (!own.recv.GuardsAreWhole()) return where + ": wrote outside of the output";
  if (!shape_.in_place && own.sent_after != inputs_[r]) return where + ": wrote the input";
  const Bytes later = own.recv.content();
  if (later != Bytes(later.size(), kNotInUse)) return where + ": wrote after the launch";
  return "";
}

CallRecord Call::Record() const { return RecordOf(NameOf(variant_), shape_.count, shape_.root); }

CallRecord RecordOf(const std::string& choice, uint64_t count, int root) {
  const std::string call = choice + " " + std::to_string(count) + " " + std::to_string(root);
  CallRecord record{};
  record.word[1] = static_cast<unsigned int>(std::hash<std::string>()(call));
  record.word[2] = static_cast<unsigned int>(root) << 8;
  record.word[3] = static_cast<unsigned int>(count);
  return record;
}

bool IsSameCall(const CallRecord& seen, const CallRecord& call) {
  return seen.word[1] == call.word[1] && (seen.word[2] & ~0xFFu) == call.word[2] &&
         seen.word[3] == call.word[3];
}

std::vector<const KernelVariant*> Variants(const VariantFilter& f) {
  std::vector<const KernelVariant*> found;
  const auto fits = [](std::string_view wanted, std::string_view is) {
    return wanted.empty() || wanted == is;
  };
  for (const auto& set : kAllVariantSets) {
    for (const KernelVariant& v : *set) {
      if (fits(f.collective, v.collective) && fits(f.algorithm, v.algorithm) &&
          fits(f.transport, v.transport) && fits(f.type, v.type) &&
          fits(f.reduction, v.reduction) && (f.world_size == 0 || f.world_size == v.world_size)) {
        found.push_back(&v);
      }
    }
  }
  return found;
}

std::vector<const KernelVariant*> OneOfEachKind(const VariantFilter& filter) {
  std::vector<const KernelVariant*> kinds;
  for (const KernelVariant* v : Variants(filter)) {
    const bool is_known = std::any_of(kinds.begin(), kinds.end(), [&](const KernelVariant* kind) {
      return kind->collective == v->collective && kind->algorithm == v->algorithm &&
             kind->transport == v->transport;
    });
    if (!is_known) kinds.push_back(v);
  }
  return kinds;
}

std::string NameOf(const KernelVariant& v) {
  std::string name;
  for (const std::string_view part :
       {v.collective, v.algorithm, v.transport, v.type, v.reduction}) {
    if (!part.empty()) name += std::string(part) + " ";
  }
  return name + "world " + std::to_string(v.world_size);
}

}  // namespace cotune::cuda::cpu
