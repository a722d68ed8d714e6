// The lines that ranks print, on standard error with the rank in front.
#ifndef COTUNE_INTEGRATION_RANK_LOG_H_
#define COTUNE_INTEGRATION_RANK_LOG_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace cotune {

// Cuts a stream of bytes into lines. A line ends with "\n", "\r\n" or "\r": progress bars end each
// picture with "\r" and print no "\n" before they are done. A longer line than kLineBytesMax is
// cut.
class LineSplitter {
 public:
  static constexpr size_t kLineBytesMax = 64 * 1024;
  using Line = std::function<void(std::string_view)>;

  void Append(std::string_view bytes, const Line& line);
  // The last line, if it has no end.
  void Finish(const Line& line);

 private:
  void AppendToLine(std::string_view bytes, const Line& line);

  std::string partial_;
  bool is_after_return_ = false;  // a "\n" that comes next belongs to the "\r" before
};

// Standard error, as the ranks' lines get there. It never waits while ranks run: their parent must
// see them to their end also where nobody reads what they print.
class RankLog {
 public:
  void Add(int rank, std::string_view line);
  // A line of this process, without a rank.
  void AddOwn(std::string_view line);

  // Nothing waits to be written. Ranks are read only then, so that they wait for a slow reader, as
  // they would without a parent.
  bool is_empty() const { return begin_ == pending_.size(); }
  // Writes what standard error takes without waiting.
  void Flush();
  // Writes all, but gives up when nothing could be written for a second.
  void FlushAtTheEnd();

 private:
  // Waits until standard error takes more; false when it does not within the time.
  bool IsWritable(int timeout_ms) const;
  void WriteSome();

  std::string pending_;
  size_t begin_ = 0;  // bytes before it are written
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_RANK_LOG_H_
