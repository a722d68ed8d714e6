// The libraries that stand in for NVIDIA's, and the ranks of a job as threads.
#ifndef COTUNE_PLUGINS_NCCL_TESTING_FAKES_H_
#define COTUNE_PLUGINS_NCCL_TESTING_FAKES_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/testing/fake_cuda.h"
#include "plugins/nccl/testing/fake_nccl.h"

namespace cotune::nccl {

// Runs `statement`, which may set the environment and load libraries, in a process of its own.
#define IN_CHILD(statement)                      \
  do {                                           \
    const int failures_before = CountFailures(); \
    EXPECT_EXIT(                                 \
        {                                        \
          statement;                             \
          ExitChild(failures_before);            \
        },                                       \
        testing::ExitedWithCode(0), "");         \
  } while (false)
int CountFailures();
// Ends the child; its failures are shown by the parent.
[[noreturn]] void ExitChild(int failures_before);

// A library that was built beside the tests.
std::string LibraryForTest(const std::string& name);
inline const char kFakeNccl[] = "fake_libnccl.so";
inline const char kFakeNcclWithoutSplit[] = "fake_libnccl_without_split.so";
inline const char kFakeCuda[] = "fake_libcuda.so";
inline const char kPlugin[] = "cotune_nccl.so";

// Loads the fake into this process. Whoever looks for the real one by its soname finds it then.
FakeNcclState& LoadFakeNccl(const std::string& path = LibraryForTest(kFakeNccl));
FakeCudaState& LoadFakeCuda();

// The function table of the built plugin.
const cotune_backend_api_t& LoadPlugin();

int64_t MonotonicNs();
inline constexpr int64_t kSecondNs = 1'000'000'000;
inline int64_t Soon() { return MonotonicNs() + 60 * kSecondNs; }

// The services of a job whose ranks are threads.
class JobForTest {
 public:
  JobForTest();
  const cotune_host_t& host() const { return host_; }
  void Set(const std::string& key, const std::string& value) { settings_[key] = value; }
  size_t keys() const;
  // From here on, whoever waits for a key hears that a rank of the job is lost.
  void LoseARank();
  // How many values were put in the store so far.
  size_t puts() const;
  // The warnings of all ranks so far.
  std::vector<std::string> warnings() const;

 private:
  static void Log(void* context, int32_t severity, const char* text);
  static cotune_status_t Put(void* context, const char* key, const void* data, uint64_t size);
  static cotune_status_t Get(void* context, const char* key, void* data, uint64_t capacity,
                             uint64_t* size, int64_t deadline_ns);
  static cotune_status_t Delete(void* context, const char* key);
  static const char* Setting(void* context, const char* key);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  size_t puts_ = 0;
  std::vector<std::string> warnings_;
  bool has_lost_a_rank_ = false;
  std::map<std::string, std::string> settings_;
  cotune_host_t host_{};
};

// Runs one thread for each rank to its end.
void RunRanks(int world_size, const std::function<void(int rank)>& body);

cotune_error_t EmptyError();

cotune_problem_t AbiProblem(uint32_t collective, cotune_dtype_t dtype, uint32_t reduction,
                            uint64_t count, int world_size);
inline constexpr cotune_dtype_t kAbiF32 = {COTUNE_DTYPE_FLOAT, 32, 1};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_TESTING_FAKES_H_
