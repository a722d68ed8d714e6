// The SDK and core agree on how many operands each operation has.
#include <gtest/gtest.h>

#include <cstdint>

#include "core/problem/op.h"
#include "plugins/sdk/program.h"

namespace cotune {
namespace {

TEST(OperandCountsTest, TheSdkHasTheOperandsOfCore) {
  // A plugin meets primitives only, so that the SDK does not know compounds.
  for (const OpTraits& op : AllOps()) {
    EXPECT_EQ(sdk::OperandsOf(static_cast<uint32_t>(op.op)), op.is_compound() ? 0 : op.operands)
        << op.name
        << ": OperandsOf in plugins/sdk/program.h, COTUNE_OPS in core/problem/language.h";
  }
}

TEST(OperandCountsTest, TheSdkKnowsNoOtherOperations) {
  int known = 0;
  for (const OpTraits& op : AllOps()) known += op.is_compound() ? 0 : 1;
  int of_sdk = 0;
  for (uint32_t kind = 0; kind < 256; ++kind) {
    if (kind != COTUNE_NODE_COLLECTIVE && sdk::OperandsOf(kind) != 0) ++of_sdk;
  }
  EXPECT_EQ(of_sdk, known);
}

}  // namespace
}  // namespace cotune
