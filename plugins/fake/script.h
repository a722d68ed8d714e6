// What the fake backend is told to do: choices with costs and faults, one a line.
#ifndef COTUNE_PLUGINS_FAKE_SCRIPT_H_
#define COTUNE_PLUGINS_FAKE_SCRIPT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cotune::fake {

// One line: "choice NAME [WORD | KEY=VALUE]...". Ranks are ranks of the group; -1: none.
struct ScriptedChoice {
  std::string name;
  bool is_default = false;          // default
  bool collective_prepare = false;  // collective_prepare
  double cost_us = 0;               // cost_us=N: a call takes at least this long
  double cost_per_kib_us = 0;       // cost_per_kib_us=N: and this for each 1024 bytes
  double model_us = -1;             // model_us=N: the estimate it gives
  int32_t prepare_fails_on = -1;    // prepare_fails_on=RANK
  int64_t prepare_delay_ms = 0;     // prepare_delay_ms=N, on every rank
  int32_t launch_fails_on = -1;     // launch_fails_on=RANK
  int64_t launch_fails_at = 1;      // launch_fails_at=N: from the Nth call of a plan
  int32_t wrong_on = -1;            // wrong_on=RANK: the last element is wrong
  int32_t overruns_on = -1;  // overruns_on=RANK: one byte behind the receive buffer is written
  int32_t hangs_on = -1;     // hangs_on=RANK: this rank never takes part
  uint64_t bytes_min = 0;    // bytes_min=N, bytes_max=N: refused for problems outside
  uint64_t bytes_max = UINT64_MAX;
  std::string refuse;  // refuse=REASON, underscores for spaces: always refused
};

struct Script {
  std::vector<ScriptedChoice> choices;
  std::string mistake;  // "line 2: ...": the script cannot be read
};

// Lines end with a newline or ';'. Empty lines and lines that start with '#' do not count.
Script ParseScript(std::string_view text);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPT_H_
