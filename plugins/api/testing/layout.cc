#include "plugins/api/testing/layout.h"

#include <cstddef>
#include <cstdint>

#include "fmt/format.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/api/cotune_program_v1.h"

// The names are written down by hand, so that a field that moves shows; layout_test holds that none
// of the header's is missing.
#define STRUCT(type) \
  text += fmt::format("{} size {} align {}\n", #type, sizeof(type), alignof(type));
#define FIELD(type, field)                                                                 \
  text += fmt::format("  {}.{} offset {} size {}\n", #type, #field, offsetof(type, field), \
                      sizeof(type::field));
#define CONSTANT(name) text += fmt::format("{} = {}\n", #name, static_cast<int64_t>(name));

namespace cotune {
namespace {

std::string ProblemLayout() {
  std::string text;
  STRUCT(cotune_error_t)
  FIELD(cotune_error_t, struct_size)
  FIELD(cotune_error_t, native_code)
  FIELD(cotune_error_t, failed_rank)
  FIELD(cotune_error_t, reserved)
  FIELD(cotune_error_t, message)
  STRUCT(cotune_dtype_t)
  FIELD(cotune_dtype_t, code)
  FIELD(cotune_dtype_t, bits)
  FIELD(cotune_dtype_t, lanes)
  STRUCT(cotune_problem_t)
  FIELD(cotune_problem_t, struct_size)
  FIELD(cotune_problem_t, collective)
  FIELD(cotune_problem_t, reduction)
  FIELD(cotune_problem_t, memory_kind)
  FIELD(cotune_problem_t, dtype)
  FIELD(cotune_problem_t, flags)
  FIELD(cotune_problem_t, count)
  FIELD(cotune_problem_t, bytes)
  FIELD(cotune_problem_t, world_size)
  FIELD(cotune_problem_t, ranks_per_node)
  FIELD(cotune_problem_t, root)
  FIELD(cotune_problem_t, reserved)
  FIELD(cotune_problem_t, topology_digest)
  FIELD(cotune_problem_t, program_digest)
  STRUCT(cotune_choice_t)
  FIELD(cotune_choice_t, struct_size)
  FIELD(cotune_choice_t, flags)
  FIELD(cotune_choice_t, status)
  FIELD(cotune_choice_t, reserved)
  FIELD(cotune_choice_t, cost_us)
  FIELD(cotune_choice_t, workspace_bytes)
  FIELD(cotune_choice_t, name)
  FIELD(cotune_choice_t, reason)
  FIELD(cotune_choice_t, numerics)
  return text;
}

std::string RunningLayout() {
  std::string text;
  STRUCT(cotune_stream_t)
  FIELD(cotune_stream_t, kind)
  FIELD(cotune_stream_t, device)
  FIELD(cotune_stream_t, handle)
  STRUCT(cotune_launch_t)
  FIELD(cotune_launch_t, struct_size)
  FIELD(cotune_launch_t, flags)
  FIELD(cotune_launch_t, send)
  FIELD(cotune_launch_t, recv)
  FIELD(cotune_launch_t, stream)
  FIELD(cotune_launch_t, deadline_ns)
  STRUCT(cotune_group_params_t)
  FIELD(cotune_group_params_t, struct_size)
  FIELD(cotune_group_params_t, flags)
  FIELD(cotune_group_params_t, name)
  FIELD(cotune_group_params_t, rank)
  FIELD(cotune_group_params_t, world_size)
  FIELD(cotune_group_params_t, job_ranks)
  FIELD(cotune_group_params_t, device)
  FIELD(cotune_group_params_t, reserved)
  FIELD(cotune_group_params_t, deadline_ns)
  FIELD(cotune_group_params_t, host_of_rank)
  return text;
}

std::string ServicesLayout() {
  std::string text;
  STRUCT(cotune_host_t)
  FIELD(cotune_host_t, struct_size)
  FIELD(cotune_host_t, flags)
  FIELD(cotune_host_t, context)
  FIELD(cotune_host_t, log)
  FIELD(cotune_host_t, now_ns)
  FIELD(cotune_host_t, store_put)
  FIELD(cotune_host_t, store_get)
  FIELD(cotune_host_t, store_delete)
  FIELD(cotune_host_t, setting)
  STRUCT(cotune_backend_api_t)
  FIELD(cotune_backend_api_t, struct_size)
  FIELD(cotune_backend_api_t, abi_minor)
  FIELD(cotune_backend_api_t, build_flags)
  FIELD(cotune_backend_api_t, memory_kinds)
  FIELD(cotune_backend_api_t, name)
  FIELD(cotune_backend_api_t, version)
  FIELD(cotune_backend_api_t, create)
  FIELD(cotune_backend_api_t, destroy)
  FIELD(cotune_backend_api_t, get_extension)
  FIELD(cotune_backend_api_t, list_choices)
  FIELD(cotune_backend_api_t, group_create)
  FIELD(cotune_backend_api_t, group_health)
  FIELD(cotune_backend_api_t, group_abort)
  FIELD(cotune_backend_api_t, group_destroy)
  FIELD(cotune_backend_api_t, prepare)
  FIELD(cotune_backend_api_t, launch)
  FIELD(cotune_backend_api_t, progress)
  FIELD(cotune_backend_api_t, plan_destroy)
  STRUCT(cotune_memory_v1_t)
  FIELD(cotune_memory_v1_t, struct_size)
  FIELD(cotune_memory_v1_t, flags)
  FIELD(cotune_memory_v1_t, memory_register)
  FIELD(cotune_memory_v1_t, memory_unregister)
  STRUCT(cotune_connections_v1_t)
  FIELD(cotune_connections_v1_t, struct_size)
  FIELD(cotune_connections_v1_t, flags)
  FIELD(cotune_connections_v1_t, connection_text)
  STRUCT(cotune_libraries_v1_t)
  FIELD(cotune_libraries_v1_t, struct_size)
  FIELD(cotune_libraries_v1_t, flags)
  FIELD(cotune_libraries_v1_t, libraries_text)
  return text;
}

std::string Constants() {
  std::string text;
  CONSTANT(COTUNE_ABI_MAJOR)
  CONSTANT(COTUNE_ABI_MINOR)
  CONSTANT(COTUNE_OK)
  CONSTANT(COTUNE_IN_PROGRESS)
  CONSTANT(COTUNE_INVALID_ARGUMENT)
  CONSTANT(COTUNE_UNSUPPORTED)
  CONSTANT(COTUNE_OUT_OF_RESOURCES)
  CONSTANT(COTUNE_DEADLINE_EXCEEDED)
  CONSTANT(COTUNE_ABORTED)
  CONSTANT(COTUNE_PEER_FAILED)
  CONSTANT(COTUNE_INTERNAL)
  CONSTANT(COTUNE_ALL_REDUCE)
  CONSTANT(COTUNE_ALL_GATHER)
  CONSTANT(COTUNE_REDUCE_SCATTER)
  CONSTANT(COTUNE_ALL_TO_ALL)
  CONSTANT(COTUNE_BROADCAST)
  CONSTANT(COTUNE_REDUCTION_NONE)
  CONSTANT(COTUNE_SUM)
  CONSTANT(COTUNE_PRODUCT)
  CONSTANT(COTUNE_MIN)
  CONSTANT(COTUNE_MAX)
  CONSTANT(COTUNE_AVERAGE)
  CONSTANT(COTUNE_MEMORY_HOST)
  CONSTANT(COTUNE_MEMORY_CUDA)
  CONSTANT(COTUNE_DTYPE_INT)
  CONSTANT(COTUNE_DTYPE_UINT)
  CONSTANT(COTUNE_DTYPE_FLOAT)
  CONSTANT(COTUNE_DTYPE_BFLOAT)
  CONSTANT(COTUNE_PROBLEM_IN_PLACE)
  CONSTANT(COTUNE_PROBLEM_SYMMETRIC)
  CONSTANT(COTUNE_CHOICE_DEFAULT)
  CONSTANT(COTUNE_CHOICE_CAPTURABLE)
  CONSTANT(COTUNE_CHOICE_REPRODUCIBLE)
  CONSTANT(COTUNE_CHOICE_COLLECTIVE_PREPARE)
  CONSTANT(COTUNE_STREAM_HOST)
  CONSTANT(COTUNE_STREAM_CUDA)
  CONSTANT(COTUNE_BUILD_ASAN)
  CONSTANT(COTUNE_BUILD_TSAN)
  CONSTANT(COTUNE_BUILD_UBSAN)
  return text;
}

std::string ProgramStructs() {
  std::string text;
  STRUCT(cotune_value_t)
  FIELD(cotune_value_t, struct_size)
  FIELD(cotune_value_t, flags)
  FIELD(cotune_value_t, dtype)
  FIELD(cotune_value_t, rows_kind)
  FIELD(cotune_value_t, rows)
  FIELD(cotune_value_t, columns)
  STRUCT(cotune_node_t)
  FIELD(cotune_node_t, struct_size)
  FIELD(cotune_node_t, kind)
  FIELD(cotune_node_t, collective)
  FIELD(cotune_node_t, reduction)
  FIELD(cotune_node_t, root)
  FIELD(cotune_node_t, operand_count)
  FIELD(cotune_node_t, operands)
  FIELD(cotune_node_t, literals)
  FIELD(cotune_node_t, constants)
  STRUCT(cotune_program_t)
  FIELD(cotune_program_t, struct_size)
  FIELD(cotune_program_t, flags)
  FIELD(cotune_program_t, memory_kind)
  FIELD(cotune_program_t, world_size)
  FIELD(cotune_program_t, ranks_per_node)
  FIELD(cotune_program_t, reserved)
  FIELD(cotune_program_t, topology_digest)
  FIELD(cotune_program_t, digest)
  FIELD(cotune_program_t, values)
  FIELD(cotune_program_t, value_stride)
  FIELD(cotune_program_t, input_count)
  FIELD(cotune_program_t, nodes)
  FIELD(cotune_program_t, node_stride)
  FIELD(cotune_program_t, node_count)
  FIELD(cotune_program_t, outputs)
  FIELD(cotune_program_t, output_into)
  FIELD(cotune_program_t, output_count)
  FIELD(cotune_program_t, reserved2)
  FIELD(cotune_program_t, text)
  STRUCT(cotune_program_launch_t)
  FIELD(cotune_program_launch_t, struct_size)
  FIELD(cotune_program_launch_t, flags)
  FIELD(cotune_program_launch_t, inputs)
  FIELD(cotune_program_launch_t, outputs)
  FIELD(cotune_program_launch_t, stream)
  FIELD(cotune_program_launch_t, deadline_ns)
  STRUCT(cotune_program_v1_t)
  FIELD(cotune_program_v1_t, struct_size)
  FIELD(cotune_program_v1_t, flags)
  FIELD(cotune_program_v1_t, list_choices)
  FIELD(cotune_program_v1_t, prepare)
  FIELD(cotune_program_v1_t, part_prepare)
  FIELD(cotune_program_v1_t, launch)
  FIELD(cotune_program_v1_t, progress)
  FIELD(cotune_program_v1_t, plan_destroy)
  return text;
}

std::string ProgramConstants() {
  std::string text;
  CONSTANT(COTUNE_PROGRAM_NODES_MAX)
  CONSTANT(COTUNE_PROGRAM_INPUTS_MAX)
  CONSTANT(COTUNE_PROGRAM_OUTPUTS_MAX)
  CONSTANT(COTUNE_NODE_OPERANDS_MAX)
  CONSTANT(COTUNE_DTYPE_FLOAT8_E4M3FN)
  CONSTANT(COTUNE_DTYPE_FLOAT8_E5M2)
  CONSTANT(COTUNE_ROWS_ONE)
  CONSTANT(COTUNE_ROWS_ALL)
  CONSTANT(COTUNE_ROWS_SHARE)
  CONSTANT(COTUNE_VALUE_REPLICATED)
  CONSTANT(COTUNE_NODE_COLLECTIVE)
  CONSTANT(COTUNE_NODE_ADD)
  CONSTANT(COTUNE_NODE_SUB)
  CONSTANT(COTUNE_NODE_MUL)
  CONSTANT(COTUNE_NODE_DIV)
  CONSTANT(COTUNE_NODE_MIN)
  CONSTANT(COTUNE_NODE_MAX)
  CONSTANT(COTUNE_NODE_NEG)
  CONSTANT(COTUNE_NODE_ABS)
  CONSTANT(COTUNE_NODE_RELU)
  CONSTANT(COTUNE_NODE_GELU_ERF)
  CONSTANT(COTUNE_NODE_GELU_TANH)
  CONSTANT(COTUNE_NODE_SILU)
  CONSTANT(COTUNE_NODE_TANH)
  CONSTANT(COTUNE_NODE_SIGMOID)
  CONSTANT(COTUNE_NODE_EXP)
  CONSTANT(COTUNE_NODE_LOG)
  CONSTANT(COTUNE_NODE_SQRT)
  CONSTANT(COTUNE_NODE_RSQRT)
  CONSTANT(COTUNE_NODE_ROUND)
  CONSTANT(COTUNE_NODE_CLAMP)
  CONSTANT(COTUNE_NODE_LESS)
  CONSTANT(COTUNE_NODE_EQUAL)
  CONSTANT(COTUNE_NODE_WHERE)
  CONSTANT(COTUNE_NODE_CAST)
  CONSTANT(COTUNE_NODE_ROW_SUM)
  CONSTANT(COTUNE_NODE_ROW_MAX)
  CONSTANT(COTUNE_OPERAND_LITERAL)
  CONSTANT(COTUNE_PROGRAM_ROUNDS_VALUES)
  CONSTANT(COTUNE_CHOICE_FITS_ANY_REGION)
  CONSTANT(COTUNE_PROGRAM_SYMMETRIC)
  return text;
}

}  // namespace

std::string ProgramLayoutText() { return ProgramStructs() + ProgramConstants(); }

std::string AbiLayoutText() {
  return ProblemLayout() + RunningLayout() + ServicesLayout() + Constants();
}

}  // namespace cotune
