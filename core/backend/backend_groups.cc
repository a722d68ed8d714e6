#include "core/backend/backend_groups.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "core/backend/connections.h"
#include "core/backend/version_text.h"
#include "core/base/clock.h"
#include "core/base/signal_stack.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Ranks fail to join at the group's deadline; their reasons still have to get to the others.
constexpr int64_t kReasonsNs = 10'000'000'000;

std::string NameIn(const std::string& identity) { return identity.substr(0, identity.find(' ')); }

const std::vector<std::string>& Identities(const BackendList& list, bool for_parts) {
  return for_parts ? list.part_identities : list.identities;
}

// The backends that any rank has, each once, as the first rank that has it has it. Those of rank 0
// come first: its order is that of the groups.
std::vector<std::pair<size_t, std::string>> IdentitiesOnAny(
    const ExchangedRecords<BackendList>& all, bool for_parts) {
  std::vector<std::pair<size_t, std::string>> identities;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    for (const std::string& item : Identities(all.records[rank].message, for_parts)) {
      const bool is_known =
          std::any_of(identities.begin(), identities.end(),
                      [&](const auto& known) { return NameIn(known.second) == NameIn(item); });
      if (!is_known) identities.emplace_back(rank, item);
    }
  }
  return identities;
}

// Which ranks have the backend in another form than `owner`, or not at all; "" when all have it
// alike.
std::string WhyNotOnAll(size_t owner, const std::string& identity,
                        const ExchangedRecords<BackendList>& all, bool for_parts) {
  std::string others;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    const auto& items = Identities(all.records[rank].message, for_parts);
    if (std::find(items.begin(), items.end(), identity) != items.end()) continue;
    const auto other = std::find_if(items.begin(), items.end(), [&](const std::string& item) {
      return NameIn(item) == NameIn(identity);
    });
    others += fmt::format(", rank {} {}", all.job_ranks[rank],
                          other == items.end() ? "does not" : fmt::format("has '{}'", *other));
  }
  return others.empty() ? ""
                        : fmt::format("rank {} has '{}'{}", all.job_ranks[owner], identity, others);
}

// Keeps the backends that all ranks have alike, in the order of rank 0; the others are
// refused.
std::vector<Backend*> OnAllRanks(const std::vector<Backend*>& backends,
                                 const ExchangedRecords<BackendList>& all, bool for_parts,
                                 std::vector<Refusal>& refusals) {
  std::vector<Backend*> on_all;
  for (const auto& [owner, identity] : IdentitiesOnAny(all, for_parts)) {
    const std::string name = NameIn(identity);
    if (std::string why = WhyNotOnAll(owner, identity, all, for_parts); !why.empty()) {
      refusals.push_back({for_parts ? name + ", for parts of programs" : name, std::move(why)});
      continue;
    }
    on_all.push_back(*std::find_if(backends.begin(), backends.end(),
                                   [&](Backend* backend) { return backend->name() == name; }));
  }
  return on_all;
}

}  // namespace

std::string BackendGroups::IdentityOf(const Backend& backend) const {
  std::string identity = fmt::format("{} {}", backend.name(), VersionText(backend));
  const auto build = options_.builds.find(backend.name());
  if (build != options_.builds.end()) identity += " build " + build->second;
  const auto set = options_.settings.find(backend.name());
  if (set != options_.settings.end()) identity += " " + set->second;
  if (options_.numerics == NumericsRule::kSame) identity += " numerics=same";
  return identity;
}

void BackendGroups::set_numerics(NumericsRule numerics) {
  options_.numerics = numerics;
  program_support_.rounds_values = numerics == NumericsRule::kSame;
}

Result<std::unique_ptr<BackendGroups>> BackendGroups::Create(const std::vector<Backend*>& backends,
                                                             RankExchange& exchange,
                                                             const Clock& clock,
                                                             const Options& options) {
  std::unique_ptr<BackendGroups> groups(new BackendGroups(exchange, options));
  // First the ranks learn which backends all of them have: a group of one that a rank lacks would
  // wait for it in vain.
  StepRecord<BackendList> record;
  record.message.deadline_left_ns = options.deadline_ns - clock.now_ns();
  for (Backend* backend : backends) {
    record.message.identities.push_back(groups->IdentityOf(*backend));
  }
  for (Backend* backend : options.part_backends) {
    record.message.part_identities.push_back(groups->IdentityOf(*backend));
  }
  COTUNE_TRY(ExchangedRecords<BackendList> all,
             ExchangeRecords(exchange, "backends", record, 0, options.deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  for (Backend* backend : OnAllRanks(backends, all, false, groups->refusals_)) {
    groups->members_.push_back(BackendMember{backend, nullptr, 0});
    groups->ConsiderForParts(*backend);
  }
  for (Backend* backend : OnAllRanks(options.part_backends, all, true, groups->refusals_)) {
    groups->ConsiderForParts(*backend);
  }
  // One deadline for all: ranks that came here at different times must not leave at different ones.
  int64_t left_ns = record.message.deadline_left_ns;
  for (const auto& other : all.records) {
    left_ns = std::max(left_ns, other.message.deadline_left_ns);
  }
  const int64_t deadline_ns = DeadlineAfter(clock.now_ns(), left_ns);
  for (BackendMember& member : groups->members_) {
    COTUNE_RETURN_IF_ERROR(groups->CreateMemberGroup(member, deadline_ns));
  }
  std::erase_if(groups->members_,
                [](const BackendMember& member) { return member.group == nullptr; });
  return groups;
}

void BackendGroups::ConsiderForParts(Backend& backend) {
  if (part_backend_ == nullptr && backend.has_parts()) part_backend_ = &backend;
}

GroupParameters BackendGroups::ParametersOf(const BackendMember& member,
                                            int64_t deadline_ns) const {
  GroupParameters parameters;
  parameters.name =
      fmt::format("{}/{}/{}", options_.name, member.backend->name(), member.generation);
  parameters.rank = exchange_.rank();
  parameters.job_ranks = options_.job_ranks;
  parameters.host_of_rank = options_.host_of_rank;
  parameters.device = options_.device;
  parameters.deadline_ns = deadline_ns;
  return parameters;
}

Status BackendGroups::CreateMemberGroup(BackendMember& member, int64_t deadline_ns) {
  const GroupParameters parameters = ParametersOf(member, deadline_ns);
  const auto free_bytes = [this] {
    return options_.free_device_bytes ? options_.free_device_bytes() : std::nullopt;
  };
  const std::optional<uint64_t> free_before = free_bytes();
  Result<std::unique_ptr<BackendGroup>> group = member.backend->CreateGroup(parameters);
  const std::optional<uint64_t> free_behind = free_bytes();
  StepRecord<GroupOfRank> record;
  if (group) {
    record.message.connections = (*group)->Connections();
  } else {
    record = StepRecord<GroupOfRank>::FromStatus(Propagate(group));
  }
  COTUNE_TRY(ExchangedRecords<GroupOfRank> all,
             ExchangeRecords(exchange_, "group " + parameters.name, record, 0,
                             DeadlineAfter(deadline_ns, kReasonsNs)));
  if (const std::optional<Error> failure = all.FirstFailure()) {
    refusals_.push_back({member.backend->name(), "its group could not be made: " + failure->what});
    return {};
  }
  member.group_bytes.reset();
  // Another process may have given memory back meanwhile.
  if (free_before && free_behind && *free_behind <= *free_before) {
    member.group_bytes = *free_before - *free_behind;
  }
  std::vector<std::vector<std::string>> connections;
  for (auto& each : all.records) connections.push_back(std::move(each.message.connections));
  member.connections = ConnectionsText(connections);
  SetGroup(member, std::move(*group));
  return {};
}

void BackendGroups::SetGroup(BackendMember& member, std::unique_ptr<BackendGroup> group) {
  const std::lock_guard lock(abort_mutex_);
  member.group = std::move(group);
}

void BackendGroups::DropGroup(BackendMember& member) {
  std::unique_ptr<BackendGroup> dropped;
  {
    std::unique_lock lock(abort_mutex_);
    dropped = std::move(member.group);
    aborted_.wait(lock, [this] { return aborts_under_way_ == 0; });
  }
}

uint64_t BackendGroups::GroupBytes() const {
  uint64_t bytes = 0;
  for (const BackendMember& member : members_) {
    if (member.group != nullptr) bytes += member.group_bytes.value_or(0);
  }
  return bytes;
}

BackendMember* BackendGroups::Find(std::string_view backend_name) {
  for (BackendMember& member : members_) {
    if (member.backend->name() == backend_name) return &member;
  }
  return nullptr;
}

Status BackendGroups::Recreate(BackendMember& member, int64_t deadline_ns) {
  if (member.group != nullptr) member.group->Abort();
  DropGroup(member);
  ++member.generation;
  if (Status created = CreateMemberGroup(member, deadline_ns); !created) return created;
  const std::string& name = member.backend->name();
  for (RegisteredRange& range : registered_) {
    if (range.is_hidden) std::erase(range.backends, name);  // the old group had it
    if (member.group == nullptr) continue;
    const auto had = std::find(range.backends.begin(), range.backends.end(), name);
    if (had == range.backends.end()) continue;
    COTUNE_TRY(const Status registered,
               RegisterWith(member, range.begin, range.bytes, deadline_ns));
    if (registered) continue;
    range.backends.erase(had);
    refusals_.push_back(
        {name, "its memory could not be registered again: " + registered.error().ToText()});
    DropGroup(member);
  }
  return {};
}

Result<Status> BackendGroups::RegisterWith(BackendMember& member, void* data, uint64_t bytes,
                                           int64_t deadline_ns) {
  const Status own = member.group->RegisterMemory(data, bytes, deadline_ns);
  Result<ExchangedRecords<Done>> all =
      ExchangeRecords(exchange_, "register with " + member.backend->name(),
                      StepRecord<Done>::FromStatus(own), 0, DeadlineAfter(deadline_ns, kReasonsNs));
  std::optional<Error> failure;
  if (all) failure = all->FirstFailure();
  if (own && (!all || failure)) member.group->UnregisterMemory(data);
  COTUNE_RETURN_IF_ERROR(all);
  if (failure) return Status(tl::make_unexpected(std::move(*failure)));
  return Status();
}

Status BackendGroups::RegisterMemory(const Status& own, void* data, uint64_t bytes,
                                     int64_t deadline_ns) {
  auto* begin = static_cast<std::byte*>(data);
  const auto address = reinterpret_cast<uintptr_t>(data);
  Status ready = own;
  if (ready && bytes > UINTPTR_MAX - address) {
    ready = Fail(ErrorCode::kUsage, fmt::format("{} bytes are more than there can be", bytes));
  }
  for (const RegisteredRange& range : registered_) {
    const auto other = reinterpret_cast<uintptr_t>(range.begin);
    const bool is_apart =
        address < other ? bytes <= other - address : range.bytes <= address - other;
    if (ready && !is_apart) {
      ready = Fail(ErrorCode::kUsage, "some of this memory is registered already");
    }
  }
  auto record = StepRecord<MemoryToRegister>::FromStatus(ready);
  record.message.bytes = bytes;
  COTUNE_TRY(const ExchangedRecords<MemoryToRegister> all,
             ExchangeRecords(exchange_, "register memory", record, 0, deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) return tl::make_unexpected(*failure);
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    if (all.records[rank].message == all.records[0].message) continue;
    return Fail(ErrorCode::kUsage,
                fmt::format("rank {} registers {} bytes, rank {} registers {}", all.job_ranks[0],
                            all.records[0].message.bytes, all.job_ranks[rank],
                            all.records[rank].message.bytes),
                "", "", "register the same number of bytes on every rank");
  }
  registered_.push_back(RegisteredRange{begin, bytes, {}});
  std::string reasons;
  Status failed;
  for (BackendMember& member : members_) {
    if (member.group == nullptr) continue;
    const Result<Status> registered = RegisterWith(member, data, bytes, deadline_ns);
    failed = registered ? *registered : Propagate(registered);
    if (failed) {
      registered_.back().backends.push_back(member.backend->name());
      continue;
    }
    const ErrorCode code = failed.error().code;
    if (!registered || (code != ErrorCode::kUnsupported && code != ErrorCode::kUsage)) break;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", member.backend->name(),
                           failed.error().ToText());
    failed = {};
  }
  if (failed && registered_.back().backends.empty()) {
    failed = Fail(ErrorCode::kUnsupported, "no backend takes registered memory", "",
                  std::move(reasons), "use plain buffers");
  }
  if (!failed) UnregisterMemory(data);
  return failed;
}

void BackendGroups::UnregisterMemory(void* data) {
  const auto found =
      std::find_if(registered_.begin(), registered_.end(),
                   [&](const RegisteredRange& range) { return range.begin == data; });
  if (found == registered_.end()) return;
  for (const std::string& name : found->backends) {
    BackendMember* member = Find(name);
    if (member != nullptr && member->group != nullptr) member->group->UnregisterMemory(data);
  }
  registered_.erase(found);
}

void BackendGroups::HideMemory(void* data) {
  for (RegisteredRange& range : registered_) {
    if (range.begin == data) range.is_hidden = true;
  }
}

bool BackendGroups::IsRegistered(const void* data, uint64_t bytes, std::string_view backend) const {
  const auto* begin = static_cast<const std::byte*>(data);
  return std::any_of(registered_.begin(), registered_.end(), [&](const RegisteredRange& range) {
    const bool holds = begin >= range.begin && bytes <= range.bytes &&
                       static_cast<uint64_t>(begin - range.begin) <= range.bytes - bytes;
    return holds && !range.is_hidden &&
           (backend.empty() || std::find(range.backends.begin(), range.backends.end(), backend) !=
                                   range.backends.end());
  });
}

void BackendGroups::AbortAll() {
  std::vector<BackendGroup*> groups;
  {
    const std::lock_guard lock(abort_mutex_);
    for (const BackendMember& member : members_) {
      if (member.group != nullptr) groups.push_back(member.group.get());
    }
    ++aborts_under_way_;
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    BackendGroup* const group = groups[i];
    if (i + 1 == groups.size()) {
      group->Abort();
      break;
    }
    try {
      threads.emplace_back([group] {
        const SignalStack handler_stack;
        group->Abort();
      });
    } catch (const std::system_error&) {
      group->Abort();  // there is no thread to be had: one after the other
    }
  }
  for (std::thread& thread : threads) thread.join();
  {
    const std::lock_guard lock(abort_mutex_);
    --aborts_under_way_;
  }
  aborted_.notify_all();
}

}  // namespace cotune
