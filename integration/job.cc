#include "integration/job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/nearest_name.h"
#include "core/database/tuning_journal.h"
#include "fmt/format.h"
#include "gpu/device/cuda_device.h"
#include "gpu/device/gpu_fields.h"
#include "integration/build_id.h"
#include "integration/fingerprint.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "sync/socket/socket_exchange.h"

namespace cotune {
namespace {

// Ranks of other versions do not join: they may decide differently. Builds of a plugin are told
// apart by BuildIdOf.
constexpr char kCodeVersion[] = "cotune 0.1.0";

// Whether a backend comes before another where the user names no order. The first one's default
// choice is the default of all: what a program without cotune would run, on GPUs and on hosts.
bool ComesBefore(const std::string& left, const std::string& right) {
  const auto place = [](const std::string& name) {
    return name == "nccl" ? 0 : name == "host" ? 1 : 2;
  };
  return std::pair(place(left), left) < std::pair(place(right), right);
}

std::vector<int> AllRanks(int world_size) {
  std::vector<int> ranks(world_size);
  for (int rank = 0; rank < world_size; ++rank) ranks[rank] = rank;
  return ranks;
}

// Which backends there are, and the one with a name like `typed`.
std::string KnownBackendsText(std::string_view typed, const std::vector<PluginReport>& reports) {
  std::vector<std::string_view> known;
  for (const PluginReport& report : reports) {
    if (!report.backend.empty()) known.push_back(report.backend);
  }
  return known.empty() ? "no backend was found; see `cotune plugin list`"
                       : KnownNamesText(typed, known);
}

// What is set for each backend: "key=value key=value", by name.
std::map<std::string, std::string> SettingTexts(
    const std::map<std::string, std::string>& backend_settings) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : backend_settings) {
    const size_t dot = name.find('.');
    std::string& text = texts[name.substr(0, dot)];
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name.substr(dot + 1), value);
  }
  return texts;
}

// kUsage for the first backend in `wanted` that is not among `reports`; with `must_work`,
// kEnvironment for one that is there and was refused.
Status CheckWanted(const std::vector<std::string>& wanted, const std::vector<PluginReport>& reports,
                   bool must_work) {
  for (const std::string& name : wanted) {
    const PluginReport* refused = nullptr;
    bool is_loaded = false;
    for (const PluginReport& report : reports) {
      if (report.backend != name) continue;
      is_loaded = is_loaded || report.loaded;
      if (!report.loaded && refused == nullptr) refused = &report;
    }
    if (is_loaded || (refused != nullptr && !must_work)) continue;
    if (refused == nullptr) {
      return Fail(ErrorCode::kUsage, fmt::format("unknown backend '{}'", name), "", "",
                  KnownBackendsText(name, reports));
    }
    return Fail(ErrorCode::kEnvironment, fmt::format("backend '{}' cannot be used", name),
                refused->path, refused->reason,
                "leave it out, or see `cotune plugin list` for all of them");
  }
  return {};
}

AdoptOptions WatchedBy(LaunchWatchdog& watchdog) {
  AdoptOptions options;
  options.watchdog = &watchdog;
  return options;
}

tl::unexpected<Error> WrongMemory(const cotune_backend_api_t& table, MemoryKind memory) {
  const bool is_host = memory == MemoryKind::kHost;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("backend {} does not work on {} memory", table.name, Name(memory)), "",
              is_host ? "this job uses host memory, as one does where no GPU is visible or the "
                        "setting memory says host"
                      : "",
              is_host ? "see `cotune doctor` for the GPUs" : "");
}

}  // namespace

const char* CotuneVersion() { return kCodeVersion + sizeof("cotune"); }

PluginScan ScanPlugins(const JobOptions& options) {
  const MonotonicClock clock;
  LaunchWatchdog::Options watch = WatchOptions(options.settings);
  watch.on_stuck = [&options](const StuckCall&, const Error& error) {
    if (options.on_stuck) options.on_stuck(error);
  };
  LaunchWatchdog watchdog(clock, std::move(watch));
  return ScanPlugins(options.plugin_paths, options.plugin_search_path, &watchdog);
}

LaunchWatchdog::Options WatchOptions(const TuningSettings& settings) {
  const int64_t timeout_ns = settings.collective_autotune_timeout_ns;
  // Late returns of a loaded machine are not yet what needs the last resort.
  constexpr int64_t kStuckMinNs = 2'000'000'000;
  constexpr int64_t kCallLimitNs = 60'000'000'000;
  LaunchWatchdog::Options options;
  options.abort_after_ns = timeout_ns / 4;
  options.stuck_after_ns = std::max(timeout_ns / 4, kStuckMinNs);
  options.call_limit_ns = std::min(settings.warm_timeout_ns, kCallLimitNs);
  return options;
}

int64_t StuckReportNs(const TuningSettings& settings) {
  const LaunchWatchdog::Options options = WatchOptions(settings);
  return options.call_limit_ns + options.abort_after_ns + options.stuck_after_ns;
}

// The services that backends call back into, and what they are made with.
class Job::Services {
 public:
  Services(RankExchange& exchange, const Clock& clock, const JobOptions& options)
      : host(exchange, clock, options.backend_settings, options.log,
             {{"check_calls", options.check_calls ? "on" : "off"}}) {}
  HostServices host;
};

Job::Job() = default;

void Job::WatchCalls() {
  stuck_handler_ = std::make_shared<StuckHandler>();
  LaunchWatchdog::Options options = WatchOptions(options_.settings);
  options.on_stuck = [handler = stuck_handler_, on_stuck = options_.on_stuck, log = options_.log,
                      rank = options_.context.rank, world_size = options_.context.world_size](
                         const StuckCall& call, Error error) {
    {
      const std::lock_guard lock(handler->mutex);
      const CallSubject& subject = call.subject;
      const bool is_to_blame = !subject.choice.empty() && !call.was_interrupted;
      const bool has_blamed = is_to_blame && !handler->journal_path.empty() &&
                              AppendBlame(handler->journal_path.c_str(),
                                          {subject.problem_class, subject.bytes, subject.choice,
                                           rank, call.function, "did not return"});
      if (has_blamed) error.next_step = "run again: the next tune leaves the choice out";
    }
    if (world_size > 1) {
      error.where = fmt::format("rank {}", rank);
      error.ranks = {rank};
    }
    constexpr int kError = 3;
    if (on_stuck) {
      on_stuck(error);
    } else if (log) {
      log(kError, error.ToText());
    }
  };
  watchdog_ = std::make_shared<LaunchWatchdog>(clock_, std::move(options));
}

void Job::set_journal_path(const std::string& path) {
  const std::lock_guard lock(stuck_handler_->mutex);
  stuck_handler_->journal_path = path;
}

bool Job::AwaitDestroyable() {
  return (stop_ == nullptr || stop_->AwaitAbort(*watchdog_)) && stuck() == nullptr;
}

Job::~Job() {
  // Groups use backends and the store, backends use the services, all of them the exchange. An
  // abort that is under way ends before its groups go.
  stop_.reset();
  groups_.reset();
  backends_.clear();
  services_.reset();
}

Result<std::unique_ptr<Job>> Job::Join(const JobOptions& options) {
  std::unique_ptr<Job> job(new Job());
  job->options_ = options;
  if (options.observer != nullptr) job->observer_ = options.observer;
  job->WatchCalls();
  job->observer_->OnStage(Stage::kRendezvous);
  const LaunchContext& context = options.context;
  std::string socket_path = context.socket_path;
  if (socket_path.empty()) {
    Result<std::string> path = DefaultSocketPath(ProcessEnvironment(), context.job_id);
    if (!path) return tl::make_unexpected(path.error());
    socket_path = std::move(*path);
  }
  sync::SocketExchangeOptions exchange_options;
  exchange_options.rank = context.rank;
  exchange_options.world_size = context.world_size;
  exchange_options.job_id = context.job_id;
  exchange_options.socket_path = socket_path;
  exchange_options.code_version = kCodeVersion;
  exchange_options.heartbeat_timeout_ns = options.heartbeat_timeout_ns;
  exchange_options.heartbeat_interval_ns =
      std::min<int64_t>(exchange_options.heartbeat_interval_ns, options.heartbeat_timeout_ns / 4);
  if (options.log) {
    exchange_options.log = [log = options.log](sync::LogSeverity severity, std::string_view text) {
      log(1 + static_cast<int>(severity), std::string(text));
    };
  }
  exchange_options.deadline_ns = DeadlineAfter(job->clock_.now_ns(), options.rendezvous_timeout_ns);
  job->stops_ = std::make_shared<GroupStops>();
  exchange_options.on_loss = [stops = job->stops_](const Error& loss) { stops->OnLoss(loss); };
  Result<std::unique_ptr<RankExchange>> exchange =
      sync::ConnectSocketExchange(exchange_options, job->clock_);
  if (!exchange) return tl::make_unexpected(exchange.error());
  job->exchange_ = std::move(*exchange);
  if (Status opened = job->OpenDevice({}); !opened) return tl::make_unexpected(opened.error());
  job->services_ = std::make_unique<Services>(*job->exchange_, job->clock_, job->options_);
  if (Status loaded = job->LoadBackends(); !loaded) return tl::make_unexpected(loaded.error());
  const Status done = options.makes_groups
                          ? job->CreateGroups("job", AllRanks(context.world_size), nullptr)
                          : job->LearnBackends();
  if (!done) return tl::make_unexpected(done.error());
  return job;
}

Status Job::LearnBackends() {
  const std::vector<const Backend*> in_use(backends_in_use_.begin(), backends_in_use_.end());
  if (in_use.empty() && !options_.probes_all_backends) return tl::make_unexpected(NoBackend({}));
  return TakeFingerprint(in_use);
}

Status Job::OpenDevice(std::optional<int32_t> ordinal) {
  if (options_.memory == MemoryKind::kHost) {
    device_ = MakeHostDevice(clock_);
    return {};
  }
  const Environment environment = ProcessEnvironment();
  const auto shares = environment.find("COTUNE_SHARED_GPUS");
  const gpu::RankPlace place{
      .local_rank = options_.context.local_rank,
      .ordinal = ordinal,
      .may_share_gpus = shares != environment.end() && shares->second == "1"};
  Result<std::unique_ptr<Device>> device = gpu::MakeCudaDevice(
      place, *exchange_, clock_, clock_.now_ns() + options_.settings.warm_timeout_ns);
  if (!device) return tl::make_unexpected(device.error());
  device_ = std::move(*device);
  return {};
}

Status Job::LoadBackends() {
  PluginScan scan =
      ScanPlugins(options_.plugin_paths, options_.plugin_search_path, watchdog_.get());
  if (scan.failure && !options_.probes_all_backends) return tl::make_unexpected(*scan.failure);
  for (const cotune_backend_api_t* table : options_.tables) {
    if (Status checked = CheckTable(table, "registered in the process"); !checked) return checked;
    // A table that the program brings itself comes before a plugin of the same name.
    std::erase_if(scan.tables,
                  [&](const auto& other) { return std::string(other.first->name) == table->name; });
    scan.tables.emplace_back(table, "");
    scan.reports.push_back(PluginReport{"", table->name, table->version, table->abi_minor,
                                        table->memory_kinds, true, ""});
  }
  const std::vector<std::string>& wanted = options_.backends;
  for (const auto& [table, path] : scan.tables) {
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), table->name) != wanted.end();
    const bool fits_memory = (table->memory_kinds >> static_cast<unsigned>(options_.memory)) & 1;
    if (!is_wanted) continue;
    // One that works on other memory is loaded, but has nothing to do here.
    if (!fits_memory && (wanted.empty() || options_.probes_all_backends)) {
      if (options_.probes_all_backends) Probe(*table, scan.reports);
      continue;
    }
    Result<std::unique_ptr<Backend>> backend =
        fits_memory
            ? AdoptBackend(table, services_->host.table(), device_->ordinal(),
                           path.empty() ? "registered in the process" : path, WatchedBy(*watchdog_))
            : WrongMemory(*table, options_.memory);
    if (backend) {
      // The program answers for a table of its own by its version.
      const std::string build = path.empty() ? "" : BuildIdOf(table, path);
      if (!build.empty()) builds_[table->name] = build;
      backends_.push_back(std::move(*backend));
      continue;
    }
    for (PluginReport& report : scan.reports) {
      if (report.backend != table->name || !report.loaded) continue;
      report.loaded =
          options_.probes_all_backends && backend.error().code == ErrorCode::kUnsupported;
      report.reason = backend.error().ToText();
    }
  }
  reports_ = std::move(scan.reports);
  const bool must_work = !options_.probes_all_backends;
  if (Status known = CheckWanted(wanted, reports_, must_work); !known) return known;
  const auto place = [&](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) - wanted.begin();
  };
  std::sort(backends_.begin(), backends_.end(), [&](const auto& left, const auto& right) {
    if (place(left->name()) != place(right->name()))
      return place(left->name()) < place(right->name());
    return ComesBefore(left->name(), right->name());
  });
  for (const auto& backend : backends_) backends_in_use_.push_back(backend.get());
  return CheckBackendSettings();
}

Status Job::CheckBackendSettings() {
  const std::set<std::string> asked = services_->host.AskedSettings();
  for (const auto& [name, value] : options_.backend_settings) {
    if (asked.contains(name)) continue;
    const std::string backend = name.substr(0, name.find('.'));
    const auto origin = options_.backend_setting_origins.find(name);
    const std::string where =
        origin == options_.backend_setting_origins.end() ? "settings" : origin->second;
    const auto report = std::find_if(reports_.begin(), reports_.end(),
                                     [&](const auto& each) { return each.backend == backend; });
    if (report == reports_.end()) {
      setting_warnings_.push_back(
          fmt::format("setting {} ({}) has no effect: there is no backend "
                      "{}; {}",
                      name, where, backend, KnownBackendsText(backend, reports_)));
      continue;
    }
    const bool is_probed = options_.probes_all_backends && report->loaded && report->reason.empty();
    const bool is_used = std::any_of(backends_.begin(), backends_.end(),
                                     [&](const auto& each) { return each->name() == backend; });
    if (!is_used && !is_probed) {
      setting_warnings_.push_back(
          fmt::format("setting {} ({}) has no effect and is not checked: backend {} is not used "
                      "here; see `cotune plugin list`",
                      name, where, backend));
      continue;
    }
    std::vector<std::string_view> known;
    for (const std::string& each : asked) {
      if (each.starts_with(backend + ".")) known.push_back(each);
    }
    return Fail(ErrorCode::kUsage, fmt::format("unknown setting \"{}\"", name), where,
                known.empty() ? fmt::format("backend {} has no settings", backend)
                              : KnownNamesText(name, known),
                "correct it or leave it out");
  }
  return {};
}

// Makes the backend and drops it, and writes down what became of it.
void Job::Probe(const cotune_backend_api_t& table, std::vector<PluginReport>& reports) const {
  const bool is_for_hosts = (table.memory_kinds >> static_cast<unsigned>(MemoryKind::kHost)) & 1;
  const Result<std::unique_ptr<Backend>> backend = AdoptBackend(
      &table, services_->host.table(), is_for_hosts ? -1 : 0, table.name, WatchedBy(*watchdog_));
  if (backend) return;
  for (PluginReport& report : reports) {
    if (report.backend != table.name || !report.loaded) continue;
    report.reason = backend.error().ToText();
    // A machine without what it needs is no failure of the plugin.
    report.loaded = backend.error().code == ErrorCode::kUnsupported;
  }
}

Status Job::CreateGroups(const std::string& name, const std::vector<int>& job_ranks,
                         const GroupStop* parent) {
  observer_->OnStage(Stage::kGroups);
  BackendGroups::Options options;
  options.name = name;
  options.job_ranks.assign(job_ranks.begin(), job_ranks.end());
  options.device = device_->ordinal();
  options.deadline_ns = clock_.now_ns() + options_.settings.warm_timeout_ns;
  options.settings = SettingTexts(options_.backend_settings);
  options.builds = builds_;
  Result<std::unique_ptr<BackendGroups>> groups =
      BackendGroups::Create(backends_in_use_, *exchange_, options);
  if (!groups) return tl::make_unexpected(groups.error());
  groups_ = std::move(*groups);
  stop_ = stops_->Add(*groups_, parent);
  job_ranks_ = job_ranks;
  for (const Refusal& refusal : groups_->refusals()) {
    for (PluginReport& report : reports_) {
      if (report.backend == refusal.choice && report.loaded) report.reason = refusal.reason;
    }
  }
  if (groups_->members().empty() && !options_.probes_all_backends) {
    return tl::make_unexpected(NoBackend(groups_->refusals()));
  }
  std::vector<const Backend*> in_use;
  for (const BackendMember& member : groups_->members()) in_use.push_back(member.backend);
  return TakeFingerprint(in_use);
}

Error Job::NoBackend(const std::vector<Refusal>& refusals) const {
  std::string reasons;
  for (const Refusal& refusal : refusals) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", refusal.choice, refusal.reason);
  }
  for (const PluginReport& report : reports_) {
    const bool fits_memory =
        (report.memory_kinds >> static_cast<unsigned>(options_.memory) & 1) != 0;
    const std::vector<std::string>& wanted = options_.backends;
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), report.backend) != wanted.end();
    if (report.loaded && (fits_memory || !is_wanted)) continue;
    reasons += reasons.empty() ? "" : "; ";
    reasons += !report.loaded ? report.reason
                              : fmt::format("backend {} does not work on {} memory", report.backend,
                                            Name(options_.memory));
  }
  return Error{ErrorCode::kEnvironment,
               "no backend can be used",
               "",
               reasons.empty() ? "no plugin was found" : reasons,
               refusals.empty() ? "see `cotune plugin list`, or set COTUNE_PLUGIN_PATH"
                                : "mend what is named, or choose another backend: --backend",
               {}};
}

Status Job::TakeFingerprint(const std::vector<const Backend*>& in_use) {
  fingerprint_.machine = MachineFields();
  if (options_.memory == MemoryKind::kCuda) {
    Result<std::map<std::string, std::string>> fields = gpu::GpuFields(device_->ordinal());
    if (!fields) return tl::make_unexpected(fields.error());
    fingerprint_.machine.merge(*fields);
  }
  fingerprint_.measuring_mode = device_->measuring_mode();
  fingerprint_.backends.clear();
  const auto settings = SettingTexts(options_.backend_settings);
  for (const Backend* backend : in_use) {
    // Settings may change what a backend's choices do, and so their times.
    const auto set = settings.find(backend->name());
    fingerprint_.backends[backend->name()] =
        backend->version() + (set == settings.end() ? "" : " " + set->second);
  }
  topology_digest_ = TopologyDigest(fingerprint_.machine);
  return {};
}

Result<std::unique_ptr<Job>> Job::Split(const std::string& name, const std::vector<int>& ranks) {
  std::unique_ptr<Job> job(new Job());
  job->options_ = options_;
  job->observer_ = observer_;
  job->stops_ = stops_;
  job->stuck_handler_ = stuck_handler_;
  job->watchdog_ = watchdog_;
  Result<std::unique_ptr<RankExchange>> exchange = exchange_->Subgroup(
      name, ranks, DeadlineAfter(clock_.now_ns(), options_.rendezvous_timeout_ns));
  if (!exchange) return tl::make_unexpected(exchange.error());
  job->exchange_ = std::move(*exchange);
  // Backends are bound to it, whatever is current on this thread by now.
  if (Status opened = job->OpenDevice(device_->ordinal()); !opened) {
    return tl::make_unexpected(opened.error());
  }
  job->backends_in_use_ = backends_in_use_;
  job->builds_ = builds_;
  job->reports_ = reports_;
  std::vector<int> job_ranks;
  for (int rank : ranks) job_ranks.push_back(job_ranks_[rank]);
  if (Status created = job->CreateGroups("split/" + name, job_ranks, stop_.get()); !created) {
    return tl::make_unexpected(created.error());
  }
  return job;
}

Result<Choice> Job::DefaultChoice(const Program& program, const Problem& problem) const {
  std::string reasons;
  std::vector<const Backend*> in_use(backends_in_use_.begin(), backends_in_use_.end());
  if (groups_ != nullptr) {
    in_use.clear();
    for (const BackendMember& member : groups_->members()) {
      if (member.group != nullptr) in_use.push_back(member.backend);
    }
  }
  for (const Backend* backend : in_use) {
    ChoiceList list = backend->ListChoices(program, problem);
    for (Choice& choice : list.choices) {
      if (choice.is_default) return std::move(choice);
    }
    for (const Refusal& refusal : list.refusals) {
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", refusal.choice, refusal.reason);
    }
  }
  return Fail(ErrorCode::kUnsupported, "no backend can run this call", ToText(problem),
              std::move(reasons), "see `cotune plugin list`");
}

ProblemClass Job::Class(Collective collective, Dtype dtype, Reduction reduction) const {
  ProblemClass cls;
  cls.collective = collective;
  cls.dtype = dtype;
  cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
  cls.memory = options_.memory;
  cls.world_size = exchange_->world_size();
  cls.ranks_per_node = cls.world_size;
  return cls;
}

}  // namespace cotune
