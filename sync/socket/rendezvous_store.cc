#include "sync/socket/rendezvous_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/boot_id.h"
#include "sync/socket/unix_socket.h"
#include "sync/wire/failure_text.h"

namespace cotune::sync {
namespace {

constexpr std::string_view kMagic = "cotune-rank-0 1";

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Between two looks at a store whose address leads nowhere.
int64_t PauseNs(int attempt) {
  constexpr int64_t kFirstNs = 2'000'000;
  constexpr int64_t kLastNs = 200'000'000;
  return std::min(kFirstNs << std::min(attempt, 10), kLastNs);
}

Error NoAddress(const RendezvousStore& store, int rank) {
  return RankLost(fmt::format("rank {} found no address of rank 0 in the store", rank),
                  store.name(), "rank 0 was not started, has ended, or uses another store or key",
                  "see whether rank 0 runs, and give all ranks the same store and job id", {0});
}

Error LeadsNowhere(const RendezvousStore& store, int rank, const std::string& why) {
  return RankLost(
      fmt::format("rank {} found only an address of rank 0 that leads nowhere", rank), store.name(),
      why + "; it may be a leftover of an earlier attempt whose rank 0 has not come again",
      "see whether rank 0 runs on this host, and give each attempt a job id of its own", {0});
}

Error Foreign(const RendezvousStore& store, std::string_view value) {
  constexpr size_t kShown = 32;
  return Error{ErrorCode::kEnvironment,
               fmt::format("the store holds {} bytes that no rank 0 of this version has put: {}{}",
                           value.size(), Quoted(std::string(value.substr(0, kShown))),
                           value.size() > kShown ? "..." : ""),
               store.name(),
               "another program uses the key, the store mixes up its keys, or rank 0 runs another "
               "version of cotune",
               "give the job a store, a prefix or a job id of its own, and every rank one version",
               {}};
}

}  // namespace

std::string RankZeroAddress::ToText() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}", kMagic, boot_id, host, socket_path, job_id);
}

std::optional<RankZeroAddress> RankZeroAddress::Parse(std::string_view text) {
  std::array<std::string, 4> lines;
  for (std::string& line : lines) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  auto& [magic, boot_id, host, socket_path] = lines;
  if (magic != kMagic || socket_path.empty()) return std::nullopt;
  return RankZeroAddress{std::move(boot_id), std::move(host), std::move(socket_path),
                         std::string(text)};
}

RankZeroAddress AddressHere(const std::string& socket_path, const std::string& job_id) {
  return {BootId(), HostName(), socket_path, job_id};
}

Result<ReachedRankZero> ReachRankZero(RendezvousStore& store, int rank, const Clock& clock,
                                      int64_t deadline_ns) {
  const std::string boot_id = BootId();
  std::string why_not;
  for (int attempt = 0;; ++attempt) {
    COTUNE_TRY(const std::optional<std::string> value, store.Get(deadline_ns));
    if (!value) {
      return tl::make_unexpected(why_not.empty() ? NoAddress(store, rank)
                                                 : LeadsNowhere(store, rank, why_not));
    }
    std::optional<RankZeroAddress> address = RankZeroAddress::Parse(*value);
    if (!address) return tl::make_unexpected(Foreign(store, *value));
    if (address->boot_id == boot_id) {
      // One attempt: rank 0 listens before it puts its address.
      Result<HomeFd> socket = ConnectTo(address->socket_path, rank, clock, clock.now_ns());
      if (socket) return ReachedRankZero{std::move(*socket), std::move(address->job_id)};
      if (socket.error().code != ErrorCode::kRankLost) {
        return Propagate(socket);
      }
      why_not = fmt::format("nobody listens at {}", address->socket_path);
    } else {
      why_not = fmt::format("it is on host {} (boot {}), this rank on {} (boot {})", address->host,
                            address->boot_id, HostName(), boot_id);
    }
    const int64_t left_ns = deadline_ns - clock.now_ns();
    if (left_ns <= 0) return tl::make_unexpected(LeadsNowhere(store, rank, why_not));
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(PauseNs(attempt), left_ns)));
  }
}

}  // namespace cotune::sync
