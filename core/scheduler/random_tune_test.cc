// Random tunes of programs and plain collectives, mixed: no two ranks end with different winners.
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/testing/random_program.h"
#include "core/testing/tune_on_ranks.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

// A tune that differs with its seed, and what one of its ranks does otherwise.
class RandomTune {
 public:
  explicit RandomTune(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ull + 3) {
    tune_.world_size = 2 + Below(3);
    tune_.settings.min_rounds = 5;
    tune_.settings.collective_benchmark_nruns = 12;
    tune_.node_sizes.clear();
    for (int nodes = 1 + Below(4); nodes > 0; --nodes) {
      const auto program = static_cast<uint64_t>(Below(40));
      const std::string random = RandomProgram(program, tune_.world_size);
      const std::string texts[] = {"", kSequence, random, random};
      tune_.node_programs.push_back(texts[Below(4)]);
      tune_.node_sizes.push_back({uint64_t{1024} << Below(2)});
    }
    MakeChoices();
    if (Below(12) == 0) tune_.late_ranks = {Below(tune_.world_size)};
    if (Below(4) == 0) MakeOneDiffer();
  }

  Tune& tune() { return tune_; }
  // From 1; 0: all ranks have the same nodes.
  size_t odd_node() const { return odd_node_; }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }

  // Costs differ between the ranks, as measured times do. A choice is wrong on one rank only.
  void MakeChoices() {
    std::vector<ScriptedChoice> choices;
    for (const char* name : {"a", "b", "c"}) {
      choices.push_back(Linear(name, 5'000 + Below(60'000), Below(20)));
      choices.back().noise_ns = Below(3000);
      const int odd = Below(tune_.world_size);
      switch (name == std::string("a") ? 0 : Below(8)) {
        case 1:
          choices.back().prepare_fails_on_rank = odd;
          break;
        case 2:
          choices.back().launch_fails_on_rank = odd;
          break;
        case 3:
          choices.back().wrong_on_rank = odd;
          break;
        default:
          break;
      }
    }
    choices[static_cast<size_t>(Below(3))].is_default = true;
    const int skew_ns = Below(9000);
    tune_.choices = [choices, skew_ns](int rank) {
      std::vector<ScriptedChoice> own = choices;
      for (ScriptedChoice& choice : own) choice.noise_ns += skew_ns * rank;
      return own;
    };
  }

  void MakeOneDiffer() {
    const int odd_rank = Below(tune_.world_size);
    const auto at = static_cast<size_t>(Below(static_cast<int>(tune_.node_sizes.size())));
    const std::string other = RandomProgram(100 + random_() % 40, tune_.world_size);
    odd_node_ = at + 1;
    tune_.change_nodes = [=](int rank, auto& programs, auto&) {
      if (rank == odd_rank) programs[at] = other;
    };
  }

  std::mt19937_64 random_;
  Tune tune_;
  size_t odd_node_ = 0;
};

// The first mistake in the ends of the ranks; "" if there is none.
std::string CheckEnds(RandomTune& random, const std::vector<RankView>& views) {
  const RankView& first = views[0];
  for (const RankView& view : views) {
    if (view.outcome.has_value() != first.outcome.has_value()) return "only some ranks fail";
    if (!view.outcome) {
      std::string text = view.outcome.error().ToText();
      if (text != first.outcome.error().ToText()) return "ranks fail with different errors";
      const std::string named = fmt::format("in node {}:", random.odd_node());
      if (random.odd_node() == 0 || text.find(named) == std::string::npos) return text;
      continue;
    }
    if (random.odd_node() != 0) return "ranks with other nodes have agreed";
    if (view.outcome->committed != first.outcome->committed) return "only some ranks commit";
    if (view.outcome->table.Serialize() != first.outcome->table.Serialize()) {
      return "two ranks have different winners";
    }
    const bool is_late = !random.tune().late_ranks.empty();
    if (view.outcome->committed == is_late) return "the window does not decide";
  }
  return "";
}

TEST(RandomTuneTest, RandomTunesEndAlikeOnAllRanksAndInBothModes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t kTunes = 50;
#else
  constexpr uint64_t kTunes = 250;
#endif
  std::map<std::string, int> seen;
  for (uint64_t seed = 1; seed <= kTunes; ++seed) {
    RandomTune random(seed);
    const std::vector<RankView> deferred = RunTune(random.tune());
    ASSERT_EQ(CheckEnds(random, deferred), "") << "deferred, seed " << seed;
    random.tune().settings.enable_collective_multitemplate = false;
    const std::vector<RankView> immediate = RunTune(random.tune());
    ASSERT_EQ(CheckEnds(random, immediate), "") << "immediate, seed " << seed;
    if (!deferred[0].outcome) {
      ++seen["differ"];
      continue;
    }
    if (!deferred[0].outcome->committed) {
      ++seen["late"];
      continue;
    }
    ASSERT_EQ(deferred[0].outcome->table.Serialize(), immediate[0].outcome->table.Serialize())
        << "seed " << seed;
    for (const ChoiceId& id : deferred[0].outcome->table.choices()) {
      ++seen[id.text().find('+') == std::string::npos ? "one choice" : "several choices"];
    }
  }
  // Every ending is reached, so the tunes are not vacuous.
  for (const char* end : {"differ", "late", "one choice", "several choices"}) {
    EXPECT_GT(seen[end], static_cast<int>(kTunes / 80)) << end;
  }
}

}  // namespace
}  // namespace cotune
