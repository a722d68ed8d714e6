#include "plugins/loader/backend_host.h"

#include <utility>

namespace cotune {
namespace {

const BackendHost& Self(void* context) { return *static_cast<const BackendHost*>(context); }

}  // namespace

BackendHost::BackendHost(const cotune_host_t& services, std::string backend_name)
    : services_(services), backend_name_(std::move(backend_name)) {
  table_.struct_size = sizeof(table_);
  table_.context = this;
  table_.log = Log;
  table_.now_ns = NowNs;
  table_.store_put = StorePut;
  table_.store_get = StoreGet;
  table_.store_delete = StoreDelete;
  table_.setting = Setting;
}

void BackendHost::Log(void* context, int32_t severity, const char* text) {
  const cotune_host_t& services = Self(context).services_;
  if (text == nullptr) return;
  const std::string named = Self(context).backend_name_ + ": " + text;
  services.log(services.context, severity, named.c_str());
}

int64_t BackendHost::NowNs(void* context) {
  const cotune_host_t& services = Self(context).services_;
  return services.now_ns(services.context);
}

cotune_status_t BackendHost::StorePut(void* context, const char* key, const void* data,
                                      uint64_t size) {
  const cotune_host_t& services = Self(context).services_;
  return services.store_put(services.context, key, data, size);
}

cotune_status_t BackendHost::StoreGet(void* context, const char* key, void* data, uint64_t capacity,
                                      uint64_t* size, int64_t deadline_ns) {
  const cotune_host_t& services = Self(context).services_;
  return services.store_get(services.context, key, data, capacity, size, deadline_ns);
}

cotune_status_t BackendHost::StoreDelete(void* context, const char* key) {
  const cotune_host_t& services = Self(context).services_;
  return services.store_delete(services.context, key);
}

const char* BackendHost::Setting(void* context, const char* key) {
  if (key == nullptr) return nullptr;
  const BackendHost& self = Self(context);
  const std::string name = self.backend_name_ + "." + key;
  return self.services_.setting(self.services_.context, name.c_str());
}

}  // namespace cotune
