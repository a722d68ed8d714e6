#include "core/events/event_stream.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using testing::ElementsAre;

// Each reading is one more than the one before it. Thread-safe by the lock of the stream.
class CountingClock final : public Clock {
 public:
  int64_t now_ns() const override { return ++now_ns_; }

 private:
  mutable int64_t now_ns_ = 100;
};

class Notes final : public StageObserver {
 public:
  void OnEvent(const Event& event) override {
    names.emplace_back(event.name);
    times_ns.push_back(event.time_ns);
  }
  void OnPlan(const TunePlan& plan) override { cells.push_back(plan.cells); }
  bool StopRequested() override { return stops; }
  std::vector<std::string> names;
  std::vector<int64_t> times_ns;
  std::vector<int32_t> cells;
  bool stops = false;
};

TEST(EventStreamTest, AllListenersHearTheSameEventsAtTheSameTimes) {
  const CountingClock clock;
  Notes first;
  Notes second;
  EventStream stream(clock, {&first, &second});
  {
    const StageSpan span(stream, Stage::kWarm);
    EmitLine(stream, Severity::kWarning, "late");
  }
  stream.OnPlan({.cells = 3});
  for (const Notes* notes : {&first, &second}) {
    EXPECT_THAT(notes->names, ElementsAre("warm", "late", "warm"));
    EXPECT_THAT(notes->times_ns, ElementsAre(101, 102, 103));
    EXPECT_THAT(notes->cells, ElementsAre(3));
  }
}

TEST(EventStreamTest, AStreamInAStreamKeepsTheTime) {
  const CountingClock clock;
  Notes notes;
  EventStream inner(clock, {&notes});
  EventStream outer(clock, {&inner});
  MarkStage(outer, Stage::kVote);
  MarkStage(outer, Stage::kVote);
  EXPECT_THAT(notes.times_ns, ElementsAre(101, 102)) << "only the outer one reads the clock";
  EXPECT_FALSE(outer.StopRequested());
  notes.stops = true;
  EXPECT_TRUE(outer.StopRequested());
}

TEST(EventStreamTest, AWarningOfRefusedCellsIsALineUnlessAListenerWantsItApart) {
  class Apart final : public StageObserver {
   public:
    void OnRefusedCells(const Event& warning) override {
      severities.push_back(warning.severity);
      times_ns.push_back(warning.time_ns);
    }
    std::vector<Severity> severities;
    std::vector<int64_t> times_ns;
  };
  const CountingClock clock;
  Notes notes;
  Apart apart;
  EventStream inner(clock, {&notes, &apart});
  EventStream outer(clock, {&inner});
  EmitRefusedCells(outer, "no choice");
  EXPECT_THAT(notes.names, ElementsAre("no choice"));
  EXPECT_THAT(notes.times_ns, ElementsAre(101));
  EXPECT_THAT(apart.severities, ElementsAre(Severity::kWarning));
  EXPECT_THAT(apart.times_ns, ElementsAre(101));
  outer.Close();
  EmitRefusedCells(outer, "no choice");
  EXPECT_EQ(notes.names.size(), 1u);
}

TEST(EventStreamTest, NobodyHearsAClosedStream) {
  const CountingClock clock;
  Notes notes;
  EventStream stream(clock, {&notes});
  stream.Close();
  MarkStage(stream, Stage::kVote);
  EXPECT_TRUE(notes.names.empty());
}

// The listener has no lock: a stream that let two threads in at once loses events, and TSan sees
// it.
TEST(EventStreamTest, ThreadsEmitAtOnceAndListenersHearOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 1000;
  const CountingClock clock;
  Notes notes;
  EventStream stream(clock, {&notes});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&stream] {
      for (int span = 0; span < kSpans; ++span) {
        const ScopedSpan compile(stream, SpanKind::kCompile, "compile", "node", "host/ring");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(notes.names.size(), size_t{2} * kThreads * kSpans);
}

TEST(SeverityTest, NumbersOfPluginsAreNames) {
  EXPECT_EQ(SeverityOf(0), Severity::kDebug);
  EXPECT_EQ(SeverityOf(2), Severity::kWarning);
  EXPECT_EQ(SeverityOf(17), Severity::kError);
  EXPECT_EQ(SeverityOf(-1), Severity::kDebug);
}

TEST(StageNamesTest, AnEventSaysWhichStageItBeginsOrEnds) {
  for (int i = 0; i < kStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    EXPECT_EQ(FindStage(Name(stage)), stage);
    EXPECT_EQ(StageBegunBy({.type = EventType::kBegin, .name = Name(stage)}), stage);
    EXPECT_EQ(StageBegunBy({.type = EventType::kMark, .name = Name(stage)}), stage);
    EXPECT_EQ(StageEndedBy({.type = EventType::kEnd, .name = Name(stage)}), stage);
    EXPECT_EQ(StageBegunBy({.type = EventType::kEnd, .name = Name(stage)}), std::nullopt);
    EXPECT_EQ(StageBegunBy({.type = EventType::kLine, .name = Name(stage)}), std::nullopt);
  }
  EXPECT_EQ(FindStage("nowhere"), std::nullopt);
  EXPECT_EQ(StageBegunBy({.type = EventType::kBegin, .kind = SpanKind::kCell, .name = "warm"}),
            std::nullopt);
}

}  // namespace
}  // namespace cotune
