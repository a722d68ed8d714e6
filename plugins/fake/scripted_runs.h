// Calls of the fake backend: plans, regions and parts, as the script has them behave.
#ifndef COTUNE_PLUGINS_FAKE_SCRIPTED_RUNS_H_
#define COTUNE_PLUGINS_FAKE_SCRIPTED_RUNS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/fake/operation.h"
#include "plugins/fake/part.h"
#include "plugins/fake/script.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::fake {

class FakeBackend;
class FakeGroup;

// A choice for one problem.
class FakePlan {
 public:
  FakePlan(FakeGroup& group, const cotune_problem_t& problem, const ScriptedChoice& choice)
      : group_(group), problem_(problem), choice_(choice) {}

  FakeGroup& group() const { return group_; }
  const ScriptedChoice& choice() const { return choice_; }

  Result<void> Launch(const cotune_launch_t& launch);
  Result<bool> Progress(int64_t until_ns);

 private:
  FakeGroup& group_;
  const cotune_problem_t problem_;
  const ScriptedChoice& choice_;
  int64_t calls_ = 0;
  std::optional<Operation> operation_;
};

// A region, run as its collectives with the operations between them, one after another.
class FakeRegion {
 public:
  FakeRegion(FakeGroup& group, sdk::Program program, const ScriptedChoice& choice)
      : group_(group), program_(std::move(program)), choice_(choice) {}

  FakeGroup& group() const { return group_; }
  const ScriptedChoice& choice() const { return choice_; }

  Result<void> Launch(const cotune_program_launch_t& launch);
  Result<bool> Progress(int64_t until_ns);

 private:
  // Goes on to the next collective. True: there is none, and the outputs are written.
  Result<bool> Advance();
  void Spoil() const;

  FakeGroup& group_;
  const sdk::Program program_;
  const ScriptedChoice& choice_;
  int64_t calls_ = 0;
  // The call that runs, if there is one:
  std::optional<ProgramRun> run_;
  std::optional<Operation> operation_;  // its collective that runs
  std::vector<void*> outputs_;
  int64_t deadline_ns_ = 0;
};

// A part, as the script has it behave.
class FakePart {
 public:
  FakePart(FakeBackend& backend, sdk::Program program)
      : backend_(backend), program_(std::move(program)) {}

  FakeBackend& backend() const { return backend_; }

  Result<void> Launch(const cotune_program_launch_t& launch);

 private:
  FakeBackend& backend_;
  const sdk::Program program_;
  int64_t calls_ = 0;
};

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPTED_RUNS_H_
