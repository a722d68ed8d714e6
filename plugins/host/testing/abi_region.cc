#include "plugins/host/testing/abi_region.h"

#include "plugins/host/backend.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {

int AbiRegion::AddValue(const cotune_value_t& value) {
  values_.push_back(value);
  return static_cast<int>(values_.size()) - 1;
}

int AbiRegion::Input(uint64_t columns, uint32_t rows_kind, cotune_dtype_t dtype) {
  ++inputs_;
  return AddValue({.struct_size = sizeof(cotune_value_t),
                   .flags = 0,
                   .dtype = dtype,
                   .rows_kind = rows_kind,
                   .rows = rows_kind == COTUNE_ROWS_ONE ? 1 : rows_,
                   .columns = columns});
}

int AbiRegion::Collective(uint32_t collective, int operand, uint32_t reduction) {
  cotune_node_t node{};
  node.struct_size = sizeof(node);
  node.kind = COTUNE_NODE_COLLECTIVE;
  node.collective = collective;
  node.reduction = collective == COTUNE_ALL_REDUCE ? reduction : 0u;
  node.operand_count = 1;
  node.operands[0] = operand;
  nodes_.push_back(node);
  return AddValue(values_[static_cast<size_t>(operand)]);
}

int AbiRegion::Compute(uint32_t kind, std::initializer_list<int> operands) {
  cotune_node_t node{};
  node.struct_size = sizeof(node);
  node.kind = kind;
  for (const int operand : operands) node.operands[node.operand_count++] = operand;
  nodes_.push_back(node);
  cotune_value_t value = values_[static_cast<size_t>(*operands.begin())];
  if (kind == COTUNE_NODE_ROW_SUM) value.columns = 1;
  return AddValue(value);
}

void AbiRegion::Return(int value, int into) {
  outputs_.push_back(value);
  into_.push_back(into);
}

cotune_program_t AbiRegion::program() const {
  cotune_program_t program{};
  program.struct_size = sizeof(program);
  program.memory_kind = COTUNE_MEMORY_HOST;
  program.world_size = program.ranks_per_node = world_size_;
  // Regions of the tests that differ have other kinds of nodes.
  program.digest = nodes_.size();
  for (const cotune_node_t& node : nodes_) program.digest = program.digest * 131 + node.kind;
  // Errors print the high half.
  program.digest *= 0x9E3779B97F4A7C15u;
  program.values = values_.data();
  program.value_stride = sizeof(cotune_value_t);
  program.input_count = inputs_;
  program.nodes = nodes_.data();
  program.node_stride = sizeof(cotune_node_t);
  program.node_count = static_cast<uint32_t>(nodes_.size());
  program.outputs = outputs_.data();
  program.output_into = into_.data();
  program.output_count = static_cast<uint32_t>(outputs_.size());
  program.text = "";
  return program;
}

AbiRegion AllReducesOf(const std::vector<uint64_t>& columns, int world_size, uint64_t rows) {
  AbiRegion region(world_size, rows);
  std::vector<int> inputs;
  for (const uint64_t each : columns) inputs.push_back(region.Input(each));
  for (const int each : inputs) region.Return(region.Collective(COTUNE_ALL_REDUCE, each));
  return region;
}

const cotune_program_v1_t& RegionTable(const cotune_backend_t* backend) {
  return *static_cast<const cotune_program_v1_t*>(
      BackendApi()->get_extension(backend, COTUNE_PROGRAM_EXTENSION));
}

ListedRegion ListRegion(const cotune_backend_t* backend, const AbiRegion& region) {
  const cotune_program_t program = region.program();
  std::vector<cotune_choice_t> entries(64);
  for (cotune_choice_t& each : entries) each.struct_size = sizeof(each);
  uint32_t count = 0;
  cotune_error_t error{};
  error.struct_size = sizeof(error);
  const cotune_status_t status = RegionTable(backend).list_choices(
      backend, &program, entries.data(), sizeof(cotune_choice_t), 64, &count, &error);
  ListedRegion listed;
  if (status != COTUNE_OK) {
    listed.refusals.emplace_back(error.message);
    return listed;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = entries[i].name;
    if (entries[i].status == COTUNE_OK) {
      listed.choices.push_back(name);
    } else {
      listed.refusals.push_back(name + ": " + entries[i].reason);
    }
  }
  return listed;
}

ListedRegion ListRegion(const AbiRegion& region) {
  const JobForTest job;
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  if (BackendApi()->create(&job.host(), -1, &backend, &error) != COTUNE_OK) {
    return {.choices = {}, .refusals = {error.message}};
  }
  ListedRegion listed = ListRegion(backend, region);
  BackendApi()->destroy(backend);
  return listed;
}

cotune_status_t RunRegion(const cotune_backend_t* backend, cotune_group_t* group,
                          const AbiRegion& region, const char* choice,
                          const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                          int64_t deadline_ns, cotune_error_t* error) {
  const cotune_program_v1_t& table = RegionTable(backend);
  const cotune_program_t program = region.program();
  cotune_program_plan_t* plan = nullptr;
  cotune_status_t status = table.prepare(group, &program, choice, deadline_ns, &plan, error);
  if (status != COTUNE_OK) return status;
  const cotune_program_launch_t launch{.struct_size = sizeof(launch),
                                       .flags = 0,
                                       .inputs = inputs.data(),
                                       .outputs = outputs.data(),
                                       .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                       .deadline_ns = deadline_ns};
  status = table.launch(plan, &launch, error);
  if (status == COTUNE_OK) {
    do {
      status = table.progress(plan, MonotonicNs() + kSecondNs, error);
    } while (status == COTUNE_IN_PROGRESS);
  }
  table.plan_destroy(plan);
  return status;
}

}  // namespace cotune::host
