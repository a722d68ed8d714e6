// Standard output for results alone.
#ifndef COTUNE_CLI_OUTPUT_RESULTS_FILE_H_
#define COTUNE_CLI_OUTPUT_RESULTS_FILE_H_

namespace cotune::cli {

// The descriptor of the results: standard output, or what standard output was before a
// LibrariesPrintToError began. A signal handler may call it.
int ResultsFile();

// While it lives, libraries that print to standard output print to standard error, so that results
// stay whole. Not nested. The thread that makes it destroys it; without a standard output it does
// nothing.
class LibrariesPrintToError {
 public:
  LibrariesPrintToError();
  LibrariesPrintToError(const LibrariesPrintToError&) = delete;
  LibrariesPrintToError& operator=(const LibrariesPrintToError&) = delete;
  ~LibrariesPrintToError();
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_RESULTS_FILE_H_
