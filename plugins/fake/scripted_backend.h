// The backend and its groups, as the script has them behave, for the shell of the SDK.
#ifndef COTUNE_PLUGINS_FAKE_SCRIPTED_BACKEND_H_
#define COTUNE_PLUGINS_FAKE_SCRIPTED_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/fake/operation.h"
#include "plugins/fake/script.h"
#include "plugins/fake/scripted_runs.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::fake {

class FakeBackend;

class FakeGroup {
 public:
  using Plan = FakePlan;
  using Region = FakeRegion;

  FakeGroup(FakeBackend& backend, const cotune_group_params_t& params);

  FakeBackend& backend() const { return backend_; }
  GroupState& state() { return state_; }

  int world_size() const { return state_.world_size(); }
  std::optional<Failure> Health() {
    if (state_.aborted) return Failure{COTUNE_ABORTED, 0, -1, "the group was aborted"};
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }
  void Abort() { fake::Abort(state_); }
  Result<std::unique_ptr<Plan>> Prepare(const cotune_problem_t& problem, std::string_view name,
                                        int64_t deadline_ns);
  // Only if the script has regions.
  Result<std::unique_ptr<Region>> PrepareRegion(const sdk::Program& region, std::string_view name,
                                                int64_t deadline_ns);

  // Keeps the first failure of the group and passes it on.
  tl::unexpected<Failure> Break(Failure failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = failure;
    return tl::make_unexpected(std::move(failure));
  }

 private:
  Result<const ScriptedChoice*> Find(std::string_view name) const;
  // The delay, the failure and the meeting of the script.
  Result<void> PrepareByScript(const ScriptedChoice& choice, int64_t deadline_ns);

  FakeBackend& backend_;
  GroupState state_;
  std::mutex mutex_;  // guards what follows
  std::optional<Failure> failure_;
};

class FakeBackend {
 public:
  using Group = FakeGroup;
  using Part = FakePart;
  using Problem = cotune_problem_t;

  static constexpr char kName[] = "fake";
  static constexpr char kVersion[] = "1";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
  static constexpr int kRanksMax = 128;
  static constexpr bool kNeedsOneHost = false;  // its data goes through the job's store

  FakeBackend(const cotune_host_t& to_host, Script to_follow)
      : host(to_host), script(std::move(to_follow)), calls(script.breaches.size()) {}

  static Result<std::unique_ptr<FakeBackend>> Create(const cotune_host_t& host, int32_t device);
  int32_t device() const { return -1; }
  const std::string& LibrariesText() const { return script.libraries; }
  static Result<Problem> CheckProblem(const cotune_problem_t& problem);
  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const;
  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params);
  // Returns true if the script names this rank: it has made a group by then, and -1 names none.
  bool IsAt(int32_t scripted_rank) const { return scripted_rank >= 0 && scripted_rank == rank; }
  // Only if the script has parts.
  Result<std::unique_ptr<Part>> PreparePart(const sdk::Program& part, int64_t deadline_ns);
  // Only if the script has regions.
  Result<std::vector<cotune_choice_t>> ListRegion(const sdk::Program& region) const;

  const cotune_host_t& host;
  const Script script;
  std::atomic<int32_t> rank = -1;           // in the last group that was made, -1 before
  std::vector<std::atomic<int64_t>> calls;  // so far, that each breach of the script is about
};

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPTED_BACKEND_H_
