#include "core/scheduler/listing_lines.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/counted.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// "program norm 0123456789abcdef at 512 rows".
std::string SubjectOf(const Program& program, const Problem& problem) {
  const ProgramGraph& graph = program.graph();
  std::string subject = "program ";
  if (!graph.name().empty()) subject += graph.name() + " ";
  subject += fmt::format("{:016x}", program.anchor().program_digest);
  if (graph.has_rows())
    subject += " at " + Counted(static_cast<int64_t>(program.RowsAt(problem)), "row");
  return subject;
}

bool ConcernsForms(const Refusal& refusal) {
  for (const std::string_view key : {kFuseKey, kViaKey}) {
    if (refusal.choice.find(fmt::format("{}=", key)) != std::string::npos) return true;
  }
  return false;
}

// Collects lines, each once.
class Lines {
 public:
  explicit Lines(std::string subject) : subject_(std::move(subject)) {}
  void Add(std::string key, const std::string& predicate) {
    std::string text = fmt::format("{}: {}", subject_, predicate);
    const bool is_known = std::any_of(lines_.begin(), lines_.end(),
                                      [&](const ListingLine& line) { return line.text == text; });
    if (!is_known) lines_.push_back({std::move(key), std::move(text)});
  }
  bool HasListed(const std::string& name) const {
    const std::string text = fmt::format("{}: {} is listed", subject_, name);
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const ListingLine& line) { return line.text == text; });
  }
  std::vector<ListingLine> Take() { return std::move(lines_); }

 private:
  const std::string subject_;
  std::vector<ListingLine> lines_;
};

void AddListed(const ProgramGraph& graph, const ChoiceId& id, Lines& lines) {
  const std::string via = id.HostKey(kViaKey);
  if (!via.empty()) {
    const std::string key = fmt::format("{}={}", kViaKey, via);
    lines.Add(key, key + " is listed");
    return;
  }
  const std::vector<size_t>& collectives = graph.collectives();
  const std::vector<ChoiceId> steps = id.StepsFor(collectives.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string fuse = steps[i].HostKey(kFuseKey);
    if (fuse.empty()) continue;
    const std::string key = fmt::format("{}={}", kFuseKey, fuse);
    lines.Add(key, RegionName(graph, collectives[i], key) + " is listed");
  }
}

// Adds what no line is about yet: the list keeps one refusal for all regions that a backend refuses
// for the same reason.
void AddOthers(std::span<const ConsideredForm> considered, const ChoiceList& list, Lines& lines) {
  const auto is_refused = [&](const std::string& key) {
    return std::any_of(list.refusals.begin(), list.refusals.end(),
                       [&](const Refusal& refusal) { return refusal.choice.ends_with(key); });
  };
  for (const ConsideredForm& each : considered) {
    if (lines.HasListed(each.name) || is_refused(each.key)) continue;
    lines.Add(each.key, fmt::format("{} is left out: no backend lists it", each.name));
  }
}

}  // namespace

std::vector<ListingLine> ListingLines(const Program& program, const Problem& problem,
                                      std::span<const ConsideredForm> considered,
                                      const ChoiceList& list) {
  if (program.is_single_collective()) return {};
  Lines lines(SubjectOf(program, problem));
  for (const Choice& choice : list.choices) {
    if (choice.id.has_host_keys()) AddListed(program.graph(), choice.id, lines);
  }
  for (const Refusal& refusal : list.refusals) {
    if (!ConcernsForms(refusal)) continue;
    lines.Add(refusal.choice, fmt::format("{} is left out: {}", refusal.choice, refusal.reason));
  }
  AddOthers(considered, list, lines);
  return lines.Take();
}

}  // namespace cotune
