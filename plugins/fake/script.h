// What the fake backend offers and how it misbehaves, read from the setting "fake.script".
//
// One statement a line; ";" ends a line too, "#" starts a comment. NAME is a choice's name, R a
// rank of the job (all ranks when it is left out), N counts the launches of that choice in one
// group from 1 (every launch when it is left out).
//
//   choice NAME [default] [cost_us=A[+B]] [model_us=A[+B]] [on=COLLECTIVE[,COLLECTIVE...]]
//       offers a choice. An operation takes at least A + B * bytes / 1024 microseconds. model_us is
//       the estimate that it is listed with. on: the collectives it can run, else all.
//   refuse NAME REASON...             lists a choice that cannot run
//   refuse_all [on=...] REASON...     refuses the whole problem
//   create_fails REASON...            create gives COTUNE_INTERNAL
//   create_unsupported REASON...      create gives COTUNE_UNSUPPORTED
//   fail_group [rank=R]               group_create fails
//   fail_prepare NAME [rank=R]        prepare fails
//   delay_prepare NAME us=U [rank=R]  prepare takes that much longer
//   fail_launch NAME [rank=R] [call=N]
//   wrong NAME [rank=R] [call=N]      one element of the result is wrong
//   hang NAME [rank=R] [call=N]       sends nothing and never completes
//   overrun NAME [rank=R] [call=N]    changes the byte behind the receive buffer
//   divergent rank=R                  that rank leaves the last choice out of its list
//
// Without a script there is one choice, "direct".
#ifndef COTUNE_PLUGINS_FAKE_SCRIPT_H_
#define COTUNE_PLUGINS_FAKE_SCRIPT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/fake/failure.h"

namespace cotune::fake {

// base + per_kib * bytes / 1024, in microseconds.
struct Cost {
  double base_us = 0;
  double per_kib_us = 0;
  double At(uint64_t bytes) const {
    return base_us + per_kib_us * (static_cast<double>(bytes) / 1024);
  }
};

struct ScriptedChoice {
  std::string name;
  bool is_default = false;
  Cost cost;
  Cost model;
  bool has_model = false;
  uint32_t collectives = 0;  // bit (1 << COTUNE_*)
  std::string refusal;       // not empty: listed as refused
};

enum class FaultKind {
  kFailGroup,
  kFailPrepare,
  kDelayPrepare,
  kFailLaunch,
  kWrong,
  kHang,
  kOverrun,
  kDivergent,
};

struct Fault {
  FaultKind kind = FaultKind::kFailGroup;
  std::string choice;     // empty for faults of no choice
  int32_t job_rank = -1;  // -1: all
  uint64_t call = 0;      // 0: every launch
  int64_t delay_us = 0;   // kDelayPrepare
};

struct Script {
  std::vector<ScriptedChoice> choices;  // in the order of the list
  std::vector<Fault> faults;
  uint32_t refused_collectives = 0;  // bit (1 << COTUNE_*)
  std::string refuse_all_reason;
  cotune_status_t create_status = COTUNE_OK;
  std::string create_reason;

  // The first fault of this kind that hits; call 0 for faults that count no launches.
  const Fault* Find(FaultKind kind, std::string_view choice, int32_t job_rank, uint64_t call) const;
};

// COTUNE_INVALID_ARGUMENT names the line and what is wrong with it. Pure.
Result<Script> ParseScript(std::string_view text);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPT_H_
