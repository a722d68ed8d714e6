#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {
namespace {

// "backend/algorithm" of a choice.
std::string AlgorithmOf(const std::string& choice) { return choice.substr(0, choice.find('?')); }

class Cotune : public Contender {
 public:
  explicit Cotune(const CotuneOptions& options) : name_(options.name) {
    cotune_group_options group{};
    group.struct_size = sizeof(group);
    group.plugin_path = options.plugin_path.c_str();
    group.ignores_database = 1;  // it tunes by itself
    if (!options.socket_path.empty()) {
      group.socket_path = options.socket_path.c_str();
      MPI_Comm_rank(MPI_COMM_WORLD, &group.rank);
      MPI_Comm_size(MPI_COMM_WORLD, &group.world_size);
    }
    if (!options.settings_path.empty()) setenv("COTUNE_CONFIG", options.settings_path.c_str(), 1);
    cotune_error error{};
    error.struct_size = sizeof(error);
    if (cotune_group_create(&group, &group_, &error) != COTUNE_SUCCESS) Die(error.text);
    Tune(options);
  }

  ~Cotune() override { cotune_group_destroy(group_); }

  std::string Name() const override { return name_; }

  bool IsPeer() const override { return false; }

  void Prepare(const Workload& workload) override { workload_ = workload; }

  void Run() override {
    const Workload& w = workload_;
    switch (w.collective) {
      case COTUNE_COLLECTIVE_ALL_REDUCE:
        return Check(
            cotune_all_reduce(group_, w.send, w.recv, w.count, COTUNE_F32, COTUNE_REDUCE_SUM));
      case COTUNE_COLLECTIVE_ALL_GATHER:
        return Check(cotune_all_gather(group_, w.send, w.recv, w.count, COTUNE_F32));
      case COTUNE_COLLECTIVE_REDUCE_SCATTER:
        return Check(
            cotune_reduce_scatter(group_, w.send, w.recv, w.count, COTUNE_F32, COTUNE_REDUCE_SUM));
      case COTUNE_COLLECTIVE_ALL_TO_ALL:
        return Check(cotune_all_to_all(group_, w.send, w.recv, w.count, COTUNE_F32));
      default:
        return Check(cotune_broadcast(group_, w.recv, w.recv, w.count, COTUNE_F32, 0));
    }
  }

  std::string Chosen() override { return Explanation().at("choice"); }

  std::map<std::string, double> AlgorithmTimes() override {
    std::map<std::string, double> times;
    const nlohmann::json explanation = Explanation();
    for (const auto& size : explanation.at("measured")) {
      if (size.at("bytes") != explanation.at("bytes")) continue;
      for (const auto& choice : size.at("choices")) {
        if (choice.at("time_us").is_null()) continue;  // it failed
        const double us = choice.at("time_us");
        const auto [at, is_new] = times.try_emplace(AlgorithmOf(choice.at("choice")), us);
        if (!is_new) at->second = std::min(at->second, us);
      }
    }
    return times;
  }

 private:
  void Tune(const CotuneOptions& options) {
    cotune_tune_options tune{};
    tune.struct_size = sizeof(tune);
    for (const cotune_collective each : options.collectives) tune.collectives |= 1u << each;
    tune.sizes_bytes = options.sizes_bytes.data();
    tune.size_count = options.sizes_bytes.size();
    tune.budget_ns = options.budget_ns;
    if (!options.database_path.empty()) tune.database_path = options.database_path.c_str();
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    const auto begin = std::chrono::steady_clock::now();
    Check(cotune_tune(group_, &tune, &report));
    if (cotune_group_rank(group_) != 0) return;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %d cells measured, %d known, %d skipped in %.1f s\n", name_.c_str(),
                report.measured, report.known, report.skipped, took.count());
    std::fflush(stdout);
  }

  nlohmann::json Explanation() {
    cotune_call call{};
    call.struct_size = sizeof(call);
    call.collective = workload_.collective;
    call.dtype = COTUNE_F32;
    const bool reduces = workload_.collective == COTUNE_COLLECTIVE_ALL_REDUCE ||
                         workload_.collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
    call.reduction = reduces ? COTUNE_REDUCE_SUM : 0;
    call.count = workload_.count;
    size_t length = 0;
    Check(cotune_explain_json(group_, &call, nullptr, 0, &length));
    std::string text(length + 1, '\0');
    Check(cotune_explain_json(group_, &call, text.data(), text.size(), nullptr));
    text.resize(length);
    return nlohmann::json::parse(text);
  }

  void Check(cotune_result result) {
    if (result != COTUNE_SUCCESS) Die(cotune_last_error(group_));
  }

  const std::string name_;
  cotune_group* group_ = nullptr;
  Workload workload_;
};

}  // namespace

uint64_t Workload::SendElements() const {
  const bool has_blocks =
      collective == COTUNE_COLLECTIVE_REDUCE_SCATTER || collective == COTUNE_COLLECTIVE_ALL_TO_ALL;
  return has_blocks ? count * static_cast<uint64_t>(world_size) : count;
}

uint64_t Workload::RecvElements() const {
  const bool has_blocks =
      collective == COTUNE_COLLECTIVE_ALL_GATHER || collective == COTUNE_COLLECTIVE_ALL_TO_ALL;
  return has_blocks ? count * static_cast<uint64_t>(world_size) : count;
}

void Die(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

std::unique_ptr<Contender> MakeCotune(const CotuneOptions& options) {
  return std::make_unique<Cotune>(options);
}

}  // namespace cotune::bench
