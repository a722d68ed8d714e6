// The part of the CUDA driver's ABI that cotune uses. Declared here, so that building needs no CUDA
// toolkit; cuda_types_test compares it with cuda.h, which `./dev setup` installs.
#ifndef COTUNE_GPU_DRIVER_CUDA_TYPES_H_
#define COTUNE_GPU_DRIVER_CUDA_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace cotune::gpu {

using CuResult = int;
using CuDevice = int;
using CuDevicePointer = unsigned long long;
using CuContext = struct CuContextOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuGraph = struct CuGraphOpaque*;
using CuGraphExec = struct CuGraphExecOpaque*;
using CuUserObject = struct CuUserObjectOpaque*;
using CuHostFunction = void (*)(void* data);
using CuMemGenericHandle = unsigned long long;

struct CuUuid {
  unsigned char bytes[16];
};
struct CuIpcMemHandle {
  unsigned char reserved[64];
};

enum : CuResult {
  kCuSuccess = 0,
  kCuErrorOutOfMemory = 2,
  kCuErrorDeinitialized = 4,
  kCuErrorNoDevice = 100,
  kCuErrorPeerAccessAlreadyEnabled = 704,
  kCuErrorNotReady = 600,
  kCuErrorStreamCaptureImplicit = 906,
};

// CUdevice_attribute.
enum CuDeviceAttribute : int {
  kCuMultiprocessorCount = 16,
  kCuL2CacheBytes = 38,
  kCuComputeCapabilityMajor = 75,
  kCuComputeCapabilityMinor = 76,
  kCuClockRateKhz = 13,
  kCuPosixFdHandlesSupported = 103,
  kCuGpuDirectRdmaWithVmmSupported = 110,
};

// CUdevice_P2PAttribute.
enum CuP2pAttribute : int { kCuP2pPerformanceRank = 1 };

// CUfunction_attribute.
enum CuFunctionAttribute : int { kCuFunctionRegisters = 4, kCuFunctionLocalBytes = 3 };

// CUpointer_attribute.
enum CuPointerAttribute : int {
  kCuPointerMemoryType = 2,
  kCuPointerDeviceOrdinal = 9,
  kCuPointerAllowedHandleTypes = 14
};
enum CuMemoryType : unsigned int { kCuMemoryTypeHost = 1, kCuMemoryTypeDevice = 2 };

// Memory that is reserved, created and mapped in steps.
enum CuMemHandleType : int { kCuMemHandleNone = 0, kCuMemHandlePosixFd = 1 };
enum CuMemAllocationType : int { kCuMemAllocationPinned = 1 };
enum CuMemLocationType : int { kCuMemLocationDevice = 1 };
enum CuMemGranularity : int { kCuMemGranularityMinimum = 0, kCuMemGranularityRecommended = 1 };
enum CuMemAccessFlags : int { kCuMemReadWrite = 3 };
struct CuMemLocation {
  CuMemLocationType type;
  int id;  // ordinal of a device
};
struct CuMemAllocationProperties {
  CuMemAllocationType type;
  CuMemHandleType requested_handle_types;
  CuMemLocation location;
  void* windows_metadata;
  unsigned char compression_type;
  unsigned char gpu_direct_rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
struct CuMemAccess {
  CuMemLocation location;
  CuMemAccessFlags flags;
};

// Flags.
enum : unsigned int {
  kCuHostAllocPortable = 1,
  kCuHostAllocDeviceMap = 2,
  kCuHostRegisterPortable = 1,
  kCuHostRegisterDeviceMap = 2,
  kCuStreamNonBlocking = 1,
  kCuEventDisableTiming = 2,
  kCuIpcLazyEnablePeerAccess = 1,
  kCuUserObjectNoDestructorSync = 1,
  kCuGraphUserObjectMove = 1,
};
enum CuStreamCaptureMode : int {
  kCuCaptureGlobal = 0,
  kCuCaptureThreadLocal = 1,
  kCuCaptureRelaxed = 2
};
enum CuStreamCaptureStatus : int { kCuCaptureNone = 0, kCuCaptureActive = 1 };

// CUlaunchAttribute: an id, padding up to 8 bytes, and a union of 64 bytes.
enum CuLaunchAttributeId : int {
  kCuLaunchClusterDimension = 4,
  kCuLaunchProgrammaticStreamSerialization = 6
};
struct CuLaunchAttribute {
  int id;
  int padding;
  union {
    unsigned char bytes[64];
    struct {
      unsigned int x, y, z;
    } cluster_blocks;
    int programmatic_stream_serialization_allowed;
  } value;
};
struct CuLaunchConfig {
  unsigned int grid_x, grid_y, grid_z;
  unsigned int block_x, block_y, block_z;
  unsigned int shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned int attribute_count;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_CUDA_TYPES_H_
