// Ranks as threads of a test, each with a group of its own, and functions that they bring along.
#ifndef COTUNE_INTEGRATION_CAPI_TESTING_FUNCTION_RANKS_H_
#define COTUNE_INTEGRATION_CAPI_TESTING_FUNCTION_RANKS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"
#include "nlohmann/json.hpp"

namespace cotune {

// Memory that the ranks of one group exchange operands through. A rank whose group is closed does
// not wait any more.
class Meeting {
 public:
  explicit Meeting(int world_size) : sends_(static_cast<size_t>(world_size)), closed_(sends_) {}

  // False: the group of this rank was closed, or the deadline has passed.
  bool Await(int rank, int64_t deadline_ns);
  // The operands of all ranks when each of them has come.
  bool Exchange(int rank, const void* send, int64_t deadline_ns, std::vector<const void*>& sends);
  void Close(int rank);

 private:
  bool AwaitLocked(std::unique_lock<std::mutex>& lock, int rank, int64_t deadline_ns);

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t turn_ = 0;
  std::vector<const void*> sends_;
  std::vector<const void*> closed_;  // not NULL: the rank has closed its group
};

// The meetings of one job, by the names of its groups.
class MeetingPlaces {
 public:
  std::shared_ptr<Meeting> At(const std::string& name, int world_size);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Meeting>> by_name_;
};

// An event that a test waits for, or lets functions wait for.
class TestEvent {
 public:
  void Set();
  void Await();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

// The place of a function among its ranks.
struct RankInMeeting {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
  std::vector<float> own{};  // memory of the function for a result
};

// Computes the call on float by a naive loop into `out`, with the other ranks' operands.
cotune_result RunNaively(RankInMeeting& at, const cotune_function_call& call, float* out,
                         char* reason, size_t size);

// A function of a test: it gets its place among the ranks beside the arguments of the C function.
using TestFunction =
    std::function<cotune_result(RankInMeeting&, cotune_function_call&, char* reason, size_t size)>;

// The functions that one rank brings.
class RankFunctions {
 public:
  RankFunctions();
  RankFunctions(const RankFunctions&) = delete;
  RankFunctions& operator=(const RankFunctions&) = delete;
  // Waits for functions that still run after their group was closed.
  ~RankFunctions();

  void Add(const std::string& name, TestFunction run);
  // Valid until Add.
  const cotune_functions* table();

  struct Counts {
    int opened = 0;
    int closed = 0;
  };
  Counts counts();

  std::string version = "1";
  std::shared_ptr<MeetingPlaces> places;

 private:
  class Running;
  struct Entry {
    std::string name;
    TestFunction run;
    RankFunctions* owner = nullptr;
  };
  struct Opened {
    RankInMeeting at;
    bool is_closed = false;
  };

  static cotune_result Open(void* context, const cotune_function_group_info* info,
                            cotune_function_group** group, char* reason, size_t size);
  static void Close(void* context, cotune_function_group* group);

  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<cotune_function> listed_;
  cotune_functions table_{};
  std::mutex mutex_;
  std::condition_variable returned_;
  int running_ = 0;  // functions
  // Until the end, because a function may run on when its group is closed.
  std::vector<std::unique_ptr<Opened>> opened_;
};

// The functions of all ranks, and groups of theirs.
class FunctionRanks {
 public:
  explicit FunctionRanks(int world_size);
  ~FunctionRanks();

  int size() const { return static_cast<int>(functions.size()); }
  void Add(const std::string& name, const TestFunction& run);
  // Runs the body on each rank with a new group, which is destroyed then.
  void Run(const std::function<void(int rank, cotune_group* group)>& body);

  std::vector<std::unique_ptr<RankFunctions>> functions;
  std::string folder;
  const char* backends = nullptr;
  int64_t call_timeout_ns = 20'000'000'000;
};

// The operand of each rank, and the result.
float Sent(int rank, uint64_t index);
std::vector<float> Expected(cotune_collective collective, int rank, int world_size, uint64_t count,
                            int root);
// Runs the call on floats and compares every value. "" if it has succeeded with right values.
std::string WrongIn(cotune_group* group, cotune_collective collective, uint64_t count,
                    bool is_in_place, int root = 0);
// Tunes collectives (bits) on floats at 1 KiB.
cotune_result TuneFloats(cotune_group* group, uint32_t collectives, const char* database = nullptr,
                         bool is_in_place = false);
nlohmann::json Explained(cotune_group* group, cotune_collective collective, uint64_t count);
// The line on a choice at the first measured size; null: there is none.
nlohmann::json LineOf(const nlohmann::json& explained, const std::string& choice);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_CAPI_TESTING_FUNCTION_RANKS_H_
