#include "plugins/ucx/choice_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <type_traits>

#include "plugins/ucx/algorithms.h"

namespace cotune::ucx {
namespace {

using Build = Schedule (*)(const Problem&, int, const Parameters&);

// A rough price: messages that wait for each other, and bytes that a rank moves for each byte of
// the problem.
struct Price {
  double messages = 0;
  double moves = 0;
};

// How the order of additions depends on the choice.
enum class Order : uint8_t { kNone, kRadix, kSegment, kFixed };

struct Algorithm {
  Collective collective;
  const char* name;
  Build build;
  Price (*price)(double ranks, double radix);
  Order order = Order::kNone;
  bool has_radix = false;
  bool has_segments = false;
  bool has_posts = false;      // lanes beside each other, without segments
  uint64_t largest_bytes = 0;  // 0: no limit
  const char* why_limited = "";
  const char* same_on_two_ranks = "";  // the algorithm that does the same with 2 ranks
};

constexpr int kRadices[] = {2, 4, 8};
constexpr uint64_t kSegmentBytes[] = {64 << 10, 512 << 10};
constexpr int kSegmentPosts[] = {2, 8};
constexpr int kLanePosts[] = {2, 8, 32};

constexpr char kSendsAll[] = "every rank sends everything in every step";
constexpr char kCopiesAll[] = "every rank keeps copies of all blocks";

double Steps(double ranks, double radix) { return std::ceil(std::log(ranks) / std::log(radix)); }

Price KnomialPrice(double n, double radix) {
  const double messages = Steps(n, radix) * (1 + 0.2 * (radix - 2));
  return {messages, messages * 2};
}
Price HalvingPrice(double n, double radix) {
  return {Steps(n, radix) * (1 + 0.2 * (radix - 2)), 2 * (n - 1) / n};
}
Price RingPrice(double n, double /*radix*/) { return {n - 1, 2 * (n - 1) / n}; }
Price LinearPrice(double n, double /*radix*/) { return {1 + 0.2 * (n - 2), 2 * (n - 1) / n}; }

constexpr Algorithm kAlgorithms[] = {
    {.collective = Collective::kAllReduce,
     .name = "knomial",
     .build = ScheduleAllReduceKnomial,
     .price = KnomialPrice,
     .order = Order::kRadix,
     .has_radix = true,
     .largest_bytes = 4 << 20,
     .why_limited = kSendsAll},
    {.collective = Collective::kAllReduce,
     .name = "scatter_gather",
     .build = ScheduleAllReduceScatterGather,
     .price =
         [](double n, double radix) {
           const Price half = HalvingPrice(n, radix);
           return Price{2 * half.messages, 2 * half.moves};
         },
     .order = Order::kRadix,
     .has_radix = true,
     .has_segments = true},
    {.collective = Collective::kAllReduce,
     .name = "ring",
     .build = ScheduleAllReduceRing,
     .price =
         [](double n, double) {
           return Price{2 * (n - 1), 4 * (n - 1) / n};
         },
     .order = Order::kSegment,
     .has_segments = true},
    {.collective = Collective::kAllReduce,
     .name = "double_tree",
     .build = ScheduleAllReduceDoubleTree,
     .price =
         [](double n, double) {
           return Price{2 * Steps(n, 2), 4};
         },
     .order = Order::kSegment,
     .has_segments = true},
    {.collective = Collective::kAllGather,
     .name = "knomial",
     .build = ScheduleAllGatherKnomial,
     .price = HalvingPrice,
     .has_radix = true,
     .same_on_two_ranks = "linear"},
    {.collective = Collective::kAllGather,
     .name = "bruck",
     .build = ScheduleAllGatherBruck,
     .price = HalvingPrice,
     .has_radix = true,
     .same_on_two_ranks = "linear"},
    {.collective = Collective::kAllGather,
     .name = "ring",
     .build = ScheduleAllGatherRing,
     .price = RingPrice,
     .has_segments = true},
    {.collective = Collective::kAllGather,
     .name = "linear",
     .build = ScheduleAllGatherLinear,
     .price = LinearPrice,
     .has_posts = true},
    {.collective = Collective::kReduceScatter,
     .name = "halving",
     .build = ScheduleReduceScatterHalving,
     .price = HalvingPrice,
     .order = Order::kRadix,
     .has_radix = true,
     .largest_bytes = 64 << 20,
     .why_limited = kCopiesAll},
    {.collective = Collective::kReduceScatter,
     .name = "ring",
     .build = ScheduleReduceScatterRing,
     .price = RingPrice,
     .order = Order::kFixed,
     .has_segments = true},
    {.collective = Collective::kAllToAll,
     .name = "bruck",
     .build = ScheduleAllToAllBruck,
     .price =
         [](double n, double radix) {
           const Price half = HalvingPrice(n, radix);
           return Price{half.messages, 3 * half.messages};
         },
     .has_radix = true,
     .largest_bytes = 1 << 20,
     .why_limited = kCopiesAll,
     .same_on_two_ranks = "pairwise"},
    {.collective = Collective::kAllToAll,
     .name = "pairwise",
     .build = ScheduleAllToAllPairwise,
     .price = LinearPrice,
     .has_posts = true},
    {.collective = Collective::kBroadcast,
     .name = "knomial",
     .build = ScheduleBroadcastKnomial,
     .price = KnomialPrice,
     .has_radix = true,
     .has_segments = true,
     .same_on_two_ranks = "chain"},
    {.collective = Collective::kBroadcast,
     .name = "scatter_gather",
     .build = ScheduleBroadcastScatterGather,
     .price =
         [](double n, double) {
           return Price{Steps(n, 2) + n - 1, 3};
         },
     .has_segments = true,
     .same_on_two_ranks = "chain"},
    {.collective = Collective::kBroadcast,
     .name = "chain",
     .build = ScheduleBroadcastChain,
     .price =
         [](double n, double) {
           return Price{n - 1, 2};
         },
     .has_segments = true},
};

std::string RefusalOf(const Algorithm& algorithm, const Problem& problem) {
  if (problem.world_size == 1) return "needs 2 ranks or more; with 1 rank only 'copy' runs";
  if (algorithm.largest_bytes != 0 && ProblemBytes(problem) > algorithm.largest_bytes) {
    return fmt::format("{}; not offered above {} bytes", algorithm.why_limited,
                       algorithm.largest_bytes);
  }
  if (problem.world_size == 2 && *algorithm.same_on_two_ranks != '\0') {
    return fmt::format("with 2 ranks the same as '{}'", algorithm.same_on_two_ranks);
  }
  return "";
}

std::string NameOf(const Algorithm& algorithm, const Parameters& parameters) {
  std::string name = algorithm.name;
  const auto append = [&](const char* key, uint64_t value) {
    if (value == 0) return;
    name += fmt::format("{}{}={}", name.find('?') == std::string::npos ? '?' : '&', key, value);
  };
  append("posts", static_cast<uint64_t>(parameters.posts));
  append("radix", static_cast<uint64_t>(parameters.radix));
  append("segment", parameters.segment_bytes);
  return name;
}

// Reads "posts=2&radix=4&segment=65536"; empty for another form.
std::optional<Parameters> ParametersOf(std::string_view text) {
  Parameters parameters;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = pair.substr(0, equals);
    const std::string_view digits = pair.substr(equals + 1);
    uint64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
    if (key == "posts" && value <= 64) {
      parameters.posts = static_cast<int>(value);
    } else if (key == "radix" && value <= 64) {
      parameters.radix = static_cast<int>(value);
    } else if (key == "segment") {
      parameters.segment_bytes = value;
    } else {
      return std::nullopt;
    }
  }
  return parameters;
}

template <typename T>
bool IsIn(std::type_identity_t<T> value, std::span<const T> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns whether the algorithm has these parameters, at this problem or at another size.
bool HasParameters(const Algorithm& algorithm, const Parameters& parameters) {
  const bool has_radix = parameters.radix != 0;
  if (has_radix != algorithm.has_radix) return false;
  if (has_radix && !IsIn(parameters.radix, std::span<const int>(kRadices))) return false;
  if (algorithm.has_posts) {
    return IsIn(parameters.posts, std::span<const int>(kLanePosts)) &&
           parameters.segment_bytes == 0;
  }
  if (parameters.segment_bytes == 0) return parameters.posts == 0;
  return algorithm.has_segments &&
         IsIn(parameters.segment_bytes, std::span<const uint64_t>(kSegmentBytes)) &&
         IsIn(parameters.posts, std::span<const int>(kSegmentPosts));
}

// All ranks combine elements in the same order. With a radix of all ranks that is theirs.
std::string NumericsOf(const Algorithm& algorithm, const Problem& problem,
                       const Parameters& parameters, uint64_t segment_elements) {
  std::string order = sdk::kRankOrderNumerics;
  switch (algorithm.order) {
    case Order::kNone:
      break;
    case Order::kRadix:
      // A reduce_scatter begins with the ranks that are farthest apart.
      if (parameters.radix < problem.world_size) {
        const bool is_halving = problem.collective == Collective::kReduceScatter;
        order = fmt::format("ucx.{}.{}", is_halving ? "halving" : "knomial", parameters.radix);
      }
      break;
    case Order::kSegment:
      order = fmt::format("ucx.{}.{}", algorithm.name, segment_elements);
      break;
    case Order::kFixed:
      order = fmt::format("ucx.{}", algorithm.name);
      break;
  }
  return std::string(sdk::NumericsOf(problem, order));
}

double CostUs(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
              uint64_t segments) {
  constexpr double kMessageUs = 2;
  constexpr double kBytesPerUs = 4000;
  const Price price = algorithm.price(problem.world_size, std::max(parameters.radix, 2));
  const double bytes = static_cast<double>(ProblemBytes(problem));
  return kMessageUs * (price.messages + static_cast<double>(segments - 1) / 2) +
         price.moves * bytes / kBytesPerUs;
}

class ChoiceAppender {
 public:
  ChoiceAppender(const Algorithm& algorithm, const Problem& problem, std::vector<Choice>& choices)
      : algorithm_(algorithm), problem_(problem), choices_(choices) {}

  void AppendAll() {
    if (!algorithm_.has_radix) return AppendForRadix(0);
    for (const int radix : kRadices) {
      AppendForRadix(radix);
      if (radix >= problem_.world_size) return;  // greater ones do the same
    }
  }

 private:
  void AppendForRadix(int radix) {
    if (algorithm_.has_posts) {
      for (const int posts : kLanePosts) {
        Append({.radix = radix, .posts = posts});
        if (posts >= problem_.world_size) return;
      }
      return;
    }
    const uint64_t whole = Append({.radix = radix});
    if (!algorithm_.has_segments) return;
    uint64_t before = whole;
    for (auto bytes = std::rbegin(kSegmentBytes); bytes != std::rend(kSegmentBytes); ++bytes) {
      const Parameters least = {.radix = radix, .segment_bytes = *bytes, .posts = kSegmentPosts[0]};
      const uint64_t elements = algorithm_.build(problem_, 0, least).segment_elements;
      if (elements == before) continue;
      before = elements;
      for (const int posts : kSegmentPosts) {
        Append({.radix = radix, .segment_bytes = *bytes, .posts = posts});
        if (elements * static_cast<uint64_t>(posts) >= problem_.count) break;
      }
    }
  }
  // Returns the elements of a segment.
  uint64_t Append(const Parameters& parameters) {
    const Schedule schedule = algorithm_.build(problem_, 0, parameters);
    choices_.push_back(
        {.name = NameOf(algorithm_, parameters),
         .reason = "",
         .cost_us =
             CostUs(algorithm_, problem_, parameters, std::max<uint64_t>(schedule.Segments(), 1)),
         .workspace_bytes = schedule.ScratchBytes(),
         .numerics = NumericsOf(algorithm_, problem_, parameters, schedule.segment_elements)});
    return schedule.segment_elements;
  }

  const Algorithm& algorithm_;
  const Problem& problem_;
  std::vector<Choice>& choices_;
};

// Few messages in a row for small problems, little traffic for large ones.
std::string_view DefaultName(const Problem& problem) {
  const uint64_t bytes = ProblemBytes(problem);
  switch (problem.collective) {
    case Collective::kAllReduce:
      if (bytes <= (4 << 10)) return "knomial?radix=4";
      return bytes <= (1 << 20) ? "scatter_gather?radix=4" : "ring";
    case Collective::kAllGather:
      if (problem.world_size == 2) return "linear?posts=2";
      return bytes <= (16 << 10) ? "knomial?radix=4" : "ring";
    case Collective::kReduceScatter:
      return bytes <= (64 << 10) ? "halving?radix=4" : "ring";
    case Collective::kAllToAll:
      return "pairwise?posts=8";
    case Collective::kBroadcast:
      if (problem.world_size == 2) return "chain";
      return bytes <= (32 << 10) ? "knomial?radix=4" : "scatter_gather";
  }
  return "";
}

// The default's own name, or the last of its algorithm where that has no such radix here.
void MarkDefault(const Problem& problem, std::vector<Choice>& choices) {
  const std::string_view wanted = DefaultName(problem);
  const std::string_view algorithm = wanted.substr(0, wanted.find('?'));
  Choice* chosen = nullptr;
  for (Choice& choice : choices) {
    if (!choice.reason.empty()) continue;
    const std::string_view name = choice.name;
    if (name.substr(0, name.find('?')) == algorithm) chosen = &choice;
    if (name == wanted) break;
  }
  chosen->is_default = true;
}

const Algorithm* FindAlgorithm(Collective collective, std::string_view name) {
  const auto found = std::find_if(
      std::begin(kAlgorithms), std::end(kAlgorithms),
      [&](const Algorithm& a) { return a.collective == collective && a.name == name; });
  return found == std::end(kAlgorithms) ? nullptr : &*found;
}

}  // namespace

std::vector<Choice> ListChoices(const Problem& problem) {
  std::vector<Choice> choices;
  if (problem.world_size == 1) {
    choices.push_back({.name = "copy",
                       .reason = "",
                       .cost_us = static_cast<double>(ProblemBytes(problem)) / 8000,
                       .is_default = true,
                       .numerics = sdk::kExactNumerics});
  }
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective != problem.collective) continue;
    const std::string refusal = RefusalOf(algorithm, problem);
    if (refusal.empty()) {
      ChoiceAppender(algorithm, problem, choices).AppendAll();
    } else {
      choices.push_back({.name = algorithm.name, .reason = refusal});
    }
  }
  if (problem.world_size > 1) MarkDefault(problem, choices);
  return choices;
}

Result<Schedule> ScheduleOf(const Problem& problem, std::string_view choice_name, int rank) {
  if (problem.world_size == 1 && choice_name == "copy") return ScheduleAlone(problem, rank, {});
  const std::string_view name = choice_name.substr(0, choice_name.find('?'));
  const bool has_parameters = name.size() < choice_name.size();
  const Algorithm* algorithm = FindAlgorithm(problem.collective, name);
  const auto parameters =
      ParametersOf(has_parameters ? choice_name.substr(name.size() + 1) : std::string_view());
  if (algorithm == nullptr || !parameters || !HasParameters(*algorithm, *parameters) ||
      NameOf(*algorithm, *parameters) != choice_name) {
    return Fail(
        COTUNE_INVALID_ARGUMENT,
        fmt::format("'{}' is no choice of this problem; list_choices names them", choice_name));
  }
  if (const std::string refusal = RefusalOf(*algorithm, problem); !refusal.empty()) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", choice_name, refusal));
  }
  // Also parameters that are not listed at this size: what won at one size runs at its neighbours.
  return algorithm->build(problem, rank, *parameters);
}

}  // namespace cotune::ucx
