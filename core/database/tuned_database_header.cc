#include "core/database/tuned_database_header.h"

#include <xxhash.h>

#include <algorithm>

#include "core/base/little_endian.h"
#include "fmt/format.h"

namespace cotune {

uint32_t DatabaseSchemaOf(std::string_view bytes) {
  return ReadLittleEndian<uint32_t>(bytes.substr(8));
}

namespace {

constexpr std::string_view kMagic = "COTUNEDB";
constexpr const char* kRestore = "restore it from a copy, or move it away and tune again";

std::string Checksum(std::string_view payload) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(payload.data(), payload.size()));
  return {reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest};
}

tl::unexpected<Error> Refused(std::string what, std::string cause, std::string next_step) {
  return Fail(ErrorCode::kDatabase, std::move(what), "", std::move(cause), std::move(next_step));
}

tl::unexpected<Error> Truncated(uint64_t need_bytes, size_t have_bytes) {
  return Refused(fmt::format("the tuned database is truncated: {} bytes needed, {} there",
                             need_bytes, have_bytes),
                 "it was not copied to the end", kRestore);
}

// Checks magic, schema version and length; gives the payload's length.
Result<uint64_t> CheckFields(std::string_view bytes) {
  if (bytes.empty()) {
    return Refused("the file is empty, not a tuned database", "it was created but never written",
                   "remove it; the next tune writes a new one");
  }
  if (!bytes.starts_with(kMagic.substr(0, bytes.size()))) {
    return Refused("not a cotune database", fmt::format("it does not begin with {}", kMagic),
                   "give the path of a file that 'cotune tune' wrote");
  }
  if (bytes.size() < kDatabaseHeaderBytes) return Truncated(kDatabaseHeaderBytes, bytes.size());
  const uint32_t version = DatabaseSchemaOf(bytes);
  if (version > kDatabaseSchemaVersion) {
    return Refused(fmt::format("the tuned database has schema {}, this cotune reads up to {}",
                               version, kDatabaseSchemaVersion),
                   "a newer cotune wrote it", "upgrade cotune, or tune again into another file");
  }
  if (version == 0) return Refused("field schema version is 0", "the header is damaged", kRestore);
  const auto payload_bytes = ReadLittleEndian<uint64_t>(bytes.substr(12));
  const size_t have_bytes = bytes.size() - kDatabaseHeaderBytes;
  if (payload_bytes > have_bytes) {
    // Saturates: a damaged length can be near 2^64.
    return Truncated(std::max(payload_bytes, payload_bytes + kDatabaseHeaderBytes), bytes.size());
  }
  if (payload_bytes < have_bytes) {
    return Refused(
        fmt::format("the tuned database has {} bytes behind its end", have_bytes - payload_bytes),
        "something was appended to it", kRestore);
  }
  return payload_bytes;
}

}  // namespace

std::string WithDatabaseHeader(std::string_view payload) {
  std::string bytes;
  bytes.reserve(kDatabaseHeaderBytes + payload.size());
  bytes += kMagic;
  AppendLittleEndian(kDatabaseSchemaVersion, bytes);
  AppendLittleEndian(static_cast<uint64_t>(payload.size()), bytes);
  bytes += Checksum(payload);
  bytes += payload;
  return bytes;
}

Result<std::string_view> CheckDatabaseHeader(std::string_view bytes) {
  COTUNE_RETURN_IF_ERROR(CheckFields(bytes));
  const std::string_view payload = bytes.substr(kDatabaseHeaderBytes);
  if (Checksum(payload) != bytes.substr(20, 16)) {
    return Refused("the checksum of the tuned database does not match",
                   "its bytes were damaged or edited", kRestore);
  }
  return payload;
}

}  // namespace cotune
