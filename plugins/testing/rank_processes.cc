#include "plugins/testing/rank_processes.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "plugins/host/futex_word.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::backend_test {

using host::FutexWord;
using host::HasReached;
using host::WakeFence;

namespace {

constexpr int kEntries = 512;
constexpr uint64_t kValueBytes = 4096;
constexpr int kEvents = 64;

struct StoreEntry {
  char key[256];
  uint64_t size;
  bool used;
  char value[kValueBytes];
};

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "test set-up failed: %s\n", what);
  std::abort();
}

}  // namespace

// A table under a lock that outlives the death of its holder.
struct SharedStore {
  pthread_mutex_t lock;
  // The events have a lock of their own: a rank that is stopped while it posts one must not keep
  // the others from the store.
  pthread_mutex_t event_lock;
  FutexWord version;
  FutexWord events[kEvents];
  StoreEntry entries[kEntries];

  void Lock() {
    if (pthread_mutex_lock(&lock) == EOWNERDEAD) pthread_mutex_consistent(&lock);
  }
  void Unlock() { pthread_mutex_unlock(&lock); }

  StoreEntry* Find(const char* key) {
    for (StoreEntry& entry : entries) {
      if (entry.used && std::strcmp(entry.key, key) == 0) return &entry;
    }
    return nullptr;
  }

  StoreEntry* FindFree() {
    for (StoreEntry& entry : entries) {
      if (!entry.used) return &entry;
    }
    return nullptr;
  }
};

namespace {

SharedStore& StoreOf(void* context) { return static_cast<JobForTest*>(context)->store(); }

cotune_status_t Put(void* context, const char* key, const void* data, uint64_t size) {
  SharedStore& store = StoreOf(context);
  if (size > kValueBytes || std::strlen(key) > 255) return COTUNE_INVALID_ARGUMENT;
  store.Lock();
  StoreEntry* entry = store.Find(key);
  if (entry == nullptr) entry = store.FindFree();
  if (entry != nullptr) {
    std::strcpy(entry->key, key);
    std::memcpy(entry->value, data, size);
    entry->size = size;
    entry->used = true;
  }
  store.version.Store(store.version.Load() + 1, WakeFence::kOfStorer);
  store.Unlock();
  return entry == nullptr ? COTUNE_OUT_OF_RESOURCES : COTUNE_OK;
}

cotune_status_t Get(void* context, const char* key, void* data, uint64_t capacity, uint64_t* size,
                    int64_t deadline_ns) {
  SharedStore& store = StoreOf(context);
  while (true) {
    const uint32_t version = store.version.Load();
    store.Lock();
    if (const StoreEntry* entry = store.Find(key)) {
      *size = entry->size;
      const bool fits = entry->size <= capacity;
      if (fits) std::memcpy(data, entry->value, entry->size);
      store.Unlock();
      return fits ? COTUNE_OK : COTUNE_INVALID_ARGUMENT;
    }
    store.Unlock();
    const int64_t now_ns = MonotonicNs();
    if (now_ns >= deadline_ns) return COTUNE_DEADLINE_EXCEEDED;
    store.version.SleepUnlessReached(version + 1, deadline_ns - now_ns);
  }
}

cotune_status_t Delete(void* context, const char* key) {
  SharedStore& store = StoreOf(context);
  store.Lock();
  if (StoreEntry* entry = store.Find(key)) entry->used = false;
  store.Unlock();
  return COTUNE_OK;
}

void Log(void* /*context*/, int32_t severity, const char* text) {
  std::fprintf(stderr, "[%d] %s\n", severity, text);
}

int64_t Now(void* /*context*/) { return MonotonicNs(); }

}  // namespace

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

JobForTest::JobForTest() {
  void* memory =
      mmap(nullptr, sizeof(SharedStore), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Check(memory != MAP_FAILED, "mmap of the store");
  store_ = static_cast<SharedStore*>(memory);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&store_->lock, &attributes);
  pthread_mutex_init(&store_->event_lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  host_ = {.struct_size = sizeof(cotune_host_t),
           .flags = 0,
           .context = this,
           .log = Log,
           .now_ns = Now,
           .store_put = Put,
           .store_get = Get,
           .store_delete = Delete,
           .setting = Setting};
}

JobForTest::~JobForTest() { munmap(store_, sizeof(SharedStore)); }

const char* JobForTest::Setting(void* context, const char* key) {
  const auto& settings = static_cast<JobForTest*>(context)->settings_;
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : found->second.c_str();
}

void JobForTest::Post(int event) {
  if (pthread_mutex_lock(&store_->event_lock) == EOWNERDEAD) {
    pthread_mutex_consistent(&store_->event_lock);
  }
  FutexWord& word = store_->events[event];
  word.Store(word.Load() + 1, WakeFence::kOfStorer);
  pthread_mutex_unlock(&store_->event_lock);
}

void JobForTest::Await(int event, uint32_t times) {
  FutexWord& word = store_->events[event];
  while (!HasReached(word.Load(), times)) word.SleepUnlessReached(times, kSecondNs);
}

RankProcesses::RankProcesses(int world_size, const RankBody& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2];
    Check(pipe(ends) == 0, "pipe");
    const pid_t pid = fork();
    Check(pid >= 0, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(3);
      close(ends[0]);
      const std::string report = body(rank);
      Check(write(ends[1], report.data(), report.size()) == static_cast<ssize_t>(report.size()),
            "write of the report");
      std::fflush(nullptr);
      _exit(report.empty() ? 0 : 1);
    }
    close(ends[1]);
    children_.push_back({pid, ends[0]});
  }
}

RankProcesses::~RankProcesses() {
  for (Child& child : children_) {
    if (child.pid > 0) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    if (child.pipe >= 0) close(child.pipe);
  }
}

void RankProcesses::Kill(int rank, int signal) { kill(pid(rank), signal); }

std::string RankProcesses::Wait(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  if (child.pid < 0) return "";
  std::string report;
  char buffer[4096];
  ssize_t size;
  while ((size = read(child.pipe, buffer, sizeof(buffer))) > 0) {
    report.append(buffer, static_cast<size_t>(size));
  }
  int status = 0;
  waitpid(child.pid, &status, 0);
  child.pid = -1;
  if (WIFSIGNALED(status)) report += "signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) > 1) {
    report += "exit " + std::to_string(WEXITSTATUS(status));
  }
  return report;
}

std::string RankProcesses::WaitAll() {
  std::string all;
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    const std::string report = Wait(static_cast<int>(rank));
    if (!report.empty()) all += "rank " + std::to_string(rank) + ": " + report + "\n";
  }
  return all;
}

std::string RunThreads(int world_size, const RankBody& body) {
  std::vector<std::string> reports(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { reports[static_cast<size_t>(rank)] = body(rank); });
  }
  std::string all;
  for (int rank = 0; rank < world_size; ++rank) {
    threads[static_cast<size_t>(rank)].join();
    const std::string& report = reports[static_cast<size_t>(rank)];
    if (!report.empty()) all += "rank " + std::to_string(rank) + ": " + report + "\n";
  }
  return all;
}

cotune_error_t EmptyError() {
  cotune_error_t error{};
  error.struct_size = sizeof(error);
  error.failed_rank = -1;
  return error;
}

std::vector<int32_t> AllRanks(int world_size) {
  std::vector<int32_t> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

GroupForTest::GroupForTest(const cotune_host_t& host, const std::string& name, int rank,
                           const std::vector<int32_t>& members, int64_t deadline_ns)
    : error_(EmptyError()) {
  status_ = Tested().api->create(&host, -1, &backend_, &error_);
  if (status_ != COTUNE_OK) return;
  cotune_group_params_t params{};
  params.struct_size = sizeof(params);
  params.name = name.c_str();
  params.rank = rank;
  params.world_size = static_cast<int32_t>(members.size());
  params.job_ranks = members.data();
  params.device = -1;
  params.deadline_ns = deadline_ns;
  status_ = Tested().api->group_create(backend_, &params, &group_, &error_);
}

GroupForTest::~GroupForTest() {
  Tested().api->group_destroy(group_);
  Tested().api->destroy(backend_);
}

cotune_problem_t AbiProblem(uint32_t collective, cotune_dtype_t dtype, uint32_t reduction,
                            uint64_t count, int world_size, int root, bool in_place) {
  cotune_problem_t problem{};
  problem.struct_size = sizeof(problem);
  problem.collective = collective;
  problem.reduction = reduction;
  problem.memory_kind = COTUNE_MEMORY_HOST;
  problem.dtype = dtype;
  if (in_place) problem.flags |= COTUNE_PROBLEM_IN_PLACE;
  problem.count = count;
  const bool has_blocks = collective != COTUNE_ALL_REDUCE && collective != COTUNE_BROADCAST;
  problem.bytes = count * (has_blocks ? static_cast<uint64_t>(world_size) : 1) * (dtype.bits / 8);
  problem.world_size = world_size;
  problem.ranks_per_node = world_size;
  problem.root = root;
  return problem;
}

std::vector<cotune_choice_t> RunnableChoices(const cotune_backend_t* backend,
                                             const cotune_problem_t& problem) {
  std::vector<cotune_choice_t> choices(64);
  uint32_t count = 0;
  cotune_error_t error = EmptyError();
  const cotune_status_t status =
      Tested().api->list_choices(backend, &problem, choices.data(), sizeof(cotune_choice_t),
                                 static_cast<uint32_t>(choices.size()), &count, &error);
  Check(status == COTUNE_OK && count <= choices.size(), error.message);
  choices.resize(count);
  std::erase_if(choices, [](const cotune_choice_t& choice) { return choice.status != COTUNE_OK; });
  return choices;
}

cotune_status_t RunOnce(cotune_group_t* group, const cotune_problem_t& problem, const char* choice,
                        const void* send, void* receive, int64_t deadline_ns,
                        cotune_error_t* error) {
  const cotune_backend_api_t& api = *Tested().api;
  cotune_plan_t* plan = nullptr;
  cotune_status_t status = api.prepare(group, &problem, choice, deadline_ns, &plan, error);
  if (status != COTUNE_OK) return status;
  cotune_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.send = send;
  launch.recv = receive;
  launch.stream = {COTUNE_STREAM_HOST, -1, nullptr};
  launch.deadline_ns = deadline_ns;
  status = api.launch(plan, &launch, error);
  while (status == COTUNE_OK) {
    status = api.progress(plan, MonotonicNs() + kSecondNs, error);
    if (status == COTUNE_OK) break;
    if (status == COTUNE_IN_PROGRESS) status = COTUNE_OK;
  }
  api.plan_destroy(plan);
  return status;
}

}  // namespace cotune::backend_test
