#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/base/host_memory.h"
#include "fmt/format.h"

namespace cotune {
namespace {

class HostBuffer final : public DeviceBuffer {
 public:
  // mapped_bytes 0: a part of another buffer.
  HostBuffer(void* data, uint64_t bytes, uint64_t mapped_bytes)
      : data_(data), bytes_(bytes), mapped_bytes_(mapped_bytes) {}
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() override {
    if (mapped_bytes_ > 0) munmap(data_, mapped_bytes_);
  }
  void* data() override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  void* data_;
  uint64_t bytes_;
  uint64_t mapped_bytes_;
};

class HostCalls final : public TimedCalls {
 public:
  HostCalls(const Clock& clock, Plan& plan, std::span<const LaunchArguments> arguments,
            int32_t repetitions)
      : clock_(clock),
        plan_(plan),
        arguments_(arguments.begin(), arguments.end()),
        repetitions_(repetitions) {}

  Result<TimedSpan> Run(int64_t start_ns, int64_t deadline_ns) override {
    for (LaunchArguments& arguments : arguments_) arguments.deadline_ns = deadline_ns;
    // The coordinator puts no start behind a deadline of its own, but this one may be another.
    if (start_ns > deadline_ns) {
      return Fail(ErrorCode::kDeadline,
                  fmt::format("a sample was to start {} us behind its deadline",
                              (start_ns - deadline_ns) / 1000),
                  "", "a rank asked for a longer delay than a call may take",
                  "raise collective_autotune_timeout");
    }
    TimedSpan span;
    // This call is not timed. After it the caches hold the data of this plan, and not of the one
    // before, and the ranks leave it together. A sample of one call has none, because its call is
    // so long that neither matters.
    if (repetitions_ > 1) {
      COTUNE_RETURN_IF_ERROR(plan_.Run(arguments_.back(), clock_));
    }
    // Spinning keeps the start exact; a start time is only given when every rank has a core.
    do {
      span.start_ns = clock_.now_ns();
    } while (span.start_ns < start_ns);
    for (int32_t i = 0; i < repetitions_; ++i) {
      const LaunchArguments& arguments = arguments_[static_cast<size_t>(i) % arguments_.size()];
      COTUNE_RETURN_IF_ERROR(plan_.Run(arguments, clock_));
    }
    span.end_ns = clock_.now_ns();
    return span;
  }

 private:
  const Clock& clock_;
  Plan& plan_;
  std::vector<LaunchArguments> arguments_;
  int32_t repetitions_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const Clock& clock) : clock_(clock) {}
  MemoryKind kind() const override { return MemoryKind::kHost; }
  int32_t ordinal() const override { return -1; }
  void* stream() const override { return nullptr; }
  Status Attach() override { return {}; }
  Status OrderStreams(void* /*before*/, void* /*after*/) override { return {}; }
  Status Synchronize(void* /*stream*/, int64_t /*deadline_ns*/) override { return {}; }
  std::optional<uint64_t> AvailableBytes() const override { return AvailableHostBytes(); }
  std::string measuring_mode() const override { return "eager"; }

  Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) override {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t mapped_bytes = (bytes / kPageBytes + 1) * kPageBytes;
    void* data =
        mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return Fail(ErrorCode::kEnvironment,
                  fmt::format("cannot allocate {} bytes of host memory", bytes), "",
                  std::strerror(errno), "tune smaller sizes or fewer ranks");
    }
    return std::make_unique<HostBuffer>(data, bytes, mapped_bytes);
  }

  Result<std::unique_ptr<DeviceBuffer>> AllocateShareable(uint64_t /*bytes*/) override {
    return Fail(ErrorCode::kUnsupported, "host memory is not registered with backends", "",
                "their ranks exchange data through shared memory of their own",
                "use plain buffers");
  }

  std::unique_ptr<DeviceBuffer> Part(DeviceBuffer& whole, uint64_t offset,
                                     uint64_t bytes) override {
    return std::make_unique<HostBuffer>(static_cast<std::byte*>(whole.data()) + offset, bytes, 0);
  }

  Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) override {
    if (!data.empty()) std::memcpy(buffer.data(), data.data(), data.size());
    return {};
  }

  Status Read(DeviceBuffer& buffer, std::span<std::byte> data) override {
    if (!data.empty()) std::memcpy(data.data(), buffer.data(), data.size());
    return {};
  }

  // The barrier's release does, and the scheduler decides how.
  Status Fill(DeviceBuffer& buffer, uint64_t offset, uint64_t bytes, std::byte value) override {
    std::memset(static_cast<std::byte*>(buffer.data()) + offset, static_cast<int>(value), bytes);
    return {};
  }
  Status Copy(DeviceBuffer& to, DeviceBuffer& from) override {
    std::memcpy(to.data(), from.data(), from.bytes());
    return {};
  }
  Result<bool> Equal(DeviceBuffer& left, DeviceBuffer& right) override {
    return std::memcmp(left.data(), right.data(), left.bytes()) == 0;
  }
  // Ranks on one host share its caches with all that runs there: no buffer is surely in one.
  uint64_t cache_bytes() const override { return 0; }
  std::optional<DeviceClocks> ReadClocks() override { return std::nullopt; }
  bool aligns_ranks() const override { return false; }

  Result<TimedSpan> RunOnce(Plan& plan, const LaunchArguments& arguments) override {
    return HostCalls(clock_, plan, {&arguments, 1}, 1).Run(0, arguments.deadline_ns);
  }

  Result<std::unique_ptr<TimedCalls>> Prepare(Plan& plan,
                                              std::span<const LaunchArguments> arguments,
                                              int32_t repetitions) override {
    return std::make_unique<HostCalls>(clock_, plan, arguments, repetitions);
  }

 private:
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const Clock& clock) {
  return std::make_unique<HostDevice>(clock);
}

}  // namespace cotune
