#include "plugins/ucx/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <stdlib.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpu/driver/library_search.h"

namespace cotune::ucx {
namespace {

// Settings of the backend, and UCX's names for them.
constexpr struct {
  const char* key;
  const char* ucx_name;
} kSettings[] = {
    {"tls", "TLS"},
    {"net_devices", "NET_DEVICES"},
    {"rndv_thresh", "RNDV_THRESH"},
};

class Config {
 public:
  explicit Config(const UcxLibrary& ucx) : ucx_(ucx) {
    status_ = ucx->ucp_config_read(nullptr, nullptr, &config_);
  }
  ~Config() {
    if (config_ != nullptr) ucx_->ucp_config_release(config_);
  }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  ucs_status_t status() const { return status_; }
  ucp_config_t* get() const { return config_; }
  // One line for each value.
  std::string Text() const {
    char* text = nullptr;
    size_t size = 0;
    FILE* const stream = open_memstream(&text, &size);
    if (stream == nullptr) return "";
    ucx_->ucp_config_print(config_, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
    fclose(stream);
    std::string result(text, size);
    free(text);
    return result;
  }

 private:
  const UcxLibrary& ucx_;
  ucp_config_t* config_ = nullptr;
  ucs_status_t status_ = UCS_OK;
};

// Variables that begin so decide which messages travel in which way. Devices may differ between
// hosts, and UCX measures other values in each process.
constexpr std::string_view kDecidingPrefixes[] = {
    "UCX_TLS=",       "UCX_RNDV_",     "UCX_ZCOPY_THRESH", "UCX_BCOPY_THRESH", "UCX_PROTO_",
    "UCX_MAX_EAGER_", "UCX_MAX_RNDV_", "UCX_MULTI_LANE_",  "UCX_ADDRESS_",     "UCX_TM_",
};

// Returns whether one of the transports that may be used has one of these words in its name.
bool MayUse(const std::string& text, std::span<const std::string_view> words) {
  constexpr std::string_view kKey = "UCX_TLS=";
  const size_t begin = text.find(kKey);
  if (begin == std::string::npos) return true;
  const std::string tls =
      text.substr(begin + kKey.size(), text.find('\n', begin) - begin - kKey.size());
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return tls.find(word) != std::string::npos; });
}

// Returns whether one of them shares memory: UCX warns of settings for transports that it does not
// use.
bool MayShareMemory(const std::string& text) {
  constexpr std::string_view kShared[] = {"all", "sm", "shm", "mm", "posix", "sysv", "xpmem", "^"};
  return MayUse(text, kShared);
}

// Returns whether one of them is TCP.
bool MayUseTcp(const std::string& text) {
  constexpr std::string_view kTcp[] = {"all", "tcp", "^"};
  return MayUse(text, kTcp);
}

// Devices of networks that move data without the processor.
std::set<std::string> RdmaDevices() {
  std::error_code error;
  std::set<std::string> names;
  for (std::filesystem::directory_iterator device("/sys/class/infiniband", error), end;
       !error && device != end; device.increment(error)) {
    names.insert(device->path().filename());
  }
  return names;
}

// Returns whether one of the transports that may be used is one of such devices.
bool MayUseRdma(const std::string& text) {
  constexpr std::string_view kRdma[] = {"all", "ib", "rc", "ud", "dc", "cuda", "rocm", "^"};
  return MayUse(text, kRdma) && !RdmaDevices().empty();
}

// The network devices of this process, asked of the system: /sys may show those of another
// container. Empty: not known.
std::set<std::string> NetworkDevices() {
  std::set<std::string> names;
  struct if_nameindex* const devices = if_nameindex();
  if (devices == nullptr) return names;
  for (const auto* device = devices; device->if_index != 0; ++device) names.insert(device->if_name);
  if_freenameindex(devices);
  return names;
}

// UCX takes names of devices that do not exist, and goes on without them. A list may be meant for
// unlike hosts: one device that there is suffices.
Result<void> CheckDevices(const std::string& value) {
  std::set<std::string> devices = NetworkDevices();
  if (devices.empty() || value.starts_with('^')) return {};
  devices.merge(RdmaDevices());
  std::istringstream items(value);
  for (std::string item; std::getline(items, item, ',');) {
    const std::string name = item.substr(0, item.find(':'));
    constexpr const char* kPattern = "*?[]^ ";
    const bool is_plain = !name.empty() && name.find_first_of(kPattern) == std::string::npos;
    if (!is_plain || name == "all" || name == "memory" || devices.contains(name)) return {};
  }
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("setting ucx.net_devices is '{:.60}', which names no network device of "
                          "this host; it has {}: correct the name, or leave the setting out",
                          value, fmt::join(devices, ", ")));
}

uint64_t DigestOfDecidingValues(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto begins = [&](std::string_view prefix) { return line.starts_with(prefix); };
    if (std::any_of(std::begin(kDecidingPrefixes), std::end(kDecidingPrefixes), begins)) {
      kept += line + "\n";
    }
  }
  return XXH64(kept.data(), kept.size(), 0);
}

}  // namespace

Result<std::unique_ptr<Context>> Context::Open(const sdk::Settings& settings) {
  const std::string library = settings.Text("library").value_or("");
  for (const auto& setting : kSettings) settings.Text(setting.key);
  COTUNE_TRY(auto ucx, UcxLibrary::Open(library, gpu::OwnEnvironment()));
  std::unique_ptr<Context> context(new Context(std::move(ucx)));
  COTUNE_RETURN_IF_ERROR(context->Configure(settings));
  return context;
}

Result<void> Context::Configure(const sdk::Settings& settings) {
  const Config config(ucx_);
  if (config.status() != UCS_OK) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("UCX cannot read its UCX_ variables: {}; correct or unset them",
                            ucx_.StatusText(config.status())),
                config.status());
  }
  for (const auto& [key, ucx_name] : kSettings) {
    const std::string variable = std::string("UCX_") + ucx_name;
    const auto value = settings.Text(key);
    if (!value) {
      if (getenv(variable.c_str()) == nullptr) continue;
      deciding_variables_.push_back({variable, fmt::format("ucx.{}", key)});
      continue;
    }
    if (std::string_view(key) == "net_devices") {
      if (auto known = CheckDevices(*value); !known) return known;
    }
    const ucs_status_t status = ucx_->ucp_config_modify(config.get(), ucx_name, value->c_str());
    if (status == UCS_OK) continue;
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("setting ucx.{} is '{:.60}', which UCX {} does not take: {}; see {} in "
                            "`ucx_info -cf`",
                            key, *value, ucx_.version().Text(), ucx_.StatusText(status), variable),
                status);
  }
  // By a rendezvous a network's delay is waited for three times instead of once, and shared memory
  // has no copy less. Only where devices fetch data by themselves does it pay.
  // Ranks need not agree on it: the sender decides.
  configuration_digest_ = DigestOfDecidingValues(config.Text());
  const bool is_said = settings.Text("rndv_thresh") || getenv("UCX_RNDV_THRESH") != nullptr;
  if (!is_said && !MayUseRdma(config.Text())) {
    ucx_->ucp_config_modify(config.get(), "RNDV_THRESH", "inf");
    has_own_threshold_ = true;
  }
  // UCX offers shared memory to endpoints that report failures only where it is told to. The
  // group itself looks whether the processes of its host live.
  if (getenv("UCX_MM_ERROR_HANDLING") == nullptr && MayShareMemory(config.Text())) {
    ucx_->ucp_config_modify(config.get(), "MM_ERROR_HANDLING", "y");
  }
  // With blocking connects over TCP, UCX aborts this process if the peer dies before the first byte
  // is sent, and waits beyond the deadline for a host that does not answer.
  if (getenv("UCX_TCP_CONN_NB") == nullptr && MayUseTcp(config.Text())) {
    // Before 1.17 options of a transport are set without its name.
    const bool has_prefix = ucx_.version() >= UcxVersion{1, 17, 0};
    ucx_->ucp_config_modify(config.get(), has_prefix ? "TCP_CONN_NB" : "CONN_NB", "y");
  }
  // A flush of a worker then waits until sockets and devices have taken what was sent. By default
  // it waits for answers of the peers, which poll in their next call only.
  const ucs_status_t status = ucx_->ucp_config_modify(config.get(), "FLUSH_WORKER_EPS", "n");
  if (status != UCS_OK) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("UCX {} does not take UCX_FLUSH_WORKER_EPS=n, which the backend needs: "
                            "{}; name another UCX by the setting ucx.library",
                            ucx_.version().Text(), ucx_.StatusText(status)),
                status);
  }
  return Initialize(config.get());
}

Result<void> Context::Initialize(const ucp_config_t* config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG;
  params.tag_sender_mask = 0;  // tags say who sends, but a receive is always for one sender
  params.estimated_num_eps = kRanksMax;
  const ucs_status_t status =
      ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &handle_);
  if (status != UCS_OK) {
    handle_ = nullptr;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("UCX {} finds no transport that it may use: {}; see ucx.tls and "
                            "ucx.net_devices, and `ucx_info -d`",
                            ucx_.version().Text(), ucx_.StatusText(status)),
                status);
  }
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  ucx_->ucp_context_query(handle_, &attributes);
  request_bytes_ = attributes.request_size;
  return {};
}

Context::~Context() {
  if (handle_ != nullptr) ucx_->ucp_cleanup(handle_);
}

}  // namespace cotune::ucx
