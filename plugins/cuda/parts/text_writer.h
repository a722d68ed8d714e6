// Writes lines of code.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_TEXT_WRITER_H_
#define COTUNE_PLUGINS_CUDA_PARTS_TEXT_WRITER_H_

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

namespace cotune::cuda {

// Lines with the indentation of the blocks that are open.
class TextWriter {
 public:
  template <typename... Arguments>
  void Line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }
  void Blank() { text_ += '\n'; }
  // Of the loop in the next line. times: an expression; "": all.
  void Unroll(const std::string& times = "") {
    text_ += times.empty() ? "#pragma unroll\n" : fmt::format("#pragma unroll({})\n", times);
  }
  // A line that opens a block, and one that closes it.
  template <typename... Arguments>
  void Open(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    Line(format, std::forward<Arguments>(arguments)...);
    ++depth_;
  }
  void Close(const char* end = "}") {
    --depth_;
    Line("{}", end);
  }
  // A line that closes a block and opens the next one.
  void Reopen(fmt::format_string<> line) {
    --depth_;
    Line(line);
    ++depth_;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  size_t depth_ = 0;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_TEXT_WRITER_H_
