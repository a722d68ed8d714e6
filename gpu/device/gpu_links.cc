#include "gpu/device/gpu_links.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/backend/connections.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "gpu/driver/cuda_driver.h"
#include "gpu/driver/nvml.h"

namespace cotune::gpu {
namespace {

// Answers for one GPU of this process. Without a driver it knows nothing.
class Links {
 public:
  explicit Links(int32_t ordinal) : driver_(CudaDriver::Open()), ordinal_(ordinal) {
    int gpus = 0;
    if (!driver_ || (*driver_)->DeviceGetCount(&gpus) != kCuSuccess) return;
    for (int each = 0; each < gpus; ++each) uuids_.push_back(Uuid(*driver_, each));
  }

  std::string own_uuid() const {
    const auto own = static_cast<size_t>(ordinal_);
    return ordinal_ >= 0 && own < uuids_.size() ? uuids_[own] : "";
  }

  // "": not known.
  std::string TextTo(const std::string& uuid) {
    if (uuid.empty() || own_uuid().empty()) return "";
    if (uuid == own_uuid()) return "one GPU";
    const auto visible = std::find(uuids_.begin(), uuids_.end(), uuid);
    if (visible == uuids_.end()) return TextByNvml(uuid);
    int rank = 0;
    const CuResult code = (*driver_)->DeviceGetP2pAttribute(
        &rank, kCuP2pPerformanceRank, ordinal_, static_cast<int>(visible - uuids_.begin()));
    return code == kCuSuccess ? fmt::format("performance rank {}", rank) : "";
  }

 private:
  // NVML sees the GPUs of the host that CUDA_VISIBLE_DEVICES hides from this process.
  std::string TextByNvml(const std::string& uuid) {
    if (!nvml_) nvml_ = Nvml::Open();
    if (!*nvml_) return "";
    void* const own = (*nvml_)->HandleOfUuid(own_uuid());
    void* const other = (*nvml_)->HandleOfUuid(uuid);
    if (own == nullptr || other == nullptr) return "";
    const std::optional<bool> joined = (*nvml_)->JoinedByNvlink(own, other);
    if (!joined) return "";
    return *joined ? "NVLink" : "no NVLink";
  }

  DriverResult<CudaDriver> driver_;
  const int32_t ordinal_;
  std::vector<std::string> uuids_;  // the GPUs that this process sees, by ordinal
  std::optional<DriverResult<Nvml>> nvml_;
};

// One text of every rank, by rank.
Result<std::vector<std::vector<std::string>>> Exchange(RankExchange& exchange, const char* step,
                                                       std::vector<std::string> texts,
                                                       int64_t deadline_ns) {
  StepRecord<GroupOfRank> record;
  record.message.connections = std::move(texts);
  auto all = ExchangeRecords(exchange, step, record, 0, deadline_ns);
  if (!all) return Propagate(all);
  std::vector<std::vector<std::string>> of_ranks;
  for (auto& each : all->records) of_ranks.push_back(std::move(each.message.connections));
  return of_ranks;
}

}  // namespace

Result<std::string> LinksOfRanks(int32_t ordinal, RankExchange& exchange, int64_t deadline_ns) {
  if (exchange.world_size() == 1) return std::string();
  Links links(ordinal);
  const auto uuids = Exchange(exchange, "uuids of GPUs", {links.own_uuid()}, deadline_ns);
  if (!uuids) return Propagate(uuids);
  std::vector<std::string> texts;
  for (const std::vector<std::string>& uuid : *uuids) {
    texts.push_back(uuid.empty() ? "" : links.TextTo(uuid.front()));
  }
  const auto of_ranks = Exchange(exchange, "links of GPUs", std::move(texts), deadline_ns);
  if (!of_ranks) return Propagate(of_ranks);
  return ConnectionsText(*of_ranks);
}

}  // namespace cotune::gpu
