// The kernels of this backend, a row a family: all that other code has to know of one. A new family
// is a row here and a file in kernels/.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_KERNEL_FAMILIES_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_KERNEL_FAMILIES_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plugins/cuda/choices/shape.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// How a call is enqueued (group/plan.h).
enum class Launch : uint8_t {
  kKernel,    // one kernel
  kCopies,    // copy engines between launches of a kernel that is a barrier of the ranks
  kSegments,  // the same in segments, which a kernel adds up
};

// The callers' buffers that a family reaches on its peers. They have to be registered.
enum class PeerBuffers : uint8_t {
  kNone,
  kSend,
  kReceive,
  kBoth,
  kBothOrReceiveInPlace,  // only those of receives where the call is in place
};

// Why a problem is not for a family; "": it is. Pure, for two ranks or more.
using Rule = std::string (*)(const sdk::Problem& problem);

// All kernels of one source that do one collective and differ only in shape, type and reduction.
struct KernelFamily {
  sdk::Collective collective;
  // The choices are named "algorithm?...&transport=...". The kernel also gets the transport as an
  // option of the compiler.
  std::string_view algorithm;
  std::string_view transport;
  std::string_view source;  // in kernels/
  Shares shares;
  const ShapeModel& model;
  std::array<Rule, 3> rules;  // the first that gives a reason counts; what follows nullptr does not
  // Also keeps a problem out of the list; choices that are asked for by name run all the same.
  // nullptr: nothing does.
  Rule listing_rule = nullptr;
  PeerBuffers peer_buffers = PeerBuffers::kNone;
  Launch launch = Launch::kKernel;
};

// In the order in which choices are listed.
std::span<const KernelFamily> KernelFamilies();

// Why the family does not run the problem, by its rules; "": it runs it. Pure.
std::string RefusalOf(const KernelFamily& family, const sdk::Problem& problem);
// The same, or why it is not worth listing.
std::string ListingRefusalOf(const KernelFamily& family, const sdk::Problem& problem);

bool ReachesPeerSends(const KernelFamily& family, const sdk::Problem& problem);
bool ReachesPeerReceives(const KernelFamily& family);

// The kernel for a problem, without a shape.
KernelSpec SpecOf(const KernelFamily& family, const sdk::Problem& problem);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_KERNEL_FAMILIES_H_
