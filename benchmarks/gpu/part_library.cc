// Parts of a program as a plugin prepares them, for benchmarks in other languages: C functions that
// part_library.py calls. A rank's device is made current by the caller.
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/program.h"
#include "core/recipe/make_recipe.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/load_plugin.h"

namespace cotune::bench {
namespace {

constexpr int64_t kPatienceNs = 300'000'000'000;

int64_t NowNs(void* /*context*/) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Log(void* /*context*/, int32_t severity, const char* text) {
  if (severity >= 2) std::fprintf(stderr, "cotune: %s\n", text);
}

const cotune_host_t& Host() {
  static const cotune_host_t host = [] {
    cotune_host_t made{};
    made.struct_size = sizeof(made);
    made.log = Log;
    made.now_ns = NowNs;
    // Parts need no group, and with it no store.
    made.store_put = [](void*, const char*, const void*, uint64_t) {
      return cotune_status_t{COTUNE_UNSUPPORTED};
    };
    made.store_get = [](void*, const char*, void*, uint64_t, uint64_t*, int64_t) {
      return cotune_status_t{COTUNE_UNSUPPORTED};
    };
    made.store_delete = [](void*, const char*) { return cotune_status_t{COTUNE_UNSUPPORTED}; };
    made.setting = [](void*, const char*) -> const char* { return nullptr; };
    return made;
  }();
  return host;
}

struct Part {
  const RecipeStep* step = nullptr;
  std::unique_ptr<Plan> plan;
};

}  // namespace

struct Parts {
  std::unique_ptr<Backend> backend;
  Program program;
  uint64_t rows = 0;
  Recipe recipe;
  std::vector<Part> parts;
};

namespace {

Result<std::unique_ptr<Parts>> Make(const char* plugin, const char* text, uint64_t rows,
                                    const GroupShape& group, int32_t device) {
  COTUNE_TRY(const cotune_backend_api_t* table, LoadPlugin(plugin, nullptr));
  COTUNE_TRY(std::unique_ptr<Backend> backend,
             AdoptBackend(table, Host(), group.memory == MemoryKind::kCuda ? device : -1, plugin));
  COTUNE_TRY(ProgramGraph graph, ProgramGraph::Parse(text));
  COTUNE_TRY(Program program, Program::Bind(std::move(graph), group));
  Recipe recipe = UnfusedRecipe(program.graph());
  auto made = std::unique_ptr<Parts>(
      new Parts{std::move(backend), std::move(program), rows, std::move(recipe), {}});
  for (const RecipeStep& step : made->recipe.steps) {
    if (!step.is_part()) continue;
    COTUNE_TRY(auto plan, made->backend->PreparePart({.part = step.program,
                                                      .rows = rows,
                                                      .memory = group.memory,
                                                      .world_size = group.world_size},
                                                     NowNs(nullptr) + kPatienceNs));
    made->parts.push_back({&step, std::move(plan)});
  }
  return made;
}

}  // namespace
}  // namespace cotune::bench

#define PARTS_EXPORT extern "C" __attribute__((visibility("default")))

using cotune::bench::Parts;

// A value that a part reads or writes.
struct PartsValue {
  int32_t dtype;  // as in cotune.h
  int32_t into;   // of an output: the input of the part that it overwrites, or -1
  uint64_t rows;
  uint64_t columns;
  int32_t slot;  // inputs of the program, its outputs, values between steps
  uint32_t reserved;
};

// The parts of a program, each compiled for so many rows; memory_kind as in the plugin's ABI,
// device the CUDA ordinal of the GPU, which host memory ignores. NULL and a text of at most
// error_bytes where that fails.
PARTS_EXPORT Parts* cotune_parts_prepare(const char* plugin, const char* program, uint64_t rows,
                                         int32_t world_size, int32_t memory_kind, int32_t device,
                                         char* error, uint64_t error_bytes) {
  const cotune::GroupShape group{static_cast<cotune::MemoryKind>(memory_kind), world_size,
                                 world_size};
  auto made = cotune::bench::Make(plugin, program, rows, group, device);
  if (made) return made->release();
  std::snprintf(error, error_bytes, "%s", made.error().ToText().c_str());
  return nullptr;
}

PARTS_EXPORT void cotune_parts_free(Parts* parts) { delete parts; }

PARTS_EXPORT uint64_t cotune_parts_count(const Parts* parts) { return parts->parts.size(); }

PARTS_EXPORT uint64_t cotune_parts_value_count(const Parts* parts, uint64_t part,
                                               int32_t is_output) {
  const cotune::RecipeStep& step = *parts->parts[part].step;
  return is_output != 0 ? step.outputs.size() : step.inputs.size();
}

PARTS_EXPORT PartsValue cotune_parts_value(const Parts* parts, uint64_t part, int32_t is_output,
                                           uint64_t index) {
  const cotune::RecipeStep& step = *parts->parts[part].step;
  const cotune::ProgramGraph& graph = step.program;
  const bool is_input = is_output == 0;
  const cotune::ValueIndex value =
      is_input ? static_cast<cotune::ValueIndex>(index) : graph.outputs()[index].value;
  const cotune::ValueType& type = graph.type(value);
  const uint64_t share = parts->rows / static_cast<uint64_t>(parts->program.group().world_size);
  const uint64_t rows = type.rows == cotune::Rows::kOne   ? 1
                        : type.rows == cotune::Rows::kAll ? parts->rows
                                                          : share;
  return {static_cast<int32_t>(type.dtype),
          is_input ? -1 : graph.outputs()[index].into,
          rows,
          type.columns,
          is_input ? step.inputs[index] : step.outputs[index],
          0};
}

// The slot of the value that collective `index` defines; -1: there are fewer.
PARTS_EXPORT int32_t cotune_parts_collective_slot(const Parts* parts, uint64_t index) {
  const auto& collectives = parts->program.graph().collectives();
  if (index >= collectives.size()) return -1;
  for (const cotune::RecipeStep& step : parts->recipe.steps) {
    const cotune::BackendStep* const backend = step.backend_step();
    if (backend != nullptr && backend->first() == collectives[index]) {
      return step.outputs.front();
    }
  }
  return -1;
}

// Enqueues a part on a stream; on host memory runs it to its end. An address for each input and
// output, in the order of cotune_parts_value. 0, or 1 with a text in error.
PARTS_EXPORT int32_t cotune_parts_launch(Parts* parts, uint64_t part, const void* const* inputs,
                                         void* const* outputs, void* stream, char* error,
                                         uint64_t error_bytes) {
  cotune::Plan& plan = *parts->parts[part].plan;
  cotune::LaunchArguments arguments;
  arguments.inputs = {inputs, cotune_parts_value_count(parts, part, 0)};
  arguments.outputs = {outputs, cotune_parts_value_count(parts, part, 1)};
  arguments.stream = stream;
  arguments.deadline_ns = cotune::bench::NowNs(nullptr) + cotune::bench::kPatienceNs;
  cotune::Status done = plan.Launch(arguments);
  while (done && parts->program.group().memory == cotune::MemoryKind::kHost) {
    const cotune::Result<bool> is_complete = plan.Progress(arguments.deadline_ns);
    if (!is_complete) done = cotune::Propagate(is_complete);
    if (is_complete && *is_complete) break;
  }
  if (done) return 0;
  std::snprintf(error, error_bytes, "%s", done.error().ToText().c_str());
  return 1;
}
