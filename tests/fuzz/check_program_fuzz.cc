// Feeds the bytes of the ABI's structs to the check that backends trust: no program may make it
// read beyond its arrays, and all indexes of one that it takes are in range.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "plugins/sdk/program.h"

namespace {

// Takes structs from the front of the input; what is missing at its end is zero.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = std::min(sizeof(T), size_);
    std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }
  // An index, which may be negative.
  int32_t TakeSmall() { return int32_t{Take<uint8_t>()} - 128; }

 private:
  const uint8_t* data_;
  size_t size_;
};

void MakePlausible(cotune_program_t& program, std::vector<cotune_value_t>& values,
                   std::vector<cotune_node_t>& nodes) {
  program.struct_size = sizeof(program);
  program.flags = 0;
  program.memory_kind = COTUNE_MEMORY_HOST;
  program.world_size = program.ranks_per_node = 1 + (program.world_size & 3);
  for (cotune_value_t& value : values) {
    value.struct_size = sizeof(value);
    value.flags = 0;
    value.dtype = {COTUNE_DTYPE_FLOAT, static_cast<uint8_t>(value.dtype.bits % 2 ? 32 : 16), 1};
    value.rows_kind = 1 + value.rows_kind % 3;
    value.rows = value.rows_kind == COTUNE_ROWS_ONE ? 1 : value.rows % 4;
    value.columns = 1 + value.columns % 2;
  }
  for (cotune_node_t& node : nodes) {
    node.struct_size = sizeof(node);
    node.kind %= 40;
    node.operand_count %= 4;
    for (int32_t& operand : node.operands) operand = static_cast<int8_t>(operand) % 8;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  // What nearly every program has right, so that most inputs come further than the first check.
  const bool is_plausible = input.Take<uint8_t>() % 8 != 0;
  auto program = input.Take<cotune_program_t>();
  program.input_count %= 8;
  program.node_count %= 16;
  program.output_count %= 8;
  std::vector<cotune_value_t> values(program.input_count + program.node_count);
  std::vector<cotune_node_t> nodes(program.node_count);
  std::vector<int32_t> outputs(program.output_count);
  std::vector<int32_t> into(program.output_count);
  for (auto& value : values) value = input.Take<cotune_value_t>();
  for (auto& node : nodes) node = input.Take<cotune_node_t>();
  if (is_plausible) MakePlausible(program, values, nodes);
  for (auto& output : outputs) output = input.TakeSmall();
  for (auto& each : into) each = input.TakeSmall();
  program.values = values.data();
  program.value_stride = sizeof(cotune_value_t);
  program.nodes = nodes.data();
  program.node_stride = sizeof(cotune_node_t);
  program.outputs = outputs.data();
  program.output_into = into.data();
  program.text = nullptr;
  const auto checked =
      cotune::sdk::CheckProgram(program, {.memory_kind = COTUNE_MEMORY_HOST, .ranks_max = 64});
  if (!checked) return 0;
  for (size_t i = 0; i < checked->nodes.size(); ++i) {
    for (int j = 0; j < checked->nodes[i].operand_count; ++j) {
      const auto value = static_cast<int32_t>(checked->input_count + static_cast<int>(i));
      if (checked->nodes[i].operands[static_cast<size_t>(j)] >= value) std::abort();
    }
  }
  return 0;
}
