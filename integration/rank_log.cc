#include "integration/rank_log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr int kLastWaitMs = 1000;

}  // namespace

void LineSplitter::Append(std::string_view bytes, const Line& line) {
  while (!bytes.empty()) {
    if (is_after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    is_after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    AppendToLine(bytes.substr(0, end), line);
    if (end == std::string_view::npos) return;
    // A picture of a progress bar begins with "\r", too: nothing stands before that one.
    is_after_return_ = bytes[end] == '\r' && !partial_.empty();
    if (bytes[end] == '\n' || is_after_return_) line(partial_);
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::AppendToLine(std::string_view bytes, const Line& line) {
  while (partial_.size() + bytes.size() > kLineBytesMax) {
    const size_t fits = kLineBytesMax - partial_.size();
    partial_ += bytes.substr(0, fits);
    bytes.remove_prefix(fits);
    line(partial_);
    partial_.clear();
  }
  partial_ += bytes;
}

void LineSplitter::Finish(const Line& line) {
  if (!partial_.empty()) line(partial_);
  partial_.clear();
}

void RankLog::Add(int rank, std::string_view line) {
  pending_ += fmt::format("[rank {}] {}\n", rank, line);
}

void RankLog::AddOwn(std::string_view line) { pending_ += fmt::format("cotune: {}\n", line); }

bool RankLog::IsWritable(int timeout_ms) const {
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

void RankLog::WriteSome() {
  // A pipe that is writable takes so much without waiting.
  const size_t size = std::min<size_t>(pending_.size() - begin_, PIPE_BUF);
  const ssize_t written = write(STDERR_FILENO, pending_.data() + begin_, size);
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // Nobody can be told when standard error is closed.
  begin_ = written < 0 ? pending_.size() : begin_ + static_cast<size_t>(written);
  if (!is_empty()) return;
  pending_.clear();
  begin_ = 0;
}

void RankLog::Flush() {
  while (!is_empty() && IsWritable(0)) WriteSome();
}

void RankLog::FlushAtTheEnd() {
  while (!is_empty() && IsWritable(kLastWaitMs)) WriteSome();
}

}  // namespace cotune
