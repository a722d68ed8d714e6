#include "core/testing/tune_on_ranks.h"

#include <thread>
#include <utility>

#include "core/recipe/recipe_source.h"
#include "gtest/gtest.h"

namespace cotune {

ProblemClass AllReduce(int world_size) {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  cls.world_size = world_size;
  cls.ranks_per_node = world_size;
  return cls;
}

ScriptedChoice Scripted(std::string name, int64_t cost_ns) {
  ScriptedChoice choice;
  choice.name = std::move(name);
  choice.cost_ns = [cost_ns](uint64_t) { return cost_ns; };
  return choice;
}

Program ProgramOfNode(const Tune& tune, size_t node) {
  const std::string text = node < tune.node_programs.size() ? tune.node_programs[node] : "";
  if (!text.empty()) {
    return *Program::Bind(*ProgramGraph::Parse(text),
                          {MemoryKind::kHost, tune.world_size, tune.world_size, tune.buffer_class});
  }
  ProblemClass cls = AllReduce(tune.world_size);
  cls.in_place = node != 0;
  cls.buffer_class = tune.buffer_class;
  return *Program::SingleCollective(cls);
}

std::vector<RankView> RunTune(const Tune& tune, int* pre_syncs) {
  HubForTest hub(tune.world_size);
  hub.late_ranks = tune.late_ranks;
  hub.on_step = tune.on_step;
  std::vector<RankView> views(tune.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < tune.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      RankView& view = views[rank];
      const MonotonicClock clock;
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest backend(hub, rank, tune.choices(rank));
      backend.register_fails_on_rank = tune.register_fails_on_rank;
      backend.part_ulp_on_rank = tune.part_ulp_on_rank;
      backend.part_ulp_is_in_replicated = tune.part_ulp_is_in_replicated;
      if (tune.on_prepare) backend.on_prepare = [&tune, rank] { tune.on_prepare(rank); };
      DeviceScript device_script = tune.device ? tune.device(rank) : DeviceScript{};
      device_script.job_begin_ns = JobBeginForTest(rank);
      const std::unique_ptr<Device> device = MakeDeviceForTest(device_script);
      BackendGroups::Options options;
      options.name = "job";
      for (int i = 0; i < tune.world_size; ++i) options.job_ranks.push_back(i);
      auto groups = BackendGroups::Create({&backend}, *exchange, clock, options);
      ASSERT_TRUE(groups.has_value()) << groups.error().ToText();
      Temporaries temporaries(*device);
      backend.says_it_has_parts = true;
      TuningSettings settings = tune.settings;
      if (tune.change_settings) tune.change_settings(rank, settings);
      const UnfusedRecipes unfused;
      (*groups)->set_numerics(settings.numerics);
      (*groups)->set_program_support({.part_backend = &backend,
                                      .temporaries = &temporaries,
                                      .rounds_values = settings.numerics == NumericsRule::kSame,
                                      .recipes = tune.recipes != nullptr ? tune.recipes : &unfused,
                                      .fusion = settings.fusion});
      view.observer.is_interrupted = tune.interrupted_ranks.contains(rank);
      if (tune.stops) view.observer.stops = [&tune, rank] { return tune.stops(rank); };
      TuneParts parts{*exchange, **groups, *device, clock, view.observer, tune.known};
      if (tune.processor_times) parts.processor_times = tune.processor_times(rank);
      Scheduler scheduler(parts, settings, {}, tune.base);
      Tune own = tune;
      if (tune.change_nodes) tune.change_nodes(rank, own.node_programs, own.node_sizes);
      Status added;
      for (size_t i = 0; i < own.node_sizes.size() && added; ++i) {
        added = scheduler.AddNode(ProgramOfNode(own, i), own.node_sizes[i], 7);
      }
      view.outcome = added ? scheduler.Resolve() : Propagate(added);
      for (const auto& node : scheduler.nodes()) {
        for (const auto& [bytes, decided] : node->cells()) {
          view.cells.push_back(decided.cell);
        }
      }
      EXPECT_EQ(backend.registered_bytes, 0u) << "memory of a tune is given back";
      view.groups_created = backend.groups_created;
      view.plans_prepared = backend.plans_prepared;
      view.lists_made = backend.lists_made;
      view.roundings_of_regions = backend.roundings_of_regions;
      view.recv_buffers = backend.recv_buffers.size();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (pre_syncs != nullptr) *pre_syncs = hub.pre_syncs;
  return views;
}

const Verdict& VerdictOf(const CellResult& cell, const std::string& name) {
  for (const Verdict& verdict : cell.verdicts) {
    if (verdict.id.text() == "scripted/" + name) return verdict;
  }
  ADD_FAILURE() << "no verdict of " << name;
  return cell.verdicts.front();
}

std::string WinnerAt(const TuneOutcome& outcome, uint64_t bytes, int world_size, bool in_place) {
  ProblemClass cls = AllReduce(world_size);
  cls.in_place = in_place;
  const int32_t index = outcome.table.Lookup(DispatchKey::Of(cls), bytes);
  return index == DispatchTable::kNoChoice ? "" : outcome.table.choices()[index].text();
}

ScriptedChoice Linear(std::string name, int64_t base_ns, int64_t ns_per_byte) {
  ScriptedChoice choice = Scripted(std::move(name), 0);
  choice.cost_ns = [=](uint64_t bytes) {
    return base_ns + static_cast<int64_t>(bytes) * ns_per_byte;
  };
  return choice;
}

std::vector<ScriptedChoice> LatencyAndBandwidth(int /*rank*/) {
  std::vector<ScriptedChoice> choices = {Linear("usual", 900'000, 9), Linear("latency", 10'000, 10),
                                         Linear("bandwidth", 60'000, 1)};
  choices[0].is_default = true;
  choices[1].noise_ns = 30;
  choices[2].noise_ns = 50;
  return choices;
}

std::vector<ScriptedChoice> NineForEach(int /*rank*/) {
  std::vector<ScriptedChoice> choices;
  for (int i = 0; i < 9; ++i) {
    ScriptedChoice choice = Scripted("way" + std::to_string(i), 0);
    choice.is_default = i == 0;
    choice.cost_ns = [i](uint64_t bytes) {
      const bool is_best = bytes > 5000 ? i == 5 : i == 3;
      return is_best ? 20'000 : 100'000 + 2'000 * i;
    };
    choices.push_back(std::move(choice));
  }
  return choices;
}

std::string WinnerOf(const Tune& tune, const TuneOutcome& outcome, size_t node, uint64_t bytes) {
  const Program program = ProgramOfNode(tune, node);
  const Problem problem = program.ProblemAt(bytes, 7);
  const int32_t index = outcome.table.Lookup(DispatchKey::Of(program.anchor()), problem.bytes());
  return index == DispatchTable::kNoChoice ? "" : outcome.table.choices()[index].text();
}

}  // namespace cotune
