#include "benchmarks/ucx/rank.h"

#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "plugins/ucx/testing/network_world.h"

namespace cotune::bench {
namespace {

int RankOfJob() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// The folder has to be seen by all ranks, and to be empty.
std::string MakeFolder(const std::string& path) {
  if (RankOfJob() == 0) std::filesystem::create_directories(path);
  MPI_Barrier(MPI_COMM_WORLD);
  return path;
}

// Settings of the backend ucx: those of the options, and what a rank in a network of its own can
// reach. Empty, or the path of their file.
std::string SettingsFile(const RankOptions& options, const std::string& folder) {
  std::vector<std::string> lines = options.settings;
  if (!options.world.is_one_host) {
    lines.push_back("tls = \"tcp,self\"");
    lines.push_back(std::string("net_devices = \"") + ucx::kRankDevice + "\"");
  }
  if (lines.empty()) return "";
  std::string path = folder + "/settings.toml";
  if (RankOfJob() == 0) {
    std::ofstream file(path);
    file << "[ucx]\n";
    for (const std::string& line : lines) file << line << "\n";
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return path;
}

std::unique_ptr<Contender> CotuneBy(const RankOptions& options, const std::string& plugin,
                                    const std::string& folder) {
  CotuneOptions cotune;
  cotune.name = "cotune_" + plugin;
  cotune.plugin_path = options.plugins + "/" + plugin;
  cotune.settings_path = plugin == "ucx" ? SettingsFile(options, folder) : "";
  cotune.socket_path = folder + "/" + plugin + ".sock";
  cotune.collectives = CollectivesOf(options);
  cotune.sizes_bytes = options.sizes_bytes;
  cotune.budget_ns = static_cast<int64_t>(options.tune_seconds * 1e9);
  cotune.database_path = options.database_folder + "/" + plugin + ".tdb";
  return MakeCotune(cotune);
}

nlohmann::json LabelsOf(const RankOptions& options) {
  return {
      {"network", TitleOf(options.world)}, {"pml", options.pml}, {"settings", options.settings}};
}

}  // namespace

std::vector<std::string> OpenMpiFlags(const World& world, const std::string& pml) {
  std::vector<std::string> flags = {"--bind-to", "none", "--mca", "pml", pml};
  const auto add = [&](std::initializer_list<const char*> words) {
    flags.insert(flags.end(), words.begin(), words.end());
  };
  if (!world.is_one_host && pml == "ob1") add({"--mca", "btl", "tcp,self"});
  // Without these it refuses to run where there is no InfiniBand.
  if (pml == "ucx") add({"--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"});
  if (!world.is_one_host && pml == "ucx") {
    add({"-x", "UCX_TLS=tcp,self", "-x"});
    flags.push_back(std::string("UCX_NET_DEVICES=") + ucx::kRankDevice);
  }
  // It spins where it waits, which would take the processor from those that it waits for.
  if (BusyProcesses(world) > static_cast<int>(std::thread::hardware_concurrency())) {
    add({"--mca", "mpi_yield_when_idle", "1"});
  }
  return flags;
}

int RunRank(RankOptions options) {
  MPI_Init(nullptr, nullptr);
  const std::string folder = CommonFolder();
  options.title = ", " + TitleOf(options.world);
  options.labels = LabelsOf(options);
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(CotuneBy(options, "ucx", folder));
  if (options.world.is_one_host) contenders.push_back(CotuneBy(options, "host", folder));
  contenders.push_back(MakeOpenMpi(options.pml == "ucx" ? "openmpi_ucx" : "openmpi_tuned"));
  contenders.push_back(
      MakeGloo(MakeFolder(folder + "/gloo"), options.world.is_one_host ? "lo" : ucx::kRankDevice));
  MeasureSideBySide(options, std::move(contenders));
  MPI_Barrier(MPI_COMM_WORLD);
  if (RankOfJob() == 0) std::filesystem::remove_all(folder);
  MPI_Finalize();
  return 0;
}

}  // namespace cotune::bench
