// The calls of programs that run without Python, and how many of them there were.
#ifndef COTUNE_INTEGRATION_TORCH_ADMITTED_CALLS_H_
#define COTUNE_INTEGRATION_TORCH_ADMITTED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cotune::torch_operators {

// The numbers of calls of one group, by number of the counter. One thread at a time.
class CallCounters {
 public:
  // Adds calls to a counter, which begins with 0. Returns the sum.
  uint64_t Add(uint32_t counter, uint64_t calls);

  // Returns true if one call can be added to each of these counters, one after the other, while
  // none of them has reached the limit. A counter may occur several times.
  bool HasRoom(std::span<const uint32_t> counters, uint64_t limit) const;

 private:
  uint64_t Calls(uint32_t counter) const;

  std::vector<uint64_t> calls_;
};

// Calls of one program whose inputs together have first_elements to last_elements elements.
struct AdmittedCalls {
  uint64_t first_elements = 0;
  uint64_t last_elements = 0;
  std::vector<uint32_t> counters;  // each call adds one to each of them
  uint64_t limit = 0;              // a call that finds a counter there goes through Python
};

// All admitted calls of one program. One thread at a time.
class AdmittedRanges {
 public:
  // Replaces the ranges that this one overlaps. Forgets all others beyond a number of
  // ranges that no model has: their next calls go through Python, which admits them again.
  void Admit(AdmittedCalls calls);
  // The range of a call with so many elements; nullptr if it is not admitted. Valid until the next
  // call of Admit or DropCounted.
  const AdmittedCalls* Find(uint64_t elements) const;
  // Forgets the ranges that have counters.
  void DropCounted();

 private:
  std::map<uint64_t, AdmittedCalls> ranges_;  // by first_elements
};

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_ADMITTED_CALLS_H_
