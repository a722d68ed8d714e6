#include "core/base/status.h"

#include <numeric>
#include <vector>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/base/sha256.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(StatusTest, TextHasWhatWhereCauseAndNextStep) {
  const Error error{ErrorCode::kDatabase, "cannot read", "a.tdb",
                    "it is truncated",    "tune again",  {}};
  EXPECT_EQ(error.ToText(), "cannot read (a.tdb): it is truncated; tune again");
  EXPECT_EQ((Error{ErrorCode::kUsage, "bad size", "", "", "", {}}).ToText(), "bad size");
}

TEST(StatusTest, ExitCodesAreThoseOfTheDocumentation) {
  EXPECT_EQ(ExitCode(ErrorCode::kInternal), 1);
  EXPECT_EQ(ExitCode(ErrorCode::kUsage), 2);
  EXPECT_EQ(ExitCode(ErrorCode::kEnvironment), 3);
  EXPECT_EQ(ExitCode(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(ExitCode(ErrorCode::kWrongResult), 4);
  EXPECT_EQ(ExitCode(ErrorCode::kRankLost), 5);
  EXPECT_EQ(ExitCode(ErrorCode::kDeadline), 5);
  EXPECT_EQ(ExitCode(ErrorCode::kAborted), 5);
  EXPECT_EQ(ExitCode(ErrorCode::kDatabase), 7);
  EXPECT_EQ(ExitCode(ErrorCode::kPluginRefused), 8);
  EXPECT_EQ(ExitCode(ErrorCode::kInterrupted), 130);
  EXPECT_EQ(ExitCode(ErrorCode::kDisagreement), 5);
}

TEST(NumbersTextTest, MoreThanEightInARowAreARange) {
  std::vector<int> numbers(300);
  std::iota(numbers.begin(), numbers.end(), 0);
  EXPECT_EQ(NumbersText(numbers), "0-299");
  EXPECT_EQ(NumbersText({}), "");
  EXPECT_EQ(NumbersText({0, 1, 2, 3, 4, 5, 6, 7}), "0, 1, 2, 3, 4, 5, 6, 7");
  EXPECT_EQ(NumbersText({1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13}), "1, 3-11, 13");
}

TEST(NearestNameTest, NearMeansHalfOfTheNameOrLess) {
  const std::string_view names[] = {"all_reduce", "broadcast"};
  EXPECT_EQ(NearestName("allreduce", names), "all_reduce");
  EXPECT_EQ(NearestName("brodcats", names), "broadcast");
  EXPECT_EQ(NearestName("xyz", names), "");
  constexpr std::string_view kReductions[] = {"sum", "minimum", "maximum", "average", "averaging"};
  EXPECT_EQ(NearestName("mxm", std::span(kReductions).first(4)), "maximum");
  EXPECT_EQ(NearestName("avg", std::span(kReductions).first(4)), "average");
  EXPECT_EQ(NearestName("avg", kReductions), "") << "two begin so";
  EXPECT_EQ(NearestName("av", std::span(kReductions).first(4)), "") << "too short";
  EXPECT_EQ(KnownNamesText("xyz", names), "known: all_reduce, broadcast");
}

TEST(Sha256Test, KnownDigest) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Prefix("abc"), 0xba7816bf8f01cfeaull);
}

}  // namespace
}  // namespace cotune
