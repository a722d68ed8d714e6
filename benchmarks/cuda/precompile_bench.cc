// How long it takes to make kernels ready with an empty cache, by threads and ranks: the stage
// `precompile` of a tune without its loading onto a GPU, so that it needs none. The kernels are
// those of the collectives and parts of 16 programs, or with --fused all that run regions of the
// programs in these files on 2 ranks, at 2, 64 and 1024 rows; --kernels leaves so many of them.
//
//   precompile_bench [--threads 1,2,4] [--ranks 1,2] [--kernels 200] [--architecture sm_90]
//                    [--fused FILE,FILE]
//
// Every measurement has processes and a cache folder of its own, because NVRTC keeps what a process
// has compiled; what the driver keeps on the disk for all processes is not used. The ranks begin
// together; the time is that of the last. NVRTC is opened before. The first measurement is the
// serial one, by which the others are divided: one rank, one thread. With a file in BENCHMARK_OUT
// the same as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/choice/choice_caller.h"
#include "core/choice/precompile.h"
#include "core/problem/program.h"
#include "core/recipe/make_recipe.h"
#include "fusion/fusion_recipes.h"
#include "gpu/driver/library_search.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/compile/kernel_cache.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/parts/part_kernel.h"
#include "plugins/cuda/parts/part_stages.h"
#include "plugins/cuda/parts/part_text.h"
#include "plugins/loader/program_listing.h"
#include "plugins/sdk/program.h"

namespace cotune::bench {
namespace {

constexpr int kNodes = 16;
constexpr size_t kUnfusedKernels = 200;
constexpr int64_t kPatienceNs = 3'600'000'000'000;

struct Options {
  std::vector<int> threads = {1, 2};
  std::vector<int> ranks = {1, 2};
  std::optional<size_t> kernels;  // nullopt: kUnfusedKernels, or all fused ones
  std::string architecture = "sm_90";
  std::vector<std::string> fused;  // files of programs
};

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "precompile_bench: %s\n", text.c_str());
  std::exit(1);
}

int64_t NowNs(void* /*context*/) {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string KeyOf(const cuda::KernelUnit& unit) {
  std::string text = fmt::format("{} {}", unit.source.name, fmt::join(unit.options, " "));
  for (const auto& [name, header] : unit.source.headers) {
    // The one header that is generated.
    if (name == "program.cuh") text += header;
  }
  return text;
}

constexpr const char* kDtypes[] = {"bf16", "f32", "f16"};

// The programs of a graph on two ranks: collectives, types, widths and local operations take turns.
ProgramGraph GraphOf(int node) {
  constexpr const char* kCollectives[] = {"all_reduce sum %x", "all_gather %x",
                                          "reduce_scatter sum %x", "all_to_all %x",
                                          "broadcast %x, root=0"};
  constexpr const char* kAfter[] = {
      "%z = add %y, %gain\n%out = rms_norm %z, %gain, eps=1e-6\nreturn %out, %z\n",
      "%z = add %y, %gain\n%out = relu %z\nreturn %out\n",
      "%out = layer_norm %y, %gain, %gain, eps=1e-5\nreturn %out\n",
      "%z = mul %y, %gain\n%out = softmax %z\nreturn %out\n"};
  const std::string collective = kCollectives[node % 5];
  const char* const dtype = kDtypes[(node + node / 5) % 3];
  const char* const rows = node % 5 == 1 ? "R/n" : "R";
  const int columns = 1024 * (1 + node % 8);
  const std::string text =
      fmt::format("%x = input {0} [{1}, {2}]\n%gain = input {0} [1, {2}] replicated\n%y = {3}\n{4}",
                  dtype, rows, columns, collective, kAfter[node % 4]);
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  if (!graph) Die(graph.error().ToText() + "\n" + text);
  return std::move(*graph);
}

sdk::Problem ProblemOf(const ProgramGraph& graph, int node) {
  const auto& collective = std::get<CollectiveNode>(graph.nodes()[graph.collectives().front()]);
  constexpr sdk::ElementType kTypes[] = {sdk::ElementType::kBf16, sdk::ElementType::kF32,
                                         sdk::ElementType::kF16};
  return {.collective = static_cast<sdk::Collective>(static_cast<int>(collective.collective) - 1),
          .type = kTypes[(node + node / 5) % 3],
          .count = uint64_t{1} << (10 + node),
          .world_size = 2};
}

// The kernels of the parts of a program.
std::vector<cuda::KernelUnit> PartsOf(const ProgramGraph& graph, bool has_pdl) {
  std::vector<cuda::KernelUnit> units;
  for (const RecipeStep& step : UnfusedRecipe(graph).steps) {
    if (!step.is_part()) continue;
    const AbiProgram abi(step.program, 256, {MemoryKind::kCuda, 2, 2}, 0, false);
    const auto program =
        sdk::CheckProgram(abi.program(), {.memory_kind = COTUNE_MEMORY_CUDA, .ranks_max = 2});
    if (!program) Die(program.error().message);
    const auto stages = cuda::StagesOf(*program);
    if (!stages) Die(stages.error().message);
    units.push_back(cuda::UnitOf(cuda::PartKernel{cuda::PartText(*program, *stages),
                                                  cuda::ShapeOf(*program, *stages), has_pdl}));
  }
  return units;
}

// Different kernels of the programs: all of their parts, and those of their collectives' choices,
// program by program in turns until there are so many.
std::map<std::string, cuda::KernelUnit> KernelsOf(const Options& options) {
  std::vector<std::vector<cuda::Choice>> lists;
  const bool has_pdl = options.architecture != "sm_80";
  const size_t kernels_max = options.kernels.value_or(kUnfusedKernels);
  std::map<std::string, cuda::KernelUnit> kernels;
  for (int node = 0; node < kNodes; ++node) {
    const ProgramGraph graph = GraphOf(node);
    lists.push_back(cuda::ListChoices(ProblemOf(graph, node), {.has_pdl = has_pdl}));
    for (cuda::KernelUnit& unit : PartsOf(graph, has_pdl)) {
      kernels.emplace(KeyOf(unit), std::move(unit));
    }
  }
  bool has_more = true;
  for (size_t i = 0; has_more && kernels.size() < kernels_max; ++i) {
    has_more = false;
    for (const std::vector<cuda::Choice>& list : lists) {
      if (i >= list.size()) continue;
      has_more = true;
      const cuda::Choice& choice = list[i];
      if (!choice.reason.empty() || choice.is_copy) continue;
      cuda::KernelUnit unit = cuda::UnitOf(choice.spec);
      if (kernels.size() < kernels_max) kernels.emplace(KeyOf(unit), std::move(unit));
    }
  }
  return kernels;
}

constexpr GroupShape kPair{MemoryKind::kCuda, 2, 2};

// Adds all kernels that run the region at so many rows, if there are any.
void AddKernels(const ProgramGraph& region, uint64_t rows, bool has_pdl,
                std::map<std::string, cuda::KernelUnit>& kernels) {
  const AbiProgram abi(region, rows, kPair, 0, false);
  const auto program =
      sdk::CheckProgram(abi.program(), {.memory_kind = COTUNE_MEMORY_CUDA, .ranks_max = 2});
  if (!program) Die(program.error().message);
  const auto leaves = cuda::LeafRegionOf(*program);
  if (!leaves) return;
  const auto choices = cuda::ListFused(*leaves, {.has_pdl = has_pdl});
  if (!choices) return;
  for (const cuda::Choice& choice : *choices) {
    if (!choice.reason.empty()) continue;
    cuda::KernelUnit unit = cuda::UnitOf(*leaves, choice);
    kernels.emplace(KeyOf(unit), std::move(unit));
  }
}

// The regions of all forms of a program.
std::vector<ProgramGraph> RegionsOf(const ProgramGraph& graph, uint64_t rows) {
  const auto program = Program::Bind(graph, kPair);
  if (!program) Die(program.error().ToText());
  std::vector<ProgramGraph> regions;
  for (const Form& form : FusionRecipes().Forms(*program, rows, {}).forms) {
    for (const Position& position : form.positions) {
      for (const Region& region : position.regions) {
        const auto recipe = MakeRecipe(form.graph, std::array{region});
        if (!recipe) Die(recipe.error().ToText());
        const RecipeStep& step = recipe->steps[recipe->backend_steps().front()];
        regions.push_back(step.program.Lower());
      }
    }
  }
  return regions;
}

std::map<std::string, cuda::KernelUnit> FusedKernelsOf(const Options& options) {
  std::map<std::string, cuda::KernelUnit> kernels;
  for (const std::string& path : options.fused) {
    std::ifstream file(path);
    if (!file) Die("the file cannot be read: " + path);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto graph = ProgramGraph::Parse(text);
    if (!graph) Die(path + ": " + graph.error().ToText());
    for (const uint64_t rows : {uint64_t{2}, uint64_t{64}, uint64_t{1024}}) {
      for (const ProgramGraph& region : RegionsOf(*graph, rows)) {
        AddKernels(region, rows, options.architecture != "sm_80", kernels);
      }
    }
  }
  if (kernels.empty()) Die("no kernel runs a region of these programs");
  const size_t kernels_max = options.kernels.value_or(kernels.size());
  while (kernels.size() > kernels_max) kernels.erase(std::prev(kernels.end()));
  return kernels;
}

std::map<std::string, cuda::KernelUnit> AllKernelsOf(const Options& options) {
  return options.fused.empty() ? KernelsOf(options) : FusedKernelsOf(options);
}

class EmptyPlan final : public Plan {
 public:
  Status Launch(const LaunchArguments&) override { return {}; }
  Result<bool> Progress(int64_t) override { return true; }
};

// Compiles the kernel that a choice is named after, by way of the cache.
class CompilingGroup final : public BackendGroup {
 public:
  CompilingGroup(const cuda::Nvrtc& nvrtc, std::string folder, const cotune_host_t& host,
                 std::string architecture, std::vector<cuda::KernelUnit> units)
      : nvrtc_(nvrtc),
        cache_(std::move(folder), host),
        architecture_(std::move(architecture)),
        units_(std::move(units)) {}

  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice& choice,
                                        int64_t deadline_ns) override {
    const cuda::KernelUnit& unit =
        units_[std::stoul(std::string(choice.id.algorithm()).substr(sizeof("kernel_") - 1))];
    const auto code = cache_.Get(KeyOf(unit), deadline_ns, [&] {
      ++compiled_;
      return nvrtc_.Compile(unit.source, architecture_, unit.options);
    });
    if (!code) return Fail(ErrorCode::kInternal, code.error().message);
    return std::make_unique<EmptyPlan>();
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {}

  int compiled() const { return compiled_; }

 private:
  const cuda::Nvrtc& nvrtc_;
  const cuda::KernelCache cache_;
  const std::string architecture_;
  const std::vector<cuda::KernelUnit> units_;
  std::atomic<int> compiled_ = 0;
};

// A rank reports this to the process that has started it.
struct RankReport {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t peak_bytes = 0;
  int compiled = 0;
  int failed = 0;
};

struct RankTask {
  int rank = 0;
  int world_size = 1;
  int threads = 1;
  std::string folder;
};

struct Pipe {
  int read = -1;
  int write = -1;
  static Pipe Make() {
    int ends[2];
    if (pipe(ends) != 0) Die("no pipe");
    return {ends[0], ends[1]};
  }
};

RankReport MakeAllReady(const Options& options, const RankTask& task, const Pipe& ready,
                        const Pipe& go) {
  const auto nvrtc = cuda::Nvrtc::Open("", gpu::OwnEnvironment());
  if (!nvrtc) Die(nvrtc.error().message);
  std::vector<cuda::KernelUnit> units;
  for (auto& [key, unit] : AllKernelsOf(options)) units.push_back(std::move(unit));
  const size_t count = units.size();
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  host.now_ns = NowNs;
  auto group = std::make_unique<CompilingGroup>(*nvrtc, task.folder, host, options.architecture,
                                                std::move(units));
  const CompilingGroup& compiling = *group;
  BackendMember member;
  member.group = std::move(group);
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  const Program program = Program::SingleCollective(cls).value();
  std::vector<std::unique_ptr<ChoiceCaller>> callers;
  std::vector<ChoiceCaller*> pointers;
  for (size_t i = 0; i < count; ++i) {
    Choice choice{.id = ChoiceId::FromBackend("cuda", fmt::format("kernel_{}", i)).value()};
    callers.push_back(std::make_unique<ChoiceCaller>(program, Problem{cls, 1, 0}, std::move(choice),
                                                     std::vector{&member}));
    pointers.push_back(callers.back().get());
  }
  char word = 0;
  if (write(ready.write, &word, 1) != 1 || read(go.read, &word, 1) != 1) Die("no word to begin");
  RankReport report;
  report.begin_ns = NowNs(nullptr);
  const int64_t deadline_ns = report.begin_ns + kPatienceNs;
  const Status made =
      PrecompileAll(pointers, task.threads, deadline_ns, {task.rank, task.world_size});
  report.end_ns = NowNs(nullptr);
  for (ChoiceCaller* caller : pointers) {
    if (!caller->Precompile(deadline_ns)) ++report.failed;
  }
  if (!made) report.failed = static_cast<int>(pointers.size());
  report.compiled = compiling.compiled();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  return report;
}

struct Measurement {
  int ranks = 1;
  int threads = 1;
  double wall_s = 0;
  int compiled = 0;     // by all ranks
  double peak_mib = 0;  // of the rank that took most
};

Measurement Measure(const Options& options, int ranks, int threads) {
  std::string folder = std::filesystem::temp_directory_path() / "cotune_precompile.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) Die("no temporary folder");
  const Pipe ready = Pipe::Make();
  const Pipe go = Pipe::Make();
  const Pipe reports = Pipe::Make();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) Die("no process");
    if (child == 0) {
      const RankReport report =
          MakeAllReady(options, {rank, ranks, threads, folder + "/kernels"}, ready, go);
      // Shorter than a pipe's atomic write.
      _exit(write(reports.write, &report, sizeof(report)) == sizeof(report) ? 0 : 1);
    }
    children.push_back(child);
  }
  close(ready.write);
  close(reports.write);
  char word = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (read(ready.read, &word, 1) != 1) Die("a rank ended before it began");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (write(go.write, &word, 1) != 1) Die("no word to begin");
  }
  Measurement measured{.ranks = ranks, .threads = threads};
  int64_t begin_ns = INT64_MAX;
  int64_t end_ns = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    RankReport report;
    if (read(reports.read, &report, sizeof(report)) != sizeof(report)) Die("a rank failed");
    if (report.failed > 0) Die(fmt::format("{} kernels do not compile", report.failed));
    begin_ns = std::min(begin_ns, report.begin_ns);
    end_ns = std::max(end_ns, report.end_ns);
    measured.compiled += report.compiled;
    measured.peak_mib =
        std::max(measured.peak_mib, static_cast<double>(report.peak_bytes) / 0x1p20);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  for (const int end : {ready.read, go.read, go.write, reports.read}) close(end);
  std::filesystem::remove_all(folder);
  measured.wall_s = static_cast<double>(end_ns - begin_ns) * 1e-9;
  return measured;
}

void MeasureAll(const Options& options) {
  const size_t kernels = AllKernelsOf(options).size();
  std::printf("%zu %s kernels of %zu programs, %s, empty cache\n", kernels,
              options.fused.empty() ? "unfused" : "fused",
              options.fused.empty() ? static_cast<size_t>(kNodes) : options.fused.size(),
              options.architecture.c_str());
  std::printf("%5s  %7s  %7s  %9s  %8s  %8s\n", "ranks", "threads", "wall_s", "of_serial",
              "compiled", "peak_mib");
  std::ofstream json;
  if (const char* path = std::getenv("BENCHMARK_OUT"); path != nullptr) json.open(path);
  double serial_s = 0;
  const auto show = [&](int ranks, int threads) {
    const Measurement measured = Measure(options, ranks, threads);
    if (serial_s == 0) serial_s = measured.wall_s;
    std::printf("%5d  %7d  %7.2f  %9.2f  %8d  %8.0f\n", ranks, threads, measured.wall_s,
                measured.wall_s / serial_s, measured.compiled, measured.peak_mib);
    std::fflush(stdout);
    if (!json.is_open()) return;
    json << nlohmann::json{{"ranks", ranks},
                           {"threads", threads},
                           {"kernels", kernels},
                           {"is_fused", !options.fused.empty()},
                           {"architecture", options.architecture},
                           {"wall_s", measured.wall_s},
                           {"of_serial", measured.wall_s / serial_s},
                           {"compiled", measured.compiled},
                           {"peak_mib", measured.peak_mib}}
                .dump()
         << "\n";
  };
  show(1, 1);
  for (const int ranks : options.ranks) {
    for (const int threads : options.threads) {
      if (ranks != 1 || threads != 1) show(ranks, threads);
    }
  }
}

}  // namespace
}  // namespace cotune::bench

int main(int argc, char** argv) {
  cotune::bench::Options options;
  CLI::App app("makes the kernels of programs ready, by threads and ranks");
  app.add_option("--threads", options.threads, "numbers of threads in a rank")->delimiter(',');
  app.add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',');
  app.add_option("--kernels", options.kernels, "how many kernels, at most [200, or all fused ones]")
      ->check(CLI::PositiveNumber);
  app.add_option("--fused", options.fused, "files of programs: their fused kernels instead")
      ->delimiter(',');
  app.add_option("--architecture", options.architecture, "sm_80, sm_90, sm_100");
  CLI11_PARSE(app, argc, argv);
  // NVRTC looks into the driver's cache of compiled code, too.
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  cotune::bench::MeasureAll(options);
  return 0;
}
