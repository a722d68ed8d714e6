#include "integration/capi/testing/one_process.h"

#include <stdlib.h>

#include <cstddef>
#include <filesystem>

namespace cotune {
namespace {

cotune_call AllReduce(uint64_t count) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = count;
  return call;
}

}  // namespace

void OneProcessTest::SetUp() {
  char folder[] = "/tmp/cotune.XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  folder_ = folder;
  const std::string plugin = folder_ + "/cotune_host.so";
  std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
  std::filesystem::permissions(plugin, std::filesystem::perms(0755));
  setenv("XDG_RUNTIME_DIR", folder, 1);
  setenv("XDG_CACHE_HOME", folder, 1);
  group_ = Create();
  ASSERT_NE(group_, nullptr);
}

void OneProcessTest::TearDown() {
  cotune_group_destroy(group_);
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

void OneProcessTest::CallOnce() {
  float sent = 3;
  float received = 0;
  EXPECT_EQ(cotune_all_reduce(group_, &sent, &received, 1, COTUNE_F32, COTUNE_REDUCE_SUM),
            COTUNE_SUCCESS)
      << cotune_last_error(group_);
  EXPECT_EQ(received, 3);
}

cotune_group* OneProcessTest::Create(const cotune_functions* functions) {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.world_size = 1;
  options.plugin_path = folder_.c_str();
  options.functions = functions;
  options.log = [](void* lines, int32_t, const char* text) {
    static_cast<std::vector<std::string>*>(lines)->emplace_back(text);
  };
  options.log_context = &log_;
  cotune_group* group = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
  return group;
}

cotune_tune_report OneProcessTest::Tune(const std::string& path, bool is_in_place,
                                        uint64_t size_bytes) {
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE | 1u << COTUNE_COLLECTIVE_BROADCAST;
  options.sizes_bytes = &size_bytes;
  options.size_count = 1;
  options.database_path = path.empty() ? nullptr : path.c_str();
  options.is_in_place = is_in_place ? 1 : 0;
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  EXPECT_EQ(cotune_tune(group_, &options, &report), COTUNE_SUCCESS) << cotune_last_error(group_);
  return report;
}

std::string OneProcessTest::Explained(bool is_in_place, uint64_t count) const {
  cotune_call call = AllReduce(count);
  call.is_in_place = is_in_place ? 1 : 0;
  char text[4096] = "";
  EXPECT_EQ(cotune_explain(group_, &call, text, sizeof(text), nullptr), COTUNE_SUCCESS)
      << cotune_last_error(group_);
  return text;
}

nlohmann::json OneProcessTest::ExplainedAsJson(uint64_t count) const {
  const cotune_call call = AllReduce(count);
  size_t length = 0;
  EXPECT_EQ(cotune_explain_json(group_, &call, nullptr, 0, &length), COTUNE_SUCCESS);
  std::string text(length + 1, '\0');
  EXPECT_EQ(cotune_explain_json(group_, &call, text.data(), text.size(), &length), COTUNE_SUCCESS);
  text.resize(length);
  return nlohmann::json::parse(text);
}

std::vector<DatabaseEntry> OneProcessTest::EntriesOf(const std::string& path) {
  const Result<TunedDatabase> database = TunedDatabase::Load(path);
  EXPECT_TRUE(database) << database.error().ToText();
  const Result<std::vector<DatabaseEntry>> entries = database->entries();
  EXPECT_TRUE(entries) << entries.error().ToText();
  return *entries;
}

void OneProcessTest::Write(const std::vector<DatabaseEntry>& entries, const std::string& path) {
  TunedDatabase database;
  for (const DatabaseEntry& entry : entries) database.Put(entry);
  const Status saved = database.Save(path);
  ASSERT_TRUE(saved) << saved.error().ToText();
}

}  // namespace cotune
