// The declarations of nccl_abi.h equal those of NVIDIA's own header, which `./dev setup` installs.
#include "plugins/nccl/nccl_abi.h"

#include <gtest/gtest.h>

#include <type_traits>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define COTUNE_HAS_NCCL_HEADER 1
#endif

namespace cotune::nccl {
namespace {

// The tuner interface consists of pointers only in every supported version.
TEST(NcclAbiTest, TunerTablesAreFourPointers) {
  EXPECT_EQ(sizeof(TunerV3), 4 * sizeof(void*));
  EXPECT_EQ(sizeof(TunerV4), 4 * sizeof(void*));
  EXPECT_EQ(sizeof(TunerV5), 4 * sizeof(void*));
}

#ifdef COTUNE_HAS_NCCL_HEADER
TEST(NcclAbiTest, ConstantsEqualThoseOfTheHeader) {
  EXPECT_EQ(kNcclSuccess, static_cast<int>(ncclSuccess));
  EXPECT_EQ(kNcclUnhandledCudaError, static_cast<int>(ncclUnhandledCudaError));
  EXPECT_EQ(kNcclSystemError, static_cast<int>(ncclSystemError));
  EXPECT_EQ(kNcclInternalError, static_cast<int>(ncclInternalError));
  EXPECT_EQ(kNcclInvalidArgument, static_cast<int>(ncclInvalidArgument));
  EXPECT_EQ(kNcclInvalidUsage, static_cast<int>(ncclInvalidUsage));
  EXPECT_EQ(kNcclRemoteError, static_cast<int>(ncclRemoteError));
  EXPECT_EQ(kNcclInProgress, static_cast<int>(ncclInProgress));
  EXPECT_EQ(kNcclUint8, static_cast<int>(ncclUint8));
  EXPECT_EQ(kNcclInt32, static_cast<int>(ncclInt32));
  EXPECT_EQ(kNcclInt64, static_cast<int>(ncclInt64));
  EXPECT_EQ(kNcclFloat16, static_cast<int>(ncclFloat16));
  EXPECT_EQ(kNcclFloat32, static_cast<int>(ncclFloat32));
  EXPECT_EQ(kNcclFloat64, static_cast<int>(ncclFloat64));
  EXPECT_EQ(kNcclBfloat16, static_cast<int>(ncclBfloat16));
  EXPECT_EQ(kNcclSum, static_cast<int>(ncclSum));
  EXPECT_EQ(kNcclProd, static_cast<int>(ncclProd));
  EXPECT_EQ(kNcclMax, static_cast<int>(ncclMax));
  EXPECT_EQ(kNcclMin, static_cast<int>(ncclMin));
  EXPECT_EQ(kNcclAvg, static_cast<int>(ncclAvg));
  EXPECT_EQ(sizeof(NcclUniqueId), sizeof(ncclUniqueId));
}

TEST(NcclAbiTest, TheConfigurationEqualsTheHeadersInitialiser) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(offsetof(NcclConfig, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclConfig, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  EXPECT_EQ(offsetof(NcclConfig, comm_name), offsetof(ncclConfig_t, commName));
  EXPECT_EQ(offsetof(NcclConfig, nvls_ctas), offsetof(ncclConfig_t, nvlsCTAs));
  EXPECT_EQ(offsetof(NcclConfig, nvlink_centric_sched), offsetof(ncclConfig_t, nvlinkCentricSched));
  EXPECT_EQ(kNcclWinCollSymmetric, NCCL_WIN_COLL_SYMMETRIC);
  EXPECT_EQ(kNcclWinAlignment, static_cast<size_t>(NCCL_WIN_REQUIRED_ALIGNMENT));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
  EXPECT_EQ(sizeof(NcclConfig), sizeof(ncclConfig_t));
#endif
}

// Returns true if a call through our type passes the arguments that theirs takes.
template <typename... Ours, typename... Theirs>
constexpr bool TakeTheSame(NcclResult (*)(Ours...), ncclResult_t (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return ((sizeof(Ours) == sizeof(Theirs) &&
             std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
  }
}

TEST(NcclAbiTest, FunctionsTakeTheArgumentsOfTheHeader) {
#define COTUNE_COMPARE(member, symbol, arguments) \
  EXPECT_TRUE(TakeTheSame(decltype(NcclFunctions::member){}, decltype(&::symbol){})) << #symbol;
  COTUNE_NCCL_FUNCTIONS(COTUNE_COMPARE)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  COTUNE_NCCL_WINDOW_FUNCTIONS(COTUNE_COMPARE)
#endif
#undef COTUNE_COMPARE
}
#else
TEST(NcclAbiTest, EqualsTheHeader) {
  GTEST_SKIP() << "nccl.h and cuda_runtime.h are not on this machine; ./dev setup installs them";
}
#endif

}  // namespace
}  // namespace cotune::nccl
