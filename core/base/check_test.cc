#include "core/base/check.h"

#include <gtest/gtest.h>

namespace cotune {
namespace {

int Half(int number) {
  COTUNE_CHECK(number % 2 == 0, "only even numbers have halves");
  return number / 2;
}

TEST(CheckTest, AConditionThatHoldsDoesNothing) { EXPECT_EQ(Half(4), 2); }

TEST(CheckDeathTest, AConditionThatFailsNamesMeaningConditionAndPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Half(3),
               "check of cotune's own code failed: only even numbers have halves "
               "\\(number % 2 == 0, .*check_test\\.cc:9\\); please report it");
}

TEST(CheckTest, TheConditionIsEvaluatedOnce) {
  int evaluations = 0;
  COTUNE_CHECK(++evaluations > 0, "it counts");
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace cotune
