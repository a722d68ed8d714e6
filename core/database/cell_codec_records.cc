#include "core/database/cell_codec_records.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/problem/program_graph.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Differences wrap instead of overflowing, so that every pair of values survives the round trip.
int64_t Difference(int64_t value, int64_t base) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) - static_cast<uint64_t>(base));
}
int64_t Sum(int64_t base, int64_t difference) {
  return static_cast<int64_t>(static_cast<uint64_t>(base) + static_cast<uint64_t>(difference));
}

void WriteVerdict(const Verdict& verdict, const TextTable& table, proto::VerdictRecord& record) {
  record.set_choice(table.Reference(verdict.id.text()));
  record.set_outcome(static_cast<uint32_t>(verdict.outcome));
  record.set_is_default(verdict.is_default);
  record.set_reason(table.Reference(verdict.reason));
  record.set_numerics(table.Reference(verdict.numerics));
  record.set_wrong_elements(verdict.wrong_elements);
  for (int64_t sample_ns : verdict.samples_ns) {
    record.add_samples_from_median_ns(Difference(sample_ns, verdict.median_ns));
  }
  record.mutable_skews_ns()->Add(verdict.skews_ns.begin(), verdict.skews_ns.end());
  record.set_repetitions(verdict.repetitions);
  record.set_median_ns(verdict.median_ns);
  record.set_warm_median_ns(verdict.warm_median_ns);
  record.set_interval_low_from_median_ns(Difference(verdict.interval_low_ns, verdict.median_ns));
  record.set_interval_high_from_median_ns(Difference(verdict.interval_high_ns, verdict.median_ns));
}

// "" for reference 0; kDatabase for one that points nowhere.
Result<std::string> ReadText(uint32_t reference, const TextLookup& text_of,
                             std::string_view field) {
  if (reference == 0) return std::string();
  const std::optional<std::string_view> text = text_of(reference);
  if (!text) return BadField(field, fmt::format("there is no text {}", reference));
  return std::string(*text);
}

Status ReadOptionalChoice(uint32_t reference, const TextLookup& text_of, std::string_view field,
                          std::optional<ChoiceId>& choice) {
  if (reference == 0) return {};
  COTUNE_TRY(ChoiceId read, ReadChoice(reference, text_of, field));
  choice = std::move(read);
  return {};
}

Result<Verdict> ReadVerdict(const proto::VerdictRecord& record, const TextLookup& text_of) {
  COTUNE_TRY(ChoiceId id, ReadChoice(record.choice(), text_of, "verdicts.choice"));
  COTUNE_TRY(std::string reason, ReadText(record.reason(), text_of, "verdicts.reason"));
  COTUNE_TRY(std::string numerics, ReadText(record.numerics(), text_of, "verdicts.numerics"));
  if (record.outcome() < 1 || record.outcome() > static_cast<uint32_t>(Outcome::kLostHeat)) {
    return BadField("verdicts.outcome", fmt::format("value {} is not known", record.outcome()));
  }
  Verdict verdict{.id = std::move(id)};
  verdict.outcome = static_cast<Outcome>(record.outcome());
  verdict.is_default = record.is_default();
  verdict.reason = std::move(reason);
  verdict.numerics = std::move(numerics);
  verdict.wrong_elements = record.wrong_elements();
  verdict.samples_ns.reserve(static_cast<size_t>(record.samples_from_median_ns_size()));
  for (int64_t difference : record.samples_from_median_ns()) {
    verdict.samples_ns.push_back(Sum(record.median_ns(), difference));
  }
  verdict.skews_ns.assign(record.skews_ns().begin(), record.skews_ns().end());
  verdict.repetitions = record.repetitions();
  verdict.median_ns = record.median_ns();
  verdict.warm_median_ns = record.warm_median_ns();
  verdict.interval_low_ns = Sum(record.median_ns(), record.interval_low_from_median_ns());
  verdict.interval_high_ns = Sum(record.median_ns(), record.interval_high_from_median_ns());
  return verdict;
}

Status ReadVerdictsAndRefusals(const proto::CellDetailRecord& record, const TextLookup& text_of,
                               CellResult& cell) {
  cell.verdicts.reserve(static_cast<size_t>(record.verdicts_size()));
  cell.refusals.reserve(static_cast<size_t>(record.refusals_size()));
  for (const proto::VerdictRecord& verdict_record : record.verdicts()) {
    COTUNE_TRY(Verdict verdict, ReadVerdict(verdict_record, text_of));
    cell.verdicts.push_back(std::move(verdict));
  }
  for (const proto::RefusalRecord& refusal : record.refusals()) {
    COTUNE_TRY(std::string choice, ReadText(refusal.choice(), text_of, "refusals.choice"));
    COTUNE_TRY(std::string reason, ReadText(refusal.reason(), text_of, "refusals.reason"));
    cell.refusals.push_back({std::move(choice), std::move(reason)});
  }
  return {};
}

Status ReadFingerprintFields(
    const google::protobuf::RepeatedPtrField<proto::FingerprintFieldRecord>& records,
    std::string_view field, std::map<std::string, std::string>& fields) {
  for (const proto::FingerprintFieldRecord& record : records) {
    if (!fields.empty() && record.name() <= fields.rbegin()->first) {
      return BadField(field,
                      fmt::format("'{}' comes after '{}'", record.name(), fields.rbegin()->first));
    }
    fields.emplace_hint(fields.end(), record.name(), record.value());
  }
  return {};
}

}  // namespace

void TextTable::AddTextsOf(const CellResult& cell, const Winner& winner) {
  for (const Verdict& verdict : cell.verdicts) {
    Add(verdict.id.text());
    Add(verdict.reason);
    Add(verdict.numerics);
  }
  for (const Refusal& refusal : cell.refusals) {
    Add(refusal.choice);
    Add(refusal.reason);
  }
  Add(winner.id.text());
  if (winner.runner_up) Add(winner.runner_up->text());
  if (winner.fallback) Add(winner.fallback->text());
  for (const ChoiceId& next : winner.next_best) Add(next.text());
  Add(winner.why);
  Add(cell.throttle_reasons);
}

void TextTable::AddTextsOf(const DatabaseEntry& entry) {
  AddTextsOf(entry.cell, entry.winner);
  Add(entry.cotune_version);
}

void TextTable::Freeze() {
  uint32_t reference = 0;
  for (std::string_view text : texts_) references_.at(text) = ++reference;
}

uint32_t TextTable::Reference(std::string_view text) const {
  return text.empty() ? 0 : references_.at(text);
}

proto::FingerprintRecord ToRecord(const Fingerprint& fingerprint) {
  proto::FingerprintRecord record;
  for (const auto& [name, value] : fingerprint.machine) {
    proto::FingerprintFieldRecord* field = record.add_machine();
    field->set_name(name);
    field->set_value(value);
  }
  for (const auto& [name, version] : fingerprint.backends) {
    proto::FingerprintFieldRecord* field = record.add_backends();
    field->set_name(name);
    field->set_value(version);
  }
  record.set_measuring_mode(fingerprint.measuring_mode);
  for (const auto& [name, text] : fingerprint.connections) {
    proto::FingerprintFieldRecord* field = record.add_connections();
    field->set_name(name);
    field->set_value(text);
  }
  for (const auto& [name, build] : fingerprint.builds) {
    proto::FingerprintFieldRecord* field = record.add_builds();
    field->set_name(name);
    field->set_value(build);
  }
  return record;
}

proto::CellDetailRecord ToDetailRecord(const CellResult& cell, const Winner& winner,
                                       const TextTable& table) {
  proto::CellDetailRecord record;
  for (const Verdict& verdict : cell.verdicts) WriteVerdict(verdict, table, *record.add_verdicts());
  for (const Refusal& refusal : cell.refusals) {
    proto::RefusalRecord* out = record.add_refusals();
    out->set_choice(table.Reference(refusal.choice));
    out->set_reason(table.Reference(refusal.reason));
  }
  record.set_start_mode(static_cast<uint32_t>(cell.start_mode));
  record.set_invalid_rounds(cell.invalid_rounds);
  if (cell.buffer_copies != 1) {
    record.set_buffer_copies(static_cast<uint32_t>(cell.buffer_copies));
  }
  record.set_sm_clock_mhz(static_cast<uint32_t>(cell.sm_clock_mhz));
  record.set_throttle_reasons(table.Reference(cell.throttle_reasons));
  record.set_is_unsteady(cell.is_unsteady);
  record.set_winner_median_ns(winner.median_ns);
  if (winner.runner_up) record.set_runner_up(table.Reference(winner.runner_up->text()));
  record.set_runner_up_median_ns(winner.runner_up_median_ns);
  if (winner.fallback) record.set_fallback(table.Reference(winner.fallback->text()));
  record.set_fallback_median_ns(winner.fallback_median_ns);
  for (const ChoiceId& next : winner.next_best) record.add_next_best(table.Reference(next.text()));
  record.set_why(table.Reference(winner.why));
  return record;
}

proto::CellDetailRecord ToDetailRecord(const DatabaseEntry& entry, const TextTable& table) {
  proto::CellDetailRecord record = ToDetailRecord(entry.cell, entry.winner, table);
  record.set_cotune_version(table.Reference(entry.cotune_version));
  return record;
}

Result<Fingerprint> FromRecord(const proto::FingerprintRecord& record) {
  Fingerprint fingerprint;
  Status read = ReadFingerprintFields(record.machine(), "fingerprint.machine", fingerprint.machine);
  if (read)
    read = ReadFingerprintFields(record.backends(), "fingerprint.backends", fingerprint.backends);
  if (read) {
    read = ReadFingerprintFields(record.connections(), "fingerprint.connections",
                                 fingerprint.connections);
  }
  if (read) read = ReadFingerprintFields(record.builds(), "fingerprint.builds", fingerprint.builds);
  COTUNE_RETURN_IF_ERROR(read);
  fingerprint.measuring_mode = record.measuring_mode();
  return fingerprint;
}

Result<ChoiceId> ReadChoice(uint32_t reference, const TextLookup& text_of, std::string_view field) {
  COTUNE_TRY(std::string text, ReadText(reference, text_of, field));
  Result<ChoiceId> choice = ChoiceId::Parse(text);
  if (!choice) return BadField(field, choice.error().ToText());
  return choice;
}

Status ReadDetailRecord(const proto::CellDetailRecord& record, const TextLookup& text_of,
                        CellResult& cell, Winner& winner) {
  if (Status read = ReadVerdictsAndRefusals(record, text_of, cell); !read) return read;
  if (record.start_mode() < 1 || record.start_mode() > static_cast<uint32_t>(StartMode::kDevice)) {
    return BadField("start_mode", fmt::format("value {} is not known", record.start_mode()));
  }
  cell.start_mode = static_cast<StartMode>(record.start_mode());
  cell.invalid_rounds = record.invalid_rounds();
  if (record.buffer_copies() > INT32_MAX) {
    return BadField("buffer_copies", fmt::format("{} of them", record.buffer_copies()));
  }
  cell.buffer_copies = std::max<int32_t>(1, static_cast<int32_t>(record.buffer_copies()));
  if (record.sm_clock_mhz() > INT32_MAX) {
    return BadField("sm_clock_mhz", fmt::format("it is {}", record.sm_clock_mhz()));
  }
  cell.sm_clock_mhz = static_cast<int32_t>(record.sm_clock_mhz());
  COTUNE_TRY(std::string reasons, ReadText(record.throttle_reasons(), text_of, "throttle_reasons"));
  cell.throttle_reasons = std::move(reasons);
  cell.is_unsteady = record.is_unsteady();
  Status read = ReadOptionalChoice(record.runner_up(), text_of, "runner_up", winner.runner_up);
  if (read) read = ReadOptionalChoice(record.fallback(), text_of, "fallback", winner.fallback);
  if (!read) return read;
  for (const uint32_t reference : record.next_best()) {
    COTUNE_TRY(ChoiceId next, ReadChoice(reference, text_of, "next_best"));
    winner.next_best.push_back(std::move(next));
  }
  COTUNE_TRY(std::string why, ReadText(record.why(), text_of, "why"));
  winner.median_ns = record.winner_median_ns();
  winner.runner_up_median_ns = record.runner_up_median_ns();
  winner.fallback_median_ns = record.fallback_median_ns();
  winner.why = std::move(why);
  winner.best_unfused = BestUnfused(cell, winner.id);
  return {};
}

Status ReadDetailRecord(const proto::CellDetailRecord& record, const TextLookup& text_of,
                        DatabaseEntry& entry) {
  COTUNE_RETURN_IF_ERROR(ReadDetailRecord(record, text_of, entry.cell, entry.winner));
  COTUNE_TRY(std::string version, ReadText(record.cotune_version(), text_of, "cotune_version"));
  entry.cotune_version = std::move(version);
  return {};
}

Result<ProblemClass> ReadProblemClass(uint32_t reference, const TextLookup& text_of) {
  const std::optional<std::string_view> text = reference == 0 ? std::nullopt : text_of(reference);
  if (!text) return BadField("problem_class", "there is none");
  Result<ProblemClass> cls = ParseProblemClass(*text);
  if (!cls) return BadField("problem_class", cls.error().ToText());
  return cls;
}

Result<uint64_t> DigestOfProgramText(std::string_view text) {
  const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  if (!graph) return BadField("program_texts", graph.error().ToText());
  if (graph->ToText() != text) return BadField("program_texts", "a text is not canonical");
  return graph->digest();
}

Status CheckProgramText(std::string_view text, uint64_t digest) {
  if (text.empty()) return {};
  COTUNE_TRY(const uint64_t own, DigestOfProgramText(text));
  if (own == digest) return {};
  return BadField("program_text",
                  fmt::format("its digest is {:016x}, the entry's {:016x}", own, digest));
}

tl::unexpected<Error> BadField(std::string_view field, std::string cause) {
  return Fail(ErrorCode::kDatabase, fmt::format("bad field '{}' in tuned data", field), "",
              std::move(cause), "tune again, or restore the file from a copy");
}

}  // namespace cotune
