#include "plugins/sdk/abi_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace cotune::sdk {

cotune_choice_t ChoiceEntry(const std::string& name, const std::string& reason, double cost_us,
                            uint32_t flags, const std::string& numerics) {
  cotune_choice_t entry{};
  entry.struct_size = sizeof(entry);
  entry.cost_us = cost_us;
  CopyText(name, entry.name);
  CopyText(reason, entry.reason);
  entry.status = reason.empty() ? COTUNE_OK : COTUNE_UNSUPPORTED;
  if (!reason.empty()) return entry;
  entry.flags = flags;
  // A text that is too long stays so, without its NUL: the loader refuses it. Cut off, it could be
  // another class.
  std::memcpy(entry.numerics, numerics.data(), std::min(numerics.size(), sizeof(entry.numerics)));
  return entry;
}

Result<void> WriteText(const std::string& text, char* to, uint32_t capacity) {
  if (to == nullptr || capacity == 0) {
    return Fail(COTUNE_INVALID_ARGUMENT, "a text needs a buffer of a byte or more");
  }
  const size_t length = std::min<size_t>(text.size(), capacity - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
  return {};
}

Result<void> WriteChoices(std::span<const cotune_choice_t> choices, cotune_choice_t* first,
                          uint32_t stride, uint32_t capacity, uint32_t* count) {
  if (capacity > 0 && (first == nullptr || stride < sizeof(uint32_t))) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("choices need a buffer; stride is {}", stride));
  }
  const size_t written = std::min<size_t>(choices.size(), capacity);
  for (size_t i = 0; i < written; ++i) {
    cotune_choice_t entry = choices[i];
    // An older host has a smaller struct: it gets the fields that it knows.
    entry.struct_size = std::min<uint32_t>(stride, sizeof(entry));
    std::memcpy(reinterpret_cast<char*>(first) + i * stride, &entry,
                std::min<size_t>(stride, sizeof(entry)));
  }
  *count = static_cast<uint32_t>(choices.size());
  return {};
}

Result<void> CheckHost(const cotune_host_t& host, bool has_device, int32_t device) {
  if (!COTUNE_HAS_FIELD(cotune_host_t, &host, setting)) {
    return Fail(COTUNE_INVALID_ARGUMENT, "the host's service table is older than version 1.0");
  }
  if (!has_device && device >= 0) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("device {}: this backend has none, use -1", device));
  }
  return {};
}

Result<void> CheckGroupParams(const cotune_group_params_t& params, int ranks_max, int32_t device) {
  if (!COTUNE_HAS_FIELD(cotune_group_params_t, &params, deadline_ns)) {
    return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("group params.struct_size {} is smaller than "
                                                     "version 1.0",
                                                     params.struct_size));
  }
  if (params.world_size < 1 || params.world_size > ranks_max) {
    return Fail(params.world_size < 1 ? COTUNE_INVALID_ARGUMENT : COTUNE_UNSUPPORTED,
                fmt::format("world_size {} of a group: 1 to {} ranks can share memory",
                            params.world_size, ranks_max));
  }
  if (params.rank < 0 || params.rank >= params.world_size) {
    return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("rank {} is not in a group of {} ranks",
                                                     params.rank, params.world_size));
  }
  if (params.name == nullptr || params.name[0] == '\0' || std::strlen(params.name) > 200) {
    return Fail(COTUNE_INVALID_ARGUMENT, "a group needs a name of 1 to 200 characters");
  }
  if (params.job_ranks == nullptr) {
    return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("group '{}' has no job_ranks", params.name));
  }
  if (params.device != device) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("group '{}' is on device {}, this backend on device {}", params.name,
                            params.device, device));
  }
  return {};
}

Result<void> CheckOneHost(const cotune_group_params_t& params) {
  if (!COTUNE_HAS_FIELD(cotune_group_params_t, &params, host_of_rank)) return {};
  if (params.host_of_rank == nullptr) return {};
  const int32_t hosts =
      1 + *std::max_element(params.host_of_rank, params.host_of_rank + params.world_size);
  if (hosts == 1) return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("the {} ranks of group '{}' are on {} hosts: this backend works among "
                          "ranks of one host",
                          params.world_size, params.name, hosts));
}

Result<void> CheckWorldSize(int problem_ranks, int group_ranks) {
  if (problem_ranks == group_ranks) return {};
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("a problem of {} ranks in a group of {}", problem_ranks, group_ranks));
}

Result<void> WrongStreamKind(const cotune_launch_t& launch, uint32_t memory_kind) {
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("stream kind {}: this backend needs a {} stream", launch.stream.kind,
                          memory_kind == COTUNE_MEMORY_CUDA ? "CUDA" : "host"));
}

Result<void> NothingToProgress() {
  return Fail(
      COTUNE_INVALID_ARGUMENT,
      "operations on a GPU are complete when their stream is; there is nothing to progress");
}

}  // namespace cotune::sdk
