#include "plugins/loader/choice_listing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tl/expected.hpp"

namespace cotune {
namespace {

constexpr uint32_t kFirstCapacity = 64;
constexpr uint32_t kCapacityMax = 4096;

// The loader passes the codes of core on as they are.
constexpr bool HasCode(Collective collective, int code) {
  return static_cast<int>(collective) == code;
}
constexpr bool HasCode(Reduction reduction, int code) {
  return static_cast<int>(reduction) == code;
}
static_assert(HasCode(Collective::kAllReduce, COTUNE_ALL_REDUCE) &&
              HasCode(Collective::kAllGather, COTUNE_ALL_GATHER) &&
              HasCode(Collective::kReduceScatter, COTUNE_REDUCE_SCATTER) &&
              HasCode(Collective::kAllToAll, COTUNE_ALL_TO_ALL) &&
              HasCode(Collective::kBroadcast, COTUNE_BROADCAST));
static_assert(HasCode(Reduction::kNone, COTUNE_REDUCTION_NONE) &&
              HasCode(Reduction::kSum, COTUNE_SUM) &&
              HasCode(Reduction::kProduct, COTUNE_PRODUCT) &&
              HasCode(Reduction::kMin, COTUNE_MIN) && HasCode(Reduction::kMax, COTUNE_MAX) &&
              HasCode(Reduction::kAverage, COTUNE_AVERAGE));

}  // namespace

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
    case Dtype::kI8:
      return {COTUNE_DTYPE_INT, bits, 1};
    case Dtype::kU8:
      return {COTUNE_DTYPE_UINT, bits, 1};
    case Dtype::kF8E4M3:
      return {COTUNE_DTYPE_FLOAT8_E4M3FN, bits, 1};
    case Dtype::kF8E5M2:
      return {COTUNE_DTYPE_FLOAT8_E5M2, bits, 1};
  }
  return {};
}

namespace {

std::string FixedText(const char* text, size_t capacity) {
  return std::string(text, strnlen(text, capacity));
}

// Size of an entry of version 1.0: the least that a plugin writes.
constexpr size_t kEntryBytesMin =
    offsetof(cotune_choice_t, reason) + sizeof(cotune_choice_t::reason);

// "" for a plugin of an older minor version, whose entries end before the field.
std::string NumericsOf(const cotune_choice_t& entry) {
  if (!COTUNE_HAS_FIELD(cotune_choice_t, &entry, numerics)) return "";
  return FixedText(entry.numerics, sizeof(entry.numerics));
}

// What is wrong with the text of a numerics class; "": nothing.
std::string WhyBadNumerics(std::string_view numerics) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  if (numerics.size() == sizeof(cotune_choice_t::numerics)) {
    return "the text of its numerics class does not end with NUL";
  }
  const size_t bad = numerics.find_first_not_of(kLetters);
  if (bad == std::string_view::npos) return "";
  return fmt::format("byte {:#04x} in the text of its numerics class is none of [a-z0-9_.]",
                     static_cast<unsigned char>(numerics[bad]));
}

Choice ToChoice(ChoiceId id, const cotune_choice_t& entry) {
  Choice choice{.id = std::move(id)};
  choice.is_default = (entry.flags & COTUNE_CHOICE_DEFAULT) != 0;
  choice.is_capturable = (entry.flags & COTUNE_CHOICE_CAPTURABLE) != 0;
  choice.is_reproducible = (entry.flags & COTUNE_CHOICE_REPRODUCIBLE) != 0;
  choice.prepare_is_collective = (entry.flags & COTUNE_CHOICE_COLLECTIVE_PREPARE) != 0;
  choice.fits_any_region = (entry.flags & COTUNE_CHOICE_FITS_ANY_REGION) != 0;
  choice.cost_us = entry.cost_us >= 0 ? entry.cost_us : -1;  // not a number: no estimate
  choice.workspace_bytes = entry.workspace_bytes;
  choice.numerics = NumericsOf(entry);
  return choice;
}

// Reads one entry into the list; `names` are those seen before.
void TakeEntry(const std::string& backend, const cotune_choice_t& entry,
               std::set<std::string>& names, ChoiceList& list) {
  if (entry.struct_size < kEntryBytesMin) {
    list.refusals.push_back(
        {backend, fmt::format("its plugin lists a choice of {} bytes, version 1.0 has {}",
                              entry.struct_size, kEntryBytesMin)});
    return;
  }
  const std::string name = FixedText(entry.name, sizeof(entry.name));
  const Result<ChoiceId> id = ChoiceId::FromBackend(backend, name);
  if (name.size() == sizeof(entry.name) || !id) {
    list.refusals.push_back(
        {backend, fmt::format("its plugin lists a choice without a proper name: {}",
                              name.size() == sizeof(entry.name) ? "it does not end with NUL"
                                                                : id.error().ToText())});
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
  if (const std::string wrong = WhyBadNumerics(NumericsOf(entry)); !wrong.empty()) {
    list.refusals.push_back({id->text(), wrong});
    return;
  }
  list.choices.push_back(ToChoice(*id, entry));
}

// The first choice that is marked stays the default, the others are refused; without a mark it is
// the first choice.
void KeepOneDefault(ChoiceList& list) {
  if (list.choices.empty()) return;
  const auto is_default = [](const Choice& choice) { return choice.is_default; };
  const auto first = std::find_if(list.choices.begin(), list.choices.end(), is_default);
  if (first == list.choices.end()) {
    list.choices.front().is_default = true;
    return;
  }
  const std::string kept = first->id.text();
  const auto is_second = [&](const Choice& choice) {
    return choice.is_default && choice.id.text() != kept;
  };
  for (const Choice& choice : list.choices) {
    if (!is_second(choice)) continue;
    list.refusals.push_back(
        {choice.id.text(), fmt::format("its plugin marks two defaults, {} is the first", kept)});
  }
  std::erase_if(list.choices, is_second);
}

// A list_choices of the plugin with what it lists the choices of: (first entry, capacity, count,
// error). The stride is that of an array.
using ListCall =
    std::function<cotune_status_t(cotune_choice_t*, uint32_t, uint32_t*, cotune_error_t*)>;

// Asks for the entries; an error says why there are none.
tl::expected<std::vector<cotune_choice_t>, std::string> ReadEntries(const ListCall& list_choices) {
  std::vector<cotune_choice_t> entries;
  uint32_t capacity = kFirstCapacity;
  // The list is a pure function of its problem: its length is known after one call.
  for (int call = 1; call <= 2; ++call) {
    cotune_choice_t empty{};
    empty.struct_size = sizeof(empty);
    entries.assign(capacity, empty);
    cotune_error_t error{};
    error.struct_size = sizeof(error);
    uint32_t count = 0;
    const cotune_status_t status = list_choices(entries.data(), capacity, &count, &error);
    if (status != COTUNE_OK) {
      const std::string reason = FixedText(error.message, sizeof(error.message));
      return tl::make_unexpected(
          reason.empty() ? fmt::format("list_choices gave status {} without a reason", status)
                         : reason);
    }
    if (count <= capacity) {
      entries.resize(count);
      return entries;
    }
    if (count > kCapacityMax) {
      return tl::make_unexpected(
          fmt::format("its plugin lists {} choices, {} are the most", count, kCapacityMax));
    }
    if (call == 2) {
      return tl::make_unexpected(fmt::format(
          "its plugin lists {} choices, then {} for the same problem", capacity, count));
    }
    capacity = count;
  }
  return entries;
}

// Checks the entries that a list_choices of the backend `name` gives.
ChoiceList CheckedList(const std::string& name, const ListCall& list_choices) {
  ChoiceList list;
  const auto entries = ReadEntries(list_choices);
  if (!entries) {
    list.refusals.push_back({name, entries.error()});
    return list;
  }
  std::set<std::string> names;
  for (const cotune_choice_t& entry : *entries) TakeEntry(name, entry, names, list);
  KeepOneDefault(list);
  return list;
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
  return CheckedList(table.name, [&](cotune_choice_t* first, uint32_t capacity, uint32_t* count,
                                     cotune_error_t* error) {
    return table.list_choices(backend, &abi, first, sizeof(*first), capacity, count, error);
  });
}

ChoiceList ListExtensionChoices(const std::string& name, const cotune_program_v1_t& extension,
                                const cotune_backend_t* backend, const cotune_program_t& region) {
  return CheckedList(name, [&](cotune_choice_t* first, uint32_t capacity, uint32_t* count,
                               cotune_error_t* error) {
    return extension.list_choices(backend, &region, first, sizeof(*first), capacity, count, error);
  });
}

}  // namespace cotune
