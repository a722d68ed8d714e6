// win FILE PART: in a tuned database of one entry, makes the fastest measured choice whose name has
// PART the winner, and drops all others. For tests of calls that have to run such a choice.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/database/tuned_database.h"

namespace {

using cotune::DatabaseEntry;
using cotune::ErrorCode;
using cotune::Fail;
using cotune::Status;
using cotune::TunedDatabase;
using cotune::Verdict;

Status LetWin(const std::string& path, const std::string& part) {
  COTUNE_TRY(const TunedDatabase measured, TunedDatabase::Load(path));
  COTUNE_TRY(std::vector<DatabaseEntry> entries, measured.entries());
  if (entries.size() != 1) return Fail(ErrorCode::kDatabase, "it has not one entry", path);
  DatabaseEntry& entry = entries.front();
  std::erase_if(entry.cell.verdicts, [&](const Verdict& verdict) {
    return verdict.id.text().find(part) == std::string::npos || verdict.median_ns <= 0;
  });
  const auto fastest = std::min_element(
      entry.cell.verdicts.begin(), entry.cell.verdicts.end(),
      [](const Verdict& a, const Verdict& b) { return a.median_ns < b.median_ns; });
  if (fastest == entry.cell.verdicts.end()) {
    return Fail(ErrorCode::kDatabase, "no measured choice has " + part, path);
  }
  entry.winner = {.id = fastest->id, .median_ns = fastest->median_ns, .why = "a test wants it"};
  ++entry.measured_unix_s;  // a newer measurement counts more than the one that a group has tuned
  TunedDatabase changed;
  changed.Put(std::move(entry));
  return changed.Save(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: win FILE PART\n");
    return 2;
  }
  const Status done = LetWin(argv[1], argv[2]);
  if (!done) std::fprintf(stderr, "error: %s\n", done.error().ToText().c_str());
  return done ? 0 : 1;
}
