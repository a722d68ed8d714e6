// The word that each rank gives the others in every phase of a meeting.
#ifndef COTUNE_PLUGINS_NCCL_ANNOUNCEMENT_H_
#define COTUNE_PLUGINS_NCCL_ANNOUNCEMENT_H_

#include <cstdint>

#include "plugins/nccl/nccl_abi.h"

namespace cotune::nccl {

struct Announcement {
  int32_t nccl_version = 0;
  bool compares_calls = false;
  NcclUniqueId id{};  // that of rank 0, in the first phase
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_ANNOUNCEMENT_H_
