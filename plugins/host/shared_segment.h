// The memory that the ranks of a group share: a control block, and for each rank tagged lines and a
// slot.
#ifndef COTUNE_PLUGINS_HOST_SHARED_SEGMENT_H_
#define COTUNE_PLUGINS_HOST_SHARED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "plugins/host/control_block.h"
#include "plugins/host/sdk_names.h"
#include "plugins/host/tagged_line.h"
#include "plugins/sdk/descriptor.h"
#include "plugins/sdk/process_identity.h"

namespace cotune::host {

inline constexpr uint32_t kSegmentVersion = 6;  // of the control block and this record

// The message of group rank 0 to the others through the job's store. Plain bytes; all ranks are
// processes of one machine and one plugin version.
struct SegmentAnnouncement {
  uint32_t version = kSegmentVersion;
  int32_t pid = 0;
  int32_t file = -1;  // descriptor in that process
  uint64_t start_ticks = 0;
  uint64_t pid_space = 0;
  uint64_t slot_bytes = 0;
  int32_t world_size = 0;
  uint8_t token[16] = {};
};

// Maps the segment for its lifetime. The memory has no name in any file system: it is gone when the
// last process that maps it has ended, however that ended.
class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  // Makes a zeroed segment with a fresh token. COTUNE_OUT_OF_RESOURCES when the system refuses.
  static Result<SharedSegment> Create(int world_size, uint64_t slot_bytes);

  // Maps the segment that `announcement` describes. COTUNE_INVALID_ARGUMENT when this rank expects
  // another world size or slot size, COTUNE_PEER_FAILED (rank 0) when its process is gone,
  // COTUNE_UNSUPPORTED when the operating system does not let this process see the other's memory,
  // as in another PID namespace.
  static Result<SharedSegment> Open(const SegmentAnnouncement& announcement, int world_size,
                                    uint64_t slot_bytes);

  // Returns what Open of the other ranks needs; the segment's file must stay open until they have
  // it.
  SegmentAnnouncement Announce() const;

  // Takes the pages of `rank`'s lines and slot now, so that a lack of memory is an error here and
  // not a signal in the middle of a collective.
  Result<void> ReserveSlot(int rank);

  // The mapping needs no file descriptor; everyone closes it once all have joined.
  void CloseFile() { file_ = sdk::Descriptor(); }

  bool IsMapped() const { return base_ != nullptr; }
  ControlBlock& control() const { return *reinterpret_cast<ControlBlock*>(base_); }
  std::byte* Slot(int rank) const;
  // Two halves of kLinesPerHalf lines.
  TaggedLine* Lines(int rank) const;

 private:
  static uint64_t SegmentBytes(int world_size, uint64_t slot_bytes);
  Result<void> Map();

  sdk::Descriptor file_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t slot_bytes_ = 0;
  int world_size_ = 0;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_SHARED_SEGMENT_H_
