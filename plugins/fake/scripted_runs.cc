#include "plugins/fake/scripted_runs.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "plugins/fake/scripted_backend.h"
#include "plugins/fake/scripted_choices.h"

namespace cotune::fake {
namespace {

using sdk::Fail;

// Waits until a time, or fails at the deadline.
Result<void> WaitUntil(const cotune_host_t& host, int64_t end_ns, int64_t deadline_ns) {
  const auto left_ns = [&] { return std::min(end_ns, deadline_ns) - host.now_ns(host.context); };
  for (int64_t left = left_ns(); left > 0; left = left_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }
  if (end_ns <= deadline_ns) return {};
  return Fail(COTUNE_DEADLINE_EXCEEDED, "scripted: the part takes longer than its deadline");
}

}  // namespace

Result<void> FakePlan::Launch(const cotune_launch_t& launch) {
  if (auto failure = group_.Health()) return tl::make_unexpected(*failure);
  if (operation_) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
  const int32_t rank = group_.state().rank;
  if (++calls_ >= choice_.launch_fails_at && choice_.launch_fails_on == rank) {
    return group_.Break({COTUNE_INTERNAL, 0, -1, "scripted: launch fails"});
  }
  const Misbehaviour misbehaviour{static_cast<int64_t>(CostUs(choice_, problem_.bytes) * 1000),
                                  choice_.hangs_on == rank, choice_.names_late,
                                  choice_.wrong_on == rank, choice_.overruns_on == rank};
  operation_.emplace(group_.state(), problem_, launch, misbehaviour);
  return {};
}

Result<bool> FakePlan::Progress(int64_t until_ns) {
  if (!operation_) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
  Result<bool> done = operation_->Advance(until_ns);
  if (!done || *done) operation_.reset();
  if (!done) return group_.Break(done.error());
  return done;
}

Result<void> FakeRegion::Launch(const cotune_program_launch_t& launch) {
  if (auto failure = group_.Health()) return tl::make_unexpected(*failure);
  if (run_) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
  if (++calls_ >= choice_.launch_fails_at && choice_.launch_fails_on == group_.state().rank) {
    return group_.Break({COTUNE_INTERNAL, 0, -1, "scripted: launch fails"});
  }
  run_.emplace(program_, launch.inputs);
  outputs_.assign(launch.outputs, launch.outputs + program_.outputs.size());
  deadline_ns_ = launch.deadline_ns;
  Result<bool> begun = Advance();
  if (!begun) return group_.Break(begun.error());
  return {};
}

Result<bool> FakeRegion::Advance() {
  // The scripted time is that of the first collective.
  const bool is_first = !operation_;
  COTUNE_TRY(const sdk::ProgramNode* const collective, run_->Advance());
  if (collective == nullptr) {
    run_->WriteOutputs(outputs_.data());
    Spoil();
    return true;
  }
  const cotune_problem_t problem = ToAbi(*collective->collective);
  cotune_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.send = run_->operand();
  launch.recv = run_->value();
  launch.deadline_ns = deadline_ns_;
  const int32_t rank = group_.state().rank;
  const double cost_us =
      choice_.fuse_cost_us >= 0 ? choice_.fuse_cost_us : CostUs(choice_, problem.bytes);
  const Misbehaviour misbehaviour{
      .least_ns = is_first ? static_cast<int64_t>(cost_us * 1000) : 0,
      .hangs = choice_.region_hangs_on == rank || choice_.hangs_on == rank,
      .names_late = choice_.names_late,
      .is_wrong = choice_.wrong_on == rank};
  operation_.emplace(group_.state(), problem, launch, misbehaviour);
  return false;
}

Result<bool> FakeRegion::Progress(int64_t until_ns) {
  if (!run_) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
  Result<bool> done = false;
  while (true) {
    done = operation_->Advance(until_ns);
    if (done && *done) done = Advance();
    // The next collective takes its turn, unless there is none.
    if (!done || *done || group_.state().now_ns() >= until_ns) break;
  }
  if (done && !*done) return false;
  operation_.reset();
  run_.reset();
  if (!done) return group_.Break(done.error());
  return true;
}

// As the script has it on this rank.
void FakeRegion::Spoil() const {
  const sdk::Value& value = program_.values[static_cast<size_t>(program_.outputs.back())];
  auto* const to = static_cast<std::byte*>(outputs_.back());
  const uint64_t bytes = value.bytes();
  const int32_t rank = group_.state().rank;
  // The highest byte changes, so that no tolerance hides it.
  if (choice_.wrong_epilogue_on == rank && bytes > 0) to[bytes - 1] ^= std::byte{0x41};
  if (choice_.overruns_on == rank) to[bytes] ^= std::byte{0xFF};
  if (choice_.bits_differ_on != rank) return;
  // The first element that is not zero: a unit in the last place of zero may be beyond its bound.
  const uint64_t element = sdk::ElementBytes(value.dtype);
  for (uint64_t at = 0; at < bytes; at += element) {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (std::all_of(to + at, to + at + element, is_zero)) continue;
    to[at] ^= std::byte{1};
    return;
  }
}

Result<void> FakePart::Launch(const cotune_program_launch_t& launch) {
  const ScriptedParts& script = *backend_.script.parts;
  if (++calls_ >= script.launch_fails_at && backend_.IsAt(script.launch_fails_on)) {
    return Fail(COTUNE_INTERNAL, "scripted: the launch of a part fails");
  }
  const int64_t started_ns = backend_.host.now_ns(backend_.host.context);
  if (auto done = RunPart(program_, launch.inputs, launch.outputs); !done) return done;
  if (backend_.IsAt(script.wrong_on)) {
    const uint64_t bytes = program_.values[static_cast<size_t>(program_.outputs.back())].bytes();
    auto* to = static_cast<std::byte*>(launch.outputs[program_.outputs.size() - 1]);
    // The highest byte changes, so that no tolerance hides it.
    if (bytes > 0) to[bytes - 1] ^= std::byte{0x41};
  }
  const int64_t end_ns = started_ns + static_cast<int64_t>(script.cost_us * 1000);
  return WaitUntil(backend_.host, end_ns, launch.deadline_ns);
}

}  // namespace cotune::fake
