#include "cli/input/program_selection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

Result<std::vector<uint64_t>> ParseRows(const std::string& text) {
  Result<std::vector<uint64_t>> rows = ParseSizes(text);
  if (rows && rows->front() == 0) {
    return Fail(ErrorCode::kUsage, "a program cannot have 0 rows", "--rows", "",
                "give numbers of rows from 1 on: 1:1024:x2");
  }
  if (rows) return rows;
  Error error = rows.error();
  error.what = fmt::format("\"{}\" is not a list of rows", text);
  error.where = "--rows, " + error.where;
  error.next_step = "write for example 64, 1:1024:x2, 16:256:+16 or 1,3,100";
  return tl::make_unexpected(std::move(error));
}

// Gives the program its sizes at these numbers of rows.
void SelectRows(ProgramSelection& selection, const std::vector<uint64_t>& rows) {
  const Program& program = selection.program;
  const auto shares = static_cast<uint64_t>(program.group().world_size);
  for (const uint64_t each : rows) {
    const bool has_shares = !program.graph().needs_whole_shares() || each % shares == 0;
    const Problem problem = program.ProblemAtRows(has_shares ? each : 0, 0);
    if (has_shares && program.RowsAt(problem) == each) {
      selection.sizes_bytes.push_back(problem.bytes());
    } else {
      selection.left_out_rows.push_back(each);
    }
  }
}

// Every number of rows that is asked for leaves some rank with another share than the rest.
Error NoEqualShares(const ProgramSelection& selection, int32_t ranks) {
  constexpr size_t kShownMax = 4;
  const std::span<const uint64_t> rows(selection.left_out_rows);
  const std::span<const uint64_t> shown = rows.first(std::min(rows.size(), kShownMax));
  const auto shares = static_cast<uint64_t>(ranks);
  const uint64_t below = rows.front() / shares * shares;
  const std::string examples =
      below == 0 ? fmt::format("{}", shares) : fmt::format("{} or {}", below, below + shares);
  return {ErrorCode::kUsage,
          fmt::format("{}{} rows have no equal shares for {} ranks", fmt::join(shown, ", "),
                      rows.size() > shown.size() ? ", ..." : "", ranks),
          "--rows",
          fmt::format("the ranks share the rows of {}", selection.file),
          fmt::format("give a multiple of {}, for example {}", ranks, examples),
          {}};
}

Error NoRowsAtAll(const ProgramSelection& selection, bool has_rows,
                  const std::vector<uint64_t>& sizes_bytes, int32_t ranks) {
  const bool needs_shares = selection.program.graph().needs_whole_shares();
  const auto shares = static_cast<uint64_t>(ranks);
  const bool has_odd_rows =
      has_rows && std::all_of(selection.left_out_rows.begin(), selection.left_out_rows.end(),
                              [&](uint64_t each) { return each % shares; });
  if (needs_shares && has_odd_rows) return NoEqualShares(selection, ranks);
  const std::string rows =
      needs_shares ? fmt::format("{0}:{1}:x2", ranks, 256 * shares) : "1:1024:x2";
  std::string cause = "the sizes are smaller than a row";
  if (has_rows) {
    cause = "the rows are more than a call can have";
  } else if (sizes_bytes.empty()) {
    cause = "neither --rows nor sizes are given";
  } else if (needs_shares) {
    cause = fmt::format("the sizes are smaller than a row for each of {} ranks", ranks);
  }
  return {ErrorCode::kUsage,
          "no size has a row of the program",
          selection.file,
          cause,
          has_rows ? "give fewer rows" : fmt::format("give --rows {}, or larger --sizes", rows),
          {}};
}

// Refuses files that cannot be the text of a program, so that a binary gets no error of syntax.
Status CheckProgramText(std::string_view text, const std::string& path) {
  constexpr const char* kNextStep =
      "give a text such as: program sum; %x = input f32 [R, 1024]; %y = all_reduce sum %x; "
      "return %y (a line break does as well as a semicolon)";
  if (text.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kUsage, "the file is no program text", path, "it has binary data",
                kNextStep);
  }
  if (text.starts_with("\xef\xbb\xbf")) {
    return Fail(ErrorCode::kUsage, "the file begins with a byte order mark", path, "",
                "save it as UTF-8 without one");
  }
  if (text.size() > kProgramTextBytesMax) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the file is larger than {} KiB", kProgramTextBytesMax / 1024), path,
                "the text of a program has at most that size", kNextStep);
  }
  return {};
}

}  // namespace

Result<ProgramGraph> ReadProgramFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Fail(ErrorCode::kEnvironment, "cannot read the program file", path, std::strerror(errno),
                "check the path");
  }
  std::string text(kProgramTextBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) {
    return Fail(ErrorCode::kEnvironment, "cannot read the program file", path, std::strerror(errno),
                "check that it is a file");
  }
  COTUNE_RETURN_IF_ERROR(CheckProgramText(text, path));
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  if (graph) return graph;
  Error error = graph.error();
  error.where = error.where.empty() ? path : path + ", " + error.where;
  return tl::make_unexpected(std::move(error));
}

bool AnyHasRows(const std::vector<ProgramSelection>& programs) {
  return std::any_of(programs.begin(), programs.end(),
                     [](const ProgramSelection& each) { return each.program.graph().has_rows(); });
}

Error NoRows(const std::string& file, const std::string& flag) {
  return {ErrorCode::kUsage,
          fmt::format("{} has no effect here", flag),
          flag,
          fmt::format("no value of {} has R rows, so that the text fixes its size", file),
          "leave it out",
          {}};
}

Result<std::vector<ProgramSelection>> SelectPrograms(const std::vector<std::string>& files,
                                                     const std::optional<std::string>& rows,
                                                     const std::vector<uint64_t>& sizes_bytes,
                                                     const GroupShape& group) {
  std::vector<uint64_t> row_counts;
  if (rows) {
    COTUNE_TRY(std::vector<uint64_t> parsed, ParseRows(*rows));
    row_counts = std::move(parsed);
  }
  std::vector<ProgramSelection> selected;
  for (const std::string& file : files) {
    COTUNE_TRY(ProgramGraph graph, ReadProgramFile(file));
    Result<Program> program = Program::Bind(std::move(graph), group);
    if (!program) {
      Error error = program.error();
      error.where = file;
      return tl::make_unexpected(std::move(error));
    }
    ProgramSelection selection{file, std::move(*program), {}};
    const ProgramGraph& own = selection.program.graph();
    std::vector<uint64_t>& sizes = selection.sizes_bytes;
    if (!own.has_rows()) {
      sizes = {selection.program.ProblemAtRows(1, 0).bytes()};
    } else if (rows) {
      SelectRows(selection, row_counts);
    } else {
      for (const uint64_t bytes : sizes_bytes) {
        sizes.push_back(selection.program.ProblemAt(bytes, 0).bytes());
      }
      std::erase(sizes, 0);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    if (sizes.empty()) {
      return tl::make_unexpected(
          NoRowsAtAll(selection, rows.has_value(), sizes_bytes, group.world_size));
    }
    // A program that is given twice is measured once, as sizes and collectives are.
    const bool is_new = std::none_of(selected.begin(), selected.end(), [&](const auto& other) {
      return other.program.graph().ToText() == own.ToText();
    });
    if (is_new) selected.push_back(std::move(selection));
  }
  return selected;
}

}  // namespace cotune::cli
