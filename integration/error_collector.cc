#include "integration/error_collector.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace cotune {
namespace {

// Ranks fail alike within this time: they run the same lines.
constexpr int64_t kPatienceNs = 500'000'000;
constexpr size_t kErrorBytesMax = 64 * 1024;
constexpr int kReadsAtTheEndMax = 256;  // more than a pipe holds

}  // namespace

bool ErrorCollector::Read(RankProcess& rank) {
  std::array<char, 4096> buffer;
  const ssize_t size = read(rank.error_fd, buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  std::string_view bytes(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\0'), bytes.size());
    rank.partial_error += bytes.substr(0, end);
    if (end < bytes.size() || rank.partial_error.size() > kErrorBytesMax) {
      Add(rank, std::exchange(rank.partial_error, {}));
    }
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  if (size > 0) return true;
  if (!rank.partial_error.empty()) Add(rank, std::exchange(rank.partial_error, {}));
  close(std::exchange(rank.error_fd, -1));
  return false;
}

void ErrorCollector::ReadToTheEnd(RankProcess& rank) {
  // A process that the rank left behind may still hold the other end.
  int reads = 0;
  while (rank.error_fd >= 0 && reads < kReadsAtTheEndMax && Read(rank)) ++reads;
}

void ErrorCollector::Tell() {
  for (auto& [text, ranks] : waiting_) {
    std::sort(ranks.begin(), ranks.end());
    request_.on_error(ranks, text);
    told_.push_back(text);
  }
  waiting_.clear();
}

void ErrorCollector::Add(RankProcess& rank, const std::string& text) {
  if (text == kJoinedWord) {
    rank.has_joined = true;
    return;
  }
  if (text == kDoneWord) {
    rank.has_said_done = true;
    return;
  }
  rank.has_told_error = true;
  if (std::find(told_.begin(), told_.end(), text) != told_.end()) return;
  auto known = std::find_if(waiting_.begin(), waiting_.end(),
                            [&](const auto& each) { return each.first == text; });
  if (waiting_.empty()) due_ns_ = clock_.now_ns() + kPatienceNs;
  if (known == waiting_.end()) known = waiting_.insert(known, {text, {}});
  known->second.push_back(rank.rank);
}

}  // namespace cotune
