// A measured cell as bytes: a record of the journal.
#ifndef COTUNE_CORE_DATABASE_CELL_CODEC_H_
#define COTUNE_CORE_DATABASE_CELL_CODEC_H_

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"

namespace cotune {

// Canonical: equal entries give equal bytes, in every process of one build. Pure; any thread.
std::string EncodeCell(const DatabaseEntry& entry);
// Inverse of EncodeCell, without loss. kDatabase names the field that is wrong. Pure; any thread.
Result<DatabaseEntry> DecodeCell(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_CELL_CODEC_H_
