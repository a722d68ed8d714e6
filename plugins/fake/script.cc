#include "plugins/fake/script.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {
namespace {

constexpr std::string_view kSpaces = " \t\r";

std::string_view TakeWord(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  const size_t end = std::min(text.find_first_of(kSpaces), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// Numbers from 0; false when it is none.
template <typename T>
bool Read(std::string_view text, T& value) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(number >= 0) || !std::isfinite(static_cast<double>(number))) return false;
  value = number;
  return true;
}

bool ReadCollectives(std::string_view text, uint32_t& bits) {
  constexpr std::pair<std::string_view, uint32_t> kNames[] = {
      {"all_reduce", COTUNE_ALL_REDUCE},         {"all_gather", COTUNE_ALL_GATHER},
      {"reduce_scatter", COTUNE_REDUCE_SCATTER}, {"all_to_all", COTUNE_ALL_TO_ALL},
      {"broadcast", COTUNE_BROADCAST},
  };
  bits = 0;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& each) {
      return each.first == text.substr(0, comma);
    });
    if (found == std::end(kNames)) return false;
    bits |= 1u << found->second;
    if (comma == text.size()) return true;
    text.remove_prefix(comma + 1);
  }
}

// A reason of one word, in which underscores stand for spaces.
bool ReadReason(std::string_view text, std::string& reason) {
  reason = text;
  std::replace(reason.begin(), reason.end(), '_', ' ');
  return !reason.empty();
}

bool SetValue(std::string_view key, std::string_view value, ScriptedChoice& choice) {
  if (key == "cost_us") return Read(value, choice.cost_us);
  if (key == "cost_per_kib_us") return Read(value, choice.cost_per_kib_us);
  if (key == "model_us") return Read(value, choice.model_us);
  if (key == "only") return ReadCollectives(value, choice.collectives);
  if (key == "bytes_min") return Read(value, choice.bytes_min);
  if (key == "bytes_max") return Read(value, choice.bytes_max);
  if (key == "prepare_fails_on") return Read(value, choice.prepare_fails_on);
  if (key == "prepare_refused_on") return Read(value, choice.prepare_refused_on);
  if (key == "prepare_only_in") {
    choice.prepare_only_in = value;
    return !value.empty();
  }
  if (key == "prepare_delay_ms") return Read(value, choice.prepare_delay_ms);
  if (key == "prepare_delay_on") return Read(value, choice.prepare_delay_on);
  if (key == "launch_fails_on") return Read(value, choice.launch_fails_on);
  if (key == "launch_fails_at") return Read(value, choice.launch_fails_at);
  if (key == "wrong_on") return Read(value, choice.wrong_on);
  if (key == "overruns_on") return Read(value, choice.overruns_on);
  if (key == "hangs_on") return Read(value, choice.hangs_on);
  if (key == "missing_on") return Read(value, choice.missing_on);
  if (key == "fuses") return Read(value, choice.fuses) && choice.fuses > 0;
  if (key == "fuse_cost_us") return Read(value, choice.fuse_cost_us);
  if (key == "region_refused") return ReadReason(value, choice.region_refused);
  if (key == "region_hangs_on") return Read(value, choice.region_hangs_on);
  if (key == "wrong_epilogue_on") return Read(value, choice.wrong_epilogue_on);
  if (key == "bits_differ_on") return Read(value, choice.bits_differ_on);
  if (key == "numerics") {
    choice.numerics = value;
    return !value.empty() && value.size() < sizeof(cotune_choice_t::numerics);
  }
  if (key == "refuse") return ReadReason(value, choice.refuse);
  return false;
}

// Reads a line of a choice. Returns what is wrong with it; empty when it was read.
std::string ReadChoice(std::string_view rest, Script& script) {
  ScriptedChoice choice;
  choice.name = TakeWord(rest);
  if (choice.name.empty()) return "a choice needs a name";
  if (choice.name.size() >= sizeof(cotune_choice_t::name)) {
    return fmt::format("the name '{}' is too long", choice.name);
  }
  for (const ScriptedChoice& other : script.choices) {
    if (other.name == choice.name) return fmt::format("'{}' is there twice", choice.name);
  }
  for (std::string_view word = TakeWord(rest); !word.empty(); word = TakeWord(rest)) {
    const size_t equals = word.find('=');
    const bool is_known = equals == std::string_view::npos
                              ? word == "default" || word == "collective_prepare" ||
                                    word == "names_late" || word == "region_compile_fails" ||
                                    word == "keeps_wide" || word == "fits_any_region" ||
                                    word == "only_regions"
                              : SetValue(word.substr(0, equals), word.substr(equals + 1), choice);
    if (!is_known) return fmt::format("cannot read '{}'", word);
    choice.is_default = choice.is_default || word == "default";
    choice.collective_prepare = choice.collective_prepare || word == "collective_prepare";
    choice.names_late = choice.names_late || word == "names_late";
    choice.region_compile_fails = choice.region_compile_fails || word == "region_compile_fails";
    choice.keeps_wide = choice.keeps_wide || word == "keeps_wide";
    choice.fits_any_region = choice.fits_any_region || word == "fits_any_region";
    choice.only_regions = choice.only_regions || word == "only_regions";
  }
  script.choices.push_back(std::move(choice));
  return "";
}

bool SetValue(std::string_view key, std::string_view value, ScriptedParts& parts) {
  if (key == "cost_us") return Read(value, parts.cost_us);
  if (key == "refuse") return ReadReason(value, parts.refuse);
  if (key == "prepare_fails_on") return Read(value, parts.prepare_fails_on);
  if (key == "prepare_refused_on") return Read(value, parts.prepare_refused_on);
  if (key == "launch_fails_on") return Read(value, parts.launch_fails_on);
  if (key == "launch_fails_at") return Read(value, parts.launch_fails_at);
  if (key == "wrong_on") return Read(value, parts.wrong_on);
  return false;
}

std::string ReadParts(std::string_view rest, Script& script) {
  if (script.parts) return "'parts' is there twice";
  ScriptedParts& parts = script.parts.emplace();
  for (std::string_view word = TakeWord(rest); !word.empty(); word = TakeWord(rest)) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (!SetValue(word.substr(0, equals), value, parts)) {
      return fmt::format("cannot read '{}'", word);
    }
  }
  return "";
}

bool ReadHow(std::string_view word, How& how) {
  constexpr std::pair<std::string_view, How> kNames[] = {
      {"never_returns", How::kNeverReturns},
      {"never_done", How::kNeverDone},
      {"crashes", How::kCrashes},
      {"crashes_aside", How::kCrashesAside},
      {"overflows", How::kOverflows},
      {"exits", How::kExits},
      {"exits_with_7", How::kExitsWith7},
      {"throws", How::kThrows},
      {"throws_int", How::kThrowsInt},
  };
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const auto& each) { return each.first == word; });
  if (found != std::end(kNames)) how = found->second;
  return found != std::end(kNames);
}

bool IsFunction(std::string_view name) {
  constexpr std::string_view kNames[] = {"create",
                                         "destroy",
                                         "get_extension",
                                         "list_choices",
                                         "group_create",
                                         "group_health",
                                         "group_abort",
                                         "group_destroy",
                                         "prepare",
                                         "launch",
                                         "progress",
                                         "plan_destroy",
                                         "part_prepare",
                                         "part_launch",
                                         "part_progress",
                                         "part_plan_destroy",
                                         "region_list_choices",
                                         "region_prepare",
                                         "region_launch",
                                         "region_progress",
                                         "region_plan_destroy"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string ReadBreach(std::string_view rest, Script& script) {
  Breach breach;
  breach.function = TakeWord(rest);
  if (!IsFunction(breach.function)) {
    return fmt::format("there is no function '{}'", breach.function);
  }
  const std::string_view how = TakeWord(rest);
  const bool is_known = ReadHow(how, breach.how);
  if (!is_known || (breach.how == How::kNeverDone && !breach.function.ends_with("progress"))) {
    return fmt::format("{} cannot be told to '{}'", breach.function, how);
  }
  for (std::string_view word = TakeWord(rest); !word.empty(); word = TakeWord(rest)) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    bool is_read = false;
    if (word.starts_with("on=")) is_read = Read(value, breach.on);
    if (word.starts_with("at=")) is_read = Read(value, breach.at) && breach.at > 0;
    if (word.starts_with("choice=")) {
      breach.choice = value;
      is_read = !value.empty();
    }
    if (!is_read) return fmt::format("cannot read '{}'", word);
  }
  script.breaches.push_back(std::move(breach));
  return "";
}

std::string ReadLine(std::string_view line, Script& script) {
  std::string_view rest = line;
  const std::string_view first = TakeWord(rest);
  if (first.empty() || first[0] == '#') return "";
  if (first == "choice") return ReadChoice(rest, script);
  if (first == "breach") return ReadBreach(rest, script);
  if (first == "parts") return ReadParts(rest, script);
  rest = Trim(rest);
  if (first == "group_fails_on") {
    return Read(rest, script.group_fails_on) ? "" : fmt::format("cannot read the rank '{}'", rest);
  }
  constexpr std::pair<std::string_view, std::string Script::*> kTexts[] = {
      {"refuse_all", &Script::refuse_all},     {"refuse_regions", &Script::refuse_regions},
      {"create_fails", &Script::create_fails}, {"create_unsupported", &Script::create_unsupported},
      {"libraries", &Script::libraries},
  };
  for (const auto& [word, text] : kTexts) {
    if (first != word) continue;
    script.*text = rest;
    return rest.empty() ? fmt::format("{} needs a text", word) : "";
  }
  return fmt::format(
      "expected 'choice', 'parts', 'breach', 'refuse_all', 'refuse_regions', 'group_fails_on', "
      "'create_fails', 'create_unsupported' or 'libraries', found '{}'",
      first);
}

}  // namespace

bool Script::has_regions() const {
  return !refuse_regions.empty() ||
         std::any_of(choices.begin(), choices.end(), [](const ScriptedChoice& choice) {
           return choice.fuses > 0 || !choice.region_refused.empty();
         });
}

Script ParseScript(std::string_view text) {
  Script script;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find_first_of("\n;"), text.size());
    const std::string mistake = ReadLine(text.substr(0, end), script);
    if (!mistake.empty()) {
      script.mistake = fmt::format("line {}: {}", line, mistake);
      return script;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto defaults = std::count_if(script.choices.begin(), script.choices.end(),
                                      [](const auto& choice) { return choice.is_default; });
  if (script.choices.empty()) script.mistake = "line 1: there is no choice";
  if (defaults > 1) script.mistake = fmt::format("{} choices are marked default", defaults);
  return script;
}

}  // namespace cotune::fake
