#include "plugins/cuda/compile/kernel_library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cotune::cuda {

using sdk::Result;

KernelLibrary::~KernelLibrary() {
  // A kernel may still run, now or in a replay of a graph.
  if (gpu_.IsStuck() || is_abandoned_ || graphs_.IsAnyAtEnd()) return;
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  for (const auto& [key, entry] : entries_) {
    if (entry->module != nullptr) gpu_.driver()->ModuleUnload(entry->module);
  }
}

Result<gpu::CuFunction> KernelLibrary::Get(const KernelUnit& unit, int64_t deadline_ns) {
  const SourceText& source = unit.source;
  // All that the code depends on: what a cached file is found by, too.
  std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", nvrtc_.version(), gpu_.architecture(),
                                source.name, fmt::join(unit.options, " "), source.text);
  for (const auto& [name, text] : source.headers) key += fmt::format("\n{}\n{}", name, text);
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& found = entries_[key];
    if (found == nullptr) found = std::make_unique<Entry>();
    entry = found.get();
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->function != nullptr) return entry->function;
  return Make(unit, key, deadline_ns, *entry);
}

Result<gpu::CuFunction> KernelLibrary::Make(const KernelUnit& unit, const std::string& key,
                                            int64_t deadline_ns, Entry& entry) {
  COTUNE_TRY(const std::string code, cache_.Get(key, deadline_ns, [&] {
    return nvrtc_.Compile(unit.source, gpu_.architecture(), unit.options);
  }));
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  auto done =
      gpu_.Check(gpu_.driver()->ModuleLoadData(&entry.module, code.data()), "cuModuleLoadData");
  gpu::CuFunction function = nullptr;
  if (done) {
    done = gpu_.Check(gpu_.driver()->ModuleGetFunction(&function, entry.module, kKernelSymbol),
                      "cuModuleGetFunction");
  }
  COTUNE_RETURN_IF_ERROR(done);
  entry.function = function;
  return function;
}

}  // namespace cotune::cuda
