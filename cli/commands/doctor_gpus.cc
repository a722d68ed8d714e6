// The driver, the GPUs, and how they reach each other.
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include "cli/commands/doctor.h"
#include "core/base/memory_text.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gpu/driver/cuda_driver.h"
#include "gpu/driver/nvml.h"

namespace cotune::cli {
namespace {

using gpu::CudaDriver;

void DescribeGpu(const CudaDriver& driver, int ordinal, Checkup& checkup) {
  std::array<char, 256> name{};
  size_t bytes = 0;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  const std::array<std::pair<gpu::CuResult, const char*>, 5> calls = {{
      {driver->DeviceGetName(name.data(), name.size(), ordinal), "cuDeviceGetName"},
      {driver->DeviceTotalMemory(&bytes, ordinal), "cuDeviceTotalMem"},
      {driver->DeviceGetAttribute(&major, gpu::kCuComputeCapabilityMajor, ordinal),
       "cuDeviceGetAttribute"},
      {driver->DeviceGetAttribute(&minor, gpu::kCuComputeCapabilityMinor, ordinal),
       "cuDeviceGetAttribute"},
      {driver->DeviceGetAttribute(&multiprocessors, gpu::kCuMultiprocessorCount, ordinal),
       "cuDeviceGetAttribute"},
  }};
  const std::string subject = fmt::format("GPU {}", ordinal);
  for (const auto& [code, call] : calls) {
    if (auto checked = driver.Check(code, call); !checked) {
      checkup.Problem(
          subject, checked.error().text,
          "see `nvidia-smi` and the kernel's log; leave it out by CUDA_VISIBLE_DEVICES");
      return;
    }
  }
  const std::string bus_id = gpu::PciBusId(driver, ordinal);
  checkup.Ok(subject, fmt::format("{}, {}, compute capability {}.{}, {} multiprocessors, {}",
                                  name[0] == '\0' ? "of unknown name" : name.data(),
                                  MemoryText(bytes), major, minor, multiprocessors,
                                  bus_id.empty() ? "unknown bus address" : bus_id));
}

void CheckPeerAccess(const CudaDriver& driver, Checkup& checkup) {
  std::vector<std::string> missing;
  for (int from = 0; from < checkup.gpus; ++from) {
    for (int to = 0; to < checkup.gpus; ++to) {
      int can = 0;
      if (from == to) continue;
      const auto asked = driver.Check(driver->DeviceCanAccessPeer(&can, from, to), "");
      if (!asked || can == 0) missing.push_back(fmt::format("{}->{}", from, to));
    }
  }
  if (missing.empty()) {
    checkup.Ok("peer access", "every GPU reaches the memory of every other");
    return;
  }
  constexpr size_t kShownMax = 8;
  const size_t count = missing.size();
  if (count > kShownMax) missing.resize(kShownMax);
  checkup.Note("peer access",
               fmt::format("{} of {} directions between GPUs are closed: {}{}", count,
                           checkup.gpus * (checkup.gpus - 1), fmt::join(missing, ", "),
                           count > kShownMax ? ", ..." : ""),
               "see `nvidia-smi topo -p2p r`; choices that read another GPU's memory are refused, "
               "NCCL copies through host memory");
}

void CheckNvlink(const CudaDriver& driver, Checkup& checkup) {
  const gpu::DriverResult<gpu::Nvml> nvml = gpu::Nvml::Open();
  if (!nvml) {
    checkup.Note("NVLink", "unknown: " + nvml.error().text,
                 "see `nvidia-smi topo -m`; the library comes with the driver");
    return;
  }
  std::vector<void*> handles;
  std::vector<std::string> links;
  for (int ordinal = 0; ordinal < checkup.gpus; ++ordinal) {
    handles.push_back(nvml->Handle(gpu::PciBusId(driver, ordinal)));
    links.push_back(
        handles.back() == nullptr
            ? fmt::format("GPU {}: unknown to libnvidia-ml", ordinal)
            : fmt::format("GPU {}: {} active links", ordinal, nvml->ActiveLinks(handles.back())));
  }
  int pairs = 0;
  int joined = 0;
  int unknown = 0;
  for (size_t one = 0; one < handles.size(); ++one) {
    for (size_t other = one + 1; other < handles.size(); ++other, ++pairs) {
      const bool is_known = handles[one] != nullptr && handles[other] != nullptr;
      const std::optional<bool> by_nvlink =
          is_known ? nvml->JoinedByNvlink(handles[one], handles[other]) : std::nullopt;
      unknown += by_nvlink ? 0 : 1;
      joined += by_nvlink.value_or(false) ? 1 : 0;
    }
  }
  const std::string text =
      fmt::format("{} of {} pairs of GPUs are joined by NVLink{}", joined, pairs,
                  unknown > 0 ? fmt::format(", {} unknown", unknown) : std::string());
  if (joined == pairs) {
    checkup.Ok("NVLink", text, std::move(links));
  } else {
    checkup.Note("NVLink", text, "see `nvidia-smi topo -m`; the others speak over PCIe",
                 std::move(links));
  }
}

void SayThatThereIsNoGpu(const std::string& why, Checkup& checkup) {
  std::string next_step =
      "on a machine with GPUs install NVIDIA's driver, or start the container "
      "with them (docker: --gpus all); without GPUs cotune tunes host memory";
  const bool has_device_file = access("/dev/nvidia0", F_OK) == 0;
  if (has_device_file && access("/dev/nvidia0", R_OK | W_OK) != 0) {
    next_step = "/dev/nvidia0 is there, but this user may not open it: mend its permissions";
  }
  if (checkup.settings.values.memory == "cuda") {
    checkup.Problem("GPUs", why, next_step + ": --memory host");
  } else {
    checkup.Note("GPUs", why, std::move(next_step));
  }
}

}  // namespace

void CheckGpus(Checkup& checkup) {
  const auto driver = CudaDriver::Open();
  if (!driver) {
    SayThatThereIsNoGpu(driver.error().text, checkup);
    return;
  }
  int version = 0;
  const bool has_version = (*driver)->DriverGetVersion(&version) == gpu::kCuSuccess;
  const Result<std::string> module = FirstLine("/sys/module/nvidia/version");
  checkup.Ok("driver",
             fmt::format("NVIDIA {}, CUDA {}, from {}",
                         module ? *module : "of unknown version (" + module.error().ToText() + ")",
                         has_version ? fmt::format("{}.{}", version / 1000, version % 1000 / 10)
                                     : "of unknown version",
                         MappedFile("libcuda.so")));
  if ((*driver)->DeviceGetCount(&checkup.gpus) != gpu::kCuSuccess) checkup.gpus = 0;
  const auto visible = checkup.process.environment.find("CUDA_VISIBLE_DEVICES");
  const bool is_limited = visible != checkup.process.environment.end();
  if (checkup.gpus == 0) {
    SayThatThereIsNoGpu(is_limited
                            ? "the driver shows no GPU: CUDA_VISIBLE_DEVICES=" + visible->second
                            : "the driver shows no GPU",
                        checkup);
    return;
  }
  if (is_limited) {
    checkup.Note(
        "GPUs",
        fmt::format("CUDA_VISIBLE_DEVICES={} leaves {} of them", visible->second, checkup.gpus),
        "unset it to use all");
  }
  for (int gpu = 0; gpu < checkup.gpus; ++gpu) DescribeGpu(*driver, gpu, checkup);
  if (checkup.gpus < 2) return;
  CheckPeerAccess(*driver, checkup);
  CheckNvlink(*driver, checkup);
}

}  // namespace cotune::cli
