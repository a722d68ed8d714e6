#include "core/backend_groups.h"

#include <algorithm>

#include "core/step_record.h"
#include "fmt/format.h"

namespace cotune {

Result<std::unique_ptr<BackendGroups>> BackendGroups::Create(std::vector<Backend*> backends,
                                                             RankExchange& exchange,
                                                             const Options& options) {
  std::unique_ptr<BackendGroups> groups(new BackendGroups(exchange, options));
  // First the ranks learn which backends all of them have: a group of one that a rank lacks would
  // wait for it in vain.
  StepRecord record;
  for (Backend* backend : backends) {
    record.items.push_back(backend->name() + " " + backend->version());
  }
  Result<ExchangedRecords> all =
      ExchangeRecords(exchange, "backends", record, 0, options.deadline_ns);
  if (!all) return tl::make_unexpected(all.error());
  for (const std::string& item : all->records[0].items) {
    const std::string name = item.substr(0, item.find(' '));
    std::string lacking;
    for (size_t rank = 0; rank < all->records.size(); ++rank) {
      const auto& items = all->records[rank].items;
      if (std::find(items.begin(), items.end(), item) == items.end()) {
        lacking += fmt::format("{}{}", lacking.empty() ? "" : ", ", rank);
      }
    }
    if (!lacking.empty()) {
      groups->refusals_.push_back(
          {name, fmt::format("rank 0 has '{}', rank {} does not have it in this version", item,
                             lacking)});
      continue;
    }
    const auto own = std::find_if(backends.begin(), backends.end(),
                                  [&](Backend* backend) { return backend->name() == name; });
    groups->members_.push_back(BackendMember{*own, nullptr, 0});
  }
  for (BackendMember& member : groups->members_) {
    if (Status created = groups->CreateMemberGroup(member, options.deadline_ns); !created) {
      return tl::make_unexpected(created.error());
    }
  }
  std::erase_if(groups->members_,
                [](const BackendMember& member) { return member.group == nullptr; });
  return groups;
}

Status BackendGroups::CreateMemberGroup(BackendMember& member, int64_t deadline_ns) {
  GroupParameters parameters;
  parameters.name =
      fmt::format("{}/{}/{}", options_.name, member.backend->name(), member.generation);
  parameters.rank = exchange_.rank();
  parameters.job_ranks = options_.job_ranks;
  parameters.device = options_.device;
  parameters.deadline_ns = deadline_ns;
  Result<std::unique_ptr<BackendGroup>> group = member.backend->CreateGroup(parameters);
  StepRecord record;
  if (!group) record = StepRecord::FromStatus(tl::make_unexpected(group.error()));
  Result<ExchangedRecords> all =
      ExchangeRecords(exchange_, "group " + parameters.name, record, 0, deadline_ns);
  if (!all) return tl::make_unexpected(all.error());
  if (const std::optional<Error> failure = all->FirstFailure()) {
    refusals_.push_back({member.backend->name(), "its group could not be made: " + failure->what});
    return {};
  }
  member.group = std::move(*group);
  return {};
}

BackendMember* BackendGroups::Find(std::string_view backend_name) {
  for (BackendMember& member : members_) {
    if (member.backend->name() == backend_name) return &member;
  }
  return nullptr;
}

Status BackendGroups::Recreate(BackendMember& member, int64_t deadline_ns) {
  if (member.group != nullptr) member.group->Abort();
  member.group.reset();
  ++member.generation;
  return CreateMemberGroup(member, deadline_ns);
}

void BackendGroups::AbortAll() {
  for (BackendMember& member : members_) {
    if (member.group != nullptr) member.group->Abort();
  }
}

}  // namespace cotune
