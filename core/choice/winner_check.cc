#include "core/choice/winner_check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/cut_at_word.h"
#include "core/base/sha256.h"
#include "core/choice/choice_caller.h"
#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

constexpr size_t kReasonBytesMax = 300;

std::vector<std::string> TextsOf(const ChoiceList& list) {
  std::vector<std::string> texts;
  for (const Choice& choice : list.choices) {
    texts.push_back(choice.id.text() + (choice.is_default ? " as its default" : ""));
  }
  return texts;
}

std::vector<std::string> TextsOf(const CellToCheck& cell, const BackendGroups& groups) {
  if (cell.list != nullptr) return TextsOf(*cell.list);
  return TextsOf(ListChoicesOf(groups, *cell.program, cell.problem));
}

// Ranks of the job, which is what errors name.
std::vector<int> JobRanks(const BackendGroups& groups, const std::vector<size_t>& positions) {
  std::vector<int> ranks;
  for (const size_t position : positions) ranks.push_back(groups.job_ranks()[position]);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string RanksText(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

tl::unexpected<Error> ListsDiffer(const BackendGroups& groups, const Problem& problem,
                                  const std::vector<StepRecord<ChoiceTexts>>& records) {
  const auto fail = [&](std::string what, std::vector<int> ranks) {
    return Fail(ErrorCode::kDisagreement, std::move(what), ToText(problem),
                "the plugin is another build, is configured differently, or breaks the rule that "
                "its list follows from the problem alone",
                "use one file of the plugin and the same settings on every rank", std::move(ranks));
  };
  for (const StepRecord<ChoiceTexts>& record : records) {
    for (const std::string& text : record.message.choices) {
      std::vector<size_t> have;
      std::vector<size_t> lack;
      for (size_t rank = 0; rank < records.size(); ++rank) {
        const auto& choices = records[rank].message.choices;
        (std::find(choices.begin(), choices.end(), text) != choices.end() ? have : lack)
            .push_back(rank);
      }
      if (lack.empty()) continue;
      // Those who are fewer are at fault; of as many, those who are unlike rank 0.
      const bool has_first = have.front() == 0;
      const bool have_is_odd =
          have.size() < lack.size() || (have.size() == lack.size() && !has_first);
      const std::vector<int> with = JobRanks(groups, have);
      const std::vector<int> without = JobRanks(groups, lack);
      return fail(
          fmt::format("{} {} {}, {} not", RanksText(with), with.size() == 1 ? "lists" : "list",
                      text, RanksText(without) + (without.size() == 1 ? " does" : " do")),
          have_is_odd ? with : without);
    }
  }
  return fail("the ranks list the same choices in different orders", {});
}

WinnerFailures::Failure MakeFailure(size_t cell, const Error& error) {
  const bool is_refusal = error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kUsage;
  return {cell, is_refusal, CutAtWord(error.ToText(), kReasonBytesMax)};
}

struct RankFailure {
  size_t rank = 0;
  bool is_refusal = false;
  std::string reason;
};

// By cell; nothing where a rank names a cell that is not there.
std::optional<std::map<size_t, std::vector<RankFailure>>> ReadFailures(
    const std::vector<StepRecord<WinnerFailures>>& records, size_t cells) {
  std::map<size_t, std::vector<RankFailure>> failures;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    for (const WinnerFailures::Failure& each : records[rank].message.failures) {
      if (each.cell >= cells) return std::nullopt;
      failures[each.cell].push_back({rank, each.is_refusal, each.reason});
    }
  }
  return failures;
}

// Plans that are held at once: a database may have thousands of winners. The winners of a usual
// tune are made ready at once, because threads idle at the end of each part.
constexpr size_t kPlansAtOnce = 256;

std::optional<Choice> FindWinner(const BackendGroups& groups, const CellToCheck& cell,
                                 const ChoiceId& winner) {
  if (cell.list != nullptr) {
    const std::vector<Choice>& choices = cell.list->choices;
    const auto found = std::find_if(choices.begin(), choices.end(),
                                    [&](const Choice& choice) { return choice.id == winner; });
    if (found != choices.end()) return *found;
    // The list of a program may leave out the combination that has won.
    if (cell.program->is_single_collective()) return std::nullopt;
  }
  return FindChoice(groups, *cell.program, cell.problem, winner);
}

// Returns the reason for which the list of the cell has not the winner; `otherwise` if it gives
// none.
std::string WhyNotListed(const BackendGroups& groups, const CellToCheck& cell,
                         const ChoiceId& winner, std::string otherwise) {
  ChoiceList own;
  if (cell.list == nullptr) own = ListChoicesOf(groups, *cell.program, cell.problem);
  const ChoiceList& list = cell.list == nullptr ? own : *cell.list;
  for (const Refusal& refusal : list.refusals) {
    if (refusal.choice == winner.text()) otherwise = refusal.reason;
  }
  return otherwise;
}

// Makes some winners ready and drops them; adds the failures. `first`
// is the place of the first one. Fails when a call is stuck, and leaves its plan to the watchdog.
Status PrepareSome(RankExchange& exchange, BackendGroups& groups,
                   std::span<const CellToCheck> cells, std::span<const ChoiceId> winners,
                   size_t first, int32_t threads, int64_t deadline_ns, CallWatchdog* watchdog,
                   const std::shared_ptr<PrepareNotes>& notes,
                   const std::function<bool()>& is_asked_to_stop,
                   std::vector<WinnerFailures::Failure>& failures) {
  std::vector<std::unique_ptr<ChoiceCaller>> callers(cells.size());
  std::vector<ChoiceCaller*> all;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellToCheck& cell = cells[i];
    const std::optional<Choice> choice = FindWinner(groups, cell, winners[i]);
    Result<std::unique_ptr<ChoiceCaller>> caller = MakeCaller(
        groups, *cell.program, cell.problem, choice ? *choice : Choice{.id = winners[i]});
    if (!choice || !caller) {
      std::string why = caller ? "it is not among the choices of its backend" : caller.error().what;
      why = WhyNotListed(groups, cell, winners[i], std::move(why));
      const Error error{ErrorCode::kUnsupported, std::move(why), "", "", "", {}};
      failures.push_back(MakeFailure(first + i, error));
      continue;
    }
    if (cell.problem.cls.buffer_class == BufferClass::kSymmetric) continue;
    callers[i] = std::move(*caller);
    all.push_back(callers[i].get());
  }
  const PrecompileShare share{exchange.rank(), exchange.world_size()};
  if (Status ready =
          PrecompileAll(all, threads, deadline_ns, share, watchdog, notes, is_asked_to_stop);
      !ready) {
    // The thread whose call is stuck still uses them.
    watchdog->Keep(
        std::make_shared<std::vector<std::unique_ptr<ChoiceCaller>>>(std::move(callers)));
    return ready;
  }
  for (size_t i = 0; i < callers.size(); ++i) {
    if (callers[i] == nullptr) continue;
    // Those whose prepare is collective are made ready here, on all ranks in this order, also by a
    // rank that has heard of an interrupt: the others may not have.
    const bool is_collective = callers[i]->choice().prepare_is_collective;
    if (!is_collective && is_asked_to_stop && is_asked_to_stop()) continue;
    const bool is_noted = notes != nullptr && is_collective;
    if (is_noted) notes->Begin(*callers[i]);
    const Status prepared = callers[i]->Precompile(deadline_ns);
    if (is_noted) notes->End(*callers[i]);
    if (!prepared) failures.push_back(MakeFailure(first + i, prepared.error()));
  }
  return {};
}

// The program that a row of winners belongs to. kDatabase where its text is not known, or is that
// of another program.
Result<Program> ProgramOf(const DispatchKey& key, const MeasuredWinners& winners,
                          const ProblemClass& shape) {
  if (key.program_digest == 0) {
    ProblemClass cls = shape;
    cls.collective = key.collective;
    cls.dtype = key.dtype;
    cls.reduction = key.reduction;
    cls.buffer_class = key.buffer_class;
    cls.in_place = key.in_place;
    cls.root = 0;
    return Program::SingleCollective(cls);
  }
  const auto text = winners.program_texts().find(key.program_digest);
  if (text == winners.program_texts().end()) {
    return Fail(ErrorCode::kDatabase, "the database does not have the text of its program", "",
                "an older cotune wrote it", "tune the program again");
  }
  COTUNE_TRY(ProgramGraph graph, ProgramGraph::Parse(text->second));
  Result<Program> program = Program::Bind(
      std::move(graph), {shape.memory, shape.world_size, shape.ranks_per_node, key.buffer_class});
  if (program && DispatchKey::Of(program->anchor()) != key) {
    return Fail(ErrorCode::kDatabase, "the text in the database is that of another program");
  }
  return program;
}

// What is to be checked of winners, cell by cell.
struct CellsOfWinners {
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<CellToCheck> cells;
  std::vector<ChoiceId> winners;
  std::vector<std::pair<DispatchKey, uint64_t>> places;
  std::vector<std::pair<DispatchKey, std::string>> without_program;  // rows, and why
};

// The same on all ranks, because it follows from the winners alone.
CellsOfWinners CellsOf(const MeasuredWinners& winners, const ProblemClass& shape,
                       uint64_t topology_digest) {
  CellsOfWinners of;
  for (const auto& [key, by_size] : winners.rows()) {
    if (key.memory != shape.memory) continue;  // no call asks for it
    Result<Program> program = ProgramOf(key, winners, shape);
    if (!program) {
      of.without_program.emplace_back(key, program.error().ToText());
      continue;
    }
    of.programs.push_back(std::make_unique<Program>(std::move(*program)));
    const Program& own = *of.programs.back();
    for (const auto& [bytes, winner] : by_size) {
      of.cells.push_back({&own, own.ProblemAt(bytes, topology_digest)});
      of.winners.push_back(winner.id);
      of.places.emplace_back(key, bytes);
    }
  }
  return of;
}

}  // namespace

Status CompareChoiceLists(RankExchange& exchange, const BackendGroups& groups,
                          std::span<const CellToCheck> cells, int64_t deadline_ns) {
  StepRecord<ChoiceListDigests> digests;
  for (const CellToCheck& cell : cells) {
    const std::string text = fmt::format("{}", fmt::join(TextsOf(cell, groups), "\n"));
    digests.message.digests.push_back(Sha256Prefix(text));
  }
  COTUNE_TRY(const auto all, ExchangeRecords(exchange, "choice lists", digests, 0, deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  // From the same records every rank finds the same cell, so that all take the next step or none.
  std::optional<size_t> differs;
  const std::vector<uint64_t>& first = all.records[0].message.digests;
  for (const auto& record : all.records) {
    const std::vector<uint64_t>& others = record.message.digests;
    if (others.size() != first.size()) {
      return Fail(ErrorCode::kDisagreement, "the ranks compare different numbers of problems");
    }
    const auto at = std::mismatch(first.begin(), first.end(), others.begin()).first;
    if (at == first.end()) continue;
    const auto cell = static_cast<size_t>(at - first.begin());
    differs = std::min(differs.value_or(cell), cell);
  }
  if (!differs) return {};
  StepRecord<ChoiceTexts> texts;
  texts.message.choices = TextsOf(cells[*differs], groups);
  COTUNE_TRY(const auto lists,
             ExchangeRecords(exchange, "differing choice list", texts, 0, deadline_ns));
  return ListsDiffer(groups, cells[*differs].problem, lists.records);
}

Result<std::vector<RefusedWinner>> CheckWinners(RankExchange& exchange, BackendGroups& groups,
                                                std::span<const CellToCheck> cells,
                                                std::span<const ChoiceId> winners, int32_t threads,
                                                const Clock& clock, int64_t timeout_ns,
                                                CallWatchdog* watchdog,
                                                const std::shared_ptr<PrepareNotes>& notes,
                                                const std::function<bool()>& is_asked_to_stop) {
  const int64_t ready_by_ns = DeadlineAfter(clock.now_ns(), timeout_ns);
  StepRecord<WinnerFailures> record;
  for (size_t first = 0; first < cells.size(); first += kPlansAtOnce) {
    const size_t count = std::min(kPlansAtOnce, cells.size() - first);
    COTUNE_RETURN_IF_ERROR(PrepareSome(exchange, groups, cells.subspan(first, count),
                                       winners.subspan(first, count), first, threads, ready_by_ns,
                                       watchdog, notes, is_asked_to_stop, record.message.failures));
  }
  if (is_asked_to_stop && is_asked_to_stop()) {
    record = StepRecord<WinnerFailures>::FromStatus(TuneInterrupted());
  }
  // Time of its own: a rank that was slow would come too late to say what was.
  const int64_t met_by_ns = DeadlineAfter(std::max(clock.now_ns(), ready_by_ns), timeout_ns);
  COTUNE_TRY(const auto all, ExchangeRecords(exchange, "winners ready", record, 0, met_by_ns));
  if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  const auto failures = ReadFailures(all.records, cells.size());
  if (!failures) {
    return Fail(ErrorCode::kInternal, "what a rank says of its winners cannot be read", "",
                "the ranks run different versions of cotune", "start all ranks from one build");
  }
  std::vector<RefusedWinner> refused;
  for (const auto& [cell, of_ranks] : *failures) {
    const bool all_refuse =
        of_ranks.size() == all.records.size() &&
        std::all_of(of_ranks.begin(), of_ranks.end(),
                    [](const RankFailure& failure) { return failure.is_refusal; });
    if (all_refuse) {
      refused.push_back({cell, of_ranks.front().reason});
      continue;
    }
    std::vector<size_t> positions;
    for (const RankFailure& failure : of_ranks) positions.push_back(failure.rank);
    const std::vector<int> ranks = JobRanks(groups, positions);
    return Fail(ErrorCode::kDisagreement,
                fmt::format("{} cannot run {}, which won", RanksText(ranks), winners[cell].text()),
                ToText(cells[cell].problem), of_ranks.front().reason,
                "mend that, or tune again on the ranks as they are", ranks);
  }
  return refused;
}

Result<std::vector<std::string>> CheckMeasuredWinners(RankExchange& exchange, BackendGroups& groups,
                                                      const ProblemClass& shape,
                                                      uint64_t topology_digest, int32_t threads,
                                                      const Clock& clock, int64_t timeout_ns,
                                                      CallWatchdog* watchdog,
                                                      MeasuredWinners& winners) {
  CellsOfWinners of = CellsOf(winners, shape, topology_digest);
  const int64_t compared_by_ns = DeadlineAfter(clock.now_ns(), timeout_ns);
  COTUNE_RETURN_IF_ERROR(CompareChoiceLists(exchange, groups, of.cells, compared_by_ns));
  const Result<std::vector<RefusedWinner>> refused =
      CheckWinners(exchange, groups, of.cells, of.winners, threads, clock, timeout_ns, watchdog);
  if (!refused) {
    if (watchdog != nullptr && watchdog->stuck() != nullptr) {
      watchdog->Keep(
          std::make_shared<std::vector<std::unique_ptr<Program>>>(std::move(of.programs)));
    }
    return Propagate(refused);
  }
  std::vector<std::string> reasons;
  for (const auto& [key, reason] : of.without_program) {
    reasons.push_back(fmt::format("{}: {}", ToText(key), reason));
    winners.Erase(key);
  }
  for (const RefusedWinner& each : *refused) {
    reasons.push_back(fmt::format("{} cannot run {}: {}", of.winners[each.cell].text(),
                                  ToText(of.cells[each.cell].problem), each.reason));
    winners.Erase(of.places[each.cell].first, of.places[each.cell].second);
  }
  return reasons;
}

}  // namespace cotune
