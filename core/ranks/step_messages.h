// The messages of the ranks in the steps of a tune: one type for each exchange. Every
// time in them is a duration: processes may have clocks that do not agree.
#ifndef COTUNE_CORE_RANKS_STEP_MESSAGES_H_
#define COTUNE_CORE_RANKS_STEP_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/event_sink.h"
#include "core/base/status.h"

namespace cotune {

// Why the work of a rank before a step failed.
struct StepFailure {
  ErrorCode code = ErrorCode::kInternal;
  std::string text{};  // cut to kTextBytesMax

  static constexpr size_t kTextBytesMax = 1000;
  bool operator==(const StepFailure&) const = default;
};

// Each type names its step for errors. A default value is what a rank sends that has failed before
// it had more to tell.

// The rank has done its part of a step that carries nothing else.
struct Done {
  static constexpr std::string_view kName = "done";
  bool operator==(const Done&) const = default;
};

// The host that a rank is on; ranks with equal identities share it.
struct HostOfRank {
  static constexpr std::string_view kName = "host of a rank";
  std::string identity{};
  bool operator==(const HostOfRank&) const = default;
};

// The backends that a rank has, by name, version, build and settings.
struct BackendList {
  static constexpr std::string_view kName = "list of backends";
  int64_t deadline_left_ns = 0;  // of this rank, for making their groups
  std::vector<std::string> identities{};
  std::vector<std::string> part_identities{};  // of those that run parts of programs only
  bool operator==(const BackendList&) const = default;
};

// The group of a backend that a rank has made.
struct GroupOfRank {
  static constexpr std::string_view kName = "group of a rank";
  std::vector<std::string> connections{};  // how it sends to each rank; as BackendGroup has them
  bool operator==(const GroupOfRank&) const = default;
};

struct MemoryToRegister {
  static constexpr std::string_view kName = "memory to register";
  uint64_t bytes = 0;
  bool operator==(const MemoryToRegister&) const = default;
};

struct GpuOfRank {
  static constexpr std::string_view kName = "GPU of a rank";
  uint64_t cache_bytes = 0;
  std::string uuid{};
  bool may_share = false;  // with other ranks
  bool operator==(const GpuOfRank&) const = default;
};

struct TableWish {
  static constexpr std::string_view kName = "wish for a tuned table";
  bool wants_database = false;
  bool operator==(const TableWish&) const = default;
};

struct ProcessorsOfRank {
  static constexpr std::string_view kName = "processors of a rank";
  std::string usable{};  // as UsableProcessors() gives them
  bool operator==(const ProcessorsOfRank&) const = default;
};

// Digests of what a rank was given for a tune: of the fields that must be equal, and of the nodes
// with their sizes, both in their order.
struct TuneDigests {
  static constexpr std::string_view kName = "digests of a tune";
  std::vector<uint64_t> fields{};
  std::vector<uint64_t> nodes{};
  bool operator==(const TuneDigests&) const = default;
};

// One field that differs; without a name: the rank has none there.
struct FieldText {
  static constexpr std::string_view kName = "field";
  std::string name{};
  std::string value{};
  bool operator==(const FieldText&) const = default;
};

// One node that differs, in words; "": the rank has none there.
struct NodeText {
  static constexpr std::string_view kName = "node";
  std::string text{};
  bool operator==(const NodeText&) const = default;
};

// Digests of the choice lists of all problems, in their order.
struct ChoiceListDigests {
  static constexpr std::string_view kName = "digests of choice lists";
  std::vector<uint64_t> digests{};
  bool operator==(const ChoiceListDigests&) const = default;
};

// The choices of one problem whose lists differ.
struct ChoiceTexts {
  static constexpr std::string_view kName = "choice list";
  std::vector<std::string> choices{};
  bool operator==(const ChoiceTexts&) const = default;
};

// Winners that a rank could not make ready.
struct WinnerFailures {
  static constexpr std::string_view kName = "failures of winners";
  struct Failure {
    uint64_t cell = 0;        // its place among those that were asked of
    bool is_refusal = false;  // false: any other failure
    std::string reason{};
    bool operator==(const Failure&) const = default;
  };
  std::vector<Failure> failures{};
  bool operator==(const WinnerFailures&) const = default;
};

struct CellBuffers {
  static constexpr std::string_view kName = "buffers of a cell";
  bool is_asked_to_stop = false;
  int32_t affordable_copies = 1;
  bool knows_clocks = false;  // of its device
  bool operator==(const CellBuffers&) const = default;
};

struct PreparedChoices {
  static constexpr std::string_view kName = "prepared choices";
  std::vector<std::string> reasons{};  // why each choice failed; "": it is ready
  bool operator==(const PreparedChoices&) const = default;
};

// A rank's timed calls: from the job's begin to their start, which every rank knows on a clock of
// its own, and how long they took.
struct RankSpan {
  int64_t start_elapsed_ns = 0;
  int64_t duration_ns = 0;
  bool operator==(const RankSpan&) const = default;
};

struct CheckedCall {
  static constexpr std::string_view kName = "checked call";
  RankSpan span{};
  uint64_t wrong_elements = 0;
  std::string mistake{};  // "": the call was right
  // One for each output that is replicated by dataflow, if the call was right.
  std::vector<uint64_t> replicated_hashes{};
  bool operator==(const CheckedCall&) const = default;
};

struct WarmCalls {
  static constexpr std::string_view kName = "warm calls";
  RankSpan span{};
  bool operator==(const WarmCalls&) const = default;
};

// The samples that a rank took before the step, since its last release, in the order that all ranks
// have. Empty: there was none to take, or the rank has failed before the first.
struct TakenSamples {
  static constexpr std::string_view kName = "samples";
  struct Sample {
    RankSpan span{};
    std::optional<StepFailure> failure{};
    bool operator==(const Sample&) const = default;
  };
  std::vector<Sample> samples{};
  bool operator==(const TakenSamples&) const = default;
};

struct ClockReading {
  static constexpr std::string_view kName = "reading of clocks";
  int32_t sm_mhz = 0;  // 0: not known
  std::vector<std::string> throttle_reasons{};
  bool operator==(const ClockReading&) const = default;
};

// The use of processors while a cell was measured; core/base/processor_times.h explains the times.
struct ProcessorUse {
  static constexpr std::string_view kName = "use of processors";
  std::string usable{};     // as UsableProcessors() gives them
  int64_t own_ns = 0;       // CPU time of this process
  int64_t busy_ns = 0;      // CPU time of everything on these processors
  int64_t capacity_ns = 0;  // busy and idle time of these processors; 0: not known
  bool operator==(const ProcessorUse&) const = default;
};

// What a rank has recorded of a tune.
struct TraceOfRank {
  static constexpr std::string_view kName = "trace of a rank";
  struct Entry {
    EventType type = EventType::kMark;  // kBegin: a whole span
    SpanKind kind = SpanKind::kStage;
    uint32_t lane = 0;    // 0: the thread that tunes
    uint32_t name = 0;    // of texts
    uint32_t node = 0;    // of texts
    uint32_t choice = 0;  // of texts
    int64_t time_ns = 0;  // since the job's begin
    int64_t value = 0;    // the extent of a span in ns, or what a counter counts
    bool operator==(const Entry&) const = default;
  };
  std::vector<std::string> texts{};
  std::vector<Entry> entries{};  // in the order of their times
  uint64_t dropped = 0;          // entries that were too many to keep
  bool operator==(const TraceOfRank&) const = default;
};

using StepMessage =
    std::variant<Done, HostOfRank, BackendList, GroupOfRank, MemoryToRegister, GpuOfRank, TableWish,
                 ProcessorsOfRank, TuneDigests, FieldText, NodeText, ChoiceListDigests, ChoiceTexts,
                 WinnerFailures, CellBuffers, PreparedChoices, CheckedCall, WarmCalls, TakenSamples,
                 ClockReading, ProcessorUse, TraceOfRank>;

}  // namespace cotune

#endif  // COTUNE_CORE_RANKS_STEP_MESSAGES_H_
