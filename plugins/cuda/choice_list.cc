#include "plugins/cuda/choice_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using border::Collective;
using border::ElementType;
using border::Fail;
using border::Problem;
using border::Result;

constexpr uint64_t kPackBytes = 16;
constexpr int kBlocksMax = 256;
// Beyond these sizes a choice cannot win against its neighbours.
constexpr uint64_t kOneShotBytesMax = 8 << 20;
constexpr uint64_t kFloatLlBytesMax = 256 << 10;
constexpr uint64_t kTwoShotBytesMin = 16 << 10;

struct Shape {
  int blocks;
  int threads;
  int unroll;
};

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool IsLamportType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBf16;
}

// Packs that one thread after the other works off: all data, one block, or one share of it.
uint64_t WorkPacks(const Problem& problem, Algorithm algorithm) {
  const uint64_t packs = CeilDivide(problem.count * border::ElementBytes(problem.type), kPackBytes);
  return algorithm == Algorithm::kTwoShot
             ? CeilDivide(packs, static_cast<uint64_t>(problem.world_size))
             : packs;
}

uint64_t SlotBytes(Transport transport) { return transport == Transport::kLamport ? 16 : 32; }
uint64_t ScratchBytes(Transport transport) {
  return transport == Transport::kLamport ? kLamportBytes : kLlBytes;
}

// Whether one step of this shape fits into scratch.
bool Fits(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  const auto step_packs = static_cast<uint64_t>(shape.blocks) *
                          static_cast<uint64_t>(shape.threads) *
                          static_cast<uint64_t>(shape.unroll);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  uint64_t slots = ranks * step_packs;
  if (spec.algorithm == Algorithm::kTwoShot) slots *= 2;
  // One sender, and a greeting of each thread of each rank.
  if (problem.collective == Collective::kBroadcast) {
    slots = step_packs + ranks * step_packs / static_cast<uint64_t>(shape.unroll);
  }
  return slots * SlotBytes(spec.transport) <= ScratchBytes(spec.transport);
}

// Shapes that give every thread 1, 2 or 4 packs at once, from one block up to as many as there is
// work for.
std::vector<Shape> ShapesFor(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, spec.algorithm));
  const auto add = [&](int threads, int unroll, int blocks_max) {
    const uint64_t wanted =
        CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
    const Shape shape{static_cast<int>(std::clamp<uint64_t>(wanted, 1, blocks_max)), threads,
                      unroll};
    const bool is_new = std::none_of(shapes.begin(), shapes.end(), [&](const Shape& other) {
      return other.blocks == shape.blocks && other.threads == shape.threads &&
             other.unroll == shape.unroll;
    });
    if (is_new && Fits(problem, spec, shape)) shapes.push_back(shape);
  };
  for (const int unroll : {1, 2, 4}) {
    // More packs a thread than there are only makes registers idle.
    if (unroll > 1 && packs <= static_cast<uint64_t>(unroll) * 256) continue;
    add(256, unroll, kBlocksMax);
    add(512, unroll, kBlocksMax);
    for (const int blocks_max : {16, 32, 64, 128}) add(512, unroll, blocks_max);
  }
  return shapes;
}

std::string NameOf(const KernelSpec& spec, int blocks) {
  return fmt::format("{}?blocks={}&pdl={}&threads={}&transport={}&unroll={}", Name(spec.algorithm),
                     blocks, spec.uses_pdl ? 1 : 0, spec.threads, Name(spec.transport),
                     spec.unroll);
}

// A rough price: exchanges one after the other, and bytes over the link.
double CostUs(const Problem& problem, const KernelSpec& spec) {
  constexpr double kLaunchUs = 1.5;
  constexpr double kExchangeUs = 1.2;
  constexpr double kBytesPerUs = 350'000;
  const double exchanges = spec.algorithm == Algorithm::kTwoShot ? 2 : 1;
  const double packs_out = static_cast<double>(WorkPacks(problem, spec.algorithm)) * exchanges *
                           (problem.world_size - 1);
  return kLaunchUs + exchanges * kExchangeUs +
         packs_out * static_cast<double>(SlotBytes(spec.transport)) / kBytesPerUs;
}

std::string RefusalOf(const Problem& problem, const KernelSpec& spec) {
  const uint64_t bytes = border::ProblemBytes(problem);
  if (spec.transport == Transport::kLamport && !IsLamportType(problem.type)) {
    return "its elements use every bit pattern, none is left to say that data is missing";
  }
  const bool only_moves = !border::Reduces(problem);
  if (spec.transport == Transport::kLamport && only_moves) {
    return "one NaN would arrive as another: data that is only moved must stay as it is";
  }
  if (spec.transport == Transport::kLl && IsLamportType(problem.type) && !only_moves &&
      bytes > kFloatLlBytesMax) {
    return fmt::format("half of what it sends are flags; not offered above {} bytes",
                       kFloatLlBytesMax);
  }
  if (spec.algorithm == Algorithm::kOneShot && bytes > kOneShotBytesMax) {
    return fmt::format("every rank gets all data of all; not offered above {} bytes",
                       kOneShotBytesMax);
  }
  if (spec.algorithm == Algorithm::kTwoShot && bytes < kTwoShotBytesMin) {
    return fmt::format("two exchanges cost more than one; not offered below {} bytes",
                       kTwoShotBytesMin);
  }
  return "";
}

// One for each algorithm and transport, without a shape.
std::vector<Choice> ListKinds(const Problem& problem) {
  std::vector<Choice> kinds;
  Choice kind;
  kind.spec.collective = problem.collective;
  kind.spec.type = problem.type;
  kind.spec.reduction = problem.reduction;
  kind.spec.world_size = problem.world_size;
  const bool is_all_reduce = problem.collective == Collective::kAllReduce;
  for (const Transport transport : {Transport::kLamport, Transport::kLl}) {
    for (const Algorithm algorithm :
         {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kDirect}) {
      if (is_all_reduce != (algorithm != Algorithm::kDirect)) continue;
      kind.spec.transport = transport;
      kind.spec.algorithm = algorithm;
      kind.name = fmt::format("{}?transport={}", Name(algorithm), Name(transport));
      kind.reason = RefusalOf(problem, kind.spec);
      kinds.push_back(kind);
    }
  }
  return kinds;
}

// The choice of this kind that the name spells out; empty when it is another kind or no name.
std::optional<Choice> WithShapeOf(std::string_view name, const Choice& kind) {
  Choice choice = kind;
  int pdl = 0;
  const std::string text(name.substr(std::min(name.find('?'), name.size())));
  constexpr char kForm[] = "?blocks=%d&pdl=%d&threads=%d&transport=%*[a-z]&unroll=%d";
  const int read = std::sscanf(text.c_str(), kForm, &choice.blocks, &pdl, &choice.spec.threads,
                               &choice.spec.unroll);
  choice.spec.uses_pdl = pdl == 1;
  const bool is_shape =
      read == 4 && choice.blocks >= 1 && choice.blocks <= kBlocksMax &&
      (choice.spec.threads == 256 || choice.spec.threads == 512) &&
      (choice.spec.unroll == 1 || choice.spec.unroll == 2 || choice.spec.unroll == 4);
  if (!is_shape || NameOf(choice.spec, choice.blocks) != name) return std::nullopt;
  choice.name = name;
  choice.cost_us = -1;
  return choice;
}

void AppendShapes(const Problem& problem, const Choice& kind, const ChoiceLimits& limits,
                  std::vector<Choice>& choices) {
  Choice choice = kind;
  choice.cost_us = CostUs(problem, kind.spec);
  for (const Shape& shape : ShapesFor(problem, kind.spec)) {
    choice.spec.threads = shape.threads;
    choice.spec.unroll = shape.unroll;
    choice.spec.uses_pdl = limits.has_pdl;
    choice.blocks = shape.blocks;
    choice.name = NameOf(choice.spec, shape.blocks);
    choices.push_back(choice);
  }
}

// The cheapest by the model; among equals the first.
void MarkDefault(std::vector<Choice>& choices) {
  Choice* best = nullptr;
  for (Choice& choice : choices) {
    if (!choice.reason.empty()) continue;
    if (best == nullptr || choice.cost_us < best->cost_us) best = &choice;
  }
  if (best != nullptr) best->is_default = true;
}

}  // namespace

std::vector<Choice> ListChoices(const Problem& problem, const ChoiceLimits& limits) {
  std::vector<Choice> choices;
  if (problem.world_size == 1) {
    Choice copy;
    copy.name = "copy";
    copy.is_copy = copy.is_default = true;
    return {copy};
  }
  for (const Choice& kind : ListKinds(problem)) {
    if (kind.reason.empty()) {
      AppendShapes(problem, kind, limits, choices);
    } else {
      choices.push_back(kind);
    }
  }
  MarkDefault(choices);
  return choices;
}

Result<Choice> FindChoice(const Problem& problem, std::string_view name,
                          const ChoiceLimits& limits) {
  for (const Choice& choice : ListChoices(problem, limits)) {
    if (choice.name != name) continue;
    if (choice.reason.empty()) return choice;
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", name, choice.reason));
  }
  // What won at one size runs at its neighbours too, where its shape is not listed.
  for (const Choice& kind : ListKinds(problem)) {
    std::optional<Choice> choice = WithShapeOf(name, kind);
    if (!choice) continue;
    const Shape shape{choice->blocks, choice->spec.threads, choice->spec.unroll};
    const bool can_run = kind.reason.empty() && Fits(problem, choice->spec, shape) &&
                         choice->spec.uses_pdl <= limits.has_pdl;
    if (can_run) return *choice;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("'{}' is refused: {}", name,
                            kind.reason.empty() ? "it does not fit into scratch" : kind.reason));
  }
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("'{}' is no choice of this problem; list_choices names them", name));
}

}  // namespace cotune::cuda
