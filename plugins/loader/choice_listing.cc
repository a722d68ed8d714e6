#include "plugins/loader/choice_listing.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr uint32_t kFirstCapacity = 64;
constexpr uint32_t kCapacityMax = 4096;

cotune_dtype_t ToAbi(Dtype dtype) {
  const auto bits = static_cast<uint8_t>(8 * SizeBytes(dtype));
  switch (dtype) {
    case Dtype::kF32:
    case Dtype::kF64:
    case Dtype::kF16:
      return {COTUNE_DTYPE_FLOAT, bits, 1};
    case Dtype::kBf16:
      return {COTUNE_DTYPE_BFLOAT, bits, 1};
    case Dtype::kI32:
    case Dtype::kI64:
      return {COTUNE_DTYPE_INT, bits, 1};
    case Dtype::kU8:
      return {COTUNE_DTYPE_UINT, bits, 1};
  }
  return {};
}

std::string FixedText(const char* text, size_t capacity) {
  return std::string(text, strnlen(text, capacity));
}

// Reads one entry into the list; `names` are those seen before.
void TakeEntry(const std::string& backend, const cotune_choice_t& entry,
               std::set<std::string>& names, ChoiceList& list) {
  const std::string name = FixedText(entry.name, sizeof(entry.name));
  const Result<ChoiceId> id = ChoiceId::FromBackend(backend, name);
  if (name.size() == sizeof(entry.name) || !id) {
    list.refusals.push_back(
        {backend, fmt::format("its plugin lists a choice without a proper name: {}",
                              id ? "not terminated" : id.error().ToText())});
    return;
  }
  if (!names.insert(name).second) {
    list.refusals.push_back({id->text(), "its plugin lists this name twice"});
    return;
  }
  if (entry.status != COTUNE_OK) {
    const std::string reason = FixedText(entry.reason, sizeof(entry.reason));
    list.refusals.push_back({id->text(), reason.empty() ? "refused without a reason" : reason});
    return;
  }
  constexpr uint32_t kKnownMust = COTUNE_CHOICE_COLLECTIVE_PREPARE;
  if ((entry.flags & 0xFFFF0000u & ~kKnownMust) != 0) {
    list.refusals.push_back(
        {id->text(),
         fmt::format("it has flags {:#x}, which this cotune does not know", entry.flags)});
    return;
  }
  Choice choice{*id, false, false, false, false, -1, 0, 0};
  choice.is_default = (entry.flags & COTUNE_CHOICE_DEFAULT) != 0;
  choice.is_capturable = (entry.flags & COTUNE_CHOICE_CAPTURABLE) != 0;
  choice.is_reproducible = (entry.flags & COTUNE_CHOICE_REPRODUCIBLE) != 0;
  choice.prepare_is_collective = (entry.flags & COTUNE_CHOICE_COLLECTIVE_PREPARE) != 0;
  choice.cost_us = entry.cost_us;
  choice.workspace_bytes = entry.workspace_bytes;
  list.choices.push_back(std::move(choice));
}

void KeepOneDefault(ChoiceList& list) {
  bool found = false;
  for (Choice& choice : list.choices) {
    choice.is_default = choice.is_default && !found;
    found = found || choice.is_default;
  }
  if (!found && !list.choices.empty()) list.choices.front().is_default = true;
}

}  // namespace

cotune_problem_t ToAbi(const Problem& problem) {
  cotune_problem_t abi{};
  abi.struct_size = sizeof(abi);
  abi.collective = static_cast<uint32_t>(problem.cls.collective);
  abi.reduction = static_cast<uint32_t>(problem.cls.reduction);
  abi.memory_kind = static_cast<uint32_t>(problem.cls.memory);
  abi.dtype = ToAbi(problem.cls.dtype);
  if (problem.cls.in_place) abi.flags |= COTUNE_PROBLEM_IN_PLACE;
  if (problem.cls.buffer_class == BufferClass::kSymmetric) abi.flags |= COTUNE_PROBLEM_SYMMETRIC;
  abi.count = problem.count;
  abi.bytes = problem.bytes();
  abi.world_size = problem.cls.world_size;
  abi.ranks_per_node = problem.cls.ranks_per_node;
  abi.root = problem.cls.root;
  abi.topology_digest = problem.topology_digest;
  return abi;
}

ChoiceList ListTableChoices(const cotune_backend_api_t& table, const cotune_backend_t* backend,
                            const Problem& problem) {
  const cotune_problem_t abi = ToAbi(problem);
  ChoiceList list;
  std::vector<cotune_choice_t> entries;
  uint32_t count = kFirstCapacity;
  while (count > entries.size()) {
    if (count > kCapacityMax) {
      list.refusals.push_back(
          {table.name,
           fmt::format("its plugin lists {} choices, {} are the most", count, kCapacityMax)});
      return list;
    }
    entries.assign(count, cotune_choice_t{});
    for (cotune_choice_t& entry : entries) entry.struct_size = sizeof(entry);
    cotune_error_t error{};
    error.struct_size = sizeof(error);
    const cotune_status_t status =
        table.list_choices(backend, &abi, entries.data(), sizeof(cotune_choice_t),
                           static_cast<uint32_t>(entries.size()), &count, &error);
    if (status != COTUNE_OK) {
      std::string reason = FixedText(error.message, sizeof(error.message));
      if (reason.empty())
        reason = fmt::format("list_choices gave status {} without a reason", status);
      list.refusals.push_back({table.name, reason});
      return list;
    }
  }
  std::set<std::string> names;
  for (uint32_t i = 0; i < count; ++i) TakeEntry(table.name, entries[i], names, list);
  KeepOneDefault(list);
  return list;
}

}  // namespace cotune
