#include "core/database/tuning_journal_format.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/base/little_endian.h"
#include "core/database/cell_codec.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::string_view kMagic = "COTUNEJL";
// 6 added the texts of programs to cells, 7 how ranks reach each other, 8 the warm times of tied
// choices, 9 moved how ranks reach each other into the fingerprint, and 10 added the builds of
// plugins to tunes and cells, and the next best choices and the steadiness of cells; older ones
// from 5 on are read as well.
constexpr uint32_t kVersion = 10;
constexpr uint32_t kOldestVersion = 5;
constexpr size_t kHeaderBytes = kMagic.size() + 4 + 4;
constexpr size_t kRecordHeadBytes = 4 + 8;
constexpr const char* kMoveAway = "move the journal away; what it held is measured again";

// First letters of payloads.
constexpr char kCell = 'C';
constexpr char kAttempt = 'A';
constexpr char kBlame = 'B';
constexpr char kPrepare = 'P';
constexpr char kPrepared = 'D';
constexpr char kBuilds = 'T';  // a tune begins with them

constexpr std::string_view kLetters = "CABPDT";

// Behind a damaged record, what looks like the length of another is believed up to here: larger
// than any record gets, and small enough for reading a large file to end.
constexpr size_t kFoundPayloadBytesMax = 1u << 20;

// The payload of the record that begins here, or nothing when it is cut off or damaged.
std::string_view FirstPayload(std::string_view bytes, size_t payload_bytes_max) {
  if (bytes.size() <= kRecordHeadBytes) return {};
  const auto payload_bytes = ReadLittleEndian<uint32_t>(bytes);
  const auto checksum = ReadLittleEndian<uint64_t>(bytes.substr(4));
  bytes.remove_prefix(kRecordHeadBytes);
  if (payload_bytes > std::min(bytes.size(), payload_bytes_max)) return {};
  if (kLetters.find(bytes.front()) == std::string_view::npos) return {};
  const std::string_view payload = bytes.substr(0, payload_bytes);
  return XXH3_64bits(payload.data(), payload.size()) == checksum ? payload : std::string_view();
}

// Finds the first whole record at `begin` or behind; gives the end of the bytes when there is none.
size_t FindRecord(std::string_view bytes, size_t begin) {
  size_t at = begin;
  while (at < bytes.size()) {
    const size_t payload_bytes_max = at == begin ? bytes.size() : kFoundPayloadBytesMax;
    if (!FirstPayload(bytes.substr(at), payload_bytes_max).empty()) return at;
    ++at;
  }
  return at;
}

std::string EncodePayload(char letter, std::string_view body) {
  const std::string payload = letter + std::string(body);
  std::string bytes;
  AppendLittleEndian(static_cast<uint32_t>(payload.size()), bytes);
  AppendLittleEndian(static_cast<uint64_t>(XXH3_64bits(payload.data(), payload.size())), bytes);
  return bytes + payload;
}

// The text up to the next end of a line, which is removed with it.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

template <typename Number>
bool TakeNumber(std::string_view& text, Number& number) {
  const std::string_view line = TakeLine(text);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc() && end == line.data() + line.size();
}

std::optional<JournalAttempt> TakeAttempt(std::string_view& body) {
  JournalAttempt attempt;
  attempt.problem_class = TakeLine(body);
  if (!TakeNumber(body, attempt.bytes)) return std::nullopt;
  attempt.choice = TakeLine(body);
  return attempt;
}

// The part of a tune's builds that the choice depends on.
PluginBuilds BuildsOf(const std::string& choice, const PluginBuilds& of_tune) {
  PluginBuilds builds;
  const Result<ChoiceId> id = ChoiceId::Parse(choice);
  if (!id) return builds;
  for (const ChoiceId& step : id->steps()) {
    const auto build = of_tune.find(std::string(step.backend()));
    if (build != of_tune.end()) builds.insert(*build);
  }
  return builds;
}

// One line for each plugin: "tiny=4f3a12bc".
Status TakeBuilds(std::string_view body, PluginBuilds& builds) {
  builds.clear();
  while (!body.empty()) {
    const std::string_view line = TakeLine(body);
    const size_t name_end = line.find('=');
    if (name_end == std::string_view::npos) {
      return Fail(ErrorCode::kDatabase, "a record of the journal cannot be read");
    }
    builds.emplace(line.substr(0, name_end), line.substr(name_end + 1));
  }
  return {};
}

void TakePrepare(JournalPrepare prepare, JournalContent& content) {
  if (!prepare.is_over) return content.open_prepares.push_back(std::move(prepare));
  std::erase_if(content.open_prepares, [&](const JournalPrepare& open) {
    return open.rank == prepare.rank && open.attempt == prepare.attempt;
  });
}

// A blame explains the end of its tune. One that is not certain stands for the open prepares of its
// choice, which the next tune has turned into it.
void CloseExplained(const JournalBlame& blame, std::vector<JournalPrepare>& open_prepares) {
  std::erase_if(open_prepares, [&](const JournalPrepare& open) {
    return blame.is_certain() || blame.attempt.IsOfSameChoice(open.attempt);
  });
}

// Takes one payload into the content; an error when it is none.
Status TakePayload(std::string_view payload, JournalContent& content) {
  const char letter = payload.front();
  std::string_view body = payload.substr(1);
  // Blames before this record have explained the end of the tune before.
  if (letter == kBuilds) return TakeBuilds(body, content.builds);
  const bool is_prepare = letter == kPrepare || letter == kPrepared;
  // All ranks have made their plans before the first choice of a cell is launched.
  if (letter == kCell || letter == kAttempt) content.open_prepares.clear();
  if (!is_prepare) content.open_attempt.reset();
  if (letter == kCell) {
    COTUNE_TRY(DatabaseEntry entry, DecodeCell(body));
    DropBlamesOf(entry.cell, content.blames);
    content.entries.push_back(std::move(entry));
    return {};
  }
  std::optional<JournalAttempt> attempt;
  if (letter == kAttempt || letter == kBlame || is_prepare) attempt = TakeAttempt(body);
  JournalBlame blame;
  if (!attempt || (letter != kAttempt && !TakeNumber(body, blame.rank))) {
    return Fail(ErrorCode::kDatabase, "a record of the journal cannot be read");
  }
  attempt->builds = BuildsOf(attempt->choice, content.builds);
  if (letter == kAttempt) {
    if (!attempt->choice.empty()) content.open_attempt = std::move(attempt);
    return {};
  }
  if (is_prepare) {
    TakePrepare({std::move(*attempt), blame.rank, letter == kPrepared}, content);
    return {};
  }
  blame.attempt = std::move(*attempt);
  blame.how = TakeLine(body);
  CloseExplained(blame, content.open_prepares);
  // Ranks that crash alike all say it.
  const bool is_known =
      blame.is_certain() &&
      std::any_of(content.blames.begin(), content.blames.end(), [&](const JournalBlame& other) {
        return other.is_certain() && other.attempt == blame.attempt;
      });
  if (!is_known) content.blames.push_back(std::move(blame));
  return {};
}

// Appends to a span that does not grow; what does not fit is not written, and is told at the end.
class SpanWriter {
 public:
  explicit SpanWriter(std::span<char> out) : out_(out) {}
  void Put(std::string_view text) {
    if (text.size() <= out_.size() - std::min(size_, out_.size())) {
      std::copy(text.begin(), text.end(), out_.begin() + static_cast<std::ptrdiff_t>(size_));
    }
    size_ += text.size();
  }
  void PutNumber(uint64_t number) {
    char digits[20];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
    Put({digits, static_cast<size_t>(end - digits)});
  }
  template <typename Integer>
  void PutLittleEndian(Integer value) {
    char bytes[sizeof(value)];
    for (char& byte : bytes) {
      byte = static_cast<char>(value & 0xFF);
      value >>= 8;
    }
    Put({bytes, sizeof(bytes)});
  }
  size_t size() const { return size_; }

 private:
  std::span<char> out_;
  size_t size_ = 0;
};

std::string HeaderOf(uint32_t version, JournalKind kind) {
  std::string bytes(kMagic);
  AppendLittleEndian(version, bytes);
  AppendLittleEndian(static_cast<uint32_t>(kind), bytes);
  return bytes;
}

}  // namespace

bool JournalAttempt::IsOfOtherBuild(const PluginBuilds& here) const {
  return std::any_of(builds.begin(), builds.end(), [&](const auto& known) {
    const auto build = here.find(known.first);
    return build != here.end() && build->second != known.second;
  });
}

size_t EncodeBlameRecord(const BlameText& blame, std::span<char> out) {
  if (out.size() < kRecordHeadBytes) return 0;
  SpanWriter body(out.subspan(kRecordHeadBytes));
  body.Put({&kBlame, 1});
  body.Put(blame.problem_class);
  body.Put("\n");
  body.PutNumber(blame.bytes);
  body.Put("\n");
  body.Put(blame.choice);
  body.Put("\n");
  body.PutNumber(static_cast<uint64_t>(blame.rank));
  body.Put("\n");
  body.Put(blame.how);
  if (!blame.function.empty()) body.Put(" ");
  body.Put(blame.function);
  if (body.size() > out.size() - kRecordHeadBytes) return 0;
  SpanWriter head(out);
  head.PutLittleEndian(static_cast<uint32_t>(body.size()));
  head.PutLittleEndian(
      static_cast<uint64_t>(XXH3_64bits(out.data() + kRecordHeadBytes, body.size())));
  return kRecordHeadBytes + body.size();
}

std::string EncodeJournalRecord(const JournalAttempt& attempt) {
  return EncodePayload(
      kAttempt, fmt::format("{}\n{}\n{}", attempt.problem_class, attempt.bytes, attempt.choice));
}

std::string EncodeJournalRecord(const JournalPrepare& prepare) {
  const JournalAttempt& attempt = prepare.attempt;
  return EncodePayload(prepare.is_over ? kPrepared : kPrepare,
                       fmt::format("{}\n{}\n{}\n{}", attempt.problem_class, attempt.bytes,
                                   attempt.choice, prepare.rank));
}

std::string EncodeJournalRecord(const JournalBlame& blame) {
  return EncodePayload(
      kBlame, fmt::format("{}\n{}\n{}\n{}\n{}", blame.attempt.problem_class, blame.attempt.bytes,
                          blame.attempt.choice, blame.rank, blame.how));
}

std::string EncodeJournalRecord(const JournalBuilds& builds) {
  std::string body;
  for (const auto& [backend, build] : builds.builds) body += fmt::format("{}={}\n", backend, build);
  return EncodePayload(kBuilds, body);
}

void DropBlamesOf(const CellResult& cell, std::vector<JournalBlame>& blames) {
  const std::string problem_class = ToText(cell.problem.cls);
  std::erase_if(blames, [&](const JournalBlame& blame) {
    return blame.attempt.problem_class == problem_class &&
           std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
             return verdict.id.text() == blame.attempt.choice;
           });
  });
}

std::string JournalHeader(JournalKind kind) { return HeaderOf(kVersion, kind); }

std::string EncodeJournalRecord(const DatabaseEntry& entry) {
  return EncodePayload(kCell, EncodeCell(entry));
}

Result<JournalContent> DecodeJournal(std::string_view bytes) {
  JournalContent content;
  const std::string_view header = bytes.substr(0, kHeaderBytes);
  bool is_header = false;
  for (const JournalKind kind : {JournalKind::kTune, JournalKind::kForcedTune}) {
    for (uint32_t version = kOldestVersion; version <= kVersion; ++version) {
      if (!HeaderOf(version, kind).starts_with(header)) continue;
      if (header.size() < kHeaderBytes) return content;  // it was not written to the end
      is_header = true;
      content.kind = kind;
    }
  }
  if (!bytes.starts_with(kMagic)) {
    return Fail(ErrorCode::kDatabase, "not a cotune journal", "",
                fmt::format("it does not begin with {}", kMagic), kMoveAway);
  }
  if (!is_header) {
    const uint32_t version =
        bytes.size() < kMagic.size() + 4 ? 0 : ReadLittleEndian<uint32_t>(bytes.substr(8));
    return Fail(ErrorCode::kDatabase,
                fmt::format("the journal has version {}, this cotune reads {} to {}", version,
                            kOldestVersion, kVersion),
                "", "another version of cotune wrote it",
                fmt::format("finish with that version, or {}", kMoveAway));
  }
  content.has_header = true;
  size_t at = kHeaderBytes;
  while (at < bytes.size()) {
    const size_t record = FindRecord(bytes, at);
    content.lost_bytes += record - at;
    if (record == bytes.size()) break;
    const std::string_view payload = FirstPayload(bytes.substr(record), bytes.size());
    if (const Status taken = TakePayload(payload, content); !taken) {
      Error error = taken.error();
      error.where = fmt::format("byte {}", record);
      error.next_step = kMoveAway;
      return tl::make_unexpected(std::move(error));
    }
    at = record + kRecordHeadBytes + payload.size();
  }
  return content;
}

}  // namespace cotune
