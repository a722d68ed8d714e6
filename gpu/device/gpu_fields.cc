#include "gpu/device/gpu_fields.h"

#include "fmt/format.h"
#include "gpu/device/driver_status.h"

namespace cotune::gpu {
namespace {

// "4 of 4 all to all", or the pairs that cannot reach each other.
std::string PeerAccess(const CudaDriver& driver, int gpus) {
  std::string missing;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      int can = 0;
      if (from == to) continue;
      driver->DeviceCanAccessPeer(&can, from, to);
      if (can == 0) missing += fmt::format("{}{}-{}", missing.empty() ? "" : ",", from, to);
    }
  }
  return missing.empty() ? "all" : "without " + missing;
}

}  // namespace

int VisibleGpus() {
  const DriverResult<CudaDriver> driver = CudaDriver::Open();
  int count = 0;
  if (!driver || (*driver)->DeviceGetCount(&count) != kCuSuccess) return 0;
  return count;
}

Result<std::map<std::string, std::string>> GpuFields(int32_t ordinal) {
  const DriverResult<CudaDriver> driver = CudaDriver::Open();
  if (!driver) return Fail(ErrorCode::kEnvironment, driver.error().text, "CUDA driver");
  CuDevice device = 0;
  char name[256] = "";
  int driver_version = 0;
  int gpus = 0;
  const auto check = [&](CuResult code, const char* call) { return Checked(*driver, code, call); };
  Status done = check((*driver)->DeviceGet(&device, ordinal), "cuDeviceGet");
  if (done) done = check((*driver)->DeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
  if (done) done = check((*driver)->DriverGetVersion(&driver_version), "cuDriverGetVersion");
  if (done) done = check((*driver)->DeviceGetCount(&gpus), "cuDeviceGetCount");
  const auto attribute = [&](CuDeviceAttribute id) {
    int value = 0;
    if (done)
      done = check((*driver)->DeviceGetAttribute(&value, id, device), "cuDeviceGetAttribute");
    return value;
  };
  const int major = attribute(kCuComputeCapabilityMajor);
  const int minor = attribute(kCuComputeCapabilityMinor);
  const int multiprocessors = attribute(kCuMultiprocessorCount);
  COTUNE_RETURN_IF_ERROR(done);
  return std::map<std::string, std::string>{
      {"gpu", name},
      {"gpu_compute_capability", fmt::format("{}.{}", major, minor)},
      {"gpu_driver_cuda", fmt::format("{}.{}", driver_version / 1000, driver_version % 1000 / 10)},
      {"gpu_multiprocessors", std::to_string(multiprocessors)},
      {"gpu_peer_access", PeerAccess(*driver, gpus)},
      {"gpus", std::to_string(gpus)},
  };
}

}  // namespace cotune::gpu
