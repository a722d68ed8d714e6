#include "integration/capi/explanation.h"

#include "core/base/counted.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cotune::capi {
namespace {

using Json = nlohmann::ordered_json;

std::string RangeText(const CallExplanation& call) {
  if (call.end_bytes == UINT64_MAX) {
    return fmt::format("sizes of {} bytes and more", call.first_bytes);
  }
  return fmt::format("sizes from {} to {} bytes", call.first_bytes, call.end_bytes - 1);
}

// "" when the size lies among the measured ones.
std::string BeyondMeasuredText(const Explained& explained) {
  if (explained.bytes > explained.largest_measured_bytes.value_or(UINT64_MAX)) {
    return fmt::format("nothing above {} bytes was measured: this is the choice of that size\n",
                       *explained.largest_measured_bytes);
  }
  if (explained.bytes < explained.smallest_measured_bytes.value_or(0)) {
    return fmt::format("nothing below {} bytes was measured: this is the choice of that size\n",
                       *explained.smallest_measured_bytes);
  }
  return "";
}

const char* SourceName(const CallExplanation& call) {
  if (call.is_forced) return "forced";
  if (call.from_table) return "table";
  if (call.is_next_best) return "next_best";
  return call.table_choice_refused.empty() ? "default" : "default_after_refusal";
}

// Null: nothing was timed.
Json Microseconds(int64_t time_ns) {
  return time_ns <= 0 ? Json(nullptr) : Json(static_cast<double>(time_ns) / 1e3);
}

Json MeasuredJson(const MeasuredSize& measured) {
  const DatabaseEntry& entry = measured.entry;
  Json choices = Json::array();
  for (const Verdict& verdict : entry.cell.verdicts) {
    choices.push_back({{"choice", verdict.id.text()},
                       {"outcome", OutcomeName(verdict.outcome)},
                       {"is_default", verdict.is_default},
                       {"numerics", verdict.numerics},
                       {"time_us", Microseconds(verdict.median_ns)},
                       {"warm_time_us", Microseconds(verdict.warm_median_ns)},
                       {"wrong", verdict.wrong_elements},
                       {"reason", verdict.reason}});
  }
  Json refusals = Json::array();
  for (const Refusal& refusal : entry.cell.refusals) {
    refusals.push_back({{"choice", refusal.choice}, {"reason", refusal.reason}});
  }
  return {{"bytes", entry.cell.problem.bytes()},
          {"winner", entry.winner.id.text()},
          {"time_us", Microseconds(entry.winner.median_ns)},
          {"measured_unix_s", entry.measured_unix_s},
          {"why", entry.winner.why},
          {"unsteady", entry.cell.is_unsteady},
          {"not_raced", measured.not_raced},
          {"choices", std::move(choices)},
          {"refusals", std::move(refusals)}};
}

// Null: no choice runs captured calls.
Json InGraphs(const CallExplanation& call) {
  if (!call.is_eager) return call.choice.text();
  return call.choice_in_graphs ? Json(call.choice_in_graphs->text()) : Json(nullptr);
}

// "" if each collective of the call runs its forced choice, or none is forced.
std::string RefusedForceText(const CallExplanation& call) {
  return call.forced_refused.empty()
             ? ""
             : fmt::format("the setting force_choice does not reach all of it ({})\n",
                           call.forced_refused);
}

std::string ForcedText(const CallExplanation& call) {
  return "the setting force_choice gives it this choice; nothing else counts\n" +
         RefusedForceText(call);
}

// A line for each choice that was dropped at a measured size, with the reason; a function of the
// caller that has failed appears nowhere else.
std::string DroppedText(const CellResult& cell) {
  std::string text;
  for (const Verdict& verdict : cell.verdicts) {
    if (verdict.has_time()) continue;
    text += fmt::format("    {} was dropped ({}){}{}\n", verdict.id.text(),
                        OutcomeName(verdict.outcome), verdict.reason.empty() ? "" : ": ",
                        verdict.reason);
  }
  return text;
}

// The lines on where the choice comes from.
std::string SourceText(const Explained& explained) {
  const CallExplanation& call = explained.call;
  if (call.is_forced) return ForcedText(call);
  std::string text = RefusedForceText(call);
  if (call.relative) {
    text += fmt::format("this call was not measured: it runs by the row of {}\n",
                        InWords(*call.relative));
  }
  if (call.is_agreed) {
    text += "the ranks have agreed on it for each call of its collectives\n";
    for (const auto& [entry, not_raced] : explained.measured) {
      text += fmt::format("  at {} bytes {} won: {}\n", entry.cell.problem.bytes(),
                          entry.winner.id.text(), entry.winner.why) +
              DroppedText(entry.cell);
    }
    return text;
  }
  if (call.from_table) {
    text += fmt::format("tuned for {}\n", RangeText(call)) + BeyondMeasuredText(explained);
    if (call.next_size_bytes > 0) {
      text += fmt::format(
          "it is the winner at {} bytes, because that of the measured size below is not listed for "
          "this call\n",
          call.next_size_bytes);
    }
    for (const auto& [entry, not_raced] : explained.measured) {
      text += fmt::format("  at {} bytes: {}\n", entry.cell.problem.bytes(), entry.winner.why) +
              DroppedText(entry.cell);
    }
    return text;
  }
  if (call.table_choice_refused.empty()) {
    return text + "not tuned: the default choice of the first backend that can run it\n";
  }
  text += fmt::format("the tuned choice does not run it ({}): ", call.table_choice_refused);
  if (call.is_next_best) {
    return text + fmt::format("the next best choice of the nearest measured size, for {}\n",
                              RangeText(call));
  }
  return text + "the default choice of the first backend that can\n";
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::string ExplanationText(const Explained& explained) {
  const CallExplanation& call = explained.call;
  std::string text = fmt::format("{} on {} runs {}\n", explained.subject,
                                 Counted(explained.cls.world_size, "rank"), call.choice.text());
  text += SourceText(explained);
  if (call.is_eager) {
    text +=
        call.choice_in_graphs
            ? fmt::format("captured in a CUDA graph it runs {}, because that choice cannot be\n",
                          call.choice_in_graphs->text())
            : "it cannot be captured in a CUDA graph\n";
  }
  return text;
}

std::string ExplanationJson(const Explained& explained) {
  const CallExplanation& call = explained.call;
  const bool is_program = !explained.program_text.empty();
  const bool has_range = call.from_table || call.is_next_best;
  const bool is_bounded = has_range && call.end_bytes != UINT64_MAX;
  Json measured = Json::array();
  for (const MeasuredSize& each : explained.measured) measured.push_back(MeasuredJson(each));
  const Json json = {
      {"subject", explained.subject},
      {"class", ToText(explained.cls)},
      {"world_size", explained.cls.world_size},
      {"bytes", explained.bytes},
      {"rows", OrNull(explained.rows)},
      {"program", is_program ? Json(explained.program_text) : Json(nullptr)},
      {"choice", call.choice.text()},
      {"is_agreed", call.is_agreed},
      {"forced_refused", call.forced_refused},
      {"source", SourceName(call)},
      {"choice_in_graphs", InGraphs(call)},
      {"refused", call.table_choice_refused},
      {"relative", call.relative ? Json(InWords(*call.relative)) : Json(nullptr)},
      {"first_bytes", has_range ? Json(call.first_bytes) : Json(nullptr)},
      {"end_bytes", is_bounded ? Json(call.end_bytes) : Json(nullptr)},
      {"smallest_measured_bytes", OrNull(explained.smallest_measured_bytes)},
      {"largest_measured_bytes", OrNull(explained.largest_measured_bytes)},
      {"measured", std::move(measured)},
  };
  // Reasons come from plugins and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cotune::capi
