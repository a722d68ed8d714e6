// The file of --trace, written by the real program and read as a viewer reads it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

struct Span {
  std::string name;
  std::string category;
  std::string choice;
  int lane = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// What a trace has of one rank.
struct RankTrace {
  std::string name;
  std::vector<Span> spans;
  std::set<std::string> marks;
  std::map<std::string, int> samples;  // by name

  const Span* Find(const std::string& category, const std::string& span_name) const {
    for (const Span& span : spans) {
      if (span.category == category && span.name == span_name) return &span;
    }
    return nullptr;
  }
};

int64_t Nanoseconds(const nlohmann::json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

std::map<int, RankTrace> ReadTrace(const std::string& path) {
  const nlohmann::json document = nlohmann::json::parse(ReadFileForTest(path), nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << path;
  std::map<int, RankTrace> ranks;
  if (document.is_discarded()) return ranks;
  for (const nlohmann::json& event : document["traceEvents"]) {
    RankTrace& rank = ranks[event["pid"]];
    const std::string phase = event["ph"];
    const std::string name = event["name"];
    if (phase == "M" && name == "process_name") rank.name = event["args"]["name"];
    if (phase == "i") rank.marks.insert(name);
    if (phase == "C") {
      EXPECT_GT(event["args"]["us"].get<double>(), 0) << event;
      ++rank.samples[name];
    }
    if (phase != "X") continue;
    const nlohmann::json arguments = event.value("args", nlohmann::json::object());
    const int64_t begin_ns = Nanoseconds(event["ts"]);
    rank.spans.push_back({name, event["cat"], arguments.value("choice", ""), event["tid"], begin_ns,
                          begin_ns + Nanoseconds(event["dur"])});
  }
  return ranks;
}

// Two spans of one lane lie apart, or one inside of the other.
void ExpectNested(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.lane, a.begin_ns, -a.end_ns) < std::tuple(b.lane, b.begin_ns, -b.end_ns);
  });
  std::vector<Span> open;
  for (const Span& span : spans) {
    if (!open.empty() && open.front().lane != span.lane) open.clear();
    while (!open.empty() && open.back().end_ns <= span.begin_ns) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(span.end_ns, open.back().end_ns)
          << span.name << " goes on behind the end of " << open.back().name;
    }
    open.push_back(span);
  }
}

class TraceTest : public CotuneProgramTest {
 protected:
  const std::string trace_ = folder_.path() + "/trace.json";
};

TEST_F(TraceTest, ShowsTheWholeTuneOfEachRank) {
  const ProgramEnd end = TuneSmall(database_, {"--trace", trace_, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json result = Document(end)["result"];
  std::multiset<std::string> choices;  // of all cells
  for (const nlohmann::json& entry : result["entries"]) {
    for (const nlohmann::json& choice : entry["choices"]) choices.insert(choice["choice"]);
  }
  const std::map<int, RankTrace> ranks = ReadTrace(trace_);
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& [number, rank] : ranks) {
    SCOPED_TRACE("rank " + std::to_string(number));
    EXPECT_EQ(rank.name, "rank " + std::to_string(number));
    ExpectNested(rank.spans);
    const Span* const tune = rank.Find("tune", "tune");
    ASSERT_NE(tune, nullptr);
    EXPECT_EQ(tune->lane, 0);
    std::multiset<std::string> compiled;
    std::set<std::string> cells;
    for (const Span& span : rank.spans) {
      EXPECT_GE(span.begin_ns, tune->begin_ns) << span.name;
      EXPECT_LE(span.end_ns, tune->end_ns) << span.name;
      if (span.category == "compile") {
        compiled.insert(span.choice);
        EXPECT_GT(span.lane, 0) << "plans are made on threads of their own";
      }
      if (span.category == "cell") cells.insert(span.name);
    }
    EXPECT_EQ(compiled, choices);
    EXPECT_EQ(cells.size(), result["measured_cells"].get<size_t>());
    for (const char* stage : {"choices", "known_cells", "precompile", "warm", "pre_sync",
                              "benchmark", "agree", "save"}) {
      EXPECT_NE(rank.Find("stage", stage), nullptr) << stage;
    }
    EXPECT_EQ(rank.marks.count("committed"), 1u);
    for (const nlohmann::json& entry : result["entries"]) {
      const std::string winner = entry["winner"]["choice"];
      EXPECT_NE(rank.Find("stage", "check " + winner), nullptr) << winner;
      EXPECT_GT(rank.samples.count("sample " + winner), 0u) << winner;
    }
  }
  // The ranks meet in the pre-sync, so that on one clock their spans have a moment in common.
  const Span* const first = ranks.at(0).Find("stage", "pre_sync");
  const Span* const second = ranks.at(1).Find("stage", "pre_sync");
  EXPECT_LT(std::max(first->begin_ns, second->begin_ns), std::min(first->end_ns, second->end_ns));
}

TEST_F(TraceTest, WinnersOfKnownCellsAreMadeReadyInThePreSync) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  const ProgramEnd end = TuneSmall(database_, {"--trace", trace_});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::map<int, RankTrace> ranks = ReadTrace(trace_);
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& [number, rank] : ranks) {
    const Span* const sync = rank.Find("stage", "pre_sync");
    ASSERT_NE(sync, nullptr);
    const auto compiles =
        std::count_if(rank.spans.begin(), rank.spans.end(), [&](const Span& span) {
          return span.category == "compile" && span.begin_ns >= sync->begin_ns &&
                 span.end_ns <= sync->end_ns;
        });
    EXPECT_EQ(compiles, 2) << "one for each known cell";
    EXPECT_TRUE(rank.samples.empty());
  }
}

TEST_F(TraceTest, BenchWritesOneToo) {
  const ProgramEnd end = Run(
      {"bench", "--ranks", "2", "--collective", "broadcast", "--sizes", "1K", "--trace", trace_});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::map<int, RankTrace> ranks = ReadTrace(trace_);
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& [number, rank] : ranks) EXPECT_NE(rank.Find("tune", "bench"), nullptr);
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsAWarningBehindTheResults) {
  const ProgramEnd end = TuneSmall(database_, {"--trace", "/dev/full", "--force"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(end.out.starts_with("all_reduce sum f32, 2 ranks")) << end.out;
  EXPECT_NE(end.err.find("saved " + database_), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("warning: the trace could not be written to /dev/full"), std::string::npos)
      << end.err;
}

TEST_F(TraceTest, APathWhereNoFileCanBeIsAnErrorBeforeAnythingIsMeasured) {
  for (const auto& [path, why] : std::vector<std::pair<std::string, std::string>>{
           {folder_.path() + "/missing/trace.json",
            "there is no folder " + folder_.path() + "/missing"},
           {folder_.path(), "it is a folder"},
           {database_ + "/trace.json", "Not a directory"}}) {
    std::ofstream(database_).put('x');
    for (const char* command : {"tune", "bench"}) {
      const ProgramEnd end = Run({command, "--ranks", "2", "--collective", "all_reduce", "--sizes",
                                  "1K", "--trace", path});
      EXPECT_EQ(end.exit_code, 3) << end.err;
      EXPECT_EQ(end.out, "");
      EXPECT_NE(end.err.find("no trace can be written to " + path + " (--trace): " + why),
                std::string::npos)
          << end.err;
      EXPECT_EQ(end.err.find("to measure"), std::string::npos) << end.err;
    }
  }
}

}  // namespace
}  // namespace cotune::cli
