#include "plugins/nccl/testing/fakes.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

namespace cotune::nccl {
namespace {

template <typename Function>
Function Load(const std::string& path, const char* symbol) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, symbol);
  if (found == nullptr) {
    fprintf(stderr, "%s: %s\n", path.c_str(), dlerror());
    abort();
  }
  return reinterpret_cast<Function>(found);
}

int64_t Now(void* /*context*/) { return MonotonicNs(); }

}  // namespace

int CountFailures() {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  int failures = 0;
  for (int i = 0; i < result.total_part_count(); ++i) {
    failures += result.GetTestPartResult(i).failed() ? 1 : 0;
  }
  return failures;
}

void ExitChild(int failures_before) {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  int failures = 0;
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (!part.failed() || ++failures <= failures_before) continue;
    fprintf(stderr, "%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
  }
  // Without the destructors of a process whose parent goes on.
  _exit(failures > failures_before ? 1 : 0);
}

std::string LibraryForTest(const std::string& name) {
  return std::filesystem::absolute("plugins/nccl/" + name);
}

FakeNcclState& LoadFakeNccl(const std::string& path) {
  return *Load<FakeNcclState* (*)()>(path, "fake_nccl_state")();
}

FakeCudaState& LoadFakeCuda() {
  return *Load<FakeCudaState* (*)()>(LibraryForTest(kFakeCuda), "fake_cuda_state")();
}

const cotune_backend_api_t& LoadPlugin() {
  return *Load<cotune_backend_query_fn>(LibraryForTest(kPlugin), COTUNE_BACKEND_QUERY_SYMBOL)(
      COTUNE_ABI_MINOR, nullptr);
}

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

JobForTest::JobForTest() {
  host_.struct_size = sizeof(host_);
  host_.context = this;
  host_.log = Log;
  host_.now_ns = Now;
  host_.store_put = Put;
  host_.store_get = Get;
  host_.store_delete = Delete;
  host_.setting = Setting;
}

size_t JobForTest::keys() const {
  const std::lock_guard lock(mutex_);
  return values_.size();
}

void JobForTest::LoseARank() {
  const std::lock_guard lock(mutex_);
  has_lost_a_rank_ = true;
  changed_.notify_all();
}

size_t JobForTest::puts() const {
  const std::lock_guard lock(mutex_);
  return puts_;
}

std::vector<std::string> JobForTest::warnings() const {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

void JobForTest::Log(void* context, int32_t severity, const char* text) {
  constexpr int32_t kWarning = 2;
  if (severity < kWarning) return;
  auto& job = *static_cast<JobForTest*>(context);
  const std::lock_guard lock(job.mutex_);
  job.warnings_.emplace_back(text);
}

cotune_status_t JobForTest::Put(void* context, const char* key, const void* data, uint64_t size) {
  auto& job = *static_cast<JobForTest*>(context);
  const std::lock_guard lock(job.mutex_);
  job.values_[key] = std::string(static_cast<const char*>(data), size);
  ++job.puts_;
  job.changed_.notify_all();
  return COTUNE_OK;
}

cotune_status_t JobForTest::Get(void* context, const char* key, void* data, uint64_t capacity,
                                uint64_t* size, int64_t deadline_ns) {
  auto& job = *static_cast<JobForTest*>(context);
  std::unique_lock lock(job.mutex_);
  const auto left = std::chrono::nanoseconds(std::max<int64_t>(deadline_ns - MonotonicNs(), 0));
  const auto has_key = [&] { return job.values_.count(key) != 0; };
  if (!job.changed_.wait_for(lock, left, [&] { return has_key() || job.has_lost_a_rank_; })) {
    return COTUNE_DEADLINE_EXCEEDED;
  }
  if (!has_key()) return COTUNE_PEER_FAILED;
  const std::string& value = job.values_[key];
  if (value.size() > capacity) return COTUNE_INVALID_ARGUMENT;
  std::memcpy(data, value.data(), value.size());
  *size = value.size();
  return COTUNE_OK;
}

cotune_status_t JobForTest::Delete(void* context, const char* key) {
  auto& job = *static_cast<JobForTest*>(context);
  const std::lock_guard lock(job.mutex_);
  job.values_.erase(key);
  return COTUNE_OK;
}

const char* JobForTest::Setting(void* context, const char* key) {
  const auto& settings = static_cast<JobForTest*>(context)->settings_;
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : found->second.c_str();
}

void RunRanks(int world_size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

cotune_error_t EmptyError() {
  cotune_error_t error{};
  error.struct_size = sizeof(error);
  error.failed_rank = -1;
  return error;
}

cotune_problem_t AbiProblem(uint32_t collective, cotune_dtype_t dtype, uint32_t reduction,
                            uint64_t count, int world_size) {
  cotune_problem_t problem{};
  problem.struct_size = sizeof(problem);
  problem.collective = collective;
  problem.reduction = reduction;
  problem.memory_kind = COTUNE_MEMORY_CUDA;
  problem.dtype = dtype;
  problem.count = count;
  const bool has_blocks = collective != COTUNE_ALL_REDUCE && collective != COTUNE_BROADCAST;
  problem.bytes =
      count * dtype.bits / 8 * (has_blocks ? static_cast<uint64_t>(world_size) : uint64_t{1});
  problem.world_size = world_size;
  problem.ranks_per_node = world_size;
  return problem;
}

}  // namespace cotune::nccl
