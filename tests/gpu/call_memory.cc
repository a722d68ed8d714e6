#include "tests/gpu/call_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cotune::gputest {
namespace {

constexpr char kSpinPtx[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry cotune_spin(.param .u64 p_duration_ns)
{
  .reg .pred %more;
  .reg .b64 %duration, %begin, %now, %spent;
  ld.param.u64 %duration, [p_duration_ns];
  mov.u64 %begin, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %spent, %now, %begin;
  setp.lt.u64 %more, %spent, %duration;
  @%more bra AGAIN;
  ret;
}
)ptx";

}  // namespace

Result<std::unique_ptr<CallMemory>> CallMemory::Open(int ordinal) {
  std::unique_ptr<CallMemory> memory(new CallMemory());
  if (ordinal < 0) return memory;
  gpu::DriverResult<gpu::CudaDriver> driver = gpu::CudaDriver::Open();
  if (!driver) return Fail(ErrorCode::kEnvironment, driver.error().text);
  memory->driver_ = *driver;
  const gpu::CudaDriver& functions = *memory->driver_;
  Status opened = memory->Check(functions->DeviceGet(&memory->device_, ordinal), "cuDeviceGet");
  if (opened) {
    opened = memory->Check(functions->PrimaryContextRetain(&memory->context_, memory->device_),
                           "cuDevicePrimaryCtxRetain");
  }
  if (opened) {
    opened = memory->Check(functions->ContextSetCurrent(memory->context_), "cuCtxSetCurrent");
  }
  COTUNE_RETURN_IF_ERROR(opened);
  return memory;
}

CallMemory::~CallMemory() {
  if (!driver_) return;
  for (gpu::CuStream stream : streams_) (*driver_)->StreamDestroy(stream);
  for (gpu::CuModule module : modules_) (*driver_)->ModuleUnload(module);
  for (gpu::CuDevicePointer pointer : allocated_) (*driver_)->MemoryFree(pointer);
  for (const auto& [data, bytes] : mapped_) {
    (*driver_)->MemoryUnmap(data, bytes);
    (*driver_)->MemoryUnreserve(data, bytes);
  }
  if (context_ != nullptr) (*driver_)->PrimaryContextRelease(device_);
}

Status CallMemory::Check(gpu::CuResult code, const char* call) const {
  const gpu::DriverResult<void> checked = driver_->Check(code, call);
  if (checked) return {};
  return Fail(ErrorCode::kEnvironment, checked.error().text);
}

Result<void*> CallMemory::Allocate(uint64_t bytes) {
  if (!is_cuda()) {
    on_host_.push_back(std::make_unique<std::byte[]>(bytes));
    return on_host_.back().get();
  }
  gpu::CuDevicePointer pointer = 0;
  COTUNE_RETURN_IF_ERROR(
      Check((*driver_)->MemoryAllocate(&pointer, std::max<uint64_t>(bytes, 1)), "cuMemAlloc"));
  allocated_.push_back(pointer);
  return reinterpret_cast<void*>(pointer);
}

Result<void*> CallMemory::AllocateMapped(uint64_t bytes) {
  gpu::CuMemAllocationProperties properties{};
  properties.type = gpu::kCuMemAllocationPinned;
  properties.requested_handle_types = gpu::kCuMemHandlePosixFd;
  properties.location = {gpu::kCuMemLocationDevice, device_};
  const gpu::CudaDriver& driver = *driver_;
  size_t granularity = 0;
  COTUNE_RETURN_IF_ERROR(Check(
      driver->MemoryGetGranularity(&granularity, &properties, gpu::kCuMemGranularityRecommended),
      "cuMemGetAllocationGranularity"));
  const uint64_t mapped_bytes =
      (std::max<uint64_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  gpu::CuMemGenericHandle handle = 0;
  gpu::CuDevicePointer data = 0;
  COTUNE_RETURN_IF_ERROR(
      Check(driver->MemoryCreate(&handle, mapped_bytes, &properties, 0), "cuMemCreate"));
  COTUNE_RETURN_IF_ERROR(
      Check(driver->MemoryReserve(&data, mapped_bytes, granularity, 0, 0), "cuMemAddressReserve"));
  COTUNE_RETURN_IF_ERROR(Check(driver->MemoryMap(data, mapped_bytes, 0, handle, 0), "cuMemMap"));
  mapped_.emplace_back(data, mapped_bytes);
  COTUNE_RETURN_IF_ERROR(Check(driver->MemoryRelease(handle), "cuMemRelease"));
  const gpu::CuMemAccess access{{gpu::kCuMemLocationDevice, device_}, gpu::kCuMemReadWrite};
  COTUNE_RETURN_IF_ERROR(
      Check(driver->MemorySetAccess(data, mapped_bytes, &access, 1), "cuMemSetAccess"));
  return reinterpret_cast<void*>(data);
}

Result<uint64_t> CallMemory::FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  COTUNE_RETURN_IF_ERROR(
      Check((*driver_)->MemoryGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo"));
  return uint64_t{free_bytes};
}

Status CallMemory::Write(void* to, std::span<const std::byte> data) {
  if (!is_cuda()) {
    std::memcpy(to, data.data(), data.size());
    return {};
  }
  const auto pointer = reinterpret_cast<gpu::CuDevicePointer>(to);
  if (Status s = Check((*driver_)->CopyToDevice(pointer, data.data(), data.size()), "cuMemcpyHtoD");
      !s) {
    return s;
  }
  // A copy from pageable memory may still be on its way, and streams do not wait for it.
  return Check((*driver_)->ContextSynchronize(), "cuCtxSynchronize");
}

Result<std::vector<std::byte>> CallMemory::Read(const void* from, uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  if (!is_cuda()) {
    std::memcpy(data.data(), from, bytes);
    return data;
  }
  const auto pointer = reinterpret_cast<gpu::CuDevicePointer>(from);
  COTUNE_RETURN_IF_ERROR(
      Check((*driver_)->CopyToHost(data.data(), pointer, bytes), "cuMemcpyDtoH"));
  return data;
}

Result<void*> CallMemory::MakeStream() {
  if (!is_cuda()) return nullptr;
  gpu::CuStream stream = nullptr;
  COTUNE_RETURN_IF_ERROR(
      Check((*driver_)->StreamCreate(&stream, gpu::kCuStreamNonBlocking), "cuStreamCreate"));
  streams_.push_back(stream);
  return stream;
}

Result<bool> CallMemory::IsDone(void* stream) {
  if (!is_cuda()) return true;
  const gpu::CuResult code = (*driver_)->StreamQuery(static_cast<gpu::CuStream>(stream));
  if (code == gpu::kCuSuccess) return true;
  if (code == gpu::kCuErrorNotReady) return false;
  return Propagate(Check(code, "what the stream holds"));
}

Status CallMemory::Synchronize(void* stream) {
  if (!is_cuda()) return {};
  return Check((*driver_)->StreamSynchronize(static_cast<gpu::CuStream>(stream)),
               "cuStreamSynchronize");
}

Status CallMemory::Spin(void* stream, int64_t duration_ns) {
  gpu::CuModule module = nullptr;
  if (Status s = Check((*driver_)->ModuleLoadData(&module, kSpinPtx), "cuModuleLoadData"); !s) {
    return s;
  }
  modules_.push_back(module);
  gpu::CuFunction kernel = nullptr;
  if (Status s = Check((*driver_)->ModuleGetFunction(&kernel, module, "cotune_spin"),
                       "cuModuleGetFunction");
      !s) {
    return s;
  }
  void* arguments[] = {&duration_ns};
  const gpu::CuLaunchConfig config{1,       1, 1, 1, 1, 1, 0, static_cast<gpu::CuStream>(stream),
                                   nullptr, 0};
  return Check((*driver_)->LaunchKernel(&config, kernel, arguments, nullptr), "cuLaunchKernelEx");
}

Result<CallMemory::Replay> CallMemory::Capture(void* stream,
                                               const std::function<Status()>& enqueue) {
  if (!is_cuda()) return enqueue;
  auto* captured = static_cast<gpu::CuStream>(stream);
  COTUNE_RETURN_IF_ERROR(Check((*driver_)->StreamBeginCapture(captured, gpu::kCuCaptureThreadLocal),
                               "cuStreamBeginCapture"));
  const Status enqueued = enqueue();
  gpu::CuGraph graph = nullptr;
  const Status ended = Check((*driver_)->StreamEndCapture(captured, &graph), "cuStreamEndCapture");
  COTUNE_RETURN_IF_ERROR(enqueued);
  COTUNE_RETURN_IF_ERROR(ended);
  gpu::CuGraphExec exec = nullptr;
  const Status made =
      Check((*driver_)->GraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  (*driver_)->GraphDestroy(graph);
  COTUNE_RETURN_IF_ERROR(made);
  const std::shared_ptr<void> owned(exec, [driver = *driver_](void* handle) {
    driver->GraphExecDestroy(static_cast<gpu::CuGraphExec>(handle));
  });
  return [this, owned, captured]() -> Status {
    return Check((*driver_)->GraphLaunch(static_cast<gpu::CuGraphExec>(owned.get()), captured),
                 "cuGraphLaunch");
  };
}

}  // namespace cotune::gputest
