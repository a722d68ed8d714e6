// A group of cotune that compiled graphs know by name.
#ifndef COTUNE_INTEGRATION_TORCH_NAMED_GROUP_H_
#define COTUNE_INTEGRATION_TORCH_NAMED_GROUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "integration/capi/cotune.h"
#include "integration/torch/admitted_calls.h"
#include "integration/torch/cotune_torch.h"
#include "integration/torch/manifest.h"

namespace cotune::torch_operators {

// Of one tune; see cotune_torch_listener.
using Listen = std::function<int32_t(const cotune_torch_tune&)>;

struct TuneWishes {
  bool is_untuned = false;
  int64_t budget_ns = 0;        // limits the first tune of the group
  int64_t later_budget_ns = 0;  // limits each tune after it
  cotune_numerics numerics = COTUNE_NUMERICS_DEFAULT;
  std::string database_path;
  bool has_database = false;
};

// One call of cotune::program.
struct ProgramRun {
  std::span<const cotune_tensor> inputs;  // as many as the program has, or one more
  std::span<const cotune_tensor> outputs;
  std::string_view program;
  std::string_view manifest;
};

// The outcome of a call of a program.
enum class RunOutcome {
  kDone,
  kPlain,      // the group is plain, and nothing has run
  kUndecided,  // the call is not admitted, and nothing has run
};

// Any thread: calls of one group run one after the other. All functions but is_plain throw
// OperatorError, with the text of cotune_last_error where a call of cotune failed.
class NamedGroup {
 public:
  // `group` nullptr: plain.
  NamedGroup(std::string name, int32_t device, cotune_group* group, TuneWishes wishes);

  const std::string& name() const { return name_; }
  int32_t device() const { return device_; }
  bool is_plain() const { return is_plain_; }

  // Tunes the manifest if that has not been done, and runs the program.
  RunOutcome Run(const ProgramRun& run, const Listen& listen);

  // Runs the program and counts the call if it is admitted, and remembers its manifest. With the
  // manifest "agreed" it runs the program if its collectives are agreed, and counts nothing.
  RunOutcome RunAgreed(const ProgramRun& run);
  // See cotune_torch_group_admit and cotune_torch_group_count.
  void Admit(std::string_view program, AdmittedCalls calls);
  uint64_t Count(uint32_t counter, uint64_t calls);
  // The last manifest, of any program.
  std::string latest_manifest();

  // See cotune_torch_group_decide.
  void Decide(std::string_view manifest, std::string_view program, uint64_t rows,
              const Listen& listen);
  bool IsAgreed(std::string_view program, uint64_t rows);

  // Runs one call of a collective: `call` gives its result. False: the group is plain.
  bool Run(const std::function<cotune_result(cotune_group*)>& call);

  // Waits for the calls that run; all that come later are errors.
  void Close();

 private:
  struct FreeProgram {
    void operator()(cotune_program* program) const { cotune_program_free(program); }
  };
  using Program = std::unique_ptr<cotune_program, FreeProgram>;
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const;
  };

  struct KnownProgram {
    Program program;
    AdmittedRanges admitted;
  };

  static Program Parse(std::string_view text);
  KnownProgram& Known(std::string_view text);
  const cotune_program* Parsed(std::string_view text) { return Known(text).program.get(); }
  // The admitted calls that this one belongs to, if it can be counted; nullptr otherwise. Valid
  // while the program is known.
  const AdmittedCalls* Admitted(const KnownProgram& known, const ProgramRun& run) const;
  void CheckOpen() const;
  void FollowStream();
  void Tune(std::string_view manifest, const Listen& listen);
  void Agree(const cotune_program* program, std::span<const uint64_t> rows);
  cotune_result TuneNodes(const std::vector<ManifestNode>& manifest, cotune_torch_tune& event,
                          const Listen& listen);
  [[noreturn]] void Raise(std::string_view what);

  const std::string name_;
  const int32_t device_;  // -1: the host
  TuneWishes wishes_;
  std::mutex mutex_;     // held while a call runs
  cotune_group* group_;  // nullptr: plain, or closed
  bool is_closed_ = false;
  std::atomic<bool> is_plain_;
  void* stream_ = nullptr;
  std::unordered_map<std::string, KnownProgram, TextHash, std::equal_to<>> programs_;
  CallCounters counters_;
  bool has_tuned_ = false;
  std::unordered_set<std::string, TextHash, std::equal_to<>> tuned_manifests_;
  std::string latest_manifest_;
};

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_NAMED_GROUP_H_
