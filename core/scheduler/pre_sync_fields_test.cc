#include "core/scheduler/pre_sync_fields.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

std::vector<std::unique_ptr<MultiTemplate>> Nodes(size_t count, std::vector<uint64_t> hints) {
  ProblemClass cls{.collective = Collective::kAllGather};
  cls.world_size = cls.ranks_per_node = 2;
  std::vector<std::unique_ptr<MultiTemplate>> nodes;
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(
        std::make_unique<MultiTemplate>(Program::SingleCollective(cls).value(), hints, 0));
  }
  return nodes;
}

std::map<std::string, std::string> Fields(
    const TuningSettings& settings, const std::vector<std::unique_ptr<MultiTemplate>>& nodes) {
  std::map<std::string, std::string> fields;
  for (auto& [name, value] : PreSyncFields({{"command", "tune"}}, settings, nodes)) {
    EXPECT_TRUE(fields.emplace(name, value).second) << name << " twice";
  }
  return fields;
}

TEST(PreSyncFieldsTest, HoldEverySettingAndEveryNode) {
  TuningSettings settings;
  settings.min_rounds = 9;
  settings.collective_multi_kernel_hints_bytes = {64, 128};
  const auto fields = Fields(settings, Nodes(1, {64, 256}));
  EXPECT_EQ(fields.at("command"), "tune");
  EXPECT_EQ(fields.at("setting min_rounds"), "9");
  EXPECT_EQ(fields.at("setting collective_multi_kernel_hints_bytes"), "64,128");
  settings.fusion.types = static_cast<uint8_t>(FusionType::kPrologue);
  settings.fusion.max_depth = 3;
  const auto fused = Fields(settings, Nodes(1, {64, 256}));
  EXPECT_EQ(fused.at("setting custom_op_fusion_types"), "prologue");
  EXPECT_EQ(fused.at("setting max_fusion_depth"), "3");
  EXPECT_EQ(fused.at("setting fusion_speedup_threshold"), "1.02");
  EXPECT_EQ(fused.at("setting enable_recursive_fusion"), "true");
  EXPECT_EQ(fused.at("setting benchmark_collective_epilogue_fusion"), "true");
  EXPECT_FALSE(fields.contains("setting precompile_threads")) << "ranks may differ in it";
  EXPECT_NE(fields.at("node 1").find("2 sizes from 64 to 256 bytes"), std::string::npos);
  EXPECT_EQ(fields.size(), 1u + settings.AgreedValues().size() + 2);
}

TEST(PreSyncFieldsTest, TheDigestCoversNodesThatAreNotInWords) {
  const auto many = Fields({}, Nodes(64, {64}));
  const auto more = Fields({}, Nodes(65, {64}));
  EXPECT_FALSE(more.contains("node 65"));
  EXPECT_NE(many.at("programs"), more.at("programs"));
}

}  // namespace
}  // namespace cotune
