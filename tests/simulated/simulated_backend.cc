#include "tests/simulated/simulated_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/problem/program_evaluator.h"

namespace cotune {
namespace {

// What a rank says at a meeting whose launch or prepare fails there, as an aborted group does.
constexpr char kFailed[] = "failed";

class SimulatedGroup final : public BackendGroup {
 public:
  SimulatedGroup(SimulatedBackend& backend, std::string name)
      : backend_(backend), name_(std::move(name)) {}
  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t deadline_ns) override;
  Status RegisterMemory(void* /*data*/, uint64_t /*bytes*/, int64_t /*deadline_ns*/) override {
    return Fail(ErrorCode::kUnsupported, "it takes no memory of peers");
  }
  void UnregisterMemory(void* /*data*/) override {}
  Status Health() override { return {}; }
  void Abort() override {}

  SimulatedBackend& backend() { return backend_; }
  // The values of all ranks at the next meeting of this name.
  Result<std::vector<std::string>> Meet(const std::string& what, std::string value,
                                        int64_t deadline_ns) {
    const int number = meetings_[what]++;
    auto all = backend_.rank().Meet(fmt::format("{} {} {}", name_, what, number), std::move(value),
                                    deadline_ns);
    if (!all) return all;
    const bool failed =
        std::any_of(all->begin(), all->end(), [](const auto& each) { return each == kFailed; });
    if (failed) return Fail(ErrorCode::kAborted, "a peer failed", what);
    return all;
  }

 private:
  SimulatedBackend& backend_;
  const std::string name_;
  std::map<std::string, int> meetings_;  // how often each name was met at
};

// The local operations of a region; 0: a collective alone.
size_t OperationsOf(const Program& program) {
  return program.graph().nodes().size() - program.graph().collectives().size();
}

// The name at which ranks that run the same choice meet.
std::string CallName(const SimulatedChoice& choice, const Program& program,
                     const Problem& problem) {
  std::string name = fmt::format("{} {}", choice.name, ToText(problem));
  if (OperationsOf(program) > 0) name += fmt::format(" in {:016x}", program.digest());
  return name;
}

class SimulatedPlan final : public Plan {
 public:
  SimulatedPlan(SimulatedGroup& group, const SimulatedChoice& choice, Program program,
                const Problem& problem)
      : group_(group),
        choice_(choice),
        program_(std::move(program)),
        problem_(problem),
        operations_(OperationsOf(program_)),
        name_("launch " + CallName(choice, program_, problem)) {}

  Status Launch(const LaunchArguments& arguments) override;
  Result<bool> Progress(int64_t /*until_ns*/) override { return true; }

 private:
  // In the call that begins now.
  Defect DefectHere() {
    const bool is_old = group_.backend().CountLaunch(name_) >= choice_.right_calls;
    const bool is_here = choice_.IsDefectiveFor(problem_.cls.collective, operations_ > 0) &&
                         choice_.defect_rank == group_.backend().rank().rank();
    return is_here && is_old ? choice_.defect : Defect::kNone;
  }
  static void Spoil(std::byte* value, uint64_t bytes, Dtype dtype) {
    if (bytes == 0) return;
    // In the highest byte of an element, where no bound hides it.
    const uint64_t element_bytes = SizeBytes(dtype);
    const uint64_t element = bytes / element_bytes / 2;
    value[(element + 1) * element_bytes - 1] ^= std::byte{0x41};
  }
  // The bytes of all inputs, one after the other.
  std::string Sent(const LaunchArguments& arguments) const;
  // The inputs of a rank, from what it has sent.
  std::vector<std::vector<std::byte>> Received(const std::string& sent) const;
  void* OutputAt(const LaunchArguments& arguments, size_t i) const {
    return operations_ == 0 ? arguments.recv : arguments.outputs[i];
  }
  uint64_t InputBytes(size_t i) const {
    return program_.BytesOf(static_cast<ValueIndex>(i), program_.RowsAt(problem_));
  }
  int64_t CostNs() const {
    const int64_t operations = static_cast<int64_t>(operations_);
    return (operations == 0 ? choice_.base_ns
                            : choice_.fused_base_ns + choice_.operation_ns * operations) +
           choice_.ns_per_byte * static_cast<int64_t>(problem_.bytes());
  }

  SimulatedGroup& group_;
  const SimulatedChoice& choice_;
  const Program program_;
  const Problem problem_;
  const size_t operations_;
  const std::string name_;
};

std::string SimulatedPlan::Sent(const LaunchArguments& arguments) const {
  if (operations_ == 0) return {static_cast<const char*>(arguments.send), InputBytes(0)};
  std::string sent;
  for (size_t i = 0; i < arguments.inputs.size(); ++i) {
    sent.append(static_cast<const char*>(arguments.inputs[i]), InputBytes(i));
  }
  return sent;
}

std::vector<std::vector<std::byte>> SimulatedPlan::Received(const std::string& sent) const {
  std::vector<std::vector<std::byte>> inputs;
  const auto* next = reinterpret_cast<const std::byte*>(sent.data());
  for (size_t i = 0; i < program_.graph().inputs().size(); ++i) {
    inputs.emplace_back(next, next + InputBytes(i));
    next += InputBytes(i);
  }
  return inputs;
}

Status SimulatedPlan::Launch(const LaunchArguments& arguments) {
  SimulatedRank& rank = group_.backend().rank();
  const Defect defect = DefectHere();
  if (defect == Defect::kHangs) {
    rank.WorkUntil(arguments.deadline_ns);
    return Fail(ErrorCode::kDeadline, "it hangs by its script");
  }
  const bool fails = defect == Defect::kFails;
  const auto all = group_.Meet(name_, fails ? kFailed : Sent(arguments), arguments.deadline_ns);
  if (fails) return Fail(ErrorCode::kInternal, "it fails by its script");
  COTUNE_RETURN_IF_ERROR(all);
  const int64_t cost_ns = CostNs();
  const auto jitter = static_cast<int64_t>(group_.backend().NextRandom() %
                                           static_cast<uint64_t>(choice_.jitter_percent + 1));
  rank.Work(cost_ns + cost_ns * jitter / 100);
  std::vector<std::vector<std::vector<std::byte>>> inputs;
  for (const std::string& each : *all) inputs.push_back(Received(each));
  COTUNE_TRY(const auto values, EvaluateProgramOnRank(program_.graph(), program_.RowsAt(problem_),
                                                      rank.world_size(), rank.rank(), inputs));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::vector<std::byte> result = Encode(*values[i]);
    auto* const output = static_cast<std::byte*>(OutputAt(arguments, i));
    if (!result.empty()) std::memcpy(output, result.data(), result.size());
    if (defect == Defect::kWrong) Spoil(output, result.size(), values[i]->type.dtype);
  }
  if (defect == Defect::kFailsAlone) {
    return Fail(ErrorCode::kInternal, "it fails alone by its script");
  }
  return {};
}

Result<std::unique_ptr<Plan>> SimulatedGroup::Prepare(const Program& program,
                                                      const Problem& problem, const Choice& choice,
                                                      int64_t deadline_ns) {
  const std::vector<SimulatedChoice>& choices = backend_.choices();
  const auto scripted = std::find_if(choices.begin(), choices.end(), [&](const auto& each) {
    return each.name == choice.id.choice_name();
  });
  if (scripted == choices.end()) return Fail(ErrorCode::kUnsupported, "there is no such choice");
  SimulatedRank& rank = backend_.rank();
  rank.Work(scripted->prepare_ns);
  const bool is_refused =
      scripted->defect == Defect::kRefused &&
      scripted->IsDefectiveFor(problem.cls.collective, OperationsOf(program) > 0) &&
      scripted->defect_rank == rank.rank();
  if (choice.prepare_is_collective) {
    const auto all = Meet("prepare " + CallName(*scripted, program, problem),
                          is_refused ? kFailed : "", deadline_ns);
    if (!all && !is_refused) return Propagate(all);
  }
  if (is_refused) return Fail(ErrorCode::kUnsupported, "it is refused by its script");
  return std::make_unique<SimulatedPlan>(*this, *scripted, program, problem);
}

class SimulatedCalls final : public TimedCalls {
 public:
  SimulatedCalls(SimulatedRank& rank, bool aligns_ranks, Plan& plan,
                 std::span<const LaunchArguments> arguments, int32_t repetitions)
      : rank_(rank),
        aligns_ranks_(aligns_ranks),
        plan_(plan),
        arguments_(arguments.begin(), arguments.end()),
        repetitions_(repetitions) {}
  Result<TimedSpan> Run(int64_t start_ns, int64_t deadline_ns) override {
    if (!aligns_ranks_ && start_ns != 0) rank_.WorkUntil(start_ns);
    const int64_t begin_ns = rank_.now_ns();
    const int64_t worked_ns = rank_.worked_ns();
    // Once with each of the arguments; the other calls only take their time.
    const auto launches = std::min(arguments_.size(), static_cast<size_t>(repetitions_));
    for (size_t i = 0; i < launches; ++i) {
      LaunchArguments arguments = arguments_[i];
      arguments.deadline_ns = deadline_ns;  // theirs is of the sample that they were made for
      COTUNE_RETURN_IF_ERROR(plan_.Run(arguments, rank_));
    }
    const int64_t call_ns = (rank_.worked_ns() - worked_ns) / static_cast<int64_t>(launches);
    rank_.Work(call_ns * (repetitions_ - static_cast<int64_t>(launches)));
    if (aligns_ranks_) return TimedSpan{0, rank_.worked_ns() - worked_ns};
    return TimedSpan{begin_ns, rank_.now_ns()};
  }

 private:
  SimulatedRank& rank_;
  const bool aligns_ranks_;
  Plan& plan_;
  const std::vector<LaunchArguments> arguments_;
  const int32_t repetitions_;
};

class SimulatedDevice final : public Device {
 public:
  SimulatedDevice(SimulatedRank& rank, bool aligns_ranks, uint64_t cache_bytes)
      : rank_(rank), aligns_ranks_(aligns_ranks), cache_bytes_(cache_bytes) {}
  MemoryKind kind() const override { return MemoryKind::kHost; }
  int32_t ordinal() const override { return -1; }
  void* stream() const override { return nullptr; }
  Status Attach() override { return {}; }
  Status OrderStreams(void* /*before*/, void* /*after*/) override { return {}; }
  Status Synchronize(void* /*stream*/, int64_t /*deadline_ns*/) override { return {}; }
  std::string measuring_mode() const override { return "eager"; }
  std::optional<uint64_t> AvailableBytes() const override { return std::nullopt; }
  Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) override {
    return memory_->Allocate(bytes);
  }
  Result<std::unique_ptr<DeviceBuffer>> AllocateShareable(uint64_t bytes) override {
    return memory_->Allocate(bytes);
  }
  std::unique_ptr<DeviceBuffer> Part(DeviceBuffer& whole, uint64_t offset,
                                     uint64_t bytes) override {
    return memory_->Part(whole, offset, bytes);
  }
  Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) override {
    return memory_->Write(buffer, data);
  }
  Status Read(DeviceBuffer& buffer, std::span<std::byte> data) override {
    return memory_->Read(buffer, data);
  }
  Status Fill(DeviceBuffer& buffer, uint64_t offset, uint64_t bytes, std::byte value) override {
    return memory_->Fill(buffer, offset, bytes, value);
  }
  Status Copy(DeviceBuffer& to, DeviceBuffer& from) override { return memory_->Copy(to, from); }
  Result<bool> Equal(DeviceBuffer& left, DeviceBuffer& right) override {
    return memory_->Equal(left, right);
  }
  uint64_t cache_bytes() const override { return cache_bytes_; }
  std::optional<DeviceClocks> ReadClocks() override { return std::nullopt; }
  bool aligns_ranks() const override { return aligns_ranks_; }
  Result<TimedSpan> RunOnce(Plan& plan, const LaunchArguments& arguments) override {
    return SimulatedCalls(rank_, aligns_ranks_, plan, {&arguments, 1}, 1)
        .Run(0, arguments.deadline_ns);
  }
  Result<std::unique_ptr<TimedCalls>> Prepare(Plan& plan,
                                              std::span<const LaunchArguments> arguments,
                                              int32_t repetitions) override {
    return std::make_unique<SimulatedCalls>(rank_, aligns_ranks_, plan, arguments, repetitions);
  }

 private:
  SimulatedRank& rank_;
  const bool aligns_ranks_;
  const uint64_t cache_bytes_;
  std::unique_ptr<Device> memory_ = MakeHostDevice(rank_);
};

}  // namespace

std::string_view Name(Defect defect) {
  static constexpr std::string_view kNames[] = {"none",        "refused", "fails",
                                                "fails alone", "hangs",   "wrong"};
  return kNames[static_cast<size_t>(defect)];
}

ChoiceList SimulatedBackend::ListChoices(const Program& program, const Problem& /*problem*/) const {
  ChoiceList list;
  for (const SimulatedChoice& scripted : choices_) {
    if (OperationsOf(program) > scripted.operations_max) {
      list.refusals.push_back({fmt::format("{}/{}", name_, scripted.name),
                               fmt::format("fuses at most {}", scripted.operations_max)});
      continue;
    }
    list.choices.push_back({.id = *ChoiceId::FromBackend(name_, scripted.name),
                            .is_default = scripted.is_default,
                            .prepare_is_collective = scripted.prepare_is_collective});
  }
  return list;
}

Result<std::unique_ptr<BackendGroup>> SimulatedBackend::CreateGroup(
    const GroupParameters& parameters) {
  return std::make_unique<SimulatedGroup>(*this, parameters.name);
}

std::unique_ptr<Device> MakeSimulatedDevice(SimulatedRank& rank, bool aligns_ranks,
                                            uint64_t cache_bytes) {
  return std::make_unique<SimulatedDevice>(rank, aligns_ranks, cache_bytes);
}

}  // namespace cotune
