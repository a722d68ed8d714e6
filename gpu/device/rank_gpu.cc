#include "gpu/device/rank_gpu.h"

#include <algorithm>

#include "fmt/format.h"

namespace cotune::gpu {

Result<int32_t> OrdinalOfRank(int local_rank, int visible_gpus, std::optional<int32_t> current,
                              bool may_share) {
  if (current) return *current;
  if (local_rank < visible_gpus) return local_rank;
  if (visible_gpus == 1) return 0;
  if (may_share && visible_gpus > 0) return local_rank % visible_gpus;
  return Fail(ErrorCode::kEnvironment,
              fmt::format("local rank {} has no GPU: its process sees {} of them", local_rank,
                          visible_gpus),
              "", "CUDA_VISIBLE_DEVICES shows too few",
              "show every process all GPUs, or each its own");
}

Status CheckOneRankEach(std::span<const std::string> uuids, std::span<const int> job_ranks) {
  for (auto it = uuids.begin(); it != uuids.end(); ++it) {
    const auto other = std::find(uuids.begin(), it, *it);
    if (other == it || it->empty()) continue;
    const int first = job_ranks[static_cast<size_t>(other - uuids.begin())];
    const int second = job_ranks[static_cast<size_t>(it - uuids.begin())];
    return Fail(ErrorCode::kEnvironment,
                fmt::format("ranks {} and {} have the same GPU, {}", first, second, *it), "",
                "CUDA_VISIBLE_DEVICES shows both the same one, or both have made the same one "
                "current",
                "give every rank a GPU of its own: torch.cuda.set_device(local_rank), "
                "cudaSetDevice, or what the launcher has for it",
                {std::min(first, second), std::max(first, second)});
  }
  return {};
}

}  // namespace cotune::gpu
