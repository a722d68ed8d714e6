#include "sync/socket/socket_exchange.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/base/fork_guard.h"
#include "sync/socket/coordinator_server.h"
#include "sync/socket/socket_link.h"
#include "sync/socket/unix_socket.h"
#include "sync/wire/failure_text.h"

namespace cotune::sync {
namespace {

Status CheckOptions(const SocketExchangeOptions& options) {
  if (options.world_size < 1 || options.world_size > kWorldSizeMax) {
    return Fail(ErrorCode::kUsage,
                fmt::format("world size {} is not 1 to {}", options.world_size, kWorldSizeMax),
                "world size", "", "start between 1 and 1024 ranks");
  }
  if (options.rank < 0) {
    return Fail(ErrorCode::kUsage, fmt::format("rank {} is negative", options.rank), "rank");
  }
  // A rank beyond the world size is left to the coordinator, so that every rank hears of it; rank 0
  // is always inside.
  if (options.job_id.size() > kNameBytesMax || options.code_version.size() > kNameBytesMax) {
    return Fail(ErrorCode::kUsage,
                fmt::format("job id and code version have at most {} characters", kNameBytesMax),
                options.job_id.size() > kNameBytesMax ? "job id" : "code version");
  }
  const int64_t interval_ns = options.heartbeat_interval_ns;
  if (interval_ns <= 0 || options.heartbeat_timeout_ns / 2 < interval_ns) {
    return Fail(ErrorCode::kUsage,
                fmt::format("a heartbeat timeout of {} ns does not fit an interval of {} ns",
                            options.heartbeat_timeout_ns, interval_ns),
                "heartbeat timeout", "", "make the timeout at least two intervals");
  }
  return {};
}

// Takes rank 0's address out of the store when the rendezvous is over, however it ended.
class PublishedAddress {
 public:
  PublishedAddress(RendezvousStore& store, const Clock& clock, const LogSink& log)
      : store_(store), clock_(clock), log_(log) {}
  PublishedAddress(const PublishedAddress&) = delete;
  PublishedAddress& operator=(const PublishedAddress&) = delete;
  ~PublishedAddress() {
    constexpr int64_t kDeleteNs = 1'000'000'000;
    const Status deleted = store_.Delete(DeadlineAfter(clock_.now_ns(), kDeleteNs));
    // The address is that of a socket which no later rank can join, so it does no harm.
    if (!deleted && log_) {
      log_({Severity::kWarning,
            "the address of rank 0 stays in the store: " + deleted.error().ToText()});
    }
  }

 private:
  RendezvousStore& store_;
  const Clock& clock_;
  const LogSink& log_;
};

// Logs that rank 0 is waited for. Empty if the rank has no hint for its user.
WaitNotice NoticeOf(const SocketExchangeOptions& options) {
  if (options.missing_ranks_hint.empty() || !options.log) return {};
  return [&options](int64_t left_ns) {
    options.log({Severity::kWarning,
                 fmt::format("waiting for rank 0, which has not joined the job yet, {}; {}",
                             left_ns == INT64_MAX
                                 ? "without a limit"
                                 : fmt::format("for at most {} more", DurationText(left_ns)),
                             options.missing_ranks_hint)});
  };
}

// The connection to the coordinator. With a store, rank 0 says there where it listens, and the
// others learn the job's id there, too.
Result<ReachedRankZero> Reach(const SocketExchangeOptions& options, const Clock& clock,
                              std::optional<PublishedAddress>& published) {
  if (options.store != nullptr && options.rank != 0) {
    return ReachRankZero(*options.store, options.rank, clock, options.deadline_ns);
  }
  if (options.store != nullptr) {
    const RankZeroAddress address = AddressHere(options.socket_path, options.job_id);
    COTUNE_RETURN_IF_ERROR(options.store->Put(address.ToText(), options.deadline_ns));
    published.emplace(*options.store, clock, options.log);
  }
  Result<HomeFd> socket =
      ConnectTo(options.socket_path, options.rank, clock, options.deadline_ns, NoticeOf(options));
  if (socket) return ReachedRankZero{std::move(*socket), options.job_id};
  Error error = socket.error();
  if (options.is_default_path && error.code == ErrorCode::kRankLost) {
    error.where = "the rendezvous";
    error.cause = "rank 0 was not started, has ended, or belongs to another job";
    error.next_step = "start all ranks together with one launcher";
  }
  return tl::make_unexpected(std::move(error));
}

// A missing rank may be one that nobody has started, because this process is a rank by mistake.
Error WithHint(Error error, const std::string& hint) {
  if (error.code != ErrorCode::kRankLost || hint.empty()) return error;
  error.next_step += (error.next_step.empty() ? "" : "; ") + hint;
  return error;
}

Result<std::unique_ptr<RankExchange>> Connect(const SocketExchangeOptions& options,
                                              const Clock& clock) {
  COTUNE_RETURN_IF_ERROR(CheckOptions(options));
  COTUNE_RETURN_IF_ERROR(GuardForks());
  JobIdentity job{options.world_size, options.job_id, options.code_version};
  std::unique_ptr<CoordinatorServer> server;
  if (options.rank == 0) {
    COTUNE_TRY(auto started,
               CoordinatorServer::Start({{job, options.heartbeat_interval_ns,
                                          options.heartbeat_timeout_ns, options.missing_ranks_hint},
                                         options.socket_path,
                                         options.deadline_ns,
                                         kLingerNs,
                                         options.log},
                                        clock));
    server = std::move(started);
  }
  std::optional<PublishedAddress> published;
  COTUNE_TRY(ReachedRankZero reached, Reach(options, clock, published));
  job.job_id = std::move(reached.job_id);
  auto link = SocketLink::Make(
      {job, options.rank, options.heartbeat_interval_ns, options.heartbeat_timeout_ns},
      std::move(reached.socket), std::move(server), clock, options.on_loss);
  COTUNE_RETURN_IF_ERROR(link);
  COTUNE_RETURN_IF_ERROR((*link)->Call(JoinAsked{0, options.deadline_ns}));
  return MakeJobExchange(*std::move(link), options.rank, options.world_size);
}

}  // namespace

Result<std::unique_ptr<RankExchange>> ConnectSocketExchange(const SocketExchangeOptions& options,
                                                            const Clock& clock) {
  Result<std::unique_ptr<RankExchange>> exchange = Connect(options, clock);
  if (exchange) return exchange;
  return tl::make_unexpected(WithHint(exchange.error(), options.missing_ranks_hint));
}

}  // namespace cotune::sync
