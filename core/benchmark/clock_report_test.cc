#include "core/benchmark/clock_report.h"

#include "core/testing/cell_on_ranks.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(ClockReportTest, TheSlowestClockAndTheReasonsOfAllRanksCount) {
  CellScript script;
  script.world_size = 3;
  script.choices = {ChoiceOfCost("a", 1000)};
  script.device = [](int rank) {
    DeviceScript device;
    if (rank == 0) device.clocks = {{1500, {"sw_power_cap"}}, {1980, {"hw_thermal"}}};
    if (rank == 1) device.clocks = {{1200, {}}, {1700, {"hw_thermal", "hw_slowdown"}}};
    return device;  // rank 2 does not know
  };
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    const Result<CellClocks> clocks = ClockReport(cell.parts, cell.steps).Run(cell.prepared);
    ASSERT_TRUE(clocks.has_value()) << clocks.error().ToText();
    EXPECT_EQ(clocks->sm_clock_mhz, 1700);
    EXPECT_EQ(clocks->throttle_reasons, "hw_slowdown,hw_thermal,sw_power_cap");
  });
}

TEST(ClockReportTest, WhereNoRankKnowsItsClocksThereIsNoStep) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 1000)};
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    const int64_t before_ns = cell.steps.elapsed_ns();
    const Result<CellClocks> clocks = ClockReport(cell.parts, cell.steps).Run(cell.prepared);
    ASSERT_TRUE(clocks.has_value());
    EXPECT_EQ(clocks->sm_clock_mhz, 0);
    EXPECT_EQ(clocks->throttle_reasons, "");
    EXPECT_EQ(cell.steps.elapsed_ns(), before_ns);
  });
}

}  // namespace
}  // namespace cotune
