#include "plugins/loader/plugin_status.h"

#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

ErrorCode CodeOf(cotune_status_t status) {
  switch (status) {
    case COTUNE_INVALID_ARGUMENT:
      return ErrorCode::kUsage;
    case COTUNE_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case COTUNE_OUT_OF_RESOURCES:
      return ErrorCode::kEnvironment;
    case COTUNE_DEADLINE_EXCEEDED:
      return ErrorCode::kDeadline;
    case COTUNE_ABORTED:
      return ErrorCode::kAborted;
    case COTUNE_PEER_FAILED:
      return ErrorCode::kRankLost;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

std::string TextOf(const cotune_error_t& error, const char* call) {
  const size_t size = strnlen(error.message, sizeof(error.message));
  if (size == 0) return fmt::format("{} failed without a message", call);
  return std::string(error.message, size);
}

tl::unexpected<Error> ToError(cotune_status_t status, const cotune_error_t& error, const char* call,
                              const std::string& backend, const std::vector<int32_t>& job_ranks) {
  Error result{CodeOf(status), TextOf(error, call), "backend " + backend, "", "", {}};
  if (error.failed_rank >= 0 && error.failed_rank < static_cast<int32_t>(job_ranks.size())) {
    result.ranks.push_back(job_ranks[error.failed_rank]);
  }
  return tl::make_unexpected(std::move(result));
}

}  // namespace cotune
