// Shows the progress of a tune: the plan, then one redrawn line on a terminal or plain lines
// elsewhere.
#ifndef COTUNE_CLI_OUTPUT_PROGRESS_H_
#define COTUNE_CLI_OUTPUT_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/events/stage_observer.h"
#include "core/problem/program.h"

namespace cotune::cli {

// "35 cells, 412 choices to measure, about 42 s, 12.0 MiB per rank", or what is known from
// `database`.
std::string PlanText(const TunePlan& plan, std::string_view database);

// The state of a tune's progress. Pure: time is an argument.
class ProgressState {
 public:
  // Cells of these programs are named by program and rows.
  void set_programs(std::vector<Program> programs) { programs_ = std::move(programs); }
  void Begin(const TunePlan& plan, int64_t now_ns);
  void StartCell(int32_t index, int32_t total, const Problem& problem);
  void FinishCell(int32_t index, int32_t total, const CellResult& cell, const Winner& winner,
                  int64_t now_ns);

  // The time that is left, from the pace so far, or from the plan before the first cell is done.
  int64_t LeftNs(int64_t now_ns) const;
  // "[ 41 %  14/35  ETA 0:12 ] all_reduce f32 256K  last best host/ring 41.2 us", cut to `columns`.
  std::string Line(int64_t now_ns, size_t columns) const;
  // "[14/35] all_reduce f32 256K: host/ring 41.2 us, 1.32x the default".
  const std::string& last_done_text() const { return last_done_text_; }

 private:
  std::string TextOf(const Problem& problem) const;

  std::vector<Program> programs_;
  int32_t done_ = 0;
  int32_t total_ = 0;
  std::optional<int64_t> begin_ns_;
  int64_t estimated_ns_ = 0;
  std::string cell_text_;
  std::string best_text_;
  std::string last_done_text_;
};

// Shows it. `write` gets text for standard error, line ends included.
class Progress final : public StageObserver {
 public:
  struct Options {
    bool redraw = false;  // a terminal that understands escape sequences
    size_t columns = 80;
    bool quiet = false;                // warnings only
    bool verbose = false;              // stages too
    bool hides_refused_cells = false;  // unless verbose: no warning for each cell without a choice
    std::string database;              // for the plan
  };
  using Write = std::function<void(std::string_view)>;
  // The clock outlives the object.
  Progress(const Clock& clock, Options options, Write write)
      : clock_(clock), options_(std::move(options)), write_(std::move(write)) {}

  void OnEvent(const Event& event) override;
  void OnRefusedCells(const Event& warning) override;
  void OnPlan(const TunePlan& plan) override;
  void OnCellStart(int32_t index, int32_t total, const Problem& problem) override;
  void OnCellDone(int32_t index, int32_t total, const CellResult& cell,
                  const Winner& winner) override;
  // Once the place of the database is known.
  void set_database(std::string database) { options_.database = std::move(database); }
  void set_programs(std::vector<Program> programs) { state_.set_programs(std::move(programs)); }
  // Takes the redrawn line away; before anything else is printed.
  void Clear();

  int64_t warnings() const { return warnings_; }

 private:
  void ShowStage(Stage stage);
  void ShowLine(Severity severity, std::string_view text);
  void Print(std::string_view line);
  void Redraw();

  const Clock& clock_;
  Options options_;
  Write write_;
  ProgressState state_;
  bool line_is_drawn_ = false;
  int64_t warnings_ = 0;
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_PROGRESS_H_
