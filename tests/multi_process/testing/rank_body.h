// The work of a rank in these tests: join, tune, run calls by the table and check every value.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_BODY_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_BODY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/events/stage_observer.h"
#include "core/problem/problem.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/recipe_source.h"
#include "plugins/api/cotune_backend_v1.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {

// One job. Plain data, changed freely by tests before the ranks start; a rank may change its own
// copy, to disagree with the others.
struct JobScript {
  // Other tests use the processors at the same time, so that all times are believed.
  static TuningSettings Settings() {
    TuningSettings settings;
    settings.keep_unsteady = true;
    return settings;
  }
  std::string folder;  // of the socket and the database
  int world_size = 2;
  std::vector<Collective> collectives = {Collective::kAllReduce};
  std::vector<uint64_t> sizes_bytes = {1024};
  std::vector<std::string> programs;  // texts of programs that are tuned too, at the same sizes
  std::shared_ptr<const RecipeSource> recipes;  // nullptr: those of a job without fusion
  std::string database_path;                    // "": none
  std::string cotune_version = "1";
  bool force = false;
  bool is_traced = false;
  TuningSettings settings = Settings();
  int64_t rendezvous_timeout_ns = 20 * kSecondNs;
  int64_t heartbeat_timeout_ns = 5 * kSecondNs;
  std::string fault;                            // as COTUNE_FAULT
  std::string fake_script;                      // "": the host backend, else the fake one by it
  const cotune_backend_api_t* table = nullptr;  // instead of either
  int calls = 1;                                // of each collective and size, after the tune
  int program_calls = 0;                        // the same for each program
  bool calls_first = false;                     // and before it, by the default choices
  int64_t call_timeout_ns = 20 * kSecondNs;
  bool pauses_after_first_cell = false;     // rank 0 waits there for a word
  int interrupt_after_cells = -1;           // this rank's user asks to stop then; -1: never
  std::optional<Stage> interrupt_at_stage;  // or when it begins this stage
};

// Short but patient settings: the machine is shared and slow.
JobScript DefaultScript(const PrivateFolder& folder);

// The deadline for everything in this job; heartbeats are lost after a part of it.
void SetDeadlines(JobScript& script, int64_t deadline_ns);

// Runs the rank to its end. Reports
//   "stage NAME", "cell done K", "outcome committed=1 measured=N known=N late=R,R",
//   "winner PROBLEM ID", "why PROBLEM SENTENCE" with times, "verdict PROBLEM ID OUTCOME REASON",
//   "refusal PROBLEM ID: REASON", "table DIGEST", "saved 1", "warning TEXT", "plugin ...", "calls
//   right N", "program at N rows by ID" for each right call of a program, "error CODE ranks=R,R
//   TEXT".
// Gives the documented exit code of the error, 0 when all went well, 4 for a wrong value.
int RunRank(const JobScript& script, int rank, TestLink& link);

// Starts all ranks of the job; `change` alters the copy of one rank.
void StartJob(RankProcesses& processes, const JobScript& script,
              const std::function<void(int rank, JobScript&)>& change = nullptr);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_BODY_H_
