// What the names of groups stand for in this process.
#ifndef COTUNE_INTEGRATION_TORCH_GROUP_REGISTRY_H_
#define COTUNE_INTEGRATION_TORCH_GROUP_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>

#include "integration/torch/cotune_torch.h"
#include "integration/torch/named_group.h"

namespace cotune::torch_operators {

// Any thread. There is one for the process, because PyTorch's operators have no context of their
// own: TheRegistry() gives it.
class GroupRegistry {
 public:
  // The group stands for its name on its device: a process that computes on two GPUs has one for
  // each.
  void Put(std::shared_ptr<NamedGroup> group);
  // Removes the name from all devices.
  void Remove(const std::string& name);
  // `device` is a CUDA ordinal; every negative one is the host.
  std::shared_ptr<NamedGroup> Find(std::string_view name, int32_t device) const;

  // What the name stands for on this device; asks the resolver where it stands for nothing.
  // OperatorError where that finds nothing.
  std::shared_ptr<NamedGroup> Get(const std::string& name, int32_t device);

  void SetResolver(cotune_torch_resolver resolve, void* context);
  void SetMeets(bool meets) { meets_ = meets; }
  bool meets() const { return meets_; }
  void SetListener(cotune_torch_listener listen, void* context);
  int32_t Tell(const cotune_torch_tune& tune) const;

 private:
  using Key = std::pair<std::string, int32_t>;  // the name and the device
  struct KeyLess {
    using is_transparent = void;
    template <typename Left, typename Right>
    bool operator()(const Left& left, const Right& right) const {
      const std::string_view left_name = left.first;
      const std::string_view right_name = right.first;
      return left_name == right_name ? left.second < right.second : left_name < right_name;
    }
  };
  // Held while the resolver is asked for one name.
  std::shared_ptr<std::mutex> ResolveMutex(const Key& key);

  mutable std::shared_mutex mutex_;  // never held while something outside is called
  std::map<Key, std::shared_ptr<NamedGroup>, KeyLess> groups_;
  std::map<Key, std::shared_ptr<std::mutex>, KeyLess> resolve_mutexes_;
  std::atomic<bool> meets_{false};
  cotune_torch_resolver resolve_ = nullptr;
  void* resolve_context_ = nullptr;
  cotune_torch_listener listen_ = nullptr;
  void* listen_context_ = nullptr;
};

GroupRegistry& TheRegistry();

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_GROUP_REGISTRY_H_
