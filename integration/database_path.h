// The default place of a machine's tuned database.
#ifndef COTUNE_INTEGRATION_DATABASE_PATH_H_
#define COTUNE_INTEGRATION_DATABASE_PATH_H_

#include <string>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"
#include "integration/launch_context.h"

namespace cotune {

// "intel-xeon-8375c-1a2b3c4d": readable first, then a digest of all machine fields. Pure.
std::string MachineFileName(const Fingerprint& fingerprint);

// `asked`, or $XDG_CACHE_HOME/cotune/NAME.tdb, or ~/.cache/cotune/NAME.tdb. kEnvironment when
// neither variable is set.
Result<std::string> DatabasePath(const std::string& asked, const Environment& environment,
                                 const Fingerprint& fingerprint);

// Makes the folder of the file, for the user only. kEnvironment when it cannot.
Status MakeFolderOf(const std::string& path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_DATABASE_PATH_H_
