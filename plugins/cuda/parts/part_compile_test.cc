// Compiles the kernels of parts as the plugin does, for every generation of GPUs, several in one
// unit, and looks at what the compiler says of them. Needs NVRTC and no GPU: COTUNE_NVRTC names the
// library, else it is looked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/parts/part_kernel.h"
#include "plugins/cuda/parts/part_text.h"
#include "plugins/cuda/testing/find_nvrtc.h"
#include "plugins/cuda/testing/part_cases.h"

namespace cotune::cuda {
namespace {

constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};
constexpr uint64_t kRandomParts = 300;
// Reading the headers takes as long as a few kernels.
constexpr size_t kPartsOfUnit = 32;

PartKernel KernelOf(const PartCase& part, const std::string& architecture) {
  const PartStages stages = *StagesOf(part.program);
  return {PartText(part.program, stages), ShapeOf(part.program, stages), architecture != "sm_80"};
}

// Norms, examples and rare shapes for each architecture; of the random parts one in three.
std::vector<PartCase> PartsFor(size_t architecture) {
  std::vector<PartCase> parts = HandMadeParts();
  for (PartCase& wide : WideParts()) parts.push_back(std::move(wide));
  for (PartCase& example : ExampleParts(ExamplePaths())) parts.push_back(std::move(example));
  for (uint64_t seed = architecture; seed < kRandomParts; seed += std::size(kArchitectures)) {
    parts.push_back(RandomPartCase(seed));
  }
  return parts;
}

// A unit that holds several parts with the options of one.
KernelUnit JoinedUnit(const std::vector<PartKernel>& kernels, size_t first) {
  KernelUnit unit = UnitOf(kernels.front());
  std::vector<JoinedPart> parts;
  for (const PartKernel& kernel : kernels) parts.push_back({kernel.program, kernel.shape});
  unit.source.name = "parts.cu";
  unit.source.text =
      "#undef COTUNE_THREADS\n#undef COTUNE_ROW_THREADS\n"
      "#include \"prelude.cuh\"\n#include \"part_abi.h\"\n" +
      JoinedText(parts, first);
  unit.options.emplace_back("--ptxas-options=-v");
  return unit;
}

// Returns what is wrong with a kernel by the assembler's log; "" when nothing is. The compiler of
// CUDA 13.0 spills 16 bytes of one part for sm_100.
std::string WrongIn(const std::string& log, size_t number, std::string_view architecture) {
  const int bytes_max = architecture == "sm_100" ? 16 : 0;
  const std::string symbol = fmt::format("Function properties for cotune_kernel_{}\n", number);
  const size_t at = log.find(symbol);
  int stack = 0;
  int stores = 0;
  int loads = 0;
  const bool is_told = at != std::string::npos &&
                       std::sscanf(log.c_str() + at + symbol.size(),
                                   " %*[^0-9]%d bytes stack frame, %d bytes spill stores, %d",
                                   &stack, &stores, &loads) == 3;
  if (!is_told) return "the compiler does not say how much it spills";
  if (std::max({stack, stores, loads}) <= bytes_max) return "";
  return fmt::format("it has {} bytes of local memory and spills {}", stack, stores);
}

class PartCompileTest : public testing::TestWithParam<size_t> {};

TEST_P(PartCompileTest, EveryPartCompilesAndKeepsToItsRegisters) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const std::string architecture = kArchitectures[GetParam()];
  if (!IsCompiledHere(architecture)) GTEST_SKIP() << "SKIPPED: `./dev test --all` compiles for it";
  const std::vector<PartCase> parts = PartsFor(GetParam());
  for (size_t first = 0; first < parts.size(); first += kPartsOfUnit) {
    const size_t end = std::min(first + kPartsOfUnit, parts.size());
    std::vector<PartKernel> kernels;
    for (size_t p = first; p < end; ++p) kernels.push_back(KernelOf(parts[p], architecture));
    const KernelUnit unit = JoinedUnit(kernels, first);
    std::string log;
    const auto cubin = nvrtc->Compile(unit.source, architecture, unit.options, &log);
    ASSERT_TRUE(cubin) << cubin.error().message << " from " << parts[first].name;
    for (size_t p = first; p < end; ++p) {
      EXPECT_EQ(WrongIn(log, p, architecture), "") << parts[p].name;
    }
  }
  const double cpu_s = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  std::printf("%zu parts; %.0f s of CPU time in this process so far\n", parts.size(), cpu_s);
}

INSTANTIATE_TEST_SUITE_P(Architectures, PartCompileTest,
                         testing::Range(size_t{0}, std::size(kArchitectures)),
                         [](const auto& info) { return kArchitectures[info.param]; });

// The cache knows a kernel by all that its unit holds.
TEST(PartCompileTest, TheGeneratedHeaderIsPartOfTheUnit) {
  const KernelUnit unit = UnitOf(PartKernel{"// generated", {128, 256}, true});
  EXPECT_EQ(unit.source.name, "part.cu");
  EXPECT_EQ(std::count(unit.source.headers.begin(), unit.source.headers.end(),
                       std::pair<std::string, std::string>("program.cuh", "// generated")),
            1);
  const auto has = [&](const char* option) {
    return std::find(unit.options.begin(), unit.options.end(), option) != unit.options.end();
  };
  EXPECT_TRUE(has("-DCOTUNE_ROW_THREADS=128") && has("-DCOTUNE_THREADS=256") &&
              has("-DCOTUNE_PDL=1"));
}

// The unit that the plugin compiles, by itself.
TEST(PartCompileTest, TheUnitOfOnePartHasItsKernel) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const PartCase part = {"residual_norm", ResidualNorm(sdk::ValueDtype::kBf16, 8192, false)};
  KernelUnit unit = UnitOf(KernelOf(part, "sm_90"));
  unit.options.emplace_back("--ptxas-options=-v");
  std::string log;
  const auto cubin = nvrtc->Compile(unit.source, "sm_90", unit.options, &log);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_NE(cubin->find(kKernelSymbol), std::string::npos);
  const size_t used = log.find("Used ");
  ASSERT_NE(used, std::string::npos) << log;
  // Two blocks of 256 threads on a multiprocessor: one loads while the other waits at its barriers.
  EXPECT_LE(std::atoi(log.c_str() + used + 5), 65536 / 2 / 256) << log;
}

// The machine code of a part, and the registers of a thread; -1: the compiler failed.
struct Compiled {
  int registers = -1;
  size_t code_bytes = 0;
};

Compiled CompiledPart(const Nvrtc& nvrtc, const sdk::Program& program) {
  KernelUnit unit = UnitOf(KernelOf({"part", program}, "sm_90"));
  unit.options.emplace_back("--ptxas-options=-v");
  std::string log;
  const auto cubin = nvrtc.Compile(unit.source, "sm_90", unit.options, &log);
  EXPECT_TRUE(cubin) << cubin.error().message;
  const size_t used = log.find("Used ");
  if (used == std::string::npos) return {};
  return {std::atoi(log.c_str() + used + 5), cubin->size()};
}

// Stages of one launch do not add up; which of them a block runs takes a few registers. Stages that
// do the same have one text: the code grows by the comparisons that find the stage of a block, and
// compiling takes about as long as for one stage.
TEST(PartCompileTest, ManyStagesUseHardlyMoreRegistersAndCodeThanOne) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  for (const bool copies : {false, true}) {
    const auto compiled = [&](size_t tensors) {
      const std::vector<uint64_t> columns(tensors, 16384);
      return CompiledPart(*nvrtc, Tensors(sdk::ValueDtype::kF32, columns, copies));
    };
    const Compiled one = compiled(1);
    const Compiled many = compiled(16);
    std::printf("%d registers and %zu bytes with one stage, %d and %zu with 16\n", one.registers,
                one.code_bytes, many.registers, many.code_bytes);
    EXPECT_GT(one.registers, 0);
    EXPECT_LE(many.registers, one.registers + 8);
    EXPECT_LE(many.code_bytes, one.code_bytes * 3 / 2);
  }
}

}  // namespace
}  // namespace cotune::cuda
