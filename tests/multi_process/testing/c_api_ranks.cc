#include "tests/multi_process/testing/c_api_ranks.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "fmt/format.h"

namespace cotune {
namespace {

// Only what the library logs of its table, of programs and of forced choices: other lines come from
// another thread.
void Log(void* context, int32_t severity, const char* text) {
  const std::string_view line(text);
  const bool is_of_program = severity == 0 && line.starts_with("program ");
  const bool is_of_force = line.find("forced choice, ") != std::string_view::npos;
  if (!line.starts_with("calls run") && !line.starts_with("what is tuned") && !is_of_program &&
      !is_of_force) {
    return;
  }
  static_cast<TestLink*>(context)->Report(fmt::format("log {} {}", severity, text));
}

}  // namespace

CApiRanks::CApiRanks() {
  CopyPlugin("host", plugins_);
  CopyPlugin("fake", fake_plugins_);
  setenv("XDG_CACHE_HOME", (folder_.path() + "/cache").c_str(), 1);
  unsetenv("COTUNE_DATABASE");
  unsetenv("COTUNE_CONFIG");
}

void CApiRanks::CopyPlugin(const std::string& name, const std::string& folder,
                           const std::string& from) {
  std::filesystem::create_directories(folder);
  const std::string file = "cotune_" + name + ".so";
  const std::string to = folder + "/" + file;
  const std::string source = from.empty() ? "plugins/" + name : from;
  std::filesystem::copy_file(std::filesystem::canonical(source + "/" + file), to);
  std::filesystem::permissions(to, std::filesystem::perms(0755));
}

void CApiRanks::SetFakeScript(const std::string& script) const {
  const std::string path = folder_.path() + "/config.toml";
  std::ofstream(path) << "[fake]\nscript = \"" << script << "\"\n";
  setenv("COTUNE_CONFIG", path.c_str(), 1);
}

cotune_group* CApiRanks::Create(int rank, int world_size, TestLink& link,
                                const std::string& plugins) const {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.rank = rank;
  options.world_size = world_size;
  options.socket_path = socket_.c_str();
  options.plugin_path = plugins.empty() ? plugins_.c_str() : plugins.c_str();
  options.backends = backends_;
  options.force = force_;
  options.call_timeout_ns = call_timeout_ns_;
  options.log = Log;
  options.log_context = &link;
  options.ignores_database = rank == ignores_database_on_ ? 1 : 0;
  cotune_group* group = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
    link.Report(fmt::format("create {} {}", error.result, error.text));
  }
  return group;
}

cotune_group* Split(cotune_group* group, const char* name, const std::vector<int32_t>& ranks,
                    TestLink& link) {
  cotune_group* part = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_group_split(group, name, ranks.data(), ranks.size(), &part, &error) !=
      COTUNE_SUCCESS) {
    link.Report(fmt::format("split {} {}", error.result, error.text));
  }
  return part;
}

void Say(TestLink& link, const char* what, const cotune_group* group, cotune_result result) {
  link.Report(fmt::format("{} {} {}", what, result, result == 0 ? "" : cotune_last_error(group)));
}

cotune_result Reduce(cotune_group* group, uint64_t count) {
  std::vector<float> send(count, 1.0F);
  std::vector<float> recv(count, 0.0F);
  const cotune_result result =
      cotune_all_reduce(group, send.data(), recv.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM);
  const auto sum = static_cast<float>(cotune_group_size(group));
  for (const float value : recv) {
    if (result == COTUNE_SUCCESS && value != sum) return COTUNE_ERROR_WRONG_RESULT;
  }
  return result;
}

cotune_result Tune(cotune_group* group, uint64_t bytes, const char* database,
                   cotune_tune_report* report) {
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
  options.sizes_bytes = &bytes;
  options.size_count = 1;
  options.database_path = database;
  return cotune_tune(group, &options, report);
}

std::string Explained(cotune_group* group, uint64_t count) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = count;
  char text[2048] = "";
  if (cotune_explain(group, &call, text, sizeof(text), nullptr) != COTUNE_SUCCESS) return "";
  return text;
}

}  // namespace cotune
