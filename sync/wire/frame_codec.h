// Frames as bytes: a 4-byte little-endian length, then one protobuf message.
#ifndef COTUNE_SYNC_WIRE_FRAME_CODEC_H_
#define COTUNE_SYNC_WIRE_FRAME_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "sync/wire/wire_forward.h"

namespace cotune::sync {

// The frame with its length in front.
std::string EncodeFrame(const wire::Frame& frame);

// Cuts a stream of bytes into frames. Not thread-safe.
class FrameReader {
 public:
  void Append(std::string_view bytes);

  // The next whole frame, nullptr when more bytes are needed. Errors are kInternal and say what is
  // wrong with the bytes; the stream cannot be read on after one. A length above frame_bytes_max is
  // refused before anything of that size is held.
  Result<FramePtr> Next(uint64_t frame_bytes_max);

  // Bytes that are held: less than a frame and what was appended last.
  size_t held_bytes() const { return bytes_.size(); }

 private:
  FramePtr NeedMore();

  std::string bytes_;
  size_t begin_ = 0;  // bytes before it were handed out
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_FRAME_CODEC_H_
