#include "cli/session/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/output/chrome_trace.h"
#include "core/base/counted.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

// 0, or errno.
int WriteWhole(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return errno;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = is_written ? 0 : errno;
  const bool is_closed = std::fclose(file) == 0;
  if (!is_written) return write_error;
  return is_closed ? 0 : errno;
}

// Why no file can be written there; "": it can.
std::string WhyNotWritable(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return "it is a folder";
  if (access(path.c_str(), W_OK) == 0) return "";
  if (errno != ENOENT) return std::strerror(errno);
  const std::filesystem::path folder = std::filesystem::absolute(path, unknown).parent_path();
  if (!std::filesystem::is_directory(folder, unknown)) {
    return fmt::format("there is no folder {}", folder.string());
  }
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return fmt::format("folder {}: {}", folder.string(), std::strerror(errno));
}

}  // namespace

Status CheckTraceFile(const std::string& path) {
  if (path.empty()) return {};
  const std::string why = WhyNotWritable(path);
  if (why.empty()) return {};
  return Fail(ErrorCode::kEnvironment, fmt::format("no trace can be written to {}", path),
              "--trace", why, "name a file in a folder that you may write to");
}

std::vector<TraceOfRank> GatherTracesOrWarn(Job& job, EventRecorder& recorder, Console& console) {
  Result<std::vector<TraceOfRank>> traces = GatherTraces(job, recorder.Take());
  if (traces) return std::move(*traces);
  if (job.rank() == 0) {
    console.Warn(fmt::format("there is no trace, because the ranks could not send theirs: {}",
                             traces.error().ToText()));
  }
  return {};
}

void WriteTraceFile(const std::string& path, const std::vector<TraceOfRank>& traces,
                    Console& console) {
  if (traces.empty()) return;
  if (const int error = WriteWhole(path, ChromeTrace(traces)); error != 0) {
    console.Warn(
        fmt::format("the trace could not be written to {}: {}; what was measured does not depend "
                    "on it; name another file with --trace",
                    path, std::strerror(error)));
    return;
  }
  uint64_t dropped = 0;
  for (const TraceOfRank& trace : traces) dropped += trace.dropped;
  if (dropped == 0) return;
  console.Warn(fmt::format(
      "{} were too many to keep in the trace: it lacks the last ones; tune fewer sizes to see all",
      Counted(static_cast<int64_t>(dropped), "event")));
}

}  // namespace cotune::cli
