// The declarations of cuda_types.h equal those of NVIDIA's own header, which `./dev setup`
// installs.
#include "gpu/driver/cuda_types.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "gpu/driver/cuda_driver.h"

#if __has_include(<cuda.h>)
// Each version of a function has its own name, as in the library.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT(bugprone-reserved-identifier)
#include <cuda.h>
#define COTUNE_HAS_CUDA_HEADER 1
#endif

namespace cotune::gpu {
namespace {

#ifdef COTUNE_HAS_CUDA_HEADER
TEST(CudaTypesTest, EqualThoseOfTheHeader) {
  EXPECT_EQ(sizeof(CuLaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(CuLaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(CuLaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(CuLaunchConfig, attribute_count), offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(sizeof(CuLaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(CuLaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(CuMemAllocationProperties), sizeof(CUmemAllocationProp));
  EXPECT_EQ(offsetof(CuMemAllocationProperties, location), offsetof(CUmemAllocationProp, location));
  EXPECT_EQ(offsetof(CuMemAllocationProperties, gpu_direct_rdma_capable),
            offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
  EXPECT_EQ(sizeof(CuMemAccess), sizeof(CUmemAccessDesc));
  EXPECT_EQ(offsetof(CuMemAccess, flags), offsetof(CUmemAccessDesc, flags));
  EXPECT_EQ(sizeof(CuMemGenericHandle), sizeof(CUmemGenericAllocationHandle));
  EXPECT_EQ(int{kCuMemHandlePosixFd}, int{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  EXPECT_EQ(int{kCuMemAllocationPinned}, int{CU_MEM_ALLOCATION_TYPE_PINNED});
  EXPECT_EQ(int{kCuMemLocationDevice}, int{CU_MEM_LOCATION_TYPE_DEVICE});
  EXPECT_EQ(int{kCuMemGranularityRecommended}, int{CU_MEM_ALLOC_GRANULARITY_RECOMMENDED});
  EXPECT_EQ(int{kCuMemReadWrite}, int{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  EXPECT_EQ(int{kCuPosixFdHandlesSupported},
            int{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED});
  EXPECT_EQ(int{kCuGpuDirectRdmaWithVmmSupported},
            int{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED});
  EXPECT_EQ(sizeof(CuIpcMemHandle), sizeof(CUipcMemHandle));
  EXPECT_EQ(sizeof(CuUuid), sizeof(CUuuid));
  EXPECT_EQ(sizeof(CuDevicePointer), sizeof(CUdeviceptr));
  EXPECT_EQ(int{kCuLaunchProgrammaticStreamSerialization},
            int{CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
  EXPECT_EQ(int{kCuLaunchClusterDimension}, int{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION});
  EXPECT_EQ(int{kCuMultiprocessorCount}, int{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT});
  EXPECT_EQ(int{kCuL2CacheBytes}, int{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE});
  EXPECT_EQ(int{kCuComputeCapabilityMajor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
  EXPECT_EQ(int{kCuComputeCapabilityMinor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
  EXPECT_EQ(int{kCuClockRateKhz}, int{CU_DEVICE_ATTRIBUTE_CLOCK_RATE});
  EXPECT_EQ(int{kCuP2pPerformanceRank}, int{CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK});
  EXPECT_EQ(int{kCuFunctionRegisters}, int{CU_FUNC_ATTRIBUTE_NUM_REGS});
  EXPECT_EQ(int{kCuFunctionLocalBytes}, int{CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES});
  EXPECT_EQ(int{kCuPointerMemoryType}, int{CU_POINTER_ATTRIBUTE_MEMORY_TYPE});
  EXPECT_EQ(int{kCuPointerDeviceOrdinal}, int{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL});
  EXPECT_EQ(int{kCuPointerAllowedHandleTypes}, int{CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES});
  EXPECT_EQ(unsigned{kCuMemoryTypeDevice}, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(unsigned{kCuMemoryTypeHost}, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(int{kCuMemHandleNone}, int{CU_MEM_HANDLE_TYPE_NONE});
  EXPECT_EQ(int{kCuMemGranularityMinimum}, int{CU_MEM_ALLOC_GRANULARITY_MINIMUM});
  EXPECT_EQ(int{kCuSuccess}, int{CUDA_SUCCESS});
  EXPECT_EQ(int{kCuErrorOutOfMemory}, int{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(int{kCuErrorDeinitialized}, int{CUDA_ERROR_DEINITIALIZED});
  EXPECT_EQ(int{kCuErrorNoDevice}, int{CUDA_ERROR_NO_DEVICE});
  EXPECT_EQ(int{kCuErrorNotReady}, int{CUDA_ERROR_NOT_READY});
  EXPECT_EQ(int{kCuErrorStreamCaptureImplicit}, int{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT});
  EXPECT_EQ(int{kCuErrorPeerAccessAlreadyEnabled}, int{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED});
  EXPECT_EQ(int{kCuCaptureGlobal}, int{CU_STREAM_CAPTURE_MODE_GLOBAL});
  EXPECT_EQ(int{kCuCaptureThreadLocal}, int{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL});
  EXPECT_EQ(int{kCuCaptureRelaxed}, int{CU_STREAM_CAPTURE_MODE_RELAXED});
  EXPECT_EQ(int{kCuCaptureActive}, int{CU_STREAM_CAPTURE_STATUS_ACTIVE});
  EXPECT_EQ(int{kCuCaptureNone}, int{CU_STREAM_CAPTURE_STATUS_NONE});
  EXPECT_EQ(unsigned{kCuStreamNonBlocking}, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(unsigned{kCuEventDisableTiming}, unsigned{CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(unsigned{kCuIpcLazyEnablePeerAccess}, unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS});
  EXPECT_EQ(unsigned{kCuHostAllocDeviceMap}, unsigned{CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_EQ(unsigned{kCuHostAllocPortable}, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  EXPECT_EQ(unsigned{kCuHostRegisterDeviceMap}, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP});
  EXPECT_EQ(unsigned{kCuHostRegisterPortable}, unsigned{CU_MEMHOSTREGISTER_PORTABLE});
  EXPECT_EQ(unsigned{kCuUserObjectNoDestructorSync}, unsigned{CU_USER_OBJECT_NO_DESTRUCTOR_SYNC});
  EXPECT_EQ(unsigned{kCuGraphUserObjectMove}, unsigned{CU_GRAPH_USER_OBJECT_MOVE});
  EXPECT_TRUE((std::is_same_v<CuHostFunction, CUhostFn>));
}

// Returns true if a call through our type passes the arguments that theirs takes.
template <typename... Ours, typename... Theirs>
constexpr bool TakeTheSame(CuResult (*)(Ours...), CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return ((sizeof(Ours) == sizeof(Theirs) &&
             std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
  }
}

TEST(CudaDriverTest, FunctionsTakeTheArgumentsOfTheHeader) {
#define COTUNE_COMPARE(member, symbol, arguments)                                            \
  EXPECT_TRUE(TakeTheSame(decltype(CudaDriver::Functions::member){}, decltype(&::symbol){})) \
      << #symbol;
  COTUNE_CUDA_DRIVER_FUNCTIONS(COTUNE_COMPARE)
#undef COTUNE_COMPARE
}
#else
TEST(CudaTypesTest, EqualThoseOfTheHeader) {
  GTEST_SKIP() << "cuda.h is not on this machine; ./dev setup installs it";
}
#endif

TEST(CudaDriverTest, SaysWhyItCannotBeOpened) {
  const auto missing = CudaDriver::Open("libno_such_driver.so.1");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, -1);
  EXPECT_NE(missing.error().text.find("libno_such_driver.so.1"), std::string::npos);
  EXPECT_NE(missing.error().text.find("no NVIDIA driver"), std::string::npos);
  // A library that is no driver.
  const auto other = CudaDriver::Open("libm.so.6");
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().text.find("lacks cuInit"), std::string::npos) << other.error().text;
}

}  // namespace
}  // namespace cotune::gpu
