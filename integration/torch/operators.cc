// The operators that compiled graphs and users call. See cotune_torch.h.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "integration/torch/group_registry.h"
#include "integration/torch/interrupt_on_return.h"
#include "integration/torch/named_group.h"
#include "integration/torch/operand.h"

// Since PyTorch 2.13: the text of the exception that the last call of its C functions on this
// thread ended with. NULL before. The name is PyTorch's.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace cotune::torch_operators {
namespace {

using torch::stable::Tensor;

// As many as a program may have.
constexpr size_t kOperandsMax = 16;

// One more: see cotune_torch.h.
using Operands = std::array<cotune_tensor, kOperandsMax + 1>;

// All on one device, which is given.
std::span<const cotune_tensor> OperandsOf(std::span<const Tensor> tensors, const char* what,
                                          int32_t device, Operands& operands) {
  if (tensors.size() > operands.size()) {
    throw OperatorError(fmt::format("cotune: {} {}s are given; a program has {} at most",
                                    tensors.size(), what, kOperandsMax));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (DeviceOf(tensors[i]) != device) {
      throw OperatorError(fmt::format(
          "cotune: {} {} of a program lies on another device than its first operand", what, i + 1));
    }
    operands[i] = OperandOf(tensors[i], what, i);
  }
  return {operands.data(), tensors.size()};
}

// The last of several inputs may be there for the order only, and of any type: a program that
// declares it refuses the dtype 0.
std::span<const cotune_tensor> InputsOf(std::span<const Tensor> tensors, int32_t device,
                                        Operands& operands) {
  if (tensors.size() < 2 || tensors.size() > operands.size()) {
    return OperandsOf(tensors, "input", device, operands);
  }
  OperandsOf(tensors.first(tensors.size() - 1), "input", device, operands);
  cotune_tensor& last = operands[tensors.size() - 1];
  try {
    last = OperandOf(tensors.back(), "input", tensors.size() - 1);
  } catch (const OperatorError&) {
    last = {};
    last.struct_size = sizeof(last);
  }
  return {operands.data(), tensors.size()};
}

// Why the call before failed.
std::string PyTorchsReason() {
  if (torch_exception_get_what_without_backtrace == nullptr) {
    return "PyTorch before 2.13 gives the reason on standard error only; without import "
           "cotune.torch nothing runs them";
  }
  const std::string reason = torch_exception_get_what_without_backtrace();
  const bool is_missing = reason.find("Could not find schema for cotune::") != std::string::npos;
  return is_missing ? "they are not ready in this process; import cotune.torch" : reason;
}

// The same by PyTorch's own collectives, in Python.
void RunPlain(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
              const std::string& program, const std::string& group_name) {
  using torch::stable::detail::from;
  std::array<StableIValue, 4> stack{from(inputs), from(outputs), from(program), from(group_name)};
  if (torch_call_dispatcher("cotune::program_plain", "", stack.data(), TORCH_ABI_VERSION) != 0) {
    throw OperatorError(fmt::format(
        "cotune: a program of group \"{}\", which runs by PyTorch's own collectives, failed: {}",
        group_name, PyTorchsReason()));
  }
}

// Calls the function in Python in which the ranks meet. It gives the text of its error, or "".
void RunUndecided(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                  const std::string& program, const std::string& group_name,
                  const std::string& manifest) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  std::array<StableIValue, 5> stack{from(inputs), from(outputs), from(program), from(group_name),
                                    from(manifest)};
  if (torch_call_dispatcher("cotune::program_undecided", "", stack.data(), TORCH_ABI_VERSION) !=
      0) {
    throw OperatorError(fmt::format("cotune: a program of group \"{}\" cannot be decided: {}",
                                    group_name, PyTorchsReason()));
  }
  const auto failure = to<std::string>(stack[0]);
  if (!failure.empty()) throw OperatorError(failure);
}

void RunProgram(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                const std::string& program, const std::string& group_name,
                const std::string& manifest) {
  const OperatorCall call;
  if (inputs.empty()) throw OperatorError("cotune: a program has at least one input");
  const int32_t device = DeviceOf(inputs.front());
  Operands input_operands;
  Operands output_operands;
  const ProgramRun run{InputsOf(inputs, device, input_operands),
                       OperandsOf(outputs, "output", device, output_operands), program, manifest};
  GroupRegistry& registry = TheRegistry();
  const std::shared_ptr<NamedGroup> group =
      registry.meets() ? registry.Find(group_name, device) : nullptr;
  const auto outcome = [&] {
    if (!registry.meets()) {
      return registry.Get(group_name, device)->Run(run, [&](const cotune_torch_tune& tune) {
        return registry.Tell(tune);
      });
    }
    return group == nullptr ? RunOutcome::kUndecided : group->RunAgreed(run);
  }();
  if (outcome == RunOutcome::kPlain) RunPlain(inputs, outputs, program, group_name);
  if (outcome == RunOutcome::kUndecided) {
    // The first program of a graph has its manifest, and may have run before this one.
    const bool has_none = manifest.empty() && group != nullptr;
    RunUndecided(inputs, outputs, program, group_name,
                 has_none ? group->latest_manifest() : manifest);
  }
}

const char* NameOf(cotune_dtype dtype) {
  constexpr const char* kNames[] = {"",    "f32", "f64", "f16",     "bf16",   "i32",
                                    "i64", "u8",  "i8",  "f8_e4m3", "f8_e5m2"};
  return kNames[dtype];
}

struct Reduction {
  cotune_reduction value;
  const char* name;  // in programs
};

// The names of torch.distributed's functional collectives, whose case does not count.
Reduction ReductionOf(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  if (name == "sum") return {COTUNE_REDUCE_SUM, "sum"};
  if (name == "product") return {COTUNE_REDUCE_PRODUCT, "product"};
  if (name == "min") return {COTUNE_REDUCE_MIN, "min"};
  if (name == "max") return {COTUNE_REDUCE_MAX, "max"};
  if (name == "avg") return {COTUNE_REDUCE_AVERAGE, "average"};
  throw OperatorError(fmt::format(
      "cotune: there is no reduction \"{}\"; give sum, product, min, max or avg", name));
}

// One call of a collective. `run` is cotune's; `operation` is its line in a program, which runs
// where the group is plain: `rows` and `result_rows` are those of x and of the result there, each
// of one column.
struct Collective {
  const char* operation;
  const char* rows = "R";
  std::function<cotune_result(cotune_group*, const cotune_tensor& x, const cotune_tensor& result)>
      run;
};

void RunCollective(const Tensor& x, const Tensor& result, const std::string& group_name,
                   const Collective& collective) {
  const OperatorCall call;
  const std::string_view operation = collective.operation;
  const std::string_view name = operation.substr(0, operation.find(' '));
  const auto dtype = x.scalar_type();
  // PyTorch's own collectives take some that cotune's do not.
  if (!DtypeOf(dtype)) throw DtypeRefusal(dtype, name);
  const int32_t device = DeviceOf(x);
  const cotune_tensor send = OperandOf(x, "input", 0);
  const cotune_tensor receive = OperandOf(result, "output", 0);
  const bool has_run = TheRegistry().Get(group_name, device)->Run([&](cotune_group* group) {
    if (!IsOfCollectives(dtype)) throw DtypeRefusal(dtype, name);
    return collective.run(group, send, receive);
  });
  if (has_run) return;
  const std::string program =
      fmt::format("program plain\n%x = input {} [{}, 1]\n%y = {}\nreturn %y\n", NameOf(send.dtype),
                  collective.rows, collective.operation);
  RunPlain({x}, {result}, program, group_name);
}

// With so many times (or so few) rows in the first dimension.
std::vector<int64_t> SizesTimes(const Tensor& x, int64_t times, int64_t parts, const char* what) {
  const auto sizes = x.sizes();
  std::vector<int64_t> result(sizes.begin(), sizes.end());
  if (result.empty() || times < 1 || parts < 1 || result[0] % parts != 0) {
    throw OperatorError(
        fmt::format("cotune: {} needs a tensor whose first dimension {}", what,
                    parts > 1 ? fmt::format("is a multiple of {}", parts) : "is there"));
  }
  result[0] = result[0] / parts * times;
  return result;
}

uint64_t CountOf(const cotune_tensor& tensor) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < tensor.size_count; ++i) count *= static_cast<uint64_t>(tensor.sizes[i]);
  return count;
}

// A bool travels as a byte that is 0 or 1, which other reductions do not keep.
void CheckReduces(const Tensor& x, const Reduction& reduction, const char* what) {
  if (x.scalar_type() != torch::headeronly::ScalarType::Bool) return;
  if (reduction.value == COTUNE_REDUCE_MIN || reduction.value == COTUNE_REDUCE_MAX) return;
  throw OperatorError(fmt::format(
      "cotune: {} of bool takes min or max, and not {}; cast the tensor to a dtype of numbers",
      what, reduction.name));
}

// The shapes of a call come from its world_size.
void CheckWorldSize(cotune_group* group, int64_t world_size, const char* what) {
  if (world_size == cotune_group_size(group)) return;
  throw OperatorError(fmt::format("cotune: {} is given world_size={}, and the group has {} ranks",
                                  what, world_size, cotune_group_size(group)));
}

Tensor AllReduce(const Tensor& given, std::string reduce_op, const std::string& group_name) {
  const Tensor x = torch::stable::contiguous(given);
  Tensor result = torch::stable::new_empty(x, x.sizes());
  const Reduction reduction = ReductionOf(std::move(reduce_op));
  CheckReduces(x, reduction, "all_reduce");
  const std::string operation = fmt::format("all_reduce {} %x", reduction.name);
  RunCollective(
      x, result, group_name,
      {operation.c_str(), "R", [&](cotune_group* group, const auto& send, const auto& to) {
         return cotune_all_reduce(group, send.data, to.data, CountOf(send), send.dtype,
                                  reduction.value);
       }});
  return result;
}

Tensor AllGather(const Tensor& given, int64_t world_size, const std::string& group_name) {
  const Tensor x = torch::stable::contiguous(given);
  const std::vector<int64_t> sizes = SizesTimes(x, world_size, 1, "all_gather");
  Tensor result = torch::stable::new_empty(x, {sizes.data(), sizes.size()});
  RunCollective(
      x, result, group_name,
      {"all_gather %x", "R/n", [&](cotune_group* group, const auto& send, const auto& to) {
         CheckWorldSize(group, world_size, "all_gather");
         return cotune_all_gather(group, send.data, to.data, CountOf(send), send.dtype);
       }});
  return result;
}

Tensor ReduceScatter(const Tensor& given, std::string reduce_op, int64_t world_size,
                     const std::string& group_name) {
  const Tensor x = torch::stable::contiguous(given);
  const std::vector<int64_t> sizes = SizesTimes(x, 1, world_size, "reduce_scatter");
  Tensor result = torch::stable::new_empty(x, {sizes.data(), sizes.size()});
  const Reduction reduction = ReductionOf(std::move(reduce_op));
  CheckReduces(x, reduction, "reduce_scatter");
  const std::string operation = fmt::format("reduce_scatter {} %x", reduction.name);
  RunCollective(
      x, result, group_name,
      {operation.c_str(), "R", [&](cotune_group* group, const auto& send, const auto& to) {
         CheckWorldSize(group, world_size, "reduce_scatter");
         return cotune_reduce_scatter(group, send.data, to.data, CountOf(to), send.dtype,
                                      reduction.value);
       }});
  return result;
}

Tensor AllToAll(const Tensor& given, const std::string& group_name) {
  const Tensor x = torch::stable::contiguous(given);
  Tensor result = torch::stable::new_empty(x, x.sizes());
  RunCollective(x, result, group_name,
                {"all_to_all %x", "R", [&](cotune_group* group, const auto& send, const auto& to) {
                   const auto ranks = static_cast<uint64_t>(cotune_group_size(group));
                   const int64_t rows = send.size_count == 0 ? 0 : send.sizes[0];
                   if (static_cast<uint64_t>(rows) % ranks != 0) {
                     throw OperatorError(fmt::format(
                         "cotune: all_to_all needs a tensor whose first dimension is a multiple of "
                         "the {} ranks, and it is {}",
                         ranks, rows));
                   }
                   return cotune_all_to_all(group, send.data, to.data, CountOf(send) / ranks,
                                            send.dtype);
                 }});
  return result;
}

Tensor Broadcast(const Tensor& given, int64_t root, const std::string& group_name) {
  const Tensor x = torch::stable::contiguous(given);
  Tensor result = torch::stable::new_empty(x, x.sizes());
  const std::string operation = fmt::format("broadcast %x, root={}", root);
  RunCollective(
      x, result, group_name,
      {operation.c_str(), "R", [&](cotune_group* group, const auto& send, const auto& to) {
         return cotune_broadcast(group, send.data, to.data, CountOf(send), send.dtype,
                                 static_cast<int32_t>(root));
       }});
  return result;
}

void Implement(torch::stable::detail::StableLibrary& library) {
  library.impl("program", TORCH_BOX(&RunProgram));
  library.impl("all_reduce", TORCH_BOX(&AllReduce));
  library.impl("all_gather", TORCH_BOX(&AllGather));
  library.impl("reduce_scatter", TORCH_BOX(&ReduceScatter));
  library.impl("all_to_all", TORCH_BOX(&AllToAll));
  library.impl("broadcast", TORCH_BOX(&Broadcast));
}

STABLE_TORCH_LIBRARY(cotune, library) {
  library.def(
      "program(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name, str manifest) "
      "-> ()");
  library.def("all_reduce(Tensor x, str reduce_op, str group_name) -> Tensor");
  library.def("all_gather(Tensor x, int world_size, str group_name) -> Tensor");
  library.def("reduce_scatter(Tensor x, str reduce_op, int world_size, str group_name) -> Tensor");
  library.def("all_to_all(Tensor x, str group_name) -> Tensor");
  library.def("broadcast(Tensor x, int root, str group_name) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cotune, CPU, library) { Implement(library); }
STABLE_TORCH_LIBRARY_IMPL(cotune, CUDA, library) { Implement(library); }

}  // namespace
}  // namespace cotune::torch_operators
