#include "integration/backend_catalogue.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/backend/version_text.h"
#include "core/base/nearest_name.h"
#include "fmt/format.h"
#include "integration/build_id.h"
#include "plugins/loader/backend_adapter.h"

namespace cotune {
namespace {

// Whether a backend comes before another where the user names no order. The first one's default
// choice is the default of all: what a program without cotune would run, on GPUs and on hosts.
bool ComesBefore(const std::string& left, const std::string& right) {
  const auto place = [](const std::string& name) {
    return name == "nccl" ? 0 : name == "host" ? 1 : 2;
  };
  return std::pair(place(left), left) < std::pair(place(right), right);
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

// The settings of each backend by its name: "key=value key=value".
std::map<std::string, std::string> SettingTexts(
    const std::map<std::string, std::string>& settings) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : settings) {
    const size_t dot = name.find('.');
    std::string& text = texts[name.substr(0, dot)];
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name.substr(dot + 1), value);
  }
  return texts;
}

AdoptOptions WatchedBy(CallWatchdog* watchdog) {
  AdoptOptions options;
  options.watchdog = watchdog;
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

bool HasKind(uint32_t memory_kinds, MemoryKind memory) {
  return (memory_kinds >> static_cast<unsigned>(memory) & 1) != 0;
}

}  // namespace

BackendCatalogue::BackendCatalogue(CatalogueOptions options, Mode mode, const Place& place)
    : options_(std::move(options)),
      mode_(mode),
      place_(place),
      setting_texts_(SettingTexts(options_.settings)) {}

Result<std::unique_ptr<BackendCatalogue>> BackendCatalogue::Open(CatalogueOptions options,
                                                                 Mode mode, const Place& place) {
  std::unique_ptr<BackendCatalogue> made(new BackendCatalogue(std::move(options), mode, place));
  BackendCatalogue& self = *made;
  PluginScan scan =
      ScanPlugins(self.options_.plugin_paths, self.options_.plugin_search_path, place.watchdog);
  if (scan.failure && mode == Mode::kInUse) return tl::make_unexpected(*scan.failure);
  COTUNE_RETURN_IF_ERROR(self.AddTables(scan));
  self.reports_ = std::move(scan.reports);
  for (const auto& [table, path] : scan.tables) {
    if (self.IsWanted(table->name)) self.Adopt(*table, path);
  }
  if (self.bad_setting_) return tl::make_unexpected(*self.bad_setting_);
  COTUNE_RETURN_IF_ERROR(self.AddOwn());
  if (self.named_failure_ && mode == Mode::kInUse) {
    return tl::make_unexpected(*self.named_failure_);
  }
  COTUNE_RETURN_IF_ERROR(self.CheckWanted());
  self.Order();
  self.AdoptForParts(scan);
  if (self.bad_setting_) return tl::make_unexpected(*self.bad_setting_);
  COTUNE_RETURN_IF_ERROR(self.CheckSettings());
  return made;
}

Status BackendCatalogue::AddTables(PluginScan& scan) const {
  for (const cotune_backend_api_t* table : options_.tables) {
    if (Status checked = CheckTable(table, "registered in the process"); !checked) return checked;
    std::erase_if(scan.tables,
                  [&](const auto& other) { return std::string(other.first->name) == table->name; });
    for (PluginReport& report : scan.reports) {
      if (!report.is_named || !report.loaded || report.backend != table->name) continue;
      report.loaded = false;
      report.reason =
          fmt::format("the program registers a backend '{}', which comes before it", table->name);
    }
    scan.tables.emplace_back(table, "");
    scan.reports.push_back(PluginReport{"", table->name, table->version, table->abi_minor,
                                        table->memory_kinds, true, ""});
  }
  return {};
}

void BackendCatalogue::Adopt(const cotune_backend_api_t& table, const std::string& path) {
  const bool fits_memory = FitsMemory(table.memory_kinds);
  // A backend for other memory is loaded, but has nothing to do here.
  if (!fits_memory && mode_ == Mode::kSurvey) return Probe(table);
  if (!fits_memory && options_.backends.empty()) return;
  Result<std::unique_ptr<Backend>> backend =
      fits_memory ? AdoptBackend(&table, place_.services->table(), place_.device,
                                 path.empty() ? "registered in the process" : path,
                                 WatchedBy(place_.watchdog))
                  : WrongMemory(table, place_.memory);
  if (backend) {
    // The program answers for a table of its own by its version.
    const std::string build = path.empty() ? "" : BuildIdOf(&table, path);
    if (!build.empty()) builds_[table.name] = build;
    backends_.push_back(std::move(*backend));
    return;
  }
  if (backend.error().code == ErrorCode::kUsage) NoteBadSetting(table.name, backend.error());
  NoteFailure(table.name, backend.error(),
              mode_ == Mode::kSurvey && backend.error().code == ErrorCode::kUnsupported);
}

Status BackendCatalogue::AddOwn() {
  for (const std::shared_ptr<Backend>& own : options_.own_backends) {
    const bool is_taken = std::any_of(reports_.begin(), reports_.end(), [&](const auto& report) {
      return report.backend == own->name();
    });
    if (is_taken) {
      return Fail(ErrorCode::kUsage, fmt::format("there is a backend '{}' already", own->name()),
                  "functions of the caller", "a plugin has the name under which they are listed",
                  "give the functions another name");
    }
    const uint32_t any_memory = 1u << static_cast<unsigned>(MemoryKind::kHost) |
                                1u << static_cast<unsigned>(MemoryKind::kCuda);
    reports_.push_back(PluginReport{"", own->name(), own->version(), 0, any_memory, true, ""});
    if (IsWanted(own->name())) backends_.push_back(own);
  }
  return {};
}

void BackendCatalogue::AdoptForParts(const PluginScan& scan) {
  const bool has_parts = std::any_of(in_use_.begin(), in_use_.end(),
                                     [](const Backend* each) { return each->has_parts(); });
  if (has_parts || mode_ == Mode::kSurvey) return;
  std::map<std::string, std::pair<const cotune_backend_api_t*, std::string>> by_name;
  for (const auto& [table, path] : scan.tables) {
    if (!IsWanted(table->name) && FitsMemory(table->memory_kinds)) {
      by_name[table->name] = {table, path};
    }
  }
  for (const auto& [name, from] : by_name) {
    const size_t before = backends_.size();
    Adopt(*from.first, from.second);
    if (backends_.size() == before) continue;
    if (backends_.back()->has_parts()) {
      part_backends_.push_back(backends_.back().get());
      return;
    }
    builds_.erase(name);
    backends_.pop_back();
  }
}

void BackendCatalogue::Probe(const cotune_backend_api_t& table) {
  const bool is_for_hosts = HasKind(table.memory_kinds, MemoryKind::kHost);
  const Result<std::unique_ptr<Backend>> backend =
      AdoptBackend(&table, place_.services->table(), is_for_hosts ? -1 : 0, table.name,
                   WatchedBy(place_.watchdog));
  if (backend) return;
  // A machine without what it needs is no failure of the plugin.
  NoteFailure(table.name, backend.error(), backend.error().code == ErrorCode::kUnsupported);
}

std::string BackendCatalogue::OriginOf(const std::string& setting) const {
  const auto origin = options_.setting_origins.find(setting);
  return origin == options_.setting_origins.end() ? "settings" : origin->second;
}

void BackendCatalogue::NoteBadSetting(const std::string& backend, const Error& error) {
  for (const auto& [name, value] : options_.settings) {
    // A backend may refuse more than settings, whose names its text holds.
    if (!name.starts_with(backend + ".") || error.cause.find(name) == std::string::npos) continue;
    bad_setting_ = Error{ErrorCode::kUsage, "bad value for " + name,      OriginOf(name),
                         error.cause,       "correct it or leave it out", {}};
    return;
  }
}

void BackendCatalogue::NoteFailure(const std::string& backend, const Error& error, bool is_idle) {
  for (PluginReport& report : reports_) {
    if (report.backend != backend || !report.loaded) continue;
    report.loaded = is_idle;
    report.reason = error.ToText();
    const bool is_refused = report.is_named && error.code == ErrorCode::kPluginRefused;
    if (is_refused && !named_failure_) named_failure_ = error;
  }
}

Status BackendCatalogue::CheckWanted() const {
  for (const std::string& name : options_.backends) {
    const PluginReport* refused = nullptr;
    bool is_loaded = false;
    for (const PluginReport& report : reports_) {
      if (report.backend != name) continue;
      is_loaded = is_loaded || report.loaded;
      if (!report.loaded && refused == nullptr) refused = &report;
    }
    if (is_loaded || (refused != nullptr && mode_ == Mode::kSurvey)) continue;
    if (refused == nullptr) {
      return Fail(ErrorCode::kUsage, fmt::format("unknown backend '{}'", name), "", "",
                  KnownBackendsText(name, reports_));
    }
    return Fail(ErrorCode::kEnvironment, fmt::format("backend '{}' cannot be used", name),
                refused->path, refused->reason,
                "leave it out, or see `cotune plugin list` for all of them");
  }
  return {};
}

bool BackendCatalogue::IsOwn(const Backend& backend) const {
  return std::any_of(options_.own_backends.begin(), options_.own_backends.end(),
                     [&](const auto& own) { return own.get() == &backend; });
}

void BackendCatalogue::Order() {
  const std::vector<std::string>& wanted = options_.backends;
  const auto place = [&](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) - wanted.begin();
  };
  std::sort(backends_.begin(), backends_.end(), [&](const auto& left, const auto& right) {
    if (place(left->name()) != place(right->name()))
      return place(left->name()) < place(right->name());
    // The default of the first backend runs what is not tuned, and that is not unchecked code.
    if (IsOwn(*left) != IsOwn(*right)) return IsOwn(*right);
    return ComesBefore(left->name(), right->name());
  });
  for (const auto& backend : backends_) in_use_.push_back(backend.get());
}

Status BackendCatalogue::CheckSettings() {
  const std::set<std::string> asked = place_.services->AskedSettings();
  for (const auto& [name, value] : options_.settings) {
    if (asked.contains(name)) continue;
    const std::string backend = name.substr(0, name.find('.'));
    const std::string where = OriginOf(name);
    const auto report = std::find_if(reports_.begin(), reports_.end(),
                                     [&](const auto& each) { return each.backend == backend; });
    if (report == reports_.end()) {
      setting_warnings_.push_back(
          fmt::format("setting {} ({}) has no effect: there is no backend "
                      "{}; {}",
                      name, where, backend, KnownBackendsText(backend, reports_)));
      continue;
    }
    const bool is_probed = mode_ == Mode::kSurvey && report->loaded && report->reason.empty();
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

std::string BackendCatalogue::IdentityOf(const Backend& backend) const {
  // Settings may change what a backend's choices do, and so their times.
  const auto set = setting_texts_.find(backend.name());
  return VersionText(backend) + (set == setting_texts_.end() ? "" : " " + set->second);
}

Error BackendCatalogue::WhyNone(const std::vector<Refusal>& group_refusals) const {
  std::string reasons;
  for (const Refusal& refusal : group_refusals) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", refusal.choice, refusal.reason);
  }
  for (const PluginReport& report : reports_) {
    const bool fits_or_unwanted = FitsMemory(report.memory_kinds) || !IsWanted(report.backend);
    if (report.loaded && fits_or_unwanted) continue;
    reasons += reasons.empty() ? "" : "; ";
    reasons += !report.loaded ? report.reason
                              : fmt::format("backend {} does not work on {} memory", report.backend,
                                            Name(place_.memory));
  }
  if (reasons.empty()) {
    Error nothing = NoPluginFound(options_.plugin_search_path);
    nothing.what = "no backend can be used: " + nothing.what;
    return nothing;
  }
  return Error{ErrorCode::kEnvironment,
               "no backend can be used",
               "",
               reasons,
               group_refusals.empty() ? "`cotune plugin list` has the reason of each plugin"
                                      : "mend what is named, or choose another backend: --backend",
               {}};
}

bool BackendCatalogue::IsWanted(const std::string& backend) const {
  const std::vector<std::string>& wanted = options_.backends;
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), backend) != wanted.end();
}

bool BackendCatalogue::FitsMemory(uint32_t memory_kinds) const {
  return HasKind(memory_kinds, place_.memory);
}

}  // namespace cotune
