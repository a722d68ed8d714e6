#include "core/ranks/places.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/ranks/step_record.h"

namespace cotune {
namespace {

// Numbers equal keys alike, from 0, in the order in which they first come.
template <typename Keys>
std::vector<int32_t> NumberByFirstAppearance(const Keys& keys) {
  std::map<typename Keys::value_type, int32_t> numbers;
  std::vector<int32_t> numbered;
  for (const auto& key : keys) {
    const auto next = static_cast<int32_t>(numbers.size());
    numbered.push_back(numbers.try_emplace(key, next).first->second);
  }
  return numbered;
}

}  // namespace

Places Places::OneHost(int world_size) {
  return Places(std::vector<int32_t>(static_cast<size_t>(world_size), 0));
}

Places Places::Of(std::span<const std::string> identities) {
  return Places(
      NumberByFirstAppearance(std::vector<std::string>(identities.begin(), identities.end())));
}

int Places::host_count() const {
  if (host_of_rank_.empty()) return 0;
  return *std::max_element(host_of_rank_.begin(), host_of_rank_.end()) + 1;
}

int Places::ranks_on_host(int rank) const {
  const int32_t host = host_of_rank_[static_cast<size_t>(rank)];
  return static_cast<int>(std::count(host_of_rank_.begin(), host_of_rank_.end(), host));
}

int Places::ranks_per_host() const {
  if (host_of_rank_.empty()) return 0;
  const int first = ranks_on_host(0);
  for (int rank = 1; rank < world_size(); ++rank) {
    if (ranks_on_host(rank) != first) return 0;
  }
  return first;
}

Places Places::OfRanks(std::span<const int> ranks) const {
  std::vector<int32_t> hosts;
  for (const int rank : ranks) hosts.push_back(host_of_rank_[static_cast<size_t>(rank)]);
  return Places(NumberByFirstAppearance(hosts));
}

Result<Places> ExchangePlaces(RankExchange& exchange, std::string_view host_identity,
                              int64_t deadline_ns) {
  StepRecord<HostOfRank> record;
  record.message.identity = host_identity;
  if (host_identity.empty()) {
    record = StepRecord<HostOfRank>::FromStatus(
        Fail(ErrorCode::kEnvironment, "this host has no identity", "the rendezvous",
             "/proc/sys/kernel/random/boot_id cannot be read",
             "mount /proc, or give JobOptions.host_identity"));
  }
  COTUNE_TRY(const ExchangedRecords<HostOfRank> all,
             ExchangeRecords(exchange, "places", record, 0, deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::vector<std::string> identities;
  for (const auto& each : all.records) identities.push_back(each.message.identity);
  return Places::Of(identities);
}

}  // namespace cotune
