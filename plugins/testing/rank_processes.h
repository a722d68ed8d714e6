// Several ranks for tests: as forked processes or as threads, with a store that they share.
#ifndef COTUNE_PLUGINS_TESTING_RANK_PROCESSES_H_
#define COTUNE_PLUGINS_TESTING_RANK_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::backend_test {

struct SharedStore;

// Memory that processes forked later share: the job's store, and plain words for the tests' events.
class JobForTest {
 public:
  JobForTest();
  ~JobForTest();
  JobForTest(const JobForTest&) = delete;
  JobForTest& operator=(const JobForTest&) = delete;

  // The services of one rank. They outlive every backend made with them.
  const cotune_host_t& host() const { return host_; }

  SharedStore& store() const { return *store_; }

  // Settings that every rank sees; set them before ranks start.
  void Set(const std::string& key, const std::string& value) { settings_[key] = value; }

  // Events between processes: a counter that only grows, one for each of 64 indices.
  void Post(int event);
  // Waits until the event was posted `times` times.
  void Await(int event, uint32_t times = 1);

 private:
  static const char* Setting(void* context, const char* key);

  SharedStore* store_;
  std::map<std::string, std::string> settings_;
  cotune_host_t host_{};
};

int64_t MonotonicNs();
inline constexpr int64_t kSecondNs = 1'000'000'000;

// The work of one rank. Returns an empty text, or what went wrong.
using RankBody = std::function<std::string(int rank)>;

// One forked process for each rank. Wait collects what they report; a process that ends without a
// report is reported by its signal or exit code.
class RankProcesses {
 public:
  RankProcesses(int world_size, const RankBody& body);
  ~RankProcesses();  // kills and collects what is left
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return children_[static_cast<size_t>(rank)].pid; }
  void Kill(int rank, int signal);
  // The report of one rank: empty when all went well, "signal 9" when it was killed. Empty again
  // when it was collected before.
  std::string Wait(int rank);
  // All reports that are not empty, each with its rank.
  std::string WaitAll();

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;
  };
  std::vector<Child> children_;
};

// The same with threads of this process.
std::string RunThreads(int world_size, const RankBody& body);

// A backend and a group of one rank, created and destroyed together.
class GroupForTest {
 public:
  // `members`: job ranks in group order.
  GroupForTest(const cotune_host_t& host, const std::string& name, int rank,
               const std::vector<int32_t>& members, int64_t deadline_ns);
  ~GroupForTest();
  GroupForTest(const GroupForTest&) = delete;
  GroupForTest& operator=(const GroupForTest&) = delete;

  cotune_status_t status() const { return status_; }
  const cotune_error_t& error() const { return error_; }
  cotune_backend_t* backend() const { return backend_; }
  cotune_group_t* group() const { return group_; }

 private:
  cotune_backend_t* backend_ = nullptr;
  cotune_group_t* group_ = nullptr;
  cotune_status_t status_ = COTUNE_OK;
  cotune_error_t error_{};
};

// An error struct ready for a call.
cotune_error_t EmptyError();

// [0, 1, ..., world_size - 1].
std::vector<int32_t> AllRanks(int world_size);

// A problem with every field of the ABI filled in.
cotune_problem_t AbiProblem(uint32_t collective, cotune_dtype_t dtype, uint32_t reduction,
                            uint64_t count, int world_size, int root = 0, bool in_place = false);

// The choices that can run, in list order. Aborts the process when the backend gives an error.
std::vector<cotune_choice_t> RunnableChoices(const cotune_backend_t* backend,
                                             const cotune_problem_t& problem);

// prepare, launch, progress until the end, destroy.
cotune_status_t RunOnce(cotune_group_t* group, const cotune_problem_t& problem, const char* choice,
                        const void* send, void* receive, int64_t deadline_ns,
                        cotune_error_t* error);

}  // namespace cotune::backend_test

#endif  // COTUNE_PLUGINS_TESTING_RANK_PROCESSES_H_
