#include "plugins/cuda/memory/registered_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cotune::cuda {
namespace {

using ::testing::HasSubstr;

// Addresses are only compared and added to.
unsigned char* At(uintptr_t address) { return reinterpret_cast<unsigned char*>(address); }

// This rank is 1 of 3.
constexpr int kRank = 1;
AddressOnRanks Ranks(uintptr_t first, uintptr_t own, uintptr_t third) {
  return {At(first), At(own), At(third)};
}

TEST(RegisteredMemoryTest, ABufferIsFoundOnAllRanks) {
  RegisteredMemory memory;
  ASSERT_TRUE(memory.Add(Ranks(0x10000, 0x500000, 0x90000), kRank, 0x1000).has_value());
  ASSERT_TRUE(memory.Add(Ranks(0x70000, 0x300000, 0x20000), kRank, 0x2000).has_value());
  const auto whole = memory.Find(At(0x500000), 0x1000);
  ASSERT_TRUE(whole.has_value()) << whole.error().message;
  EXPECT_EQ(*whole, Ranks(0x10000, 0x500000, 0x90000));
  const auto part = memory.Find(At(0x301ff0), 16);
  ASSERT_TRUE(part.has_value()) << part.error().message;
  EXPECT_EQ(*part, Ranks(0x71ff0, 0x301ff0, 0x21ff0));
}

TEST(RegisteredMemoryTest, WhatIsNotInOneRangeIsRefused) {
  RegisteredMemory memory;
  EXPECT_FALSE(memory.Find(At(0x500000), 1).has_value());
  ASSERT_TRUE(memory.Add(Ranks(0x10000, 0x500000, 0x90000), kRank, 0x1000).has_value());
  ASSERT_TRUE(memory.Add(Ranks(0x11000, 0x501000, 0x91000), kRank, 0x1000).has_value());
  for (const auto& [begin, bytes] :
       std::initializer_list<std::pair<uintptr_t, uint64_t>>{{0x4fffff, 1},
                                                             {0x4fffff, 2},
                                                             {0x500fff, 2},
                                                             {0x501000, 0x1001},
                                                             {0x502000, 1},
                                                             {0x501000, ~0ull}}) {
    const auto found = memory.Find(At(begin), bytes);
    ASSERT_FALSE(found.has_value()) << begin << " " << bytes;
    EXPECT_EQ(found.error().status, COTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(found.error().message, HasSubstr("is not registered"));
  }
}

TEST(RegisteredMemoryTest, RangesDoNotOverlap) {
  RegisteredMemory memory;
  ASSERT_TRUE(memory.Add(Ranks(0x10000, 0x500000, 0x90000), kRank, 0x1000).has_value());
  for (const auto& [begin, bytes] : std::initializer_list<std::pair<uintptr_t, uint64_t>>{
           {0x500000, 0x1000}, {0x500fff, 1}, {0x4ff000, 0x1001}, {0x4ff000, 0x8000}}) {
    EXPECT_FALSE(memory.Add(Ranks(0x1, begin, 0x1), kRank, bytes).has_value()) << begin;
  }
  EXPECT_FALSE(memory.Add(Ranks(0x1, 0x700000, 0x1), kRank, 0).has_value());
  EXPECT_TRUE(memory.Add(Ranks(0x1, 0x4ff000, 0x1), kRank, 0x1000).has_value());
  EXPECT_TRUE(memory.Add(Ranks(0x1, 0x501000, 0x1), kRank, 0x1000).has_value());
}

TEST(RegisteredMemoryTest, WhatIsRemovedIsGone) {
  RegisteredMemory memory;
  ASSERT_TRUE(memory.Add(Ranks(0x10000, 0x500000, 0x90000), kRank, 0x1000).has_value());
  memory.Remove(At(0x500000));
  EXPECT_FALSE(memory.Find(At(0x500000), 1).has_value());
  memory.Remove(At(0x500000));
  EXPECT_TRUE(memory.Add(Ranks(0x20000, 0x500800, 0x90000), kRank, 0x1000).has_value());
}

}  // namespace
}  // namespace cotune::cuda
