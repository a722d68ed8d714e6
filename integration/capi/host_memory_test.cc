// Calls of one process on host memory, and the memory functions, which are for devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "integration/capi/cotune.h"
#include "integration/capi/testing/one_process.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A call in place runs by the row of those out of place. No row is near to an all_gather.
TEST_F(OneProcessTest, CallsThatNoRowIsNearToAreWarnedOfOnce) {
  Tune(folder_ + "/tuned.tdb", false);
  log_.clear();
  CallOnce();
  for (const std::string& line : log_) EXPECT_THAT(line, Not(HasSubstr("run the default choice:")));
  log_.clear();
  float data[4] = {1, 2, 3, 4};
  for (const uint64_t count : {1, 2, 4, 1}) {
    EXPECT_EQ(cotune_all_reduce(group_, data, data, count, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_SUCCESS)
        << cotune_last_error(group_);
  }
  EXPECT_TRUE(log_.empty()) << log_.front();
  float gathered[4] = {};
  for (const uint64_t count : {1, 2, 4, 1}) {
    EXPECT_EQ(cotune_all_gather(group_, data, gathered, count, COTUNE_F32), COTUNE_SUCCESS)
        << cotune_last_error(group_);
  }
  EXPECT_THAT(log_,
              ElementsAre(AllOf(HasSubstr("calls of all_gather f32 out of place run the default"),
                                HasSubstr("cotune tune --collective all_gather --dtype f32"))));
}

TEST_F(OneProcessTest, RefusesCountsThatOverflow) {
  float x = 0;
  float y = 0;
  for (uint64_t count : {uint64_t{1} << 61, uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(cotune_all_reduce(group_, &x, &y, count, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_ERROR_USAGE);
    EXPECT_THAT(cotune_last_error(group_), HasSubstr("elements are too many"));
    const bool is_negative = count > INT64_MAX;
    EXPECT_EQ(std::string(cotune_last_error(group_)).find("negative") != std::string::npos,
              is_negative)
        << cotune_last_error(group_);
  }
  // Not too many for a group of this size.
  EXPECT_EQ(
      cotune_all_reduce(group_, nullptr, nullptr, uint64_t{1} << 60, COTUNE_F32, COTUNE_REDUCE_SUM),
      COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("buffer is NULL"));
  x = 5;
  EXPECT_EQ(cotune_all_reduce(group_, &x, &y, 1, COTUNE_F32, COTUNE_REDUCE_SUM), COTUNE_SUCCESS);
  EXPECT_EQ(y, 5);
}

TEST_F(OneProcessTest, AGroupOfHostMemoryHasNoStream) {
  int stream = 0;
  EXPECT_EQ(cotune_group_device(group_), -1);
  EXPECT_EQ(cotune_group_set_stream(group_, &stream), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("host memory"));
  EXPECT_EQ(cotune_group_check(group_), COTUNE_SUCCESS);
}

TEST_F(OneProcessTest, HostMemoryIsNotRegistered) {
  void* data = &data;
  EXPECT_EQ(cotune_memory_allocate(group_, 4096, &data), COTUNE_ERROR_UNSUPPORTED);
  EXPECT_EQ(data, nullptr);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("host memory is not registered"));
  EXPECT_EQ(cotune_memory_allocate(group_, 0, &data), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_allocate(group_, 4096, nullptr), COTUNE_ERROR_USAGE);
  char own[64];
  EXPECT_EQ(cotune_memory_register(group_, own, sizeof(own)), COTUNE_ERROR_UNSUPPORTED);
  EXPECT_THAT(cotune_last_error(group_), AllOf(HasSubstr("no backend takes registered memory"),
                                               HasSubstr("memory extension not offered")));
  EXPECT_EQ(cotune_memory_register(group_, nullptr, 64), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_unregister(group_, own), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_free(group_, own), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_free(group_, nullptr), COTUNE_SUCCESS);
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.is_symmetric = 1;
  EXPECT_EQ(cotune_tune(group_, &options, nullptr), COTUNE_ERROR_UNSUPPORTED);
  // The group goes on.
  float sent = 3;
  float received = 0;
  EXPECT_EQ(cotune_all_reduce(group_, &sent, &received, 1, COTUNE_F32, COTUNE_REDUCE_SUM),
            COTUNE_SUCCESS);
  EXPECT_EQ(received, 3);
}

}  // namespace
}  // namespace cotune
