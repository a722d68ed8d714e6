// A rank is stopped in the middle of a call of the C API, the others' calls fail, and it goes on
// when they use their memory for something else: nothing writes to that, and a success is right.
// The backend is COTUNE_TEST_BACKEND, host by default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::Each;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr int kRoot = 0;
constexpr uint64_t kPageBytes = 4096;
// Elements of one block: more than a backend can hold of a call between the ranks.
constexpr uint64_t kCount = 4 << 20;
constexpr uint64_t kCanary = 0x77;

// Before the stopped rank goes on, the others keep their group, destroy it, or unmap their buffers,
// too.
enum class Then { kKeepGroup, kDestroyGroup, kUnmapBuffers };
enum class Touch { kSend, kReceive };

struct Case {
  const char* name;
  cotune_collective collective;
  bool in_place;
  int victim;
  Touch touch;  // the victim stops at the middle of this buffer
  Then then;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

// The page that the victim stops at; its process has one.
char* stop_page = nullptr;

void OnTouch(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  char* const page = stop_page;
  if (page == nullptr || address < page || address >= page + kPageBytes) {
    signal(SIGSEGV, SIG_DFL);  // comes again at once
    return;
  }
  stop_page = nullptr;
  mprotect(page, kPageBytes, PROT_READ | PROT_WRITE);
  raise(SIGSTOP);
}

// The buffers of all ranks, u8, which every process sees. Block `block` of what `rank` sends has
// the value Sent(rank, block) in all of its elements.
class Buffers {
 public:
  explicit Buffers(const Case& each) : case_(each) {
    memory_ = static_cast<uint8_t*>(mmap(nullptr, kRanks * kRankBytes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) abort();
    for (int rank = 0; rank < kRanks; ++rank) Fill(rank);
  }
  ~Buffers() { munmap(memory_, kRanks * kRankBytes); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  uint8_t* Send(int rank) const {
    const bool is_block = case_.in_place && case_.collective == COTUNE_COLLECTIVE_ALL_GATHER;
    return Of(rank) + (is_block ? kCount * static_cast<uint64_t>(rank) : 0);
  }
  uint8_t* Receive(int rank) const {
    if (!case_.in_place) return Of(rank) + kRankBytes / 2;
    const bool is_block = case_.collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
    return Of(rank) + (is_block ? kCount * static_cast<uint64_t>(rank) : 0);
  }
  uint64_t SendBlocks() const { return Exchanges() || Scatters() ? kRanks : 1; }
  uint64_t ReceiveBlocks() const {
    return Exchanges() || case_.collective == COTUNE_COLLECTIVE_ALL_GATHER ? kRanks : 1;
  }
  // The page at which the victim stops, in a block of another rank if there are blocks.
  char* StopPage() const {
    const bool sends = case_.touch == Touch::kSend;
    const uint64_t blocks = sends ? SendBlocks() : ReceiveBlocks();
    uint8_t* const begin = sends ? Send(case_.victim) : Receive(case_.victim);
    const uint64_t block = blocks > 1 ? static_cast<uint64_t>(case_.victim + 1) % kRanks : 0;
    const auto middle = reinterpret_cast<uintptr_t>(begin + block * kCount + kCount / 2);
    return reinterpret_cast<char*>(middle / kPageBytes * kPageBytes);
  }
  bool IsRight(int rank) const {
    const uint8_t* const received = Receive(rank);
    for (uint64_t block = 0; block < ReceiveBlocks(); ++block) {
      const uint8_t value = Expected(rank, static_cast<int>(block));
      const uint8_t* const begin = received + block * kCount;
      if (std::count(begin, begin + kCount, value) != static_cast<int64_t>(kCount)) return false;
    }
    return true;
  }
  void FillWithCanaries(int rank) const { std::memset(Of(rank), kCanary, kRankBytes); }
  void Unmap(int rank) const { munmap(Of(rank), kRankBytes); }
  int64_t ChangedBytes(int rank) const {
    return static_cast<int64_t>(kRankBytes) - std::count(Of(rank), Of(rank) + kRankBytes, kCanary);
  }

 private:
  static constexpr uint64_t kRankBytes = 2 * kRanks * kCount;

  bool Exchanges() const { return case_.collective == COTUNE_COLLECTIVE_ALL_TO_ALL; }
  bool Scatters() const { return case_.collective == COTUNE_COLLECTIVE_REDUCE_SCATTER; }
  static uint8_t Sent(int rank, uint64_t block) {
    return static_cast<uint8_t>(1 + 10 * rank + static_cast<int>(block));
  }
  uint8_t Expected(int rank, int block) const {
    switch (case_.collective) {
      case COTUNE_COLLECTIVE_ALL_GATHER:
        return Sent(block, 0);
      case COTUNE_COLLECTIVE_ALL_TO_ALL:
        return Sent(block, static_cast<uint64_t>(rank));
      case COTUNE_COLLECTIVE_BROADCAST:
        return Sent(kRoot, 0);
      default:
        break;
    }
    uint8_t sum = 0;
    for (int from = 0; from < kRanks; ++from) {
      sum = static_cast<uint8_t>(sum + Sent(from, Scatters() ? static_cast<uint64_t>(rank) : 0));
    }
    return sum;
  }
  uint8_t* Of(int rank) const { return memory_ + static_cast<uint64_t>(rank) * kRankBytes; }
  void Fill(int rank) const {
    std::memset(Of(rank), 0xFF, kRankBytes);
    if (case_.collective == COTUNE_COLLECTIVE_BROADCAST && rank != kRoot) return;
    for (uint64_t block = 0; block < SendBlocks(); ++block) {
      std::memset(Send(rank) + block * kCount, Sent(rank, block), kCount);
    }
  }

  const Case case_;
  uint8_t* memory_;
};

cotune_result Call(cotune_group* group, const Case& each, const Buffers& buffers, int rank) {
  const uint8_t* const send = buffers.Send(rank);
  uint8_t* const recv = buffers.Receive(rank);
  switch (each.collective) {
    case COTUNE_COLLECTIVE_ALL_REDUCE:
      return cotune_all_reduce(group, send, recv, kCount, COTUNE_U8, COTUNE_REDUCE_SUM);
    case COTUNE_COLLECTIVE_ALL_GATHER:
      return cotune_all_gather(group, send, recv, kCount, COTUNE_U8);
    case COTUNE_COLLECTIVE_REDUCE_SCATTER:
      return cotune_reduce_scatter(group, send, recv, kCount, COTUNE_U8, COTUNE_REDUCE_SUM);
    case COTUNE_COLLECTIVE_ALL_TO_ALL:
      return cotune_all_to_all(group, send, recv, kCount, COTUNE_U8);
    default:
      return cotune_broadcast(group, send, recv, kCount, COTUNE_U8, kRoot);
  }
}

class AbandonedBuffers : public CApiRanks, public ::testing::WithParamInterface<Case> {
 protected:
  AbandonedBuffers() {
    const char* const name = getenv("COTUNE_TEST_BACKEND");
    if (name != nullptr) backend_ = name;
    if (backend_ != "host") CopyPlugin(backend_, plugins_);
    backends_ = backend_.c_str();
    call_timeout_ns_ = kSecondNs;
  }

  int RunRank(int rank, const Buffers& buffers, TestLink& link) const {
    const Case& each = GetParam();
    const bool is_victim = rank == each.victim;
    cotune_group* group = Create(rank, kRanks, link);
    if (group == nullptr) return 1;
    if (is_victim) {
      stop_page = buffers.StopPage();
      struct sigaction action {};
      action.sa_sigaction = OnTouch;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGSEGV, &action, nullptr);
      mprotect(stop_page, kPageBytes, PROT_NONE);
    }
    const cotune_result result = Call(group, each, buffers, rank);
    if (stop_page != nullptr) link.Report("was not stopped");
    // A rank that has all that it needs of the others may be done.
    const bool is_wrong = result == COTUNE_SUCCESS && !buffers.IsRight(rank);
    Say(link, is_wrong ? "wrong" : "call", group, result);
    buffers.FillWithCanaries(rank);
    if (result != COTUNE_SUCCESS) Say(link, "next", group, Call(group, each, buffers, rank));
    if (!is_victim && each.then != Then::kKeepGroup) {
      cotune_group_destroy(group);
      group = nullptr;
    }
    if (!is_victim && each.then == Then::kUnmapBuffers) buffers.Unmap(rank);
    link.Report("filled");
    link.AwaitWord();
    cotune_group_destroy(group);
    return 0;
  }

  std::string backend_ = "host";
};

TEST_P(AbandonedBuffers, AreNotWrittenAnyMore) {
  const Case& each = GetParam();
  const Buffers buffers(each);
  RankProcesses ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([&, rank](TestLink& link) { return RunRank(rank, buffers, link); });
  }
  const auto victim = static_cast<size_t>(each.victim);
  std::vector<size_t> others;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) others.push_back(rank);
  }
  ASSERT_TRUE(ranks.WaitForStop(victim)) << ranks.Transcript();
  for (const size_t rank : others) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "filled", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Signal(victim, SIGCONT);
  ASSERT_TRUE(ranks.WaitForLine(victim, "filled", kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kRanks; ++rank) ranks.Say(rank);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  for (size_t rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "call "), SizeIs(1));
    EXPECT_THAT(ranks.LinesOf(rank, "was not"), SizeIs(0));
    EXPECT_THAT(ranks.LinesOf(rank, "next "), Each(Not(StartsWith("0 "))));
    EXPECT_EQ(buffers.ChangedBytes(static_cast<int>(rank)), 0);
  }
}

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Calls, AbandonedBuffers,
    ::testing::Values(Case{"AllReduce", COTUNE_COLLECTIVE_ALL_REDUCE, false, 1, Touch::kReceive,
                           Then::kDestroyGroup},
                      Case{"AllReduceSend", COTUNE_COLLECTIVE_ALL_REDUCE, false, 0, Touch::kSend,
                           Then::kUnmapBuffers},
                      Case{"AllReduceInPlace", COTUNE_COLLECTIVE_ALL_REDUCE, true, 2,
                           Touch::kReceive, Then::kKeepGroup},
                      Case{"AllGather", COTUNE_COLLECTIVE_ALL_GATHER, false, 1, Touch::kReceive,
                           Then::kKeepGroup},
                      Case{"AllGatherSend", COTUNE_COLLECTIVE_ALL_GATHER, false, 1, Touch::kSend,
                           Then::kDestroyGroup},
                      Case{"AllGatherInPlace", COTUNE_COLLECTIVE_ALL_GATHER, true, 0,
                           Touch::kReceive, Then::kUnmapBuffers},
                      Case{"ReduceScatter", COTUNE_COLLECTIVE_REDUCE_SCATTER, false, 1,
                           Touch::kReceive, Then::kUnmapBuffers},
                      Case{"ReduceScatterSend", COTUNE_COLLECTIVE_REDUCE_SCATTER, false, 2,
                           Touch::kSend, Then::kKeepGroup},
                      Case{"ReduceScatterInPlace", COTUNE_COLLECTIVE_REDUCE_SCATTER, true, 0,
                           Touch::kReceive, Then::kDestroyGroup},
                      Case{"AllToAll", COTUNE_COLLECTIVE_ALL_TO_ALL, false, 1, Touch::kReceive,
                           Then::kKeepGroup},
                      Case{"AllToAllSend", COTUNE_COLLECTIVE_ALL_TO_ALL, false, 0, Touch::kSend,
                           Then::kDestroyGroup},
                      Case{"AllToAllInPlace", COTUNE_COLLECTIVE_ALL_TO_ALL, true, 2,
                           Touch::kReceive, Then::kUnmapBuffers},
                      Case{"Broadcast", COTUNE_COLLECTIVE_BROADCAST, false, 1, Touch::kReceive,
                           Then::kUnmapBuffers},
                      Case{"BroadcastSend", COTUNE_COLLECTIVE_BROADCAST, false, kRoot, Touch::kSend,
                           Then::kKeepGroup},
                      Case{"BroadcastSendThenDestroy", COTUNE_COLLECTIVE_BROADCAST, false, kRoot,
                           Touch::kSend, Then::kDestroyGroup},
                      Case{"BroadcastInPlace", COTUNE_COLLECTIVE_BROADCAST, true, kRoot,
                           Touch::kSend, Then::kDestroyGroup}),
    NameOf);

}  // namespace
}  // namespace cotune
