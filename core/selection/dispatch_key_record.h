// A dispatch key in the record of a row.
#ifndef COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_
#define COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_

#include <string>

#include "core/base/status.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/dispatch_table.pb.h"

namespace cotune {

void WriteKey(const DispatchKey& key, proto::DispatchRowRecord& record);

// kDatabase for a value that is not known; `where` is the row.
Result<DispatchKey> ReadKey(const proto::DispatchRowRecord& record, const std::string& where);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_
