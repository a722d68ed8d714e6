#include "sync/wire/frame_codec.h"

#include <fmt/format.h>

#include <utility>

#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

std::string EncodeFrame(const wire::Frame& frame) {
  const size_t size = frame.ByteSizeLong();
  std::string bytes(kLengthBytes + size, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>((size >> (8 * i)) & 0xff);
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(bytes.data() + kLengthBytes));
  return bytes;
}

void FrameReader::Append(std::string_view bytes) {
  if (begin_ == bytes_.size()) {
    bytes_.clear();
    begin_ = 0;
  }
  bytes_.append(bytes);
}

// The consumed front is dropped only here, so that a burst of small frames is not moved again and
// again.
FramePtr FrameReader::NeedMore() {
  if (begin_ > 0) bytes_.erase(0, std::exchange(begin_, 0));
  return nullptr;
}

Result<FramePtr> FrameReader::Next(uint64_t frame_bytes_max) {
  const size_t held = bytes_.size() - begin_;
  if (held < kLengthBytes) return NeedMore();
  uint64_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[begin_ + i])) << (8 * i);
  }
  if (size > frame_bytes_max) {
    return Fail(ErrorCode::kInternal,
                fmt::format("a frame of {} bytes came, at most {} are allowed here", size,
                            frame_bytes_max));
  }
  if (held - kLengthBytes < size) return NeedMore();
  auto frame = std::make_shared<wire::Frame>();
  if (!frame->ParseFromArray(bytes_.data() + begin_ + kLengthBytes, static_cast<int>(size)) ||
      frame->body_case() == wire::Frame::BODY_NOT_SET) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{} bytes came that are no frame of this protocol", size));
  }
  begin_ += kLengthBytes + size;
  return FramePtr(std::move(frame));
}

}  // namespace cotune::sync
