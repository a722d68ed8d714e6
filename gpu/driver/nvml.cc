#include "gpu/driver/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace cotune::gpu {
namespace {

tl::unexpected<DriverError> Fail(int code, std::string text) {
  return tl::unexpected<DriverError>(DriverError{code, std::move(text)});
}

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

std::vector<std::string> ThrottleNames(uint64_t reasons) {
  // nvmlClocksThrottleReason*, by name.
  constexpr std::array<std::pair<const char*, uint64_t>, 6> kReasons = {{
      {"hw_power_brake", 0x80},
      {"hw_slowdown", 0x8},
      {"hw_thermal", 0x40},
      {"sw_power_cap", 0x4},
      {"sw_thermal", 0x20},
      {"sync_boost", 0x10},
  }};
  std::vector<std::string> names;
  for (const auto& [name, bit] : kReasons) {
    if ((reasons & bit) != 0) names.emplace_back(name);
  }
  return names;
}

DriverResult<Nvml> Nvml::Open(const char* path) {
  const char* name = path == nullptr ? "libnvidia-ml.so.1" : path;
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return Fail(-1, dlerror());
  Nvml nvml;
  if (!Find(library, "nvmlInit_v2", nvml.init_) ||
      !Find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_)) {
    return Fail(-1, std::string(name) + " is too old");
  }
  Find(library, "nvmlDeviceGetHandleByUUID", nvml.handle_of_uuid_);
  Find(library, "nvmlDeviceGetNvLinkState", nvml.link_state_);
  Find(library, "nvmlDeviceGetP2PStatus", nvml.p2p_status_);
  Find(library, "nvmlDeviceGetClockInfo", nvml.clock_);
  // Newer drivers call them events, and may drop the old name one day.
  if (!Find(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.reasons_)) {
    Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.reasons_);
  }
  if (const int code = nvml.init_(); code != 0) {
    return Fail(code, "nvmlInit failed with code " + std::to_string(code));
  }
  return nvml;
}

void* Nvml::Handle(const std::string& bus_id) const {
  void* handle = nullptr;
  return handle_(bus_id.c_str(), &handle) == 0 ? handle : nullptr;
}

void* Nvml::HandleOfUuid(const std::string& uuid) const {
  void* handle = nullptr;
  if (handle_of_uuid_ == nullptr || handle_of_uuid_(uuid.c_str(), &handle) != 0) return nullptr;
  return handle;
}

int Nvml::ActiveLinks(void* device) const {
  constexpr unsigned int kLinksMax = 36;
  int active = 0;
  for (unsigned int link = 0; link_state_ != nullptr && link < kLinksMax; ++link) {
    int is_active = 0;
    active += link_state_(device, link, &is_active) == 0 && is_active == 1 ? 1 : 0;
  }
  return active;
}

std::optional<bool> Nvml::JoinedByNvlink(void* one, void* other) const {
  constexpr int kCapabilityNvlink = 2;
  int status = 0;
  if (p2p_status_ == nullptr || p2p_status_(one, other, kCapabilityNvlink, &status) != 0) {
    return std::nullopt;
  }
  return status == 0;
}

std::optional<ClockState> Nvml::ReadClocks(void* device) const {
  constexpr int kClockSm = 1;
  unsigned int mhz = 0;
  if (clock_ == nullptr || clock_(device, kClockSm, &mhz) != 0) return std::nullopt;
  unsigned long long reasons = 0;
  if (reasons_ != nullptr && reasons_(device, &reasons) != 0) reasons = 0;
  return ClockState{static_cast<int32_t>(mhz), reasons};
}

std::string PciBusId(const CudaDriver& driver, int ordinal) {
  std::array<char, 32> text{};
  const CuResult code = driver->DeviceGetPciBusId(text.data(), text.size(), ordinal);
  return code == kCuSuccess ? text.data() : "";
}

std::string Uuid(const CudaDriver& driver, int ordinal) {
  constexpr char kDigits[] = "0123456789abcdef";
  CuUuid id{};
  CuDevice device = 0;
  if (driver->DeviceGet(&device, ordinal) != kCuSuccess ||
      driver->DeviceGetUuid(&id, device) != kCuSuccess) {
    return "";
  }
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(id.bytes); ++i) {
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace cotune::gpu
