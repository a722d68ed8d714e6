#include "core/scheduler/tune_times.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using testing::ElementsAre;

class TuneTimesTest : public testing::Test {
 protected:
  void Begin(SpanKind kind, std::string_view name, int64_t time_ns, std::string_view node = "") {
    listener_.OnEvent(
        {.type = EventType::kBegin, .kind = kind, .name = name, .node = node, .time_ns = time_ns});
  }
  void End(SpanKind kind, std::string_view name, int64_t time_ns, std::string_view node = "") {
    listener_.OnEvent(
        {.type = EventType::kEnd, .kind = kind, .name = name, .node = node, .time_ns = time_ns});
  }
  void Span(SpanKind kind, std::string_view name, int64_t begin_ns, int64_t end_ns,
            std::string_view node = "") {
    Begin(kind, name, begin_ns, node);
    End(kind, name, end_ns, node);
  }

  TimesListener listener_;
};

TEST_F(TuneTimesTest, EachStageHasItsSum) {
  Begin(SpanKind::kTune, "tune", 1);
  Begin(SpanKind::kStage, "choices", 10);
  Span(SpanKind::kNode, "node", 11, 13, "a");
  Span(SpanKind::kNode, "node", 13, 17, "b");
  End(SpanKind::kStage, "choices", 20);
  Span(SpanKind::kStage, "known_cells", 20, 25);
  Span(SpanKind::kStage, "precompile", 30, 130);
  Span(SpanKind::kStage, "warm", 130, 137);
  Span(SpanKind::kStage, "pre_sync", 140, 151);
  Begin(SpanKind::kCell, "a/1K", 200, "a");
  Span(SpanKind::kStage, "check", 201, 202);
  Span(SpanKind::kStage, "benchmark", 203, 204);
  End(SpanKind::kCell, "a/1K", 300, "a");
  Span(SpanKind::kCell, "b/1K", 300, 350, "b");
  Span(SpanKind::kCell, "a/8K", 350, 370, "a");
  Span(SpanKind::kStage, "agree", 400, 413);
  Span(SpanKind::kStage, "save", 420, 437);
  End(SpanKind::kTune, "tune", 500);
  const StageTimes expected = {.choices_ns = 15,
                               .compile_ns = 100,
                               .warm_ns = 7,
                               .sync_ns = 11,
                               .measure_ns = 170,
                               .agree_ns = 13,
                               .save_ns = 17};
  EXPECT_EQ(listener_.times().all, expected);
  EXPECT_THAT(listener_.times().nodes,
              ElementsAre(NodeTimes{.node = "a", .choices_ns = 2, .measure_ns = 120},
                          NodeTimes{.node = "b", .choices_ns = 4, .measure_ns = 50}));
}

TEST_F(TuneTimesTest, PlansThatThreadsMakeAtTheSameTimeAreSummed) {
  Begin(SpanKind::kStage, "precompile", 10);
  Begin(SpanKind::kCompile, "compile", 10, "a");
  // The spans overlap, and the later one ends first.
  std::thread([&] { Span(SpanKind::kCompile, "compile", 12, 15, "a"); }).join();
  End(SpanKind::kCompile, "compile", 20, "a");
  End(SpanKind::kStage, "precompile", 20);
  EXPECT_EQ(listener_.times().all.compile_ns, 10);
  EXPECT_THAT(listener_.times().nodes, ElementsAre(NodeTimes{.node = "a", .compile_ns = 13}));
}

TEST_F(TuneTimesTest, APlanThatIsMadeInItsCellCountsAsMeasuring) {
  Begin(SpanKind::kCell, "a/1K", 10, "a");
  Span(SpanKind::kCompile, "compile", 11, 15, "a");
  End(SpanKind::kCell, "a/1K", 20, "a");
  EXPECT_THAT(listener_.times().nodes, ElementsAre(NodeTimes{.node = "a", .measure_ns = 10}));
}

}  // namespace
}  // namespace cotune
