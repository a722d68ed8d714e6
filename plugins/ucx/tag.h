// The tags of messages: a message that is not the one that is waited for never matches.
#ifndef COTUNE_PLUGINS_UCX_TAG_H_
#define COTUNE_PLUGINS_UCX_TAG_H_

#include <cstdint>

namespace cotune::ucx {

// From the highest bit down: 1 bit for the kind of message, 6 for the sender, 10 for the number of
// the call, 14 for the step (8 for the instance, 6 for the order in it), and 33 of a digest of all
// that decides the call: its record, its whole number, the group, and the job. Numbers wrap around;
// messages of equal tags match in the order in which they were sent, so that only the digest has to
// tell calls apart.
struct DataTag {
  int sender = 0;
  uint64_t call = 0;
  uint64_t instance = 0;
  int order = 0;
  uint64_t digest = 0;
};

inline constexpr int kDigestBits = 33;
inline constexpr uint64_t kDigestMask = (uint64_t{1} << kDigestBits) - 1;
inline constexpr int kSenderShift = 57;
inline constexpr uint64_t kControlBit = uint64_t{1} << 63;
inline constexpr uint64_t kEveryBit = ~uint64_t{0};

constexpr uint64_t TagOf(const DataTag& tag) {
  return (static_cast<uint64_t>(tag.sender & 63) << kSenderShift) | ((tag.call & 1023) << 47) |
         ((tag.instance & 255) << 39) | (static_cast<uint64_t>(tag.order & 63) << kDigestBits) |
         (tag.digest & kDigestMask);
}

// Messages between the groups' ends themselves: from any sender, for one group.
constexpr uint64_t ControlTag(uint64_t group_digest) {
  return kControlBit | (group_digest & kDigestMask);
}

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TAG_H_
