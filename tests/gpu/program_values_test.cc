#include "tests/gpu/program_values.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program.h"

namespace cotune::gputest {
namespace {

constexpr int kRanks = 2;

Flags FlagsOf(std::vector<std::string> words) {
  words.insert(words.begin(), "test");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  const auto flags = Flags::Parse(static_cast<int>(pointers.size()), pointers.data(), 1);
  EXPECT_TRUE(flags.has_value());
  return *flags;
}

std::vector<std::byte> BytesOf(const ProgramValues& values) {
  std::vector<std::byte> bytes;
  for (const EvaluatedValue& value : values.expected) {
    const std::vector<std::byte> output = Encode(value);
    bytes.insert(bytes.end(), output.begin(), output.end());
  }
  return bytes;
}

// A call that gives what another salt asks for has to be wrong.
void ExpectOtherValuesForEachSalt(const ProgramText& text, uint64_t wanted_rows) {
  auto graph = ProgramGraph::Parse(text.text);
  ASSERT_TRUE(graph.has_value()) << text.name;
  const uint64_t rows = FittingRows(*graph, wanted_rows, kRanks);
  const auto program = Program::Bind(std::move(*graph), {MemoryKind::kHost, kRanks, kRanks});
  ASSERT_TRUE(program.has_value()) << text.name;
  std::set<std::vector<std::byte>> seen;
  for (uint32_t salt = 0; salt < 31; ++salt) {
    const auto values = ValuesOf(*program, rows, 1, salt);
    ASSERT_TRUE(values.has_value()) << text.name;
    EXPECT_TRUE(seen.insert(BytesOf(*values)).second) << text.name << ", salt " << salt;
  }
}

TEST(ProgramValuesTest, ExamplesHaveOtherValuesForEachSalt) {
  std::string files;
  for (const char* const name :
       {"add_residual_norm", "gradient_bucket", "moe_dispatch", "norm_quantize_fp8",
        "sequence_norm", "small_bucket", "tp_linear"}) {
    files += (files.empty() ? "" : ",") + std::string("examples/programs/") + name + ".cotune";
  }
  const auto texts = ProgramTexts(FlagsOf({"--files", files}), kRanks);
  ASSERT_TRUE(texts.has_value());
  // With fewer rows the second rank's share may be the row of zeros.
  for (const ProgramText& text : *texts) ExpectOtherValuesForEachSalt(text, 6);
}

// The seeds of the steps that run every choice. (Some programs of other seeds give few values,
// whatever their data is.)
TEST(ProgramValuesTest, RandomProgramsHaveOtherValuesForEachSalt) {
  const auto texts = ProgramTexts(FlagsOf({"--seeds", "1-20"}), kRanks);
  ASSERT_TRUE(texts.has_value());
  for (const ProgramText& text : *texts) ExpectOtherValuesForEachSalt(text, 7);
}

}  // namespace
}  // namespace cotune::gputest
