#include "integration/torch/group_registry.h"

#include <cstdio>
#include <exception>
#include <vector>

#include "fmt/format.h"
#include "integration/torch/operator_error.h"

namespace cotune::torch_operators {

namespace {

constexpr int32_t kHost = -1;

int32_t Normalized(int32_t device) { return device < 0 ? kHost : device; }

}  // namespace

void GroupRegistry::Put(std::shared_ptr<NamedGroup> group) {
  std::shared_ptr<NamedGroup> before;
  {
    const std::unique_lock lock(mutex_);
    std::shared_ptr<NamedGroup>& place = groups_[{group->name(), Normalized(group->device())}];
    before = std::exchange(place, std::move(group));
  }
  if (before != nullptr) before->Close();
}

void GroupRegistry::Remove(const std::string& name) {
  std::vector<std::shared_ptr<NamedGroup>> removed;
  {
    const std::unique_lock lock(mutex_);
    auto each = groups_.lower_bound(Key(name, kHost));
    while (each != groups_.end() && each->first.first == name) {
      removed.push_back(std::move(each->second));
      each = groups_.erase(each);
    }
  }
  for (const auto& group : removed) group->Close();
}

std::shared_ptr<NamedGroup> GroupRegistry::Find(std::string_view name, int32_t device) const {
  const std::shared_lock lock(mutex_);
  const auto found = groups_.find(std::pair(name, Normalized(device)));
  return found == groups_.end() ? nullptr : found->second;
}

std::shared_ptr<std::mutex> GroupRegistry::ResolveMutex(const Key& key) {
  const std::unique_lock lock(mutex_);
  std::shared_ptr<std::mutex>& mutex = resolve_mutexes_[key];
  if (mutex == nullptr) mutex = std::make_shared<std::mutex>();
  return mutex;
}

std::shared_ptr<NamedGroup> GroupRegistry::Get(const std::string& name, int32_t device) {
  if (auto found = Find(name, device)) return found;
  const std::shared_ptr<std::mutex> resolving = ResolveMutex({name, Normalized(device)});
  const std::lock_guard turn(*resolving);
  if (auto found = Find(name, device)) return found;
  cotune_torch_resolver resolve = nullptr;
  void* context = nullptr;
  {
    const std::shared_lock lock(mutex_);
    resolve = resolve_;
    context = resolve_context_;
  }
  const std::string where = device < 0 ? "on the host" : fmt::format("on CUDA device {}", device);
  if (resolve == nullptr) {
    throw OperatorError(
        fmt::format("cotune: no group is registered under \"{}\" {}; import cotune.torch, or call "
                    "cotune_torch_group_register",
                    name, where));
  }
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (resolve(context, name.c_str(), device, &error) != COTUNE_SUCCESS) {
    throw OperatorError(
        fmt::format("cotune: group \"{}\" cannot be made {}: {}", name, where, error.text));
  }
  if (auto found = Find(name, device)) return found;
  throw OperatorError(
      fmt::format("cotune: the resolver has not registered the group \"{}\" {}", name, where));
}

void GroupRegistry::SetResolver(cotune_torch_resolver resolve, void* context) {
  const std::unique_lock lock(mutex_);
  resolve_ = resolve;
  resolve_context_ = context;
}

void GroupRegistry::SetListener(cotune_torch_listener listen, void* context) {
  const std::unique_lock lock(mutex_);
  listen_ = listen;
  listen_context_ = context;
}

int32_t GroupRegistry::Tell(const cotune_torch_tune& tune) const {
  cotune_torch_listener listen = nullptr;
  void* context = nullptr;
  {
    const std::shared_lock lock(mutex_);
    listen = listen_;
    context = listen_context_;
  }
  return listen == nullptr ? 0 : listen(context, &tune);
}

GroupRegistry& TheRegistry() {
  // Never destroyed: operators may run while the process ends.
  static auto& registry = *new GroupRegistry();
  return registry;
}

}  // namespace cotune::torch_operators

namespace {

using cotune::torch_operators::NamedGroup;
using cotune::torch_operators::TheRegistry;
using cotune::torch_operators::TuneWishes;

TuneWishes WishesOf(const cotune_torch_group_options* options) {
  TuneWishes wishes;
  if (options == nullptr) return wishes;
  wishes.is_untuned = options->is_untuned != 0;
  wishes.budget_ns = options->budget_ns;
  wishes.later_budget_ns = options->later_budget_ns;
  wishes.numerics = options->numerics;
  wishes.has_database = options->database_path != nullptr;
  if (wishes.has_database) wishes.database_path = options->database_path;
  return wishes;
}

}  // namespace

extern "C" {

cotune_result cotune_torch_group_register(const char* name, int32_t device, cotune_group* group,
                                          const cotune_torch_group_options* options) {
  if (name == nullptr || name[0] == '\0') return COTUNE_ERROR_USAGE;
  if (options != nullptr && options->struct_size != sizeof(*options)) return COTUNE_ERROR_USAGE;
  if (group != nullptr && cotune_group_device(group) != (device < 0 ? -1 : device)) {
    return COTUNE_ERROR_USAGE;
  }
  TheRegistry().Put(std::make_shared<NamedGroup>(name, device, group, WishesOf(options)));
  return COTUNE_SUCCESS;
}

void cotune_torch_group_unregister(const char* name) {
  if (name != nullptr) TheRegistry().Remove(name);
}

int32_t cotune_torch_group_is_plain(const char* name, int32_t device) {
  const auto found = name == nullptr ? nullptr : TheRegistry().Find(name, device);
  if (found == nullptr) return -1;
  return found->is_plain() ? 1 : 0;
}

void cotune_torch_set_meets(int32_t meets) { TheRegistry().SetMeets(meets != 0); }

cotune_result cotune_torch_group_decide(const char* name, int32_t device, const char* manifest,
                                        const char* program, uint64_t rows, cotune_error* error) {
  const auto fail = [error](cotune_result result, const char* text) {
    if (error == nullptr) return result;
    error->result = result;
    error->rank = -1;
    std::snprintf(error->text, sizeof(error->text), "%s", text);
    return result;
  };
  if (name == nullptr || manifest == nullptr || program == nullptr) {
    return fail(COTUNE_ERROR_USAGE, "a text is NULL");
  }
  const auto found = TheRegistry().Find(name, device);
  if (found == nullptr) return fail(COTUNE_ERROR_USAGE, "no group has this name there");
  try {
    found->Decide(manifest, program, rows,
                  [](const cotune_torch_tune& tune) { return TheRegistry().Tell(tune); });
    return COTUNE_SUCCESS;
  } catch (const std::exception& failure) {
    return fail(COTUNE_ERROR_ENVIRONMENT, failure.what());
  }
}

int32_t cotune_torch_group_is_agreed(const char* name, int32_t device, const char* program,
                                     uint64_t rows) {
  if (name == nullptr || program == nullptr) return 0;
  const auto found = TheRegistry().Find(name, device);
  try {
    return found != nullptr && found->IsAgreed(program, rows) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

void cotune_torch_group_admit(const char* name, int32_t device, const char* program,
                              uint64_t first_elements, uint64_t last_elements,
                              const uint32_t* counters, size_t counter_count, uint64_t limit) {
  if (name == nullptr || program == nullptr || (counters == nullptr && counter_count > 0)) return;
  const auto found = TheRegistry().Find(name, device);
  try {
    if (found == nullptr) return;
    found->Admit(program,
                 {first_elements, last_elements, {counters, counters + counter_count}, limit});
  } catch (const std::exception&) {
    return;  // The program cannot be read, and its next call raises why.
  }
}

uint64_t cotune_torch_group_count(const char* name, int32_t device, uint32_t counter,
                                  uint64_t calls) {
  const auto found = name == nullptr ? nullptr : TheRegistry().Find(name, device);
  return found == nullptr ? 0 : found->Count(counter, calls);
}

void cotune_torch_set_resolver(cotune_torch_resolver resolve, void* context) {
  TheRegistry().SetResolver(resolve, context);
}

void cotune_torch_set_listener(cotune_torch_listener listen, void* context) {
  TheRegistry().SetListener(listen, context);
}

}  // extern "C"
