#include "core/testing/scripted_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "core/problem/program_evaluator.h"
#include "fmt/format.h"

namespace cotune {

std::vector<std::string> HubForTest::Gather(int rank, const std::string& channel,
                                            std::string value) {
  std::unique_lock lock(mutex_);
  Meeting& meeting = meetings_[channel];
  const uint64_t generation = meeting.generation;
  meeting.values[rank] = std::move(value);
  if (static_cast<int>(meeting.values.size()) == world_size_) {
    meeting.released.clear();
    for (auto& [each, text] : meeting.values) meeting.released.push_back(std::move(text));
    meeting.values.clear();
    ++meeting.generation;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return meeting.generation != generation || lost_rank_ >= 0; });
  if (meeting.generation == generation) return {};
  return meeting.released;
}

void HubForTest::Break(int lost_rank) {
  const std::lock_guard lock(mutex_);
  lost_rank_ = lost_rank;
  changed_.notify_all();
}

int HubForTest::lost_rank() {
  const std::lock_guard lock(mutex_);
  return lost_rank_;
}

int64_t JobBeginForTest(int rank) {
  constexpr int64_t kDayNs = 86'400'000'000'000;
  return (rank + 3) * kDayNs;
}

namespace {

// From the job's begin to the start of every timed span.
constexpr int64_t kStartForTestNs = 1;

class ExchangeForTest final : public RankExchange {
 public:
  ExchangeForTest(HubForTest& hub, int rank) : hub_(hub), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return hub_.world_size(); }
  int job_rank(int rank) const override {
    return hub_.job_ranks.empty() ? rank : hub_.job_ranks[static_cast<size_t>(rank)];
  }

  void GiveUp(const Error&) override { hub_.Break(rank_); }
  Result<StepResult> Step(std::string_view step, std::string_view record, int64_t start_delay_ns,
                          int64_t deadline_ns) override {
    if (hub_.on_step) elapsed_ns_ += hub_.on_step(rank_, step, deadline_ns);
    // As the control channel: such a rank leaves, and its peers wait for it.
    if (record.size() > kRecordBytesMax || step.size() > kStepNameBytesMax) {
      hub_.Break(rank_);
      return Fail(ErrorCode::kInternal,
                  fmt::format("a step of {} bytes with a name of {}", record.size(), step.size()));
    }
    // The name goes along, so that ranks in different steps are seen.
    const auto all = hub_.Gather(rank_, "step", fmt::format("{}\n{}", step, record));
    if (all.empty()) return Lost();
    StepResult result;
    for (const std::string& text : all) {
      const size_t end = text.find('\n');
      if (text.substr(0, end) != step) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("'{}' meets '{}'", step, text.substr(0, end)));
      }
      result.records.push_back(text.substr(end + 1));
    }
    result.start_elapsed_ns = start_delay_ns > 0 ? kStartForTestNs : 0;
    result.job_begin_ns = JobBeginForTest(rank_);
    result.elapsed_ns = elapsed_ns_ += 1'000'000;
    return result;
  }

  Result<PreSyncResult> PreSync(const AgreedFields& fields, int64_t, int64_t) override {
    std::string text;
    for (const auto& [name, value] : fields) text += fmt::format("{}={}\n", name, value);
    const auto all = hub_.Gather(rank_, "pre-sync", text);
    if (all.empty()) return Lost();
    if (rank_ == 0) ++hub_.pre_syncs;
    PreSyncResult result;
    result.late_ranks.assign(hub_.late_ranks.begin(), hub_.late_ranks.end());
    result.met = hub_.late_ranks.empty();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      const auto [first, second] =
          std::mismatch(all[rank].begin(), all[rank].end(), all[0].begin());
      const size_t line = all[rank].rfind('\n', first - all[rank].begin());
      return Fail(ErrorCode::kDisagreement,
                  all[rank].substr(line + 1, all[rank].find('\n', line + 1) - line - 1), "", "", "",
                  {static_cast<int>(rank)});
    }
    return result;
  }

  Result<AgreementOutcome> Agree(std::string_view proposal, const Accept& accept,
                                 int64_t) override {
    const auto all = hub_.Gather(rank_, "propose", std::string(proposal));
    if (all.empty()) return Lost();
    const auto votes = hub_.Gather(rank_, "vote", accept(all[0]) ? "yes" : "no");
    if (votes.empty()) return Lost();
    const bool everybody =
        std::all_of(votes.begin(), votes.end(), [](auto& v) { return v == "yes"; });
    return everybody ? AgreementOutcome::kCommitted : AgreementOutcome::kDeclined;
  }

  Result<std::string> Broadcast(std::string_view bytes, int64_t) override {
    if (bytes.size() > kProposalBytesMax) {
      hub_.Break(rank_);
      return Fail(ErrorCode::kInternal, fmt::format("a broadcast of {} bytes", bytes.size()));
    }
    const auto all = hub_.Gather(rank_, "broadcast", std::string(bytes));
    if (all.empty()) return Lost();
    return all[0];
  }

  Result<std::unique_ptr<RankExchange>> Subgroup(std::string_view, std::span<const int>,
                                                 int64_t) override {
    return Fail(ErrorCode::kUnsupported, "tests of the pipeline have one group");
  }
  Status StorePut(std::string_view, std::string_view) override {
    return Fail(ErrorCode::kUnsupported, "tests of the pipeline have no store");
  }
  Result<std::string> StoreGet(std::string_view, int64_t) override {
    return Fail(ErrorCode::kUnsupported, "tests of the pipeline have no store");
  }
  Status StoreDelete(std::string_view) override {
    return Fail(ErrorCode::kUnsupported, "tests of the pipeline have no store");
  }

 private:
  tl::unexpected<Error> Lost() {
    const int rank = hub_.lost_rank();
    return Fail(ErrorCode::kRankLost, fmt::format("rank {} was lost", rank), "", "", "", {rank});
  }
  HubForTest& hub_;
  int rank_;
  int64_t elapsed_ns_ = 0;
};

// What the collectives that this thread has launched cost, for plans of several.
thread_local int64_t launched_cost_ns = 0;

std::vector<std::byte> BytesAt(const void* data, uint64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

// The first element that is not zero gets the next bits.
void AddUlp(void* value, uint64_t bytes, uint64_t element_bytes) {
  auto* const begin = static_cast<unsigned char*>(value);
  for (uint64_t at = 0; at < bytes; at += element_bytes) {
    const bool is_zero = std::all_of(begin + at, begin + at + element_bytes,
                                     [](unsigned char byte) { return byte == 0; });
    if (is_zero) continue;
    begin[at] ^= 1;
    return;
  }
}

// The outputs of a part that get other bits.
enum class UlpIn : uint8_t { kNone, kReplicated, kOthers };

// Of rank 0, whose inputs all ranks have: a part is the same everywhere.
class PartForTest final : public Plan {
 public:
  PartForTest(const PartRequest& request, UlpIn ulp_in)
      : part_(request.part),
        rows_(request.rows),
        world_size_(request.world_size),
        ulp_in_(ulp_in) {}
  Status Launch(const LaunchArguments& arguments) override {
    std::vector<std::vector<std::byte>> inputs;
    for (size_t i = 0; i < part_.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      inputs.push_back(BytesAt(arguments.inputs[i], BytesOf(value)));
    }
    COTUNE_TRY(const auto evaluated,
               EvaluateProgram(part_, rows_, world_size_,
                               std::vector<std::vector<std::vector<std::byte>>>(
                                   static_cast<size_t>(world_size_), inputs)));
    for (size_t i = 0; i < part_.outputs().size(); ++i) {
      const std::vector<std::byte> bytes = Encode(evaluated[0][i]);
      if (!bytes.empty()) std::memcpy(arguments.outputs[i], bytes.data(), bytes.size());
      const ValueIndex value = part_.outputs()[i].value;
      const UlpIn here = part_.is_replicated(value) ? UlpIn::kReplicated : UlpIn::kOthers;
      if (here != ulp_in_) continue;
      AddUlp(arguments.outputs[i], bytes.size(), SizeBytes(part_.type(value).dtype));
    }
    return {};
  }
  Result<bool> Progress(int64_t) override { return true; }

 private:
  uint64_t BytesOf(ValueIndex value) const {
    const ValueType& type = part_.type(value);
    uint64_t rows = type.rows == Rows::kOne ? 1 : rows_;
    if (type.rows == Rows::kShare) rows /= static_cast<uint64_t>(world_size_);
    return rows * type.columns * SizeBytes(type.dtype);
  }
  const ProgramGraph part_;
  const uint64_t rows_;
  const int32_t world_size_;
  const UlpIn ulp_in_;
};

float ReadF32(const std::string& bytes, uint64_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(float), sizeof(float));
  return value;
}

}  // namespace

std::unique_ptr<RankExchange> MakeExchangeForTest(HubForTest& hub, int rank) {
  return std::make_unique<ExchangeForTest>(hub, rank);
}

// Runs all_reduce sum of f32 by gathering everybody's input.
class GroupForTest final : public BackendGroup {
 public:
  GroupForTest(BackendForTest& backend, std::string name)
      : backend_(backend), name_(std::move(name)) {}
  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t) override;
  Status RegisterMemory(void* data, uint64_t bytes, int64_t) override {
    if (backend_.register_fails_on_rank == rank()) {
      return Fail(backend_.register_error, "scripted refusal of memory");
    }
    registered_.emplace(data, bytes);
    backend_.registered_bytes += bytes;
    return {};
  }
  void UnregisterMemory(void* data) override {
    backend_.registered_bytes -= registered_.at(data);
    registered_.erase(data);
  }
  Status Health() override { return {}; }
  void Abort() override { aborted = true; }

  ~GroupForTest() override {
    for (const auto& [data, bytes] : registered_) backend_.registered_bytes -= bytes;
  }

  // Whether all of it lies in one registered range.
  bool Reaches(const void* data, uint64_t bytes) const {
    const auto* begin = static_cast<const char*>(data);
    return std::any_of(registered_.begin(), registered_.end(), [&](const auto& range) {
      const auto* first = static_cast<const char*>(range.first);
      return begin >= first && begin + bytes <= first + range.second;
    });
  }

  std::atomic<bool> aborted = false;
  HubForTest& hub() { return backend_.hub_; }
  int rank() const { return backend_.rank_; }
  const std::string& name() const { return name_; }
  void NoteCall(const void* recv) { backend_.recv_buffers.insert(recv); }

 private:
  BackendForTest& backend_;
  std::string name_;
  std::mutex mutex_;
  std::map<void*, uint64_t> registered_;
};

namespace {

class PlanForTest final : public Plan {
 public:
  PlanForTest(GroupForTest& group, const Problem& problem, const ScriptedChoice& choice)
      : group_(group), problem_(problem), choice_(choice) {}

  Status Launch(const LaunchArguments& arguments) override {
    const uint64_t bytes = problem_.send_elements() * SizeBytes(problem_.cls.dtype);
    launched_cost_ns += choice_.cost_ns(problem_.bytes()) + choice_.noise_ns * (launches_++ % 5);
    const bool is_symmetric = problem_.cls.buffer_class == BufferClass::kSymmetric;
    const bool fails_now = choice_.launch_fails != nullptr && choice_.launch_fails();
    const bool fails = fails_now || choice_.launch_fails_on_rank == group_.rank() ||
                       (is_symmetric && !(group_.Reaches(arguments.send, bytes) &&
                                          group_.Reaches(arguments.recv, bytes)));
    // A rank that fails tells the others, as an aborted group does: by a length that no data has.
    std::string send = fails ? std::string(bytes + 1, '\0')
                             : std::string(static_cast<const char*>(arguments.send), bytes);
    const auto all = group_.hub().Gather(group_.rank(), group_.name(), std::move(send));
    if (all.empty()) return Fail(ErrorCode::kAborted, "the hub is broken");
    if (fails) return Fail(ErrorCode::kInternal, "scripted launch failure");
    for (const std::string& other : all) {
      if (other.size() != bytes) return Fail(ErrorCode::kAborted, "a peer failed");
    }
    group_.NoteCall(arguments.recv);
    if (first_recv_ == nullptr) first_recv_ = arguments.recv;
    void* const recv = choice_.keeps_first_buffer ? first_recv_ : arguments.recv;
    const bool is_sum_of_f32 = problem_.cls.collective == Collective::kAllReduce &&
                               problem_.cls.reduction == Reduction::kSum &&
                               problem_.cls.dtype == Dtype::kF32;
    if (is_sum_of_f32) {
      Sum(all, static_cast<float*>(recv));
    } else if (Status evaluated = Evaluate(all, recv); !evaluated) {
      return evaluated;
    }
    const uint64_t recv_bytes = problem_.recv_elements() * SizeBytes(problem_.cls.dtype);
    if (choice_.wrong_on_rank == group_.rank() && recv_bytes > 0) Spoil(recv, recv_bytes);
    if (choice_.ulp_on_rank == group_.rank()) {
      AddUlp(recv, recv_bytes, SizeBytes(problem_.cls.dtype));
    }
    if (choice_.overruns_on_rank == group_.rank()) static_cast<char*>(recv)[recv_bytes] = 0;
    return {};
  }
  Result<bool> Progress(int64_t) override { return true; }

  int64_t NextCostNs(bool is_cold) {
    int64_t extra_ns = calls_ < choice_.first_calls ? choice_.first_extra_ns : 0;
    if (is_cold) extra_ns += choice_.cold_extra_ns;
    return choice_.cost_ns(problem_.bytes()) + extra_ns + choice_.noise_ns * (calls_++ % 5);
  }
  // Of the next sample with a planned start.
  int64_t NextLatenessNs() {
    const bool is_late = choice_.late_rank == group_.rank() && planned_++ < choice_.late_samples;
    return is_late ? choice_.late_by_ns : 0;
  }

 private:
  void Sum(const std::vector<std::string>& all, float* recv) const {
    for (uint64_t i = 0; i < problem_.count; ++i) {
      float sum = 0;
      for (const std::string& other : all) sum += ReadF32(other, i);
      recv[i] = sum;
    }
  }
  Status Evaluate(const std::vector<std::string>& all, void* recv) const {
    COTUNE_TRY(const Program program, Program::SingleCollective(problem_.cls));
    std::vector<std::vector<std::vector<std::byte>>> inputs;
    for (const std::string& each : all) inputs.push_back({BytesAt(each.data(), each.size())});
    COTUNE_TRY(const auto evaluated, EvaluateProgram(program.graph(), program.RowsAt(problem_),
                                                     problem_.cls.world_size, inputs));
    const auto rank = static_cast<size_t>(group_.rank());
    const std::vector<std::byte> bytes = Encode(evaluated[rank][0]);
    if (!bytes.empty()) std::memcpy(recv, bytes.data(), bytes.size());
    return {};
  }
  // One element: in its highest byte, where no bound hides it.
  void Spoil(void* recv, uint64_t bytes) const {
    const uint64_t element_bytes = SizeBytes(problem_.cls.dtype);
    const uint64_t element = bytes / element_bytes / 2;
    static_cast<char*>(recv)[(element + 1) * element_bytes - 1] ^= 0x41;
  }

  GroupForTest& group_;
  Problem problem_;
  ScriptedChoice choice_;
  int64_t calls_ = 0;
  int64_t launches_ = 0;
  int64_t planned_ = 0;
  void* first_recv_ = nullptr;
};

// Runs a region by gathering everybody's inputs.
class RegionPlanForTest final : public Plan {
 public:
  RegionPlanForTest(GroupForTest& group, Program program, const Problem& problem,
                    const ScriptedChoice& choice)
      : group_(group), program_(std::move(program)), problem_(problem), choice_(choice) {}

  Status Launch(const LaunchArguments& arguments) override {
    const ProgramGraph& graph = program_.graph();
    launched_cost_ns +=
        choice_.fused_cost_ns(problem_.bytes(), graph.nodes().size() - graph.collectives().size());
    const uint64_t rows = program_.RowsAt(problem_);
    std::string sent;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      sent.append(static_cast<const char*>(arguments.inputs[i]),
                  program_.BytesOf(static_cast<ValueIndex>(i), rows));
    }
    const auto all = group_.hub().Gather(group_.rank(), group_.name(), std::move(sent));
    if (all.empty()) return Fail(ErrorCode::kAborted, "the hub is broken");
    std::vector<std::vector<std::vector<std::byte>>> inputs;
    for (const std::string& each : all) {
      std::vector<std::vector<std::byte>>& of_rank = inputs.emplace_back();
      const char* next = each.data();
      for (size_t i = 0; i < graph.inputs().size(); ++i) {
        const uint64_t bytes = program_.BytesOf(static_cast<ValueIndex>(i), rows);
        of_rank.push_back(BytesAt(next, bytes));
        next += bytes;
      }
    }
    COTUNE_TRY(const auto evaluated,
               EvaluateProgram(graph, rows, program_.group().world_size, inputs));
    const auto rank = static_cast<size_t>(group_.rank());
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const std::vector<std::byte> bytes = Encode(evaluated[rank][i]);
      if (!bytes.empty()) std::memcpy(arguments.outputs[i], bytes.data(), bytes.size());
    }
    return {};
  }
  Result<bool> Progress(int64_t) override { return true; }

 private:
  GroupForTest& group_;
  const Program program_;
  const Problem problem_;
  const ScriptedChoice choice_;
};

class CallsForTest final : public TimedCalls {
 public:
  CallsForTest(Plan& plan, std::span<const LaunchArguments> arguments, int32_t repetitions,
               int64_t job_begin_ns)
      : plan_(plan),
        arguments_(arguments.begin(), arguments.end()),
        repetitions_(repetitions),
        begin_ns_(job_begin_ns + kStartForTestNs) {}
  // Once with each of the arguments that the repetitions come to.
  Result<TimedSpan> Run(int64_t start_ns, int64_t) override {
    if (start_ns != 0 && start_ns < begin_ns_) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("told to start at {}, before {}", start_ns, begin_ns_));
    }
    launched_cost_ns = 0;
    int64_t launches = 0;
    for (size_t i = 0; i < arguments_.size() && i < static_cast<size_t>(repetitions_); ++i) {
      COTUNE_RETURN_IF_ERROR(plan_.Run(arguments_[i], clock_));
      ++launches;
    }
    auto* const single = dynamic_cast<PlanForTest*>(&plan_);
    const int64_t cost_ns =
        single != nullptr ? single->NextCostNs(arguments_.size() > 1) : launched_cost_ns / launches;
    const int64_t late_ns = single != nullptr && start_ns != 0 ? single->NextLatenessNs() : 0;
    const int64_t begins_ns = std::max(start_ns, begin_ns_) + late_ns;
    return TimedSpan{begins_ns, begins_ns + cost_ns * repetitions_};
  }

 private:
  Plan& plan_;
  std::vector<LaunchArguments> arguments_;
  int32_t repetitions_;
  int64_t begin_ns_;
  MonotonicClock clock_;
};

// Measures by the script; everything else is host memory.
class DeviceForTest final : public Device {
 public:
  explicit DeviceForTest(const DeviceScript& script) : script_(script) {}
  std::optional<uint64_t> AvailableBytes() const override { return script_.available_bytes; }
  Status Attach() override { return {}; }
  Status OrderStreams(void* /*before*/, void* /*after*/) override { return {}; }
  Status Synchronize(void* /*stream*/, int64_t /*deadline_ns*/) override { return {}; }
  MemoryKind kind() const override { return MemoryKind::kHost; }
  int32_t ordinal() const override { return -1; }
  std::string measuring_mode() const override { return "eager"; }
  Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) override {
    return host_->Allocate(bytes);
  }
  // Its ranks are threads: any memory of one is reached by the others.
  Result<std::unique_ptr<DeviceBuffer>> AllocateShareable(uint64_t bytes) override {
    return host_->Allocate(bytes);
  }
  std::unique_ptr<DeviceBuffer> Part(DeviceBuffer& whole, uint64_t offset,
                                     uint64_t bytes) override {
    return host_->Part(whole, offset, bytes);
  }
  Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) override {
    return host_->Write(buffer, data);
  }
  Status Read(DeviceBuffer& buffer, std::span<std::byte> data) override {
    return host_->Read(buffer, data);
  }
  void* stream() const override { return nullptr; }
  Status Fill(DeviceBuffer& buffer, uint64_t offset, uint64_t bytes, std::byte value) override {
    return host_->Fill(buffer, offset, bytes, value);
  }
  Status Copy(DeviceBuffer& to, DeviceBuffer& from) override { return host_->Copy(to, from); }
  Result<bool> Equal(DeviceBuffer& left, DeviceBuffer& right) override {
    return host_->Equal(left, right);
  }
  uint64_t cache_bytes() const override { return script_.cache_bytes; }
  std::optional<DeviceClocks> ReadClocks() override {
    if (script_.clocks.empty()) return std::nullopt;
    return script_.clocks[std::min(clock_reads_++, script_.clocks.size() - 1)];
  }
  bool aligns_ranks() const override { return false; }
  Result<TimedSpan> RunOnce(Plan& plan, const LaunchArguments& arguments) override {
    return CallsForTest(plan, {&arguments, 1}, 1, script_.job_begin_ns)
        .Run(0, arguments.deadline_ns);
  }
  Result<std::unique_ptr<TimedCalls>> Prepare(Plan& plan,
                                              std::span<const LaunchArguments> arguments,
                                              int32_t repetitions) override {
    return std::make_unique<CallsForTest>(plan, arguments, repetitions, script_.job_begin_ns);
  }

 private:
  MonotonicClock clock_;
  std::unique_ptr<Device> host_ = MakeHostDevice(clock_);
  const DeviceScript script_;
  size_t clock_reads_ = 0;
};

}  // namespace

Result<std::unique_ptr<Plan>> GroupForTest::Prepare(const Program& program, const Problem& problem,
                                                    const Choice& choice, int64_t) {
  if (backend_.on_prepare) backend_.on_prepare();
  const std::lock_guard lock(mutex_);
  ++backend_.plans_prepared;
  for (const ScriptedChoice& scripted : backend_.choices_) {
    if (scripted.name != choice.id.choice_name()) continue;
    if (scripted.prepare_fails_on_rank == rank()) {
      return Fail(ErrorCode::kUnsupported, scripted.prepare_failure);
    }
    if (program.is_single_collective()) {
      return std::make_unique<PlanForTest>(*this, problem, scripted);
    }
    if (scripted.fused_cost_ns == nullptr) break;
    backend_.roundings_of_regions.insert(program.group().rounds_values);
    return std::make_unique<RegionPlanForTest>(*this, program, problem, scripted);
  }
  return Fail(ErrorCode::kUnsupported, "no such choice");
}

ChoiceList BackendForTest::ListChoices(const Program& program, const Problem&) const {
  ++lists_made;
  ChoiceList list;
  for (const ScriptedChoice& scripted : choices_) {
    const ChoiceId id = *ChoiceId::FromBackend(name_, scripted.name);
    if (!program.is_single_collective() && scripted.fused_cost_ns == nullptr) {
      list.refusals.push_back({id.text(), "it fuses nothing"});
      continue;
    }
    if (!scripted.refused.empty()) {
      list.refusals.push_back({id.text(), scripted.refused});
      continue;
    }
    if (scripted.keeps_values_wide && program.group().rounds_values) {
      list.refusals.push_back({id.text(), "it keeps values wide"});
      continue;
    }
    Choice choice{.id = id, .is_default = scripted.is_default};
    choice.is_reproducible = scripted.is_reproducible;
    choice.numerics = scripted.numerics;
    choice.cost_us = scripted.cost_us;
    list.choices.push_back(std::move(choice));
  }
  return list;
}

Result<std::unique_ptr<Plan>> BackendForTest::PreparePart(const PartRequest& request,
                                                          int64_t /*deadline_ns*/) {
  UlpIn ulp_in = UlpIn::kNone;
  if (part_ulp_on_rank == rank_) {
    ulp_in = part_ulp_is_in_replicated ? UlpIn::kReplicated : UlpIn::kOthers;
  }
  return std::make_unique<PartForTest>(request, ulp_in);
}

Result<std::unique_ptr<BackendGroup>> BackendForTest::CreateGroup(
    const GroupParameters& parameters) {
  ++groups_created;
  return std::make_unique<GroupForTest>(*this, parameters.name);
}

std::unique_ptr<Device> MakeDeviceForTest(const DeviceScript& script) {
  return std::make_unique<DeviceForTest>(script);
}

}  // namespace cotune
