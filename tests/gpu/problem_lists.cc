#include "tests/gpu/problem_lists.h"

#include <cstdlib>
#include <functional>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

template <typename T>
Result<std::vector<T>> Parsed(const Flags& flags, const std::string& name, std::span<const T> all,
                              const std::function<Result<T>(std::string_view)>& parse) {
  const std::vector<std::string> names = flags.List(name, "all");
  if (names == std::vector<std::string>{"all"}) return std::vector<T>(all.begin(), all.end());
  std::vector<T> values;
  for (const std::string& each : names) {
    COTUNE_TRY(const T value, parse(each));
    values.push_back(value);
  }
  return values;
}

Result<Pattern> ParsePattern(std::string_view text) {
  for (Pattern pattern : {Pattern::kExact, Pattern::kRandom, Pattern::kSpecial, Pattern::kBits}) {
    if (Name(pattern) == text) return pattern;
  }
  return Fail(ErrorCode::kUsage, fmt::format("unknown pattern '{}'", text));
}

}  // namespace

Result<std::vector<ProblemClass>> ClassesOf(Job& job, const Flags& flags) {
  COTUNE_TRY(const auto collectives,
             Parsed<Collective>(flags, "collectives", AllCollectives(), ParseCollective));
  COTUNE_TRY(const auto dtypes, Parsed<Dtype>(flags, "dtypes", AllDtypes(), ParseDtype));
  COTUNE_TRY(const auto reductions,
             Parsed<Reduction>(flags, "reductions", AllReductions(), ParseReduction));
  std::vector<ProblemClass> classes;
  for (Collective collective : collectives) {
    for (Dtype dtype : dtypes) {
      for (Reduction reduction : reductions) {
        classes.push_back(job.Class(collective, dtype, reduction));
        if (!Reduces(collective)) break;
      }
    }
  }
  return classes;
}

std::vector<uint64_t> CountsOf(const Flags& flags, const std::string& fallback) {
  std::vector<uint64_t> counts;
  for (const std::string& text : flags.List("counts", fallback)) {
    counts.push_back(std::strtoull(text.c_str(), nullptr, 10));
  }
  return counts;
}

Result<std::vector<Pattern>> PatternsOf(const Flags& flags, const ProblemClass& cls) {
  const std::vector<std::string> names =
      flags.List("patterns", Reduces(cls.collective) ? "exact,random" : "bits");
  std::vector<Pattern> patterns;
  for (const std::string& name : names) {
    COTUNE_TRY(const Pattern pattern, ParsePattern(name));
    patterns.push_back(pattern);
  }
  return patterns;
}

}  // namespace cotune::gputest
