#include "cli/output/progress.h"

#include <algorithm>

#include "cli/output/number_text.h"
#include "cli/output/program_words.h"
#include "core/base/counted.h"
#include "core/base/memory_text.h"
#include "fmt/format.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

std::string PlanText(const TunePlan& plan, std::string_view database) {
  const int32_t to_measure = plan.cells - plan.known_cells;
  std::string known =
      plan.known_cells > 0 ? fmt::format(", {} known from {}", plan.known_cells, database) : "";
  if (plan.forced_cells > 0) known += fmt::format(", {} forced", plan.forced_cells);
  if (to_measure == 0) return fmt::format("0 cells to measure{}", known);
  const std::string groups =
      plan.group_bytes_per_rank > 0
          ? fmt::format(" beside {} that the backends hold", MemoryText(plan.group_bytes_per_rank))
          : "";
  return fmt::format(
      "{} to measure{}: {} ({} refused), {}, {} per rank{}", Counted(to_measure, "cell"), known,
      Counted(plan.choices_to_measure, "choice"), plan.refusals, AboutText(plan.estimated_ns),
      MemoryText(plan.buffer_bytes_per_rank + plan.workspace_bytes_per_rank), groups);
}

void ProgressState::Begin(const TunePlan& plan, int64_t now_ns) {
  done_ = 0;
  total_ = plan.cells - plan.known_cells;
  begin_ns_ = now_ns;
  estimated_ns_ = plan.estimated_ns;
  cell_text_.clear();
  best_text_.clear();
}

void ProgressState::StartCell(int32_t index, int32_t total, const Problem& problem) {
  done_ = index;
  total_ = total;
  cell_text_ = TextOf(problem);
}

void ProgressState::FinishCell(int32_t index, int32_t total, const CellResult& cell,
                               const Winner& winner, int64_t now_ns) {
  if (!begin_ns_) begin_ns_ = now_ns;
  done_ = index + 1;
  total_ = total;
  best_text_ = fmt::format("{} {} us", winner.id.text(), MicrosecondsText(winner.median_ns));
  std::string gain;
  if (winner.fallback && winner.fallback_median_ns > 0 && winner.median_ns > 0) {
    gain = winner.fallback == winner.id
               ? ", the default"
               : fmt::format(", {} the default",
                             FactorText(static_cast<double>(winner.fallback_median_ns) /
                                        static_cast<double>(winner.median_ns)));
  }
  last_done_text_ =
      fmt::format("[{}/{}] {}: {}{}", done_, total_, TextOf(cell.problem), best_text_, gain);
}

std::string ProgressState::TextOf(const Problem& problem) const {
  const ProblemClass& cls = problem.cls;
  const auto program = std::find_if(programs_.begin(), programs_.end(), [&](const Program& each) {
    return each.anchor().program_digest == cls.program_digest;
  });
  if (cls.program_digest != 0 && program != programs_.end()) return CellText(*program, problem);
  // Sums are the default of the command line, and mostly the only reduction.
  const bool is_named = cls.reduction != Reduction::kNone && cls.reduction != Reduction::kSum;
  return fmt::format("{}{} {} {}{}", Name(cls.collective),
                     is_named ? fmt::format(" {}", Name(cls.reduction)) : "", Name(cls.dtype),
                     FormatSizeBytes(problem.bytes()), cls.in_place ? " in place" : "");
}

int64_t ProgressState::LeftNs(int64_t now_ns) const {
  const int64_t spent_ns = now_ns - begin_ns_.value_or(now_ns);
  if (done_ == 0) return std::max<int64_t>(0, estimated_ns_ - spent_ns);
  return spent_ns / done_ * (total_ - done_);
}

std::string ProgressState::Line(int64_t now_ns, size_t columns) const {
  std::string line =
      fmt::format("[ {} %  {}/{}  ETA {} ] {}", total_ > 0 ? 100 * done_ / total_ : 0, done_,
                  total_, SpanText(LeftNs(now_ns)), cell_text_);
  if (!best_text_.empty()) line += "  last best " + best_text_;
  if (line.size() > columns) line.resize(columns);
  return line;
}

void Progress::Clear() {
  if (line_is_drawn_) write_(kClearLine);
  line_is_drawn_ = false;
}

void Progress::Print(std::string_view line) {
  Clear();
  write_(fmt::format("{}\n", line));
}

void Progress::Redraw() {
  write_(fmt::format("{}{}", kClearLine, state_.Line(clock_.now_ns(), options_.columns - 1)));
  line_is_drawn_ = true;
}

void Progress::OnEvent(const Event& event) {
  if (event.type == EventType::kLine) ShowLine(event.severity, event.name);
  if (const auto stage = StageBegunBy(event)) ShowStage(*stage);
}

void Progress::OnRefusedCells(const Event& warning) {
  if (options_.verbose || !options_.hides_refused_cells) OnEvent(warning);
}

void Progress::ShowStage(Stage stage) {
  // Thousands of these belong to cells, which have lines of their own.
  if (stage == Stage::kCheck || stage == Stage::kBenchmark || stage == Stage::kDispatch) return;
  if (options_.verbose && !options_.quiet) Print(fmt::format("stage {}", Name(stage)));
}

void Progress::OnPlan(const TunePlan& plan) {
  state_.Begin(plan, clock_.now_ns());
  if (!options_.quiet) Print(PlanText(plan, options_.database));
}

void Progress::OnCellStart(int32_t index, int32_t total, const Problem& problem) {
  state_.StartCell(index, total, problem);
  if (options_.redraw && !options_.quiet) Redraw();
}

void Progress::OnCellDone(int32_t index, int32_t total, const CellResult& cell,
                          const Winner& winner) {
  state_.FinishCell(index, total, cell, winner, clock_.now_ns());
  if (options_.quiet) return;
  if (!options_.redraw || options_.verbose) Print(state_.last_done_text());
  if (options_.redraw) Redraw();
}

void Progress::ShowLine(Severity severity, std::string_view text) {
  if (severity >= Severity::kWarning) {
    ++warnings_;
    Print(fmt::format("cotune: warning: {}", text));
  } else if (options_.verbose && !options_.quiet) {
    Print(fmt::format("cotune: {}", text));
  }
}

}  // namespace cotune::cli
