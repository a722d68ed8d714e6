// Shares the status of work that only rank 0 does, such as reading a file, with all ranks.
#ifndef COTUNE_INTEGRATION_RANK_ZERO_STATUS_H_
#define COTUNE_INTEGRATION_RANK_ZERO_STATUS_H_

#include <string_view>

#include "integration/job.h"

namespace cotune {

// Collective. Gives rank 0's `own` on every rank, with its code and whole text; kRankLost when a
// rank does not come. `step` names it in such errors. The other ranks pass success, or a mistake of
// their own, which every rank gets then.
Status ShareRankZeroStatus(Job& job, const Status& own, std::string_view step);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_RANK_ZERO_STATUS_H_
