#include "plugins/cuda/choices/family_rules.h"

#include <fmt/format.h>

#include <cstdint>

namespace cotune::cuda {
namespace {

using sdk::ElementType;
using sdk::Problem;
using sdk::ProblemBytes;

bool HasSpareBits(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBf16;
}

std::string NotBelow(uint64_t bytes, const char* cost) {
  return fmt::format("{}; not offered below {} bytes", cost, bytes);
}

std::string NotAbove(uint64_t bytes, const char* cost) {
  return fmt::format("{}; not offered above {} bytes", cost, bytes);
}

}  // namespace

std::string NeedsSpareBits(const Problem& problem) {
  if (!HasSpareBits(problem.type)) {
    return "its elements use every bit pattern, none is left to say that data is missing";
  }
  if (sdk::Reduces(problem)) return "";
  return "one NaN would arrive as another: data that is only moved must stay as it is";
}

std::string NeedsNoSpareBits(const Problem& problem) {
  if (!HasSpareBits(problem.type) || !sdk::Reduces(problem)) return "";
  return "its elements have a bit pattern to spare: \"lamport\" needs no escape";
}

std::string NeedsFewBytesForOneShot(const Problem& problem) {
  constexpr uint64_t kBytesMax = 8 << 20;
  if (ProblemBytes(problem) <= kBytesMax) return "";
  return NotAbove(kBytesMax, "every rank gets all data of all");
}

std::string NeedsFewBytesForOneSender(const Problem& problem) {
  constexpr uint64_t kBytesMax = 1 << 20;
  if (problem.world_size == 2 || ProblemBytes(problem) <= kBytesMax) return "";
  return NotAbove(kBytesMax, "the root sends all data to each peer");
}

std::string NeedsBytesForTwoShot(const Problem& problem) {
  constexpr uint64_t kBytesMin = 16 << 10;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "two exchanges cost more than one");
}

std::string NeedsBytesForBatches(const Problem& problem) {
  constexpr uint64_t kBytesMin = 4 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "a thread without much data gains nothing by waiting for all of it");
}

std::string NeedsBytesForFlags(const Problem& problem) {
  constexpr uint64_t kBytesMin = 1 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "its flags cost time of their own");
}

std::string NeedsBytesForBarriers(const Problem& problem) {
  constexpr uint64_t kBytesMin = 1 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "its barriers cost time of their own");
}

// When every GPU reaches every other directly, two exchanges are faster than many hops below these
// sizes, and faster than a tree above them.
std::string NeedsBytesForRing(const Problem& problem) {
  constexpr uint64_t kBytesMin = 8 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "data takes a hop after the other");
}

std::string NeedsBytesForTree(const Problem& problem) {
  constexpr uint64_t kBytesMin = 512 << 10;
  constexpr uint64_t kBytesMax = 32 << 20;
  const uint64_t bytes = ProblemBytes(problem);
  if (bytes >= kBytesMin && bytes <= kBytesMax) return "";
  return fmt::format("others are faster for less or more; not offered but from {} to {} bytes",
                     kBytesMin, kBytesMax);
}

// Below this size copies take less time than their start.
std::string NeedsBytesForCopies(const Problem& problem) {
  constexpr uint64_t kBytesMin = 1 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "its copies cost time of their own");
}

// And below this one segments take longer than the copies gain.
std::string NeedsBytesForSegments(const Problem& problem) {
  constexpr uint64_t kBytesMin = 32 << 20;
  if (ProblemBytes(problem) >= kBytesMin) return "";
  return NotBelow(kBytesMin, "its copies cost time of their own");
}

std::string NeedsTwoRanks(const Problem& problem) {
  return problem.world_size == 2 ? "" : "more ranks than two send less in two exchanges";
}

std::string NeedsThreeRanksToPassOn(const Problem& problem) {
  return problem.world_size == 2 ? "of two ranks nobody is left to pass data on to" : "";
}

std::string NeedsThreeRanksForTree(const Problem& problem) {
  return problem.world_size == 2 ? "a tree of two ranks is a ring" : "";
}

std::string NeedsRegisteredBuffers(const Problem& problem) {
  return problem.is_symmetric ? "" : "it works on buffers that are registered on all ranks";
}

std::string NeedsTwoBuffers(const Problem& problem) {
  if (!problem.in_place) return "";
  return "in place, data that a peer still has to send would be overwritten";
}

}  // namespace cotune::cuda
