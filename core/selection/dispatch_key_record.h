// A dispatch key and lists of next best choices in the record of a row.
#ifndef COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_
#define COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_

#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/dispatch_table.pb.h"

namespace cotune {

void WriteKey(const DispatchKey& key, proto::DispatchRowRecord& record);

// kDatabase for a value that is not known; `where` is the row.
Result<DispatchKey> ReadKey(const proto::DispatchRowRecord& record, const std::string& where);

// Adds the list of one size. position_of gives the position of a choice in the record's choices.
void WriteNextBest(const NextBest& next_best,
                   const std::function<uint32_t(const ChoiceId&)>& position_of,
                   proto::DispatchRowRecord& record);

// The lists of all sizes, in their order. kDatabase if the fields contradict each other.
Result<std::vector<NextBest>> ReadNextBest(const proto::DispatchRowRecord& record,
                                           const std::vector<ChoiceId>& choices,
                                           const std::string& where);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_DISPATCH_KEY_RECORD_H_
