// A fixture around the real `cotune`, with its own folders and the host plugin.
#ifndef COTUNE_CLI_TESTING_COTUNE_PROGRAM_H_
#define COTUNE_CLI_TESTING_COTUNE_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

#include "cli/testing/program_run.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {

class CotuneProgramTest : public testing::Test {
 protected:
  CotuneProgramTest();

  // The command line of the program under test: the one that ships, or that which reacts to
  // COTUNE_FAULT once a fault is set.
  std::vector<std::string> Command(const std::vector<std::string>& arguments) const;
  // "" sets none.
  void SetFault(const std::string& fault);
  ProgramEnd Run(const std::vector<std::string>& arguments) const;
  // A tune of two small cells by two ranks into this database.
  ProgramEnd TuneSmall(const std::string& database,
                       const std::vector<std::string>& more = {}) const;
  // Standard output as a document that fits the schema.
  static nlohmann::json Document(const ProgramEnd& end);

  const ShortFolder folder_;
  const std::string database_;
  std::map<std::string, std::string> environment_;
  bool has_fault_ = false;
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_TESTING_COTUNE_PROGRAM_H_
