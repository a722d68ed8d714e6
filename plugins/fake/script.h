// The script of the fake backend says what it offers and how it misbehaves: the setting
// "fake.script".
//
// One statement a line; ";" ends a line too. Empty lines and lines that start with "#" do not
// count. RANK is a rank of the group.
//
//   choice NAME [WORD...]         offers a choice; WORDs are
//     default                     the backend's own pick
//     collective_prepare          prepare meets all ranks
//     cost_us=N                   a call takes at least this long
//     cost_per_kib_us=N           and this for each 1024 bytes
//     model_us=N                  the estimate that it is listed with
//     only=COLLECTIVE[,...]       refused for other collectives
//     bytes_min=N, bytes_max=N    refused for problems outside
//     numerics=TEXT               the numerics class, as in the ABI; unknown without it
//     refuse=REASON               always refused; underscores stand for spaces
//     prepare_fails_on=RANK
//     prepare_refused_on=RANK     prepare gives COTUNE_UNSUPPORTED
//     prepare_only_in=TEXT        the two above count in groups with this text in their name
//     prepare_delay_ms=N          on every rank, or on the one of prepare_delay_on=RANK
//     launch_fails_on=RANK        from the first call of a plan, or from launch_fails_at=N on
//     wrong_on=RANK               the last element of the result is wrong
//     overruns_on=RANK            one byte behind the receive buffer is changed
//     hangs_on=RANK               this rank never takes part
//     names_late                  who waits in vain names the late rank not at the deadline, but as
//                                 long after it as the ABI allows
//     missing_on=RANK             not in this rank's list, against the rules of the ABI
//     fuses=N                     it also runs regions, collectives with up to N local operations
//                                 around them; the words above count for regions, too
//     fuse_cost_us=N              a call of a region takes at least this long, instead of the costs
//                                 above
//     region_refused=REASON       refused for regions; underscores stand for spaces
//     keeps_wide                  refused for regions in which every value is rounded to its dtype
//                                 (numerics=same)
//     fits_any_region             regions have COTUNE_CHOICE_FITS_ANY_REGION
//     only_regions                not in the lists of collectives, though prepare takes it
//     region_compile_fails        prepare of a region fails
//     region_hangs_on=RANK        this rank never takes part in a region
//     wrong_epilogue_on=RANK      the last element of the last output of a region is wrong
//     bits_differ_on=RANK         an element of that output is one unit in the last place off
//   parts [WORD...]               offers to run parts, programs without a collective; without this
//                                 statement the backend has no parts. RANKs count once a group was
//                                 made, since a part has none of its own. WORDs are
//     cost_us=N                   a call takes at least this long
//     refuse=REASON               every part is refused; underscores stand for spaces
//     prepare_fails_on=RANK
//     prepare_refused_on=RANK     part_prepare gives COTUNE_UNSUPPORTED
//     launch_fails_on=RANK        from the first call of a part, or from launch_fails_at=N on
//     wrong_on=RANK               the last element of the last output is wrong
//   refuse_all REASON...          every problem is refused
//   refuse_regions REASON...      every region is refused
//   group_fails_on RANK
//   libraries TEXT...             what the extension cotune.libraries/1 tells; "" without it
//   create_fails REASON...        create gives COTUNE_INTERNAL
//   create_unsupported REASON...  create gives COTUNE_UNSUPPORTED
//   breach FUNCTION HOW [WORD...] a function of the ABI's table breaks its contract, as no backend
//                                 should, or one of cotune.program/1: part_prepare, part_launch,
//                                 part_progress, part_plan_destroy, region_list_choices,
//                                 region_prepare, region_launch, region_progress,
//                                 region_plan_destroy. WORDs are
//     on=RANK                     on this rank only
//     choice=NAME                 for this choice only: prepare, launch, progress, plan_destroy
//                                 and these of regions
//     at=N                        from the Nth of these calls on
//   HOW is one of the following; the log says when the first two begin
//     never_returns               the call waits for ever, deaf to its deadline and to abort
//     never_done                  progress, also of parts and regions, is COTUNE_IN_PROGRESS always
//     crashes                     SIGSEGV
//     crashes_aside               SIGSEGV on a thread that the call starts
//     overflows                   the stack runs over
//     exits                       _exit(0)
//     exits_with_7                _exit(7)
//     throws                      std::runtime_error
//     throws_int                  an exception that is no std::exception
#ifndef COTUNE_PLUGINS_FAKE_SCRIPT_H_
#define COTUNE_PLUGINS_FAKE_SCRIPT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cotune::fake {

// Ranks are -1 where the script names none.
struct ScriptedChoice {
  std::string name;
  bool is_default = false;
  bool collective_prepare = false;
  bool names_late = false;
  double cost_us = 0;
  double cost_per_kib_us = 0;
  double model_us = -1;
  uint32_t collectives = UINT32_MAX;  // bit (1 << COTUNE_*)
  uint64_t bytes_min = 0;
  uint64_t bytes_max = UINT64_MAX;
  std::string numerics;
  std::string refuse;
  int32_t prepare_fails_on = -1;
  int32_t prepare_refused_on = -1;
  std::string prepare_only_in;
  int64_t prepare_delay_ms = 0;
  int32_t prepare_delay_on = -1;  // -1: every rank
  int32_t launch_fails_on = -1;
  int64_t launch_fails_at = 1;
  int32_t wrong_on = -1;
  int32_t overruns_on = -1;
  int32_t hangs_on = -1;
  int32_t missing_on = -1;
  uint32_t fuses = 0;  // 0: no regions
  double fuse_cost_us = -1;
  std::string region_refused;
  bool keeps_wide = false;
  bool fits_any_region = false;
  bool only_regions = false;
  bool region_compile_fails = false;
  int32_t region_hangs_on = -1;
  int32_t wrong_epilogue_on = -1;
  int32_t bits_differ_on = -1;
};

struct ScriptedParts {
  double cost_us = 0;
  std::string refuse;
  int32_t prepare_fails_on = -1;
  int32_t prepare_refused_on = -1;
  int32_t launch_fails_on = -1;
  int64_t launch_fails_at = 1;
  int32_t wrong_on = -1;
};

enum class How {
  kNeverReturns,
  kNeverDone,
  kCrashes,
  kCrashesAside,
  kOverflows,
  kExits,
  kExitsWith7,
  kThrows,
  kThrowsInt
};

struct Breach {
  std::string function;  // as the ABI's table names it; those of extensions have a prefix
  How how = How::kNeverReturns;
  int32_t on = -1;     // -1: every rank
  std::string choice;  // "": any
  int64_t at = 1;
};

struct Script {
  std::vector<ScriptedChoice> choices;
  std::vector<Breach> breaches;
  std::optional<ScriptedParts> parts;  // empty: the backend has none
  std::string refuse_all;
  std::string refuse_regions;
  int32_t group_fails_on = -1;
  std::string create_fails;
  std::string create_unsupported;
  std::string libraries;
  std::string mistake;  // "line 2: ...": the script cannot be read

  // Returns whether the backend answers for regions, be it by a refusal.
  bool has_regions() const;
};

// Pure.
Script ParseScript(std::string_view text);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPT_H_
