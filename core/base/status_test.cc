#include "core/base/status.h"

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

TEST(NearestNameTest, NearMeansHalfOfTheNameOrLess) {
  const std::string_view names[] = {"all_reduce", "broadcast"};
  EXPECT_EQ(NearestName("allreduce", names), "all_reduce");
  EXPECT_EQ(NearestName("brodcats", names), "broadcast");
  EXPECT_EQ(NearestName("xyz", names), "");
  EXPECT_EQ(KnownNamesText("xyz", names), "known: all_reduce, broadcast");
}

TEST(Sha256Test, KnownDigest) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Prefix("abc"), 0xba7816bf8f01cfeaull);
}

}  // namespace
}  // namespace cotune
