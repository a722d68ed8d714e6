#include "gpu/device/rank_alignment.h"

#include <cstring>

#include "fmt/format.h"
#include "gpu/device/driver_status.h"

namespace cotune::gpu {
namespace {

// Thread t of one block: waits for the host's word, writes the moment into this rank's flag on rank
// t, and waits for rank t's flag here. In PTX because the driver alone compiles that, and every GPU
// since sm_80 runs it. Volatile accesses are relaxed ones of system scope, which is all that is
// needed: no data is ordered by them.
constexpr char kAlignPtx[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry cotune_align(
  .param .u64 p_table, .param .u64 p_own, .param .u64 p_host_words,
  .param .u64 p_moment, .param .u64 p_timeout_ns, .param .u32 p_rank)
{
  .reg .pred %late, %come;
  .reg .b32 %rank, %thread;
  .reg .b64 %table, %own, %host, %timeout, %begin, %now, %waited, %offset, %peer, %moment, %seen, %reason;
  ld.param.u64 %table, [p_table];
  ld.param.u64 %own, [p_own];
  ld.param.u64 %host, [p_host_words];
  ld.param.u32 %rank, [p_rank];
  ld.param.u64 %moment, [p_moment];
  ld.param.u64 %timeout, [p_timeout_ns];
  mov.u32 %thread, %tid.x;
  mov.u64 %begin, %globaltimer;
WAIT_HOST:
  ld.volatile.global.u64 %seen, [%host];
  setp.ge.u64 %come, %seen, %moment;
  @%come bra SIGNAL;
  mov.u64 %now, %globaltimer;
  sub.u64 %waited, %now, %begin;
  setp.gt.u64 %late, %waited, %timeout;
  @!%late bra WAIT_HOST;
  bra DONE;
SIGNAL:
  mul.wide.u32 %offset, %thread, 8;
  add.u64 %peer, %table, %offset;
  ld.global.u64 %peer, [%peer];
  mul.wide.u32 %offset, %rank, 8;
  add.u64 %peer, %peer, %offset;
  st.volatile.global.u64 [%peer], %moment;
  mul.wide.u32 %offset, %thread, 8;
  add.u64 %own, %own, %offset;
WAIT_PEER:
  ld.volatile.global.u64 %seen, [%own];
  setp.ge.u64 %come, %seen, %moment;
  @%come bra DONE;
  mov.u64 %now, %globaltimer;
  sub.u64 %waited, %now, %begin;
  setp.gt.u64 %late, %waited, %timeout;
  @!%late bra WAIT_PEER;
  cvt.u64.u32 %reason, %thread;
  add.u64 %reason, %reason, 1;
  st.volatile.global.u64 [%host+8], %reason;
DONE:
  ret;
}
)ptx";

}  // namespace

Result<std::unique_ptr<RankAlignment>> RankAlignment::Create(const CudaDriver& driver,
                                                             CudaStream& stream,
                                                             RankExchange& exchange,
                                                             int64_t deadline_ns) {
  std::unique_ptr<RankAlignment> made(new RankAlignment(driver));
  made->rank_ = exchange.rank();
  made->world_size_ = exchange.world_size();
  for (int rank = 0; rank < made->world_size_; ++rank) {
    made->job_ranks_.push_back(exchange.job_rank(rank));
  }
  // Every rank takes part in both steps whatever happened to it.
  Status done = made->AllocateFlags(made->world_size_, stream, deadline_ns);
  CuIpcMemHandle handle{};
  if (done)
    done = Checked(driver, driver->IpcGetHandle(&handle, made->flags_), "cuIpcGetMemHandle");
  const std::string record =
      done ? std::string(reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved))
           : "";
  COTUNE_TRY(const StepResult handles, exchange.Step("alignment handles", record, 0, deadline_ns));
  if (done) done = made->OpenPeers(handles.records, made->rank_, stream, deadline_ns);
  if (done) done = made->LoadKernel();
  COTUNE_TRY(const StepResult ready,
             exchange.Step("alignment ready", done ? "" : done.error().ToText(), 0, deadline_ns));
  for (int rank = 0; rank < made->world_size_; ++rank) {
    const std::string& why = ready.records[static_cast<size_t>(rank)];
    if (why.empty()) continue;
    return Fail(ErrorCode::kUnsupported, "the GPUs cannot line up among themselves",
                fmt::format("rank {}", exchange.job_rank(rank)), why,
                "see `cotune doctor` for links and peer access");
  }
  return made;
}

RankAlignment::~RankAlignment() {
  for (const CuDevicePointer pointer : opened_) driver_->IpcCloseHandle(pointer);
  if (module_ != nullptr) driver_->ModuleUnload(module_);
  if (table_ != 0) driver_->MemoryFree(table_);
  if (flags_ != 0) driver_->MemoryFree(flags_);
  if (host_words_ != nullptr) driver_->HostFree(const_cast<uint64_t*>(host_words_));
}

void RankAlignment::Abandon() {
  opened_.clear();
  module_ = nullptr;
  table_ = 0;
  flags_ = 0;
  host_words_ = nullptr;
}

Status RankAlignment::AllocateFlags(int world_size, CudaStream& stream, int64_t deadline_ns) {
  const auto ranks = static_cast<size_t>(world_size);
  const auto check = [&](CuResult code, const char* call) { return Checked(driver_, code, call); };
  // A whole page of the driver's: smaller allocations share one, and IPC would share it all.
  constexpr size_t kSharedBytes = size_t{2} << 20;
  if (Status s = check(driver_->MemoryAllocate(&flags_, kSharedBytes), "cuMemAlloc"); !s) return s;
  // The zeroes are there before a peer writes.
  if (Status s = stream.Fill(flags_, 0, ranks * sizeof(uint64_t), deadline_ns); !s) return s;
  if (Status s =
          check(driver_->MemoryAllocate(&table_, ranks * sizeof(CuDevicePointer)), "cuMemAlloc");
      !s) {
    return s;
  }
  void* words = nullptr;
  if (Status s = check(driver_->HostAllocate(&words, 2 * sizeof(uint64_t), kCuHostAllocDeviceMap),
                       "cuMemHostAlloc");
      !s) {
    return s;
  }
  std::memset(words, 0, 2 * sizeof(uint64_t));
  host_words_ = static_cast<volatile uint64_t*>(words);
  return check(driver_->HostGetDevicePointer(&host_words_on_device_, words, 0),
               "cuMemHostGetDevicePointer");
}

Status RankAlignment::OpenPeers(const std::vector<std::string>& handles, int rank,
                                CudaStream& stream, int64_t deadline_ns) {
  std::vector<CuDevicePointer> table;
  for (int peer = 0; peer < static_cast<int>(handles.size()); ++peer) {
    if (peer == rank) {
      table.push_back(flags_);
      continue;
    }
    const std::string& bytes = handles[static_cast<size_t>(peer)];
    CuIpcMemHandle handle{};
    if (bytes.size() != sizeof(handle.reserved)) {
      return Fail(ErrorCode::kUnsupported, fmt::format("rank {} has no memory to share",
                                                       job_ranks_[static_cast<size_t>(peer)]));
    }
    std::memcpy(handle.reserved, bytes.data(), sizeof(handle.reserved));
    CuDevicePointer opened = 0;
    if (Status s =
            Checked(driver_, driver_->IpcOpenHandle(&opened, handle, kCuIpcLazyEnablePeerAccess),
                    "cuIpcOpenMemHandle");
        !s) {
      return s;
    }
    opened_.push_back(opened);
    table.push_back(opened);
  }
  return stream.Write(table_, table.data(), table.size() * sizeof(table[0]), deadline_ns);
}

Status RankAlignment::LoadKernel() {
  if (Status s = Checked(driver_, driver_->ModuleLoadData(&module_, kAlignPtx), "cuModuleLoadData");
      !s) {
    return s;
  }
  return Checked(driver_, driver_->ModuleGetFunction(&kernel_, module_, "cotune_align"),
                 "cuModuleGetFunction");
}

Status RankAlignment::Enqueue(CuStream stream, int64_t moment_ns, int64_t timeout_ns) {
  moment_ns_ = static_cast<uint64_t>(moment_ns);
  host_words_[1] = 0;
  return LaunchKernel(stream, timeout_ns);
}

Status RankAlignment::Wake(CuStream stream, int64_t duration_ns) {
  // A moment that never comes.
  moment_ns_ = UINT64_MAX;
  return LaunchKernel(stream, duration_ns);
}

Status RankAlignment::LaunchKernel(CuStream stream, int64_t timeout_ns) {
  auto rank = static_cast<uint32_t>(rank_);
  auto timeout = static_cast<uint64_t>(timeout_ns);
  void* arguments[] = {&table_, &flags_, &host_words_on_device_, &moment_ns_, &timeout, &rank};
  const CuLaunchConfig config{1,      1,       1, static_cast<unsigned int>(world_size_), 1, 1, 0,
                              stream, nullptr, 0};
  return Checked(driver_, driver_->LaunchKernel(&config, kernel_, arguments, nullptr),
                 "cuLaunchKernelEx");
}

void RankAlignment::Release() { host_words_[0] = moment_ns_; }

int RankAlignment::late_rank() const {
  const auto one_more = static_cast<size_t>(host_words_[1]);
  return one_more == 0 ? -1 : job_ranks_[one_more - 1];
}

}  // namespace cotune::gpu
