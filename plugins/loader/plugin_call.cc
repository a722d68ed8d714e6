#include "plugins/loader/plugin_call.h"

#include "fmt/format.h"

namespace cotune {

tl::unexpected<Error> Threw(const CallSubject& subject, const char* function, const char* what) {
  return Fail(ErrorCode::kInternal, fmt::format("{} threw an exception: {}", function, what),
              subject.text, "a backend lets no exception out of its functions",
              "leave the backend out, or report it to whoever ships the plugin");
}

void LogFailure(const BackendContext& context, const char* function, const Error& error) {
  if (context.stuck() != nullptr || !context.IsNews(function)) return;
  constexpr int32_t kError = 3;
  const cotune_host_t& host = context.host->table();
  host.log(host.context, kError, error.ToText().c_str());
}

}  // namespace cotune
