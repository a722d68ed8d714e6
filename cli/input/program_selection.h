// From program files and numbers of rows as typed to the programs and sizes that a command works
// on.
#ifndef COTUNE_CLI_INPUT_PROGRAM_SELECTION_H_
#define COTUNE_CLI_INPUT_PROGRAM_SELECTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/problem/program.h"

namespace cotune::cli {

struct ProgramSelection {
  std::string file;
  Program program;
  std::vector<uint64_t> sizes_bytes;      // of the first collective; whole rows
  std::vector<uint64_t> left_out_rows{};  // asked for, and no whole share for every rank
};

// Reads a program file. kEnvironment: it cannot be read; kUsage names file, line and column.
Result<ProgramGraph> ReadProgramFile(const std::string& path);

bool AnyHasRows(const std::vector<ProgramSelection>& programs);

// kUsage: `flag` gives a size to a program that has none to be given.
Error NoRows(const std::string& file, const std::string& flag);

// rows: as --rows has it, "1:1024:x2"; nullopt: the sizes count. Sizes in bytes are rounded down to
// whole rows. kUsage: a file that is no program, one that does not fit the group, or no size with a
// row (and with whole shares, where the program needs them), or rows for programs without R.
Result<std::vector<ProgramSelection>> SelectPrograms(const std::vector<std::string>& files,
                                                     const std::optional<std::string>& rows,
                                                     const std::vector<uint64_t>& sizes_bytes,
                                                     const GroupShape& group);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_INPUT_PROGRAM_SELECTION_H_
