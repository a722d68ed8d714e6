// Tests what becomes of the extensions that a backend offers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/loader/testing/probe_backend.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using BackendExtensionsTest = ProbeBackendTest;

constexpr cotune_memory_v1_t kMemory = {
    .struct_size = sizeof(cotune_memory_v1_t),
    .flags = 0,
    .memory_register =
        [](cotune_group_t* group, void* data, uint64_t bytes, int64_t, cotune_error_t* error) {
          if (Of(group).status != COTUNE_OK) return Answer(Of(group), error);
          Of(group).registered.emplace_back(data, bytes);
          return cotune_status_t{COTUNE_OK};
        },
    .memory_unregister =
        [](cotune_group_t* group, void* data) {
          std::erase_if(Of(group).registered,
                        [&](const auto& range) { return range.first == data; });
        },
};
TEST_F(BackendExtensionsTest, WithoutTheExtensionNoMemoryIsTaken) {
  GroupParameters parameters;
  parameters.job_ranks = {0, 1};
  const auto group = backend_->CreateGroup(parameters);
  ASSERT_TRUE(group);
  int data = 0;
  const Status refused = (*group)->RegisterMemory(&data, sizeof(data), 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().ToText(), HasSubstr("probe"));
  (*group)->UnregisterMemory(&data);
}

TEST_F(BackendExtensionsTest, MemoryGoesToTheExtension) {
  probe_.memory = &kMemory;
  backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value();
  GroupParameters parameters;
  parameters.job_ranks = {3, 5};
  const auto group = backend_->CreateGroup(parameters);
  ASSERT_TRUE(group);
  int data = 0;
  ASSERT_TRUE((*group)->RegisterMemory(&data, sizeof(data), 5));
  EXPECT_THAT(probe_.registered, ElementsAre(std::pair<void*, uint64_t>(&data, sizeof(data))));
  (*group)->UnregisterMemory(&data);
  EXPECT_THAT(probe_.registered, IsEmpty());
  probe_.status = COTUNE_PEER_FAILED;
  probe_.failed_rank = 1;
  probe_.message = "rank 1 did not come";
  const Status lost = (*group)->RegisterMemory(&data, sizeof(data), 5);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kRankLost);
  EXPECT_THAT(lost.error().ranks, ElementsAre(5));
}

constexpr cotune_connections_v1_t kConnections = {
    .struct_size = sizeof(cotune_connections_v1_t),
    .flags = 0,
    .connection_text =
        [](cotune_group_t* group, int32_t peer, char* text, uint32_t capacity,
           cotune_error_t* error) {
          if (Of(group).status != COTUNE_OK) return Answer(Of(group), error);
          const std::string full = "wire/" + std::to_string(peer) + std::string(300, '.');
          // It breaks the rule: the text has no end.
          std::memcpy(text, full.data(), std::min<size_t>(full.size(), capacity));
          return cotune_status_t{COTUNE_OK};
        },
};
TEST_F(BackendExtensionsTest, ConnectionsAreThoseOfTheExtension) {
  const auto connections = [&] {
    backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value();
    GroupParameters parameters;
    parameters.rank = 1;
    parameters.job_ranks = {3, 5, 6};
    return backend_->CreateGroup(parameters).value()->Connections();
  };
  EXPECT_THAT(connections(), IsEmpty());
  probe_.connections = &kConnections;
  EXPECT_THAT(connections(),
              ElementsAre("wire/0" + std::string(249, '.'), "", "wire/2" + std::string(249, '.')));
}

TEST_F(BackendExtensionsTest, AConnectionThatIsNotKnownSaysWhy) {
  probe_.connections = &kConnections;
  backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value();
  GroupParameters parameters;
  parameters.job_ranks = {0, 1};
  const auto group = backend_->CreateGroup(parameters).value();
  probe_.status = COTUNE_INTERNAL;
  probe_.message = "the wire is cut";
  EXPECT_THAT(group->Connections(), ElementsAre("", HasSubstr("not known: the wire is cut")));
}

constexpr cotune_libraries_v1_t kLibraries = {
    .struct_size = sizeof(cotune_libraries_v1_t),
    .flags = 0,
    .libraries_text =
        [](const cotune_backend_t* backend, char* text, uint32_t capacity, cotune_error_t* error) {
          if (backend->status != COTUNE_OK) return Answer(*backend, error);
          std::strncpy(text, "libwire 2.1", capacity);
          return cotune_status_t{COTUNE_OK};
        },
};
TEST_F(BackendExtensionsTest, FlagsThatMustBeUnderstoodRefuseTheBackend) {
  cotune_libraries_v1_t libraries = kLibraries;
  probe_.libraries = &libraries;
  libraries.flags = 1u << 3;
  EXPECT_TRUE(AdoptBackend(&table_, services_.table(), -1, "test"));
  libraries.flags = 1u << 20;
  const auto refused = AdoptBackend(&table_, services_.table(), -1, "test");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPluginRefused);
  EXPECT_THAT(refused.error().ToText(), HasSubstr("it has flags that this cotune does not know"));
}

TEST_F(BackendExtensionsTest, LibrariesAreThoseOfTheExtension) {
  const auto adopt = [&] { return AdoptBackend(&table_, services_.table(), -1, "test"); };
  EXPECT_EQ(adopt().value()->libraries(), "");
  probe_.libraries = &kLibraries;
  EXPECT_EQ(adopt().value()->libraries(), "libwire 2.1");
  // A backend with unknown versions is refused: its measurements would count with any version.
  probe_.status = COTUNE_INTERNAL;
  probe_.message = "the library has gone";
  const auto refused = adopt();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPluginRefused);
  EXPECT_THAT(refused.error().ToText(), HasSubstr("cotune.libraries/1"));
  EXPECT_THAT(refused.error().ToText(), HasSubstr("the library has gone"));
  probe_.status = COTUNE_OK;
  cotune_libraries_v1_t broken = kLibraries;
  broken.libraries_text = [](const cotune_backend_t*, char* text, uint32_t capacity,
                             cotune_error_t*) {
    std::memset(text, 'x', capacity);
    return cotune_status_t{COTUNE_OK};
  };
  probe_.libraries = &broken;
  EXPECT_THAT(adopt().error().ToText(), HasSubstr("its text fills the 256 bytes"));
  broken.libraries_text = [](const cotune_backend_t*, char* text, uint32_t, cotune_error_t*) {
    std::strcpy(text, "libwire\n2.1");
    return cotune_status_t{COTUNE_OK};
  };
  EXPECT_THAT(adopt().error().ToText(), HasSubstr("a control character"));
  broken = kLibraries;
  broken.libraries_text = nullptr;
  EXPECT_THAT(adopt().error().ToText(), HasSubstr("libraries_text is NULL"));
  broken = kLibraries;
  broken.struct_size = 8;
  EXPECT_THAT(adopt().error().ToText(), HasSubstr("struct_size is too small"));
}

TEST_F(BackendExtensionsTest, ABrokenConnectionsExtensionIsRefused) {
  const auto adopt_with = [&](cotune_connections_v1_t connections) {
    probe_.connections = &connections;
    const auto adopted = AdoptBackend(&table_, services_.table(), -1, "test");
    return adopted ? "adopted" : adopted.error().ToText();
  };
  cotune_connections_v1_t connections = kConnections;
  connections.struct_size = 8;
  EXPECT_THAT(adopt_with(connections), HasSubstr("struct_size is too small"));
  connections = kConnections;
  connections.connection_text = nullptr;
  EXPECT_THAT(adopt_with(connections), HasSubstr("connection_text is NULL"));
  EXPECT_THAT(adopt_with(connections), HasSubstr("cotune.connections/1"));
  EXPECT_EQ(adopt_with(kConnections), "adopted");
}

TEST_F(BackendExtensionsTest, ABrokenExtensionIsRefused) {
  const auto adopt_with = [&](cotune_memory_v1_t memory) {
    probe_.memory = &memory;
    const auto adopted = AdoptBackend(&table_, services_.table(), -1, "test");
    return adopted ? "adopted" : adopted.error().ToText();
  };
  cotune_memory_v1_t memory = kMemory;
  memory.struct_size = 8;
  EXPECT_THAT(adopt_with(memory), HasSubstr("struct_size is too small"));
  memory = kMemory;
  memory.memory_register = nullptr;
  EXPECT_THAT(adopt_with(memory), HasSubstr("memory_register is NULL"));
  memory = kMemory;
  memory.memory_unregister = nullptr;
  EXPECT_THAT(adopt_with(memory), HasSubstr("memory_unregister is NULL"));
  EXPECT_EQ(adopt_with(kMemory), "adopted");
}

}  // namespace
}  // namespace cotune
