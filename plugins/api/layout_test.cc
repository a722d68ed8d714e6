// The layout of the ABI never changes within a major version. When a minor version appends a field:
// add it to testing/layout.cc and to CHANGELOG.md, then
//   bazel run //plugins/api:print_layout > plugins/api/abi_layout_v1.golden
//   bazel run //plugins/api:print_layout program > plugins/api/program_layout_v1.golden
// and see that the difference only adds lines.
#include "plugins/api/testing/layout.h"

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A header, its layout as it was published, and as it is.
struct Held {
  const char* header;
  const char* golden;
  std::string (*layout)();
};

class LayoutTest : public ::testing::TestWithParam<Held> {};

INSTANTIATE_TEST_SUITE_P(Headers, LayoutTest,
                         ::testing::Values(Held{"plugins/api/cotune_backend_v1.h",
                                                "plugins/api/abi_layout_v1.golden", AbiLayoutText},
                                           Held{"plugins/api/cotune_program_v1.h",
                                                "plugins/api/program_layout_v1.golden",
                                                ProgramLayoutText}),
                         [](const auto& info) { return info.index == 0 ? "Backend" : "Program"; });

TEST_P(LayoutTest, IsTheOneThatWasPublished) {
  const std::vector<std::string> golden = Lines(ReadFile(GetParam().golden));
  const std::vector<std::string> now = Lines(GetParam().layout());
  ASSERT_THAT(golden, SizeIs(now.size()));
  for (size_t i = 0; i < golden.size(); ++i) EXPECT_EQ(now[i], golden[i]) << "line " << i + 1;
}

// A struct of the header, as its text has it.
struct DeclaredStruct {
  std::string name;
  std::vector<std::string> fields;
};

std::string HeaderWithoutComments(const char* header) {
  const std::string text = ReadFile(header);
  return std::regex_replace(text, std::regex(R"(/\*([^*]|\*+[^*/])*\*+/)"), "");
}

std::vector<DeclaredStruct> DeclaredStructs(const char* header) {
  const std::string text = HeaderWithoutComments(header);
  const std::regex structs(R"(typedef struct (\w+) \{([^}]*)\} \w+;)");
  // "type name;", "type name[n];" and "type (*name)(arguments);"
  const std::regex fields(R"((?:\(\*(\w+)\)\s*\([^;]*\)|(\w+)(?:\[\w+\])?)\s*;)");
  std::vector<DeclaredStruct> found;
  for (std::sregex_iterator at(text.begin(), text.end(), structs), end; at != end; ++at) {
    DeclaredStruct declared{(*at)[1], {}};
    const std::string body = (*at)[2];
    for (std::sregex_iterator field(body.begin(), body.end(), fields); field != end; ++field) {
      declared.fields.push_back((*field)[1].matched ? (*field)[1] : (*field)[2]);
    }
    found.push_back(declared);
  }
  return found;
}

TEST_P(LayoutTest, EveryFieldOfTheHeaderIsHeld) {
  std::vector<std::string> declared;
  for (const DeclaredStruct& each : DeclaredStructs(GetParam().header)) {
    for (const std::string& field : each.fields) declared.push_back(each.name + "." + field);
  }
  std::vector<std::string> held;
  for (const std::string& line : Lines(GetParam().layout())) {
    if (line.substr(0, 2) == "  ") held.push_back(line.substr(2, line.find(" offset") - 2));
  }
  EXPECT_GT(declared.size(), 35u);
  EXPECT_EQ(held, declared);
}

TEST_P(LayoutTest, EveryConstantOfTheHeaderIsHeld) {
  const std::string text = HeaderWithoutComments(GetParam().header);
  const std::string layout = GetParam().layout();
  const std::regex constants(R"((COTUNE_\w+) =)");
  size_t count = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), constants), end; at != end; ++at) {
    EXPECT_NE(layout.find("\n" + (*at)[1].str() + " = "), std::string::npos) << (*at)[1];
    ++count;
  }
  EXPECT_GT(count, 30u);
}

// Structs that are only ever a part of another need no size of their own.
TEST_P(LayoutTest, StructsThatArePassedBeginWithTheirSize) {
  const std::set<std::string> parts = {"cotune_dtype_t", "cotune_stream_t"};
  std::vector<std::string> without_size;
  for (const DeclaredStruct& each : DeclaredStructs(GetParam().header)) {
    if (parts.count(each.name) > 0) continue;
    const std::string first = "  " + each.name + ".struct_size offset 0 size 4\n";
    if (each.fields.at(0) != "struct_size" ||
        GetParam().layout().find(first) == std::string::npos) {
      without_size.push_back(each.name);
    }
  }
  EXPECT_THAT(without_size, IsEmpty());
}

}  // namespace
}  // namespace cotune
