#include "cli/output/chrome_trace.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::json;

TEST(ChromeTraceTest, HasAProcessForEachRankAndOneOriginOfTime) {
  const TraceOfRank first = {
      .texts = {"", "tune", "check", "host/ring", "vote", "sample", "compile", "all_reduce"},
      .entries = {{EventType::kBegin, SpanKind::kTune, 0, 1, 0, 0, 1'000'500, 9000},
                  {EventType::kBegin, SpanKind::kCompile, 2, 6, 7, 3, 1'001'500, 2000},
                  {EventType::kBegin, SpanKind::kStage, 0, 2, 0, 3, 1'002'500, 1},
                  {EventType::kCounter, SpanKind::kStage, 0, 5, 0, 3, 1'003'500, 5210},
                  {EventType::kMark, SpanKind::kStage, 0, 4, 0, 0, 1'004'500, 0}},
      .dropped = 0};
  const TraceOfRank second = {
      .texts = {"", "tune"},
      .entries = {{EventType::kBegin, SpanKind::kTune, 0, 1, 0, 0, 1'000'000, 9000}},
      .dropped = 12};
  const Json document = Json::parse(ChromeTrace({first, second}));
  EXPECT_EQ(document["otherData"]["dropped_events"], Json({0, 12}));
  EXPECT_NE(document["otherData"]["clock"].get<std::string>().find("CLOCK_MONOTONIC"),
            std::string::npos);
  const Json expected = Json::parse(R"json([
    {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
    {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "tune"}},
    {"name": "thread_name", "ph": "M", "pid": 0, "tid": 2, "args": {"name": "compile 2"}},
    {"name": "tune", "pid": 0, "tid": 0, "ts": 0.5, "cat": "tune", "ph": "X", "dur": 9.0},
    {"name": "compile host/ring", "pid": 0, "tid": 2, "ts": 1.5, "cat": "compile", "ph": "X",
     "dur": 2.0, "args": {"node": "all_reduce", "choice": "host/ring"}},
    {"name": "check host/ring", "pid": 0, "tid": 0, "ts": 2.5, "cat": "stage", "ph": "X",
     "dur": 0.001, "args": {"choice": "host/ring"}},
    {"name": "sample host/ring", "pid": 0, "tid": 0, "ts": 3.5, "ph": "C", "args": {"us": 5.21}},
    {"name": "vote", "pid": 0, "tid": 0, "ts": 4.5, "cat": "stage", "ph": "i", "s": "t"},
    {"name": "process_name", "ph": "M", "pid": 1, "tid": 0,
     "args": {"name": "rank 1 (12 further events not kept)"
}
},
    {"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "tune"}},
    {"name": "tune", "pid": 1, "tid": 0, "ts": 0.0, "cat": "tune", "ph": "X", "dur": 9.0}
  ])json");
  EXPECT_EQ(document["traceEvents"], expected) << document.dump(1);
}

TEST(ChromeTraceTest, NoRankHasRecordedAnything) {
  const Json document = Json::parse(ChromeTrace({TraceOfRank{}, TraceOfRank{}}));
  EXPECT_EQ(document["traceEvents"].size(), 2u) << "the names of the ranks";
}

}  // namespace
}  // namespace cotune::cli
