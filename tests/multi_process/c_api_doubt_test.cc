// Calls on which the ranks agree, when a rank dies before it has told all of them the outcome: real
// processes, only cotune.h, the shared library and plugins.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

// Frames of the coordinator, each behind its length, see sync/wire/wire.proto.
enum class FrameKind { kGo, kRelease };

bool IsFrame(FrameKind kind, std::string_view bytes) {
  constexpr char kRelease = 0x22;   // field 4 of the frame
  constexpr char kDecision = 0x3A;  // field 7 of the frame
  // Field 3 of the decision, which comes last: the ranks may use the table.
  constexpr std::string_view kRulingGo("\x18\x03", 2);
  if (bytes.size() <= 6) return false;
  if (kind == FrameKind::kRelease) return bytes[4] == kRelease;
  return bytes[4] == kDecision && bytes.ends_with(kRulingGo);
}

// How many frames of that kind this process may still send before it dies; negative: it does not
// count.
std::atomic<int> frames_left = -1;
std::atomic<FrameKind> counted_kind = FrameKind::kGo;
// Whether this process dies when it puts a database in its place.
std::atomic<bool> dies_in_save = false;

}  // namespace
}  // namespace cotune

// These take the place of the C library's functions for the shared library under test too.
extern "C" __attribute__((visibility("default"))) ssize_t send(int socket, const void* data,
                                                               size_t size, int flags) {
  if (cotune::frames_left >= 0 &&
      cotune::IsFrame(cotune::counted_kind, {static_cast<const char*>(data), size}) &&
      cotune::frames_left-- == 0) {
    kill(getpid(), SIGKILL);
  }
  return syscall(SYS_sendto, socket, data, size, flags, nullptr, 0);
}

extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) {
  if (cotune::dies_in_save && std::string_view(to).ends_with(".tdb")) kill(getpid(), SIGKILL);
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Reports the result of every call that a group has, after it was stopped.
void SayAllCalls(TestLink& link, cotune_group* group, const std::string& database) {
  float x[4] = {};
  void* memory = nullptr;
  Say(link, "later", group, Reduce(group));
  Say(link, "later", group, cotune_all_gather(group, x, x, 1, COTUNE_F32));
  Say(link, "later", group, cotune_load(group, database.c_str()));
  Say(link, "later", group, cotune_save(group, database.c_str()));
  Say(link, "later", group, Tune(group, 256));
  Say(link, "later", group, cotune_group_check(group));
  Say(link, "later", group, cotune_memory_allocate(group, 64, &memory));
  Say(link, "later", group, cotune_memory_free(group, x));
  const int32_t own = cotune_group_rank(group);
  cotune_group* part = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  const cotune_result split = cotune_group_split(group, "later", &own, 1, &part, &error);
  link.Report(fmt::format("later {} {}", split, error.text));
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  Say(link, "later", group, cotune_explain(group, &call, nullptr, 0, nullptr));
}

struct AgreedCall {
  const char* name;
  cotune_result (*make)(cotune_group* group, const std::string& database);
  // The coordinator tells each rank the outcome with a frame of this kind, after so many of them to
  // both ranks.
  FrameKind kind;
  int frames_before;
  const char* told_result;  // of the rank that hears it
};

cotune_result SplitBoth(cotune_group* group, const std::string&) {
  const int32_t both[] = {0, 1};
  cotune_group* part = nullptr;
  const cotune_result result = cotune_group_split(group, "more", both, 2, &part, nullptr);
  cotune_group_destroy(part);
  return result;
}

class CApiDoubt : public CApiRanks, public testing::WithParamInterface<AgreedCall> {
 protected:
  CApiDoubt() { setenv("COTUNE_DATABASE", database_.c_str(), 1); }

  // Ranks 1 and 2: makes the call in a group that rank 0 is not in, and reports what follows.
  void MakeCall(cotune_group* group, TestLink& link) const {
    cotune_group* const tuned = Split(group, "tuned", {1, 2}, link);
    if (tuned == nullptr) return;
    Say(link, "tune", tuned, Tune(tuned, 256));
    Say(link, "save", tuned, cotune_save(tuned, database_.c_str()));
    cotune_group* const pair = Split(group, "pair", {1, 2}, link);
    if (pair == nullptr) return;
    cotune_group* const child = Split(pair, "child", {0, 1}, link);
    if (child == nullptr) return;
    link.Report("ready");
    link.AwaitWord();
    Say(link, "made", pair, GetParam().make(pair, database_));
    if (cotune_group_rank(pair) == 0) {
      // The other rank has stopped, and frees this one, which waits for it.
      Say(link, "call", pair, Reduce(pair));
    } else {
      SayAllCalls(link, pair, database_);
      Say(link, "child", child, Reduce(child));
    }
    cotune_group_destroy(child);
    cotune_group_destroy(pair);
    cotune_group_destroy(tuned);
  }
};

// The coordinator dies between the two frames that tell the ranks of a group, which it is not in,
// the outcome. One of them has it; the other does not know, and stops.
TEST_P(CApiDoubt, StopsTheRankThatDoesNotHearTheOutcome) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      if (rank == 0) {
        link.AwaitWord();
        counted_kind = GetParam().kind;
        frames_left = GetParam().frames_before + 1;
        link.Report("armed");
        link.AwaitWord();  // no word comes: the coordinator's thread ends the process
        return 1;
      }
      MakeCall(group, link);
      cotune_group_destroy(group);
      return 0;
    });
  }
  for (size_t rank : {1, 2}) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "ready", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Say(0);
  ASSERT_TRUE(ranks.WaitForLine(0, "armed", kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {1, 2}) ranks.Say(rank);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(0), -SIGKILL);
  // Frames go to the ranks in the order of the group.
  EXPECT_THAT(ranks.LinesOf(1, "made "), ElementsAre(StartsWith(GetParam().told_result)));
  ASSERT_THAT(ranks.LinesOf(2, "made "), ElementsAre(AllOf(StartsWith("5 "), HasSubstr("rank 0"))));
  const std::string doubt = ranks.LinesOf(2, "made ").front();
  EXPECT_THAT(ranks.LinesOf(2, "later "), AllOf(SizeIs(10), Each(doubt)));
  EXPECT_THAT(ranks.LinesOf(2, "child "), ElementsAre(doubt));
  EXPECT_THAT(ranks.LinesOf(1, "call "), ElementsAre(Not(StartsWith("0"))));
}

INSTANTIATE_TEST_SUITE_P(
    AgreedCalls, CApiDoubt,
    testing::Values(AgreedCall{"Load",
                               [](cotune_group* group, const std::string& database) {
                                 return cotune_load(group, database.c_str());
                               },
                               FrameKind::kGo, 0, "0 "},
                    // The rank that hears of the agreement misses rank 0 when it saves.
                    AgreedCall{
                        "Tune",
                        [](cotune_group* group, const std::string&) { return Tune(group, 1024); },
                        FrameKind::kGo, 0, "5 "},
                    AgreedCall{"Split", SplitBoth, FrameKind::kGo, 0, "0 "},
                    AgreedCall{"Save",
                               [](cotune_group* group, const std::string& database) {
                                 return cotune_save(group, database.c_str());
                               },
                               FrameKind::kRelease, 0, "0 "},
                    // One rank hears that host memory cannot be registered.
                    AgreedCall{"Registration",
                               [](cotune_group* group, const std::string&) {
                                 static std::array<char, 4096> memory;
                                 return cotune_memory_register(group, memory.data(), memory.size());
                               },
                               FrameKind::kRelease, 2, "10 "}),
    [](const auto& info) { return std::string(info.param.name); });

class CApiStop : public CApiRanks {};

// Rank 0 dies while it saves what was tuned. The other rank does not learn what rank 0 has done.
TEST_F(CApiStop, ADeathInTheSaveOfATuneIsAnErrorAlsoWhereNoDatabaseIsNeeded) {
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link);
      if (group == nullptr) return 1;
      dies_in_save = rank == 0;
      Say(link, "made", group, Tune(group, 256, ""));
      SayAllCalls(link, group, database_);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(0), -SIGKILL);
  ASSERT_THAT(ranks.LinesOf(1, "made "),
              ElementsAre(AllOf(StartsWith("5 "), HasSubstr("step 'save database'"))));
  const std::string doubt = ranks.LinesOf(1, "made ").front();
  EXPECT_THAT(ranks.LinesOf(1, "later "), AllOf(SizeIs(10), Each(doubt)));
}

// A callback throws against its contract. No rank of the group goes on, nor of the group that was
// split from it.
TEST_F(CApiStop, AnExceptionOnOneRankStopsTheGroupOnAll) {
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link);
      if (group == nullptr) return 1;
      cotune_group* const child = Split(group, "child", {0, 1}, link);
      if (child == nullptr) return 1;
      constexpr uint64_t kBytes = 256;
      cotune_tune_options options{};
      options.struct_size = sizeof(options);
      options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
      options.sizes_bytes = &kBytes;
      options.size_count = 1;
      if (rank == 1) {
        options.progress = [](void*, int32_t, int32_t, const char*) -> int32_t {
          throw std::runtime_error("thrown");
        };
      }
      Say(link, "made", group, cotune_tune(group, &options, nullptr));
      Say(link, "child", child, Reduce(child));
      SayAllCalls(link, group, database_);
      cotune_group_destroy(child);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    ASSERT_THAT(ranks.LinesOf(rank, "made "),
                ElementsAre(rank == 1 ? testing::Matcher<std::string>(
                                            AllOf(StartsWith("1 "), HasSubstr("thrown")))
                                      : StartsWith("5 ")));
    const std::string made = ranks.LinesOf(rank, "made ").front();
    EXPECT_THAT(ranks.LinesOf(rank, "later "), AllOf(SizeIs(10), Each(made)));
    EXPECT_THAT(ranks.LinesOf(rank, "child "), ElementsAre(made));
  }
}

}  // namespace
}  // namespace cotune
