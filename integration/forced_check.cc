#include "integration/forced_check.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/nearest_name.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr uint64_t kCountMax = uint64_t{1} << 30;
// A program with the setting may have groups of other sizes as well.
constexpr int32_t kOtherWorldSizes[] = {2, 4, 8};

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Forced(Collective collective, const ChoiceId& id) {
  return fmt::format("{} cannot run {}", id.text(), Name(collective));
}

tl::unexpected<Error> NotInUse(Collective collective, const ChoiceId& id,
                               const ForcedCheck& check) {
  const std::string_view backend = id.backend();
  std::string cause = fmt::format("backend {} is not in use here", backend);
  for (const Refusal& refusal : check.refusals) {
    if (refusal.choice == backend) cause += fmt::format(" ({})", refusal.reason);
  }
  const std::vector<std::string_view> in_use(check.backends.begin(), check.backends.end());
  const bool is_known = Contains(check.known_backends, backend);
  std::string next_step = is_known ? "see `cotune plugin list` for the reason, or force a choice "
                                     "of a backend that is in use"
                                   : "force a choice of a backend that is in use";
  return Fail(ErrorCode::kUsage, Forced(collective, id), check.origin,
              fmt::format("{}; {}", cause, KnownNamesText(backend, in_use)), std::move(next_step));
}

// Looks for a choice among the lists of all calls of its collective, and keeps the names that it
// sees on its way.
class Search {
 public:
  Search(Collective collective, const ChoiceId& id, const ForcedCheck& check)
      : id_(id), check_(check), cls_(check.cls) {
    cls_.collective = collective;
  }

  bool Finds() {
    std::vector<int32_t> world_sizes = {cls_.world_size};
    for (const int32_t other : kOtherWorldSizes) {
      if (other != cls_.world_size) world_sizes.push_back(other);
    }
    for (const int32_t world_size : world_sizes) {
      if (world_size != cls_.world_size) cls_.ranks_per_node = world_size;
      cls_.world_size = world_size;
      if (FindsInGroup()) return true;
    }
    return false;
  }
  const std::set<std::string>& seen() const { return seen_; }

 private:
  bool FindsInGroup() {
    constexpr Reduction kNoReduction[] = {Reduction::kNone};
    const std::span<const Reduction> reductions =
        Reduces(cls_.collective) ? AllReductions() : std::span<const Reduction>(kNoReduction);
    for (const BufferClass buffers : AllBufferClasses()) {
      cls_.buffer_class = buffers;
      for (const Reduction reduction : reductions) {
        cls_.reduction = reduction;
        for (const Dtype dtype : AllDtypes()) {
          cls_.dtype = dtype;
          if (FindsAtASize()) return true;
        }
      }
    }
    return false;
  }

  bool FindsAtASize() {
    for (const bool in_place : {false, true}) {
      cls_.in_place = in_place;
      const Result<Program> program = Program::SingleCollective(cls_);
      if (!program) continue;
      for (uint64_t count = 1; count <= kCountMax; count *= 2) {
        const ChoiceList list = check_.list(*program, {cls_, count, check_.topology_digest});
        for (const Choice& choice : list.choices) {
          if (choice.id == id_) return true;
          if (choice.id.backend() == id_.backend()) seen_.insert(choice.id.text());
        }
      }
    }
    return false;
  }

  const ChoiceId& id_;
  const ForcedCheck& check_;
  ProblemClass cls_;
  std::set<std::string> seen_;
};

}  // namespace

Status CheckForcedChoices(const ForcedChoices& forced, const ForcedCheck& check) {
  for (const auto& [collective, id] : forced.choices()) {
    if (!Contains(check.backends, id.backend())) return NotInUse(collective, id, check);
    Search search(collective, id, check);
    if (search.Finds()) continue;
    const std::vector<std::string_view> names(search.seen().begin(), search.seen().end());
    std::string nearest = NearestName(id.text(), names);
    // A name without its keys is far from every choice, and begins one of them.
    const auto longer = std::find_if(
        names.begin(), names.end(),
        [start = id.text() + "?"](std::string_view each) { return each.starts_with(start); });
    if (nearest.empty() && longer != names.end()) nearest = *longer;
    return Fail(
        ErrorCode::kUsage, Forced(collective, id), check.origin,
        fmt::format("backend {} lists no such choice for it at any size{}", id.backend(),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)),
        fmt::format("`cotune bench --collective {}` prints the choices by size", Name(collective)));
  }
  return {};
}

}  // namespace cotune
