// Ranks that run different calls have different records.
#include "plugins/sdk/call_record.h"

#include <gtest/gtest.h>

#include "plugins/sdk/program.h"

namespace cotune::sdk {
namespace {

TEST(CallRecordTest, ARegionIsItsCollectiveAndItsText) {
  Problem sum;
  sum.count = 24;
  Program region;
  region.input_count = 1;
  region.values.resize(3);
  region.nodes.resize(2);
  region.nodes[0].kind = COTUNE_NODE_COLLECTIVE;
  region.nodes[0].collective = sum;
  region.digest = 0x0123456789abcdef;
  const CallRecord record = RecordOf(region, "slots");
  EXPECT_EQ(record.count, 24u);
  EXPECT_EQ(TextOf(record.kind, record.count), "all_reduce of 24 f32 (sum) in program 01234567...");
  EXPECT_NE(record.digest, RecordOf(sum, "slots").digest);
  EXPECT_NE(record.digest, RecordOf(region, "other").digest);
  // A cut that differs in the last bit of its digest only.
  Program other = region;
  other.digest ^= 1;
  EXPECT_NE(record.digest, RecordOf(other, "slots").digest);
  EXPECT_EQ(record.digest, RecordOf(Program(region), "slots").digest);
  Program rounding = region;
  rounding.rounds_values = true;
  EXPECT_NE(record.digest, RecordOf(rounding, "slots").digest);
}

}  // namespace
}  // namespace cotune::sdk
