// RankExchange over a RankLink: checks arguments, makes frames, reads answers.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "sync/exchange/rank_link.h"
#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

Status CheckSize(const char* what, uint64_t bytes, uint64_t bytes_max, const std::string& where) {
  if (bytes <= bytes_max) return {};
  return Fail(ErrorCode::kUsage,
              fmt::format("{} has {} bytes, at most {} are allowed", what, bytes, bytes_max),
              where);
}

class ChannelExchange final : public RankExchange {
 public:
  // `ranks`: ranks in the job of the channel's members; `rank` is this rank's position among them.
  ChannelExchange(std::shared_ptr<RankLink> link, std::string channel, std::vector<int> ranks,
                  int rank)
      : link_(std::move(link)),
        channel_(std::move(channel)),
        ranks_(std::move(ranks)),
        rank_(rank) {}
  ChannelExchange(const ChannelExchange&) = delete;
  ChannelExchange& operator=(const ChannelExchange&) = delete;
  ~ChannelExchange() override { link_->Leave(channel_); }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(ranks_.size()); }
  int job_rank(int rank) const override { return ranks_[static_cast<size_t>(rank)]; }

  Result<StepResult> Step(std::string_view step, std::string_view record, int64_t start_delay_ns,
                          int64_t deadline_ns) override;
  Result<PreSyncResult> PreSync(const AgreedFields& fields, int64_t window_ns,
                                int64_t deadline_ns) override;
  Result<AgreementOutcome> Agree(std::string_view proposal, const Accept& accept,
                                 int64_t deadline_ns) override;
  Result<std::string> Broadcast(std::string_view bytes, int64_t deadline_ns) override;
  Result<std::unique_ptr<RankExchange>> Subgroup(std::string_view name, std::span<const int> ranks,
                                                 int64_t deadline_ns) override;
  void GiveUp(const Error& error) override { link_->GiveUp(error); }
  Status StorePut(std::string_view key, std::string_view value) override;
  Result<std::string> StoreGet(std::string_view key, int64_t deadline_ns) override;
  Status StoreDelete(std::string_view key) override;

 private:
  wire::Arrive MakeArrive(wire::CallKind kind) const;
  Result<FramePtr> Store(wire::StoreOperation operation, std::string_view key,
                         std::string_view value, int64_t deadline_ns);

  std::shared_ptr<RankLink> link_;
  std::string channel_;
  std::vector<int> ranks_;
  int rank_;
};

wire::Arrive ChannelExchange::MakeArrive(wire::CallKind kind) const {
  wire::Arrive arrive;
  arrive.set_channel(channel_);
  arrive.set_kind(kind);
  return arrive;
}

Result<StepResult> ChannelExchange::Step(std::string_view step, std::string_view record,
                                         int64_t start_delay_ns, int64_t deadline_ns) {
  const std::string where = CallText(wire::CALL_STEP, step, channel_);
  COTUNE_RETURN_IF_ERROR(CheckSize("the name of a step", step.size(), kStepNameBytesMax, where));
  COTUNE_RETURN_IF_ERROR(CheckSize("a record", record.size(), kRecordBytesMax, where));
  if (start_delay_ns < 0) {
    return Fail(ErrorCode::kUsage,
                fmt::format("a start delay of {} ns is negative", start_delay_ns), where);
  }
  wire::Arrive arrive = MakeArrive(wire::CALL_STEP);
  arrive.set_name(std::string(step));
  arrive.set_payload(std::string(record));
  arrive.set_start_delay_ns(start_delay_ns);
  COTUNE_TRY(const FramePtr frame, link_->Call(CallAsked{0, std::move(arrive), deadline_ns}));
  const wire::Release& release = frame->release();
  StepResult result;
  result.records.assign(release.records().begin(), release.records().end());
  result.elapsed_ns = release.elapsed_duration_ns();
  if (release.start_left_ns() > 0) {
    result.start_elapsed_ns = AddNs(result.elapsed_ns, release.start_left_ns());
  }
  result.job_begin_ns = link_->JobBeginNs();
  if (result.records.size() != ranks_.size()) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{} records came for {} ranks", result.records.size(), ranks_.size()),
                where);
  }
  return result;
}

Result<PreSyncResult> ChannelExchange::PreSync(const AgreedFields& fields, int64_t window_ns,
                                               int64_t deadline_ns) {
  wire::Arrive arrive = MakeArrive(wire::CALL_PRE_SYNC);
  arrive.set_window_duration_ns(window_ns);
  uint64_t bytes = 0;
  for (const auto& [name, value] : fields) {
    wire::Field* field = arrive.add_fields();
    field->set_name(name);
    field->set_value(value);
    bytes += name.size() + value.size() + 8;  // 8: the most that the encoding adds to one field
  }
  const std::string where = CallText(wire::CALL_PRE_SYNC, "", channel_);
  COTUNE_RETURN_IF_ERROR(CheckSize("the list of fields", bytes, kFieldsBytesMax, where));
  const int64_t began_ns = link_->clock().now_ns();
  COTUNE_TRY(const FramePtr frame, link_->Call(CallAsked{0, std::move(arrive), deadline_ns}));
  const wire::Release& release = frame->release();
  if (release.has_disagreement()) {
    return tl::make_unexpected(ErrorFromFailure(release.disagreement()));
  }
  PreSyncResult result;
  result.met = release.met();
  result.late_ranks.assign(release.late_ranks().begin(), release.late_ranks().end());
  result.waited_ns = link_->clock().now_ns() - began_ns;
  return result;
}

Result<AgreementOutcome> ChannelExchange::Agree(std::string_view proposal, const Accept& accept,
                                                int64_t deadline_ns) {
  const std::string where = CallText(wire::CALL_AGREE, "", channel_);
  COTUNE_RETURN_IF_ERROR(CheckSize("a proposal", proposal.size(), kProposalBytesMax, where));
  wire::Arrive arrive = MakeArrive(wire::CALL_AGREE);
  if (rank_ == 0) arrive.set_payload(std::string(proposal));
  COTUNE_TRY(const FramePtr prepared, link_->Call(CallAsked{0, std::move(arrive), deadline_ns}));
  const bool yes = accept(prepared->prepare().proposal());
  COTUNE_TRY(const FramePtr decided, link_->Call(VoteAsked{0, channel_, yes}));
  return decided->decision().ruling() == wire::RULING_GO ? AgreementOutcome::kCommitted
                                                         : AgreementOutcome::kDeclined;
}

Result<std::string> ChannelExchange::Broadcast(std::string_view bytes, int64_t deadline_ns) {
  const std::string where = CallText(wire::CALL_BROADCAST, "", channel_);
  COTUNE_RETURN_IF_ERROR(CheckSize("a broadcast", bytes.size(), kProposalBytesMax, where));
  wire::Arrive arrive = MakeArrive(wire::CALL_BROADCAST);
  if (rank_ == 0) arrive.set_payload(std::string(bytes));
  COTUNE_TRY(const FramePtr frame, link_->Call(CallAsked{0, std::move(arrive), deadline_ns}));
  return frame->release().payload();
}

Result<std::unique_ptr<RankExchange>> ChannelExchange::Subgroup(std::string_view name,
                                                                std::span<const int> ranks,
                                                                int64_t deadline_ns) {
  const std::string where = "subgroup " + Quoted(name);
  if (name.empty() || name.size() > kNameBytesMax) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the name of a subgroup has {} characters, 1 to {} "
                            "are allowed",
                            name.size(), kNameBytesMax),
                where);
  }
  std::vector<int> job_ranks;
  int position = -1;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size()) {
      return Fail(ErrorCode::kUsage,
                  fmt::format("rank {} is not in this exchange of {} ranks", rank, world_size()),
                  where);
    }
    if (rank == rank_) position = static_cast<int>(job_ranks.size());
    job_ranks.push_back(ranks_[static_cast<size_t>(rank)]);
  }
  if (std::set<int>(job_ranks.begin(), job_ranks.end()).size() != job_ranks.size()) {
    return Fail(ErrorCode::kUsage, "a rank is listed twice", where);
  }
  if (position < 0) {
    return Fail(ErrorCode::kUsage, fmt::format("rank {} opens a group that it is not in", rank_),
                where, "", "call Subgroup only on the group's ranks");
  }
  wire::Arrive arrive = MakeArrive(wire::CALL_OPEN);
  arrive.set_channel(std::string(name));
  for (const int rank : job_ranks) arrive.add_ranks(rank);
  COTUNE_RETURN_IF_ERROR(link_->Call(CallAsked{0, std::move(arrive), deadline_ns}));
  return std::make_unique<ChannelExchange>(link_, std::string(name), std::move(job_ranks),
                                           position);
}

Result<FramePtr> ChannelExchange::Store(wire::StoreOperation operation, std::string_view key,
                                        std::string_view value, int64_t deadline_ns) {
  const std::string where = "store key " + Quoted(key);
  if (key.empty() || key.size() > kNameBytesMax) {
    return Fail(
        ErrorCode::kUsage,
        fmt::format("a key has {} characters, 1 to {} are allowed", key.size(), kNameBytesMax),
        where);
  }
  COTUNE_RETURN_IF_ERROR(CheckSize("a value", value.size(), kRecordBytesMax, where));
  wire::StoreRequest request;
  request.set_operation(operation);
  request.set_key(std::string(key));
  request.set_value(std::string(value));
  return link_->Call(StoreAsked{0, std::move(request), deadline_ns});
}

Status ChannelExchange::StorePut(std::string_view key, std::string_view value) {
  return Store(wire::STORE_PUT, key, value, 0).map([](const FramePtr&) {});
}

Result<std::string> ChannelExchange::StoreGet(std::string_view key, int64_t deadline_ns) {
  return Store(wire::STORE_GET, key, "", deadline_ns).map([](const FramePtr& frame) {
    return frame->store_reply().value();
  });
}

Status ChannelExchange::StoreDelete(std::string_view key) {
  return Store(wire::STORE_DELETE, key, "", 0).map([](const FramePtr&) {});
}

}  // namespace

std::unique_ptr<RankExchange> MakeJobExchange(std::shared_ptr<RankLink> link, int rank,
                                              int world_size) {
  std::vector<int> ranks;
  for (int r = 0; r < world_size; ++r) ranks.push_back(r);
  return std::make_unique<ChannelExchange>(std::move(link), "", std::move(ranks), rank);
}

}  // namespace cotune::sync
