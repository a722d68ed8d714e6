// A dispatch key in the record of a row.
#ifndef COTUNE_CORE_DISPATCH_KEY_RECORD_H_
#define COTUNE_CORE_DISPATCH_KEY_RECORD_H_

#include <string>

#include "core/dispatch_table.h"
#include "core/dispatch_table.pb.h"
#include "core/status.h"

namespace cotune {

void WriteKey(const DispatchKey& key, proto::DispatchRowRecord& record);

// kDatabase for a value that is not known; `where` is the row.
Result<DispatchKey> ReadKey(const proto::DispatchRowRecord& record, const std::string& where);

}  // namespace cotune

#endif  // COTUNE_CORE_DISPATCH_KEY_RECORD_H_
