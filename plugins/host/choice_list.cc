#include "plugins/host/choice_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

#include "plugins/host/algorithms.h"

namespace cotune::host {
namespace {

using Build = Schedule (*)(const Problem&, int, const SlotSize&);

// A rough price: `steps` waits in a row, and bytes that one rank moves for each byte of the
// problem.
struct Price {
  double steps = 0;
  double moves = 0;
};

struct Algorithm {
  Collective collective;
  const char* name;
  Build build;
  Price (*price)(double world_size);
  uint64_t largest_bytes;  // beyond it the algorithm cannot win and is refused; 0: no limit
  bool in_lines = false;   // small problems, in tagged lines
};

constexpr uint64_t kChunkBytes[] = {64 << 10, 256 << 10, 1 << 20};
// Choices that read other processes: the chunk only bounds how long one step takes.
constexpr uint64_t kPeerReadChunkBytes[] = {4 << 20};
constexpr uint64_t kSmallestPeerReadBytes =
    4 << 10;  // below it the system calls cost more than copies
constexpr double kReadCallSteps = 2;
// An algorithm in which every rank reads everything of every rank.
constexpr uint64_t kLargestOneShotBytes = 4 << 20;

double Rounds(double world_size) { return std::ceil(std::log2(world_size)); }

// Half a step: nothing is waited for but the data.
Price LinesPrice(double n) { return {0.5, n + 2}; }

constexpr Algorithm kAlgorithms[] = {
    {Collective::kAllReduce, "one_shot", ScheduleAllReduceOneShot,
     [](double n) {
       return Price{1, n + 2};
     },
     kLargestOneShotBytes},
    {Collective::kAllReduce, "one_shot", ScheduleAllReduceLines, LinesPrice, 0, true},
    {Collective::kAllGather, "direct", ScheduleAllGatherLines, LinesPrice, 0, true},
    {Collective::kReduceScatter, "direct", ScheduleReduceScatterLines, LinesPrice, 0, true},
    {Collective::kAllToAll, "direct", ScheduleAllToAllLines, LinesPrice, 0, true},
    {Collective::kBroadcast, "flat", ScheduleBroadcastLines, LinesPrice, 0, true},
    {Collective::kAllReduce, "two_shot", ScheduleAllReduceTwoShot,
     [](double n) {
       return Price{2, 3 + 3 * (n - 1) / n};
     },
     0},
    {Collective::kAllReduce, "ring", ScheduleAllReduceRing,
     [](double n) {
       return Price{2 * (n - 1), 6 * (n - 1) / n};
     },
     0},
    {Collective::kAllReduce, "tree", ScheduleAllReduceTree,
     [](double n) {
       return Price{2 * Rounds(n), 3 * Rounds(n) + 2};
     },
     0},
    {Collective::kAllGather, "direct", ScheduleAllGatherDirect,
     [](double n) {
       return Price{1, 2 + 2 / n};
     },
     0},
    {Collective::kAllGather, "ring", ScheduleAllGatherRing,
     [](double n) {
       return Price{n - 1, 3};
     },
     0},
    {Collective::kAllGather, "peer_read", ScheduleAllGatherPeerRead,
     [](double n) {
       return Price{2 + kReadCallSteps * (n - 1), 2};
     },
     0},
    {Collective::kReduceScatter, "direct", ScheduleReduceScatterDirect,
     [](double n) {
       return Price{1, 3 + 1 / n};
     },
     0},
    {Collective::kReduceScatter, "ring", ScheduleReduceScatterRing,
     [](double n) {
       return Price{n - 1, 3};
     },
     0},
    {Collective::kAllToAll, "direct", ScheduleAllToAllDirect,
     [](double) {
       return Price{1, 4};
     },
     0},
    {Collective::kAllToAll, "pairwise", ScheduleAllToAllPairwise,
     [](double n) {
       return Price{n - 1, 4};
     },
     0},
    {Collective::kAllToAll, "peer_read", ScheduleAllToAllPeerRead,
     [](double n) {
       return Price{2 + kReadCallSteps * (n - 1), 2};
     },
     0},
    {Collective::kBroadcast, "flat", ScheduleBroadcastFlat,
     [](double) {
       return Price{1, 4};
     },
     0},
    {Collective::kBroadcast, "tree", ScheduleBroadcastTree,
     [](double n) {
       return Price{Rounds(n), 4.5};
     },
     0},
    {Collective::kBroadcast, "chain", ScheduleBroadcastChain,
     [](double n) {
       return Price{n - 1, 4.2};
     },
     0},
    {Collective::kBroadcast, "peer_read", ScheduleBroadcastPeerRead,
     [](double) {
       return Price{2 + kReadCallSteps, 2};
     },
     0},
};

double CostUs(const Algorithm& algorithm, const Problem& problem, uint64_t chunks) {
  constexpr double kStepUs = 0.4;
  constexpr double kBytesPerUs = 8000;
  const Price price = algorithm.price(problem.world_size);
  const double bytes = static_cast<double>(ProblemBytes(problem));
  // Chunks overlap, but the first one fills the pipeline alone.
  return kStepUs * (price.steps + static_cast<double>(chunks)) + price.moves * bytes / kBytesPerUs;
}

bool IsPeerRead(const Algorithm& algorithm) {
  return std::string_view(algorithm.name) == "peer_read";
}

// Blocks that a rank publishes.
uint64_t PublishedBlocks(const Problem& problem) {
  const bool has_blocks = problem.collective == Collective::kReduceScatter ||
                          problem.collective == Collective::kAllToAll;
  return has_blocks ? static_cast<uint64_t>(problem.world_size) : 1;
}

// Why an algorithm runs no operations around its collective.
std::string WhyNotFused(const Algorithm& algorithm, const Problem& problem,
                        const RegionNeeds& needs) {
  if (!needs.is_region()) return "";
  const std::string_view name = algorithm.name;
  const bool passes_sums_on = Reduces(problem) && (name == "ring" || name == "tree");
  if (passes_sums_on) {
    return "runs no operations: partial sums travel from rank to rank, and the last hop alone has "
           "final values";
  }
  if (!IsPeerRead(algorithm)) return "";
  if (needs.has_before) {
    return "others would read the input as it is before the collective's own operations";
  }
  if (needs.overwrites_operand) {
    return "others would read the input while an output overwrites it";
  }
  return "";
}

std::string RefusalOf(const Algorithm& algorithm, const Problem& problem,
                      const RegionNeeds& needs) {
  if (problem.world_size == 1) return "needs 2 ranks or more; with 1 rank only 'copy' runs";
  if (algorithm.in_lines) {
    const uint64_t lines = LinesOf(problem.count * ElementBytes(problem.type));
    if (lines * PublishedBlocks(problem) > kLinesPerHalf) {
      return fmt::format("small problems only: what a rank publishes must fit {} lines of {} bytes",
                         kLinesPerHalf, kLinePayloadBytes);
    }
    return "";
  }
  if (algorithm.largest_bytes != 0 && ProblemBytes(problem) > algorithm.largest_bytes) {
    return fmt::format("every rank reads the whole input of all; not offered above {} bytes",
                       algorithm.largest_bytes);
  }
  if (IsPeerRead(algorithm)) {
    if (ProblemBytes(problem) < kSmallestPeerReadBytes) {
      return fmt::format("reading other processes is not offered below {} bytes",
                         kSmallestPeerReadBytes);
    }
    if (problem.collective == Collective::kAllToAll && problem.in_place) {
      return "others would read the buffer while it is overwritten in place";
    }
  }
  if (std::string reason = WhyNotFused(algorithm, problem, needs); !reason.empty()) return reason;
  const bool is_tree = std::string_view(algorithm.name) == "tree";
  const bool is_chain = std::string_view(algorithm.name) == "chain";
  if (problem.collective == Collective::kBroadcast && problem.world_size == 2 &&
      (is_tree || is_chain)) {
    return "with 2 ranks the same as 'flat'";
  }
  return "";
}

// Partial results are f32 and are rounded when they are whole, so that the order alone decides. The
// ring of an all_reduce begins each part of a chunk with another rank, so that the length of a
// chunk decides where an element begins. That of a reduce_scatter begins a block behind its owner.
// A tree of up to three ranks adds up in the order of ranks.
std::string NumericsOf(const Algorithm& algorithm, const Problem& problem,
                       uint64_t chunk_elements) {
  const std::string_view name = algorithm.name;
  std::string order = sdk::kRankOrderNumerics;
  if (name == "tree" && problem.world_size > 3) order = "tree";
  if (name == "ring") {
    const bool has_parts = problem.collective == Collective::kAllReduce;
    order = has_parts ? fmt::format("ring.{}", chunk_elements) : "ring";
  }
  return std::string(sdk::NumericsOf(problem, order));
}

constexpr std::string_view kInLines = "?transport=ll";

std::string NameOf(const Algorithm& algorithm, uint64_t chunk_bytes) {
  if (algorithm.in_lines) return std::string(algorithm.name).append(kInLines);
  return fmt::format("{}?chunk={}", algorithm.name, chunk_bytes);
}

SlotSize SizeOf(uint64_t slot_bytes, uint64_t chunk_bytes, const RegionNeeds& needs) {
  return {.slot_bytes = slot_bytes,
          .chunk_bytes = chunk_bytes,
          .unit_elements = needs.unit_elements,
          .input_is_computed = needs.has_before};
}

// Empty when the rows of a region fit the slot.
std::string WhyTooWide(const Schedule& schedule, uint64_t slot_bytes) {
  if (schedule.FitsSlot(slot_bytes)) return "";
  return fmt::format(
      "{} rows of {} bytes do not fit half a slot of {} bytes (setting host.slot_bytes)",
      schedule.regions, schedule.unit_elements * schedule.slot_element_bytes, slot_bytes);
}

// One choice a chunk size, up to the first that takes the problem in one chunk, and without sizes
// that the slot cuts down, or a row raises, to the size before.
void AppendChoices(const Algorithm& algorithm, const Problem& problem, uint64_t slot_bytes,
                   const RegionNeeds& needs, std::vector<Choice>& choices) {
  const auto refuse = [&](std::string reason) {
    choices.push_back({.name = algorithm.in_lines ? NameOf(algorithm, 0) : algorithm.name,
                       .reason = std::move(reason)});
  };
  if (std::string refusal = RefusalOf(algorithm, problem, needs); !refusal.empty()) {
    refuse(std::move(refusal));
    return;
  }
  uint64_t last_elements = 0;
  const std::span<const uint64_t> sizes =
      IsPeerRead(algorithm) ? std::span<const uint64_t>(kPeerReadChunkBytes) : kChunkBytes;
  for (const uint64_t chunk_bytes : sizes) {
    const Schedule schedule = algorithm.build(problem, 0, SizeOf(slot_bytes, chunk_bytes, needs));
    if (std::string reason = WhyTooWide(schedule, slot_bytes); !reason.empty()) {
      refuse(std::move(reason));
      return;
    }
    if (schedule.chunk_elements == last_elements) continue;
    last_elements = schedule.chunk_elements;
    const auto fits_bare_one = [&] {
      return schedule.FitsTogether(
          algorithm.build(problem, 0, SizeOf(slot_bytes, chunk_bytes, {})));
    };
    choices.push_back({.name = NameOf(algorithm, chunk_bytes),
                       .cost_us = CostUs(algorithm, problem, schedule.Chunks()),
                       .numerics = NumericsOf(algorithm, problem, schedule.chunk_elements),
                       .fits_any_region = needs.may_fit_any_region() && fits_bare_one()});
    if (schedule.Chunks() <= 1) break;
  }
}

// The chunk size in "algorithm?chunk=65536"; empty when the name has another form or the size is
// not among those that are offered.
std::optional<uint64_t> ChunkOf(std::string_view choice_name) {
  constexpr std::string_view kKey = "?chunk=";
  const size_t at = choice_name.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = choice_name.substr(at + kKey.size());
  uint64_t bytes = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  const auto is_offered = [bytes](std::span<const uint64_t> sizes) {
    return std::find(sizes.begin(), sizes.end(), bytes) != sizes.end();
  };
  if (is_offered(kChunkBytes) || is_offered(kPeerReadChunkBytes)) return bytes;
  return std::nullopt;
}

// Few waits for small problems, little traffic for large ones.
std::string_view DefaultAlgorithm(const Problem& problem) {
  switch (problem.collective) {
    case Collective::kAllReduce:
      return ProblemBytes(problem) <= (16 << 10) ? "one_shot" : "two_shot";
    case Collective::kBroadcast:
      return "flat";
    default:
      return "direct";
  }
}

// Beyond it whole copies behind one signal are as fast as lines that are looked at one by one.
constexpr uint64_t kLargestDefaultInLinesBytes = 512;

void MarkDefault(const Problem& problem, std::vector<Choice>& choices) {
  const std::string_view algorithm = DefaultAlgorithm(problem);
  const bool prefers_lines = ProblemBytes(problem) <= kLargestDefaultInLinesBytes;
  Choice* chosen = nullptr;
  for (Choice& choice : choices) {
    if (!choice.reason.empty()) continue;
    if (choice.name.ends_with(kInLines)) {
      if (!prefers_lines) continue;
      chosen = &choice;
      break;
    }
    const bool fits = std::string_view(choice.name).starts_with(algorithm);
    // The second size of chunk where there are several: it stays in the second-level cache.
    if (fits && (chosen == nullptr || choice.name.ends_with("=262144"))) chosen = &choice;
  }
  if (chosen != nullptr) chosen->is_default = true;
}

}  // namespace

std::vector<Choice> ListChoices(const Problem& problem, uint64_t slot_bytes,
                                const RegionNeeds& needs) {
  std::vector<Choice> choices;
  if (problem.world_size == 1) {
    choices.push_back({.name = "copy",
                       .cost_us = static_cast<double>(ProblemBytes(problem)) / 8000,
                       .is_default = true,
                       .numerics = sdk::kExactNumerics,
                       .fits_any_region = needs.may_fit_any_region()});
  }
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == problem.collective) {
      AppendChoices(algorithm, problem, slot_bytes, needs, choices);
    }
  }
  if (problem.world_size > 1) MarkDefault(problem, choices);
  return choices;
}

bool FitsAnyRegion(const Problem& problem, std::string_view choice_name, uint64_t slot_bytes,
                   const RegionNeeds& needs) {
  if (!needs.may_fit_any_region()) return false;
  const auto of_region = ScheduleOf(problem, choice_name, 0, slot_bytes, needs);
  const auto bare = ScheduleOf(problem, choice_name, 0, slot_bytes);
  return of_region && bare && of_region->FitsTogether(*bare);
}

Result<Schedule> ScheduleOf(const Problem& problem, std::string_view choice_name, int rank,
                            uint64_t slot_bytes, const RegionNeeds& needs) {
  if (problem.world_size == 1 && choice_name == "copy") {
    return ScheduleAlone(problem, SizeOf(slot_bytes, kChunkBytes[1], needs));
  }
  const std::string_view algorithm_name = choice_name.substr(0, choice_name.find('?'));
  const auto algorithm =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const Algorithm& a) {
        return a.collective == problem.collective && a.name == algorithm_name &&
               a.in_lines == choice_name.ends_with(kInLines);
      });
  const std::string refusal =
      algorithm == std::end(kAlgorithms) ? "" : RefusalOf(*algorithm, problem, needs);
  const auto refuse = [&](const std::string& reason) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", choice_name, reason));
  };
  if (!refusal.empty()) return refuse(refusal);
  const bool in_lines = algorithm != std::end(kAlgorithms) && algorithm->in_lines;
  const std::optional<uint64_t> chunk_bytes =
      in_lines && choice_name.size() == algorithm_name.size() + kInLines.size()
          ? std::optional<uint64_t>(kChunkBytes[0])
          : ChunkOf(choice_name);
  if (algorithm == std::end(kAlgorithms) || !chunk_bytes) {
    return Fail(
        COTUNE_INVALID_ARGUMENT,
        fmt::format("'{}' is no choice of this problem; list_choices names them", choice_name));
  }
  // Also a chunk that is not listed at this size: what won at one size runs at its neighbours too.
  Schedule schedule = algorithm->build(problem, rank, SizeOf(slot_bytes, *chunk_bytes, needs));
  if (std::string reason = WhyTooWide(schedule, slot_bytes); !reason.empty()) return refuse(reason);
  return schedule;
}

}  // namespace cotune::host
