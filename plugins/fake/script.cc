#include "plugins/fake/script.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "fmt/format.h"

namespace cotune::fake {
namespace {

constexpr uint32_t kAllCollectives = (1u << COTUNE_ALL_REDUCE) | (1u << COTUNE_ALL_GATHER) |
                                     (1u << COTUNE_REDUCE_SCATTER) | (1u << COTUNE_ALL_TO_ALL) |
                                     (1u << COTUNE_BROADCAST);

struct CollectiveName {
  std::string_view name;
  uint32_t value;
};
constexpr CollectiveName kCollectiveNames[] = {
    {"all_reduce", COTUNE_ALL_REDUCE},         {"all_gather", COTUNE_ALL_GATHER},
    {"reduce_scatter", COTUNE_REDUCE_SCATTER}, {"all_to_all", COTUNE_ALL_TO_ALL},
    {"broadcast", COTUNE_BROADCAST},
};

struct FaultName {
  std::string_view word;
  FaultKind kind;
  bool has_choice;
  bool counts_calls;
};
constexpr FaultName kFaultNames[] = {
    {"fail_group", FaultKind::kFailGroup, false, false},
    {"fail_prepare", FaultKind::kFailPrepare, true, false},
    {"delay_prepare", FaultKind::kDelayPrepare, true, false},
    {"fail_launch", FaultKind::kFailLaunch, true, true},
    {"wrong", FaultKind::kWrong, true, true},
    {"hang", FaultKind::kHang, true, true},
    {"overrun", FaultKind::kOverrun, true, true},
    {"divergent", FaultKind::kDivergent, false, false},
};

// One statement: its words, and where the rest behind each word starts.
class Statement {
 public:
  Statement(std::string_view text, int line) : text_(text.substr(0, text.find('#'))), line_(line) {}

  // The next word; empty at the end.
  std::string_view Take() {
    const std::string_view rest = Rest();
    const size_t end = std::min(rest.find_first_of(" \t\r"), rest.size());
    text_ = rest.substr(end);
    return rest.substr(0, end);
  }
  std::string_view Peek() const { return Statement(*this).Take(); }

  // All that is left, without spaces around it.
  std::string_view Rest() const {
    const size_t first = text_.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text_.substr(first, text_.find_last_not_of(" \t\r") - first + 1);
  }

  tl::unexpected<Failure> Wrong(std::string_view what) const {
    return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("fake.script line {}: {}", line_, what));
  }

 private:
  std::string_view text_;
  int line_;
};

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0) || !std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}

// "A" or "A+B".
std::optional<Cost> ParseCost(std::string_view text) {
  const size_t plus = std::min(text.find('+'), text.size());
  const auto base = ParseNumber<double>(text.substr(0, plus));
  const auto per_kib =
      plus == text.size() ? std::optional<double>(0) : ParseNumber<double>(text.substr(plus + 1));
  if (!base || !per_kib) return std::nullopt;
  return Cost{*base, *per_kib};
}

// Bits of the collectives in "a,b".
Result<uint32_t> ParseCollectives(const Statement& at, std::string_view text) {
  uint32_t bits = 0;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    const auto* found = std::find_if(std::begin(kCollectiveNames), std::end(kCollectiveNames),
                                     [&](const auto& each) { return each.name == word; });
    if (found == std::end(kCollectiveNames)) {
      return at.Wrong(fmt::format("'{}' is no collective", word));
    }
    bits |= 1u << found->value;
    if (comma == text.size()) return bits;
    text.remove_prefix(comma + 1);
  }
}

// "key=value" split; the value is empty when there is no "=".
std::pair<std::string_view, std::string_view> SplitOption(std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size());
  return {word.substr(0, equals),
          equals == word.size() ? std::string_view() : word.substr(equals + 1)};
}

Result<void> AddChoice(Statement& at, Script& script) {
  ScriptedChoice choice;
  choice.name = at.Take();
  choice.collectives = kAllCollectives;
  if (choice.name.empty()) return at.Wrong("choice needs a name");
  while (!at.Peek().empty()) {
    const std::string_view word = at.Take();
    const auto [key, value] = SplitOption(word);
    if (word == "default") {
      choice.is_default = true;
    } else if (key == "on") {
      const auto bits = ParseCollectives(at, value);
      if (!bits) return tl::make_unexpected(bits.error());
      choice.collectives = *bits;
    } else if (key == "cost_us" || key == "model_us") {
      const auto cost = ParseCost(value);
      if (!cost) return at.Wrong(fmt::format("'{}': give A or A+B, numbers from 0", word));
      (key == "cost_us" ? choice.cost : choice.model) = *cost;
      choice.has_model = choice.has_model || key == "model_us";
    } else {
      return at.Wrong(fmt::format("unknown word '{}' for a choice", word));
    }
  }
  script.choices.push_back(std::move(choice));
  return {};
}

Result<void> AddRefusal(Statement& at, Script& script) {
  ScriptedChoice choice;
  choice.name = at.Take();
  choice.collectives = kAllCollectives;
  choice.refusal = at.Rest();
  if (choice.refusal.empty()) return at.Wrong("refuse needs a name and a reason");
  script.choices.push_back(std::move(choice));
  return {};
}

Result<void> AddRefuseAll(Statement& at, Script& script) {
  script.refused_collectives = kAllCollectives;
  if (const auto [key, value] = SplitOption(at.Peek()); key == "on") {
    const auto bits = ParseCollectives(at, value);
    if (!bits) return tl::make_unexpected(bits.error());
    script.refused_collectives = *bits;
    at.Take();
  }
  script.refuse_all_reason = at.Rest();
  if (script.refuse_all_reason.empty()) return at.Wrong("refuse_all needs a reason");
  return {};
}

Result<void> SetCreate(Statement& at, std::string_view word, Script& script) {
  script.create_status = word == "create_fails" ? COTUNE_INTERNAL : COTUNE_UNSUPPORTED;
  script.create_reason = at.Rest();
  if (script.create_reason.empty()) return at.Wrong(fmt::format("{} needs a reason", word));
  return {};
}

Result<void> AddFault(Statement& at, const FaultName& fault_name, Script& script) {
  Fault fault;
  fault.kind = fault_name.kind;
  if (fault_name.has_choice) {
    fault.choice = at.Take();
    if (fault.choice.empty()) return at.Wrong(fmt::format("{} needs a choice", fault_name.word));
  }
  while (!at.Peek().empty()) {
    const std::string_view word = at.Take();
    const auto [key, value] = SplitOption(word);
    const auto number = ParseNumber<int32_t>(value);
    if (key == "rank" && number) {
      fault.job_rank = *number;
    } else if (key == "call" && fault_name.counts_calls && number && *number > 0) {
      fault.call = static_cast<uint64_t>(*number);
    } else if (key == "us" && fault.kind == FaultKind::kDelayPrepare && number) {
      fault.delay_us = *number;
    } else {
      return at.Wrong(fmt::format("unknown word '{}' for {}", word, fault_name.word));
    }
  }
  if (fault.kind == FaultKind::kDelayPrepare && fault.delay_us == 0) {
    return at.Wrong("delay_prepare needs us=U");
  }
  if (fault.kind == FaultKind::kDivergent && fault.job_rank < 0) {
    return at.Wrong("divergent needs rank=R");
  }
  script.faults.push_back(std::move(fault));
  return {};
}

Result<void> AddStatement(Statement& at, Script& script) {
  const std::string_view word = at.Take();
  if (word.empty()) return {};
  if (word == "choice") return AddChoice(at, script);
  if (word == "refuse") return AddRefusal(at, script);
  if (word == "refuse_all") return AddRefuseAll(at, script);
  if (word == "create_fails" || word == "create_unsupported") return SetCreate(at, word, script);
  for (const FaultName& fault_name : kFaultNames) {
    if (fault_name.word == word) return AddFault(at, fault_name, script);
  }
  return at.Wrong(fmt::format("unknown statement '{}'", word));
}

// What only the whole script shows.
Result<void> CheckWhole(const Script& script) {
  const auto wrong = [](std::string text) {
    return Fail(COTUNE_INVALID_ARGUMENT, "fake.script: " + std::move(text));
  };
  if (std::count_if(script.choices.begin(), script.choices.end(),
                    [](const auto& choice) { return choice.is_default; }) > 1) {
    return wrong("two choices are marked default");
  }
  const auto named = [&](const std::string& name) {
    return std::count_if(script.choices.begin(), script.choices.end(),
                         [&](const auto& choice) { return choice.name == name; });
  };
  for (const ScriptedChoice& choice : script.choices) {
    if (named(choice.name) > 1) return wrong(fmt::format("'{}' is there twice", choice.name));
    if (choice.name.size() >= sizeof(cotune_choice_t::name)) {
      return wrong(fmt::format("the name '{}' is too long", choice.name));
    }
  }
  for (const Fault& fault : script.faults) {
    if (!fault.choice.empty() && named(fault.choice) == 0) {
      return wrong(fmt::format("a fault is for '{}', which is no choice", fault.choice));
    }
  }
  return {};
}

}  // namespace

const Fault* Script::Find(FaultKind kind, std::string_view choice, int32_t job_rank,
                          uint64_t call) const {
  for (const Fault& fault : faults) {
    if (fault.kind != kind || fault.choice != choice) continue;
    if (fault.job_rank >= 0 && fault.job_rank != job_rank) continue;
    if (fault.call != 0 && fault.call != call) continue;
    return &fault;
  }
  return nullptr;
}

Result<Script> ParseScript(std::string_view text) {
  Script script;
  int line = 1;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n;"), text.size());
    Statement statement(text.substr(0, end), line);
    if (auto added = AddStatement(statement, script); !added) {
      return tl::make_unexpected(added.error());
    }
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
  }
  if (script.choices.empty()) {
    script.choices.push_back({"direct", true, {}, {}, false, kAllCollectives, ""});
  }
  if (auto whole = CheckWhole(script); !whole) return tl::make_unexpected(whole.error());
  return script;
}

}  // namespace cotune::fake
