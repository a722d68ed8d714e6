#include "core/choice/recipe_plan.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/make_recipe.h"
#include "core/testing/parsed.h"
#include "core/testing/scripted_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// The operands of the steps of a call, in the order in which they ran.
struct SeenStep {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

class SeeingPlan final : public Plan {
 public:
  explicit SeeingPlan(std::vector<SeenStep>& seen) : seen_(seen) {}
  Status Launch(const LaunchArguments& arguments) override {
    if (arguments.inputs.empty()) {
      seen_.push_back({{arguments.send}, {arguments.recv}});
    } else {
      seen_.push_back({{arguments.inputs.begin(), arguments.inputs.end()},
                       {arguments.outputs.begin(), arguments.outputs.end()}});
    }
    return {};
  }
  Result<bool> Progress(int64_t) override { return true; }

 private:
  std::vector<SeenStep>& seen_;
};

class SeeingGroup final : public BackendGroup {
 public:
  SeeingGroup(std::vector<SeenStep>& seen, std::vector<std::string>& prepared)
      : seen_(seen), prepared_(prepared) {}
  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice&,
                                        int64_t) override {
    prepared_.emplace_back("collective");
    return std::make_unique<SeeingPlan>(seen_);
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override { return {}; }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {}

 private:
  std::vector<SeenStep>& seen_;
  std::vector<std::string>& prepared_;
};

class SeeingBackend final : public Backend {
 public:
  SeeingBackend(std::vector<SeenStep>& seen, std::vector<std::string>& prepared)
      : seen_(seen), prepared_(prepared) {}
  const std::string& name() const override { return name_; }
  const std::string& version() const override { return name_; }
  ChoiceList ListChoices(const Program&, const Problem&) const override { return {}; }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters&) override {
    return std::make_unique<SeeingGroup>(seen_, prepared_);
  }
  Result<std::unique_ptr<Plan>> PreparePart(const PartRequest&, int64_t) override {
    prepared_.emplace_back("part");
    return std::make_unique<SeeingPlan>(seen_);
  }

 private:
  std::vector<SeenStep>& seen_;
  std::vector<std::string>& prepared_;
  const std::string name_ = "seeing";
};

// The sum and a residual, which the rank reads as a whole in the program and by rows in the form.
constexpr int32_t kRanks = 3;
const char* const kProgram =
    "%residual = input bf16 [R, 5] replicated\n%x = input bf16 [R, 5]\n"
    "%s = all_reduce sum %x\n%y = add %s, %residual\nreturn %y into %residual\n";
const char* const kForm =
    "%residual = input bf16 [R, 5] replicated\n%x = input bf16 [R, 5]\n"
    "%share = input bf16 [R/n, 5]\n"
    "%s = reduce_scatter sum %x\n%t = add %s, %share\n%y = all_gather %t\n"
    "return %y into %residual\n";

class RecipePlanTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Plan>> Prepare(int32_t rank, uint64_t rows) {
    const Program program =
        Program::Bind(Graph(kProgram), {MemoryKind::kHost, kRanks, kRanks}).value();
    const InputMap inputs{{{0, false}, {1, false}, {0, true}}, 2};
    const Recipe recipe = MakeRecipe(Graph(kForm), inputs, {}).value();
    const RecipePlan::StepChoice choice{{.id = ChoiceId::Parse("seeing/a").value()}, &member_};
    const std::vector<RecipePlan::StepChoice> choices(2, choice);
    const ProgramSupport support{
        .part_backend = &backend_, .temporaries = &temporaries_, .rank = rank};
    return RecipePlan::Prepare(program, program.ProblemAtRows(rows, 0), recipe, choices, support,
                               0);
  }

  std::vector<SeenStep> seen_;
  std::vector<std::string> prepared_;  // the steps, in the order in which they were prepared
  SeeingBackend backend_{seen_, prepared_};
  BackendMember member_{&backend_, std::make_unique<SeeingGroup>(seen_, prepared_)};
  std::unique_ptr<Device> device_ = MakeDeviceForTest();
  Temporaries temporaries_{*device_};
  MonotonicClock clock_;
};

TEST_F(RecipePlanTest, AShareIsTheRowsOfTheRank) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    seen_.clear();
    const std::unique_ptr<Plan> plan = Prepare(rank, 12).value();
    // A plan is called with other buffers each time.
    std::array<std::vector<std::byte>, 2> residuals;
    std::array<std::vector<std::byte>, 2> xs;
    for (size_t call = 0; call < 2; ++call) {
      std::vector<std::byte>& residual = residuals[call];
      std::vector<std::byte>& x = xs[call];
      residual.resize(12 * 5 * 2);
      x.resize(12 * 5 * 2);
      const std::vector<const void*> from = {residual.data(), x.data()};
      const std::vector<void*> to = {residual.data()};
      LaunchArguments arguments;
      arguments.inputs = from;
      arguments.outputs = to;
      seen_.clear();
      ASSERT_TRUE(plan->Run(arguments, clock_).has_value());
      ASSERT_THAT(seen_, SizeIs(3));
      EXPECT_THAT(seen_[0].inputs, ElementsAre(x.data()));
      // 4 rows of 5 columns of 2 bytes for each rank.
      EXPECT_THAT(seen_[1].inputs, SizeIs(2));
      EXPECT_THAT(seen_[1].inputs, Contains(residual.data() + rank * 40));
      EXPECT_THAT(seen_[1].inputs, Contains(seen_[0].outputs[0]));
      EXPECT_THAT(seen_[2].inputs, ElementsAre(seen_[1].outputs[0]));
      EXPECT_THAT(seen_[2].outputs, ElementsAre(residual.data()));
    }
  }
}

// The part stands between the two collectives.
TEST_F(RecipePlanTest, CollectivesArePreparedBeforeParts) {
  ASSERT_TRUE(Prepare(0, 12).has_value());
  EXPECT_THAT(prepared_, ElementsAre("collective", "collective", "part"));
}

TEST_F(RecipePlanTest, RowsThatRanksCannotShareAreRefused) {
  const auto plan = Prepare(1, 13);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(plan.error().what, "3 ranks have no equal shares of 13 rows");
}

}  // namespace
}  // namespace cotune
