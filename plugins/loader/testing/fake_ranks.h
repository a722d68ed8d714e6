// Ranks for the tests of the loader and of the fake backend: each with an exchange, host services,
// the adapted backend (the fake one or another) and a group.
#ifndef COTUNE_PLUGINS_LOADER_TESTING_FAKE_RANKS_H_
#define COTUNE_PLUGINS_LOADER_TESTING_FAKE_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/ranks/rank_exchange.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/loader/host_services.h"

namespace cotune {

inline constexpr int64_t kPatienceNs = 60'000'000'000;
inline constexpr int kFirstJobRank =
    10;  // of rank 0 of the group, so that errors show which is named

struct FakeRank {
  // Aborts the process when the backend cannot be made. `group` stays empty when it cannot be:
  // group_error says why.
  FakeRank(RankExchange& exchange, const Clock& rank_clock, const std::string& script,
           const cotune_backend_api_t* table = fake::BackendApi());

  Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, const std::string& name);
  // Prepares the choice and runs it once over poisoned buffers with guards. An empty text when
  // every value is right and nothing else was written, else what was wrong.
  std::string RunAndCheck(const Problem& problem, const std::string& name);

  RankExchange& exchange;
  const Clock& clock;
  HostServices services;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<BackendGroup> group;
  Error group_error;
};

// One thread a rank, joined at the end.
void OnFakeRanks(int world_size, const std::string& script,
                 const std::function<void(int rank, FakeRank& self)>& body,
                 const cotune_backend_api_t* table = fake::BackendApi());

Problem MakeProblem(Collective collective, Reduction reduction, Dtype dtype, int world_size,
                    uint64_t count, bool in_place = false);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_TESTING_FAKE_RANKS_H_
