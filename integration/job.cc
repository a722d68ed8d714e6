#include "integration/job.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/base/boot_id.h"
#include "core/base/failure_line.h"
#include "core/choice/choice_lists.h"
#include "core/scheduler/tune_comparison.h"
#include "fmt/format.h"
#include "gpu/device/cuda_device.h"
#include "gpu/device/gpu_fields.h"
#include "gpu/device/gpu_links.h"
#include "integration/fingerprint.h"
#include "integration/forced_check.h"
#include "sync/socket/socket_exchange.h"

namespace cotune {
namespace {

// Ranks of other versions do not join: they may decide differently. Builds of a plugin are told
// apart by BuildIdOf.
constexpr char kCodeVersion[] = "cotune 0.1.0";

std::vector<int> AllRanks(int world_size) {
  std::vector<int> ranks(world_size);
  for (int rank = 0; rank < world_size; ++rank) ranks[rank] = rank;
  return ranks;
}

// 64 bits that no other process has drawn.
std::string RandomHex() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

const char* CotuneVersion() { return kCodeVersion + sizeof("cotune"); }

PluginScan ScanPlugins(const JobOptions& options) {
  const MonotonicClock clock;
  CallWatch watch(clock, {options.settings, 0, 1, options.on_stuck, options.lines});
  return ScanPlugins(options.catalogue.plugin_paths, options.catalogue.plugin_search_path,
                     &watch.watchdog());
}

Job::Job() = default;

bool Job::AwaitDestroyable() {
  return (stop_ == nullptr || stop_->AwaitAbort(watchdog())) && stuck() == nullptr;
}

void Job::GiveUp(const std::string& reason) {
  const int job_rank = job_ranks_[static_cast<size_t>(rank())];
  const Error error{
      ErrorCode::kAborted,
      fmt::format("rank {} gave up the job{}{}", job_rank, reason.empty() ? "" : ": ", reason),
      "cotune_group_abort",
      "its program asked for it",
      "see what that rank says; make the groups anew to go on",
      {job_rank}};
  exchange_->GiveUp(error);
  // The control channel stops them all; without one that works, those made from this one.
  stop_->SetAll(error);
}

Job::~Job() {
  // Groups use backends and the store, backends use the services, all of them the exchange. An
  // abort that is under way ends before its groups go.
  stop_.reset();
  groups_.reset();
  catalogue_.reset();
  services_.reset();
}

Result<std::unique_ptr<Job>> Job::Join(const JobOptions& options) {
  std::unique_ptr<Job> job(new Job());
  job->options_ = options;
  if (options.observer != nullptr) job->observer_ = options.observer;
  job->watch_ = std::make_shared<CallWatch>(
      job->clock_, CallWatch::Options{options.settings, options.context.rank,
                                      options.context.world_size, options.on_stuck, options.lines});
  MarkStage(*job->observer_, Stage::kRendezvous);
  job->stops_ = std::make_shared<GroupStops>();
  const ExchangeRequest request{job->options_.context, job->clock_,
                                DeadlineAfter(job->clock_.now_ns(), options.rendezvous_timeout_ns),
                                [stops = job->stops_](const Error& loss) { stops->OnLoss(loss); },
                                options.lines};
  COTUNE_TRY(std::unique_ptr<RankExchange> exchange,
             options.connect ? job->ConnectOwn(request) : job->ConnectSocket(request));
  job->exchange_ = std::move(exchange);
  // Ranks that meet at a Unix socket are on one host, whatever their /proc says.
  std::string host = options.connect ? BootId() : "host of the Unix socket";
  if (!options.host_identity.empty()) host = options.host_identity;
  COTUNE_TRY(Places places, ExchangePlaces(*job->exchange_, host, request.deadline_ns));
  job->places_ = std::move(places);
  COTUNE_RETURN_IF_ERROR(job->CompareForced(request.deadline_ns));
  COTUNE_RETURN_IF_ERROR(job->OpenDevice({}));
  COTUNE_RETURN_IF_ERROR(job->OpenCatalogue());
  COTUNE_RETURN_IF_ERROR(
      options.purpose == JobPurpose::kIdentify
          ? job->LearnBackends()
          : job->CreateGroups("job", AllRanks(options.context.world_size), nullptr));
  if (options.purpose == JobPurpose::kRun) {
    COTUNE_RETURN_IF_ERROR(job->CheckForced(options.context.world_size));
  }
  return job;
}

Result<std::unique_ptr<RankExchange>> Job::ConnectSocket(const ExchangeRequest& request) const {
  const LaunchContext& context = request.context;
  // Known at once, where other ranks would be waited for in vain.
  if (context.local_size > 0 && context.local_size != context.world_size) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the job has {} ranks, {} of them on this host", context.world_size,
                            context.local_size),
                context.launcher, "a Unix socket reaches the ranks of one host only",
                "start all ranks on one host, or give JobOptions.connect an exchange that reaches "
                "all of them");
  }
  sync::SocketExchangeOptions options;
  options.rank = context.rank;
  options.world_size = context.world_size;
  options.job_id = context.job_id;
  options.socket_path = context.socket_path;
  options.store = options_.store.get();
  options.missing_ranks_hint = options_.missing_ranks_hint;
  // Keys that a killed attempt has left in the store must not be taken for this one's.
  if (options.store != nullptr) options.job_id += "/" + RandomHex();
  if (options.socket_path.empty()) {
    COTUNE_TRY(std::string path, DefaultSocketPath(ProcessEnvironment(), options.job_id));
    options.socket_path = std::move(path);
    options.is_default_path = true;
  }
  options.code_version = kCodeVersion;
  options.heartbeat_timeout_ns = options_.heartbeat_timeout_ns;
  options.heartbeat_interval_ns =
      std::min<int64_t>(options.heartbeat_interval_ns, options_.heartbeat_timeout_ns / 4);
  if (request.lines != nullptr) {
    options.log = [lines = request.lines](const sync::LogLine& line) {
      if (line.failure) {
        EmitFailureLine(*lines, *line.failure, line.text);
      } else {
        EmitLine(*lines, line.severity, line.text);
      }
    };
  }
  options.deadline_ns = request.deadline_ns;
  options.on_loss = request.on_loss;
  return sync::ConnectSocketExchange(options, request.clock);
}

Result<std::unique_ptr<RankExchange>> Job::ConnectOwn(const ExchangeRequest& request) const {
  Result<std::unique_ptr<RankExchange>> exchange = options_.connect(request);
  if (!exchange) return exchange;
  const int rank = (*exchange)->rank();
  const int world_size = (*exchange)->world_size();
  if (rank != request.context.rank || world_size != request.context.world_size) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the exchange of the caller is rank {} of {}, and the job is rank {} "
                            "of {}",
                            rank, world_size, request.context.rank, request.context.world_size),
                "JobOptions.connect", "", "make the exchange for the job's rank and world size");
  }
  const int64_t window_ns = std::max<int64_t>(request.deadline_ns - clock_.now_ns(), 0);
  COTUNE_TRY(const PreSyncResult met, (*exchange)->PreSync({{"code version", kCodeVersion}},
                                                           window_ns, request.deadline_ns));
  if (!met.met) {
    return Fail(ErrorCode::kRankLost, "not all ranks came over the exchange of the caller",
                "the rendezvous", "", "see whether the ranks run, or raise the join timeout",
                met.late_ranks);
  }
  return exchange;
}

Status Job::CompareForced(int64_t deadline_ns) {
  Status same = CompareTunes(*exchange_, {{"setting force_choice", options_.settings.force.text()}},
                             {}, 0, deadline_ns);
  if (!same && same.error().code == ErrorCode::kDisagreement) {
    same.error().where = options_.force_origin;
    same.error().cause = "it decides what calls run and must be equal on every rank";
  }
  return same;
}

Status Job::CheckForced(int world_size) const {
  ForcedCheck check;
  check.origin = options_.force_origin;
  check.cls = Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum);
  check.cls.world_size = world_size;
  // Every rank of another number would be on this host.
  if (world_size != this->world_size()) check.cls.ranks_per_node = world_size;
  check.topology_digest = topology_digest_;
  if (groups_ == nullptr) {
    for (const Backend* each : catalogue_->backends()) check.backends.push_back(each->name());
  } else {
    for (const BackendMember& member : groups_->members()) {
      if (member.group != nullptr) check.backends.push_back(member.backend->name());
    }
    check.refusals = groups_->refusals();
  }
  for (const PluginReport& report : reports_) check.known_backends.push_back(report.backend);
  check.list = [this](const Program& program, const Problem& problem) {
    return ListChoices(program, problem);
  };
  return CheckForcedChoices(options_.settings.force, check);
}

Status Job::LearnBackends() {
  const std::vector<Backend*>& backends = catalogue_->backends();
  std::vector<const Backend*> in_use(backends.begin(), backends.end());
  if (in_use.empty()) return tl::make_unexpected(catalogue_->WhyNone({}));
  return TakeFingerprint(in_use,
                         {catalogue_->part_backends().begin(), catalogue_->part_backends().end()});
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
  COTUNE_TRY(std::unique_ptr<Device> device,
             gpu::MakeCudaDevice(place, *exchange_, clock_,
                                 clock_.now_ns() + options_.settings.warm_timeout_ns));
  device_ = std::move(device);
  return {};
}

Status Job::OpenCatalogue() {
  const CatalogueOptions& options = options_.catalogue;
  PluginLog log;
  if (options_.lines != nullptr) {
    log = [lines = options_.lines](int32_t severity, const std::string& text) {
      EmitLine(*lines, SeverityOf(severity), text);
    };
  }
  services_ = std::make_unique<HostServices>(
      *exchange_, clock_, options.settings, std::move(log),
      std::map<std::string, std::string>{{"check_calls", options.check_calls ? "on" : "off"}});
  const auto mode = options_.purpose == JobPurpose::kSurvey ? BackendCatalogue::Mode::kSurvey
                                                            : BackendCatalogue::Mode::kInUse;
  COTUNE_TRY(
      std::unique_ptr<BackendCatalogue> catalogue,
      BackendCatalogue::Open(options, mode,
                             {options_.memory, device_->ordinal(), services_.get(), &watchdog()}));
  catalogue_ = std::move(catalogue);
  reports_ = catalogue_->reports();
  return {};
}

Status Job::CreateGroups(const std::string& name, const std::vector<int>& job_ranks,
                         const GroupStop* parent) {
  MarkStage(*observer_, Stage::kGroups);
  BackendGroups::Options options;
  options.name = name;
  options.job_ranks.assign(job_ranks.begin(), job_ranks.end());
  options.device = device_->ordinal();
  options.host_of_rank = places_.host_of_rank();
  options.deadline_ns = clock_.now_ns() + options_.settings.warm_timeout_ns;
  options.settings = catalogue_->setting_texts();
  options.builds = catalogue_->builds();
  options.part_backends = catalogue_->part_backends();
  options.numerics = options_.settings.numerics;
  // Free memory of a host changes with everything that runs on it.
  if (options_.memory == MemoryKind::kCuda) {
    options.free_device_bytes = [device = device_.get()] { return device->AvailableBytes(); };
  }
  COTUNE_TRY(std::unique_ptr<BackendGroups> groups,
             BackendGroups::Create(catalogue_->backends(), *exchange_, clock_, options));
  groups_ = std::move(groups);
  ProvideForPrograms();
  stop_ = stops_->Add(*groups_, parent);
  job_ranks_ = job_ranks;
  for (const Refusal& refusal : groups_->refusals()) {
    for (PluginReport& report : reports_) {
      if (report.backend == refusal.choice && report.loaded) report.reason = refusal.reason;
    }
  }
  for (const BackendMember& member : groups_->members()) {
    for (PluginReport& report : reports_) {
      if (report.backend != member.backend->name() || !report.loaded) continue;
      report.group_bytes = member.group_bytes;
    }
  }
  if (groups_->members().empty() && options_.purpose != JobPurpose::kSurvey) {
    return tl::make_unexpected(catalogue_->WhyNone(groups_->refusals()));
  }
  std::vector<const Backend*> in_use;
  for (const BackendMember& member : groups_->members()) in_use.push_back(member.backend);
  // One that was to be in use, and whose group could not be made here, is known as what it is: so
  // it is to a job without groups, such as that of `explain`.
  const std::vector<Backend*>& wanted = catalogue_->backends();
  std::vector<const Backend*> for_parts;
  if (Backend* const parts = groups_->part_backend(); parts != nullptr) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), parts) != wanted.end();
    (is_wanted ? in_use : for_parts).push_back(parts);
  }
  COTUNE_RETURN_IF_ERROR(TakeFingerprint(in_use, for_parts));
  return TakeConnections();
}

void Job::ProvideForPrograms() {
  temporaries_ = std::make_unique<Temporaries>(*device_);
  groups_->set_program_support({.part_backend = groups_->part_backend(),
                                .temporaries = temporaries_.get(),
                                .rounds_values = options_.settings.numerics == NumericsRule::kSame,
                                .recipes = &recipes(),
                                .fusion = options_.settings.fusion});
}

void Job::set_settings(const TuningSettings& settings) {
  options_.settings = settings;
  if (groups_ != nullptr) {
    groups_->set_numerics(settings.numerics);
    ProgramSupport support = groups_->program_support();
    support.fusion = settings.fusion;
    support.recipes = &recipes();
    groups_->set_program_support(support);
  }
  fingerprint_.measuring_mode = MeasuringMode();
}

// Measurements by other rules are kept apart, because others may win there. A winner among all
// choices may be of another numerics class than what may win by numerics=same, and programs that
// round every value take another time. By other rules of fusion other forms race.
std::string Job::MeasuringMode() const {
  std::string mode = device_->measuring_mode();
  if (options_.settings.numerics == NumericsRule::kSame) mode += ", numerics=same";
  const std::string fusion = options_.settings.fusion.DifferencesText();
  return fusion.empty() ? mode : mode + ", fusion=" + fusion;
}

Status Job::TakeFingerprint(const std::vector<const Backend*>& in_use,
                            const std::vector<const Backend*>& for_parts) {
  fingerprint_.machine = MachineFields();
  if (options_.memory == MemoryKind::kCuda) {
    COTUNE_TRY(auto fields, gpu::GpuFields(device_->ordinal()));
    fingerprint_.machine.merge(fields);
  }
  fingerprint_.measuring_mode = MeasuringMode();
  fingerprint_.backends.clear();
  for (const Backend* backend : in_use) {
    fingerprint_.backends[backend->name()] = catalogue_->IdentityOf(*backend);
  }
  // The time of a program depends on the backend of its parts. A measurement in which that backend
  // ran nothing else says nothing about its choices, and is kept apart from races among them.
  for (const Backend* backend : for_parts) {
    fingerprint_.backends.try_emplace(backend->name(),
                                      catalogue_->IdentityOf(*backend) + " for parts only");
  }
  fingerprint_.builds.clear();
  for (const auto& [backend, build] : catalogue_->builds()) {
    if (fingerprint_.backends.contains(backend)) fingerprint_.builds[backend] = build;
  }
  topology_digest_ = TopologyDigest(fingerprint_.machine);
  return {};
}

Status Job::TakeConnections() {
  for (const BackendMember& member : groups_->members()) {
    if (member.connections.empty()) continue;
    fingerprint_.connections[member.backend->name()] = member.connections;
  }
  if (options_.memory == MemoryKind::kHost) return {};
  COTUNE_TRY(const std::string links,
             gpu::LinksOfRanks(device_->ordinal(), *exchange_,
                               clock_.now_ns() + options_.settings.warm_timeout_ns));
  if (!links.empty()) fingerprint_.connections[kGpuConnections] = links;
  return {};
}

Result<std::unique_ptr<Job>> Job::Split(const std::string& name, const std::vector<int>& ranks) {
  std::unique_ptr<Job> job(new Job());
  job->options_ = options_;
  job->observer_ = observer_;
  job->stops_ = stops_;
  job->captured_memory_ = captured_memory_;
  job->watch_ = watch_;
  COTUNE_TRY(std::unique_ptr<RankExchange> exchange,
             exchange_->Subgroup(name, ranks,
                                 DeadlineAfter(clock_.now_ns(), options_.rendezvous_timeout_ns)));
  job->exchange_ = std::move(exchange);
  job->places_ = places_.OfRanks(ranks);
  // Backends are bound to it, whatever is current on this thread by now.
  COTUNE_RETURN_IF_ERROR(job->OpenDevice(device_->ordinal()));
  job->catalogue_ = catalogue_;
  job->reports_ = reports_;
  std::vector<int> job_ranks;
  for (int rank : ranks) job_ranks.push_back(job_ranks_[rank]);
  COTUNE_RETURN_IF_ERROR(job->CreateGroups("split/" + name, job_ranks, stop_.get()));
  return job;
}

ChoiceList Job::ListChoices(const Program& program, const Problem& problem) const {
  const std::vector<Backend*>& backends = catalogue_->backends();
  std::vector<const Backend*> in_use(backends.begin(), backends.end());
  if (groups_ != nullptr) {
    in_use.clear();
    for (const BackendMember& member : groups_->members()) {
      if (member.group != nullptr) in_use.push_back(member.backend);
    }
  }
  const auto has_any = [](const std::vector<Backend*>& from) {
    return std::any_of(from.begin(), from.end(),
                       [](const Backend* backend) { return backend->has_parts(); });
  };
  const bool has_parts = groups_ != nullptr
                             ? groups_->part_backend() != nullptr
                             : has_any(backends) || has_any(catalogue_->part_backends());
  return ListChoicesOf(in_use,
                       {.has_parts = has_parts,
                        .numerics = options_.settings.numerics,
                        .recipes = &recipes(),
                        .fusion = options_.settings.fusion},
                       program, problem);
}

Result<Choice> Job::DefaultChoice(const Program& program, const Problem& problem) const {
  ChoiceList list = ListChoices(program, problem);
  for (Choice& choice : list.choices) {
    if (choice.is_default) return std::move(choice);
  }
  std::string reasons;
  for (const Refusal& refusal : list.refusals) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", refusal.choice, refusal.reason);
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
  cls.ranks_per_node = places_.ranks_per_host();
  return cls;
}

}  // namespace cotune
