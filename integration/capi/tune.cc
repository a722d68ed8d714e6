// Tuning, and saving what was tuned.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/counted.h"
#include "core/base/little_endian.h"
#include "core/database/tuned_database_lock.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/capi/call_arguments.h"
#include "integration/capi/group_state.h"
#include "integration/capi/programs.h"
#include "integration/capi/read_options.h"
#include "integration/database_path.h"
#include "integration/rank_zero_status.h"
#include "integration/tune_run.h"

namespace cotune::capi {
namespace {

constexpr uint64_t kDefaultSizesBytes[] = {1u << 10, 1u << 12, 1u << 14, 1u << 16,
                                           1u << 18, 1u << 20, 1u << 22};

// The values of a bit set, `fallback` when it is empty. kUsage for a bit beyond `last`.
Result<std::vector<int>> Values(uint32_t bits, uint32_t fallback, int last, const char* what) {
  if (bits == 0) bits = fallback;
  if ((bits & 1u) != 0 || (bits >> (last + 1)) != 0) {
    return Fail(ErrorCode::kUsage,
                fmt::format("{} {:#x} has a bit that stands for nothing", what, bits),
                "cotune_tune_options", "", "set bits 1u << the constants of cotune.h");
  }
  std::vector<int> values;
  for (int value = 1; value <= last; ++value) {
    if ((bits & (1u << value)) != 0) values.push_back(value);
  }
  return values;
}

// The program of a node, and what its sizes are.
Result<Program> ProgramOf(const cotune_tune_node& node, Job& job) {
  if (node.program != nullptr) {
    return Program::Bind(node.program->graph,
                         {job.device().kind(), job.world_size(), job.places().ranks_per_host(),
                          node.is_symmetric != 0 ? BufferClass::kSymmetric : BufferClass::kPlain});
  }
  COTUNE_TRY(const Call call,
             MakeCall(node.collective, node.dtype, node.reduction, 0, 0, job.world_size()));
  ProblemClass cls = job.Class(call.collective, call.dtype, call.reduction);
  cls.in_place = node.is_in_place != 0 && node.collective != COTUNE_COLLECTIVE_BROADCAST;
  if (node.is_symmetric != 0) cls.buffer_class = BufferClass::kSymmetric;
  return Program::SingleCollective(cls);
}

// "broadcast f32 3", "program tp_linear 16": a size that is left out.
std::string SizeText(const Program& program, uint64_t size) {
  if (!program.is_single_collective()) {
    return fmt::format("program {} {}", program.graph().name(), size);
  }
  const ProblemClass& cls = program.anchor();
  return fmt::format("{} {} {}", Name(cls.collective), Name(cls.dtype), size);
}

// The sizes that are left out. Each text is listed once, whatever the place and kind of buffers.
struct TooSmall {
  std::vector<std::string> texts;
  bool is_asked = false;  // one of them or more is the caller's, and no default
};

// Adds a node at the sizes at which it moves data. A call of 0 bytes runs nothing, so that its time
// shows nothing about other sizes. A node without any other size is not added.
void AddNode(Program program, std::vector<uint64_t> sizes, bool is_asked,
             std::vector<TuneNode>& nodes, TooSmall& too_small) {
  std::erase_if(sizes, [&](uint64_t size) {
    if (program.ProblemAt(size, 0).bytes() > 0) return false;
    too_small.is_asked = too_small.is_asked || is_asked;
    std::string text = SizeText(program, size);
    std::vector<std::string>& texts = too_small.texts;
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
      texts.push_back(std::move(text));
    }
    return true;
  });
  if (!sizes.empty()) nodes.push_back({std::move(program), std::move(sizes)});
}

// The first few of them: "a, b, and 3 more".
std::string SomeOf(std::vector<std::string> texts) {
  constexpr size_t kShownMax = 4;
  const size_t unnamed = texts.size() - std::min(texts.size(), kShownMax);
  texts.resize(texts.size() - unnamed);
  return fmt::format("{}{}", fmt::join(texts, ", "),
                     unnamed == 0 ? "" : fmt::format(", and {} more", unnamed));
}

// The sizes of a node in bytes.
Result<std::vector<uint64_t>> SizesOf(const cotune_tune_node& node, const Program& program,
                                      const std::vector<uint64_t>& default_sizes) {
  if ((node.sizes == nullptr) != (node.size_count == 0)) {
    return Fail(ErrorCode::kUsage, "sizes and size_count do not fit together", "cotune_tune_node");
  }
  if (node.sizes == nullptr) return default_sizes;
  std::vector<uint64_t> sizes(node.sizes, node.sizes + node.size_count);
  if (node.program == nullptr) return sizes;
  for (uint64_t& each : sizes) {
    const Problem problem = program.ProblemAtRows(each, 0);
    const auto shares = static_cast<uint64_t>(program.group().world_size);
    if (program.graph().has_rows() && each == 0) {
      return Fail(ErrorCode::kUsage, "a program cannot have 0 rows", program.graph().name(), "",
                  "give numbers of rows from 1 on");
    }
    const bool is_whole = !program.graph().needs_whole_shares() || each % shares == 0;
    if (program.graph().has_rows() && (program.RowsAt(problem) != each || !is_whole)) {
      return Fail(ErrorCode::kUsage, fmt::format("{} rows do not fit the program", each),
                  program.graph().name(),
                  is_whole ? "no memory can hold its values"
                           : fmt::format("{} ranks have no equal shares of them", shares));
    }
    each = problem.bytes();
  }
  return sizes;
}

Result<std::vector<TuneNode>> NodesOf(const cotune_tune_options& options, Job& job,
                                      const std::vector<uint64_t>& default_sizes,
                                      TooSmall& too_small) {
  const bool has_others = options.collectives != 0 || options.dtypes != 0 ||
                          options.reduction != 0 || options.is_in_place != 0 ||
                          options.is_symmetric != 0;
  const size_t stride = options.node_stride == 0 ? sizeof(cotune_tune_node) : options.node_stride;
  if (options.nodes == nullptr || options.node_count == 0 || has_others ||
      stride < sizeof(uint32_t)) {
    return Fail(ErrorCode::kUsage,
                has_others ? "nodes are given, and collectives beside them"
                           : "nodes, node_count and node_stride do not fit together",
                "cotune_tune_options", "", "leave one of the two out");
  }
  std::vector<TuneNode> nodes;
  for (size_t i = 0; i < options.node_count; ++i) {
    const auto* at = reinterpret_cast<const char*>(options.nodes) + i * stride;
    COTUNE_TRY(const cotune_tune_node node,
               ReadOptions(reinterpret_cast<const cotune_tune_node*>(at), "cotune_tune_node"));
    COTUNE_TRY(Program program, ProgramOf(node, job));
    COTUNE_TRY(const std::vector<uint64_t> sizes, SizesOf(node, program, default_sizes));
    const bool is_asked = node.sizes != nullptr || options.sizes_bytes != nullptr;
    AddNode(std::move(program), sizes, is_asked, nodes, too_small);
  }
  return nodes;
}

// The database that the options name. "" stands for that of the group, which rank 0 looks for and
// need not find.
void NameDatabase(const char* path, const cotune_group& group, TuneRequest& request) {
  if (path == nullptr) return;
  request.waits_to_save = true;
  request.database_path = path;
  if (!request.database_path.empty()) return;
  request.database_is_optional = true;
  Status made = group.database_place ? MakeFolderOf(*group.database_place)
                                     : Status(Propagate(group.database_place));
  if (made) {
    request.database_path = *group.database_place;
  } else if (group.job().rank() == 0) {
    EmitLine(group.log(), Severity::kWarning,
             "what is tuned is not kept for the next time: " + made.error().ToText());
  }
}

// Tells the caller of each cell, and stops where the caller says so.
class ProgressOfCaller final : public StageObserver {
 public:
  ProgressOfCaller(const cotune_tune_options& options, const std::vector<TuneNode>& nodes)
      : options_(options), nodes_(nodes) {}

  void OnCellStart(int32_t index, int32_t total, const Problem& problem) override {
    if (options_.progress == nullptr) return;
    cell_ = index + 1;
    cells_ = total;
    what_ = TextOf(problem);
    Ask();
  }
  bool StopRequested() override {
    // Other threads, which compile, must not call the caller.
    const bool asks = std::this_thread::get_id() == thread_ && cell_ > 0 && !is_stopped_ &&
                      std::chrono::steady_clock::now() - asked_at_ >= kAskEvery;
    if (asks) Ask();
    return is_stopped_;
  }

 private:
  std::string TextOf(const Problem& problem) const {
    const ProblemClass& cls = problem.cls;
    const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const TuneNode& each) {
      return each.program.anchor().program_digest == cls.program_digest;
    });
    if (cls.program_digest != 0 && node != nodes_.end()) {
      const Program& program = node->program;
      std::string name = "program " + program.graph().name();
      if (!program.graph().has_rows()) return name;
      return fmt::format("{}, {}", name,
                         Counted(static_cast<int64_t>(program.RowsAt(problem)), "row"));
    }
    const std::string reduction =
        cls.reduction == Reduction::kNone ? "" : fmt::format("{} ", Name(cls.reduction));
    return fmt::format("{} {}{}, {}", Name(cls.collective), reduction, Name(cls.dtype),
                       Counted(static_cast<int64_t>(problem.bytes()), "byte"));
  }

  const cotune_tune_options& options_;
  const std::vector<TuneNode>& nodes_;
  // A cell may take many seconds, and the caller may want to stop in it.
  static constexpr std::chrono::milliseconds kAskEvery{250};
  void Ask() {
    if (options_.progress(options_.progress_context, cell_, cells_, what_.c_str()) != 0) {
      is_stopped_ = true;
    }
    asked_at_ = std::chrono::steady_clock::now();
  }

  std::atomic<bool> is_stopped_{false};  // any thread asks
  // The rest is used by the thread of the tune alone.
  const std::thread::id thread_ = std::this_thread::get_id();
  int32_t cell_ = 0;  // from 1; 0: none has begun
  int32_t cells_ = 0;
  std::string what_;
  std::chrono::steady_clock::time_point asked_at_{};
};

// The sizes of nodes that have none of their own, in bytes.
std::vector<uint64_t> DefaultSizesOf(const cotune_tune_options& options,
                                     const TuningSettings& settings) {
  if (options.sizes_bytes != nullptr) {
    return {options.sizes_bytes, options.sizes_bytes + options.size_count};
  }
  const std::vector<uint64_t>& hints = settings.collective_multi_kernel_hints_bytes;
  if (!hints.empty()) return hints;
  return {std::begin(kDefaultSizesBytes), std::end(kDefaultSizesBytes)};
}

Result<TuneRequest> CheckNodes(TuneRequest request, const TooSmall& too_small) {
  if (!request.nodes.empty()) return request;
  return Fail(ErrorCode::kUsage, "no size has an element for every rank", "cotune_tune_options",
              SomeOf(too_small.texts), "give larger sizes");
}

// kUsage if no node has a size that is left.
Result<TuneRequest> RequestOf(const cotune_tune_options& options, Job& job, TooSmall& too_small) {
  constexpr uint32_t kAllFive = 0b111110;
  COTUNE_TRY(const std::vector<int> collectives,
             Values(options.collectives, kAllFive, COTUNE_COLLECTIVE_BROADCAST, "collectives"));
  COTUNE_TRY(const std::vector<int> dtypes,
             Values(options.dtypes, 1u << COTUNE_F32, COTUNE_U8, "dtypes"));
  const int reduction = options.reduction == 0 ? COTUNE_REDUCE_SUM : options.reduction;
  if (reduction < 0 || reduction > COTUNE_REDUCE_AVERAGE) {
    return Fail(ErrorCode::kUsage, fmt::format("there is no reduction {}", reduction),
                "cotune_tune_options", "", "use the constants of cotune.h");
  }
  if ((options.sizes_bytes == nullptr) != (options.size_count == 0)) {
    return Fail(ErrorCode::kUsage, "sizes_bytes and size_count do not fit together",
                "cotune_tune_options");
  }
  const std::vector<uint64_t> sizes = DefaultSizesOf(options, job.settings());
  TuneRequest request;
  request.cotune_version = CotuneVersion();
  if (options.nodes != nullptr || options.node_count > 0) {
    COTUNE_TRY(std::vector<TuneNode> nodes, NodesOf(options, job, sizes, too_small));
    request.nodes = std::move(nodes);
    return CheckNodes(std::move(request), too_small);
  }
  for (int collective : collectives) {
    for (int dtype : dtypes) {
      ProblemClass cls = job.Class(static_cast<Collective>(collective), static_cast<Dtype>(dtype),
                                   static_cast<Reduction>(reduction));
      // The dispatcher knows no broadcast in place: only the root has two buffers.
      cls.in_place = options.is_in_place != 0 && collective != COTUNE_COLLECTIVE_BROADCAST;
      if (options.is_symmetric != 0) cls.buffer_class = BufferClass::kSymmetric;
      COTUNE_TRY(Program program, Program::SingleCollective(cls));
      AddNode(std::move(program), sizes, options.sizes_bytes != nullptr, request.nodes, too_small);
    }
  }
  return CheckNodes(std::move(request), too_small);
}

void WriteReport(const TuneReport& tuned, cotune_tune_report* out) {
  if (out == nullptr || out->struct_size < sizeof(uint32_t)) return;
  const cotune_tune_report report{
      out->struct_size, tuned.outcome.measured_cells, tuned.outcome.known_cells,
      tuned.outcome.skipped_cells + tuned.outcome.forced_cells, tuned.outcome.committed ? 1 : 0};
  std::copy_n(reinterpret_cast<const char*>(&report),
              std::min<size_t>(out->struct_size, sizeof(report)), reinterpret_cast<char*>(out));
}

// Collective: results of the file have the times of rank 0, which alone has the file, on all ranks.
// New ones, of `now_unix_s`, keep the time of each rank's own clock. A rank that does not receive
// the times has lost rank 0; its next call reports that.
void ShareTimes(Job& job, int64_t now_unix_s, std::vector<DatabaseEntry>& entries) {
  std::string times;
  for (const DatabaseEntry& entry : entries) {
    const bool is_new = entry.measured_unix_s == now_unix_s;
    AppendLittleEndian(is_new ? 0 : static_cast<uint64_t>(entry.measured_unix_s), times);
  }
  const Result<std::string> all =
      BroadcastInParts(job.exchange(), job.rank() == 0 ? times : "",
                       DeadlineAfter(job.clock().now_ns(), job.settings().warm_timeout_ns));
  if (!all || all->size() != times.size()) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string_view bytes = std::string_view(*all).substr(i * sizeof(uint64_t));
    const auto of_file_s = static_cast<int64_t>(ReadLittleEndian<uint64_t>(bytes));
    if (of_file_s != 0) entries[i].measured_unix_s = of_file_s;
  }
}

// New results go into the group's database; results that the file had keep the time of its
// measurement, so that cotune_save makes nothing old look new.
void Collect(cotune_group& group, const TuneRequest& request, const TuneReport& report) {
  Job& job = group.job();
  Result<TunedDatabase> stored = TunedDatabase();
  if (job.rank() == 0 && !request.database_path.empty()) {
    stored = TunedDatabase::Load(request.database_path);
  }
  const int64_t now_unix_s = std::time(nullptr);
  std::vector<DatabaseEntry> entries = report.entries;
  for (DatabaseEntry& entry : entries) {
    entry.measured_unix_s = now_unix_s;
    if (!stored) continue;
    const auto known = stored->Find(entry.cell.problem, entry.fingerprint);
    if (known && known->cell == entry.cell) entry = *known;
  }
  ShareTimes(job, now_unix_s, entries);
  for (DatabaseEntry& entry : entries) group.database.Put(std::move(entry));
}

// Gives an error when a tune has measured and no choice of any cell ran.
Status CheckWinners(const TuneReport& report) {
  if (!report.entries.empty() || report.cells_without_winner.empty()) return {};
  return Fail(
      ErrorCode::kEnvironment,
      fmt::format("none of {} cells has a choice that ran", report.cells_without_winner.size()),
      "cotune_tune", report.cells_without_winner.front().winner.error().ToText());
}

// Waits for the calls that were enqueued before, on all ranks, because a tune uses the same
// scratch. `own` says whether this rank can tune. All ranks hear of one that cannot.
Status AwaitIdle(cotune_group& group, Status own) {
  Job& job = group.job();
  if (own) own = job.device().Attach();
  if (own) {
    own = job.device().Synchronize(group.stream,
                                   DeadlineAfter(job.clock().now_ns(), group.call_timeout_ns));
  }
  if (own) own = group.dispatcher->Health();
  COTUNE_TRY(
      const auto all,
      ExchangeRecords(job.exchange(), "idle before tuning", StepRecord<Done>::FromStatus(own), 0,
                      DeadlineAfter(job.clock().now_ns(), job.settings().warm_timeout_ns)));
  if (!own) return own;
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  return {};
}

// The settings of this tune: those of the job, but for what the options say.
Result<TuningSettings> SettingsOf(const cotune_tune_options& options, TuningSettings settings) {
  if (options.budget_ns > 0) settings.budget_ns = options.budget_ns;
  settings.fusion.only_agreeable = options.only_agreeable != 0;
  switch (options.numerics) {
    case COTUNE_NUMERICS_DEFAULT:
      return settings;
    case COTUNE_NUMERICS_ANY:
      settings.numerics = NumericsRule::kAny;
      return settings;
    case COTUNE_NUMERICS_SAME:
      settings.numerics = NumericsRule::kSame;
      return settings;
    default:
      return Fail(ErrorCode::kUsage, fmt::format("there is no numerics {}", options.numerics),
                  "cotune_tune_options", "",
                  "use COTUNE_NUMERICS_ANY, COTUNE_NUMERICS_SAME, or 0 for that of the group");
  }
}

// Winners by any rule may be of several numerics classes; those by the same rule may stay whatever
// comes.
MeasuredWinners BaseOf(const cotune_group& group, NumericsRule before, NumericsRule after) {
  const bool is_narrowed = before == NumericsRule::kAny && after == NumericsRule::kSame;
  return is_narrowed ? MeasuredWinners() : group.winners;
}

// A caller asks for this.
struct TuneOrder {
  cotune_tune_options options{};
  TuningSettings settings;
  TuneRequest request;
};

// kUsage for options that this rank alone finds wrong.
Result<TuneOrder> OrderOf(const cotune_group& group, const cotune_tune_options* given) {
  Job& job = group.job();
  COTUNE_TRY(const cotune_tune_options options, ReadOptions(given, "cotune_tune_options"));
  COTUNE_RETURN_IF_ERROR(
      CheckDuration(options.budget_ns, "budget_ns", "cotune_tune_options", "the setting budget"));
  COTUNE_TRY(TuningSettings settings, SettingsOf(options, job.settings()));
  TooSmall too_small;
  COTUNE_TRY(TuneRequest request, RequestOf(options, job, too_small));
  if (job.rank() == 0 && !too_small.texts.empty()) {
    EmitLine(group.log(), too_small.is_asked ? Severity::kWarning : Severity::kInfo,
             "sizes are left out, since they are less than an element for every rank: " +
                 SomeOf(too_small.texts));
  }
  return TuneOrder{options, settings, std::move(request)};
}

// Runs calls by what the ranks have agreed on.
Status PutInForce(cotune_group& group, const TuneOrder& order, const TuneReport& report) {
  Job& job = group.job();
  if (Status tuned = CheckWinners(report); !tuned) return tuned;
  // Calls that the table has no row for, and parts of programs, follow the rule of the table.
  TuningSettings after = job.settings();
  after.numerics = order.settings.numerics;
  job.set_settings(after);
  // The ranks have agreed on this table, and on no other.
  group.winners = report.outcome.winners;
  group.SetTable(report.outcome.table);
  group.table_text =
      fmt::format("calls run by what this program has tuned: {}",
                  Counted(static_cast<int64_t>(group.winners.size()), "measured size"));
  group.table_severity = Severity::kInfo;
  Collect(group, order.request, report);
  return {};
}

// The failure to save what was tuned. A database that is optional is a warning, but not where a
// rank does not know what became of the others.
Status SaveStatus(const cotune_group& group, const TuneOrder& order, const TuneReport& report) {
  if (!report.save_failure) return {};
  const bool is_tolerated =
      order.request.database_is_optional && !LeavesDoubt(report.save_failure->code);
  if (!is_tolerated) return tl::make_unexpected(*report.save_failure);
  if (group.job().rank() == 0) {
    EmitLine(group.log(), Severity::kWarning, report.save_failure->ToText());
  }
  return {};
}

Status Tune(cotune_group& group, const cotune_tune_options* given, cotune_tune_report* out) {
  Job& job = group.job();
  Result<TuneOrder> order = OrderOf(group, given);
  // Tuning uses the group on a stream of its own.
  const Status own = order ? Status() : Status(Propagate(order));
  if (Status idle = AwaitIdle(group, own); !idle) return idle;
  TuneRequest& request = order->request;
  const TuningSettings before = job.settings();
  NameDatabase(order->options.database_path, group, request);
  request.base = BaseOf(group, before.numerics, order->settings.numerics);
  ProgressOfCaller progress(order->options, request.nodes);
  request.listener = &progress;
  job.set_settings(order->settings);
  const Result<TuneReport> report = RunTune(job, request);
  job.set_settings(before);
  COTUNE_RETURN_IF_ERROR(report);
  WriteReport(*report, out);
  const Status tuned = report->outcome.committed ? PutInForce(group, *order, *report) : Status();
  const Status saved = SaveStatus(group, *order, *report);
  const bool leaves_doubt = !saved && LeavesDoubt(saved.error().code);
  return tuned || leaves_doubt ? saved : tuned;
}

Status Write(const cotune_group& group, const std::string& path) {
  COTUNE_TRY(const DatabaseLock lock, DatabaseLock::Acquire(path));
  TunedDatabase merged;
  if (access(path.c_str(), F_OK) == 0) {
    COTUNE_TRY(TunedDatabase present, TunedDatabase::Load(path));
    merged = std::move(present);
  }
  merged.Merge(group.database);
  return merged.Save(path);
}

Status Save(cotune_group& group, const char* path) {
  Job& job = group.job();
  Status own;
  if (path == nullptr) {
    own = Fail(ErrorCode::kUsage, "the path is NULL", "cotune_save");
  } else if (job.rank() == 0) {
    own = Write(group, path);
  }
  return ShareRankZeroStatus(job, own, "save database");
}

}  // namespace
}  // namespace cotune::capi

extern "C" {

cotune_result cotune_tune(cotune_group* group, const cotune_tune_options* options,
                          cotune_tune_report* report) {
  return cotune::capi::Guard(
      group, [&](cotune_group& self) { return cotune::capi::Tune(self, options, report); },
      cotune::capi::StopInDoubt);
}

cotune_result cotune_save(cotune_group* group, const char* database_path) {
  return cotune::capi::Guard(
      group, [&](cotune_group& self) { return cotune::capi::Save(self, database_path); },
      cotune::capi::StopInDoubt);
}

}  // extern "C"
