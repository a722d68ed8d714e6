// Each setting of fusion by each of its names decides what a tune of a program ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"
#include "integration/settings/settings.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kBytes = 1024;
constexpr int kRanks = 2;

// The places in which a user writes a setting.
enum class Place : uint8_t { kFile, kEnvironment, kFlag };
constexpr Place kPlaces[] = {Place::kFile, Place::kEnvironment, Place::kFlag};

TuningSettings SettingsWith(Place place, const std::string& name, const std::string& value) {
  SettingSources sources;
  switch (place) {
    case Place::kFile:
      sources.settings_file = ::testing::TempDir() + "/fusion_settings.toml";
      std::ofstream(*sources.settings_file) << fmt::format("{} = \"{}\"\n", name, value);
      break;
    case Place::kEnvironment:
      sources.environment = {{VariableName(name), value}};
      break;
    case Place::kFlag:
      sources.flags = {{name, value}};
      break;
  }
  const Result<ResolvedSettings> resolved = ResolveSettings(sources);
  EXPECT_TRUE(resolved.has_value()) << resolved.error().ToText();
  EXPECT_THAT(resolved->warnings, ::testing::IsEmpty());
  return resolved->values;
}

// The costs are scripted: a collective takes 100 us, with one operation around it 80 us, and 5 us
// less with each further one. Parts cost nothing.
std::vector<ScriptedChoice> FusesForLess(int /*rank*/) {
  ScriptedChoice choice = Scripted("one", 100'000);
  choice.is_default = true;
  choice.fused_cost_ns = [](uint64_t /*bytes*/, size_t operations) {
    return 85'000 - 5'000 * static_cast<int64_t>(operations);
  };
  return {choice};
}

constexpr char kBare[] = "scripted/one";
constexpr char kEpilogue[] =
    "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n";
constexpr char kPrologue[] =
    "%x = input f32 [R, 4]\n%m = neg %x\n%y = all_reduce sum %m\nreturn %y\n";
constexpr char kFiveDeep[] =
    "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%a = neg %s\n%b = relu %a\n%c = mul %b, 2\n"
    "%d = add %c, 1\n%y = neg %d\nreturn %y\n";
constexpr char kTwoCollectives[] =
    "%x = input f32 [R, 4]\n%y = input f32 [R, 4]\n%a = all_reduce sum %x\n"
    "%b = all_reduce sum %y\nreturn %a, %b\n";

// A program that one value of a setting tunes to one winner, and another value to another one.
struct Row {
  std::string name;     // the setting's own name, or an alias
  std::string setting;  // its own name
  std::string program;
  std::string value;
  std::string winner;
  std::string other_value;
  std::string other_winner;

  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << row.name << " " << row.value << " " << row.other_value;
  }
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {"collective_fusion_enabled", "collective_fusion_enabled", kEpilogue,  //
       "on", "scripted/one?fuse=1", "off", kBare},
      {"enable_custom_op_fusion", "collective_fusion_enabled", kTwoCollectives,  //
       "on", "scripted/one?fuse=-1.1&via=bucket", "off", kBare},
      {"custom_op_fusion_types", "custom_op_fusion_types", kEpilogue,  //
       "epilogue", "scripted/one?fuse=1", "prologue,cross_subgraph", kBare},
      {"custom_op_fusion_types", "custom_op_fusion_types", kPrologue,  //
       "prologue", "scripted/one?fuse=-1", "epilogue,cross_subgraph", kBare},
      {"custom_op_fusion_types", "custom_op_fusion_types", kTwoCollectives,  //
       "cross_subgraph", "scripted/one?via=bucket", "epilogue,prologue", kBare},
      {"benchmark_collective_epilogue_fusion", "benchmark_collective_epilogue_fusion", kEpilogue,
       "on", "scripted/one?fuse=1", "off", kBare},
      {"enable_recursive_fusion", "enable_recursive_fusion", kFiveDeep,  //
       "on", "scripted/one?fuse=1.2.3.4", "off", "scripted/one?fuse=1"},
      {"max_fusion_depth", "max_fusion_depth", kFiveDeep,  //
       "5", "scripted/one?fuse=1.2.3.4.5", "2", "scripted/one?fuse=1.2"},
      {"fusion_speedup_threshold", "fusion_speedup_threshold", kEpilogue,  //
       "1.02", "scripted/one?fuse=1", "1.5", kBare},
  };
  return rows;
}

const FusionRecipes& Recipes() {
  static const FusionRecipes recipes;
  return recipes;
}

Tune TuneOf(const std::string& program, const TuningSettings& settings) {
  Tune tune;
  tune.world_size = kRanks;
  tune.settings = settings;
  tune.choices = FusesForLess;
  tune.node_programs = {program};
  tune.node_sizes = {{kBytes}};
  tune.recipes = &Recipes();
  return tune;
}

std::vector<std::string> Winners(const Tune& tune) {
  std::vector<std::string> winners;
  const Program program = ProgramOfNode(tune, 0);
  const DispatchKey key = DispatchKey::Of(program.anchor());
  for (const RankView& view : RunTune(tune)) {
    if (!view.outcome) return {view.outcome.error().ToText()};
    const int32_t index = view.outcome->table.Lookup(key, program.ProblemAt(kBytes, 7).bytes());
    winners.push_back(index == DispatchTable::kNoChoice
                          ? ""
                          : view.outcome->table.choices()[static_cast<size_t>(index)].text());
  }
  return winners;
}

class FusionSettings : public ::testing::TestWithParam<Row> {};

TEST_P(FusionSettings, DecideTheWinner) {
  const Row& row = GetParam();
  for (const Place place : kPlaces) {
    SCOPED_TRACE(fmt::format("place {}", static_cast<int>(place)));
    EXPECT_THAT(Winners(TuneOf(row.program, SettingsWith(place, row.name, row.value))),
                AllOf(SizeIs(kRanks), Each(row.winner)));
    EXPECT_THAT(Winners(TuneOf(row.program, SettingsWith(place, row.name, row.other_value))),
                AllOf(SizeIs(kRanks), Each(row.other_winner)));
  }
}

TEST_P(FusionSettings, AreToldWhereRanksDifferBeforeAnythingIsMade) {
  const Row& row = GetParam();
  Tune tune = TuneOf(row.program, SettingsWith(Place::kFlag, row.name, row.value));
  tune.change_settings = [&](int rank, TuningSettings& settings) {
    if (rank == 1) settings = SettingsWith(Place::kEnvironment, row.name, row.other_value);
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kDisagreement);
    EXPECT_THAT(view.outcome.error().what,
                HasSubstr("rank 1 disagrees about 'setting " + row.setting + "': rank 1 has '"));
    EXPECT_THAT(view.outcome.error().what, HasSubstr("', and rank 0 has '"));
    EXPECT_EQ(view.outcome.error().ranks, std::vector<int>{1});
    EXPECT_EQ(view.plans_prepared, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, FusionSettings, ::testing::ValuesIn(Rows()),
                         [](const ::testing::TestParamInfo<Row>& row) {
                           return fmt::format("{}_{}", row.param.name, row.index);
                         });

// Each setting and alias that concerns fusion has a row; a setting that is added to the rules and
// has none is found by its member.
TEST(FusionSettingsTable, HasARowForEachSettingOfTheRules) {
  std::set<std::string> in_rows;
  for (const Row& row : Rows()) {
    in_rows.insert(row.name);
    EXPECT_EQ(FindSetting(row.name)->name, row.setting);
  }
  for (const SettingSpec& spec : AllSettings()) {
    const bool is_rule = std::holds_alternative<bool FusionRules::*>(spec.member) ||
                         std::holds_alternative<int32_t FusionRules::*>(spec.member) ||
                         std::holds_alternative<double FusionRules::*>(spec.member) ||
                         std::holds_alternative<uint8_t FusionRules::*>(spec.member);
    if (!is_rule) continue;
    EXPECT_TRUE(in_rows.contains(std::string(spec.name))) << spec.name;
    for (const std::string_view alias : AliasesOf(spec)) {
      EXPECT_TRUE(in_rows.contains(std::string(alias))) << alias;
    }
  }
}

// The threads that prepare the choices of a rank. Each waits until as many as are expected have
// come, so that none does the work of another. If one waits in vain, nobody waits any more.
class PreparingThreads {
 public:
  explicit PreparingThreads(size_t expected) : expected_(expected) {}
  void Enter() {
    std::unique_lock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    changed_.notify_all();
    const auto all_have_come = [&] { return waits_in_vain_ || threads_.size() >= expected_; };
    if (!changed_.wait_for(lock, std::chrono::seconds(5), all_have_come)) waits_in_vain_ = true;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }

 private:
  const size_t expected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> threads_;
  bool waits_in_vain_ = false;
};

std::vector<ScriptedChoice> Twelve(int /*rank*/) {
  std::vector<ScriptedChoice> choices;
  for (int i = 0; i < 12; ++i) choices.push_back(Scripted(fmt::format("way{}", i), 100'000));
  choices[0].is_default = true;
  return choices;
}

TEST(PrecompileThreads, AreAsManyAsTheSettingSaysByBothNames) {
  for (const char* const name : {"precompile_threads", "max_autotune_gemm_threads"}) {
    for (const Place place : kPlaces) {
      for (const size_t threads : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, static_cast<int>(place), threads));
        Tune tune = TuneOf(kEpilogue, SettingsWith(place, name, std::to_string(threads)));
        tune.choices = Twelve;
        PreparingThreads of_ranks[kRanks] = {PreparingThreads(threads), PreparingThreads(threads)};
        tune.on_prepare = [&](int rank) { of_ranks[rank].Enter(); };
        EXPECT_THAT(Winners(tune), SizeIs(kRanks));
        for (PreparingThreads& of_rank : of_ranks) EXPECT_EQ(of_rank.count(), threads);
      }
    }
  }
}

// Ranks may have different numbers of processors.
TEST(PrecompileThreads, MayDifferBetweenRanks) {
  Tune tune = TuneOf(kEpilogue, SettingsWith(Place::kFlag, "max_autotune_gemm_threads", "1"));
  tune.change_settings = [](int rank, TuningSettings& settings) {
    settings = SettingsWith(Place::kEnvironment, "precompile_threads", rank == 0 ? "1" : "3");
  };
  EXPECT_THAT(Winners(tune), AllOf(SizeIs(kRanks), Each("scripted/one?fuse=1")));
}

}  // namespace
}  // namespace cotune
