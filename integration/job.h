// One rank of a job: control channel, device, backends and their groups, made and taken down in the
// right order.
#ifndef COTUNE_INTEGRATION_JOB_H_
#define COTUNE_INTEGRATION_JOB_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/backend/captured_memory.h"
#include "core/backend/device.h"
#include "core/backend/temporaries.h"
#include "core/base/clock.h"
#include "core/base/event_sink.h"
#include "core/database/tuned_database.h"
#include "core/events/stage_observer.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/places.h"
#include "core/ranks/rank_exchange.h"
#include "core/recipe/recipe_source.h"
#include "fusion/fusion_recipes.h"
#include "integration/backend_catalogue.h"
#include "integration/call_watch.h"
#include "integration/group_stop.h"
#include "integration/launch_context.h"
#include "integration/plugin_scan.h"
#include "plugins/loader/host_services.h"
#include "sync/socket/rendezvous_store.h"

namespace cotune {

// The reason for which a process joins.
enum class JobPurpose : uint8_t {
  kRun,  // to tune and to run calls: the backends in use make their groups
  // To learn which backends there are and what the machine is, without the cost of groups. groups()
  // and Split must not be called, nothing can be launched, and whether backends can make groups is
  // not known.
  kIdentify,
  // To learn what every plugin offers here and why not: see BackendCatalogue::Mode::kSurvey. Groups
  // are made, and a job without any backend is no error. plugin_reports() tells.
  kSurvey,
};

// Everything that an exchange of the caller is made with.
struct ExchangeRequest {
  const LaunchContext& context;
  const Clock& clock;       // outlives the exchange
  int64_t deadline_ns = 0;  // absolute: until when all ranks must have come
  // Stops the groups of a lost rank. An exchange that learns of a loss between calls calls it with
  // the ranks named, from any thread; it does not wait. Without it, a loss is known at the next
  // call. May be called as long as the exchange lives.
  std::function<void(const Error&)> on_loss;
  EventSink* lines =
      nullptr;  // for warnings, from any thread; outlives the exchange; may be nullptr
};
using ConnectExchange =
    std::function<Result<std::unique_ptr<RankExchange>>(const ExchangeRequest& request)>;

struct JobOptions {
  LaunchContext context;
  // Makes the job's control channel; empty: a Unix socket of rank 0. It gives an exchange that all
  // ranks have joined, whose rank and size are the context's. All ranks use the same way.
  ConnectExchange connect;
  // Says what made this process a rank, for messages about ranks that do not come: LeftOverText. ""
  // for a rank whose parent watches over all of them.
  std::string missing_ranks_hint;
  // With the Unix socket: how the other ranks find it. Rank 0 then adds to the job id what makes it
  // new with every attempt. nullptr: by the path alone.
  std::shared_ptr<sync::RendezvousStore> store;
  // Which host this rank is on, as the ranks compare it: equal texts are one host. Empty: all
  // are on one with the Unix socket, and the boot id of the kernel says so with `connect`. For
  // ranks that a boot id places wrongly, and for tests that play several hosts on one.
  std::string host_identity;
  TuningSettings settings;
  // The place where the user gave settings.force, for messages.
  std::string force_origin = "the setting force_choice";
  // The memory that the calls of this job work on. kCuda: of the rank's GPU, see
  // gpu::OrdinalOfRank.
  MemoryKind memory = MemoryKind::kHost;
  CatalogueOptions catalogue;
  JobPurpose purpose = JobPurpose::kRun;
  int64_t rendezvous_timeout_ns = 60'000'000'000;
  int64_t heartbeat_timeout_ns = 5'000'000'000;
  // The forms of programs; equal on all ranks. nullptr: collectives run by themselves, with parts
  // between them.
  std::shared_ptr<const RecipeSource> recipes;
  StageObserver* observer = nullptr;  // may be nullptr
  // For lines of plugins and of the control channel, from any thread; outlives the job; may be
  // nullptr.
  EventSink* lines = nullptr;
  // Called once, on a thread of its own, when a call into a plugin does not return and cannot be
  // freed; from then on every call gives this error. It may end the process, and calls nothing of
  // the job. Empty: a line says it.
  std::function<void(const Error& error)> on_stuck;
};

// Loads the plugin files of a job that is not joined, as the job would, and makes no backend;
// options.on_stuck is called as in a job.
PluginScan ScanPlugins(const JobOptions& options);

// "0.1.0".
const char* CotuneVersion();

// Not thread-safe: one thread. Destroyed children first: plans, then the job.
class Job {
 public:
  // Collective: all ranks call it. kRankLost names who did not come; kPluginRefused a plugin that
  // was named; kUsage a backend or a setting of a backend that nobody knows, or a forced choice
  // that no backend has; kDisagreement ranks that force different choices.
  static Result<std::unique_ptr<Job>> Join(const JobOptions& options);
  // The job of a subgroup, with its own groups and table, over the same control channel. `ranks`
  // are ranks of this job in the subgroup's order; collective over them. The parent outlives it.
  Result<std::unique_ptr<Job>> Split(const std::string& name, const std::vector<int>& ranks);
  ~Job();

  // Watches all calls into plugins; of the job that this one was split from.
  CallWatchdog& watchdog() { return watch_->watchdog(); }
  // Why no plugin may be called any more; nullptr: all is well. A thread may still be in a plugin
  // then, so that the job must not be destroyed. Any thread.
  const Error* stuck() const { return watch_->watchdog().stuck(); }
  // A choice whose call is stuck is noted in this file; "": nowhere.
  void set_journal_path(const std::string& path) { watch_->set_journal_path(path); }

  RankExchange& exchange() { return *exchange_; }
  BackendGroups& groups() { return *groups_; }
  Device& device() { return *device_; }
  // The memory of callers that may be freed only after the graphs that use it; one for this job,
  // the job that it was split from and those split from it.
  CapturedMemory& captured_memory() { return *captured_memory_; }
  // Values between the steps of programs; nullptr before there are groups.
  Temporaries* temporaries() { return temporaries_.get(); }
  // Why the group must not be used any more, if so. With groups only.
  GroupStop& stop() { return *stop_; }
  // Before the job is destroyed: waits for an abort of its groups. False when a call into a plugin
  // never returns: its thread still uses the job, which must then be left as it is.
  bool AwaitDestroyable();
  // This rank gives up the job: stops every group that it is in, on all ranks, with an error that
  // names it and the reason. Does not wait. Any thread, also while another one is in a call.
  void GiveUp(const std::string& reason);
  // The loss of one of this job's ranks that the control channel knows of; waits for one, but no
  // longer than wait_ns.
  std::optional<Error> AwaitLoss(int64_t wait_ns) { return stops_->AwaitLoss(job_ranks_, wait_ns); }
  // The first loss of any rank, also of one that is not in this job's group.
  std::optional<Error> FirstLoss() { return stops_->FirstLoss(); }
  const Clock& clock() const { return clock_; }
  StageObserver& observer() { return *observer_; }
  EventSink* lines() const { return options_.lines; }  // as in JobOptions
  const LaunchContext& context() const { return options_.context; }
  const TuningSettings& settings() const { return options_.settings; }
  // While no plan is kept, where the numerics change; equal on all ranks.
  void set_settings(const TuningSettings& settings);
  int rank() const { return exchange_->rank(); }
  int world_size() const { return exchange_->world_size(); }
  // The hosts of this job's ranks; equal on all of them.
  const Places& places() const { return places_; }

  const std::vector<PluginReport>& plugin_reports() const { return reports_; }
  // As in BackendCatalogue.
  const std::vector<std::string>& setting_warnings() const {
    return catalogue_->setting_warnings();
  }
  // The fingerprint of this machine, the backends in use and, if there are groups, the ways in
  // which the ranks reach each other; equal on all ranks.
  const Fingerprint& fingerprint() const { return fingerprint_; }
  uint64_t topology_digest() const { return topology_digest_; }
  // Plans must go before a group that a tune makes anew: whoever keeps plans says here how to drop
  // them; an empty function takes it back. One holder at a time.
  void set_drop_plans(std::function<void()> drop_plans) { drop_plans_ = std::move(drop_plans); }
  void DropPlans() {
    if (drop_plans_) drop_plans_();
  }
  // Returns what runs when no table says anything: the default choice of the first backend that has
  // one.
  Result<Choice> DefaultChoice(const Program& program, const Problem& problem) const;
  // The choices that race for a call, and the refusals, of the backends of the group; without a
  // group of all that are loaded. Measures nothing.
  ChoiceList ListChoices(const Program& program, const Problem& problem) const;
  // The source of the recipes of its programs, by the numerics of its settings.
  const RecipeSource& recipes() const {
    if (options_.recipes != nullptr) return *options_.recipes;
    return options_.settings.numerics == NumericsRule::kSame ? fusion_by_same_ : fusion_by_any_;
  }
  // kUsage: a forced choice that no backend in use lists in a group of so many ranks at any size,
  // with the nearest name. Measures nothing.
  Status CheckForced(int world_size) const;
  const std::string& force_origin() const { return options_.force_origin; }
  // A class of this job's group and memory, out of place.
  ProblemClass Class(Collective collective, Dtype dtype, Reduction reduction) const;

 private:
  Job();
  // The exchange over a Unix socket.
  Result<std::unique_ptr<RankExchange>> ConnectSocket(const ExchangeRequest& request) const;
  // The exchange of the caller, after the ranks have compared their versions over it.
  Result<std::unique_ptr<RankExchange>> ConnectOwn(const ExchangeRequest& request) const;
  // Collective: all ranks force the same choices, or kDisagreement names those that differ.
  Status CompareForced(int64_t deadline_ns);
  // ordinal: of the GPU, where it is known already.
  Status OpenDevice(std::optional<int32_t> ordinal);
  Status OpenCatalogue();
  // parent: the group that this one is made from, or nullptr.
  Status CreateGroups(const std::string& name, const std::vector<int>& job_ranks,
                      const GroupStop* parent);
  // Instead of groups: what can be known of backends without them.
  Status LearnBackends();
  void ProvideForPrograms();
  // `for_parts`: backends that run parts of programs, where they are not in use.
  Status TakeFingerprint(const std::vector<const Backend*>& in_use,
                         const std::vector<const Backend*>& for_parts);
  // Collective, with groups: adds to the fingerprint how the ranks reach each other.
  Status TakeConnections();
  std::string MeasuringMode() const;

  JobOptions options_;
  MonotonicClock clock_;
  std::shared_ptr<CallWatch> watch_;  // destroyed after all that it watches
  StageObserver ignore_;
  StageObserver* observer_ = &ignore_;
  std::shared_ptr<GroupStops> stops_;  // of all groups of the job; the exchange uses it too
  std::unique_ptr<RankExchange> exchange_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<HostServices> services_;  // nullptr for a split job: the parent's are used
  std::shared_ptr<BackendCatalogue>
      catalogue_;                      // shared with the jobs that are split from this one
  std::vector<PluginReport> reports_;  // the catalogue's, with what the groups added
  std::unique_ptr<BackendGroups> groups_;
  std::shared_ptr<CapturedMemory> captured_memory_ = std::make_shared<CapturedMemory>();
  std::unique_ptr<Temporaries> temporaries_;  // of programs; destroyed after all plans
  // The recipes if the options have none.
  const FusionRecipes fusion_by_any_{NumericsRule::kAny};
  const FusionRecipes fusion_by_same_{NumericsRule::kSame};
  std::unique_ptr<GroupStop> stop_;  // of groups_
  std::function<void()> drop_plans_;
  std::vector<int> job_ranks_;
  Places places_ = Places::OneHost(1);
  Fingerprint fingerprint_;
  uint64_t topology_digest_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_JOB_H_
