// Compiles the kernels as the plugin does, for every architecture that it meets, and looks at what
// the compiler says of them. Which there are, the plugin's own list of choices tells. Needs NVRTC
// and no GPU: COTUNE_NVRTC names the library, else it is looked for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/testing/find_nvrtc.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};
// Ranks: the most, with which kernels need most registers, and an odd number; the others beside.
constexpr int kFewWorlds[] = {3, 8};
constexpr int kWorlds[] = {2, 3, 4, 8};
constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};
// Tests of one architecture, which run in processes of their own at the same time.
constexpr int kParts = 4;

struct Kernel {
  KernelSpec spec;
  std::string name;   // the source and the options of the compiler
  std::string shape;  // "4 ranks, 512 threads, unroll 2"
};

// The option is a matter of shape: the kernel's code does the same in another one.
bool IsOfShape(const std::string& option) {
  for (const char* part : {"WORLD_SIZE", "THREADS", "UNROLL", "PDL"}) {
    if (option.starts_with(fmt::format("-DCOTUNE_{}=", part))) return true;
  }
  return false;
}

// One way to do one collective on one type with one reduction, in all its shapes.
struct Work {
  std::string kind;  // without type and reduction
  bool reduces = false;
  std::vector<Kernel> shapes;
};

std::string NameOf(const KernelSpec& spec) {
  return fmt::format("{} {}", SourceOf(spec).name, fmt::join(NvrtcOptions(spec), " "));
}

void AddChoicesOf(const sdk::Problem& problem, bool has_pdl, std::map<std::string, Work>& all,
                  std::set<std::string>& seen) {
  for (const Choice& choice : ListChoices(problem, {.has_pdl = has_pdl})) {
    if (!choice.reason.empty() || choice.is_copy) continue;
    const std::vector<std::string> options = NvrtcOptions(choice.spec);
    const std::string source = SourceOf(choice.spec).name;
    const std::string name = NameOf(choice.spec);
    // Many problems share a kernel.
    if (!seen.insert(name).second) continue;
    std::string work_name = source;
    std::string kind = source;
    for (const std::string& option : options) {
      if (IsOfShape(option)) continue;
      work_name += " " + option;
      const bool is_of_data =
          option.starts_with("-DCOTUNE_DTYPE") || option.starts_with("-DCOTUNE_REDUCTION");
      if (!is_of_data) kind += " " + option;
    }
    Work& work = all[work_name];
    work.kind = kind;
    work.reduces = sdk::Reduces(problem);
    work.shapes.push_back({choice.spec, name,
                           fmt::format("{} ranks, {} threads, unroll {}", choice.spec.world_size,
                                       choice.spec.threads, choice.spec.unroll)});
  }
}

// How much is compiled; all for all architectures would take hours.
enum class Breadth {
  // For 3 and for 8 ranks each kind in all of its shapes for sm_90, and in one for each other
  // architecture; types and reductions take turns.
  kEachKind,
  // For 2 and for 4 ranks, too, and each type and reduction. Work that only moves data takes little
  // time, and is compiled for each architecture. Work that reduces is compiled for one of them: for
  // sm_90 every second.
  kEachWork,
};

std::map<std::string, Work> AllWork(bool has_pdl, Breadth breadth) {
  const std::span<const int> worlds =
      breadth == Breadth::kEachKind ? std::span<const int>(kFewWorlds) : kWorlds;
  std::map<std::string, Work> all;
  std::set<std::string> seen;
  sdk::Problem problem;
  for (const Collective collective : kCollectives) {
    problem.collective = collective;
    for (const sdk::ElementType type : sdk::kElementTypes) {
      problem.type = type;
      for (const sdk::Reduction reduction : sdk::kReductions) {
        if (!sdk::Reduces(problem) && reduction != sdk::Reduction::kSum) continue;
        problem.reduction = reduction;
        for (const int world_size : worlds) {
          problem.world_size = world_size;
          for (const bool is_symmetric : {false, true}) {
            problem.is_symmetric = is_symmetric;
            for (problem.count = 16; problem.count <= (64 << 20); problem.count *= 8) {
              AddChoicesOf(problem, has_pdl, all, seen);
            }
          }
        }
      }
    }
  }
  return all;
}

std::vector<Kernel> KernelsFor(const std::string& architecture, Breadth breadth) {
  const std::map<std::string, Work> all = AllWork(architecture != "sm_80", breadth);
  const bool has_all_shapes = architecture == "sm_90";
  std::map<std::string, std::vector<const Work*>> kinds;
  std::map<std::string, size_t> turns;
  for (const auto& [name, work] : all) {
    const size_t turn = turns[work.kind]++ % 4;
    const char* const has_turn = turn % 2 == 0 ? "sm_90" : turn == 1 ? "sm_80" : "sm_100";
    const bool is_for_all = breadth == Breadth::kEachKind || !work.reduces;
    if (is_for_all || architecture == has_turn) kinds[work.kind].push_back(&work);
  }
  std::vector<Kernel> kernels;
  size_t kind_count = 0;
  for (const auto& [kind, works] : kinds) {
    std::set<std::string> missing;
    for (const Work* work : works) {
      for (const Kernel& kernel : work->shapes) missing.insert(kernel.shape);
    }
    const size_t least = breadth == Breadth::kEachWork ? works.size() : 1;
    // Kinds begin at different works, so that the first ones are not of one type only.
    const size_t first = breadth == Breadth::kEachWork ? 0 : kind_count++;
    for (size_t i = 0; i < least || (has_all_shapes && !missing.empty()); ++i) {
      const std::vector<Kernel>& shapes = works[(first + i) % works.size()]->shapes;
      const auto wanted = std::find_if(shapes.begin(), shapes.end(), [&](const Kernel& kernel) {
        return missing.contains(kernel.shape);
      });
      if (wanted == shapes.end() && i >= least) continue;
      kernels.push_back(wanted == shapes.end() ? shapes[i % shapes.size()] : *wanted);
      missing.erase(kernels.back().shape);
    }
  }
  return kernels;
}

// nvrtc_compile_each_work_test asks for each work (./dev test --all).
Breadth BreadthAskedFor() {
  return std::getenv("COTUNE_COMPILE_EACH_WORK") == nullptr ? Breadth::kEachKind
                                                            : Breadth::kEachWork;
}

struct LocalMemory {
  int stack_bytes = 0;
  int spilled_bytes = 0;
};

// Reads the kernel's use of local memory from the assembler's log; nullopt: the log says nothing.
std::optional<LocalMemory> LocalMemoryOf(const std::string& log) {
  const size_t at = log.find(fmt::format("Function properties for {}", kKernelSymbol));
  const size_t line = at == std::string::npos ? at : log.find('\n', at);
  LocalMemory found;
  int loads = 0;
  const bool is_told =
      line != std::string::npos &&
      std::sscanf(log.c_str() + line, " %*[^0-9]%d bytes stack frame, %d bytes spill stores, %d",
                  &found.stack_bytes, &found.spilled_bytes, &loads) == 3;
  found.spilled_bytes = std::max(found.spilled_bytes, loads);
  return is_told ? std::optional(found) : std::nullopt;
}

// The kernels that are known to spill, and how much of it is put up with: the most that was seen
// there in any of their types and reductions, rounded up. All others must not.
int SpillBytesMax(const KernelSpec& spec, const std::string& architecture) {
  const auto on = [&](std::string_view transport) { return spec.transport == transport; };
  const bool is_for_8 = spec.world_size == 8;
  const bool is_unrolled = spec.unroll == 4;
  const std::pair<bool, int> known[] = {
      // Shapes are chosen on sm_90.
      {architecture == "sm_80", 400},
      {architecture == "sm_100", 608},
      {is_for_8 && on("flagged"), 96},
      {spec.unroll > 1 && on("flagged"), 24},
      {is_for_8 && on("lamport"), 224},
      {is_unrolled && on("lamport"), 96},
      {spec.threads <= 256, 32},
      {on("escape"), spec.unroll > 1 ? 96 : 28},
      {is_for_8 && on("escape"), 240},
      {is_unrolled && on("escape"), 184},
      {on("zero_copy"), 32},
      {is_for_8 && on("zero_copy"), 112},
      {on("copy_engine"), 32},
  };
  int bytes_max = 0;
  for (const auto& [is_known, bytes] : known) {
    if (is_known) bytes_max = std::max(bytes_max, bytes);
  }
  return bytes_max;
}

// Returns what is wrong with a kernel; "" when nothing is.
std::string Compile(const Nvrtc& nvrtc, const Kernel& kernel, const std::string& architecture) {
  std::vector<std::string> options = NvrtcOptions(kernel.spec);
  options.emplace_back("--ptxas-options=-v");
  std::string log;
  const auto cubin = nvrtc.Compile(SourceOf(kernel.spec), architecture, options, &log);
  if (!cubin) return cubin.error().message;
  if (cubin->find(kKernelSymbol) == std::string::npos) return "it has no kernel";
  const std::optional<LocalMemory> local = LocalMemoryOf(log);
  if (!local) return "the compiler does not say how much it spills: " + log;
  if (local->spilled_bytes > SpillBytesMax(kernel.spec, architecture)) {
    return fmt::format("it spills {} bytes, on a stack of {}", local->spilled_bytes,
                       local->stack_bytes);
  }
  return "";
}

class NvrtcCompileTest : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(NvrtcCompileTest, EveryKernelCompilesAndKeepsToItsRegisters) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const auto& [architecture, part] = GetParam();
  if (!IsCompiledHere(architecture)) GTEST_SKIP() << "SKIPPED: `./dev test --all` compiles for it";
  std::vector<Kernel> kernels;
  const std::vector<Kernel> all = KernelsFor(architecture, BreadthAskedFor());
  for (size_t i = static_cast<size_t>(part); i < all.size(); i += kParts) {
    kernels.push_back(all[i]);
  }
  ASSERT_GT(kernels.size(), 5u);
  for (const Kernel& kernel : kernels) {
    const std::string wrong = Compile(*nvrtc, kernel, architecture);
    EXPECT_EQ(wrong, "") << kernel.name;
  }
  const double cpu_s = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  std::printf("%zu of %zu kernels; %.0f s of CPU time in this process so far\n", kernels.size(),
              all.size(), cpu_s);
}

INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcCompileTest,
                         testing::Combine(testing::ValuesIn(kArchitectures),
                                          testing::Range(0, kParts)),
                         [](const auto& info) {
                           return fmt::format("{}_part_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

// Returns the shapes that are compiled of each kind of work.
std::map<std::string, std::set<std::string>> CompiledShapes(const std::string& architecture,
                                                            Breadth breadth) {
  std::map<std::string, std::set<std::string>> shapes;
  std::map<std::string, std::string> kind_of;
  for (const auto& [name, work] : AllWork(architecture != "sm_80", breadth)) {
    for (const Kernel& kernel : work.shapes) kind_of[kernel.name] = work.kind;
  }
  for (const Kernel& kernel : KernelsFor(architecture, breadth)) {
    shapes[kind_of.at(kernel.name)].insert(kernel.shape);
  }
  return shapes;
}

// By the list of choices alone: needs no compiler.
TEST(NvrtcCompileListTest, EveryShapeOfEachKindIsCompiledForSm90AndEachKindForTheOthers) {
  for (const Breadth breadth : {Breadth::kEachKind, Breadth::kEachWork}) {
    for (const std::string architecture : kArchitectures) {
      std::map<std::string, std::set<std::string>> listed;
      for (const auto& [name, work] : AllWork(architecture != "sm_80", breadth)) {
        for (const Kernel& kernel : work.shapes) listed[work.kind].insert(kernel.shape);
      }
      const auto compiled = CompiledShapes(architecture, breadth);
      if (architecture == "sm_90") {
        EXPECT_EQ(compiled, listed);
      } else if (breadth == Breadth::kEachKind) {
        EXPECT_EQ(compiled.size(), listed.size()) << architecture;
      }
    }
  }
}

TEST(NvrtcCompileListTest, EachKindMeetsManyTypesAndReductions) {
  std::set<std::string> data;
  for (const char* architecture : kArchitectures) {
    for (const Kernel& kernel : KernelsFor(architecture, Breadth::kEachKind)) {
      std::string of_data;
      for (const std::string& option : NvrtcOptions(kernel.spec)) {
        if (option.starts_with("-DCOTUNE_DTYPE") || option.starts_with("-DCOTUNE_REDUCTION")) {
          of_data += option + " ";
        }
      }
      data.insert(of_data);
    }
  }
  EXPECT_GE(data.size(), 35u) << "of 7 types with 5 reductions, and 7 that are moved";
}

TEST(NvrtcCompileListTest, EachWorkIsCompiledWhereThatIsAskedFor) {
  const std::map<std::string, Work> all = AllWork(true, Breadth::kEachWork);
  std::map<std::string, std::string> work_of;
  for (const auto& [name, work] : all) {
    for (const Kernel& kernel : work.shapes) work_of[kernel.name] = name;
  }
  std::set<std::string> works;
  for (const char* architecture : kArchitectures) {
    for (const Kernel& kernel : KernelsFor(architecture, Breadth::kEachWork)) {
      auto found = work_of.find(NameOf(kernel.spec));
      if (found == work_of.end()) {
        KernelSpec spec = kernel.spec;
        spec.uses_pdl = true;  // as sm_90 has it
        found = work_of.find(NameOf(spec));
      }
      ASSERT_NE(found, work_of.end()) << kernel.name;
      works.insert(found->second);
    }
  }
  EXPECT_EQ(works.size(), all.size());
  const auto works_of = [&](std::string_view transport) {
    const std::string option = fmt::format("-DCOTUNE_TRANSPORT_{}", transport);
    return std::count_if(all.begin(), all.end(), [&](const auto& work) {
      return work.first.find(option) != std::string::npos;
    });
  };
  // Types, reductions and kernels that reduce; types and kernels that move.
  EXPECT_EQ(works_of("LAMPORT"), 3 * 5 * 3);
  EXPECT_EQ(works_of("ESCAPE"), 4 * 5 * 3 + 7 * 4);
  EXPECT_EQ(works_of("FLAGGED"), 7 * 5 * 2 + 7 * 3);
  EXPECT_EQ(works_of("ZERO_COPY"), 7 * 5 * 2 + 7 * 3);
  EXPECT_GT(works_of("QUEUED"), 100);
  EXPECT_EQ(works_of("COPY_ENGINE"), 7 * 5 + 7 * 3);
}

}  // namespace
}  // namespace cotune::cuda
