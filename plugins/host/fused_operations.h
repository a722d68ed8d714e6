// The local operations of a region, which run on pieces of a collective's operand and value while
// these are in a cache.
#ifndef COTUNE_PLUGINS_HOST_FUSED_OPERATIONS_H_
#define COTUNE_PLUGINS_HOST_FUSED_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/host/element_program.h"
#include "plugins/host/region_cut.h"
#include "plugins/host/schedule.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// The demands of the operations around a collective on the schedules that run it.
struct RegionNeeds {
  bool has_before = false;
  bool has_after = false;
  uint64_t unit_elements = 0;  // see SlotSize
  bool overwrites_operand = false;
  bool is_bucket = false;

  bool is_region() const { return has_before || has_after; }
  // No other rank runs the collective of a bucket by itself.
  bool may_fit_any_region() const { return is_region() && !is_bucket; }
};

// Returns the demands of a region that CutRegion has cut. COTUNE_UNSUPPORTED with a reason for an
// operation that does not compute with its dtype, and for one of a bucket that depends on a whole
// row. Pure.
Result<RegionNeeds> NeedsOf(const RegionCut& cut);

// The operations of one region at one size. The plan of the region owns it. All planning and
// allocation happens in Prepare, and nothing fails afterwards. One thread and one call at a time: a
// call is Begin, then any number of ComputeOperand and UseValue, then End.
class FusedOperations {
 public:
  // Fails as NeedsOf.
  static Result<std::unique_ptr<FusedOperations>> Prepare(RegionCut cut);

  // A bucket has both, because its operand and its value are nowhere packed.
  bool has_before() const { return cut_.is_bucket() || members_[0].before; }
  bool has_after() const { return cut_.is_bucket() || members_[0].after; }
  bool overwrites_operand() const {
    return !cut_.is_bucket() && cut_.members[0].overwrites_operand;
  }

  // The operands of the region, which stay in use until End. Reads inputs of one row.
  void Begin(const void* const* inputs, void* const* outputs);
  // The memory that the collective reads if no operation is before it, and the memory of its value
  // if none is after it.
  const void* operand() const { return members_[0].operand; }
  void* value() const { return members_[0].value; }
  // Writes elements [first, first + count) of the collective's operand to `to`: whole units, or up
  // to the end of the operand.
  void ComputeOperand(uint64_t first, uint64_t count, void* to);
  // Runs the operations after the collective on these elements of its value, which lie at `piece`.
  // That is no memory of the region's operands unless none of its outputs is there.
  void UseValue(uint64_t first, uint64_t count, const void* piece);
  // All elements of the value were used. Writes outputs of one row.
  void End();

 private:
  // The operations on one side with the addresses of the call.
  struct Side {
    std::unique_ptr<ElementProgram> program;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    size_t value_input = 0;  // the collective's value among the inputs
  };

  // The operations of one collective, and what takes their place where there are none.
  struct Member {
    std::optional<Side> before;
    std::optional<Side> after;
    const void* operand = nullptr;
    void* value = nullptr;
  };

  explicit FusedOperations(RegionCut cut) : cut_(std::move(cut)) {}
  static Result<std::optional<Side>> PrepareSide(const std::optional<RegionSide>& cut);
  void Run(size_t member, Side& side, uint64_t first, uint64_t count) const;
  // The same as ComputeOperand and UseValue for elements of one collective, counted from its first.
  void ComputeMember(size_t member, uint64_t first, uint64_t count, void* to);
  void UseMember(size_t member, uint64_t first, uint64_t count, const void* piece);
  // The same for a bucket.
  void ComputePacked(uint64_t first, uint64_t count, std::byte* to);
  void UsePacked(uint64_t first, uint64_t count, const std::byte* piece);
  // Calls `body(member, first, count)` for the collectives with elements among these of the packed
  // value, in order, with those that are theirs.
  template <class Body>
  void ForMembers(uint64_t first, uint64_t count, const Body& body) const;

  const RegionCut cut_;
  std::vector<Member> members_;  // one for each of the cut
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_FUSED_OPERATIONS_H_
