#include "cli/output/times_text.h"

#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

TEST(TimesTextTest, HasALineForAllAndOneForEachNode) {
  const TuneTimes times = {.all = {.choices_ns = 400'000,
                                   .compile_ns = 12'000'000,
                                   .warm_ns = 1'000'000,
                                   .sync_ns = 2'000'000,
                                   .measure_ns = 1'500'000'000,
                                   .agree_ns = 3'000'000,
                                   .save_ns = 4'000'000},
                           .nodes = {{.node = "all_reduce/sum",
                                      .choices_ns = 300'000,
                                      .compile_ns = 20'000'000,
                                      .measure_ns = 1'400'000'000}}};
  EXPECT_EQ(TimesText(times),
            "times: choices 0.4 ms, compile 12.0 ms, warm 1.0 ms, sync 2.0 ms, measure 1500.0 ms, "
            "agree 3.0 ms, save 4.0 ms\n"
            "  all_reduce/sum: choices 0.3 ms, compile 20.0 ms (all threads), measure 1400.0 ms\n");
}

}  // namespace
}  // namespace cotune::cli
