// Regions for tests, as the host gives them to the plugin, and calls of them.
#ifndef COTUNE_PLUGINS_HOST_TESTING_ABI_REGION_H_
#define COTUNE_PLUGINS_HOST_TESTING_ABI_REGION_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "plugins/api/cotune_program_v1.h"

namespace cotune::host {

inline constexpr cotune_dtype_t kAbiF32 = {COTUNE_DTYPE_FLOAT, 32, 1};

// Collects the values of a region. Inputs come first. Values have R rows unless another kind is
// given.
class AbiRegion {
 public:
  AbiRegion(int world_size, uint64_t rows) : world_size_(world_size), rows_(rows) {}

  int Input(uint64_t columns, uint32_t rows_kind = COTUNE_ROWS_ALL, cotune_dtype_t dtype = kAbiF32);
  // The value has as many rows as the operand.
  int Collective(uint32_t collective, int operand, uint32_t reduction = COTUNE_SUM);
  // The value is of the first operand's type; a row reduction has one column.
  int Compute(uint32_t kind, std::initializer_list<int> operands);
  void Return(int value, int into = -1);
  // Refers to this object, which does not change any more.
  cotune_program_t program() const;

 private:
  int AddValue(const cotune_value_t& value);

  int world_size_;
  uint64_t rows_;
  uint32_t inputs_ = 0;
  std::vector<cotune_value_t> values_;
  std::vector<cotune_node_t> nodes_;
  std::vector<int32_t> outputs_;
  std::vector<int32_t> into_;
};

// An all_reduce of an input for each number of columns.
AbiRegion AllReducesOf(const std::vector<uint64_t>& columns, int world_size, uint64_t rows);

// The functions of the extension.
const cotune_program_v1_t& RegionTable(const cotune_backend_t* backend);

struct ListedRegion {
  std::vector<std::string> choices;
  std::vector<std::string> refusals;  // "NAME: REASON", or the reason for the whole region
};
ListedRegion ListRegion(const cotune_backend_t* backend, const AbiRegion& region);
// The same by a backend of its own, with the usual settings.
ListedRegion ListRegion(const AbiRegion& region);

// prepare, launch, progress until the end, destroy.
cotune_status_t RunRegion(const cotune_backend_t* backend, cotune_group_t* group,
                          const AbiRegion& region, const char* choice,
                          const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                          int64_t deadline_ns, cotune_error_t* error);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_ABI_REGION_H_
