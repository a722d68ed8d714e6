// The tune that explains a tuned database: one that runs, or one that was ended before it was
// saved.
#ifndef COTUNE_INTEGRATION_MISSING_DATABASE_H_
#define COTUNE_INTEGRATION_MISSING_DATABASE_H_

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace cotune {

// The first tune into a file makes it at its end. Both texts are "" if no tune is known.
struct UnfinishedTune {
  std::string cause;      // "process 1234 is writing to it"; "" as well if the tune was ended
  std::string next_step;  // to wait, or to continue from the journal
};
UnfinishedTune FindUnfinishedTune(const std::string& database_path);

// "process 1234 is writing to FILE; the results shown are from before that", for a database that is
// there; "" if no process tunes into it. `use` is what the reader does with them, here "shown".
std::string RunningTuneText(const std::string& database_path, std::string_view use);

// The error of loading a tuned database, with the tune that explains it if the file is not there.
Error ExplainMissing(Error error, const std::string& database_path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_MISSING_DATABASE_H_
