#include "plugins/ucx/testing/inner_rank.h"

#include <utility>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/choice_list.h"

namespace cotune::ucx {
namespace {

using backend_test::AllRanks;
using backend_test::MonotonicNs;

}  // namespace

InnerRank::InnerRank(const cotune_host_t& host, int rank, int world_size)
    : world_size_(world_size) {
  Join(host, rank);
}

InnerRank::~InnerRank() {
  if (!is_running_) return;
  operation_->Cancel();
  group_->EndCall();
}

void InnerRank::Join(const cotune_host_t& host, int rank) {
  const std::vector<int32_t> members = AllRanks(world_size_);
  cotune_group_params_t params{};
  params.struct_size = sizeof(params);
  params.name = "g";
  params.rank = rank;
  params.world_size = world_size_;
  params.job_ranks = members.data();
  params.device = -1;
  params.deadline_ns = MonotonicNs() + kLongNs;
  auto context = Context::Open(sdk::Settings(host, "ucx"));
  if (!context) {
    wrong_ = context.error().message;
    return;
  }
  context_ = std::move(*context);
  auto group = Group::Join(host, params, context_);
  if (group) {
    group_ = std::move(*group);
  } else {
    wrong_ = group.error().message;
  }
}

void InnerRank::Begin(std::string_view choice, int root, std::vector<uint8_t>& data,
                      int64_t timeout_ns) {
  Problem problem;
  problem.collective = Collective::kBroadcast;
  problem.type = sdk::ElementType::kU8;
  problem.count = data.size();
  problem.world_size = world_size_;
  problem.root = root;
  problem.in_place = true;
  Schedule schedule = ScheduleOf(problem, choice, group_->rank()).value();
  operation_ = std::make_unique<Operation>(*group_, std::move(schedule), choice);
  group_->BeginCall(operation_->call(), operation_.get());
  operation_->Start(data.data(), data.data(), MonotonicNs() + timeout_ns);
  is_running_ = true;
}

Advance InnerRank::Poll() { return EndIfDone(operation_->Run(0)); }

Advance InnerRank::Finish() { return EndIfDone(operation_->Run(MonotonicNs() + kLongNs)); }

std::string InnerRank::FinishText() {
  const Advance advance = Finish();
  if (advance == Advance::kComplete) return "";
  return advance == Advance::kFailed ? group_->Health()->message : "in progress";
}

Advance InnerRank::EndIfDone(Advance advance) {
  is_running_ = advance == Advance::kInProgress;
  if (!is_running_) group_->EndCall();
  return advance;
}

}  // namespace cotune::ucx
