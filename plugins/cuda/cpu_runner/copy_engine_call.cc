#include "plugins/cuda/cpu_runner/copy_engine_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"
#include "plugins/cuda/cpu_runner/sdk_problem.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::Collective;

constexpr size_t kGuardBytes = 64;
// Buffers hold these while they are the caller's.
constexpr unsigned char kNotReceived = 0xEE;
constexpr unsigned char kSentBefore = 0xDD;

const KernelVariant& MovingKernel(int world_size) {
  for (const KernelVariant& v : kCopyEngineVariants) {
    if (v.collective != "ALL_REDUCE" && v.world_size == world_size) return v;
  }
  std::abort();
}

std::vector<Bytes> ExactInputs(const Problem& problem, unsigned int salt) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < problem.world_size; ++r) inputs.push_back(ExactInput(problem, r, salt));
  return inputs;
}

Problem ReductionOf(const KernelVariant& v, uint64_t count) {
  return {v.collective, v.type, v.reduction, count, v.world_size};
}

// The caller has its buffers back.
Bytes GiveBack(Bytes& sent, Bytes& received) {
  Bytes result = received;
  std::fill(sent.begin(), sent.end(), kSentBefore);
  std::fill(received.begin(), received.end(), kNotReceived);
  return result;
}

// Copies that lie outside of the buffers are mistakes of the list.
void CopyBytes(const Bytes& from, size_t from_offset, Bytes& to, size_t to_offset, size_t bytes) {
  if (from_offset + bytes > from.size() || to_offset + bytes > to.size()) std::abort();
  std::memcpy(to.data() + to_offset, from.data() + from_offset, bytes);
}

// Whether the caller's buffers are as GiveBack has left them.
bool AreGivenBack(const Bytes& sent, const Bytes& received) {
  return sent == Bytes(sent.size(), kSentBefore) &&
         received == Bytes(received.size(), kNotReceived);
}

std::string DifferenceOf(const Problem& call, int rank, const Bytes& expected, const Bytes& result,
                         const Bytes& later) {
  const std::string where = fmt::format("{} {} count {} rank {} of {}", call.collective, call.type,
                                        call.count, rank, call.world_size);
  if (result != expected) {
    const auto at =
        std::mismatch(result.begin(), result.end(), expected.begin(), expected.end()).first;
    return fmt::format("{}: wrong from byte {}", where, at - result.begin());
  }
  if (later != Bytes(later.size(), kNotReceived)) return where + ": written after its end";
  return "";
}

}  // namespace

void CopyBarrier(RanksOnCpu& ranks, int rank, const CallRecord& of_call) {
  KernelArguments call{};
  call.segment = -1;
  call.call = of_call;
  ranks.Launch(rank, MovingKernel(ranks.world_size()).function, call, {.blocks = 1, .threads = 8});
}

// ---- Collectives that move ----

MovingCall::MovingCall(const sdk::Problem& problem, unsigned int salt)
    : MovingCall(problem, ExactInputs(ProblemInWords(problem), salt), salt) {}

MovingCall::MovingCall(const sdk::Problem& problem, std::vector<Bytes> inputs, unsigned int salt)
    : problem_(problem),
      salt_(salt),
      call_(ProblemInWords(problem)),
      inputs_(std::move(inputs)),
      sent_(inputs_),
      results_(inputs_.size()) {
  for (size_t r = 0; r < inputs_.size(); ++r) received_.push_back(ReceiveBefore(r));
}

Bytes MovingCall::ReceiveBefore(size_t rank) const {
  Bytes before(ReceiveElements(call_) * ElementBytes(call_.type), kNotReceived);
  const bool is_gather = problem_.collective == Collective::kAllGather;
  const bool has_data = is_gather || static_cast<int>(rank) == problem_.root;
  if (!problem_.in_place || !has_data) return before;
  const Bytes& input = inputs_[rank];
  const size_t at = is_gather ? rank * input.size() : 0;
  // Not memcpy: with no elements these point nowhere.
  std::copy(input.begin(), input.end(), before.begin() + static_cast<ptrdiff_t>(at));
  return before;
}

void MovingCall::CopyUntil(size_t left, size_t rank, std::deque<PendingCopies>& pending) {
  const bool is_second_ahead = (salt_ + rank) % 4 >= 2;
  while (pending.size() > left) {
    // Either stream may be ahead; on each of them phases follow each other.
    auto next = pending.begin();
    if (is_second_ahead) {
      const auto on_other = std::find_if(pending.begin(), pending.end(), [&](const auto& each) {
        return each.stream != pending[0].stream;
      });
      if (on_other != pending.end()) next = on_other;
    }
    for (const BufferCopy& copy : *next->copies) {
      FiberScheduler::YieldSometimes();
      Copy(rank, copy);
    }
    pending.erase(next);
  }
}

void MovingCall::Run(RanksOnCpu& ranks, int rank) {
  const auto r = static_cast<size_t>(rank);
  const CopyList copies = CopiesOf(problem_, rank);
  // Copies run beside what follows them: at once, a phase later, or as late as they can.
  constexpr size_t kPhasesBehind[] = {0, 1, SIZE_MAX};
  const size_t phases_behind = kPhasesBehind[(salt_ + r) % 3];
  std::deque<PendingCopies> pending;
  for (size_t phase = 0; phase < copies.phases.size(); ++phase) {
    const CopyPhase& now = copies.phases[phase];
    if (now.own) CopyHere(ranks, rank, *now.own);
    if (now.ends_earlier_copies) CopyUntil(0, r, pending);
    CopyBarrier(ranks, rank, Record());
    between_launches_(rank, phase);
    if (!now.copies.empty()) pending.push_back({phase % 2, &now.copies});
    CopyUntil(phases_behind, r, pending);
  }
  const bool is_own_first = ((salt_ + r) & 1) != 0;
  if (!is_own_first) CopyUntil(0, r, pending);
  if (copies.last_own) CopyHere(ranks, rank, *copies.last_own);
  CopyUntil(0, r, pending);
  CopyBarrier(ranks, rank, Record());
  results_[r] = GiveBack(sent_[r], received_[r]);
}

std::string MovingCall::Difference() const {
  for (int rank = 0; rank < problem_.world_size; ++rank) {
    if (std::string difference = DifferenceAt(rank); !difference.empty()) return difference;
  }
  return "";
}

std::string MovingCall::DifferenceAt(int rank) const {
  const auto r = static_cast<size_t>(rank);
  const std::string difference =
      DifferenceOf(call_, rank, ExpectedOutput(call_, rank, inputs_), results_[r], received_[r]);
  return difference.empty() || !problem_.in_place ? difference : difference + ", in place";
}

bool MovingCall::IsUntouchedBefore(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return sent_[r] == inputs_[r] && received_[r] == ReceiveBefore(r);
}

bool MovingCall::IsUntouchedAfter(int rank) const {
  return AreGivenBack(sent_[static_cast<size_t>(rank)], received_[static_cast<size_t>(rank)]);
}

CallRecord MovingCall::Record() const {
  return RecordOf(fmt::format("{} {} by copies", call_.collective, call_.type), call_.count,
                  call_.root);
}

// A kernel copies the data that stays on this rank; never in place.
void MovingCall::CopyHere(RanksOnCpu& ranks, int rank, const BufferCopy& copy) {
  const auto r = static_cast<size_t>(rank);
  KernelArguments call{};
  call.send = sent_[r].data() + copy.from_offset_bytes;
  call.recv = received_[r].data() + copy.to_offset_bytes;
  call.count = copy.bytes;
  ranks.Launch(rank, MovingKernel(ranks.world_size()).function, call, {.blocks = 3, .threads = 32});
}

void MovingCall::Copy(size_t rank, const BufferCopy& copy) {
  const auto peer = static_cast<size_t>(copy.from_rank);
  if (peer == rank) std::abort();
  CopyBytes((copy.is_from_recv ? received_ : sent_)[peer], copy.from_offset_bytes, received_[rank],
            copy.to_offset_bytes, copy.bytes);
}

// ---- all_reduce ----

AddingCall::AddingCall(const KernelVariant& kernel, uint64_t count, size_t misalignment,
                       unsigned int salt)
    : AddingCall(kernel, ExactInputs(ReductionOf(kernel, count), salt), misalignment, salt) {}

AddingCall::AddingCall(const KernelVariant& kernel, std::vector<Bytes> inputs, size_t misalignment,
                       unsigned int salt)
    : kernel_(kernel),
      misalignment_(misalignment),
      salt_(salt),
      call_(ReductionOf(kernel, inputs[0].size() / ElementBytes(kernel.type))),
      inputs_(std::move(inputs)),
      results_(inputs_.size()) {
  for (size_t r = 0; r < inputs_.size(); ++r) {
    sent_.push_back(SendBefore(r));
    received_.push_back(Bytes(sent_.back().size() + kGuardBytes, kNotReceived));
  }
}

Bytes AddingCall::SendBefore(size_t rank) const {
  Bytes before(misalignment_, 0x11);
  before.insert(before.end(), inputs_[rank].begin(), inputs_[rank].end());
  return before;
}

void AddingCall::Run(RanksOnCpu& ranks, int rank) {
  const sdk::Problem problem = SdkProblem(call_, /*is_symmetric=*/true);
  Launch(ranks, rank, -1);
  between_launches_(rank, 0);
  CopyAll(rank, SegmentCopiesOf(problem, rank, 0).scatter);
  constexpr int kSegments = kCopySegments;
  for (int segment = 0; segment < kSegments; ++segment) {
    const bool is_last = segment + 1 == kSegments;
    const SegmentCopies beside = SegmentCopiesOf(problem, rank, is_last ? 0 : segment + 1);
    const bool copies_first = ((salt_ + static_cast<unsigned int>(rank)) & 1) != 0;
    const auto& copies = is_last ? beside.gather : beside.scatter;
    if (copies_first) CopyAll(rank, copies);
    Launch(ranks, rank, segment);
    if (!copies_first) CopyAll(rank, copies);
    between_launches_(rank, static_cast<size_t>(segment) + 1);
  }
  for (int segment = 1; segment < kSegments; ++segment) {
    CopyAll(rank, SegmentCopiesOf(problem, rank, segment).gather);
  }
  Launch(ranks, rank, -1);
  const auto r = static_cast<size_t>(rank);
  results_[r] = GiveBack(sent_[r], received_[r]);
}

std::string AddingCall::Difference() const {
  for (int rank = 0; rank < call_.world_size; ++rank) {
    if (std::string difference = DifferenceAt(rank); !difference.empty()) return difference;
  }
  return "";
}

std::string AddingCall::DifferenceAt(int rank) const {
  const auto r = static_cast<size_t>(rank);
  Bytes expected(misalignment_, kNotReceived);
  const Bytes sums = ExpectedOutput(call_, rank, inputs_);
  expected.insert(expected.end(), sums.begin(), sums.end());
  expected.insert(expected.end(), kGuardBytes, kNotReceived);
  return DifferenceOf(call_, rank, expected, results_[r], received_[r]);
}

bool AddingCall::IsUntouchedBefore(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return sent_[r] == SendBefore(r) && received_[r] == Bytes(received_[r].size(), kNotReceived);
}

bool AddingCall::IsUntouchedAfter(int rank) const {
  return AreGivenBack(sent_[static_cast<size_t>(rank)], received_[static_cast<size_t>(rank)]);
}

CallRecord AddingCall::Record() const { return RecordOf(NameOf(kernel_), call_.count, 0); }

Bytes AddingCall::Received(int rank) const {
  const Bytes& all = results_[static_cast<size_t>(rank)];
  return Bytes(all.begin() + static_cast<ptrdiff_t>(misalignment_),
               all.end() - static_cast<ptrdiff_t>(kGuardBytes));
}

void AddingCall::Launch(RanksOnCpu& ranks, int rank, int segment) {
  KernelArguments call{};
  const auto at = [&](std::vector<Bytes>& buffers, size_t r) {
    return buffers[r].data() + misalignment_;
  };
  call.send = at(sent_, static_cast<size_t>(rank));
  call.recv = at(received_, static_cast<size_t>(rank));
  call.count = call_.count;
  call.segment = segment;
  call.call = Record();
  for (size_t r = 0; r < sent_.size(); ++r) {
    call.peer_send[r] = at(sent_, r);
    call.peer_recv[r] = at(received_, r);
  }
  const unsigned int blocks = segment < 0 ? 1 : 3;
  ranks.Launch(rank, kernel_.function, call, {.blocks = blocks, .threads = 32});
}

void AddingCall::CopyAll(int rank, const std::vector<BufferCopy>& copies) {
  for (const BufferCopy& copy : copies) {
    FiberScheduler::YieldSometimes();
    const auto peer = static_cast<size_t>(copy.from_rank);
    CopyBytes((copy.is_from_recv ? received_ : sent_)[peer], misalignment_ + copy.from_offset_bytes,
              received_[static_cast<size_t>(rank)], misalignment_ + copy.to_offset_bytes,
              copy.bytes);
  }
}

}  // namespace cotune::cuda::cpu
