#include "core/tuning_journal_format.h"

#include <xxhash.h>

#include <utility>

#include "core/cell_codec.h"
#include "core/little_endian.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::string_view kMagic = "COTUNEJL";
constexpr uint32_t kVersion = 3;
constexpr size_t kHeaderBytes = kMagic.size() + 4 + 4;
constexpr size_t kRecordHeadBytes = 4 + 8;
constexpr const char* kMoveAway = "move the journal away; what it held is measured again";

// The payload of the first record, or nothing when it is torn or damaged.
std::string_view FirstPayload(std::string_view bytes) {
  if (bytes.size() < kRecordHeadBytes) return {};
  const auto payload_bytes = ReadLittleEndian<uint32_t>(bytes);
  const auto checksum = ReadLittleEndian<uint64_t>(bytes.substr(4));
  bytes.remove_prefix(kRecordHeadBytes);
  if (payload_bytes > bytes.size()) return {};
  const std::string_view payload = bytes.substr(0, payload_bytes);
  return XXH3_64bits(payload.data(), payload.size()) == checksum ? payload : std::string_view();
}

}  // namespace

std::string JournalHeader(JournalKind kind) {
  std::string bytes(kMagic);
  AppendLittleEndian(kVersion, bytes);
  AppendLittleEndian(static_cast<uint32_t>(kind), bytes);
  return bytes;
}

std::string EncodeJournalRecord(const DatabaseEntry& entry) {
  const std::string payload = EncodeCell(entry);
  std::string bytes;
  AppendLittleEndian(static_cast<uint32_t>(payload.size()), bytes);
  AppendLittleEndian(static_cast<uint64_t>(XXH3_64bits(payload.data(), payload.size())), bytes);
  return bytes + payload;
}

Result<JournalContent> DecodeJournal(std::string_view bytes) {
  JournalContent content;
  const std::string_view header = bytes.substr(0, kHeaderBytes);
  bool is_header = false;
  for (const JournalKind kind : {JournalKind::kTune, JournalKind::kForcedTune}) {
    if (!JournalHeader(kind).starts_with(header)) continue;
    if (header.size() < kHeaderBytes) return content;  // it was not written to the end
    is_header = true;
    content.kind = kind;
  }
  if (!bytes.starts_with(kMagic)) {
    return Fail(ErrorCode::kDatabase, "not a cotune journal", "",
                fmt::format("it does not begin with {}", kMagic), kMoveAway);
  }
  if (!is_header) {
    const uint32_t version =
        bytes.size() < kMagic.size() + 4 ? 0 : ReadLittleEndian<uint32_t>(bytes.substr(8));
    return Fail(ErrorCode::kDatabase,
                fmt::format("the journal has version {}, this cotune reads {}", version, kVersion),
                "", "another version of cotune wrote it",
                fmt::format("finish with that version, or {}", kMoveAway));
  }
  content.whole_bytes = kHeaderBytes;
  while (true) {
    const std::string_view payload = FirstPayload(bytes.substr(content.whole_bytes));
    if (payload.empty()) return content;
    Result<DatabaseEntry> entry = DecodeCell(payload);
    if (!entry) {
      Error error = entry.error();
      error.where = fmt::format("record {}", content.entries.size());
      error.next_step = kMoveAway;
      return tl::make_unexpected(std::move(error));
    }
    content.entries.push_back(std::move(*entry));
    content.whole_bytes += kRecordHeadBytes + payload.size();
  }
}

}  // namespace cotune
