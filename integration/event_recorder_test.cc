#include "integration/event_recorder.h"

#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/events/event_stream.h"
#include "core/ranks/step_record.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using testing::ElementsAre;

Event Begin(std::string_view name, int64_t time_ns) {
  return {.type = EventType::kBegin, .name = name, .time_ns = time_ns};
}
Event End(std::string_view name, int64_t time_ns) {
  return {.type = EventType::kEnd, .name = name, .time_ns = time_ns};
}
Event Sample(int64_t time_ns) {
  return {.type = EventType::kCounter, .name = "sample", .value = 5, .time_ns = time_ns};
}

// "name lane begin+extent" of each entry.
std::vector<std::string> Texts(const TraceOfRank& trace) {
  std::vector<std::string> texts;
  for (const TraceOfRank::Entry& entry : trace.entries) {
    texts.push_back(trace.texts[entry.name] + " " + std::to_string(entry.lane) + " " +
                    std::to_string(entry.time_ns) + "+" + std::to_string(entry.value));
  }
  return texts;
}

TEST(EventRecorderTest, SpansHaveTheirExtentAndThreadsTheirLanes) {
  EventRecorder recorder;
  recorder.OnEvent(Begin("tune", 1));
  recorder.OnEvent(Begin("warm", 2));
  std::thread([&] {
    recorder.OnEvent(Begin("a", 3));
    // While this one is in its span, the next has another lane; then the lane is free again.
    std::thread([&] {
      recorder.OnEvent(Begin("b", 4));
      recorder.OnEvent(End("b", 6));
    }).join();
    recorder.OnEvent(End("a", 9));
  }).join();
  std::thread([&] {
    recorder.OnEvent(Begin("c", 10));
    recorder.OnEvent(End("c", 11));
  }).join();
  recorder.OnEvent(End("warm", 12));
  recorder.OnEvent(Sample(13));
  recorder.OnEvent(End("tune", 20));
  recorder.OnEvent(Begin("open", 21));
  const TraceOfRank trace = recorder.Take();
  EXPECT_THAT(Texts(trace), ElementsAre("tune 0 1+19", "warm 0 2+10", "a 1 3+6", "b 2 4+2",
                                        "c 1 10+1", "sample 0 13+5"));
  EXPECT_EQ(trace.dropped, 0u);
}

TEST(EventRecorderTest, BeyondTheLimitEventsAreCountedAndSpansStayWhole) {
  EventRecorder recorder({.events = 3, .counters = 1});
  recorder.OnEvent(Begin("tune", 1));
  recorder.OnEvent(Sample(2));
  recorder.OnEvent(Sample(3));  // dropped: counters
  recorder.OnEvent(Begin("kept", 4));
  recorder.OnEvent(Begin("dropped", 5));
  recorder.OnEvent(End("dropped", 6));
  recorder.OnEvent(End("kept", 7));
  recorder.OnEvent(Begin("dropped", 8));
  recorder.OnEvent(End("dropped", 9));
  recorder.OnEvent(End("tune", 10));
  const TraceOfRank trace = recorder.Take();
  EXPECT_THAT(Texts(trace), ElementsAre("tune 0 1+9", "sample 0 2+5", "kept 0 4+3"));
  EXPECT_EQ(trace.dropped, 3u);
}

TEST(EventRecorderTest, TextsAreKeptOnceAndBounded) {
  EventRecorder recorder({.text_bytes = 10});
  for (int i = 0; i < 5; ++i) {
    recorder.OnEvent({.name = "0123456", .node = "ab", .choice = "", .time_ns = i});
  }
  recorder.OnEvent({.name = "xyz", .time_ns = 6});
  recorder.OnEvent({.name = "0123456", .time_ns = 7});
  const TraceOfRank trace = recorder.Take();
  EXPECT_THAT(trace.texts, ElementsAre("", "0123456", "ab", "xyz"));
  EXPECT_EQ(trace.entries.size(), 6u);
  EXPECT_EQ(trace.dropped, 1u);
}

// A full record fits in what ranks can send each other.
TEST(EventRecorderTest, AFullTraceCanBeSent) {
  EventRecorder recorder;
  const std::string long_text(60, 'x');
  for (int i = 0; i < 120'000; ++i) {
    const std::string choice = long_text + std::to_string(i % 60'000);
    recorder.OnEvent({.type = EventType::kMark,
                      .name = "warm",
                      .choice = choice,
                      .value = INT64_MAX,
                      .time_ns = INT64_MAX});
  }
  TraceOfRank trace = recorder.Take();
  EXPECT_GT(trace.dropped, 0u);
  EXPECT_LT(EncodeStepRecord({std::nullopt, std::move(trace)}).size(), kStepRecordBytesMax);
}

TEST(EventRecorderTest, ThreadsRecordAtOnceThroughAStream) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 500;
  const MonotonicClock clock;
  EventRecorder recorder;
  EventStream stream(clock, {&recorder});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int span = 0; span < kSpans; ++span) {
        const ScopedSpan compile(stream, SpanKind::kCompile, "compile");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const TraceOfRank trace = recorder.Take();
  EXPECT_EQ(trace.entries.size(), size_t{kThreads} * kSpans);
  for (const TraceOfRank::Entry& entry : trace.entries) {
    EXPECT_GE(entry.value, 0);
    EXPECT_GE(entry.lane, 1u);
    EXPECT_LE(entry.lane, uint32_t{kThreads});
  }
}

TEST(RecorderLimitsTest, ManyRanksKeepNoMoreTogetherThanEight) {
  EXPECT_EQ(RecorderLimits::ForRanks(1).events, 100'000u);
  EXPECT_EQ(RecorderLimits::ForRanks(8).events, 100'000u);
  EXPECT_EQ(RecorderLimits::ForRanks(64).events, 100'000u / 8);
  EXPECT_EQ(RecorderLimits::ForRanks(64).text_bytes, (4u << 20) / 8);
}

}  // namespace
}  // namespace cotune
