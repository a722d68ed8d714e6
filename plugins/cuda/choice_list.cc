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
constexpr uint64_t kFlaggedBytesMin = 256 << 10;
// Less than this is not worth a block of its own, nor a chunk.
constexpr uint64_t kFlaggedBlockWorkMin = 2 << 10;
constexpr int kFlaggedThreads = 512;

struct Shape {
  int blocks;
  int threads;
  int unroll;
  int chunk_bytes = 0;

  bool operator==(const Shape&) const = default;
};

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool IsLamportType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBf16;
}

// Packs that one thread after the other works off: all data, one block, or one share of it.
uint64_t WorkPacks(const Problem& problem, const KernelSpec& spec) {
  const uint64_t packs = CeilDivide(problem.count * border::ElementBytes(problem.type), kPackBytes);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  if (spec.algorithm == Algorithm::kTwoShot) return CeilDivide(packs, ranks);
  const bool has_shares =
      problem.collective == Collective::kBroadcast && spec.transport == Transport::kFlagged;
  return has_shares ? CeilDivide(packs, ranks - 1) : packs;
}

uint64_t SlotBytes(Transport transport) { return transport == Transport::kLl ? 32 : 16; }
uint64_t ScratchBytes(Transport transport) {
  return transport == Transport::kLamport ? kLamportBytes : kLlBytes;
}

// Whether one step of this shape fits into scratch.
bool Fits(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (spec.transport == Transport::kFlagged) {
    return shape.blocks <= static_cast<int>(kFlaggedBlocksMax) &&
           static_cast<uint64_t>(shape.chunk_bytes) <= FlaggedSlotBytes(problem.world_size);
  }
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

// Adds a shape that is new and can run.
void Add(const Shape& shape, const Problem& problem, const KernelSpec& spec,
         std::vector<Shape>& shapes) {
  const bool is_new = std::find(shapes.begin(), shapes.end(), shape) == shapes.end();
  if (is_new && Fits(problem, spec, shape)) shapes.push_back(shape);
}

// Shapes that give every thread 1, 2 or 4 packs at once, from one block up to as many as there is
// work for.
std::vector<Shape> StepShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, spec));
  const auto add = [&](int threads, int unroll, int blocks_max) {
    const uint64_t wanted =
        CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
    const Shape shape{static_cast<int>(std::clamp<uint64_t>(wanted, 1, blocks_max)), threads,
                      unroll};
    Add(shape, problem, spec, shapes);
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

// Packs of a thread at once for each peer, so that 4 to 8 are on their way: more make it spill.
int FlaggedUnroll(int world_size) { return world_size == 2 ? 4 : world_size <= 4 ? 2 : 1; }

// Grids up to the size of the GPU; chunks that are small enough to fill and drain the link fast, or
// large enough to have few flags.
std::vector<Shape> ChunkShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t bytes = WorkPacks(problem, spec) * kPackBytes;
  for (const int blocks : {16, 32, 64, 128}) {
    const uint64_t block_work = CeilDivide(bytes, static_cast<uint64_t>(blocks));
    if (blocks > 16 && block_work < kFlaggedBlockWorkMin) break;
    for (const int chunk_bytes : {8 << 10, 16 << 10, 32 << 10}) {
      Add({blocks, kFlaggedThreads, FlaggedUnroll(problem.world_size), chunk_bytes}, problem, spec,
          shapes);
      // Larger ones would be cut the same way.
      if (static_cast<uint64_t>(chunk_bytes) >= block_work) break;
    }
  }
  return shapes;
}

std::string NameOf(const KernelSpec& spec, const Shape& shape) {
  const std::string chunk =
      spec.transport == Transport::kFlagged ? fmt::format("&chunk={}", shape.chunk_bytes) : "";
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

// What a link carries at most; a little less where data is looked at word by word and emptied.
double LinkBytesPerUs(const KernelSpec& spec, const Shape& shape, double sent_per_round) {
  if (spec.transport != Transport::kFlagged) return 350'000;
  // A block waits for flags once a round, and one multiprocessor moves only so much.
  constexpr double kRoundUs = 2.5;
  constexpr double kBlockBytesPerUs = 50'000;
  const double round_us = kRoundUs + sent_per_round / kBlockBytesPerUs;
  return std::min(365'000.0, shape.blocks * sent_per_round / round_us);
}

// A rough price: exchanges one after the other, and bytes over the link.
double CostUs(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  constexpr double kLaunchUs = 1.5;
  const bool is_flagged = spec.transport == Transport::kFlagged;
  const bool passes_on = is_flagged && problem.collective == Collective::kBroadcast;
  const double exchange_us = is_flagged ? 2.5 : 1.2;
  const double exchanges = spec.algorithm == Algorithm::kTwoShot || passes_on ? 2 : 1;
  // A broadcast in shares sends each of them once, and its receivers pass on as much.
  const double copies = (passes_on ? 1 : exchanges) * (problem.world_size - 1);
  const double bytes_out = static_cast<double>(WorkPacks(problem, spec)) * copies *
                           static_cast<double>(SlotBytes(spec.transport));
  return kLaunchUs + exchanges * exchange_us +
         bytes_out / LinkBytesPerUs(spec, shape, shape.chunk_bytes * copies);
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
  if (spec.transport == Transport::kFlagged && bytes < kFlaggedBytesMin) {
    return fmt::format("its flags cost time of their own; not offered below {} bytes",
                       kFlaggedBytesMin);
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
  for (const Transport transport : {Transport::kLamport, Transport::kLl, Transport::kFlagged}) {
    for (const Algorithm algorithm :
         {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kDirect}) {
      if (is_all_reduce != (algorithm != Algorithm::kDirect)) continue;
      if (transport == Transport::kFlagged && algorithm == Algorithm::kOneShot) continue;
      kind.spec.transport = transport;
      kind.spec.algorithm = algorithm;
      kind.name = fmt::format("{}?transport={}", Name(algorithm), Name(transport));
      kind.reason = RefusalOf(problem, kind.spec);
      kinds.push_back(kind);
    }
  }
  return kinds;
}

// The shape that the name of a choice of this kind spells out; empty when it is another kind or no
// name.
std::optional<Choice> WithShapeOf(std::string_view name, const Choice& kind) {
  Shape shape{};
  int pdl = 0;
  const std::string text(name.substr(std::min(name.find('?'), name.size())));
  const bool is_flagged = kind.spec.transport == Transport::kFlagged;
  bool is_read = false;
  if (is_flagged) {
    constexpr char kForm[] = "?blocks=%d&chunk=%d&pdl=%d&threads=%d&transport=%*[a-z]&unroll=%d";
    is_read = std::sscanf(text.c_str(), kForm, &shape.blocks, &shape.chunk_bytes, &pdl,
                          &shape.threads, &shape.unroll) == 5;
  } else {
    constexpr char kForm[] = "?blocks=%d&pdl=%d&threads=%d&transport=%*[a-z]&unroll=%d";
    is_read =
        std::sscanf(text.c_str(), kForm, &shape.blocks, &pdl, &shape.threads, &shape.unroll) == 4;
  }
  const bool is_shape =
      is_read && shape.blocks >= 1 && shape.blocks <= kBlocksMax &&
      (shape.threads == 256 || shape.threads == 512) &&
      (shape.unroll == 1 || shape.unroll == 2 || shape.unroll == 4) &&
      (!is_flagged || (shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0));
  if (!is_shape) return std::nullopt;
  Choice choice = WithShape(kind, shape, pdl == 1);
  if (choice.name != name) return std::nullopt;
  return choice;
}

void AppendShapes(const Problem& problem, const Choice& kind, const ChoiceLimits& limits,
                  std::vector<Choice>& choices) {
  const bool is_flagged = kind.spec.transport == Transport::kFlagged;
  const std::vector<Shape> shapes =
      is_flagged ? ChunkShapes(problem, kind.spec) : StepShapes(problem, kind.spec);
  for (const Shape& shape : shapes) {
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
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", name, choice.reason));
  }
  // What won at one size runs at its neighbours too, where its shape is not listed.
  for (const Choice& kind : ListKinds(problem)) {
    std::optional<Choice> choice = WithShapeOf(name, kind);
    if (!choice) continue;
    const Shape shape{choice->blocks, choice->spec.threads, choice->spec.unroll,
                      choice->chunk_bytes};
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
