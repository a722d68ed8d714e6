#include "core/database/tuned_database.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/database/cell_codec.h"
#include "core/database/tuned_database_file.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// Whether `a` is to be kept when both have the same identity. Never true both ways.
bool IsPreferred(const DatabaseRow& a, const DatabaseRow& b) {
  if (a.is_unsteady != b.is_unsteady) return b.is_unsteady;
  if (a.measured_unix_s != b.measured_unix_s) return a.measured_unix_s > b.measured_unix_s;
  if (a.samples != b.samples) return a.samples > b.samples;
  const Result<DatabaseEntry> entry_a = a.Decode();
  const Result<DatabaseEntry> entry_b = b.Decode();
  if (!entry_a || !entry_b) return entry_a.has_value() && !entry_b.has_value();
  return EncodeCell(*entry_a) < EncodeCell(*entry_b);
}

// The row that counts, with the text of its program wherever one of the two knows it: an older
// cotune kept the digest alone.
DatabaseRow WithProgramText(DatabaseRow row, const DatabaseRow& other) {
  if (row.program_text == nullptr) row.program_text = other.program_text;
  return row;
}

// Order among entries that are valid for the same key and size: the first one counts.
bool IsCandidateBefore(const DatabaseRow& a, const DatabaseRow& b) {
  if (a.problem.cls.root != b.problem.cls.root) return a.problem.cls.root < b.problem.cls.root;
  if (a.measured_unix_s != b.measured_unix_s) return a.measured_unix_s > b.measured_unix_s;
  const size_t backends_a = a.fingerprint->backends.size();
  const size_t backends_b = b.fingerprint->backends.size();
  if (backends_a != backends_b) return backends_a > backends_b;
  return IsBefore(a, b);
}

std::optional<Miss> MachineMiss(const Fingerprint& there, const Fingerprint& here) {
  const auto value_of = [](const Fingerprint& fingerprint, const std::string& name) -> std::string {
    const auto at = fingerprint.machine.find(name);
    return at == fingerprint.machine.end() ? "absent" : "'" + at->second + "'";
  };
  const auto differs = [&](const std::string& name) {
    return Miss{MissReason::kMachineDiffers,
                fmt::format("{}: {} in the file, {} here", name, value_of(there, name),
                            value_of(here, name))};
  };
  if (there.machine == here.machine && there.measuring_mode == here.measuring_mode) {
    return std::nullopt;
  }
  for (const auto& [name, value] : there.machine) {
    if (value_of(there, name) != value_of(here, name)) return differs(name);
  }
  for (const auto& [name, value] : here.machine) {
    if (!there.machine.contains(name)) return differs(name);
  }
  if (there.measuring_mode != here.measuring_mode) {
    return Miss{MissReason::kMachineDiffers,
                fmt::format("measuring_mode: '{}' in the file, '{}' here", there.measuring_mode,
                            here.measuring_mode)};
  }
  return std::nullopt;
}

const std::pair<const std::string, std::string>* FindBackend(const Fingerprint& fingerprint,
                                                             std::string_view name) {
  for (const auto& backend : fingerprint.backends) {
    if (backend.first == name) return &backend;
  }
  return nullptr;
}

// Without those that are not here.
std::optional<Miss> VersionMiss(const Fingerprint& there, const Fingerprint& here) {
  for (const auto& [backend, version] : there.backends) {
    const auto at = here.backends.find(backend);
    if (at == here.backends.end() || at->second == version) continue;
    return Miss{
        MissReason::kBackendVersionDiffers,
        fmt::format("backend {}: '{}' in the file, '{}' here", backend, version, at->second)};
  }
  return std::nullopt;
}

// "another build of plugin tiny (version 1.0)"; "" without plugins.
std::string BuildsText(const std::vector<std::string>& plugins, std::string_view one,
                       std::string_view several) {
  if (plugins.empty()) return "";
  return plugins.size() == 1 ? fmt::format("{} of plugin {}", one, plugins.front())
                             : fmt::format("{} of plugins {}", several, fmt::join(plugins, ", "));
}

// An entry without a build is of an older cotune, or of a backend whose table was registered in the
// process; neither shows that this build would give the same results.
std::optional<Miss> BuildMiss(const Fingerprint& there, const Fingerprint& here) {
  std::vector<std::string> other;
  std::vector<std::string> unknown;
  for (const auto& [backend, build] : here.builds) {
    const auto version = there.backends.find(backend);
    if (version == there.backends.end()) continue;
    const auto known = there.builds.find(backend);
    if (known != there.builds.end() && known->second == build) continue;
    (known == there.builds.end() ? unknown : other)
        .push_back(fmt::format("{} (version {})", backend, version->second));
  }
  if (other.empty() && unknown.empty()) return std::nullopt;
  const std::string of_other = BuildsText(other, "another build", "other builds");
  const std::string of_unknown = BuildsText(unknown, "an unknown build", "unknown builds");
  const char* const between = of_other.empty() || of_unknown.empty() ? "" : " and ";
  return Miss{MissReason::kBackendBuildDiffers,
              fmt::format("measured with {}{}{}", of_other, between, of_unknown)};
}

// The number of backends here that took part there.
int BackendsThatTookPart(const Fingerprint& there, const Fingerprint& here) {
  return static_cast<int>(
      std::count_if(here.backends.begin(), here.backends.end(),
                    [&](const auto& backend) { return there.backends.contains(backend.first); }));
}

std::optional<Miss> StepMiss(const Fingerprint& there, const ChoiceId& winner,
                             const Fingerprint& here) {
  const auto* const backend = FindBackend(there, winner.backend());
  if (backend == nullptr) {
    return Miss{
        MissReason::kChoiceUnknown,
        fmt::format("winner {}: its backend is not among those of the entry", winner.text())};
  }
  if (FindBackend(here, winner.backend()) != nullptr) return std::nullopt;
  return Miss{MissReason::kBackendMissing,
              fmt::format("winner {}: backend {} has version '{}' in the file and is absent here",
                          winner.text(), backend->first, backend->second)};
}

std::optional<Miss> WinnerMiss(const Fingerprint& there, const ChoiceId& winner,
                               const Fingerprint& here) {
  if (!winner.has_steps()) return StepMiss(there, winner, here);
  for (const ChoiceId& step : winner.steps()) {
    if (std::optional<Miss> miss = StepMiss(there, step, here)) return miss;
  }
  return std::nullopt;
}

std::optional<Miss> ConnectionsMiss(const Fingerprint& there, const Fingerprint& here) {
  for (const auto& [name, text] : here.connections) {
    const bool is_of_newcomer = here.backends.contains(name) && !there.backends.contains(name);
    const auto at = there.connections.find(name);
    const std::string known = at == there.connections.end() ? "not known" : "'" + at->second + "'";
    if (is_of_newcomer || known == "'" + text + "'") continue;
    return Miss{MissReason::kConnectionsDiffer,
                fmt::format("connections of {}: {} in the file, '{}' here", name, known, text)};
  }
  return std::nullopt;
}

// How near to valid a miss is; the nearest one is the one that the user wants to read.
int Nearness(MissReason reason) {
  switch (reason) {
    case MissReason::kNoEntry:
      return 0;
    case MissReason::kMachineDiffers:
      return 1;
    case MissReason::kBackendMissing:
      return 2;
    case MissReason::kBackendVersionDiffers:
      return 3;
    case MissReason::kChoiceUnknown:
      return 4;
    case MissReason::kBackendBuildDiffers:
      return 5;
    case MissReason::kConnectionsDiffer:
      return 6;
    case MissReason::kUnreadable:
      return 7;
  }
  return 0;
}

// A valid row with the place in the table where it counts.
struct Candidate {
  DispatchKey key;
  uint64_t bytes = 0;
  int backends = 0;  // that are here and took part
  const DatabaseRow* row = nullptr;
};

bool IsBeforeInTable(const Candidate& a, const Candidate& b) {
  if (a.key != b.key) return a.key < b.key;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  const bool is_same_root = a.row->problem.cls.root == b.row->problem.cls.root;
  if (is_same_root && a.backends != b.backends) return a.backends > b.backends;
  return IsCandidateBefore(*a.row, *b.row);
}

// Rows that count for groups of this shape under `here`, in the order of IsBeforeInTable.
std::vector<Candidate> CandidatesOf(const std::vector<DatabaseRow>& rows, int32_t world_size,
                                    int32_t ranks_per_node, const Fingerprint& here) {
  std::vector<Candidate> candidates;
  candidates.reserve(rows.size());
  const Fingerprint* judged =
      nullptr;  // rows of one fingerprint are neighbours: each is judged once
  bool valid = false;
  int backends = 0;
  for (const DatabaseRow& row : rows) {
    if (row.problem.cls.world_size != world_size ||
        row.problem.cls.ranks_per_node != ranks_per_node)
      continue;
    // An older cotune measured calls without an element. They show nothing about other sizes.
    if (row.problem.bytes() == 0) continue;
    if (judged != row.fingerprint.get()) {
      judged = row.fingerprint.get();
      valid = !MachineMiss(*judged, here) && !VersionMiss(*judged, here) &&
              !BuildMiss(*judged, here) && !ConnectionsMiss(*judged, here);
      backends = BackendsThatTookPart(*judged, here);
    }
    if (!valid || WinnerMiss(*judged, *row.winner, here)) continue;
    candidates.push_back({DispatchKey::Of(row.problem.cls), row.problem.bytes(), backends, &row});
  }
  // The order of one fingerprint's rows is that of the table already; only several machines need
  // the sort.
  if (!std::is_sorted(candidates.begin(), candidates.end(), IsBeforeInTable)) {
    std::sort(candidates.begin(), candidates.end(), IsBeforeInTable);
  }
  return candidates;
}

bool DiffersInBuildsAlone(const Fingerprint& a, const Fingerprint& b) {
  if (a.builds == b.builds) return false;
  Fingerprint rebuilt = a;
  rebuilt.builds = b.builds;
  return rebuilt == b;
}

// Each fingerprint of the rows once.
std::vector<std::shared_ptr<const Fingerprint>> FingerprintsOf(
    const std::vector<DatabaseRow>& rows) {
  std::vector<std::shared_ptr<const Fingerprint>> fingerprints;
  for (const DatabaseRow& row : rows) {
    const bool is_known = !fingerprints.empty() && (fingerprints.back() == row.fingerprint ||
                                                    *fingerprints.back() == *row.fingerprint);
    if (!is_known) fingerprints.push_back(row.fingerprint);
  }
  return fingerprints;
}

// Rows of the table from candidates in the order of IsBeforeInTable.
std::vector<DispatchRow> RowsOf(const std::vector<Candidate>& candidates) {
  std::vector<DispatchRow> rows;
  std::vector<std::pair<uint64_t, ChoiceId>> winners;
  std::vector<NextBestOfSize> next_best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (winners.empty() || winners.back().first != candidate.bytes) {
      winners.emplace_back(candidate.bytes, *candidate.row->winner);
      next_best.push_back({candidate.bytes, candidate.row->next_best});
    }
    if (i + 1 == candidates.size() || candidates[i + 1].key != candidate.key) {
      rows.push_back(DispatchRow::Of(candidate.key, winners, std::move(next_best)));
      winners.clear();
      next_best.clear();
    }
  }
  return rows;
}

}  // namespace

const char* MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kNoEntry:
      return "no_entry";
    case MissReason::kMachineDiffers:
      return "machine_differs";
    case MissReason::kBackendMissing:
      return "backend_missing";
    case MissReason::kBackendVersionDiffers:
      return "backend_version_differs";
    case MissReason::kBackendBuildDiffers:
      return "backend_build_differs";
    case MissReason::kChoiceUnknown:
      return "choice_unknown";
    case MissReason::kConnectionsDiffer:
      return "connections_differ";
    case MissReason::kUnreadable:
      return "unreadable";
  }
  return "invalid";
}

std::vector<std::string> BackendsThatDidNotRace(const Fingerprint& there, const Fingerprint& here) {
  std::vector<std::string> names;
  for (const auto& [name, identity] : here.backends) {
    if (!there.backends.contains(name)) names.push_back(name);
  }
  return names;
}

std::optional<Miss> WhyNotValid(const Fingerprint& there, const ChoiceId& winner,
                                const Fingerprint& here) {
  if (std::optional<Miss> miss = MachineMiss(there, here)) return miss;
  if (std::optional<Miss> miss = VersionMiss(there, here)) return miss;
  if (std::optional<Miss> miss = WinnerMiss(there, winner, here)) return miss;
  if (std::optional<Miss> miss = BuildMiss(there, here)) return miss;
  return ConnectionsMiss(there, here);
}

void TunedDatabase::Put(DatabaseEntry entry) { PutRow(DatabaseRow::Of(std::move(entry))); }

void TunedDatabase::PutRow(DatabaseRow row) {
  const auto at = std::lower_bound(rows_.begin(), rows_.end(), row, IsBefore);
  if (at == rows_.end() || IsBefore(row, *at)) {
    rows_.insert(at, std::move(row));
  } else {
    *at = IsPreferred(row, *at) ? WithProgramText(std::move(row), *at)
                                : WithProgramText(std::move(*at), row);
  }
}

void TunedDatabase::Merge(const TunedDatabase& other) {
  Unite(other, [](const DatabaseRow& mine, const DatabaseRow& theirs) {
    return IsPreferred(theirs, mine);
  });
}

void TunedDatabase::Replace(const TunedDatabase& newer) {
  Unite(newer, [](const DatabaseRow&, const DatabaseRow&) { return true; });
}

void TunedDatabase::Unite(const TunedDatabase& other, const TakesTheirs& takes_theirs) {
  std::vector<DatabaseRow> merged;
  merged.reserve(rows_.size() + other.rows_.size());
  auto mine = rows_.begin();
  auto theirs = other.rows_.begin();
  while (mine != rows_.end() && theirs != other.rows_.end()) {
    if (IsBefore(*mine, *theirs)) {
      merged.push_back(*mine++);
    } else if (IsBefore(*theirs, *mine)) {
      merged.push_back(*theirs++);
    } else {
      merged.push_back(takes_theirs(*mine, *theirs) ? WithProgramText(*theirs, *mine)
                                                    : WithProgramText(*mine, *theirs));
      ++mine;
      ++theirs;
    }
  }
  merged.insert(merged.end(), mine, rows_.end());
  merged.insert(merged.end(), theirs, other.rows_.end());
  rows_ = std::move(merged);
}

void TunedDatabase::DropOtherBuilds(const TunedDatabase& fresh) {
  const std::vector<std::shared_ptr<const Fingerprint>> all_fresh = FingerprintsOf(fresh.rows_);
  std::shared_ptr<const Fingerprint> judged;  // each fingerprint is compared once, as rows ascend
  std::vector<std::shared_ptr<const Fingerprint>> rebuilt;
  std::erase_if(rows_, [&](const DatabaseRow& row) {
    if (judged != row.fingerprint) {
      judged = row.fingerprint;
      rebuilt.clear();
      std::copy_if(all_fresh.begin(), all_fresh.end(), std::back_inserter(rebuilt),
                   [&](const auto& each) { return DiffersInBuildsAlone(*judged, *each); });
    }
    DatabaseRow wanted;
    wanted.problem = row.problem;
    return std::any_of(rebuilt.begin(), rebuilt.end(), [&](const auto& fingerprint) {
      wanted.fingerprint = fingerprint;
      return std::binary_search(fresh.rows_.begin(), fresh.rows_.end(), wanted, IsBefore);
    });
  });
}

tl::expected<DatabaseEntry, Miss> TunedDatabase::Find(const Problem& problem,
                                                      const Fingerprint& here) const {
  const tl::expected<const DatabaseRow*, Miss> found = FindRow(problem, here);
  if (!found) return tl::make_unexpected(found.error());
  Result<DatabaseEntry> entry = (*found)->Decode();
  if (!entry) return tl::make_unexpected(Miss{MissReason::kUnreadable, entry.error().ToText()});
  return std::move(*entry);
}

tl::expected<const DatabaseRow*, Miss> TunedDatabase::FindRow(const Problem& problem,
                                                              const Fingerprint& here) const {
  DatabaseRow wanted;
  wanted.problem = problem;
  const DatabaseRow* found = nullptr;
  int found_backends = 0;
  Miss nearest;
  for (auto at = rows_.begin(); at != rows_.end();) {
    // One binary search in the rows of each fingerprint.
    wanted.fingerprint = at->fingerprint;
    const auto row = std::lower_bound(at, rows_.end(), wanted, IsBefore);
    if (row != rows_.end() && !IsBefore(wanted, *row)) {
      std::optional<Miss> miss = WhyNotValid(*row->fingerprint, *row->winner, here);
      const int backends = miss ? 0 : BackendsThatTookPart(*row->fingerprint, here);
      const bool is_better =
          backends > found_backends ||
          (backends == found_backends && (found == nullptr || IsCandidateBefore(*row, *found)));
      if (!miss && is_better) {
        found = &*row;
        found_backends = backends;
      }
      if (miss && Nearness(miss->reason) > Nearness(nearest.reason)) nearest = std::move(*miss);
    }
    at = std::partition_point(row, rows_.end(), [&](const DatabaseRow& other) {
      return other.fingerprint == wanted.fingerprint || *other.fingerprint == *wanted.fingerprint;
    });
  }
  if (found != nullptr) return found;
  if (nearest.reason == MissReason::kNoEntry) nearest.detail = "no entry for " + ToText(problem);
  return tl::make_unexpected(std::move(nearest));
}

Result<DispatchTable> TunedDatabase::BuildTable(int32_t world_size, int32_t ranks_per_node,
                                                const Fingerprint& here) const {
  return DispatchTable::Build(RowsOf(CandidatesOf(rows_, world_size, ranks_per_node, here)));
}

MeasuredWinners TunedDatabase::Winners(int32_t world_size, int32_t ranks_per_node,
                                       const Fingerprint& here) const {
  MeasuredWinners winners;
  const std::vector<Candidate> candidates = CandidatesOf(rows_, world_size, ranks_per_node, here);
  // From the last to the first, which counts.
  for (auto at = candidates.rbegin(); at != candidates.rend(); ++at) {
    winners.Put(at->key, at->bytes, MeasuredWinner{*at->row->winner, at->row->next_best});
    if (at->row->program_text != nullptr) {
      winners.PutProgram(at->key.program_digest, *at->row->program_text);
    }
  }
  return winners;
}

Result<std::vector<DatabaseEntry>> TunedDatabase::entries() const {
  std::vector<DatabaseEntry> entries;
  entries.reserve(rows_.size());
  for (const DatabaseRow& row : rows_) {
    COTUNE_TRY(DatabaseEntry entry, row.Decode());
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::string> TunedDatabase::Serialize() const {
  Result<std::string> bytes = EncodeDatabase(rows_);
  if (bytes && bytes->size() > kFileBytesMax) {
    return Fail(ErrorCode::kDatabase,
                fmt::format("the tuned database would have {} bytes, at most {} are read",
                            bytes->size(), kFileBytesMax),
                "", fmt::format("{} entries", size()), "tune into a file for each machine");
  }
  return bytes;
}

Result<TunedDatabase> TunedDatabase::Parse(std::string_view bytes) {
  return FromBytes(std::string(bytes));
}

Result<TunedDatabase> TunedDatabase::FromBytes(std::string bytes) {
  if (bytes.size() > kFileBytesMax) {
    return Fail(ErrorCode::kDatabase,
                fmt::format("{} bytes are too many for a tuned database", bytes.size()), "",
                fmt::format("at most {} are read", kFileBytesMax),
                "give the path of a file that cotune wrote");
  }
  COTUNE_TRY(std::vector<DatabaseRow> rows, DecodeDatabase(std::move(bytes)));
  TunedDatabase database;
  database.rows_ = std::move(rows);
  return database;
}

Result<TunedDatabase> TunedDatabase::Load(const std::string& path) {
  COTUNE_TRY(std::string bytes, ReadDatabaseFile(path, "tuned database", kFileBytesMax));
  Result<TunedDatabase> database = FromBytes(std::move(bytes));
  if (!database) {
    Error error = database.error();
    error.where = error.where.empty() ? path : path + ", " + error.where;
    return tl::make_unexpected(std::move(error));
  }
  return database;
}

Status TunedDatabase::Save(const std::string& path) const {
  const Result<std::string> bytes = Serialize();
  if (!bytes) {
    Error error = bytes.error();
    error.where = path;
    return tl::make_unexpected(std::move(error));
  }
  return ReplaceDatabaseFile(path, *bytes);
}

}  // namespace cotune
