#include "plugins/cuda/group/kernel_failure.h"

#include <fmt/format.h>

#include <string>

#include "plugins/cuda/group/call_record.h"
#include "plugins/sdk/call_text.h"

namespace cotune::cuda {
namespace {

using sdk::Failure;

// Peers write into the record: a number may be no rank.
std::string NameOf(int named, int rank, int world_size) {
  if (named < 0 || named >= world_size) return "a peer";
  return fmt::format("group rank {}{}", named, named == rank ? " (this rank)" : "");
}

Failure Late(const FailureRecord& record, int rank, int world_size) {
  const int waited_for = PoisonPeer(record.poison);
  const int reporter = PoisonReporter(record.poison);
  const int culprit = waited_for < world_size ? waited_for : -1;
  const std::string peer = NameOf(waited_for, rank, world_size);
  if (reporter == rank) {
    return {COTUNE_PEER_FAILED, 0, culprit,
            fmt::format("group rank {}'s kernel waited for {} until the deadline (launch {} of the "
                        "group, step {}, block {}): it died, stopped, or did not make this call",
                        rank, peer, record.number, record.step, record.block)};
  }
  return {COTUNE_PEER_FAILED, 0, culprit,
          fmt::format("{}'s kernel waited for {} until its deadline and ended the group for all "
                      "ranks: {} died, stopped, or came too late",
                      NameOf(reporter, rank, world_size), peer, peer)};
}

Failure OtherCall(const FailureRecord& record, int rank, int world_size,
                  const ChoiceLimits& limits) {
  if (record.other_call.word[1] == record.own_call.word[1]) {
    // A rank that left before it had told this one of its call.
    const int culprit = PoisonPeer(record.poison);
    return {
        COTUNE_PEER_FAILED, 0, culprit < world_size && culprit != rank ? culprit : -1,
        fmt::format("{} and {} make different calls (launch {} of the group), where {} called "
                    "{}; all ranks of a group make the same calls in the same order, by choices "
                    "that they agreed on",
                    NameOf(PoisonReporter(record.poison), rank, world_size),
                    NameOf(culprit, rank, world_size), record.number,
                    NameOf(rank, rank, world_size), CallText(record.own_call, world_size, limits))};
  }
  const bool is_known = record.other >= 0 && record.other < world_size && record.other != rank;
  const std::string own_call = CallText(record.own_call, world_size, limits);
  std::string peer_call = CallText(record.other_call, world_size, limits);
  // Programs and choices are compared by a digest, which has no text.
  if (peer_call == own_call && own_call.ends_with(" in a program")) {
    peer_call += " that differs, or by another choice,";
  }
  return {COTUNE_PEER_FAILED, 0, is_known ? record.other : -1,
          sdk::DifferentCallsText({.peer = NameOf(record.other, rank, world_size),
                                   .peer_call = peer_call,
                                   .self = NameOf(rank, rank, world_size),
                                   .own_call = own_call,
                                   .launch = record.number})};
}

}  // namespace

Failure FailureOf(const FailureRecord& record, int rank, int world_size,
                  const ChoiceLimits& limits) {
  const int reporter = PoisonReporter(record.poison);
  switch (PoisonKind(record.poison)) {
    case kTimeout:
      return Late(record, rank, world_size);
    case kMismatch:
      return OtherCall(record, rank, world_size, limits);
    case kAborted:
      return {COTUNE_ABORTED, 0, -1,
              fmt::format("{} aborted the group", NameOf(reporter, rank, world_size))};
    default:
      return {
          COTUNE_INTERNAL, 0, -1,
          fmt::format("{} found data of a later step in its scratch (step {}, block {}); please "
                      "report this",
                      NameOf(reporter, rank, world_size), record.step, record.block)};
  }
}

}  // namespace cotune::cuda
