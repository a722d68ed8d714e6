#include "plugins/loader/plugin_call.h"

#include <utility>

#include "fmt/format.h"

namespace cotune {

Result<cotune_status_t> Threw(const CallSubject& subject, const char* function, const char* what) {
  return Fail(ErrorCode::kInternal, fmt::format("{} threw an exception: {}", function, what),
              subject.text, "a backend lets no exception out of its functions",
              "leave the backend out, or report it to whoever ships the plugin");
}

Result<cotune_status_t> NotCalled(const Error& stuck) { return tl::make_unexpected(stuck); }

tl::unexpected<Error> LeftInFlight(const BackendContext& context, Error error) {
  const bool is_stuck = context.stuck() != nullptr;
  if (!error.cause.empty()) error.cause += "; ";
  error.cause +=
      is_stuck ? "the buffers of the call stay in use until the process ends" : kBuffersStayInUse;
  return tl::make_unexpected(std::move(error));
}

void LogFailure(const BackendContext& context, const char* function, const Error& error) {
  if (context.stuck() != nullptr || !context.IsNews(function)) return;
  constexpr int32_t kError = 3;
  const cotune_host_t& host = context.host->table();
  host.log(host.context, kError, error.ToText().c_str());
}

}  // namespace cotune
