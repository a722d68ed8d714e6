#include "plugins/cuda/choices/choice_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/choices/queued_shape.h"
#include "plugins/cuda/choices/shape.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::ElementType;
using sdk::Fail;
using sdk::Problem;
using sdk::Result;

// Beyond these sizes a choice cannot win against its neighbours.
constexpr uint64_t kOneShotBytesMax = 8 << 20;
constexpr uint64_t kTwoShotBytesMin = 16 << 10;
constexpr uint64_t kRootToAllBytesMax = 1 << 20;
constexpr uint64_t kFlaggedBytesMin = 1 << 20;
constexpr uint64_t kZeroCopyBytesMin = 1 << 20;

bool IsLamportType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBf16;
}

std::string NameOf(const KernelSpec& spec, const Shape& shape) {
  const std::string chunk =
      HasChunks(spec.transport) ? fmt::format("&chunk={}", shape.chunk_bytes) : "";
  return fmt::format("{}?blocks={}{}&pdl={}&threads={}&transport={}&unroll={}",
                     Name(spec.algorithm), shape.blocks, chunk, spec.uses_pdl ? 1 : 0,
                     shape.threads, Name(spec.transport), shape.unroll);
}

// The kind in this shape.
Choice WithShape(const Choice& kind, const Shape& shape, bool uses_pdl) {
  Choice choice = kind;
  choice.spec.threads = shape.threads;
  choice.spec.unroll = shape.unroll;
  choice.spec.uses_pdl = uses_pdl;
  choice.blocks = shape.blocks;
  choice.chunk_bytes = shape.chunk_bytes;
  choice.name = NameOf(choice.spec, shape);
  return choice;
}

std::string RefusalOf(const Problem& problem, const KernelSpec& spec) {
  if (spec.transport == Transport::kQueued) return QueuedRefusal(problem, spec.algorithm);
  if (spec.transport == Transport::kCopyEngine) {
    const std::string refusal = CopyRefusal(problem);
    return refusal.empty() ? CopySizeRefusal(problem) : refusal;
  }
  const uint64_t bytes = sdk::ProblemBytes(problem);
  if (spec.transport == Transport::kLamport && !IsLamportType(problem.type)) {
    return "its elements use every bit pattern, none is left to say that data is missing";
  }
  const bool only_moves = !sdk::Reduces(problem);
  if (spec.transport == Transport::kLamport && only_moves) {
    return "one NaN would arrive as another: data that is only moved must stay as it is";
  }
  if (spec.transport == Transport::kEscape && IsLamportType(problem.type) && !only_moves) {
    return "its elements have a bit pattern to spare: \"lamport\" needs no escape";
  }
  if (spec.algorithm == Algorithm::kOneShot && bytes > kOneShotBytesMax) {
    return fmt::format("every rank gets all data of all; not offered above {} bytes",
                       kOneShotBytesMax);
  }
  if (spec.transport == Transport::kZeroCopy) {
    if (!problem.is_symmetric) return "it works on buffers that are registered on all ranks";
    if (problem.in_place && problem.collective == Collective::kAllToAll) {
      return "in place, data that a peer still has to send would be overwritten";
    }
    if (bytes < kZeroCopyBytesMin) {
      return fmt::format("its barriers cost time of their own; not offered below {} bytes",
                         kZeroCopyBytesMin);
    }
  }
  if (spec.transport == Transport::kFlagged && bytes < kFlaggedBytesMin) {
    return fmt::format("its flags cost time of their own; not offered below {} bytes",
                       kFlaggedBytesMin);
  }
  const bool is_broadcast = problem.collective == Collective::kBroadcast;
  if (spec.algorithm == Algorithm::kTwoShot && is_broadcast && problem.world_size == 2) {
    return "of two ranks nobody is left to pass data on to";
  }
  if (spec.transport == Transport::kEscape && spec.algorithm == Algorithm::kDirect &&
      is_broadcast && problem.world_size > 2 && bytes > kRootToAllBytesMax) {
    return fmt::format("the root sends all data to each peer; not offered above {} bytes",
                       kRootToAllBytesMax);
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
  const auto add = [&](Algorithm algorithm, Transport transport) {
    kind.spec.transport = transport;
    kind.spec.algorithm = algorithm;
    kind.name = fmt::format("{}?transport={}", Name(algorithm), Name(transport));
    kind.reason = RefusalOf(problem, kind.spec);
    kinds.push_back(kind);
  };
  const bool is_all_reduce = problem.collective == Collective::kAllReduce;
  for (const Transport transport :
       {Transport::kLamport, Transport::kEscape, Transport::kFlagged, Transport::kZeroCopy}) {
    for (const Algorithm algorithm :
         {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kDirect}) {
      if (is_all_reduce != (algorithm != Algorithm::kDirect)) continue;
      const bool has_rounds = transport == Transport::kFlagged || transport == Transport::kZeroCopy;
      if (has_rounds && algorithm == Algorithm::kOneShot) continue;
      add(algorithm, transport);
    }
  }
  if (problem.collective == Collective::kBroadcast) add(Algorithm::kTwoShot, Transport::kEscape);
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree}) {
    if (HasQueuedKernel(problem.collective, algorithm)) add(algorithm, Transport::kQueued);
  }
  if (HasCopies(problem.collective)) {
    add(is_all_reduce ? Algorithm::kTwoShot : Algorithm::kDirect, Transport::kCopyEngine);
  }
  return kinds;
}

// The shape that the name of a choice of this kind spells out; empty when it is another kind or no
// name.
std::optional<Choice> WithShapeOf(std::string_view name, const Choice& kind) {
  if (kind.spec.transport == Transport::kCopyEngine) return std::nullopt;
  Shape shape{};
  int pdl = 0;
  const std::string text(name.substr(std::min(name.find('?'), name.size())));
  bool is_read = false;
  if (HasChunks(kind.spec.transport)) {
    constexpr char kForm[] = "?blocks=%d&chunk=%d&pdl=%d&threads=%d&transport=%*[a-z_]&unroll=%d";
    is_read = std::sscanf(text.c_str(), kForm, &shape.blocks, &shape.chunk_bytes, &pdl,
                          &shape.threads, &shape.unroll) == 5;
  } else {
    constexpr char kForm[] = "?blocks=%d&pdl=%d&threads=%d&transport=%*[a-z_]&unroll=%d";
    is_read =
        std::sscanf(text.c_str(), kForm, &shape.blocks, &pdl, &shape.threads, &shape.unroll) == 4;
  }
  if (!is_read) return std::nullopt;
  Choice choice = WithShape(kind, shape, pdl == 1);
  if (choice.name != name) return std::nullopt;
  return choice;
}

// It has no parameters: what its kernel does, where it moves data, takes a fraction of the time of
// the copies beside it. It follows copies, which no kernel overlaps with.
Choice CopyEngineChoice(const Problem& problem, const Choice& kind) {
  Choice choice = kind;
  choice.blocks = 64;
  choice.spec.threads = 512;
  choice.spec.unroll = UnrollFor(sdk::Reduces(problem) ? problem.world_size : 2);
  choice.spec.uses_pdl = false;
  choice.cost_us = CopyCostUs(problem);
  return choice;
}

void AppendShapes(const Problem& problem, const Choice& kind, const ChoiceLimits& limits,
                  std::vector<Choice>& choices) {
  if (kind.spec.transport == Transport::kCopyEngine) {
    choices.push_back(CopyEngineChoice(problem, kind));
    return;
  }
  for (const Shape& shape : ShapesFor(problem, kind.spec)) {
    choices.push_back(WithShape(kind, shape, limits.has_pdl));
    choices.back().cost_us = CostUs(problem, kind.spec, shape);
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
    // What won at a larger size may run here, where it is not worth listing.
    if (choice.spec.transport == Transport::kCopyEngine && CopyRefusal(problem).empty()) {
      Choice found = CopyEngineChoice(problem, choice);
      found.reason.clear();
      return found;
    }
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", name, choice.reason));
  }
  // What won at one size runs at its neighbours too, where its shape is not listed.
  for (const Choice& kind : ListKinds(problem)) {
    std::optional<Choice> choice = WithShapeOf(name, kind);
    if (!choice) continue;
    const Shape shape{choice->blocks, choice->spec.threads, choice->spec.unroll,
                      choice->chunk_bytes};
    const bool can_run = kind.reason.empty() && CanRun(problem, choice->spec, shape) &&
                         choice->spec.uses_pdl <= limits.has_pdl;
    if (can_run) return *choice;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("'{}' is refused: {}", name,
                            kind.reason.empty() ? "no kernel runs in this shape, or scratch is too "
                                                  "small for it"
                                                : kind.reason));
  }
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("'{}' is no choice of this problem; list_choices names them", name));
}

}  // namespace cotune::cuda
