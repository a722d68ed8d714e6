#include "tests/gpu/api_rank.h"

#include <sys/prctl.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <thread>
#include <utility>

#include "core/problem/choice_id.h"
#include "fmt/format.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kFindingsPrinted = 20;
constexpr int64_t kCaseCount = 10'000;

ErrorCode CodeOf(cotune_result result) {
  switch (result) {
    case COTUNE_ERROR_RANK_LOST:
      return ErrorCode::kRankLost;
    case COTUNE_ERROR_DEADLINE:
      return ErrorCode::kDeadline;
    case COTUNE_ERROR_ABORTED:
      return ErrorCode::kAborted;
    case COTUNE_ERROR_USAGE:
      return ErrorCode::kUsage;
    case COTUNE_ERROR_WRONG_RESULT:
      return ErrorCode::kWrongResult;
    case COTUNE_ERROR_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case COTUNE_ERROR_DATABASE:
      return ErrorCode::kDatabase;
    case COTUNE_ERROR_ENVIRONMENT:
      return ErrorCode::kEnvironment;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void PrintNow(const char* event, const char* text) {
  std::printf("%s at_ns=%lld %s\n", event, static_cast<long long>(NowNs()), text);
  std::fflush(stdout);
}

Status StatusOf(cotune_group* group, cotune_result result, std::string_view call) {
  if (result == COTUNE_SUCCESS) return {};
  return Fail(CodeOf(result), cotune_last_error(group), std::string(call));
}

Result<nlohmann::json> Explain(cotune_group* group, const Problem& problem) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = static_cast<cotune_collective>(problem.cls.collective);
  call.dtype = static_cast<cotune_dtype>(problem.cls.dtype);
  call.reduction = static_cast<cotune_reduction>(problem.cls.reduction);
  call.count = problem.count;
  call.root = problem.cls.root;
  std::string text(256 << 10, '\0');
  COTUNE_RETURN_IF_ERROR(StatusOf(
      group, cotune_explain_json(group, &call, text.data(), text.size(), nullptr), "explain_json"));
  auto json = nlohmann::json::parse(text.c_str(), nullptr, false);
  if (json.is_discarded()) return Fail(ErrorCode::kWrongResult, "explain gives no JSON");
  return json;
}

Result<std::unique_ptr<ApiRank>> ApiRank::Join(const Flags& flags) {
  // Whoever started this rank ends it by going.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::unique_ptr<ApiRank> rank(new ApiRank());
  rank->deadline_ns_ = flags.Number("deadline-ms", 20'000) * 1'000'000;
  const std::string plugins = flags.Text("plugins", "");
  const std::string backends = flags.Text("backends", "");
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.memory =
      flags.Text("memory", "cuda") == "host" ? COTUNE_GROUP_MEMORY_HOST : COTUNE_GROUP_MEMORY_CUDA;
  options.plugin_path = plugins.empty() ? nullptr : plugins.c_str();
  options.backends = backends.empty() ? nullptr : backends.c_str();
  options.call_timeout_ns = rank->deadline_ns_;
  rank->forced_choice_ = flags.Text("choice", "");
  COTUNE_TRY(const Collective collective, ParseCollective(flags.Text("collective", "all_reduce")));
  rank->case_collective_ = collective;
  rank->case_count_ = static_cast<uint64_t>(flags.Number("count", kCaseCount));
  rank->is_case_symmetric_ = flags.Number("symmetric", 0) != 0;
  // Tests do not hang on what this machine has tuned.
  options.ignores_database = rank->forced_choice_.empty() ? 1 : 0;
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_group* group = nullptr;
  if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
    return Fail(CodeOf(error.result), error.text, "cotune_group_create");
  }
  rank->group_.reset(group);
  rank->rank_ = cotune_group_rank(group);
  COTUNE_TRY(auto memory, CallMemory::Open(cotune_group_device(group)));
  rank->memory_ = std::move(memory);
  COTUNE_TRY(void* const stream, rank->memory_->MakeStream());
  rank->stream_ = stream;
  if (rank->memory_->is_cuda()) {
    COTUNE_RETURN_IF_ERROR(StatusOf(group, cotune_group_set_stream(group, stream), "set_stream"));
  }
  if (rank->forced_choice_.empty()) return rank;
  COTUNE_RETURN_IF_ERROR(rank->CheckForced(group, rank->forced_choice_));
  std::printf("forced %s\n", rank->forced_choice_.c_str());
  return rank;
}

Problem ApiRank::CaseProblem(const cotune_group* group) const {
  return ProblemFor(group, case_collective_, Dtype::kBf16, Reduction::kSum, case_count_);
}

Result<void*> ApiRank::Allocate(cotune_group* group, uint64_t bytes) {
  if (!is_case_symmetric_) return memory_->Allocate(bytes);
  void* data = nullptr;
  COTUNE_RETURN_IF_ERROR(
      StatusOf(group, cotune_memory_allocate(group, bytes, &data), "memory_allocate"));
  return data;
}

Status ApiRank::CheckForced(cotune_group* group, const std::string& choice) const {
  if (cotune_table_digest(group) == 0) {
    return Fail(ErrorCode::kDatabase, "the group has no table", "", choice);
  }
  if (is_case_symmetric_) return {};
  COTUNE_TRY(const nlohmann::json explained, Explain(group, CaseProblem(group)));
  if (explained.value("choice", "") == choice && explained.value("source", "") == "table")
    return {};
  return Fail(ErrorCode::kDatabase, "another choice runs", choice, explained.dump().substr(0, 400));
}

Status ApiRank::NoteBackends(cotune_group* group, const Problem& problem) {
  COTUNE_TRY(const nlohmann::json explained, Explain(group, problem));
  COTUNE_RETURN_IF_ERROR(NoteBackends(explained.value("choice", "")));
  const nlohmann::json in_graphs = explained.value("choice_in_graphs", nlohmann::json());
  return NoteBackends(in_graphs.is_string() ? in_graphs.get<std::string>() : "");
}

Status ApiRank::NoteBackends(const std::string& choice) {
  if (choice.empty()) return {};
  COTUNE_TRY(const ChoiceId id, ChoiceId::Parse(choice));
  for (const ChoiceId& step : id.steps()) ++calls_by_backend_[std::string(step.backend())];
  return {};
}

Result<ApiRank::Subgroup> ApiRank::Split(const char* name, const std::vector<int32_t>& ranks) {
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_group* group = nullptr;
  if (cotune_group_split(group_.get(), name, ranks.data(), ranks.size(), &group, &error) !=
      COTUNE_SUCCESS) {
    return Fail(CodeOf(error.result), error.text, "cotune_group_split");
  }
  Subgroup made{Group(group), nullptr};
  COTUNE_TRY(void* const stream, memory_->MakeStream());
  made.stream = stream;
  if (memory_->is_cuda()) {
    COTUNE_RETURN_IF_ERROR(StatusOf(group, cotune_group_set_stream(group, stream), "set_stream"));
  }
  return made;
}

Status ApiRank::Call(cotune_group* group, const Problem& problem, const void* send, void* recv) {
  const ProblemClass& cls = problem.cls;
  const auto dtype = static_cast<cotune_dtype>(cls.dtype);
  const auto reduction = static_cast<cotune_reduction>(cls.reduction);
  cotune_result result = COTUNE_ERROR_USAGE;
  switch (cls.collective) {
    case Collective::kAllReduce:
      result = cotune_all_reduce(group, send, recv, problem.count, dtype, reduction);
      break;
    case Collective::kAllGather:
      result = cotune_all_gather(group, send, recv, problem.count, dtype);
      break;
    case Collective::kReduceScatter:
      result = cotune_reduce_scatter(group, send, recv, problem.count, dtype, reduction);
      break;
    case Collective::kAllToAll:
      result = cotune_all_to_all(group, send, recv, problem.count, dtype);
      break;
    case Collective::kBroadcast:
      result = cotune_broadcast(group, send, recv, problem.count, dtype, cls.root);
      break;
  }
  return StatusOf(group, result, Name(cls.collective));
}

Status ApiRank::Await(cotune_group* group, void* stream) {
  // Later than the kernels' own deadline, and before the limit that a fault has.
  const int64_t until_ns = NowNs() + deadline_ns_ * 7 / 4;
  while (true) {
    COTUNE_TRY(const bool done, memory_->IsDone(stream));
    if (Status s = StatusOf(group, cotune_group_check(group), "check"); !s) return s;
    if (done) return {};
    if (NowNs() > until_ns) {
      return Fail(ErrorCode::kDeadline, "neither the stream nor the group came to an end");
    }
    std::this_thread::yield();
  }
}

Status ApiRank::BlockAndCheck(cotune_group* group, void* stream) {
  // A stream that an error has ended is synchronized all the same.
  if (Status s = memory_->Synchronize(stream); !s) return s;
  return StatusOf(group, cotune_group_check(group), "check");
}

void ApiRank::Expect(const Problem& problem, std::string_view what,
                     std::span<const std::byte> right, std::span<const std::byte> answer) {
  const Mismatches found = Compare(problem, Agreement::kBits, right, answer);
  Note(fmt::format("{}: {}", ToText(problem), what),
       found.count == 0 ? "" : fmt::format("{} elements; {}", found.count, found.first));
}

void ApiRank::Note(std::string_view what, std::string_view wrong) {
  ++calls_;
  if (wrong.empty() || wrong_++ >= kFindingsPrinted) return;
  std::fprintf(stderr, "%s\n", fmt::format("wrong: rank {}: {}: {}", rank(), what, wrong).c_str());
}

Problem ProblemFor(const cotune_group* group, Collective collective, Dtype dtype,
                   Reduction reduction, uint64_t count, int root) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.dtype = dtype;
  problem.cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
  problem.cls.world_size = problem.cls.ranks_per_node = cotune_group_size(group);
  problem.cls.root = root;
  problem.count = count;
  return problem;
}

}  // namespace cotune::gputest
