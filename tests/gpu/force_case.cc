#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/database/tuned_database.h"
#include "fmt/format.h"
#include "tests/gpu/cases.h"

namespace cotune::gputest {
namespace {

struct Request {
  std::string name;
  Collective collective = Collective::kAllReduce;
  uint64_t count = 0;
  BufferClass buffers = BufferClass::kPlain;
  std::vector<std::string> parts;
};

Result<Request> ParseRequest(const std::string& text) {
  const std::vector<std::string> fields = SplitAt(text, ':');
  const auto wrong = [&] { return Fail(ErrorCode::kUsage, "it is no request", "", text); };
  if (fields.size() != 5) return wrong();
  COTUNE_TRY(const Collective collective, ParseCollective(fields[1]));
  const bool is_symmetric = fields[3] == "symmetric";
  if (!is_symmetric && fields[3] != "plain") return wrong();
  return Request{fields[0], collective, std::strtoull(fields[2].c_str(), nullptr, 10),
                 is_symmetric ? BufferClass::kSymmetric : BufferClass::kPlain,
                 SplitAt(fields[4], '+')};
}

Result<ChoiceId> Find(Job& job, const Problem& problem, const Request& request) {
  COTUNE_TRY(const Program program, Program::SingleCollective(problem.cls));
  std::optional<ChoiceId> by_default;
  for (BackendMember& member : job.groups().members()) {
    for (const Choice& choice : member.backend->ListChoices(program, problem).choices) {
      const std::string& id = choice.id.text();
      const bool fits =
          std::all_of(request.parts.begin(), request.parts.end(),
                      [&](const std::string& part) { return id.find(part) != std::string::npos; });
      if (fits && !choice.is_default) return choice.id;
      if (fits) by_default = choice.id;
    }
  }
  if (by_default) return *by_default;
  return Fail(ErrorCode::kUnsupported, "no backend lists such a choice", ToText(problem),
              request.name);
}

DatabaseEntry EntryOf(const Job& job, const Problem& problem, const ChoiceId& id,
                      int64_t measured_unix_s) {
  DatabaseEntry entry{job.fingerprint(), {}, {.id = id, .median_ns = 1000}};
  entry.winner.why = "a test wants it";
  entry.cell.problem = problem;
  entry.cell.verdicts.push_back({.id = id,
                                 .samples_ns = {1000},
                                 .skews_ns = {0},
                                 .repetitions = 1,
                                 .median_ns = 1000,
                                 .interval_low_ns = 1000,
                                 .interval_high_ns = 1000});
  entry.measured_unix_s = measured_unix_s;
  return entry;
}

}  // namespace

Status RunForce(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  int64_t measured_unix_s = 0;
  for (const std::string& text : SplitAt(flags.Text("requests", ""), ';')) {
    COTUNE_TRY(const Request request, ParseRequest(text));
    const Reduction reduction = Reduces(request.collective) ? Reduction::kSum : Reduction::kNone;
    Problem problem = Rank::ProblemOf(job, request.collective, Dtype::kBf16, reduction,
                                      request.count, /*in_place=*/false);
    problem.cls.buffer_class = request.buffers;
    const Result<ChoiceId> id = Find(job, problem, request);
    if (!id) {
      // The steps that want this one fail.
      fmt::print(stderr, "{}\n", id.error().ToText());
      continue;
    }
    TunedDatabase database;
    database.Put(EntryOf(job, problem, *id, ++measured_unix_s));
    if (job.rank() != 0) continue;
    const std::string path = fmt::format("{}/{}.tdb", flags.Text("folder", "."), request.name);
    if (Status saved = database.Save(path); !saved) return saved;
    fmt::print("forces {} {}\n", request.name, id->text());
  }
  return {};
}

}  // namespace cotune::gputest
