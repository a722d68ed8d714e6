// A tune on processors that others use, or with times that vary much.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/usable_processors.h"
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Adds what passes on each processor within `each_ns`, of which everything together uses
// `busy_percent`.
void Pass(int64_t each_ns, int64_t busy_percent, ProcessorTimes& times) {
  const auto processors = static_cast<int64_t>(ProcessorsIn(UsableProcessors()).size());
  times.now_ns += each_ns;
  times.counted_ns += processors * each_ns;
  times.idle_ns += processors * each_ns * (100 - busy_percent) / 100;
}

// The processors of two ranks while cells are measured: each rank uses 20 % of a measurement, which
// is long enough, and other programs use `foreign_percent[measurement]`, or the last of these.
auto Processors(std::vector<int64_t> foreign_percent) {
  return [foreign_percent](int) -> std::function<std::optional<ProcessorTimes>()> {
    auto readings = std::make_shared<size_t>(0);
    auto times = std::make_shared<ProcessorTimes>();
    return [foreign_percent, readings, times]() -> std::optional<ProcessorTimes> {
      // One at the beginning of the tune, one at that of measuring, and then pairs of them, before
      // and after.
      const size_t reading = (*readings)++;
      if (reading < 2 || reading % 2 == 0) return *times;
      const size_t measurement = std::min(reading / 2, foreign_percent.size()) - 1;
      constexpr int64_t kMeasurementNs = 1'000'000'000;
      Pass(kMeasurementNs, 40 + foreign_percent[measurement], *times);
      const auto processors = static_cast<int64_t>(ProcessorsIn(UsableProcessors()).size());
      times->own_ns += processors * kMeasurementNs / 5;
      return *times;
    };
  };
}

// The processors of two ranks as each reading sees them: a step of 10 ms later than the one before,
// with the share of other programs that `foreign_percent` gives.
auto ProcessorsByReading(std::function<int64_t()> foreign_percent) {
  return [foreign_percent](int) -> std::function<std::optional<ProcessorTimes>()> {
    auto times = std::make_shared<ProcessorTimes>();
    return [=]() -> std::optional<ProcessorTimes> {
      Pass(10'000'000, foreign_percent(), *times);
      return *times;
    };
  };
}

// The names of rank 0's steps.
class Steps {
 public:
  auto Note() {
    return [this](int rank, std::string_view step, int64_t) -> int64_t {
      if (rank == 0) names_.emplace(step);
      return 0;
    };
  }
  bool Has(std::string_view text) const {
    return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
      return name.find(text) != std::string::npos;
    });
  }

 private:
  std::set<std::string> names_;  // written by rank 0's thread only
};

// Keeps why each cell runs its winner.
class MemoryOfReasons final : public KnownCells {
 public:
  std::optional<CellResult> Find(const Problem&) override { return std::nullopt; }
  Status Record(const CellResult&, const Winner& winner) override {
    reasons.push_back(winner.why);
    return {};
  }
  std::vector<LeftOutChoice> Begin() override { return {}; }
  std::vector<std::string> reasons;
};

// The default takes 40 us, another choice 20.
Tune TuneOf(std::vector<int64_t> foreign_percent, Steps& steps) {
  Tune tune;
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("default", 40'000), Scripted("fast", 20'000)};
    choices[0].is_default = true;
    return choices;
  };
  tune.processor_times = Processors(std::move(foreign_percent));
  tune.on_step = steps.Note();
  return tune;
}

TEST(SteadyCellsTuneTest, ACellOnIdleProcessorsIsMeasuredOnce) {
  Steps steps;
  for (const RankView& view : RunTune(TuneOf({14}, steps))) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/fast");
    EXPECT_FALSE(view.cells.at(0).is_unsteady);
    EXPECT_EQ(view.outcome->unsteady_cells, 0);
    EXPECT_THAT(view.observer.warnings, IsEmpty());
  }
  EXPECT_TRUE(steps.Has("cell 0 processors"));
  EXPECT_FALSE(steps.Has("cell 0 again"));
}

TEST(SteadyCellsTuneTest, ACellOnBusyProcessorsIsMeasuredAgainAndThenRunsTheDefault) {
  Steps steps;
  Tune tune = TuneOf({30}, steps);
  tune.node_sizes = {{1024, 4096}};
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/default");
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/default");
    ASSERT_THAT(view.cells, SizeIs(2));
    EXPECT_TRUE(view.cells[0].is_unsteady);
    EXPECT_TRUE(view.cells[1].is_unsteady);
    EXPECT_EQ(view.outcome->unsteady_cells, 2);
    EXPECT_EQ(view.outcome->measured_cells, 2);
  }
  EXPECT_TRUE(steps.Has("cell 0 again"));
  EXPECT_TRUE(steps.Has("cell 1 again"));
  // Once a tune, by rank 0.
  ASSERT_THAT(views[0].observer.warnings, SizeIs(1));
  EXPECT_THAT(views[0].observer.warnings[0],
              HasSubstr("other programs used 30 % of the processors"));
  EXPECT_THAT(views[1].observer.warnings, IsEmpty());
}

// A reading each 10 ms is far too little for one cell: the ranks go on observing after it.
TEST(SteadyCellsTuneTest, EveryShortCellOnBusyProcessorsIsMarked) {
  for (const std::vector<uint64_t>& sizes :
       {std::vector<uint64_t>{1024}, std::vector<uint64_t>{1024, 2048, 4096, 8192, 16384, 32768}}) {
    Steps steps;
    Tune tune = TuneOf({}, steps);
    tune.processor_times = ProcessorsByReading([] { return 30; });
    tune.node_sizes = {sizes};
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      ASSERT_THAT(view.cells, SizeIs(sizes.size()));
      for (const CellResult& cell : view.cells) {
        EXPECT_TRUE(cell.is_unsteady) << cell.problem.bytes() << " of " << sizes.size();
      }
    }
  }
}

// Only the first cell of these is too short: each later one is judged together with those before
// it, so that an idle tune waits once.
TEST(SteadyCellsTuneTest, ShortCellsOnIdleProcessorsAreSteadyAndWaitOnce) {
  Steps steps;
  Tune tune = TuneOf({}, steps);
  auto readings = std::make_shared<std::atomic<int>>(0);
  tune.processor_times = ProcessorsByReading([readings] {
    ++*readings;
    return 5;
  });
  tune.node_sizes = {{1024, 2048, 4096, 8192, 16384, 32768}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    for (const CellResult& cell : view.cells) EXPECT_FALSE(cell.is_unsteady);
    EXPECT_EQ(view.outcome->unsteady_cells, 0);
  }
  // On each of two ranks: one when the tune begins and eight until 75 ms later, of which the first
  // is for the beginning of measuring and the second for that of the first cell; and two of each
  // other cell.
  EXPECT_EQ(*readings, 2 * (1 + 8 + 5 * 2));
}

// Idle processors before a short cell do not hide the load during it, if they were idle for long.
TEST(SteadyCellsTuneTest, LongStagesBeforeAShortCellDoNotCount) {
  Steps steps;
  Tune tune = TuneOf({}, steps);
  tune.processor_times = [](int) -> std::function<std::optional<ProcessorTimes>()> {
    auto times = std::make_shared<ProcessorTimes>();
    auto readings = std::make_shared<int>(0);
    return [=]() -> std::optional<ProcessorTimes> {
      // A second of idle processors lies between the beginning of the tune and that of measuring.
      if (++*readings == 2) {
        Pass(1'000'000'000, 0, *times);
      } else {
        Pass(10'000'000, 60, *times);
      }
      return *times;
    };
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.cells.at(0).is_unsteady);
  }
}

// The load during the first measurement of a short cell is not that during its second.
TEST(SteadyCellsTuneTest, ASecondMeasurementOfAShortCellIsJudgedByItself) {
  Steps steps;
  Tune tune = TuneOf({}, steps);
  auto is_over = std::make_shared<std::atomic<bool>>(false);
  const auto note = steps.Note();
  tune.on_step = [is_over, note](int rank, std::string_view step, int64_t deadline_ns) {
    if (step.find("again") != std::string_view::npos) *is_over = true;
    return note(rank, step, deadline_ns);
  };
  tune.processor_times = ProcessorsByReading([is_over] { return is_over->load() ? 0 : 60; });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_FALSE(view.cells.at(0).is_unsteady);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/fast");
  }
  EXPECT_TRUE(steps.Has("cell 0 again"));
}

// Some sandboxes publish times that never advance: the ranks wait once. Or none: they do not wait.
TEST(SteadyCellsTuneTest, ProcessorsWhoseTimesStandStillAreNotWaitedForAgain) {
  for (const bool has_times : {true, false}) {
    Steps steps;
    Tune tune = TuneOf({}, steps);
    std::vector<std::shared_ptr<std::atomic<int>>> readings;
    for (int rank = 0; rank < 2; ++rank) readings.push_back(std::make_shared<std::atomic<int>>(0));
    tune.processor_times = [=](int rank) -> std::function<std::optional<ProcessorTimes>()> {
      return [=]() -> std::optional<ProcessorTimes> {
        const int reading = ++*readings[rank];
        if (!has_times) return std::nullopt;
        return ProcessorTimes{.now_ns = reading * int64_t{10'000'000}};
      };
    };
    tune.node_sizes = {{1024, 2048, 4096}};
    const std::vector<RankView> views = RunTune(tune);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(views[rank].outcome.has_value()) << views[rank].outcome.error().ToText();
      EXPECT_EQ(views[rank].outcome->unsteady_cells, 0);
      // One when the tune begins and two of each cell; and until 75 ms are over, if it has any, of
      // which the first is for the beginning of measuring.
      EXPECT_EQ(*readings[rank], 1 + 3 * 2 + (has_times ? 6 : 0));
    }
  }
}

TEST(SteadyCellsTuneTest, AnInterruptEndsTheWaitForProcessorsOnAllRanks) {
  Steps steps;
  Tune tune = TuneOf({}, steps);
  auto is_waiting = std::make_shared<std::atomic<bool>>(false);
  tune.processor_times = [is_waiting](int rank) {
    auto readings = std::make_shared<int>(0);
    return [is_waiting, rank, readings]() -> std::optional<ProcessorTimes> {
      // The first begins the tune, the second measuring, the third the cell, and the fourth ends
      // it.
      if (++*readings > 3 && rank == 1) *is_waiting = true;
      return ProcessorTimes{.now_ns = *readings * int64_t{10'000'000}};
    };
  };
  tune.stops = [is_waiting](int rank) { return rank == 1 && is_waiting->load(); };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kInterrupted);
  }
  EXPECT_TRUE(steps.Has("cell 0 processors"));
}

// The load before a cell that is long enough does not count.
TEST(SteadyCellsTuneTest, ALongCellIsJudgedByItself) {
  Steps steps;
  Tune tune = TuneOf({30, 30, 0}, steps);
  tune.node_sizes = {{1024, 4096}};
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[0].outcome.has_value()) << views[0].outcome.error().ToText();
  ASSERT_THAT(views[0].cells, SizeIs(2));
  EXPECT_TRUE(views[0].cells[0].is_unsteady);
  EXPECT_FALSE(views[0].cells[1].is_unsteady);
}

TEST(SteadyCellsTuneTest, ASecondMeasurementThatIsSteadyCounts) {
  Steps steps;
  for (const RankView& view : RunTune(TuneOf({30, 0}, steps))) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/fast");
    EXPECT_FALSE(view.cells.at(0).is_unsteady);
    EXPECT_THAT(view.observer.warnings, IsEmpty());
  }
  EXPECT_TRUE(steps.Has("cell 0 again"));
}

TEST(SteadyCellsTuneTest, TimesThatVaryMuchAreUnsteadyOnIdleProcessorsToo) {
  Steps steps;
  Tune tune = TuneOf({0}, steps);
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("default", 400'000), Scripted("fast", 20'000)};
    choices[0].is_default = true;
    choices[1].noise_ns = 60'000;
    return choices;
  };
  tune.settings.sample_ns = 1;  // one call a sample
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[0].outcome.has_value()) << views[0].outcome.error().ToText();
  EXPECT_TRUE(views[0].cells.at(0).is_unsteady);
  EXPECT_EQ(WinnerAt(*views[0].outcome, 1024, 2), "scripted/default");
  ASSERT_THAT(views[0].observer.warnings, SizeIs(1));
  EXPECT_THAT(views[0].observer.warnings[0],
              HasSubstr("the 99 % interval of scripted/fast is wider than 50 % of its median"));
}

TEST(SteadyCellsTuneTest, AChoiceThatFailedIsNotTriedASecondTime) {
  Steps steps;
  Tune tune = TuneOf({30}, steps);
  auto launches = std::make_shared<std::atomic<int>>(0);
  tune.choices = [launches](int) {
    std::vector<ScriptedChoice> choices = {Scripted("default", 40'000), Scripted("fails", 20'000)};
    choices[0].is_default = true;
    choices[1].launch_fails = [launches] {
      ++*launches;
      return true;
    };
    return choices;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(VerdictOf(view.cells.at(0), "fails").outcome, Outcome::kLaunchFailed);
    EXPECT_TRUE(view.cells[0].is_unsteady);
  }
  EXPECT_EQ(*launches, 2) << "one of each rank";
}

TEST(SteadyCellsTuneTest, ASpentBudgetLeavesNoSecondMeasurement) {
  Steps steps;
  Tune tune = TuneOf({30}, steps);
  tune.settings.budget_ns = 1;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.cells.at(0).is_unsteady);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/default");
  }
  EXPECT_FALSE(steps.Has("cell 0 again"));
}

TEST(SteadyCellsTuneTest, ACellThatTheBudgetCutsRunsTheDefault) {
  Steps steps;
  Tune tune = TuneOf({0}, steps);
  tune.processor_times = nullptr;
  tune.settings.budget_ns = 1;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(VerdictOf(view.cells.at(0), "fast").samples_ns.size(), 1u);
    EXPECT_TRUE(view.cells[0].is_unsteady);
    EXPECT_EQ(view.outcome->unsteady_cells, 1);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/default");
  }
}

// Rounds that are enough for an interval, but fewer than min_rounds, are not two measurements.
TEST(SteadyCellsTuneTest, ACellThatTheBudgetCutsBelowMinRoundsSaysSo) {
  Steps steps;
  Tune tune = TuneOf({0}, steps);
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("default", 40'000)};
    choices[0].is_default = true;
    return choices;
  };
  tune.processor_times = nullptr;
  tune.settings.min_rounds = 40;
  tune.settings.collective_benchmark_nruns = 100;
  tune.settings.budget_ns = 30'000'000;  // the coordinator of the test takes 1 ms a step
  MemoryOfReasons memory;
  tune.known = &memory;
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[0].outcome.has_value()) << views[0].outcome.error().ToText();
  EXPECT_TRUE(views[0].cells.at(0).is_unsteady);
  const size_t rounds = VerdictOf(views[0].cells[0], "default").samples_ns.size();
  ASSERT_GE(rounds, 8u);
  ASSERT_LT(rounds, 40u);
  ASSERT_THAT(memory.reasons, SizeIs(1));
  EXPECT_THAT(memory.reasons[0],
              HasSubstr("the budget ended the measurement after " + std::to_string(rounds) +
                        " rounds of the 40 that min_rounds asks for"));
}

TEST(SteadyCellsTuneTest, ACutCellThatNoChoiceRunsIsNotUnsteady) {
  Steps steps;
  Tune tune = TuneOf({0}, steps);
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("default", 40'000)};
    choices[0].is_default = true;
    choices[0].launch_fails = [] { return true; };
    return choices;
  };
  tune.processor_times = nullptr;
  tune.settings.budget_ns = 1;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 0);
    EXPECT_EQ(view.outcome->unsteady_cells, 0);
  }
}

TEST(SteadyCellsTuneTest, AnInterruptEndsACellBetweenTwoSamplesOnAllRanks) {
  Steps steps;
  Tune tune = TuneOf({0}, steps);
  // Rank 1 is asked to stop when it has been asked a few times, in the middle of the cell.
  auto questions = std::make_shared<std::atomic<int>>(0);
  tune.stops = [questions](int rank) { return rank == 1 && ++*questions > 12; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kInterrupted);
  }
  EXPECT_TRUE(steps.Has("cell 0 ")) << "the cell had begun";
  EXPECT_FALSE(steps.Has("cell 0 processors"));
}

TEST(SteadyCellsTuneTest, KeepUnsteadyBelievesAllTimes) {
  Steps steps;
  Tune tune = TuneOf({30}, steps);
  tune.settings.keep_unsteady = true;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/fast");
    EXPECT_FALSE(view.cells.at(0).is_unsteady);
  }
  EXPECT_FALSE(steps.Has("processors"));
}

}  // namespace
}  // namespace cotune
