#include "gpu/device/buffer_compare.h"

#include <array>
#include <cstring>

#include "gpu/device/driver_status.h"

namespace cotune::gpu {
namespace {

constexpr uint64_t kPackBytes = 16;
constexpr unsigned int kBlocks = 256;
constexpr unsigned int kThreads = 256;

// Thread i compares packs of 16 bytes i, i + all threads, ... and sets the word when any differ. In
// PTX because the driver alone compiles that, and every GPU since sm_80 runs it.
constexpr char kComparePtx[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry cotune_compare(
  .param .u64 p_left, .param .u64 p_right, .param .u64 p_packs, .param .u64 p_differs)
{
  .reg .pred %done, %unequal;
  .reg .b32 %thread, %block, %threads, %blocks, %l0, %l1, %l2, %l3, %r0, %r1, %r2, %r3, %one;
  .reg .b64 %left, %right, %packs, %differs, %i, %stride, %offset, %from;
  ld.param.u64 %left, [p_left];
  ld.param.u64 %right, [p_right];
  ld.param.u64 %packs, [p_packs];
  ld.param.u64 %differs, [p_differs];
  mov.u32 %thread, %tid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %blocks, %nctaid.x;
  mov.u32 %one, 1;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %offset, %thread;
  add.u64 %i, %i, %offset;
  mul.wide.u32 %stride, %blocks, %threads;
NEXT:
  setp.ge.u64 %done, %i, %packs;
  @%done bra END;
  shl.b64 %offset, %i, 4;
  add.u64 %from, %left, %offset;
  ld.global.v4.u32 {%l0, %l1, %l2, %l3}, [%from];
  add.u64 %from, %right, %offset;
  ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%from];
  xor.b32 %l0, %l0, %r0;
  xor.b32 %l1, %l1, %r1;
  xor.b32 %l2, %l2, %r2;
  xor.b32 %l3, %l3, %r3;
  or.b32 %l0, %l0, %l1;
  or.b32 %l2, %l2, %l3;
  or.b32 %l0, %l0, %l2;
  setp.ne.u32 %unequal, %l0, 0;
  @%unequal st.volatile.global.u32 [%differs], %one;
  add.u64 %i, %i, %stride;
  bra NEXT;
END:
  ret;
}
)ptx";

}  // namespace

Result<std::unique_ptr<BufferCompare>> BufferCompare::Create(const CudaDriver& driver) {
  std::unique_ptr<BufferCompare> made(new BufferCompare(driver));
  const auto check = [&](CuResult code, const char* call) { return Checked(driver, code, call); };
  Status done = check(driver->ModuleLoadData(&made->module_, kComparePtx), "cuModuleLoadData");
  if (done) {
    done = check(driver->ModuleGetFunction(&made->kernel_, made->module_, "cotune_compare"),
                 "cuModuleGetFunction");
  }
  void* word = nullptr;
  if (done) {
    done = check(driver->HostAllocate(&word, sizeof(uint32_t), kCuHostAllocDeviceMap),
                 "cuMemHostAlloc");
    made->differs_ = static_cast<volatile uint32_t*>(word);
  }
  if (done) {
    done = check(driver->HostGetDevicePointer(&made->differs_on_device_, word, 0),
                 "cuMemHostGetDevicePointer");
  }
  COTUNE_RETURN_IF_ERROR(done);
  return made;
}

BufferCompare::~BufferCompare() {
  if (module_ != nullptr) driver_->ModuleUnload(module_);
  if (differs_ != nullptr) driver_->HostFree(const_cast<uint32_t*>(differs_));
}

void BufferCompare::Abandon() {
  module_ = nullptr;
  differs_ = nullptr;
}

Result<bool> BufferCompare::Equal(CudaStream& stream, CuDevicePointer left, CuDevicePointer right,
                                  uint64_t bytes, int64_t deadline_ns) {
  *differs_ = 0;
  uint64_t packs = bytes / kPackBytes;
  void* arguments[] = {&left, &right, &packs, &differs_on_device_};
  const CuLaunchConfig config{kBlocks, 1, 1, kThreads, 1, 1, 0, stream.handle(), nullptr, 0};
  Status done = Checked(driver_, driver_->LaunchKernel(&config, kernel_, arguments, nullptr),
                        "cuLaunchKernelEx");
  if (done) done = stream.AwaitEnd(deadline_ns);
  COTUNE_RETURN_IF_ERROR(done);
  if (*differs_ != 0) return false;
  // The rest is less than a pack.
  const uint64_t rest = bytes % kPackBytes;
  if (rest == 0) return true;
  std::array<std::byte, kPackBytes> left_rest{};
  std::array<std::byte, kPackBytes> right_rest{};
  done = stream.Read(left_rest.data(), left + bytes - rest, rest, deadline_ns);
  if (done) done = stream.Read(right_rest.data(), right + bytes - rest, rest, deadline_ns);
  COTUNE_RETURN_IF_ERROR(done);
  return left_rest == right_rest;
}

}  // namespace cotune::gpu
