// Regions of several collectives through the ABI: their bits by every choice that is listed, what
// is refused, and ranks whose regions differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "plugins/host/sdk_names.h"
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

// A dtype: its elements in memory, and the type that they are computed with.
struct F32 {
  using Stored = float;
  using Lane = float;
  static constexpr cotune_dtype_t kDtype = kAbiF32;
  static Lane Load(Stored stored) { return stored; }
  static Stored Store(Lane lane) { return lane; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Lane = float;
  static constexpr cotune_dtype_t kDtype = {COTUNE_DTYPE_BFLOAT, 16, 1};
  static Lane Load(Stored stored) { return F32FromBf16(stored); }
  static Stored Store(Lane lane) { return Bf16FromF32(lane); }
};
struct F16 {
  using Stored = uint16_t;
  using Lane = float;
  static constexpr cotune_dtype_t kDtype = {COTUNE_DTYPE_FLOAT, 16, 1};
  static Lane Load(Stored stored) { return F32FromF16(stored); }
  static Stored Store(Lane lane) { return F16FromF32(lane); }
};
struct I32 {
  using Stored = int32_t;
  using Lane = int32_t;
  static constexpr cotune_dtype_t kDtype = {COTUNE_DTYPE_INT, 32, 1};
  static Lane Load(Stored stored) { return stored; }
  static Stored Store(Lane lane) { return lane; }
};

float Add(float a, float b) { return a + b; }
float Mul(float a, float b) { return a * b; }
float Neg(float a) { return -a; }
int32_t Add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
int32_t Mul(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}
int32_t Neg(int32_t a) { return static_cast<int32_t>(0u - static_cast<uint32_t>(a)); }

// Sums of these depend on the order of the ranks.
template <class T>
typename T::Stored ElementAt(int rank, size_t operand, uint64_t at) {
  uint64_t mixed = (at * 40 + operand) * 8 + static_cast<uint64_t>(rank);
  mixed = (mixed ^ (mixed >> 7)) * 0x9E3779B97F4A7C15u;
  mixed >>= 40;
  if constexpr (std::is_same_v<T, I32>) {
    return static_cast<int32_t>(mixed * 200);
  } else {
    return T::Store((static_cast<float>(mixed % 2000) - 999.5f) / 777);
  }
}

enum class Operations { kNone, kCopies, kBefore, kAfter, kBoth, kDifferent };
constexpr Operations kOperations[] = {Operations::kNone,   Operations::kCopies,
                                      Operations::kBefore, Operations::kAfter,
                                      Operations::kBoth,   Operations::kDifferent};

struct BucketCase {
  int ranks = 1;
  uint64_t rows = 1;
  Operations operations = Operations::kNone;
  uint32_t reduction = COTUNE_SUM;
  bool in_place = false;
};

// Five collectives of three lengths of a row; the last one has one row, whatever the others have.
constexpr std::array<uint64_t, 5> kColumns = {101, 3, 64, 3, 101};
constexpr size_t kMembers = kColumns.size();

// A buffer with bytes around it that stay as they are. It is aligned to its elements only.
template <class Stored>
class Operand {
 public:
  explicit Operand(uint64_t elements)
      : bytes_(sizeof(Stored) * (elements + 1) + kCanaryBytes, kCanary), elements_(elements) {}
  Stored* data() { return reinterpret_cast<Stored*>(bytes_.data() + sizeof(Stored)); }
  uint64_t elements() const { return elements_; }
  bool HasCanaries() const {
    const size_t end = bytes_.size() - kCanaryBytes;
    for (size_t b = 0; b < bytes_.size(); ++b) {
      if ((b < sizeof(Stored) || b >= end) && bytes_[b] != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr std::byte kCanary{0xA5};
  static constexpr size_t kCanaryBytes = 64;
  std::vector<std::byte> bytes_;
  uint64_t elements_;
};

// The region of a case, and its operands on one rank.
template <class T>
class Bucket {
 public:
  using Stored = typename T::Stored;
  using Lane = typename T::Lane;

  Bucket(const BucketCase& of, int rank) : of_(of), rank_(rank), region_(of.ranks, of.rows) {
    for (size_t m = 0; m < kMembers; ++m) x_[m] = AddInput(m);
    for (size_t m = 0; m < kMembers; ++m) {
      if (ReadsSecond(m)) r_[m] = AddInput(m);
    }
    for (size_t m = 0; m < kMembers; ++m) operand_[m] = Before(m);
    for (size_t m = 0; m < kMembers; ++m) {
      value_[m] = region_.Collective(COTUNE_ALL_REDUCE, operand_[m], of.reduction);
    }
    // Not in the order of the collectives.
    for (size_t i = 0; i < kMembers; ++i) {
      const size_t m = kMembers - 1 - i;
      const int into = !of_.in_place ? -1 : m % 2 == 1 && r_[m] ? *r_[m] : x_[m];
      into_[m] = into;
      region_.Return(After(m), into);
      outputs_.emplace_back(Elements(m));
    }
    FindExpected();
  }

  const AbiRegion& region() const { return region_; }

  // "" if all bits are right.
  std::string Run(const GroupForTest& group, const std::string& choice) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Fill(i);
      inputs.push_back(inputs_[i].data());
    }
    for (size_t i = 0; i < kMembers; ++i) outputs.push_back(Output(kMembers - 1 - i).data());
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunRegion(group.backend(), group.group(), region_, choice.c_str(), inputs, outputs,
                  MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return choice + ": " + error.message;
    for (size_t m = 0; m < kMembers; ++m) {
      if (std::memcmp(Output(m).data(), expected_[m].data(), Elements(m) * sizeof(Stored)) != 0) {
        return choice + " is wrong in member " + std::to_string(m) + " of " + Named();
      }
    }
    return CheckOthers(choice);
  }

 private:
  std::string Named() const {
    return "rows " + std::to_string(of_.rows) + ", operations " +
           std::to_string(static_cast<int>(of_.operations)) + (of_.in_place ? ", in place" : "");
  }
  static uint32_t RowsKind(size_t m) {
    return m + 1 == kMembers ? COTUNE_ROWS_ONE : COTUNE_ROWS_ALL;
  }
  uint64_t Elements(size_t m) const {
    return kColumns[m] * (RowsKind(m) == COTUNE_ROWS_ONE ? 1 : of_.rows);
  }
  bool Has(Operations one, size_t m, size_t first) const {
    if (of_.operations == Operations::kDifferent) return m % 4 == first || m % 4 == 3;
    return of_.operations == one || of_.operations == Operations::kBoth;
  }
  bool HasBefore(size_t m) const { return Has(Operations::kBefore, m, 1); }
  bool HasAfter(size_t m) const { return Has(Operations::kAfter, m, 2); }
  // The operations of members differ, too.
  bool MultipliesBefore(size_t m) const { return m % 3 != 1; }
  bool ReadsSecond(size_t m) const { return (HasBefore(m) && MultipliesBefore(m)) || HasAfter(m); }

  int AddInput(size_t m) {
    inputs_.emplace_back(Elements(m));
    return region_.Input(kColumns[m], RowsKind(m), T::kDtype);
  }
  int Before(size_t m) {
    if (of_.operations == Operations::kCopies && m % 2 == 0) {
      return region_.Compute(COTUNE_NODE_CAST, {x_[m]});
    }
    if (!HasBefore(m)) return x_[m];
    return MultipliesBefore(m) ? region_.Compute(COTUNE_NODE_MUL, {x_[m], *r_[m]})
                               : region_.Compute(COTUNE_NODE_NEG, {x_[m]});
  }
  int After(size_t m) {
    if (of_.operations == Operations::kCopies && m > 0) {
      return region_.Compute(COTUNE_NODE_CAST, {value_[m]});
    }
    if (!HasAfter(m)) return value_[m];
    if (m % 3 == 0) return region_.Compute(COTUNE_NODE_MUL, {value_[m], *r_[m]});
    return region_.Compute(COTUNE_NODE_RELU,
                           {region_.Compute(COTUNE_NODE_ADD, {value_[m], *r_[m]})});
  }

  Lane OperandOf(int rank, size_t m, uint64_t at) const {
    const Lane x = T::Load(ElementAt<T>(rank, static_cast<size_t>(x_[m]), at));
    if (!HasBefore(m)) return x;
    if (!MultipliesBefore(m)) return Neg(x);
    return T::Load(T::Store(Mul(x, T::Load(ElementAt<T>(rank, static_cast<size_t>(*r_[m]), at)))));
  }
  Lane ResultOf(size_t m, uint64_t at, Lane value) const {
    if (!HasAfter(m)) return value;
    const Lane r = T::Load(ElementAt<T>(rank_, static_cast<size_t>(*r_[m]), at));
    if (m % 3 == 0) return Mul(value, r);
    const Lane sum = Add(value, r);
    return sum > 0 ? sum : Lane{0};
  }
  void FindExpected() {
    for (size_t m = 0; m < kMembers; ++m) {
      expected_[m].resize(Elements(m));
      for (uint64_t at = 0; at < Elements(m); ++at) {
        Lane sum = OperandOf(0, m, at);
        for (int r = 1; r < of_.ranks; ++r) sum = Add(sum, OperandOf(r, m, at));
        if (of_.reduction == COTUNE_AVERAGE) sum /= static_cast<Lane>(of_.ranks);
        expected_[m][at] = T::Store(ResultOf(m, at, T::Load(T::Store(sum))));
      }
    }
  }

  // The operand that holds the output of a member.
  Operand<Stored>& Output(size_t m) {
    return into_[m] >= 0 ? inputs_[static_cast<size_t>(into_[m])] : outputs_[kMembers - 1 - m];
  }
  void Fill(size_t input) {
    for (uint64_t at = 0; at < inputs_[input].elements(); ++at) {
      inputs_[input].data()[at] = ElementAt<T>(rank_, input, at);
    }
  }
  // Nothing but the outputs was written.
  std::string CheckOthers(const std::string& choice) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].HasCanaries()) return choice + " wrote beside an input of " + Named();
      bool is_output = false;
      for (const int into : into_) is_output = is_output || into == static_cast<int>(i);
      for (uint64_t at = 0; !is_output && at < inputs_[i].elements(); ++at) {
        if (inputs_[i].data()[at] != ElementAt<T>(rank_, i, at)) {
          return choice + " wrote an input of " + Named();
        }
      }
    }
    for (const auto& each : outputs_) {
      if (!each.HasCanaries()) return choice + " wrote beside an output of " + Named();
    }
    return "";
  }

  BucketCase of_;
  int rank_;
  AbiRegion region_;
  std::array<int, kMembers> x_{};
  std::array<std::optional<int>, kMembers> r_{};
  std::array<int, kMembers> operand_{};
  std::array<int, kMembers> value_{};
  std::array<int, kMembers> into_{};
  std::array<std::vector<Stored>, kMembers> expected_{};
  std::vector<Operand<Stored>> inputs_;
  std::vector<Operand<Stored>> outputs_;  // in the order of the region's
};

class BucketOf : public testing::TestWithParam<int> {
 protected:
  // Every case of a dtype by every choice that is listed.
  template <class T>
  static void TestAll() {
    const int world_size = GetParam();
    JobForTest job;
    job.Set("host.slot_bytes", "65536");
    RankProcesses ranks(world_size, [&](int rank) -> std::string {
      const GroupForTest group(job.host(), "g", rank, AllRanks(world_size),
                               MonotonicNs() + kLongNs);
      if (group.status() != COTUNE_OK) return group.error().message;
      for (const uint64_t rows : {0, 1, 120}) {
        for (const Operations operations : kOperations) {
          for (const bool in_place : {false, true}) {
            const uint32_t reduction =
                operations == Operations::kDifferent ? COTUNE_AVERAGE : COTUNE_SUM;
            Bucket<T> bucket({world_size, rows, operations, reduction, in_place}, rank);
            const ListedRegion listed = ListRegion(group.backend(), bucket.region());
            if (listed.choices.size() < (world_size == 1 ? 1 : 2)) return listed.refusals.at(0);
            for (const std::string& choice : listed.choices) {
              if (std::string wrong = bucket.Run(group, choice); !wrong.empty()) return wrong;
            }
          }
        }
      }
      return "";
    });
    EXPECT_EQ(ranks.WaitAll(), "");
  }
};

TEST_P(BucketOf, F32) { TestAll<F32>(); }
TEST_P(BucketOf, Bf16) { TestAll<Bf16>(); }
TEST_P(BucketOf, F16) { TestAll<F16>(); }
TEST_P(BucketOf, I32) { TestAll<I32>(); }

INSTANTIATE_TEST_SUITE_P(Ranks, BucketOf, testing::Values(1, 2, 3, 4, 5));

TEST(ListedBuckets, HaveTheChoicesOfThePackedValue) {
  const ListedRegion listed = ListRegion(AllReducesOf({16, 3, 64}, 4, 4));
  EXPECT_THAT(listed.choices,
              ElementsAre("one_shot?chunk=65536", "one_shot?transport=ll", "two_shot?chunk=65536"));
  for (const char* name : {"ring", "tree"}) {
    EXPECT_THAT(listed.refusals, Contains(StartsWith(std::string(name) +
                                                     ": runs no operations: partial sums travel")));
  }
  EXPECT_THAT(ListRegion(AllReducesOf({16, 3, 64}, 1, 4)).choices, ElementsAre("copy"));
  // By itself none of the three is above the 4 MiB that one_shot takes.
  EXPECT_THAT(ListRegion(AllReducesOf({1 << 19, 1 << 19, 1 << 18}, 4, 1)).choices,
              ElementsAre(StartsWith("two_shot"), StartsWith("two_shot"), StartsWith("two_shot")));
}

TEST(ListedBuckets, AreAllReducesOfOneKind) {
  constexpr char kOneKind[] =
      "several collectives in one region must have one dtype and one reduction";
  AbiRegion reductions(2, 4);
  const int x = reductions.Input(8);
  reductions.Return(reductions.Collective(COTUNE_ALL_REDUCE, x));
  reductions.Return(reductions.Collective(COTUNE_ALL_REDUCE, x, COTUNE_MAX));
  EXPECT_THAT(ListRegion(reductions).refusals, ElementsAre(kOneKind));

  AbiRegion dtypes(2, 4);
  const int f32 = dtypes.Input(8);
  const int i32 = dtypes.Input(8, COTUNE_ROWS_ALL, I32::kDtype);
  dtypes.Return(dtypes.Collective(COTUNE_ALL_REDUCE, f32));
  dtypes.Return(dtypes.Collective(COTUNE_ALL_REDUCE, i32));
  EXPECT_THAT(ListRegion(dtypes).refusals, ElementsAre(kOneKind));

  AbiRegion kinds(2, 4);
  const int y = kinds.Input(8);
  kinds.Return(kinds.Collective(COTUNE_ALL_REDUCE, y));
  kinds.Return(kinds.Collective(COTUNE_BROADCAST, y));
  EXPECT_THAT(ListRegion(kinds).refusals,
              ElementsAre("of several collectives in one region each has to be an all_reduce"));
}

TEST(ListedBuckets, HaveOneCollectiveForEachOperation) {
  AbiRegion sum(2, 4);
  const int x = sum.Input(8);
  const int y = sum.Input(8);
  const int of_x = sum.Collective(COTUNE_ALL_REDUCE, x);
  sum.Return(sum.Compute(COTUNE_NODE_ADD, {of_x, sum.Collective(COTUNE_ALL_REDUCE, y)}));
  EXPECT_THAT(ListRegion(sum).refusals,
              ElementsAre("value 2 belongs to two collectives of the bucket"));

  AbiRegion chain(2, 4);
  const int first = chain.Collective(COTUNE_ALL_REDUCE, chain.Input(8));
  chain.Return(first);
  chain.Return(chain.Collective(COTUNE_ALL_REDUCE, first));
  EXPECT_THAT(ListRegion(chain).refusals,
              ElementsAre("value 1 belongs to two collectives of the bucket"));

  AbiRegion stray(2, 4);
  const int z = stray.Input(8);
  stray.Return(stray.Collective(COTUNE_ALL_REDUCE, z));
  stray.Return(stray.Collective(COTUNE_ALL_REDUCE, z));
  stray.Return(stray.Compute(COTUNE_NODE_NEG, {z}));
  EXPECT_THAT(ListRegion(stray).refusals,
              ElementsAre("value 3 belongs to no collective of the bucket"));

  AbiRegion unused(2, 4);
  const int w = unused.Input(8);
  unused.Return(unused.Collective(COTUNE_ALL_REDUCE, w));
  unused.Collective(COTUNE_ALL_REDUCE, w);
  EXPECT_THAT(ListRegion(unused).refusals,
              ElementsAre("no output follows from one of several collectives"));
}

TEST(ListedBuckets, HaveNoOperationThatDependsOnARow) {
  for (const bool is_bias : {true, false}) {
    AbiRegion region(2, 4);
    const int x = region.Input(8);
    const int y = region.Input(8);
    const int bias = region.Input(8, COTUNE_ROWS_ONE);
    region.Return(region.Collective(COTUNE_ALL_REDUCE, x));
    const int value = region.Collective(COTUNE_ALL_REDUCE, y);
    const int other = is_bias ? bias : region.Compute(COTUNE_NODE_ROW_SUM, {value});
    region.Return(region.Compute(COTUNE_NODE_MUL, {value, other}));
    EXPECT_THAT(
        ListRegion(region).refusals,
        ElementsAre("an operation around one of several collectives depends on a whole row"));
  }
}

TEST(ListedBuckets, ReadNoValueFromBeforeTheirCollectiveAfterIt) {
  AbiRegion region(2, 4);
  const int x = region.Input(8);
  const int y = region.Input(8);
  region.Return(region.Collective(COTUNE_ALL_REDUCE, x));
  const int n = region.Compute(COTUNE_NODE_NEG, {y});
  region.Return(region.Compute(COTUNE_NODE_ADD, {region.Collective(COTUNE_ALL_REDUCE, n), n}));
  EXPECT_THAT(
      ListRegion(region).refusals,
      ElementsAre("operations after the collective read what operations before it compute"));
}

TEST(ListedBuckets, OverwriteNothingThatAnotherCollectiveReads) {
  constexpr char kOverwrites[] = "output 0 overwrites an input of another collective";
  // The other reads it as its operand, before it, and after it.
  for (const int reader : {0, 1, 2}) {
    AbiRegion region(2, 4);
    const int x = region.Input(8);
    const int y = region.Input(8);
    region.Return(region.Collective(COTUNE_ALL_REDUCE, x), y);
    const int operand = reader == 0   ? y
                        : reader == 1 ? region.Compute(COTUNE_NODE_MUL, {x, y})
                                      : region.Compute(COTUNE_NODE_NEG, {x});
    const int value = region.Collective(COTUNE_ALL_REDUCE, operand);
    region.Return(reader == 2 ? region.Compute(COTUNE_NODE_ADD, {value, y}) : value);
    EXPECT_THAT(ListRegion(region).refusals, ElementsAre(kOverwrites)) << reader;
  }
  AbiRegion own(2, 4);
  const int x = own.Input(8);
  const int y = own.Input(8);
  own.Return(own.Collective(COTUNE_ALL_REDUCE, x), x);
  own.Return(own.Collective(COTUNE_ALL_REDUCE, y), y);
  EXPECT_THAT(ListRegion(own).choices, Not(IsEmpty()));
}

// Tensors of one row with the factor of one number: after the first collective, before the second.
AbiRegion ScaledRows(int ranks) {
  AbiRegion region(ranks, 1);
  const int x = region.Input(67, COTUNE_ROWS_ONE);
  const int y = region.Input(3, COTUNE_ROWS_ONE);
  const int factor = region.Input(1, COTUNE_ROWS_ONE);
  const int of_x = region.Collective(COTUNE_ALL_REDUCE, x);
  region.Return(region.Compute(COTUNE_NODE_MUL, {of_x, factor}));
  const int scaled = region.Compute(COTUNE_NODE_MUL, {y, factor});
  region.Return(region.Collective(COTUNE_ALL_REDUCE, scaled));
  return region;
}

std::string RunScaledRows(const GroupForTest& group, const AbiRegion& region,
                          const std::string& choice, int rank) {
  constexpr float kFactor = 0.5f;  // products and sums of small numbers are exact
  std::vector<float> x(67);
  std::vector<float> y(3);
  std::vector<float> of_x(67, -1);
  std::vector<float> of_y(3, -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + static_cast<float>(rank);
  for (size_t i = 0; i < y.size(); ++i) y[i] = 100 * static_cast<float>(i + 1);
  cotune_error_t error = EmptyError();
  const cotune_status_t status = RunRegion(
      group.backend(), group.group(), region, choice.c_str(), {x.data(), y.data(), &kFactor},
      {of_x.data(), of_y.data()}, MonotonicNs() + kLongNs, &error);
  if (status != COTUNE_OK) return choice + ": " + error.message;
  for (size_t i = 0; i < x.size(); ++i) {
    // Three ranks, whose numbers add up to 3.
    if (of_x[i] != (3 * static_cast<float>(i) + 3) * kFactor) {
      return choice + " is wrong after it at " + std::to_string(i);
    }
  }
  for (size_t i = 0; i < y.size(); ++i) {
    if (of_y[i] != 3 * y[i] * kFactor)
      return choice + " is wrong before it at " + std::to_string(i);
  }
  return "";
}

TEST(ListedBuckets, MultiplyTensorsOfOneRowByOneNumber) {
  const AbiRegion region = ScaledRows(3);
  const std::vector<std::string> choices = ListRegion(region).choices;
  ASSERT_THAT(choices, Contains(StartsWith("two_shot")));
  JobForTest job;
  RankProcesses ranks(3, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, AllRanks(3), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    for (const std::string& choice : choices) {
      const std::string mistake = RunScaledRows(group, region, choice, rank);
      if (!mistake.empty()) return mistake;
    }
    return "";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// All values are one number, each of its own row.
TEST(ListedBuckets, MultiplyNumbersByANumber) {
  AbiRegion region(2, 1);
  const int x = region.Input(1, COTUNE_ROWS_ONE);
  const int y = region.Input(1, COTUNE_ROWS_ONE);
  region.Return(region.Collective(COTUNE_ALL_REDUCE, region.Compute(COTUNE_NODE_MUL, {x, y})));
  region.Return(region.Collective(COTUNE_ALL_REDUCE, x));
  EXPECT_THAT(ListRegion(region).choices, Not(IsEmpty()));
}

TEST(BucketCalls, OfRanksWithOtherPlacesFail) {
  JobForTest job;
  RankProcesses ranks(3, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, AllRanks(3), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    std::vector<float> x(64);
    std::vector<float> y(64);
    cotune_error_t error = EmptyError();
    // The packed values have as many elements, and the regions have equal digests.
    const auto call = [&](const AbiRegion& region) {
      return RunRegion(group.backend(), group.group(), region, "one_shot?chunk=65536",
                       {x.data(), x.data(), x.data()}, {y.data(), y.data() + 16, y.data() + 32},
                       MonotonicNs() + kLongNs, &error);
    };
    const AbiRegion usual = AllReducesOf({3, 7, 5}, 3, 1);
    if (call(usual) != COTUNE_OK) return error.message;
    const cotune_status_t status = call(rank == 2 ? AllReducesOf({7, 3, 5}, 3, 1) : usual);
    const bool is_named = status == COTUNE_PEER_FAILED && error.failed_rank == 2;
    return is_named ? "" : "status " + std::to_string(status) + ": " + error.message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::host
