// The table of a group from a tuned database: when the group is created, and by cotune_load.
#include <unistd.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/counted.h"
#include "core/choice/winner_check.h"
#include "core/database/tuned_database.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/capi/group_state.h"
#include "integration/missing_database.h"
#include "integration/rank_zero_status.h"

namespace cotune::capi {
namespace {

int64_t DeadlineOf(const Job& job) {
  return DeadlineAfter(job.clock().now_ns(), job.settings().warm_timeout_ns);
}

// Why no entry of the file counts for a group of this size: the first reason that there is, because
// a reader of the log reads no further.
Error NoEntryError(const TunedDatabase& database, int world_size, const Fingerprint& here,
                   const std::string& path) {
  std::set<int32_t> other_sizes;
  std::optional<Miss> nearest;
  bool has_empty_call = false;
  for (const DatabaseRow& row : database.rows()) {
    if (row.problem.bytes() == 0) {
      has_empty_call = true;
      continue;
    }
    if (row.problem.cls.world_size != world_size) {
      other_sizes.insert(row.problem.cls.world_size);
      continue;
    }
    if (nearest && nearest->reason != MissReason::kMachineDiffers) continue;
    if (std::optional<Miss> miss = WhyNotValid(*row.fingerprint, *row.winner, here))
      nearest = std::move(miss);
  }
  Error error{ErrorCode::kDatabase, "", path, "", "tune here", {}};
  const auto ranks = [](int count) {
    return fmt::format("{} rank{}", count, count == 1 ? "" : "s");
  };
  if (nearest) {
    error.what = fmt::format("what was tuned for {} is not valid here: {}", ranks(world_size),
                             nearest->detail);
    if (nearest->reason == MissReason::kBackendVersionDiffers) {
      error.next_step =
          "tune here, or give the settings, backends and libraries that it was tuned with";
    }
    if (nearest->reason == MissReason::kBackendBuildDiffers) {
      error.next_step = "tune here: a plugin that was rebuilt may be faster, slower or wrong";
    }
    if (nearest->reason == MissReason::kConnectionsDiffer) {
      error.next_step = "tune here: over other connections other choices may win";
    }
  } else if (!other_sizes.empty()) {
    error.what = fmt::format("nothing is tuned for {}, only for groups of {}", ranks(world_size),
                             fmt::join(other_sizes, ", "));
    error.next_step = "tune on " + ranks(world_size);
  } else if (has_empty_call) {
    error.what = "all entries are for calls of 0 bytes, which show nothing about other sizes";
  } else {
    error.what = database.empty() ? "the database has no entries"
                                  : "no entry names a winner whose backend took part";
  }
  return error;
}

// Reads the file and merges it into what the group has; for rank 0. kDatabase when no entry of the
// file is valid here.
Result<TunedDatabase> ReadAndMerge(const cotune_group& group, const std::string& path) {
  const Job& job = group.job();
  const Result<TunedDatabase> read = TunedDatabase::Load(path);
  if (!read) return tl::make_unexpected(ExplainMissing(read.error(), path));
  const TunedDatabase& loaded = *read;
  const int world_size = job.world_size();
  if (loaded.Winners(world_size, job.places().ranks_per_host(), job.fingerprint()).empty()) {
    return tl::make_unexpected(NoEntryError(loaded, world_size, job.fingerprint(), path));
  }
  TunedDatabase merged = group.database;
  merged.Merge(loaded);
  return merged;
}

// Collective. Every rank checks what rank 0's `database` says for the group, comes to the same
// table by itself, and accepts only that one. On all ranks or on none.
Status UseDatabase(cotune_group& group, const TunedDatabase& database) {
  Job& job = group.job();
  std::string own;
  if (job.rank() == 0) {
    const int world_size = job.world_size();
    own =
        database.Winners(world_size, job.places().ranks_per_host(), job.fingerprint()).Serialize();
  }
  COTUNE_TRY(const std::string bytes, BroadcastInParts(job.exchange(), own, DeadlineOf(job)));
  COTUNE_TRY(MeasuredWinners winners, MeasuredWinners::Parse(bytes));
  COTUNE_TRY(
      const std::vector<std::string> refused,
      CheckMeasuredWinners(job.exchange(), job.groups(),
                           job.Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum),
                           job.topology_digest(), job.settings().precompile_threads, job.clock(),
                           job.settings().warm_timeout_ns, &job.watchdog(), winners));
  COTUNE_TRY(DispatchTable table, winners.BuildTable());
  const std::string proposal = table.Serialize();
  COTUNE_TRY(const AgreementOutcome agreed,
             job.exchange().Agree(
                 job.rank() == 0 ? proposal : "",
                 [&](std::string_view other) { return other == proposal; }, DeadlineOf(job)));
  if (agreed == AgreementOutcome::kDeclined) {
    return Fail(ErrorCode::kDisagreement, "a rank declined the table of rank 0", "load database",
                "the ranks make different tables from the same entries",
                "run the same build on every rank");
  }
  if (job.rank() == 0) {
    for (const std::string& reason : refused) {
      EmitLine(group.log(), Severity::kWarning,
               "an entry of the tuned database is left out: " + reason);
    }
  }
  group.winners = std::move(winners);
  group.SetTable(std::move(table));
  return {};
}

void SetTableText(cotune_group& group, const std::string& path) {
  group.table_text =
      fmt::format("calls run by the tuned database {}: {} for {}", path,
                  Counted(static_cast<int64_t>(group.winners.size()), "measured size"),
                  Counted(group.job().world_size(), "rank"));
  group.table_severity = Severity::kInfo;
}

Status Load(cotune_group& group, const char* path) {
  Job& job = group.job();
  Result<TunedDatabase> read = TunedDatabase();
  std::string place;
  if (job.rank() == 0) {
    const Result<std::string> asked = path != nullptr ? std::string(path) : group.database_place;
    read = asked ? ReadAndMerge(group, *asked) : Propagate(asked);
    if (asked) place = *asked;
  }
  const Status own = read ? Status{} : Status(Propagate(read));
  if (Status shared = ShareRankZeroStatus(job, own, "load database"); !shared) return shared;
  if (Status used = UseDatabase(group, *read); !used) return used;
  if (job.rank() == 0) group.database = std::move(*read);
  SetTableText(group, place);
  return {};
}

// The database that rank 0 found for a new group.
struct Found {
  Status status;            // success: `database` can be used
  bool is_missing = false;  // there is no file, which is as good as any state of a machine
  TunedDatabase database;
};

Found LookFor(const cotune_group& group) {
  Found found;
  if (!group.database_place) {
    found.status = Propagate(group.database_place);
    found.is_missing = true;
    return found;
  }
  Result<TunedDatabase> read = ReadAndMerge(group, *group.database_place);
  if (read) {
    found.database = std::move(*read);
  } else {
    found.is_missing = !group.names_database && read.error().code == ErrorCode::kEnvironment;
    found.status = Propagate(read);
  }
  return found;
}

// Groups of one process may tune while it creates others: only a tune of another process is
// reported.
std::string TuneOfOtherProcess(const std::string& path) {
  std::string text = RunningTuneText(path, "used");
  return text.starts_with(fmt::format("process {} ", getpid())) ? "" : text;
}

}  // namespace

Status LoadAtCreation(cotune_group& group, bool is_split) {
  Job& job = group.job();
  Found found;
  if (job.rank() == 0 && group.loads_database) found = LookFor(group);
  // Which rank wants a database, and whether rank 0 has one: the same answer for all of them.
  auto record = StepRecord<TableWish>::FromStatus(found.status);
  record.message.wants_database = group.loads_database;
  COTUNE_TRY(const auto all,
             ExchangeRecords(job.exchange(), "table at creation", record, 0, DeadlineOf(job)));
  bool all_want = true;
  for (const auto& other : all.records) all_want = all_want && other.message.wants_database;
  group.table_severity = Severity::kInfo;
  if (!all_want) {
    group.table_text =
        "calls run the default choices: the program, or the setting load_database, wants no tuned "
        "database";
    return {};
  }
  Status used = found.status;
  if (!all.records[0].failure) used = UseDatabase(group, found.database);
  if (used && !all.records[0].failure) {
    if (job.rank() != 0) return {};
    group.database = std::move(found.database);
    SetTableText(group, *group.database_place);
    const std::string running_tune = TuneOfOtherProcess(*group.database_place);
    if (!running_tune.empty()) group.table_text += "; " + running_tune;
    if (!running_tune.empty() && !is_split) group.table_severity = Severity::kWarning;
    return {};
  }
  if (!used && LeavesDoubt(used.error().code)) return used;
  if (job.rank() != 0) return {};
  group.table_text = "calls run the default choices: " + used.error().ToText();
  if (!found.is_missing && !is_split) group.table_severity = Severity::kWarning;
  return {};
}

}  // namespace cotune::capi

extern "C" cotune_result cotune_load(cotune_group* group, const char* database_path) {
  return cotune::capi::Guard(
      group, [&](cotune_group& self) { return cotune::capi::Load(self, database_path); },
      cotune::capi::StopInDoubt);
}
