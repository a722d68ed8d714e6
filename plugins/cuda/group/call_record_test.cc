#include "plugins/cuda/group/call_record.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::ElementType;
using sdk::Problem;
using sdk::Reduction;

std::tuple<unsigned, unsigned, unsigned> Words(const CallRecord& record) {
  return {record.word[1], record.word[2], record.word[3]};
}

// Problems that differ in one thing each, and choices.
TEST(CallRecordTest, CallsThatDifferHaveDifferentRecords) {
  const Problem base{.collective = Collective::kAllReduce, .count = 1000, .world_size = 4};
  std::vector<Problem> problems = {base};
  const auto add = [&](auto change) { change(problems.emplace_back(base)); };
  for (const uint64_t count : {1001ull, 2000ull, 1000ull + (1ull << 32), 1000ull + (1ull << 41)}) {
    add([&](Problem& p) { p.count = count; });
  }
  for (const Reduction r : sdk::kReductions) {
    if (r != base.reduction) add([&](Problem& p) { p.reduction = r; });
  }
  for (const ElementType t : sdk::kElementTypes) {
    if (t != base.type) add([&](Problem& p) { p.type = t; });
  }
  for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter,
                             Collective::kAllToAll, Collective::kBroadcast}) {
    add([&](Problem& p) { p.collective = c; });
  }
  for (int root = 1; root < 4; ++root) {
    add([&](Problem& p) {
      p.collective = Collective::kBroadcast;
      p.root = root;
    });
  }
  add([&](Problem& p) { p.is_symmetric = true; });
  for (const uint64_t program : {1ull, 2ull, 1ull << 32}) {
    add([&](Problem& p) { p.program_digest = program; });
  }
  std::set<std::tuple<unsigned, unsigned, unsigned>> seen;
  for (const Problem& p : problems) {
    for (const char* choice : {"one_shot?blocks=1", "one_shot?blocks=2"}) {
      const CallRecord record = RecordOf(p, choice);
      EXPECT_TRUE(seen.insert(Words(record)).second);
      EXPECT_EQ(record.word[0], 0u);
      EXPECT_EQ(record.word[2] & 0xFFu, 0u);
    }
  }
  EXPECT_EQ(seen.size(), 2 * problems.size());
}

TEST(CallRecordTest, CallsThatFitTogetherHaveTheSameRecord) {
  const Problem problem{.collective = Collective::kBroadcast, .count = 5, .world_size = 4};
  Problem in_place = problem;
  in_place.in_place = true;
  EXPECT_EQ(Words(RecordOf(problem, "c")), Words(RecordOf(in_place, "c")));
  // Fields that the collective does not use are not compared.
  Problem gather{.collective = Collective::kAllGather, .count = 5, .world_size = 4};
  const CallRecord before = RecordOf(gather, "c");
  gather.reduction = Reduction::kMax;
  gather.root = 3;
  EXPECT_EQ(Words(before), Words(RecordOf(gather, "c")));
}

TEST(CallRecordTest, ARecordIsToldInWords) {
  const ChoiceLimits limits;
  const Problem sum{.collective = Collective::kAllReduce,
                    .type = ElementType::kBf16,
                    .count = 3000,
                    .world_size = 2};
  const std::string choice = ListChoices(sum, limits).front().name;
  CallRecord record = RecordOf(sum, choice);
  record.word[0] = 77;  // as a kernel sends it
  record.word[2] |= 77;
  EXPECT_EQ(CallText(record, 2, limits), "all_reduce of 3000 bf16 (sum) by " + choice);
  const Problem broadcast{
      .collective = Collective::kBroadcast, .count = 1ull << 33, .world_size = 8, .root = 7};
  EXPECT_EQ(CallText(RecordOf(broadcast, "of another build"), 8, limits),
            "broadcast of 8589934592 f32 from rank 7 by a choice that this rank does not know");
  Problem step = sum;
  step.program_digest = 0x0123456789ABCDEF;
  EXPECT_EQ(CallText(RecordOf(step, choice), 2, limits),
            "all_reduce of 3000 bf16 (sum) in a program");
  EXPECT_EQ(CallText(CallRecord{{1, 2, ~0u, 4}}, 2, limits).substr(0, 4), "? of");
}

}  // namespace
}  // namespace cotune::cuda
