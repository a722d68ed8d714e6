// `cotune program check` shows what a program means: its values, its steps, its canonical text.
#ifndef COTUNE_CLI_OUTPUT_PROGRAM_REPORT_H_
#define COTUNE_CLI_OUTPUT_PROGRAM_REPORT_H_

#include <string>

#include "core/problem/program.h"

namespace cotune::cli {

std::string ProgramReportText(const Program& program);
std::string ProgramReportJson(const Program& program);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_PROGRAM_REPORT_H_
