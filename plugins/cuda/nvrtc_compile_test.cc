// Compiles the kernels as the plugin does, for every architecture that it meets. Needs NVRTC and no
// GPU: COTUNE_NVRTC names the library, else it is looked for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "gpu/driver/library_search.h"
#include "plugins/cuda/kernel_spec.h"
#include "plugins/cuda/nvrtc.h"

namespace cotune::cuda {
namespace {

using border::Collective;
using border::ElementType;

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};
constexpr int kWorlds[] = {2, 3, 4, 8};
constexpr int kThreads[] = {256, 512};
constexpr int kUnrolls[] = {1, 2, 4};

bool HasRounds(Transport transport) {
  return transport == Transport::kFlagged || transport == Transport::kZeroCopy;
}

bool Exists(const KernelSpec& spec) {
  const bool is_all_reduce = spec.collective == Collective::kAllReduce;
  if (is_all_reduce == (spec.algorithm == Algorithm::kDirect)) return false;
  const bool reduces = is_all_reduce || spec.collective == Collective::kReduceScatter;
  if (!reduces && spec.reduction != border::Reduction::kSum) return false;
  const bool is_lamport_type = spec.type == ElementType::kF32 || border::IsNarrowFloat(spec.type);
  if (spec.transport == Transport::kBits) return !reduces;
  if (HasRounds(spec.transport)) return spec.algorithm != Algorithm::kOneShot;
  return spec.transport == Transport::kLl || (reduces && is_lamport_type);
}

struct Shape {
  int world_size;
  int threads;
  int unroll;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const int unroll : kUnrolls) {
    for (const int threads : kThreads) {
      for (const int world : kWorlds) shapes.push_back({world, threads, unroll});
    }
  }
  return shapes;
}

// Every kernel with every transport, type and reduction. Worlds, threads and unrolling take turns,
// another one for each architecture (`first_turn`): all of them together would take an hour.
std::vector<KernelSpec> KernelSpecs(size_t first_turn) {
  const std::vector<Shape> shapes = Shapes();
  std::vector<KernelSpec> specs;
  size_t turn = first_turn;
  const auto add = [&](KernelSpec spec) {
    if (!Exists(spec)) return;
    const Shape& shape = shapes[turn++ % shapes.size()];
    spec.world_size = shape.world_size;
    spec.threads = shape.threads;
    spec.unroll = shape.unroll;
    specs.push_back(spec);
  };
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm :
         {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kDirect}) {
      for (const Transport transport : {Transport::kLamport, Transport::kLl, Transport::kBits,
                                        Transport::kFlagged, Transport::kZeroCopy}) {
        for (const ElementType type : border::kElementTypes) {
          for (const border::Reduction reduction : border::kReductions) {
            add({collective, algorithm, transport, type, reduction});
          }
        }
      }
    }
  }
  return specs;
}

std::optional<Nvrtc> FindNvrtc() {
  const char* named = std::getenv("COTUNE_NVRTC");
  auto nvrtc = Nvrtc::Open(named == nullptr ? "" : named, gpu::OwnEnvironment());
  if (!nvrtc.has_value()) return std::nullopt;
  return *nvrtc;
}

class NvrtcCompileTest : public testing::TestWithParam<const char*> {};

TEST_P(NvrtcCompileTest, EveryKernel) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const std::string architecture = GetParam();
  const size_t first_turn = architecture == "sm_80" ? 0 : architecture == "sm_90" ? 7 : 15;
  const std::vector<KernelSpec> specs = KernelSpecs(first_turn);
  // 10 pairs of transport and type, 5 reductions, 3 kernels that reduce; 7 types, 3 that move.
  // Of "flagged" and "zero_copy" 7 types, 5 reductions, 2 kernels; 7 types, 3 kernels.
  // Of "bits" 7 types, 3 kernels.
  ASSERT_EQ(specs.size(), 10u * 5 * 3 + 7 * 3 + 7 * 3 + 2 * (7 * 5 * 2 + 7 * 3));
  for (KernelSpec spec : specs) {
    spec.uses_pdl = architecture != "sm_80";
    const auto cubin = nvrtc->Compile(SourceOf(spec), architecture, NvrtcOptions(spec));
    std::string options;
    for (const std::string& option : NvrtcOptions(spec)) options += " " + option;
    ASSERT_TRUE(cubin.has_value()) << cubin.error().message << options;
    ASSERT_NE(cubin->find(kKernelSymbol), std::string::npos) << options;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcCompileTest,
                         testing::Values("sm_80", "sm_90", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cotune::cuda
