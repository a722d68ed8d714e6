#include "core/choice/multi_template.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/parallel_for.h"
#include "core/choice/choice_lists.h"
#include "core/selection/dispatch_table.h"
#include "fmt/format.h"

namespace cotune {

MultiTemplate::MultiTemplate(Program program, std::vector<uint64_t> size_hints_bytes,
                             uint64_t topology_digest)
    : program_(std::move(program)),
      size_hints_bytes_(std::move(size_hints_bytes)),
      topology_digest_(topology_digest) {
  COTUNE_CHECK(!size_hints_bytes_.empty(), "a node is tuned at one size or more");
  // Hints that round down to the same count are one cell. Less than an element for every rank is
  // none, unless nothing else is asked for.
  const auto rounded = [&](uint64_t hint) { return program_.ProblemAt(hint, 0).bytes(); };
  const auto is_too_small = [&](uint64_t hint) { return hint > 0 && rounded(hint) == 0; };
  if (!std::all_of(size_hints_bytes_.begin(), size_hints_bytes_.end(), is_too_small)) {
    std::erase_if(size_hints_bytes_, is_too_small);
  }
  for (uint64_t& hint : size_hints_bytes_) hint = rounded(hint);
  std::sort(size_hints_bytes_.begin(), size_hints_bytes_.end());
  size_hints_bytes_.erase(std::unique(size_hints_bytes_.begin(), size_hints_bytes_.end()),
                          size_hints_bytes_.end());
}

Problem MultiTemplate::ProblemAt(uint64_t size_hint_bytes) const {
  return program_.ProblemAt(size_hint_bytes, topology_digest_);
}

const ChoiceList& MultiTemplate::ListChoices(const BackendGroups& groups,
                                             uint64_t size_hint_bytes) {
  const auto found = lists_.find(size_hint_bytes);
  if (found != lists_.end()) return found->second.list;
  ListedChoices listed = ListWithCombinations(groups, program_, ProblemAt(size_hint_bytes));
  return lists_.emplace(size_hint_bytes, std::move(listed)).first->second.list;
}

void MultiTemplate::ListAllChoices(const BackendGroups& groups, size_t threads) {
  std::vector<uint64_t> hints = size_hints_bytes_;
  std::erase_if(hints, [this](uint64_t hint) { return lists_.contains(hint); });
  std::vector<ListedChoices> listed(hints.size());
  ParallelFor(hints.size(), program_.is_single_collective() ? threads : 1, [&](size_t i) {
    listed[i] = ListWithCombinations(groups, program_, ProblemAt(hints[i]));
  });
  for (size_t i = 0; i < hints.size(); ++i) lists_.emplace(hints[i], std::move(listed[i]));
}

void MultiTemplate::LeaveOut(const BackendGroups& groups, uint64_t size_hint_bytes,
                             std::span<const LeftOutChoice> left_out) {
  ListChoices(groups, size_hint_bytes);
  auto& [list, combinations, considered] = lists_.at(size_hint_bytes);
  const std::string problem_class = ToText(program_.anchor());
  for (const LeftOutChoice& each : left_out) {
    if (each.problem_class != problem_class) continue;
    const auto is_it = [&](const Choice& choice) { return choice.id.text() == each.choice; };
    const Result<ChoiceId> id = ChoiceId::Parse(each.choice);
    const bool is_combination = id && combinations.Find(*id).has_value();
    if (std::erase_if(list.choices, is_it) > 0 || is_combination) {
      list.refusals.push_back({each.choice, each.reason});
      left_out_[size_hint_bytes].push_back(each.choice);
    }
  }
}

std::string MultiTemplate::InWords() const {
  const ProblemClass& cls = program_.anchor();
  if (program_.is_single_collective()) return cotune::InWords(DispatchKey::Of(cls));
  const std::string& name = program_.graph().name();
  return "program " + (name.empty() ? fmt::format("{:016x}", cls.program_digest) : name);
}

std::string MultiTemplate::CellInWords(uint64_t size_hint_bytes) const {
  const Problem problem = ProblemAt(size_hint_bytes);
  if (program_.is_single_collective()) {
    return fmt::format("{} at {} bytes", InWords(), problem.bytes());
  }
  return fmt::format("{} at {}", InWords(),
                     Counted(static_cast<int64_t>(program_.RowsAt(problem)), "row"));
}

size_t MultiTemplate::combinations_max(uint64_t size_hint_bytes) const {
  return lists_.at(size_hint_bytes).combinations.best_max();
}

std::vector<Choice> MultiTemplate::CombineFastest(uint64_t size_hint_bytes,
                                                  std::span<const Verdict> verdicts) const {
  std::vector<Choice> combined = lists_.at(size_hint_bytes).combinations.Best(verdicts);
  const auto left_out = left_out_.find(size_hint_bytes);
  if (left_out == left_out_.end()) return combined;
  std::erase_if(combined, [&ids = left_out->second](const Choice& choice) {
    return std::find(ids.begin(), ids.end(), choice.id.text()) != ids.end();
  });
  return combined;
}

std::vector<Refusal> MultiTemplate::RefuseSetAside(uint64_t size_hint_bytes,
                                                   std::span<const Verdict> verdicts) const {
  std::vector<Refusal> refusals;
  for (const ChoiceId& id : lists_.at(size_hint_bytes).combinations.SetAside(verdicts)) {
    refusals.push_back(
        {id.text(),
         "a choice that differs in numbers alone raced in its place, and others were faster"});
  }
  return refusals;
}

MeasuringOrder MultiTemplate::OrderOfMeasuring() const {
  if (!program_.is_single_collective()) return {size_hints_bytes_, {}};
  return OrderOfSizes(size_hints_bytes_);
}

std::vector<SlowChoice> MultiTemplate::RefuseSlow(uint64_t size_hint_bytes) const {
  if (!program_.is_single_collective()) return {};
  return RefuseSlowChoices(lists_.at(size_hint_bytes).list, size_hint_bytes, cells_, unusable_);
}

Result<const DecidedCell*> MultiTemplate::choice_timings(uint64_t size_hint_bytes,
                                                         CellTimer& timer) {
  const auto found = cells_.find(size_hint_bytes);
  if (found != cells_.end()) return &found->second;
  COTUNE_TRY(DecidedCell cell, timer.TimeCell(*this, size_hint_bytes));
  return &cells_.emplace(size_hint_bytes, std::move(cell)).first->second;
}

void MultiTemplate::SetTimings(uint64_t size_hint_bytes, DecidedCell cell) {
  cells_.insert_or_assign(size_hint_bytes, std::move(cell));
}

Result<MeasuredWinners::BySize> MultiTemplate::Finalize() const {
  MeasuredWinners::BySize winners;
  for (const auto& [bytes, decided] : cells_) {
    // A cell in which every choice failed has no winner: its sizes go to the neighbours' winners or
    // the default.
    if (decided.winner) {
      winners.emplace(bytes,
                      MeasuredWinner{decided.winner->id, NextBest(decided.winner->next_best)});
    }
  }
  if (winners.empty()) {
    return Fail(ErrorCode::kEnvironment, "no choice could be measured", InWords(),
                "every choice was refused or failed", "see `cotune explain` for the reasons");
  }
  return winners;
}

}  // namespace cotune
