#include "cli/output/times_text.h"

#include <cstdint>

#include "fmt/format.h"

namespace cotune::cli {
namespace {

std::string Milliseconds(int64_t time_ns) {
  return fmt::format("{:.1f} ms", static_cast<double>(time_ns) / 1e6);
}

}  // namespace

std::string TimesText(const TuneTimes& times) {
  const StageTimes& all = times.all;
  std::string text = fmt::format(
      "times: choices {}, compile {}, warm {}, sync {}, measure {}, agree {}, save {}\n",
      Milliseconds(all.choices_ns), Milliseconds(all.compile_ns), Milliseconds(all.warm_ns),
      Milliseconds(all.sync_ns), Milliseconds(all.measure_ns), Milliseconds(all.agree_ns),
      Milliseconds(all.save_ns));
  for (const NodeTimes& node : times.nodes) {
    text += fmt::format("  {}: choices {}, compile {} (all threads), measure {}\n", node.node,
                        Milliseconds(node.choices_ns), Milliseconds(node.compile_ns),
                        Milliseconds(node.measure_ns));
  }
  return text;
}

}  // namespace cotune::cli
