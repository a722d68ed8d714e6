#include "plugins/cuda/cpu_runner/call_for_test.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cotune::cuda::cpu {
namespace {

constexpr size_t kGuardBytes = 48;
constexpr unsigned char kGuard = 0xA5;

Problem ProblemOf(const KernelVariant& v, const CallShape& shape) {
  return {v.collective, v.type, v.reduction, shape.count, v.world_size, shape.root};
}

std::vector<Bytes> ExactInputs(const Problem& problem, unsigned int salt) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < problem.world_size; ++r) inputs.push_back(ExactInput(problem, r, salt));
  return inputs;
}

// Where a rank's part of the larger buffer begins when both are one.
uint64_t InPlaceOffset(const Problem& p, size_t rank) {
  return rank * p.count * ElementBytes(p.type);
}

}  // namespace

GuardedBuffer::GuardedBuffer(const Bytes& content, size_t offset_bytes)
    : size_(content.size()),
      begin_(kGuardBytes),
      memory_(size_ + 2 * kGuardBytes + 32 + offset_bytes, kGuard) {
  while (reinterpret_cast<uintptr_t>(memory_.data() + begin_) % 16 != 0) ++begin_;
  begin_ += offset_bytes;
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
  const Bytes empty(ReceiveElements(problem_) * ElementBytes(problem_.type), 0x5A);
  for (size_t r = 0; r < inputs_.size(); ++r) {
    if (!shape.in_place) {
      send_.emplace_back(inputs_[r], shape.offset_bytes);
      recv_.emplace_back(empty, shape.offset_bytes * 3 % 16);
    } else if (problem_.collective == "ALL_GATHER") {
      Bytes whole = empty;
      std::copy(inputs_[r].begin(), inputs_[r].end(),
                whole.begin() + static_cast<std::ptrdiff_t>(InPlaceOffset(problem_, r)));
      recv_.emplace_back(whole, shape.offset_bytes);
    } else {
      recv_.emplace_back(inputs_[r], shape.offset_bytes);
    }
  }
}

const unsigned char* Call::SendOf(size_t rank) {
  if (!shape_.in_place) return send_[rank].data();
  const bool is_gather = problem_.collective == "ALL_GATHER";
  return recv_[rank].data() + (is_gather ? InPlaceOffset(problem_, rank) : 0);
}

unsigned char* Call::ReceiveOf(size_t rank) {
  const bool is_scatter = shape_.in_place && problem_.collective == "REDUCE_SCATTER";
  return recv_[rank].data() + (is_scatter ? InPlaceOffset(problem_, rank) : 0);
}

void Call::Launch(RanksOnCpu& ranks, int rank) {
  const auto r = static_cast<size_t>(rank);
  ranks.Launch(rank, variant_.function, SendOf(r), ReceiveOf(r), shape_.count,
               {shape_.blocks, shape_.threads, shape_.resident_blocks}, shape_.root,
               shape_.chunk_bytes);
}

Bytes Call::Received(int rank) const {
  const auto r = static_cast<size_t>(rank);
  Bytes all = recv_[r].content();
  if (!shape_.in_place || problem_.collective != "REDUCE_SCATTER") return all;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(InPlaceOffset(problem_, r));
  return Bytes(begin,
               begin + static_cast<std::ptrdiff_t>(shape_.count * ElementBytes(problem_.type)));
}

std::string Call::Difference() const {
  for (int rank = 0; rank < problem_.world_size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const Bytes expected = ExpectedOutput(problem_, rank, inputs_);
    const Bytes received = Received(rank);
    const std::string where = NameOf(variant_) + " count " + std::to_string(shape_.count) +
                              " grid " + std::to_string(shape_.blocks) + "x" +
                              std::to_string(shape_.threads) + " rank " + std::to_string(rank);
    if (received != expected) {
      const auto at = std::mismatch(received.begin(), received.end(), expected.begin());
      return where + ": wrong from byte " + std::to_string(at.first - received.begin());
    }
    if (!recv_[r].GuardsAreWhole()) return where + ": wrote outside of the output";
    if (!send_.empty() && send_[r].content() != inputs_[r]) return where + ": wrote the input";
  }
  return "";
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
