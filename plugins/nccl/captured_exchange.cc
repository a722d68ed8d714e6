#include "plugins/nccl/captured_exchange.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "plugins/nccl/nccl_library.h"

namespace cotune::nccl {
namespace {

constexpr int kFirstVersion = 22300;
constexpr uint64_t kLargestLlBlockBytes = uint64_t{16} << 10;

}  // namespace

GraphRegistration GraphRegistration::OfProcess(int nccl_version) {
  const char* is_on = getenv("NCCL_GRAPH_REGISTER");
  const char* threshold = getenv("NCCL_P2P_LL_THRESHOLD");
  const bool is_named_off =
      is_on != nullptr && *is_on != '\0' && strtoll(is_on, nullptr, /*base=*/0) == 0;
  return {.nccl_version = nccl_version,
          .is_on = !is_named_off,
          .has_default_ll_threshold = threshold == nullptr || *threshold == '\0'};
}

HandleKinds HandleKindsOf(const gpu::CudaDriver& driver, const void* buffer) {
  HandleKinds kinds = 0;
  const gpu::CuResult code = driver->PointerGetAttribute(
      &kinds, gpu::kCuPointerAllowedHandleTypes, reinterpret_cast<gpu::CuDevicePointer>(buffer));
  return code == gpu::kCuSuccess ? kinds : 0;
}

std::string WhyNotCaptured(const Problem& problem, const GraphRegistration& registration,
                           HandleKinds send, HandleKinds receive) {
  if (problem.collective != Collective::kAllToAll || problem.world_size == 1) return "";
  if (registration.nccl_version < kFirstVersion || !registration.is_on) return "";
  const uint64_t block_bytes = problem.count * sdk::ElementBytes(problem.type);
  const uint64_t ll_bytes = registration.has_default_ll_threshold ? kLargestLlBlockBytes : 0;
  if (block_bytes <= ll_bytes || send == receive) return "";
  return fmt::format(
      "NCCL {} hangs in a captured all_to_all if only one of the buffers is memory that peers can "
      "map (registered memory); use both or none of that kind, or NCCL_GRAPH_REGISTER=0",
      VersionText(registration.nccl_version));
}

}  // namespace cotune::nccl
