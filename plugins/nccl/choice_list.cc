#include "plugins/nccl/choice_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace cotune::nccl {
namespace {

struct ProtocolFacts {
  Protocol protocol;
  const char* name;
  uint64_t smallest_bytes;  // outside of these it cannot win, and is refused
  uint64_t largest_bytes;
  // For the price, as NCCL's own model has them.
  double base_us;
  double hop_us;
  double payload_share;  // of what crosses the links
};

constexpr uint64_t kNoLimit = ~uint64_t{0};
constexpr ProtocolFacts kProtocols[] = {
    {Protocol::kLl, "ll", 0, uint64_t{4} << 20, 6.6, 0.6, 0.5},
    {Protocol::kLl128, "ll128", 0, kNoLimit, 14.0, 1.9, 0.92},
    {Protocol::kSimple, "simple", uint64_t{64} << 10, kNoLimit, 8.4, 3.4, 1.0},
};

struct AlgorithmFacts {
  Algorithm algorithm;
  const char* name;
};

constexpr AlgorithmFacts kAlgorithms[] = {{Algorithm::kRing, "ring"}, {Algorithm::kTree, "tree"}};

constexpr int kChannels[] = {4, 8, 16, 24, 32};
constexpr int kUsualChannels = 24;  // of GPUs behind an NVLink switch, for the price
constexpr double kChannelBytesPerUs = 15'000;
constexpr double kLinkBytesPerUs = 370'000;
// NCCL spreads a call over no more channels than have this much to do.
constexpr uint64_t kChannelTrafficBytes = uint64_t{16} << 10;

bool IsForcible(Collective collective) { return collective != Collective::kAllToAll; }

bool HasAlgorithm(Collective collective, Algorithm algorithm) {
  return algorithm == Algorithm::kRing || collective == Collective::kAllReduce;
}

// NCCL's measure of the work, by which it counts channels.
uint64_t TrafficBytes(const Problem& problem) {
  const uint64_t bytes = sdk::ProblemBytes(problem);
  return problem.collective == Collective::kAllReduce ? 2 * bytes : bytes;
}

// Waits in a row, and bytes through one link for each byte of the problem.
double Hops(const Problem& problem) {
  const int one_way = problem.world_size - 1;
  return problem.collective == Collective::kAllReduce ? 2 * one_way : one_way;
}

double LinkShare(const Problem& problem, Algorithm algorithm) {
  const double n = problem.world_size;
  switch (problem.collective) {
    case Collective::kAllReduce:
      return algorithm == Algorithm::kTree ? 2 : 2 * (n - 1) / n;
    case Collective::kBroadcast:
      return 1;
    default:
      return (n - 1) / n;
  }
}

double ForcedCostUs(const Problem& problem, Algorithm algorithm, const ProtocolFacts& protocol,
                    int channels) {
  const int used = channels == 0 ? kUsualChannels : channels;
  const double rate = std::min(kLinkBytesPerUs, used * kChannelBytesPerUs) * protocol.payload_share;
  const double bytes = static_cast<double>(sdk::ProblemBytes(problem));
  return protocol.base_us + Hops(problem) * protocol.hop_us +
         LinkShare(problem, algorithm) * bytes / rate;
}

double OwnCostUs(const Problem& problem) {
  constexpr double kCallUs = 6.5;
  const double bytes = static_cast<double>(sdk::ProblemBytes(problem));
  if (problem.world_size == 1 || !IsForcible(problem.collective)) {
    return kCallUs + LinkShare(problem, Algorithm::kRing) * bytes / kLinkBytesPerUs;
  }
  double best = ForcedCostUs(problem, Algorithm::kRing, kProtocols[0], 0);
  for (const ProtocolFacts& protocol : kProtocols) {
    best = std::min(best, ForcedCostUs(problem, Algorithm::kRing, protocol, 0));
  }
  return best;
}

std::string RefusalOf(const Problem& problem, const ProtocolFacts& protocol) {
  const uint64_t bytes = sdk::ProblemBytes(problem);
  if (bytes > protocol.largest_bytes) {
    return fmt::format("'{}' sends twice the bytes; not offered above {} bytes", protocol.name,
                       protocol.largest_bytes);
  }
  if (bytes < protocol.smallest_bytes) {
    return fmt::format("'{}' waits longest at each hop; not offered below {} bytes", protocol.name,
                       protocol.smallest_bytes);
  }
  return "";
}

// NCCL cuts data by channels and by the buffers of a protocol, and each piece begins its sum at
// another rank. Its orders are documented nowhere, so that each way to force it is a class of its
// own, and is comparable with no other backend.
std::string OwnNumerics(const Problem& problem, std::string_view own) {
  return std::string(sdk::NumericsOf(problem, own));
}

void AppendForced(const Problem& problem, const AlgorithmFacts& algorithm,
                  const ProtocolFacts& protocol, std::vector<Choice>& choices) {
  const std::string name = fmt::format("{}?proto={}", algorithm.name, protocol.name);
  if (const std::string refusal = RefusalOf(problem, protocol); !refusal.empty()) {
    choices.push_back({.name = name, .reason = refusal});
    return;
  }
  const auto append = [&](const std::string& full_name, int channels) {
    choices.push_back(
        {.name = full_name,
         .cost_us = ForcedCostUs(problem, algorithm.algorithm, protocol, channels),
         .numerics = OwnNumerics(
             problem, fmt::format("nccl_{}.{}.{}", algorithm.name, protocol.name, channels)),
         .method = {.decision = ForcedDecision{algorithm.algorithm, protocol.protocol, channels}}});
  };
  append(name, 0);
  uint64_t before = 0;
  for (const int channels : kChannels) {
    if (before != 0 && TrafficBytes(problem) <= before * kChannelTrafficBytes) break;
    append(fmt::format("{}&channels={}", name, channels), channels);
    before = static_cast<uint64_t>(channels);
  }
}

std::string WhyNotForced(const Problem& problem, const MissingFeatures& missing) {
  if (problem.world_size == 1) return "needs 2 ranks or more; with 1 rank only 'auto' runs";
  return missing.tuner;
}

std::string WhyNotSymmetric(const Problem& problem, const MissingFeatures& missing) {
  if (problem.world_size == 1) return "needs 2 ranks or more; with 1 rank only 'auto' runs";
  if (!missing.windows.empty()) return missing.windows;
  const bool is_known = problem.collective == Collective::kAllReduce ||
                        problem.collective == Collective::kAllGather ||
                        problem.collective == Collective::kReduceScatter;
  if (!is_known) return "NCCL has symmetric kernels of all_reduce, all_gather, reduce_scatter only";
  if (!sdk::Reduces(problem)) return "";
  const bool is_summed = problem.type == ElementType::kF32 || sdk::IsNarrowFloat(problem.type);
  if (problem.reduction != Reduction::kSum || !is_summed) {
    return "NCCL's symmetric kernels reduce by sum of f32, f16 or bf16 only";
  }
  return "";
}

double SymmetricCostUs(const Problem& problem) {
  constexpr double kCallUs = 4.2;
  constexpr double kBytesPerUs = 320'000;
  const double bytes = static_cast<double>(sdk::ProblemBytes(problem));
  return kCallUs + LinkShare(problem, Algorithm::kRing) * bytes / kBytesPerUs;
}

}  // namespace

std::vector<Choice> ListChoices(const Problem& problem, const MissingFeatures& missing) {
  std::vector<Choice> choices;
  choices.push_back({.name = "auto",
                     .cost_us = OwnCostUs(problem),
                     .is_default = true,
                     .numerics = OwnNumerics(problem, "nccl")});
  if (problem.is_symmetric) {
    Choice symmetric{.name = "symmetric", .reason = WhyNotSymmetric(problem, missing)};
    if (symmetric.reason.empty()) {
      symmetric.cost_us = SymmetricCostUs(problem);
      symmetric.method.uses_windows = true;
      symmetric.numerics = OwnNumerics(problem, "nccl_symmetric");
    }
    choices.push_back(symmetric);
  }
  if (!IsForcible(problem.collective)) return choices;
  const std::string why_not = WhyNotForced(problem, missing);
  for (const AlgorithmFacts& algorithm : kAlgorithms) {
    if (!HasAlgorithm(problem.collective, algorithm.algorithm)) continue;
    if (!why_not.empty()) {
      choices.push_back({.name = algorithm.name, .reason = why_not});
      continue;
    }
    for (const ProtocolFacts& protocol : kProtocols) {
      AppendForced(problem, algorithm, protocol, choices);
    }
  }
  return choices;
}

Result<CallMethod> MethodOf(const Problem& problem, const MissingFeatures& missing,
                            std::string_view choice_name) {
  const std::vector<Choice> choices = ListChoices(problem, missing);
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const Choice& choice) { return choice.name == choice_name; });
  if (found == choices.end()) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("'{:.60}' is no choice of this problem; list_choices names them, for "
                            "example 'auto'",
                            choice_name));
  }
  if (!found->reason.empty()) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", choice_name, found->reason));
  }
  return found->method;
}

}  // namespace cotune::nccl
