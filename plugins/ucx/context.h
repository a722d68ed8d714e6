// UCX with the user's settings: what the workers of all groups are made of.
#ifndef COTUNE_PLUGINS_UCX_CONTEXT_H_
#define COTUNE_PLUGINS_UCX_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/sdk/settings.h"
#include "plugins/ucx/sdk_names.h"
#include "plugins/ucx/ucx_library.h"

namespace cotune::ucx {

class Context {
 public:
  // Asks for all settings of the backend. COTUNE_UNSUPPORTED: there is no UCX, or no transport.
  static Result<std::unique_ptr<Context>> Open(const sdk::Settings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const UcxLibrary& ucx() const { return ucx_; }
  ucp_context_h handle() const { return handle_; }
  // Memory in front of a request of the caller's own.
  size_t request_bytes() const { return request_bytes_; }
  // The digest covers the transports and protocols that settings and UCX_ variables let UCX take:
  // all ranks of a group need the same.
  uint64_t configuration_digest() const { return configuration_digest_; }
  // Whether messages of any length go without a rendezvous because nothing says otherwise.
  bool has_own_threshold() const { return has_own_threshold_; }
  // UCX_ variables that decide what is measured, and the setting to use instead of each. They are
  // no settings, so no tuned database is kept apart by them.
  struct DecidingVariable {
    std::string name;     // "UCX_TLS"
    std::string setting;  // "ucx.tls"
  };
  const std::vector<DecidingVariable>& deciding_variables() const { return deciding_variables_; }

 private:
  explicit Context(UcxLibrary ucx) : ucx_(std::move(ucx)) {}
  Result<void> Configure(const sdk::Settings& settings);
  Result<void> Initialize(const ucp_config_t* config);

  const UcxLibrary ucx_;
  ucp_context_h handle_ = nullptr;
  size_t request_bytes_ = 0;
  uint64_t configuration_digest_ = 0;
  bool has_own_threshold_ = false;
  std::vector<DecidingVariable> deciding_variables_;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_CONTEXT_H_
