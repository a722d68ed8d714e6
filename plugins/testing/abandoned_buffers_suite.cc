// A rank is stopped in the middle of a call, the others' calls fail, and it goes on later: nothing
// writes to the memory of a call that has failed, and no rank takes for right what it reads there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::backend_test {
namespace {

constexpr int kRanks = 3;
constexpr int kBystander = 2;  // never stopped
constexpr int kRoot = 0;
constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int64_t kCallNs = kSecondNs;
// The victim has called later than the others, so that only their failure can end its call.
constexpr int64_t kVictimsCallNs = 60 * kSecondNs;
// Limit of a case; the process ends if one takes longer.
constexpr unsigned kPatienceS = 100;
constexpr cotune_dtype_t kI32 = {COTUNE_DTYPE_INT, 32, 1};
constexpr int32_t kPoison = -1;
constexpr char kCanary = 0x77;
constexpr int32_t kCanaries = 0x77777777;

enum Event { kFilled, kVictimEnded };
// When the victim stops: at a look at the clock when some data has come, or while it writes to the
// middle of its receive buffer.
enum class Moment { kAtTheClock, kInAWrite };
// Before the victim goes on, the others keep their group, destroy it, or unmap their buffers, too.
enum class Then { kKeepGroup, kDestroyGroup, kUnmapBuffers };

struct Case {
  cotune_problem_t problem;
  std::string choice;
  int victim = 0;
  Moment moment = Moment::kAtTheClock;
  Then then = Then::kKeepGroup;

  bool in_place() const { return (problem.flags & COTUNE_PROBLEM_IN_PLACE) != 0; }
};

std::string Text(const Case& each) {
  return "collective " + std::to_string(each.problem.collective) +
         (each.in_place() ? " in place by " : " by ") + each.choice + ", rank " +
         std::to_string(each.victim) + " stops " +
         (each.moment == Moment::kAtTheClock ? "at the clock" : "in a write") + ", then " +
         std::to_string(static_cast<int>(each.then));
}

int32_t Sent(int rank, uint64_t element) {
  return (rank + 1) * 1000 + static_cast<int32_t>(element % 1000);
}

int32_t SumOfSent(uint64_t element) {
  int32_t sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += Sent(rank, element);
  return sum;
}

// Buffers of all ranks, which every process sees.
class Buffers {
 public:
  explicit Buffers(const cotune_problem_t& problem, bool in_place)
      : problem_(problem), in_place_(in_place), rank_bytes_(2 * RoundedUp(problem.bytes)) {
    memory_ = static_cast<char*>(mmap(nullptr, kRanks * rank_bytes_, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) abort();
    for (int rank = 0; rank < kRanks; ++rank) Fill(rank);
  }
  ~Buffers() { munmap(memory_, kRanks * rank_bytes_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  int32_t* Send(int rank) const {
    int32_t* const whole = InputOf(rank);
    const bool is_block = in_place_ && problem_.collective == COTUNE_ALL_GATHER;
    return is_block ? whole + Block(rank) : whole;
  }
  int32_t* Receive(int rank) const {
    if (!in_place_) return InputOf(rank) + RoundedUp(problem_.bytes) / sizeof(int32_t);
    const bool is_block = problem_.collective == COTUNE_REDUCE_SCATTER;
    return is_block ? InputOf(rank) + Block(rank) : InputOf(rank);
  }
  uint64_t ReceiveElements() const {
    const bool is_gathered =
        problem_.collective == COTUNE_ALL_GATHER || problem_.collective == COTUNE_ALL_TO_ALL;
    return is_gathered ? problem_.count * kRanks : problem_.count;
  }
  int32_t Expected(int rank, uint64_t element) const {
    const uint64_t in_block = element % problem_.count;
    const int block = static_cast<int>(element / problem_.count);
    switch (problem_.collective) {
      case COTUNE_ALL_REDUCE:
        return SumOfSent(element);
      case COTUNE_ALL_GATHER:
        return Sent(block, in_block);
      case COTUNE_REDUCE_SCATTER:
        return SumOfSent(Block(rank) + element);
      case COTUNE_ALL_TO_ALL:
        return Sent(block, Block(rank) + in_block);
      default:
        return Sent(kRoot, element);
    }
  }
  // Empty when the call's result is there.
  std::string WhatIsWrong(int rank) const {
    const int32_t* const received = Receive(rank);
    for (uint64_t i = 0; i < ReceiveElements(); ++i) {
      if (received[i] == Expected(rank, i)) continue;
      return "success with " + std::to_string(received[i]) + " at element " + std::to_string(i) +
             " instead of " + std::to_string(Expected(rank, i));
    }
    return "";
  }
  // Returns true if some data has come, by a look at few elements.
  bool HasBegun(int rank) const {
    constexpr uint64_t kStep = 4096;
    const int32_t* const received = Receive(rank);
    for (uint64_t i = 0; i < ReceiveElements(); i += kStep) {
      const auto* const element = static_cast<const volatile int32_t*>(received + i);
      if (*element != Initial(rank, i)) return true;
    }
    return false;
  }
  // A page that the call writes, in a block of another rank if there are blocks.
  char* PageInTheMiddle(int rank) const {
    constexpr uint64_t kPageBytes = 4096;
    const bool has_blocks = ReceiveElements() > problem_.count;
    const uint64_t block = has_blocks ? Block((rank + 1) % kRanks) : 0;
    const auto middle = reinterpret_cast<uintptr_t>(Receive(rank) + block + problem_.count / 2);
    return reinterpret_cast<char*>(middle / kPageBytes * kPageBytes);
  }
  void FillWithCanaries(int rank) const { std::memset(InputOf(rank), kCanary, rank_bytes_); }
  void Unmap(int rank) const { munmap(InputOf(rank), rank_bytes_); }
  // Empty when no byte of the rank's buffers has changed.
  std::string WhatWasWritten(int rank) const {
    const int32_t* const begin = InputOf(rank);
    const int32_t* const end = begin + rank_bytes_ / sizeof(int32_t);
    const auto changed = std::count_if(begin, end, [](int32_t v) { return v != kCanaries; });
    return changed == 0 ? "" : std::to_string(changed) + " elements were written";
  }

 private:
  static uint64_t RoundedUp(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  uint64_t Block(int rank) const { return problem_.count * static_cast<uint64_t>(rank); }
  int32_t* InputOf(int rank) const {
    return reinterpret_cast<int32_t*>(memory_ + static_cast<uint64_t>(rank) * rank_bytes_);
  }
  bool Sends(int rank) const { return problem_.collective != COTUNE_BROADCAST || rank == kRoot; }
  uint64_t SendElements() const {
    const bool sends_blocks =
        problem_.collective == COTUNE_REDUCE_SCATTER || problem_.collective == COTUNE_ALL_TO_ALL;
    return sends_blocks ? problem_.count * kRanks : problem_.count;
  }
  void Fill(int rank) const {
    std::fill_n(Receive(rank), ReceiveElements(), kPoison);
    for (uint64_t i = 0; Sends(rank) && i < SendElements(); ++i) Send(rank)[i] = Sent(rank, i);
  }
  // As Fill has left the element of the receive buffer.
  int32_t Initial(int rank, uint64_t element) const {
    if (!in_place_ || !Sends(rank)) return kPoison;
    if (problem_.collective == COTUNE_REDUCE_SCATTER) return Sent(rank, Block(rank) + element);
    if (problem_.collective != COTUNE_ALL_GATHER) return Sent(rank, element);
    const bool is_own = element / problem_.count == static_cast<uint64_t>(rank);
    return is_own ? Sent(rank, element % problem_.count) : kPoison;
  }

  const cotune_problem_t problem_;
  const bool in_place_;
  const uint64_t rank_bytes_;
  char* memory_;
};

// The victim's stop; its process has one.
struct Stop {
  const Buffers* buffers = nullptr;  // nullptr: it is over, or not at the clock
  int rank = -1;
  char* page = nullptr;
};
Stop planned_stop;

int64_t ClockThatStops(void* /*context*/) {
  const Buffers* const buffers = planned_stop.buffers;
  if (buffers != nullptr &&
      (buffers->HasBegun(planned_stop.rank) || buffers->HasBegun(kBystander))) {
    planned_stop.buffers = nullptr;
    raise(SIGSTOP);
  }
  return MonotonicNs();
}

void OnWrite(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  char* const page = planned_stop.page;
  if (page == nullptr || address < page || address >= page + 4096) {
    signal(SIGSEGV, SIG_DFL);  // comes again at once
    return;
  }
  planned_stop.page = nullptr;
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  raise(SIGSTOP);
}

void PlanStop(const Case& each, const Buffers& buffers) {
  planned_stop.rank = each.victim;
  if (each.moment == Moment::kAtTheClock) {
    planned_stop.buffers = &buffers;
    return;
  }
  planned_stop.page = buffers.PageInTheMiddle(each.victim);
  struct sigaction action {};
  action.sa_sigaction = OnWrite;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  mprotect(planned_stop.page, 4096, PROT_NONE);
}

// Launches the plan and progresses it as the host does.
cotune_status_t Call(cotune_plan_t* plan, const void* send, void* receive, int64_t timeout_ns,
                     cotune_error_t& error) {
  const cotune_backend_api_t& api = *Tested().api;
  const int64_t launched_ns = MonotonicNs();
  const cotune_launch_t launch{.struct_size = sizeof(launch),
                               .flags = 0,
                               .send = send,
                               .recv = receive,
                               .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                               .deadline_ns = launched_ns + timeout_ns};
  cotune_status_t status = api.launch(plan, &launch, &error);
  if (status != COTUNE_OK) return status;
  // Far later than it may end, for machines that are busy.
  const int64_t end_ns =
      COTUNE_LATEST_END_NS(launched_ns, launch.deadline_ns) + 10 * COTUNE_ABORT_END_NS;
  do {
    status = api.progress(plan, launch.deadline_ns, &error);
  } while (status == COTUNE_IN_PROGRESS && MonotonicNs() < end_ns);
  return status;
}

std::string RunRank(const Case& each, JobForTest& job, const Buffers& buffers, int rank) {
  const cotune_backend_api_t& api = *Tested().api;
  const bool is_victim = rank == each.victim;
  cotune_host_t host = job.host();
  if (is_victim) host.now_ns = ClockThatStops;
  auto group =
      std::make_unique<GroupForTest>(host, "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
  if (group->status() != COTUNE_OK) return group->error().message;
  cotune_error_t error = EmptyError();
  cotune_plan_t* plan = nullptr;
  if (api.prepare(group->group(), &each.problem, each.choice.c_str(), MonotonicNs() + kLongNs,
                  &plan, &error) != COTUNE_OK) {
    return std::string("prepare: ") + error.message;
  }
  if (is_victim) PlanStop(each, buffers);
  const auto call = [&](int64_t timeout_ns) {
    return Call(plan, buffers.Send(rank), buffers.Receive(rank), timeout_ns, error);
  };
  const cotune_status_t status = call(is_victim ? kVictimsCallNs : kCallNs);
  if (is_victim && (planned_stop.buffers != nullptr || planned_stop.page != nullptr)) {
    planned_stop = Stop();
    return std::string("was not stopped: ") + error.message;
  }
  std::string wrong;
  if (status == COTUNE_IN_PROGRESS) wrong = "the call did not end";
  // A rank that only sends may be done, and one that has all it needs.
  if (status == COTUNE_OK) wrong = buffers.WhatIsWrong(rank);
  // The memory is the caller's again.
  buffers.FillWithCanaries(rank);
  if (wrong.empty() && status < 0 && call(kCallNs) >= 0) {
    wrong = "a call after one that has failed did not fail";
  }
  const auto destroy = [&] {
    api.plan_destroy(plan);
    plan = nullptr;
    group.reset();
  };
  if (!is_victim && each.then != Then::kKeepGroup) destroy();
  if (!is_victim && each.then == Then::kUnmapBuffers) buffers.Unmap(rank);
  job.Post(is_victim ? kVictimEnded : kFilled);
  if (!is_victim) job.Await(kVictimEnded);
  if (group != nullptr) destroy();
  return wrong;
}

void RunCase(const Case& each) {
  SCOPED_TRACE(Text(each));
  alarm(kPatienceS);
  const Buffers buffers(each.problem, each.in_place());
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) { return RunRank(each, job, buffers, rank); });
  siginfo_t info{};
  ASSERT_EQ(
      waitid(P_PID, static_cast<id_t>(ranks.pid(each.victim)), &info, WSTOPPED | WEXITED | WNOWAIT),
      0);
  ASSERT_EQ(info.si_code, CLD_STOPPED) << ranks.Wait(each.victim);
  job.Await(kFilled, kRanks - 1);
  ranks.Kill(each.victim, SIGCONT);
  EXPECT_EQ(ranks.WaitAll(), "");
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(buffers.WhatWasWritten(rank), "") << "rank " << rank;
  }
}

using Collective = std::tuple<uint32_t, bool>;  // in place

class AbandonedBuffersTest : public testing::TestWithParam<Collective> {
 protected:
  static cotune_problem_t Problem(uint64_t count) {
    const auto [collective, in_place] = GetParam();
    const bool reduces = collective == COTUNE_ALL_REDUCE || collective == COTUNE_REDUCE_SCATTER;
    return AbiProblem(collective, kI32, reduces ? uint32_t{COTUNE_SUM} : 0u, count, kRanks, kRoot,
                      in_place);
  }
  // The first choice of each algorithm.
  static std::vector<std::string> Choices() {
    std::vector<std::string> names;
    std::set<std::string> algorithms;
    const JobForTest job;
    cotune_backend_t* backend = nullptr;
    cotune_error_t error = EmptyError();
    EXPECT_EQ(Tested().api->create(&job.host(), -1, &backend, &error), COTUNE_OK) << error.message;
    for (const uint64_t count : {kCount / 10, kCount}) {
      for (const cotune_choice_t& choice : RunnableChoices(backend, Problem(count))) {
        const std::string name = choice.name;
        if (CountFor(name) != count) continue;
        if (algorithms.insert(name.substr(0, name.find('?'))).second) names.push_back(name);
      }
    }
    Tested().api->destroy(backend);
    return names;
  }
  static bool ReadsPeers(const std::string& choice) { return choice.starts_with("peer_read"); }
  static constexpr uint64_t kCount = 3'000'000;
  // Long enough for several looks at the clock in a call: less will do for short chunks.
  static uint64_t CountFor(const std::string& choice) {
    return choice.ends_with("chunk=65536") ? kCount / 10 : kCount;
  }
};

TEST_P(AbandonedBuffersTest, AreNeitherWrittenNorTakenForRight) {
  int number = 0;
  for (const std::string& choice : Choices()) {
    for (const int victim : {kRoot, 1}) {
      for (const Moment moment : {Moment::kAtTheClock, Moment::kInAWrite}) {
        // The kernel writes what is read from other processes.
        const bool writes = !ReadsPeers(choice);
        if (moment == Moment::kInAWrite && (!writes || victim == kRoot)) continue;
        RunCase(
            {Problem(CountFor(choice)), choice, victim, moment, static_cast<Then>(number++ % 3)});
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Collective>& info) {
  static const char* const kNames[] = {"",         "AllReduce", "AllGather", "ReduceScatter",
                                       "AllToAll", "Broadcast"};
  const auto [collective, in_place] = info.param;
  return std::string(kNames[collective]) + (in_place ? "InPlace" : "");
}

INSTANTIATE_TEST_SUITE_P(Collectives, AbandonedBuffersTest,
                         testing::Combine(testing::Range<uint32_t>(COTUNE_ALL_REDUCE,
                                                                   COTUNE_BROADCAST + 1),
                                          testing::Bool()),
                         NameOf);

}  // namespace
}  // namespace cotune::backend_test
