// Regions through the ABI: what is refused, outputs over the operand of the collective, and ranks
// that die, stop or call something else in a fused call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "plugins/host/testing/abi_region.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int64_t kShortNs = 2 * kSecondNs;
// Events: rank 1 is in the middle of its calls; it goes on after a stop.
enum Event { kRunning, kContinued };

// y = relu(collective(x) + r), over r.
AbiRegion BiasedRelu(uint32_t collective, int ranks, uint64_t rows, uint64_t columns) {
  AbiRegion region(ranks, rows);
  const int x = region.Input(columns);
  const int r = region.Input(columns);
  const int value = region.Collective(collective, x);
  region.Return(region.Compute(COTUNE_NODE_RELU, {region.Compute(COTUNE_NODE_ADD, {value, r})}), r);
  return region;
}

TEST(ListedRegions, HaveTheNamesOfTheCollective) {
  EXPECT_THAT(ListRegion(BiasedRelu(COTUNE_ALL_REDUCE, 4, 4, 64)).choices,
              ElementsAre("one_shot?chunk=65536", "one_shot?transport=ll", "two_shot?chunk=65536"));
  EXPECT_THAT(
      ListRegion(BiasedRelu(COTUNE_BROADCAST, 4, 400, 64)).choices,
      ElementsAre("flat?chunk=65536", "flat?chunk=262144", "tree?chunk=65536", "tree?chunk=262144",
                  "chain?chunk=65536", "chain?chunk=262144", "peer_read?chunk=4194304"));
}

TEST(ListedRegions, RefuseWhatPassesPartialSumsOn) {
  const ListedRegion listed = ListRegion(BiasedRelu(COTUNE_ALL_REDUCE, 4, 400, 64));
  for (const char* name : {"ring", "tree"}) {
    EXPECT_THAT(listed.refusals, Contains(StartsWith(std::string(name) +
                                                     ": runs no operations: partial sums travel")));
  }
}

TEST(ListedRegions, RefusePeerReadsOfWhatIsNotThere) {
  AbiRegion scaled(2, 400);
  const int a = scaled.Input(64);
  const int b = scaled.Input(64);
  scaled.Return(scaled.Collective(COTUNE_ALL_TO_ALL, scaled.Compute(COTUNE_NODE_MUL, {a, b})));
  EXPECT_THAT(ListRegion(scaled).refusals,
              Contains(StartsWith("peer_read: others would read the input as it is before")));
  AbiRegion over(2, 400);
  const int y = over.Input(64);
  over.Return(over.Compute(COTUNE_NODE_RELU, {over.Collective(COTUNE_BROADCAST, y)}), y);
  EXPECT_THAT(ListRegion(over).refusals,
              Contains("peer_read: others would read the input while an output overwrites it"));
}

TEST(ListedRegions, RefuseRowsThatDoNotFitASlot) {
  // A row of 2 MiB: half a slot has 1 MiB. Lines and peer reads need no slot.
  AbiRegion wide(2, 4);
  const int x = wide.Input(512 << 10);
  const int b = wide.Input(512 << 10, COTUNE_ROWS_ONE);
  wide.Return(wide.Compute(COTUNE_NODE_ADD, {wide.Collective(COTUNE_ALL_REDUCE, x), b}));
  const ListedRegion listed = ListRegion(wide);
  EXPECT_THAT(listed.choices, IsEmpty());
  EXPECT_THAT(listed.refusals,
              Contains("two_shot: 1 rows of 2097152 bytes do not fit half a slot of 2097152 bytes "
                       "(setting host.slot_bytes)"));
  // Without a value of one row nothing depends on the end of a row.
  EXPECT_THAT(ListRegion(BiasedRelu(COTUNE_ALL_REDUCE, 2, 4, 512 << 10)).choices, Not(IsEmpty()));
}

TEST(ListedRegions, RefuseWhatIsNoCollectiveWithOperationsAroundIt) {
  AbiRegion early(2, 4);
  const int a = early.Input(8);
  const int r = early.Compute(COTUNE_NODE_RELU, {a});
  early.Return(early.Collective(COTUNE_ALL_REDUCE, r));
  early.Return(r);
  EXPECT_THAT(ListRegion(early).refusals,
              ElementsAre("an output is computed before the collective"));

  AbiRegion both(2, 4);
  const int b = both.Input(8);
  const int n = both.Compute(COTUNE_NODE_NEG, {b});
  both.Return(both.Compute(COTUNE_NODE_ADD, {both.Collective(COTUNE_ALL_REDUCE, n), n}));
  EXPECT_THAT(
      ListRegion(both).refusals,
      ElementsAre("operations after the collective read what operations before it compute"));

  AbiRegion mixed(2, 4);
  const int one = mixed.Input(8, COTUNE_ROWS_ONE);
  const int many = mixed.Input(8);
  const int value = mixed.Collective(COTUNE_ALL_REDUCE, one);
  mixed.Return(mixed.Compute(COTUNE_NODE_ADD, {many, value}));
  EXPECT_THAT(ListRegion(mixed).refusals,
              ElementsAre("a value around the collective has other rows than the collective's"));
}

// The elements of x, and those of the collective's value.
float InputAt(int rank, uint64_t at) { return static_cast<float>((at * 7 + 3) % 41) - 20 * rank; }
float ValueAt(uint32_t collective, int ranks, int rank, uint64_t count, uint64_t at) {
  float value = 0;
  const uint64_t block = count / static_cast<uint64_t>(ranks);
  if (collective == COTUNE_ALL_REDUCE) {
    for (int r = 0; r < ranks; ++r) value += InputAt(r, at);
  } else if (collective == COTUNE_ALL_TO_ALL) {
    const uint64_t of = static_cast<uint64_t>(rank) * block + at % block;
    value = InputAt(static_cast<int>(at / block), of);
  } else {
    value = InputAt(0, at);
  }
  return value;
}

class OverTheOperand : public testing::TestWithParam<int> {};

// cotune asks for such regions of an all_reduce alone; the plugin takes those of others as well.
TEST_P(OverTheOperand, EveryListedChoiceIsRight) {
  const int world_size = GetParam();
  JobForTest job;
  job.Set("host.slot_bytes", "65536");
  RankProcesses ranks(world_size, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(world_size), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    int run = 0;
    for (const uint32_t collective : {COTUNE_ALL_REDUCE, COTUNE_ALL_TO_ALL, COTUNE_BROADCAST}) {
      for (const uint64_t rows : {1, 3000}) {
        const uint64_t all_rows = rows * static_cast<uint64_t>(world_size);
        const uint64_t count = all_rows * 7;
        AbiRegion region(world_size, all_rows);
        const int x = region.Input(7);
        const int sum = region.Compute(COTUNE_NODE_ADD, {region.Collective(collective, x), x});
        region.Return(region.Compute(COTUNE_NODE_RELU, {sum}), x);
        // It is computed in a second walk over the row, when x is overwritten.
        const int value = 1;
        region.Return(
            region.Compute(COTUNE_NODE_MUL, {value, region.Compute(COTUNE_NODE_ROW_SUM, {value})}));
        for (const std::string& choice : ListRegion(group.backend(), region).choices) {
          std::vector<float> data(count);
          std::vector<float> scaled(count);
          for (uint64_t i = 0; i < count; ++i) data[i] = InputAt(rank, i);
          cotune_error_t error = EmptyError();
          const cotune_status_t status =
              RunRegion(group.backend(), group.group(), region, choice.c_str(), {data.data()},
                        {data.data(), scaled.data()}, MonotonicNs() + kLongNs, &error);
          if (status != COTUNE_OK) return choice + ": " + error.message;
          for (uint64_t i = 0; i < count; ++i) {
            const auto value_at = [&](uint64_t at) {
              return ValueAt(collective, world_size, rank, count, at);
            };
            float row_sum = 0;
            for (uint64_t c = 0; c < 7; ++c) row_sum += value_at(i / 7 * 7 + c);
            if (data[i] != std::max(value_at(i) + InputAt(rank, i), 0.0F) ||
                scaled[i] != value_at(i) * row_sum) {
              return choice + " of collective " + std::to_string(collective) + " is wrong at " +
                     std::to_string(i);
            }
          }
          ++run;
        }
      }
    }
    return run >= 6 ? "" : "few choices";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// A number of each row, by which the operand is scaled.
float WeightAt(int rank, uint64_t row) { return static_cast<float>(row % 5) - rank; }

// x and w, which the operand is computed from, are overwritten by what follows from the sum.
TEST_P(OverTheOperand, EveryListedChoiceIsRightIfOperationsBeforeTheCollectiveReadIt) {
  const int world_size = GetParam();
  constexpr uint64_t kColumns = 7;
  JobForTest job;
  job.Set("host.slot_bytes", "65536");
  RankProcesses ranks(world_size, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(world_size), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    int run = 0;
    for (const uint64_t rows : {1, 5, 9000}) {
      AbiRegion region(world_size, rows);
      const int x = region.Input(kColumns);
      const int w = region.Input(1);
      const int sum = region.Collective(COTUNE_ALL_REDUCE, region.Compute(COTUNE_NODE_MUL, {x, w}));
      region.Return(region.Compute(COTUNE_NODE_RELU, {region.Compute(COTUNE_NODE_ADD, {sum, x})}),
                    x);
      region.Return(region.Compute(COTUNE_NODE_ROW_SUM, {sum}), w);
      for (const std::string& choice : ListRegion(group.backend(), region).choices) {
        std::vector<float> values(rows * kColumns);
        std::vector<float> numbers(rows);
        for (uint64_t i = 0; i < values.size(); ++i) values[i] = InputAt(rank, i);
        for (uint64_t row = 0; row < rows; ++row) numbers[row] = WeightAt(rank, row);
        cotune_error_t error = EmptyError();
        const cotune_status_t status = RunRegion(
            group.backend(), group.group(), region, choice.c_str(), {values.data(), numbers.data()},
            {values.data(), numbers.data()}, MonotonicNs() + kLongNs, &error);
        if (status != COTUNE_OK) return choice + ": " + error.message;
        for (uint64_t row = 0; row < rows; ++row) {
          float row_sum = 0;
          for (uint64_t i = row * kColumns; i < (row + 1) * kColumns; ++i) {
            float value = 0;
            for (int r = 0; r < world_size; ++r) value += InputAt(r, i) * WeightAt(r, row);
            row_sum += value;
            if (values[i] != std::max(value + InputAt(rank, i), 0.0F)) {
              return choice + " is wrong at " + std::to_string(i);
            }
          }
          if (numbers[row] != row_sum) return choice + " is wrong in row " + std::to_string(row);
        }
        ++run;
      }
    }
    return run >= 3 ? "" : "few choices";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, OverTheOperand, testing::Values(1, 2, 3, 4, 5));

// A rank of a job of 4 that calls regions until one fails. Every call has other data, and every
// value of a call that succeeds is compared.
class Caller {
 public:
  Caller(const JobForTest& job, int rank, uint32_t collective, uint64_t rows)
      : group_(job.host(), "g", rank, AllRanks(4), MonotonicNs() + kLongNs),
        rank_(rank),
        collective_(collective),
        x_(rows * 16),
        r_(rows * 16) {}
  // "" when there is a group.
  std::string Wrong() const { return group_.status() == COTUNE_OK ? "" : group_.error().message; }

  // Calls y = relu(collective(x) + r). `elements`: of each operand.
  cotune_status_t Call(const AbiRegion& region, const char* choice, uint64_t elements,
                       int64_t timeout_ns) {
    ++calls_;
    const float shift = static_cast<float>(calls_ % 50);
    for (uint64_t at = 0; at < elements; ++at) x_[at] = InputAt(rank_, at) + shift;
    for (uint64_t at = 0; at < elements; ++at) r_[at] = ResidualAt(at);
    error_ = EmptyError();
    const cotune_status_t status =
        RunRegion(group_.backend(), group_.group(), region, choice, {x_.data(), r_.data()},
                  {r_.data()}, MonotonicNs() + timeout_ns, &error_);
    if (status != COTUNE_OK) return status;
    const float times = collective_ == COTUNE_ALL_REDUCE ? 4 : 1;
    for (uint64_t at = 0; at < elements && wrong_.empty(); ++at) {
      const float sum = ValueAt(collective_, 4, rank_, elements, at) + times * shift;
      const float expected = std::max(sum + ResidualAt(at), 0.0f);
      if (r_[at] == expected) continue;
      wrong_ = "call " + std::to_string(calls_) + " succeeded with " + std::to_string(r_[at]) +
               " instead of " + std::to_string(expected) + " at " + std::to_string(at);
    }
    return status;
  }
  // Empty when all values were right, and the failure is one of this rank with the word in its
  // message.
  std::string Names(cotune_status_t status, int rank, const std::string& word) const {
    if (!wrong_.empty()) return wrong_;
    const std::string message = error_.message;
    const bool is_named = status == COTUNE_PEER_FAILED && error_.failed_rank == rank &&
                          message.find(word) != std::string::npos;
    return is_named ? "" : "status " + std::to_string(status) + ": " + message;
  }
  // Empty when the call succeeded and all values were right.
  std::string IsRight(cotune_status_t status) const {
    if (status == COTUNE_OK) return wrong_;
    return "status " + std::to_string(status) + ": " + error_.message;
  }

 private:
  static float ResidualAt(uint64_t at) { return -static_cast<float>(at % 13); }

  GroupForTest group_;
  int rank_;
  uint32_t collective_;
  std::vector<float> x_;
  std::vector<float> r_;
  int calls_ = 0;
  std::string wrong_;
  cotune_error_t error_{};
};

struct FaultyCall {
  const char* name;
  uint32_t collective;
  const char* choice;
  uint64_t rows;
};

class FusedCall : public testing::TestWithParam<FaultyCall> {
 protected:
  static AbiRegion Region() { return BiasedRelu(GetParam().collective, 4, GetParam().rows, 16); }
  // Calls until it fails, which must be the victim's fault.
  static std::string Rank(JobForTest& job, int rank, int64_t timeout_ns, const char* word) {
    Caller caller(job, rank, GetParam().collective, GetParam().rows);
    if (std::string wrong = caller.Wrong(); !wrong.empty()) return wrong;
    const AbiRegion region = Region();
    cotune_status_t status = COTUNE_OK;
    for (int done = 0; status == COTUNE_OK; ++done) {
      if (rank == 1 && done == 20) job.Post(kRunning);
      status = caller.Call(region, GetParam().choice, GetParam().rows * 16, timeout_ns);
    }
    return caller.Names(status, 1, word);
  }
};

TEST_P(FusedCall, OfARankThatIsKilledFailsOnAll) {
  JobForTest job;
  RankProcesses ranks(4, [&](int rank) { return Rank(job, rank, kLongNs, "died"); });
  job.Await(kRunning);
  ranks.Kill(1, SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), rank == 1 ? "signal 9" : "") << "rank " << rank;
  }
}

TEST_P(FusedCall, OfARankThatStopsFailsOnAllAtTheDeadline) {
  JobForTest job;
  RankProcesses ranks(4, [&](int rank) { return Rank(job, rank, kShortNs, "deadline"); });
  job.Await(kRunning);
  ranks.Kill(1, SIGSTOP);
  for (const int rank : {0, 2, 3}) EXPECT_EQ(ranks.Wait(rank), "") << "rank " << rank;
  ranks.Kill(1, SIGCONT);
  EXPECT_EQ(ranks.Wait(1), "");
}

// Stops this process after so long, wherever it is then.
class StopTimer {
 public:
  StopTimer() {
    struct sigevent event {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGSTOP;
    is_made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~StopTimer() {
    if (is_made_) timer_delete(timer_);
  }
  StopTimer(const StopTimer&) = delete;
  StopTimer& operator=(const StopTimer&) = delete;
  bool Start(int64_t after_ns) {
    const struct itimerspec once = {.it_interval = {0, 0}, .it_value = {0, after_ns}};
    return is_made_ && timer_settime(timer_, 0, &once, nullptr) == 0;
  }

 private:
  timer_t timer_{};
  bool is_made_ = false;
};

// Rank 1 stops at several times after it has begun a call, and goes on in time.
TEST_P(FusedCall, OfARankThatIsContinuedInTimeIsRight) {
  constexpr int kStops = 8;
  constexpr int kCallsBetween = 20;
  JobForTest job;
  RankProcesses ranks(4, [&](int rank) -> std::string {
    Caller caller(job, rank, GetParam().collective, GetParam().rows);
    if (std::string wrong = caller.Wrong(); !wrong.empty()) return wrong;
    const AbiRegion region = Region();
    StopTimer timer;
    cotune_status_t status = COTUNE_OK;
    for (int call = 0; call < kStops * kCallsBetween && status == COTUNE_OK; ++call) {
      if (rank == 1 && call % kCallsBetween == 0) {
        // So that one stop is over before the next.
        job.Await(kContinued, static_cast<uint32_t>(call / kCallsBetween));
        if (!timer.Start(1000 + call * 1500)) return "no timer can be had";
      }
      status = caller.Call(region, GetParam().choice, GetParam().rows * 16, kLongNs);
    }
    // A process that has ended could not be stopped.
    if (rank == 1) job.Await(kContinued, kStops);
    return caller.IsRight(status);
  });
  for (int stop = 0; stop < kStops; ++stop) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(ranks.pid(1)), &info, WSTOPPED | WEXITED | WNOWAIT);
    ASSERT_EQ(info.si_code, CLD_STOPPED) << ranks.WaitAll();
    ranks.Kill(1, SIGCONT);
    job.Post(kContinued);
  }
  EXPECT_EQ(ranks.WaitAll(), "");
}

// Rank 2 keeps rows of 23 columns whole, so that its pieces of the collective lie elsewhere.
TEST_P(FusedCall, OfAnotherCutIsNamedByAll) {
  if (GetParam().rows < 100) GTEST_SKIP() << "a single piece lies at the same place for all cuts";
  JobForTest job;
  RankProcesses ranks(4, [&](int rank) -> std::string {
    constexpr uint64_t kColumns = 23;
    Caller caller(job, rank, GetParam().collective, GetParam().rows * 2);
    if (std::string wrong = caller.Wrong(); !wrong.empty()) return wrong;
    const AbiRegion usual = BiasedRelu(GetParam().collective, 4, GetParam().rows, kColumns);
    AbiRegion other(4, GetParam().rows);
    const int x = other.Input(kColumns);
    const int r = other.Input(kColumns);
    const int value = other.Collective(GetParam().collective, x);
    const int row_sum = other.Compute(COTUNE_NODE_ROW_SUM, {value});
    other.Return(
        other.Compute(COTUNE_NODE_ADD, {other.Compute(COTUNE_NODE_MUL, {value, row_sum}), r}), r);
    cotune_status_t status = COTUNE_OK;
    for (int call = 0; call < 30 && status == COTUNE_OK; ++call) {
      const bool differs = rank == 2 && call == 10;
      status = caller.Call(differs ? other : usual, GetParam().choice, GetParam().rows * kColumns,
                           kLongNs);
    }
    return caller.Names(status, 2, "called");
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Choices, FusedCall,
    testing::Values(FaultyCall{"OneShot", COTUNE_ALL_REDUCE, "one_shot?chunk=65536", 3000},
                    FaultyCall{"TwoShot", COTUNE_ALL_REDUCE, "two_shot?chunk=65536", 3000},
                    FaultyCall{"Lines", COTUNE_ALL_REDUCE, "one_shot?transport=ll", 4},
                    FaultyCall{"Direct", COTUNE_ALL_TO_ALL, "direct?chunk=65536", 4000}),
    [](const testing::TestParamInfo<FaultyCall>& info) { return info.param.name; });

}  // namespace
}  // namespace cotune::host
