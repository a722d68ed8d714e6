#include "plugins/cuda/kernel_failure.h"

#include <fmt/format.h>

#include <string>

#include "plugins/cuda/call_record.h"

namespace cotune::cuda {
namespace {

using border::Failure;

// Peers write into the record: a number may be no rank.
std::string NameOf(int named, int rank, int world_size) {
  if (named < 0 || named >= world_size) return "a peer";
  return fmt::format("group rank {}{}", named, named == rank ? " (this rank)" : "");
}

Failure Late(const FailureRecord& record, int rank, int world_size) {
  const int culprit = record.peer >= 0 && record.peer < world_size ? record.peer : -1;
  const std::string peer = NameOf(record.peer, rank, world_size);
  const std::string place = fmt::format("launch {} of the group, step {}, block {}",
                                        record.reporter_call.word[0], record.step, record.block);
  if (record.reporter == rank) {
    return {COTUNE_PEER_FAILED, 0, culprit,
            fmt::format("group rank {}'s kernel waited for {} until the deadline ({}): it died, "
                        "stopped, or did not make this call",
                        rank, peer, place)};
  }
  return {COTUNE_PEER_FAILED, 0, culprit,
          fmt::format("{}'s kernel waited for {} until its deadline ({}) and ended the group for "
                      "all ranks: {} died, stopped, or came too late",
                      NameOf(record.reporter, rank, world_size), peer, place, peer)};
}

Failure OtherCall(const FailureRecord& record, int rank, int world_size,
                  const ChoiceLimits& limits) {
  const int other = record.peer == rank ? record.reporter : record.peer;
  return {COTUNE_PEER_FAILED, 0, other >= 0 && other < world_size ? other : -1,
          fmt::format(
              "{} called {} where {} called {} (launch {} of the group); all ranks of a "
              "group make the same calls in the same order, by choices that they agreed on",
              NameOf(record.peer, rank, world_size), CallText(record.peer_call, world_size, limits),
              NameOf(record.reporter, rank, world_size),
              CallText(record.reporter_call, world_size, limits), record.reporter_call.word[0])};
}

}  // namespace

Failure FailureOf(const FailureRecord& record, int rank, int world_size,
                  const ChoiceLimits& limits) {
  switch (record.kind) {
    case kTimeout:
      return Late(record, rank, world_size);
    case kMismatch:
      return OtherCall(record, rank, world_size, limits);
    case kAborted:
      return {COTUNE_ABORTED, 0, -1,
              fmt::format("{} aborted the group", NameOf(record.reporter, rank, world_size))};
    default:
      return {
          COTUNE_INTERNAL, 0, -1,
          fmt::format("{} found data of a later step in its scratch (step {}, block {}); please "
                      "report this",
                      NameOf(record.reporter, rank, world_size), record.step, record.block)};
  }
}

}  // namespace cotune::cuda
