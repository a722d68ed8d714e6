#include "plugins/loader/host_services.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace cotune {
namespace {

cotune_status_t ToStatus(const Error& error) {
  switch (error.code) {
    case ErrorCode::kRankLost:
      return COTUNE_PEER_FAILED;
    case ErrorCode::kDeadline:
      return COTUNE_DEADLINE_EXCEEDED;
    case ErrorCode::kUsage:
      return COTUNE_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return COTUNE_UNSUPPORTED;
    case ErrorCode::kEnvironment:
      return COTUNE_OUT_OF_RESOURCES;
    case ErrorCode::kAborted:
      return COTUNE_ABORTED;
    default:
      return COTUNE_INTERNAL;
  }
}

}  // namespace

HostServices::HostServices(RankExchange& exchange, const Clock& clock,
                           std::map<std::string, std::string> settings, PluginLog log,
                           std::map<std::string, std::string> common_settings)
    : exchange_(exchange),
      clock_(clock),
      settings_(std::move(settings)),
      common_settings_(std::move(common_settings)),
      log_(std::move(log)) {
  table_.struct_size = sizeof(table_);
  table_.context = this;
  table_.log = Log;
  table_.now_ns = NowNs;
  table_.store_put = StorePut;
  table_.store_get = StoreGet;
  table_.store_delete = StoreDelete;
  table_.setting = Setting;
}

void HostServices::Log(void* context, int32_t severity, const char* text) {
  const auto& self = *static_cast<HostServices*>(context);
  if (self.log_ && text != nullptr) self.log_(severity, text);
}

int64_t HostServices::NowNs(void* context) {
  return static_cast<HostServices*>(context)->clock_.now_ns();
}

cotune_status_t HostServices::StorePut(void* context, const char* key, const void* data,
                                       uint64_t size) {
  if (key == nullptr || (data == nullptr && size > 0)) return COTUNE_INVALID_ARGUMENT;
  const Status put = static_cast<HostServices*>(context)->exchange_.StorePut(
      key, std::string_view(static_cast<const char*>(data), size));
  return put ? COTUNE_OK : ToStatus(put.error());
}

cotune_status_t HostServices::StoreGet(void* context, const char* key, void* data,
                                       uint64_t capacity, uint64_t* size, int64_t deadline_ns) {
  if (key == nullptr || size == nullptr || (data == nullptr && capacity > 0))
    return COTUNE_INVALID_ARGUMENT;
  const Result<std::string> value =
      static_cast<HostServices*>(context)->exchange_.StoreGet(key, deadline_ns);
  if (!value) return ToStatus(value.error());
  *size = value->size();
  if (value->size() > capacity) return COTUNE_INVALID_ARGUMENT;
  if (!value->empty()) std::memcpy(data, value->data(), value->size());
  return COTUNE_OK;
}

cotune_status_t HostServices::StoreDelete(void* context, const char* key) {
  if (key == nullptr) return COTUNE_INVALID_ARGUMENT;
  const Status deleted = static_cast<HostServices*>(context)->exchange_.StoreDelete(key);
  return deleted ? COTUNE_OK : ToStatus(deleted.error());
}

const char* HostServices::Setting(void* context, const char* key) {
  if (key == nullptr) return nullptr;
  auto& self = *static_cast<HostServices*>(context);
  {
    const std::lock_guard lock(self.mutex_);
    self.asked_settings_.insert(key);
  }
  if (const auto found = self.settings_.find(key); found != self.settings_.end()) {
    return found->second.c_str();
  }
  const std::string_view name(key);
  const auto common = self.common_settings_.find(std::string(name.substr(name.find('.') + 1)));
  return common == self.common_settings_.end() ? nullptr : common->second.c_str();
}

std::set<std::string> HostServices::AskedSettings() const {
  const std::lock_guard lock(mutex_);
  return asked_settings_;
}

}  // namespace cotune
