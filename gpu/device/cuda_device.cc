#include "gpu/device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "gpu/device/buffer_compare.h"
#include "gpu/device/cuda_stream.h"
#include "gpu/device/cuda_timed_calls.h"
#include "gpu/device/driver_status.h"
#include "gpu/device/rank_alignment.h"
#include "gpu/device/rank_gpu.h"
#include "gpu/device/shareable_memory.h"
#include "gpu/driver/graph_uses.h"
#include "gpu/driver/idle_wait.h"
#include "gpu/driver/nvml.h"

namespace cotune::gpu {
namespace {

// Frees nothing: a part of another buffer, or a base.
class CudaBuffer : public DeviceBuffer {
 public:
  CudaBuffer(CuDevicePointer data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  ~CudaBuffer() override = default;
  void* data() override { return reinterpret_cast<void*>(data_); }
  uint64_t bytes() const override { return bytes_; }
  CuDevicePointer pointer() const { return data_; }

 private:
  const CuDevicePointer data_;
  const uint64_t bytes_;
};

// No transfer takes longer than this, whatever its size, with the work in front of it.
constexpr int64_t kTransferNs = 60'000'000'000;

// The GPU gets this long to come to an end before its memory is freed.
constexpr int64_t kFreeNs = 5'000'000'000;

// Finds out whether memory can be freed. The driver waits for the whole GPU before it frees, and a
// kernel of another library may wait for a lost rank for ever: then the memory is left to the
// process.
class TeardownWait {
 public:
  TeardownWait(const CudaDriver& driver, CuContext context, const Clock& clock)
      : idle_wait_(driver, context), clock_(clock) {}
  // After a wait in vain it does not wait again.
  bool Await() {
    if (idle_wait_.IsPending()) return false;
    const auto now_ns = [this] { return clock_.now_ns(); };
    return idle_wait_.Await(now_ns, DeadlineAfter(clock_.now_ns(), kFreeNs)).has_value();
  }

 private:
  IdleWait idle_wait_;
  const Clock& clock_;
};

class AllocatedBuffer final : public CudaBuffer {
 public:
  AllocatedBuffer(const CudaDriver& driver, CuContext context, CuDevicePointer data, uint64_t bytes)
      : CudaBuffer(data, bytes), driver_(driver), context_(context) {}
  ~AllocatedBuffer() override {
    const CurrentContext current(driver_, context_);
    driver_->MemoryFree(pointer());
  }

 private:
  const CudaDriver& driver_;
  CuContext const context_;
};

class ShareableBuffer final : public CudaBuffer {
 public:
  ShareableBuffer(ShareableMemory memory, uint64_t bytes,
                  std::shared_ptr<TeardownWait> teardown_wait)
      : CudaBuffer(memory.data(), bytes),
        memory_(std::move(memory)),
        teardown_wait_(std::move(teardown_wait)) {}
  ~ShareableBuffer() override {
    if (!teardown_wait_->Await()) memory_.Abandon();
  }

 private:
  ShareableMemory memory_;
  const std::shared_ptr<TeardownWait> teardown_wait_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDriver& driver, int32_t ordinal, const Clock& clock)
      : driver_(driver), ordinal_(ordinal), clock_(clock) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override {
    if (teardown_wait_ != nullptr && !teardown_wait_->Await()) {
      if (alignment_ != nullptr) alignment_->Abandon();
      if (compare_ != nullptr) compare_->Abandon();
      return;
    }
    alignment_.reset();
    compare_.reset();
    transfers_.reset();
    stream_.reset();
    if (context_ != nullptr) driver_->PrimaryContextRelease(device_);
  }

  Status Open() {
    if (Status s = Checked(driver_, driver_->DeviceGet(&device_, ordinal_), "cuDeviceGet"); !s)
      return s;
    int cache_bytes = 0;
    if (Status s =
            Checked(driver_, driver_->DeviceGetAttribute(&cache_bytes, kCuL2CacheBytes, device_),
                    "cuDeviceGetAttribute");
        !s) {
      return s;
    }
    cache_bytes_ = static_cast<uint64_t>(std::max(cache_bytes, 0));
    // Without it clocks are not known, and nothing else is missing.
    if (const DriverResult<Nvml> nvml = Nvml::Open()) {
      nvml_ = *nvml;
      nvml_handle_ = nvml_->Handle(PciBusId(driver_, device_));
    }
    if (Status s = Checked(driver_, driver_->PrimaryContextRetain(&context_, device_),
                           "cuDevicePrimaryCtxRetain");
        !s) {
      return s;
    }
    teardown_wait_ = std::make_shared<TeardownWait>(driver_, context_, clock_);
    if (Status s = Checked(driver_, driver_->ContextSetCurrent(context_), "cuCtxSetCurrent"); !s)
      return s;
    COTUNE_TRY(std::unique_ptr<CudaStream> stream, CudaStream::Create(driver_, clock_));
    stream_ = std::move(stream);
    COTUNE_TRY(std::unique_ptr<CudaStream> transfers, CudaStream::Create(driver_, clock_));
    transfers_ = std::move(transfers);
    COTUNE_TRY(std::unique_ptr<BufferCompare> compare, BufferCompare::Create(driver_));
    compare_ = std::move(compare);
    return {};
  }

  Status LineUp(RankExchange& exchange, int64_t deadline_ns) {
    if (exchange.world_size() == 1) return {};
    COTUNE_TRY(auto alignment, RankAlignment::Create(driver_, *transfers_, exchange, deadline_ns));
    alignment_ = std::move(alignment);
    constexpr int64_t kWakeNs = 200'000'000;
    return alignment_->Wake(stream_->handle(), kWakeNs);
  }

  MemoryKind kind() const override { return MemoryKind::kCuda; }
  int32_t ordinal() const override { return ordinal_; }
  void* stream() const override { return stream_->handle(); }
  Status Attach() override {
    return Checked(driver_, driver_->ContextSetCurrent(context_), "cuCtxSetCurrent");
  }

  Result<bool> IsCapturing(void* stream) override {
    const CurrentContext current(driver_, context_);
    CuStreamCaptureStatus capture = kCuCaptureNone;
    const CuResult code = driver_->StreamIsCapturing(static_cast<CuStream>(stream), &capture);
    // The default stream reports this while another stream is being captured.
    if (code == kCuErrorStreamCaptureImplicit) return true;
    COTUNE_RETURN_IF_ERROR(Checked(driver_, code, "cuStreamIsCapturing"));
    return capture != kCuCaptureNone;
  }

  Result<uint64_t> HoldInGraph(void* stream, uint64_t known,
                               const std::shared_ptr<const void>& held) override {
    const CurrentContext current(driver_, context_);
    const DriverResult<uint64_t> capture =
        gpu::HoldInGraph(driver_, static_cast<CuStream>(stream), known, held);
    if (!capture) return Fail(ErrorCode::kEnvironment, capture.error().text);
    return *capture;
  }

  Status OrderStreams(void* before, void* after) override {
    const CurrentContext current(driver_, context_);
    for (void* stream : {before, after}) {
      COTUNE_TRY(const bool is_captured, IsCapturing(stream));
      if (is_captured) return {};
    }
    CuEvent event = nullptr;
    Status done =
        Checked(driver_, driver_->EventCreate(&event, kCuEventDisableTiming), "cuEventCreate");
    if (!done) return done;
    done = Checked(driver_, driver_->EventRecord(event, static_cast<CuStream>(before)),
                   "cuEventRecord");
    if (done) {
      done = Checked(driver_, driver_->StreamWaitEvent(static_cast<CuStream>(after), event, 0),
                     "cuStreamWaitEvent");
    }
    // The driver keeps it until the stream has passed it.
    driver_->EventDestroy(event);
    return done;
  }

  Status Synchronize(void* stream, int64_t deadline_ns) override {
    const CurrentContext current(driver_, context_);
    // A kernel of a library may wait for a lost rank for ever.
    CuResult state = kCuErrorNotReady;
    while ((state = driver_->StreamQuery(static_cast<CuStream>(stream))) == kCuErrorNotReady) {
      if (clock_.now_ns() >= deadline_ns) {
        return Fail(ErrorCode::kDeadline, "the stream had not run to its end by the deadline");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return Checked(driver_, state, "cuStreamQuery");
  }

  std::optional<uint64_t> AvailableBytes() const override {
    const CurrentContext current(driver_, context_);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (driver_->MemoryGetInfo(&free_bytes, &total_bytes) != kCuSuccess) return std::nullopt;
    return free_bytes;
  }

  std::string measuring_mode() const override {
    return is_shared_ ? "graph, GPUs shared" : "graph";
  }
  void set_is_shared(bool is_shared) { is_shared_ = is_shared; }
  uint64_t cache_bytes() const override { return cache_bytes_; }
  std::optional<DeviceClocks> ReadClocks() override {
    if (nvml_handle_ == nullptr) return std::nullopt;
    const std::optional<ClockState> clocks = nvml_->ReadClocks(nvml_handle_);
    if (!clocks) return std::nullopt;
    return DeviceClocks{clocks->sm_mhz, ThrottleNames(clocks->reasons)};
  }
  // As nvidia-smi writes that of a GPU; "": the driver does not say.
  std::string uuid() const { return Uuid(driver_, ordinal_); }
  void set_cache_bytes(uint64_t bytes) { cache_bytes_ = bytes; }
  bool aligns_ranks() const override { return true; }

  Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) override {
    // Temporaries of a program are allocated by the thread that prepares it.
    const CurrentContext current(driver_, context_);
    CuDevicePointer data = 0;
    const CuResult code = driver_->MemoryAllocate(&data, std::max<uint64_t>(bytes, 1));
    if (code == kCuErrorOutOfMemory) {
      return Fail(ErrorCode::kEnvironment,
                  fmt::format("cannot allocate {} bytes on GPU {}", bytes, ordinal_), "",
                  "its memory is in use", "tune smaller sizes, or see `nvidia-smi`");
    }
    COTUNE_RETURN_IF_ERROR(Checked(driver_, code, "cuMemAlloc"));
    return std::make_unique<AllocatedBuffer>(driver_, context_, data, bytes);
  }

  Result<std::unique_ptr<DeviceBuffer>> AllocateShareable(uint64_t bytes) override {
    const CurrentContext current(driver_, context_);
    COTUNE_TRY(ShareableMemory memory, ShareableMemory::Allocate(driver_, device_, bytes));
    return std::make_unique<ShareableBuffer>(std::move(memory), bytes, teardown_wait_);
  }

  std::unique_ptr<DeviceBuffer> Part(DeviceBuffer& whole, uint64_t offset,
                                     uint64_t bytes) override {
    return std::make_unique<CudaBuffer>(PointerOf(whole) + offset, bytes);
  }

  Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) override {
    if (data.empty()) return {};
    return transfers_->Write(PointerOf(buffer), data.data(), data.size(), TransferDeadlineNs());
  }

  Status Read(DeviceBuffer& buffer, std::span<std::byte> data) override {
    if (data.empty()) return {};
    return transfers_->Read(data.data(), PointerOf(buffer), data.size(), TransferDeadlineNs());
  }

  Status Fill(DeviceBuffer& buffer, uint64_t offset, uint64_t bytes, std::byte value) override {
    if (bytes == 0) return {};
    return transfers_->Fill(PointerOf(buffer) + offset, static_cast<uint8_t>(value), bytes,
                            TransferDeadlineNs());
  }

  Status Copy(DeviceBuffer& to, DeviceBuffer& from) override {
    return stream_->Copy(PointerOf(to), PointerOf(from), from.bytes(), TransferDeadlineNs());
  }

  Result<bool> Equal(DeviceBuffer& left, DeviceBuffer& right) override {
    return compare_->Equal(*stream_, PointerOf(left), PointerOf(right), left.bytes(),
                           TransferDeadlineNs());
  }

  Result<TimedSpan> RunOnce(Plan& plan, const LaunchArguments& arguments) override {
    COTUNE_RETURN_IF_ERROR(stream_->RecordStart());
    COTUNE_RETURN_IF_ERROR(plan.Launch(arguments));
    COTUNE_RETURN_IF_ERROR(stream_->RecordEnd());
    return stream_->AwaitSpan(arguments.deadline_ns);
  }

  Result<std::unique_ptr<TimedCalls>> Prepare(Plan& plan,
                                              std::span<const LaunchArguments> arguments,
                                              int32_t repetitions) override {
    return MakeTimedCalls({driver_, *stream_, alignment_.get(), clock_}, plan, arguments,
                          repetitions);
  }

 private:
  static CuDevicePointer PointerOf(DeviceBuffer& buffer) {
    return dynamic_cast<CudaBuffer&>(buffer).pointer();
  }
  int64_t TransferDeadlineNs() const { return DeadlineAfter(clock_.now_ns(), kTransferNs); }

  const CudaDriver driver_;
  const int32_t ordinal_;
  const Clock& clock_;
  bool is_shared_ = false;  // GPUs may have several ranks each
  uint64_t cache_bytes_ = 0;
  std::optional<Nvml> nvml_;
  void* nvml_handle_ = nullptr;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  std::shared_ptr<TeardownWait> teardown_wait_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<CudaStream> transfers_;  // between host and device, beside what is measured
  std::unique_ptr<BufferCompare> compare_;
  std::unique_ptr<RankAlignment> alignment_;
};

// That of the context which is current on this thread.
std::optional<int32_t> CurrentOrdinal(const CudaDriver& driver, int visible_gpus) {
  CuContext context = nullptr;
  CuDevice current = 0;
  if (driver->ContextGetCurrent(&context) != kCuSuccess || context == nullptr) return std::nullopt;
  if (driver->ContextGetDevice(&current) != kCuSuccess) return std::nullopt;
  for (int32_t ordinal = 0; ordinal < visible_gpus; ++ordinal) {
    CuDevice device = 0;
    if (driver->DeviceGet(&device, ordinal) == kCuSuccess && device == current) return ordinal;
  }
  return std::nullopt;
}

Result<std::unique_ptr<CudaDevice>> OpenGpu(const RankPlace& place, const Clock& clock) {
  const DriverResult<CudaDriver> driver = CudaDriver::Open();
  if (!driver) return Fail(ErrorCode::kEnvironment, driver.error().text, "CUDA driver");
  int visible_gpus = 0;
  COTUNE_RETURN_IF_ERROR(
      Checked(*driver, (*driver)->DeviceGetCount(&visible_gpus), "cuDeviceGetCount"));
  COTUNE_TRY(const int32_t ordinal,
             OrdinalOfRank(place.local_rank, visible_gpus,
                           place.ordinal ? place.ordinal : CurrentOrdinal(*driver, visible_gpus),
                           place.may_share_gpus));
  auto device = std::make_unique<CudaDevice>(*driver, ordinal, clock);
  COTUNE_RETURN_IF_ERROR(device->Open());
  return device;
}

}  // namespace

Result<std::unique_ptr<Device>> MakeCudaDevice(const RankPlace& place, RankExchange& exchange,
                                               const Clock& clock, int64_t deadline_ns) {
  Result<std::unique_ptr<CudaDevice>> opened = OpenGpu(place, clock);
  StepRecord<GpuOfRank> record;
  if (opened) {
    record.message = {(*opened)->cache_bytes(), (*opened)->uuid(), place.may_share_gpus};
  } else {
    record = StepRecord<GpuOfRank>::FromStatus(Propagate(opened));
  }
  COTUNE_TRY(const auto all, ExchangeRecords(exchange, "gpu", record, 0, deadline_ns));
  uint64_t cache_bytes = 0;
  std::vector<std::string> uuids;
  bool all_share = true;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    const StepRecord<GpuOfRank>& other = all.records[rank];
    // One rank without its GPU ends it for all, and all learn which.
    if (other.failure) {
      return Fail(ErrorCode::kEnvironment,
                  fmt::format("rank {} cannot use its GPU", all.job_ranks[rank]), "",
                  other.failure->text, "see `cotune doctor`, or tune host memory");
    }
    // GPUs of several kinds: the largest needs most to be cold.
    cache_bytes = std::max(cache_bytes, other.message.cache_bytes);
    uuids.push_back(other.message.uuid);
    all_share = all_share && other.message.may_share;
  }
  if (Status apart = CheckOneRankEach(uuids, all.job_ranks); !apart && !all_share) {
    return Propagate(apart);
  }
  // Times measured on a shared GPU are of no use to ranks that have a GPU each. Subgroups, and who
  // asks alone what is tuned, may see no rank on the same GPU.
  (*opened)->set_is_shared(all_share);
  (*opened)->set_cache_bytes(cache_bytes);
  COTUNE_RETURN_IF_ERROR((*opened)->LineUp(exchange, deadline_ns));
  return std::move(*opened);
}

}  // namespace cotune::gpu
