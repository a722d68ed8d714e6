// The operands that a cell is checked and timed with on this rank: one interface for single
// collectives and programs.
#ifndef COTUNE_CORE_BENCHMARK_CELL_OPERANDS_H_
#define COTUNE_CORE_BENCHMARK_CELL_OPERANDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/base/status.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"

namespace cotune {

class ReferenceResults;

// The state of the operands after a correctness run.
struct OperandCheck {
  uint64_t wrong_elements = 0;  // of what was received or computed
  bool wrote_outside = false;   // guard bytes in front of or behind a buffer changed
  bool changed_send = false;    // a buffer that a call only reads
  // The ValueHash of each of CellOperands::ReplicatedOutputs; empty if something is wrong. A check
  // of several copies gives one hash of their hashes.
  std::vector<uint64_t> replicated_hashes{};

  bool is_right() const { return wrong_elements == 0 && !wrote_outside && !changed_send; }
  // Adds the hashes of another copy, whose results are right.
  void AddHashes(const OperandCheck& copy);
};

// Copies of all operands of a call, and the data in them. Further copies keep timed calls from
// finding in a cache what a program's calls would read from memory. Not thread-safe.
class CellOperands {
 public:
  // Backends whose scratch has two halves find data of the call before the last in it.
  static constexpr uint32_t kDataKinds = 3;

  // symmetric: what the operands are cut from, nullptr for plain ones. reference: the right results
  // of a program that is no single collective; nullptr: they are evaluated here. kEnvironment: no
  // memory.
  static Result<std::unique_ptr<CellOperands>> Allocate(
      Device& device, const Program& program, const Problem& problem, int rank,
      SymmetricRegion* symmetric = nullptr, std::shared_ptr<ReferenceResults> reference = nullptr);
  // Bytes of the device's memory that it takes in all, guards included.
  static uint64_t AllocatedBytes(const Program& program, const Problem& problem,
                                 int32_t copies = 1);
  // The size of a region that is enough for so many copies of a symmetric problem's operands.
  static uint64_t RegionBytes(const Program& program, const Problem& problem, int32_t copies);
  // Bytes of host memory beside those, while differences are counted.
  static uint64_t StagingBytes(const Program& program, const Problem& problem);
  // How many copies timed calls go round over, the first one included, so that each is out of a
  // cache of so many bytes when its turn comes again: the others are twice the cache, as none
  // forgets the oldest exactly. One where a call's buffers are less than an eighth of the cache, as
  // what a program just wrote is still there then, and where they are twice the cache and more, as
  // they drive themselves out. The same on all ranks.
  static int32_t WantedCopies(const Program& program, const Problem& problem, uint64_t cache_bytes);

  // Returns whether a cache of so many bytes holds one copy of the operands until the next call on
  // it. The same on all ranks, since devices say the cache of the largest one of the job.
  static bool FitCache(const Program& program, const Problem& problem, uint64_t cache_bytes);

  virtual ~CellOperands() = default;
  // Returns as many of the wanted copies as take no more than half of what the device has left, or
  // as the symmetric region holds.
  virtual int32_t AffordableCopies(int32_t wanted) const = 0;
  // Until there are so many, with data in them. The same number on all ranks. kEnvironment: no
  // memory.
  virtual Status AddCopies(int32_t copies) = 0;
  virtual int32_t copies() const = 0;
  // Puts the addresses of a copy into the arguments; valid as long as the object.
  virtual void SetAddresses(LaunchArguments& arguments, int32_t copy) const = 0;

  // Poisons what the first so many copies get, fills what they read and restores the guards. The
  // data is of kind salt % kDataKinds: with salts one after the other, what the last two calls left
  // behind is wrong.
  virtual Status Fill(uint32_t salt, int32_t copies) = 0;
  // Fills the first so many copies for timed calls, which compute with the results of earlier ones
  // if they overwrite what they read: such sums over the ranks cancel, so that no result grows
  // until it is infinite. Does nothing if calls overwrite nothing that is reduced.
  virtual Status FillForTiming(int32_t copies) = 0;
  // The outputs that have the same bits on all ranks by dataflow, as messages call them. The same
  // on all ranks.
  virtual std::vector<std::string> ReplicatedOutputs() const = 0;
  // After one call on each of them. The first copy in which something is wrong counts.
  virtual Result<OperandCheck> Check(uint32_t salt, int32_t copies) = 0;
};

// CellOperands::WantedCopies for calls of so many bytes.
int32_t CopiesBeyondCache(uint64_t call_bytes, uint64_t cache_bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CELL_OPERANDS_H_
