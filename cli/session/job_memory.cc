#include "cli/session/job_memory.h"

#include <algorithm>

#include "cli/session/rank_session.h"
#include "core/base/counted.h"
#include "core/base/usable_processors.h"
#include "fmt/format.h"
#include "gpu/device/gpu_fields.h"
#include "integration/job.h"
#include "integration/plugin_scan.h"

namespace cotune::cli {
namespace {

constexpr int kDefaultHostRanksMin = 2;
constexpr int kDefaultHostRanksMax = 8;

bool HasCudaPlugin(const ResolvedSettings& settings, const PluginFlags& plugins,
                   const Process& process) {
  const JobOptions options = MakeJobOptions(settings, plugins, MemoryKind::kHost, process);
  const PluginScan scan = ScanPlugins(options);
  return std::any_of(scan.reports.begin(), scan.reports.end(), [&](const PluginReport& report) {
    const bool is_wanted =
        options.catalogue.backends.empty() ||
        std::find(options.catalogue.backends.begin(), options.catalogue.backends.end(),
                  report.backend) != options.catalogue.backends.end();
    return report.loaded && is_wanted &&
           (report.memory_kinds >> static_cast<unsigned>(MemoryKind::kCuda) & 1) != 0;
  });
}

}  // namespace

Result<JobMemory> ChooseMemory(const ResolvedSettings& settings, const PluginFlags& plugins,
                               const Process& process) {
  const std::string& asked = settings.values.memory;
  if (asked == "host") return JobMemory{};
  if (asked != "auto" && asked != "cuda") {
    const auto origin = settings.origins.find("memory");
    return Fail(ErrorCode::kUsage, fmt::format("bad value \"{}\" for memory", asked),
                origin == settings.origins.end() ? "" : origin->second,
                "it is neither auto, host nor cuda", "give one of them");
  }
  const int gpus = gpu::VisibleGpus();
  if (asked == "cuda" && gpus == 0) {
    return Fail(ErrorCode::kEnvironment, "there is no GPU to tune", "memory=cuda",
                "no NVIDIA driver, or CUDA_VISIBLE_DEVICES hides all GPUs",
                "see `nvidia-smi`, or tune host memory: --memory host");
  }
  if (gpus == 0 || (asked == "auto" && !HasCudaPlugin(settings, plugins, process))) {
    return JobMemory{};
  }
  return JobMemory{MemoryKind::kCuda, gpus};
}

int DefaultRanks(const JobMemory& memory) {
  if (memory.kind == MemoryKind::kCuda) return memory.gpus;
  const auto processors = static_cast<int>(ProcessorsIn(UsableProcessors()).size());
  return std::clamp(processors, kDefaultHostRanksMin, kDefaultHostRanksMax);
}

std::string SharedProcessorsText(const JobMemory& memory, int local_ranks) {
  const size_t processors = ProcessorsIn(UsableProcessors()).size();
  if (memory.kind == MemoryKind::kCuda || processors == 0 ||
      static_cast<size_t>(local_ranks) <= processors) {
    return "";
  }
  return fmt::format(
      "{} share {}: they take turns, so that calls take longer and vary more than with a processor "
      "for each rank",
      Counted(local_ranks, "rank"), Counted(static_cast<int64_t>(processors), "processor"));
}

Status CheckRanks(const JobMemory& memory, int local_ranks) {
  if (memory.kind == MemoryKind::kHost || local_ranks <= memory.gpus) return {};
  return Fail(ErrorCode::kUsage,
              fmt::format("{} on this machine need a GPU each, and it shows {}",
                          Counted(local_ranks, "rank"), memory.gpus),
              "--ranks", "every rank works on a GPU of its own",
              "start fewer ranks, or tune host memory: --memory host");
}

}  // namespace cotune::cli
