// One call of a rank, as the other ranks of its group compare it with their own.
#ifndef COTUNE_PLUGINS_NCCL_CALL_RECORD_H_
#define COTUNE_PLUGINS_NCCL_CALL_RECORD_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// The bytes that ranks exchange. Two records are equal where the calls fit together: a record does
// not say whether a call is in place, because the ranks of a broadcast may differ in that.
struct CallRecord {
  uint64_t count = 0;    // elements, as in the ABI's table
  uint64_t program = 0;  // digest of the program that the call is a step of; 0: none
  uint8_t collective = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;  // 0 where the collective does not reduce
  uint8_t root = 0;       // 0 where the collective has none
  uint8_t is_symmetric = 0;
  uint8_t is_captured = 0;  // the call goes into a CUDA graph
  std::array<char, 98> choice{};

  bool operator==(const CallRecord&) const = default;
};

// Pure. The record of a call that is not captured.
CallRecord RecordOf(const Problem& problem, std::string_view choice);

// "all_reduce of 1024 f32 (sum) by ring?proto=ll". Another process may have written any bytes into
// the record. Pure.
std::string CallText(const CallRecord& record);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_CALL_RECORD_H_
