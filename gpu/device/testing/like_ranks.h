// Ranks that all say what rank 0 says, for tests of one process.
#ifndef COTUNE_GPU_DEVICE_TESTING_LIKE_RANKS_H_
#define COTUNE_GPU_DEVICE_TESTING_LIKE_RANKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"

namespace cotune::gpu {

class LikeRanks final : public RankExchange {
 public:
  explicit LikeRanks(int world_size) : world_size_(world_size) {}
  int rank() const override { return 0; }
  int world_size() const override { return world_size_; }
  int job_rank(int rank) const override { return rank; }
  Result<StepResult> Step(std::string_view, std::string_view record, int64_t, int64_t) override {
    StepResult result;
    result.records.assign(static_cast<size_t>(world_size_), std::string(record));
    return result;
  }
  Result<PreSyncResult> PreSync(const AgreedFields&, int64_t, int64_t) override { return No(); }
  Result<AgreementOutcome> Agree(std::string_view, const Accept&, int64_t) override { return No(); }
  Result<std::string> Broadcast(std::string_view, int64_t) override { return No(); }
  Result<std::unique_ptr<RankExchange>> Subgroup(std::string_view, std::span<const int>,
                                                 int64_t) override {
    return No();
  }
  void GiveUp(const Error&) override {}
  Status StorePut(std::string_view, std::string_view) override { return No(); }
  Result<std::string> StoreGet(std::string_view, int64_t) override { return No(); }
  Status StoreDelete(std::string_view) override { return No(); }

 private:
  static tl::unexpected<Error> No() { return Fail(ErrorCode::kInternal, "not used"); }

  const int world_size_;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_TESTING_LIKE_RANKS_H_
