#include "core/problem/choice_id.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(ChoiceIdTest, PartsAndParametersKeepTheirOrder) {
  const Result<ChoiceId> id = ChoiceId::Parse("host/ring?chunk=65536&buffers=2");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->text(), "host/ring?chunk=65536&buffers=2");
  EXPECT_EQ(id->backend(), "host");
  EXPECT_EQ(id->choice_name(), "ring?chunk=65536&buffers=2");
  EXPECT_EQ(id->algorithm(), "ring");
  const std::vector<std::pair<std::string, std::string>> expected = {{"chunk", "65536"},
                                                                     {"buffers", "2"}};
  EXPECT_EQ(id->parameters(), expected);
  EXPECT_EQ(*ChoiceId::FromBackend("host", "ring?chunk=65536&buffers=2"), *id);
}

TEST(ChoiceIdTest, WithoutParameters) {
  const Result<ChoiceId> id = ChoiceId::Parse("nccl_2/ring.ll128-v1");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->algorithm(), "ring.ll128-v1");
  EXPECT_TRUE(id->parameters().empty());
}

TEST(ChoiceIdTest, MalformedTextSaysWhy) {
  struct Case {
    const char* text;
    const char* cause;
  };
  for (const Case& each : {
           Case{"ring", "there is no '/'"},
           Case{"/ring", "'' is not a backend name"},
           Case{"Host/ring", "'Host' is not a backend name"},
           Case{"2host/ring", "'2host' is not a backend name"},
           Case{"a2345678901234567890123456789012/ring",
                "'a2345678901234567890123456789012' is not a backend name"},
           Case{"host/", "the algorithm is not a word of a-z, 0-9, '_', '.', '-'"},
           Case{"host/Ring", "the algorithm is not a word of a-z, 0-9, '_', '.', '-'"},
           Case{"host/a/b", "the algorithm is not a word of a-z, 0-9, '_', '.', '-'"},
           Case{"host/ring?", "'' is not key=value"},
           Case{"host/ring?chunk", "'chunk' is not key=value"},
           Case{"host/ring?chunk=", "'chunk=' is not key=value"},
           Case{"host/ring?chunk=1&", "'' is not key=value"},
           Case{"host/ring?a=1&a=2", "key 'a' comes twice"},
       }) {
    const Result<ChoiceId> id = ChoiceId::Parse(each.text);
    ASSERT_FALSE(id.has_value()) << each.text;
    EXPECT_EQ(id.error().cause, each.cause) << each.text;
    EXPECT_EQ(id.error().code, ErrorCode::kUsage);
  }
}

TEST(ChoiceIdTest, KeysOfTheHostComeLastAndGoAgain) {
  for (const char* const text : {"host/ring", "host/ring?chunk=64", "host/a+cuda/b?c=1"}) {
    const ChoiceId id = ChoiceId::Parse(text).value();
    EXPECT_FALSE(id.has_host_keys()) << text;
    EXPECT_EQ(id.HostKey("via"), "") << text;
    const ChoiceId with = id.WithHostKey("fuse", "-1.2").WithHostKey("via", "split");
    EXPECT_TRUE(with.has_host_keys()) << text;
    EXPECT_EQ(ChoiceId::Parse(with.text()).value(), with) << text;
    EXPECT_EQ(with.HostKey("via"), "split");
    EXPECT_EQ(with.HostKey("fuse"), "-1.2");
    EXPECT_EQ(with.WithoutHostKeys(), id) << text;
    EXPECT_EQ(with.backend(), id.backend());
  }
  EXPECT_EQ(ChoiceId::Parse("host/a+cuda/b?c=1")->WithHostKey("via", "x").text(),
            "host/a?via=x+cuda/b?c=1&via=x");
}

TEST(ChoiceIdTest, NoBackendHasKeysOfTheHost) {
  EXPECT_TRUE(ChoiceId::FromBackend("host", "ring?chunk=64").has_value());
  for (const char* const name : {"ring?via=1", "ring?chunk=64&fuse=1"}) {
    const Result<ChoiceId> id = ChoiceId::FromBackend("host", name);
    ASSERT_FALSE(id.has_value()) << name;
    EXPECT_NE(id.error().ToText().find("is the host's"), std::string::npos);
  }
}

TEST(ChoiceIdTest, HostKeysOfAnyStepAreFound) {
  EXPECT_FALSE(ChoiceId::Parse("host/a+host/a").value().has_host_keys());
  EXPECT_FALSE(ChoiceId::Parse("host/a?chunk=4+host/b").value().has_host_keys());
  EXPECT_TRUE(ChoiceId::Parse("host/a+host/b?chunk=4&fuse=1").value().has_host_keys());
  const ChoiceId both = ChoiceId::Parse("host/a?fuse=1&via=x+host/b?via=x").value();
  EXPECT_EQ(both.WithoutHostKey("via").text(), "host/a?fuse=1+host/b");
  EXPECT_EQ(both.WithoutHostKey("fuse").text(), "host/a?via=x+host/b?via=x");
  EXPECT_EQ(both.WithoutHostKeys().text(), "host/a+host/b");
}

}  // namespace
}  // namespace cotune
