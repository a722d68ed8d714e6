#include "sync/wire/failure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

constexpr size_t kRanksShown = 16;
constexpr size_t kQuotedCharacters = 120;

}  // namespace

wire::Failure FailureFromError(const Error& error) {
  wire::Failure failure;
  failure.set_code(static_cast<int32_t>(error.code));
  failure.set_what(error.what);
  failure.set_where(error.where);
  failure.set_cause(error.cause);
  failure.set_next_step(error.next_step);
  for (const int rank : error.ranks) failure.add_ranks(rank);
  return failure;
}

Error ErrorFromFailure(const wire::Failure& failure) {
  Error error;
  const bool known = failure.code() >= static_cast<int32_t>(ErrorCode::kInternal) &&
                     failure.code() <= static_cast<int32_t>(ErrorCode::kDisagreement);
  error.code = known ? static_cast<ErrorCode>(failure.code()) : ErrorCode::kInternal;
  error.what = failure.what().empty() ? "the coordinator reported a failure" : failure.what();
  error.where = failure.where();
  error.cause = failure.cause();
  error.next_step = failure.next_step();
  error.ranks.assign(failure.ranks().begin(), failure.ranks().end());
  std::sort(error.ranks.begin(), error.ranks.end());
  return error;
}

std::string RankList(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), kRanksShown);
  for (size_t i = 0; i < shown; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (shown < ranks.size()) text += fmt::format(", ... and {} more", ranks.size() - shown);
  return text;
}

std::string CallText(wire::CallKind kind, std::string_view name, std::string_view channel) {
  const std::string of = channel.empty() ? "" : " of subgroup " + Quoted(channel);
  switch (kind) {
    case wire::CALL_JOIN:
      return "the rendezvous";
    case wire::CALL_STEP:
      return "step " + Quoted(name) + of;
    case wire::CALL_PRE_SYNC:
      return "pre-sync" + of;
    case wire::CALL_AGREE:
      return "agreement" + of;
    case wire::CALL_BROADCAST:
      return "broadcast" + of;
    case wire::CALL_OPEN:
      return "the opening" + of;
    default:
      return "no call" + of;
  }
}

std::string DurationText(int64_t duration_ns) {
  if (duration_ns >= 1'000'000'000) {
    return fmt::format("{:.1f} s", static_cast<double>(duration_ns) * 1e-9);
  }
  if (duration_ns < 1'000'000) return "less than 1 ms";
  return fmt::format("{} ms", duration_ns / 1'000'000);
}

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, kQuotedCharacters)) {
    quoted += (c >= ' ' && c <= '~') ? c : '?';
  }
  return quoted + (text.size() > kQuotedCharacters ? "...'" : "'");
}

Error RankLost(std::string what, std::string where, std::string cause, std::string next_step,
               std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return Error{ErrorCode::kRankLost, std::move(what),      std::move(where),
               std::move(cause),     std::move(next_step), std::move(ranks)};
}

}  // namespace cotune::sync
