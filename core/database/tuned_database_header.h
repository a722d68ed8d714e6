// The first bytes of a tuned database and their checks. Pure.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_HEADER_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace cotune {

// magic "COTUNEDB" | schema version u32 | payload length u64 | XXH3-128 of the payload; integers
// little-endian.
inline constexpr size_t kDatabaseHeaderBytes = 8 + 4 + 8 + 16;
inline constexpr uint32_t kDatabaseSchemaVersion = 7;

// The header of this payload, then the payload.
std::string WithDatabaseHeader(std::string_view payload);

// The schema version in the header of bytes that CheckDatabaseHeader accepts.
uint32_t DatabaseSchemaOf(std::string_view bytes);

// The payload inside `bytes`. kDatabase, each with its own text: empty, not a cotune database,
// newer schema, truncated, bytes behind the end, checksum.
Result<std::string_view> CheckDatabaseHeader(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_HEADER_H_
