// A table that answers as the test says, and the backend that the adapter makes of it.
#ifndef COTUNE_PLUGINS_LOADER_TESTING_PROBE_BACKEND_H_
#define COTUNE_PLUGINS_LOADER_TESTING_PROBE_BACKEND_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "sync/exchange/local_exchange.h"

// Everything that the table's functions answer; the handle of the backend points to it.
struct cotune_backend_t {
  cotune_status_t status = COTUNE_OK;  // of prepare, launch, progress and group_health
  int32_t failed_rank = -1;
  std::string message;
  std::vector<cotune_choice_t> choices;
  uint32_t list_calls = 0;
  const cotune_host_t* host = nullptr;
  cotune_problem_t problem{};
  cotune_launch_t launch{};
  std::vector<int32_t> job_ranks;
  std::vector<int32_t> host_of_rank;
  const cotune_memory_v1_t* memory = nullptr;  // the extension, if any
  const cotune_connections_v1_t* connections = nullptr;
  const cotune_libraries_v1_t* libraries = nullptr;
  const cotune_program_v1_t* program = nullptr;
  std::vector<std::pair<void*, uint64_t>> registered;
};

namespace cotune {

// The table "probe"; its create gives out the backend of the ProbeBackendTest that runs.
cotune_backend_api_t ProbeTable();
cotune_backend_t& Of(cotune_group_t* group);
cotune_backend_t& Of(cotune_plan_t* plan);
cotune_status_t Answer(const cotune_backend_t& backend, cotune_error_t* error);
// A choice as the table lists it.
cotune_choice_t Entry(const std::string& name, uint32_t flags = 0);

class ProbeBackendTest : public ::testing::Test {
 protected:
  ProbeBackendTest();
  ~ProbeBackendTest() override;

  ChoiceList List() {
    return backend_->ListChoices(Program::SingleCollective(problem_.cls).value(), problem_);
  }
  std::unique_ptr<BackendGroup> Group() {
    GroupParameters parameters;
    parameters.name = "g";
    parameters.rank = 1;
    parameters.job_ranks = {7, 5, 9};
    parameters.host_of_rank = {0, 1, 0};
    return backend_->CreateGroup(parameters).value();
  }
  Result<std::unique_ptr<Plan>> Prepare(BackendGroup& group) {
    return group.Prepare(Program::SingleCollective(problem_.cls).value(), problem_,
                         Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  }

  const MonotonicClock clock_;
  std::vector<std::unique_ptr<RankExchange>> exchanges_ = sync::MakeLocalExchanges(1, clock_);
  std::vector<std::string> log_;
  const HostServices services_{*exchanges_[0],
                               clock_,
                               {{"probe.depth", "3"}, {"depth", "4"}, {"other.depth", "5"}},
                               [this](int32_t, const std::string& text) { log_.push_back(text); }};
  const cotune_backend_api_t table_ = ProbeTable();
  cotune_backend_t probe_;
  Problem problem_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_TESTING_PROBE_BACKEND_H_
