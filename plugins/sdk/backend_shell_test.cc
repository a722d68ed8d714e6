// Callers of a backend's table see the results, failures and exceptions of the classes behind it.
#include "plugins/sdk/backend_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/testing/probe_backend.h"

namespace cotune::sdk {
namespace {

using ::testing::HasSubstr;

// Operations on a stream are complete when the stream is.
struct StreamPlan : Counted {
  static Result<void> Launch(const cotune_launch_t& /*launch*/) { return Answer(); }
};

struct RegisteringGroup : ProbeGroup<StreamPlan> {
  static Result<void> RegisterMemory(void* data, uint64_t /*bytes*/, int64_t /*deadline_ns*/) {
    if (auto answer = Answer(); !answer) return answer;
    probe.registered = data;
    return {};
  }
  static void UnregisterMemory(void* /*data*/) { probe.registered = nullptr; }
  static std::string ConnectionText(int peer) { return "wire/" + std::to_string(peer); }
};

using CudaBackend = ProbeBackend<RegisteringGroup, COTUNE_MEMORY_CUDA>;

class BackendShellTest : public ProbeTest {
 protected:
  const cotune_backend_api_t& host_ = *BackendShell<HostBackend>::Table();
  const cotune_backend_api_t& cuda_ = *BackendShell<CudaBackend>::Table();
};

TEST_F(BackendShellTest, TheTableHasTheBackendsNames) {
  EXPECT_EQ(host_.struct_size, sizeof(cotune_backend_api_t));
  EXPECT_STREQ(host_.name, "probe");
  EXPECT_STREQ(host_.version, "7");
  EXPECT_EQ(host_.memory_kinds, 1u << COTUNE_MEMORY_HOST);
  EXPECT_EQ(cuda_.memory_kinds, 1u << COTUNE_MEMORY_CUDA);
}

TEST_F(BackendShellTest, HandlesAreTheObjectsOfTheBackend) {
  Handles handles(host_, -1);
  handles.MakeAll();
  EXPECT_EQ(probe.objects, 3);
  EXPECT_EQ(handles.Launch(), COTUNE_OK);
  probe.is_complete = false;
  EXPECT_EQ(handles.Progress(), COTUNE_IN_PROGRESS);
  probe.is_complete = true;
  EXPECT_EQ(handles.Progress(), COTUNE_OK);
  EXPECT_EQ(handles.Health(), COTUNE_OK);
  handles.Abort();
  EXPECT_EQ(probe.aborts, 1);
}

TEST_F(BackendShellTest, ChoicesAreListedWithReasonsForThoseThatAreRefused) {
  Handles handles(host_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  ASSERT_EQ(handles.List(), COTUNE_OK);
  ASSERT_EQ(handles.count_, 2u);
  EXPECT_STREQ(handles.choices_[0].name, "good");
  EXPECT_EQ(handles.choices_[0].status, COTUNE_OK);
  EXPECT_EQ(handles.choices_[0].flags, COTUNE_CHOICE_DEFAULT);
  EXPECT_EQ(handles.choices_[0].cost_us, 2);
  EXPECT_STREQ(handles.choices_[0].numerics, "own.order");
  EXPECT_STREQ(handles.choices_[1].numerics, "");
  EXPECT_EQ(handles.choices_[1].status, COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.choices_[1].flags, 0u) << "flags of what can run";
  EXPECT_STREQ(handles.choices_[1].reason, "not here");
}

TEST_F(BackendShellTest, EntriesAreMadeOfABackendsOwnChoices) {
  struct Own {
    std::string name;
    std::string reason;
    double cost_us;
    bool is_default;
    std::string numerics;
  };
  const auto entries =
      ChoiceEntries(std::vector<Own>{{"a", "", 1, true, "exact"},
                                     {"b", "", 2, false, std::string(40, 'o')},
                                     {std::string(200, 'c'), "no", 3, true, "exact"}},
                    COTUNE_CHOICE_REPRODUCIBLE);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].flags, COTUNE_CHOICE_REPRODUCIBLE | COTUNE_CHOICE_DEFAULT);
  EXPECT_EQ(entries[1].flags, uint32_t{COTUNE_CHOICE_REPRODUCIBLE});
  EXPECT_STREQ(entries[0].numerics, "exact");
  // Too long for the struct: it is not cut to another text, and the host refuses it.
  EXPECT_EQ(std::string_view(entries[1].numerics, sizeof(entries[1].numerics)),
            std::string(32, 'o'));
  EXPECT_EQ(entries[1].cost_us, 2);
  EXPECT_EQ(entries[2].flags, 0u);
  EXPECT_EQ(std::string(entries[2].name).size(), sizeof(entries[2].name) - 1);
}

TEST_F(BackendShellTest, ChoicesThatSayNothingOfTheirNumericsCompileAndAreUnknown) {
  struct Own {
    std::string name;
    std::string reason;
    double cost_us;
    bool is_default;
  };
  const auto entries = ChoiceEntries(std::vector<Own>{{"a", "", 1, true}}, 0);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_STREQ(entries[0].numerics, "");
  EXPECT_STREQ(ChoiceEntry("b", "", 2, 0).numerics, "");
}

// Each function that can fail, and that it makes nothing then.
TEST_F(BackendShellTest, FailuresAreWrittenIntoTheCallersStruct) {
  Handles handles(host_, -1);
  const auto expect_failure = [&](cotune_status_t status, const char* call) {
    EXPECT_EQ(status, COTUNE_OUT_OF_RESOURCES) << call;
    EXPECT_EQ(handles.message(), "no room") << call;
    EXPECT_EQ(handles.error_.native_code, 12) << call;
    EXPECT_EQ(handles.error_.failed_rank, 1) << call;
    handles.error_ = {};
    handles.error_.struct_size = sizeof(handles.error_);
  };
  const Result<void> failure = Fail(COTUNE_OUT_OF_RESOURCES, "no room", 12, 1);
  probe.answer = failure;
  expect_failure(handles.Create(), "create");
  EXPECT_EQ(handles.backend_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.List(), "list_choices");
  expect_failure(handles.Join(), "group_create");
  EXPECT_EQ(handles.group_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Join(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.Health(), "group_health");
  expect_failure(handles.Prepare(), "prepare");
  EXPECT_EQ(handles.plan_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Prepare(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.Launch(), "launch");
  expect_failure(handles.Progress(), "progress");
  EXPECT_EQ(host_.launch(handles.plan_, &handles.launch_, nullptr), COTUNE_OUT_OF_RESOURCES);
}

TEST_F(BackendShellTest, NoExceptionGetsOut) {
  Handles handles(host_, -1);
  handles.MakeAll();
  cotune_backend_t* backend = nullptr;
  const std::function<cotune_status_t()> calls[] = {
      [&] { return host_.create(&handles.host_, -1, &backend, &handles.error_); },
      [&] { return handles.List(); },
      [&] { return handles.Join(); },
      [&] { return handles.Health(); },
      [&] { return handles.Prepare(); },
      [&] { return handles.Launch(); },
      [&] { return handles.Progress(); }};
  for (const auto& call : calls) {
    probe.throws = Throws::kStandard;
    EXPECT_EQ(call(), COTUNE_INTERNAL);
    EXPECT_EQ(handles.message(), "probe: out of luck");
    probe.throws = Throws::kNoMemory;
    EXPECT_EQ(call(), COTUNE_OUT_OF_RESOURCES);
    EXPECT_EQ(handles.message(), "probe: out of memory");
    probe.throws = Throws::kInt;
    EXPECT_EQ(call(), COTUNE_INTERNAL);
    EXPECT_THAT(handles.message(), HasSubstr("no std::exception"));
  }
  EXPECT_EQ(backend, nullptr);
  EXPECT_NO_THROW(handles.Abort());
}

TEST_F(BackendShellTest, ArgumentsThatFitNoBackendAreRefused) {
  Handles handles(host_, -1);
  EXPECT_EQ(host_.create(&handles.host_, 0, &handles.backend_, &handles.error_),
            COTUNE_UNSUPPORTED);
  EXPECT_THAT(handles.message(), HasSubstr("use -1"));
  handles.host_.struct_size = 16;
  EXPECT_EQ(handles.Create(), COTUNE_INVALID_ARGUMENT);
  handles.host_.struct_size = sizeof(cotune_host_t);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  handles.params_.device = 1;
  EXPECT_EQ(handles.Join(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "group 'g' is on device 1, this backend on device -1");
  handles.params_.device = -1;
  handles.params_.rank = 2;
  EXPECT_EQ(handles.Join(), COTUNE_INVALID_ARGUMENT);
  handles.params_.rank = 0;
  const int32_t apart[] = {0, 1};
  handles.params_.host_of_rank = apart;
  EXPECT_EQ(handles.Join(), COTUNE_UNSUPPORTED);
  EXPECT_THAT(handles.error_.message, HasSubstr("on 2 hosts"));
  const int32_t together[] = {0, 0};
  handles.params_.host_of_rank = together;
  ASSERT_EQ(handles.Join(), COTUNE_OK);
  handles.problem_.world_size = handles.problem_.ranks_per_node = 3;
  EXPECT_EQ(handles.Prepare(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "a problem of 3 ranks in a group of 2");
  handles.problem_.world_size = handles.problem_.ranks_per_node = 2;
  handles.problem_.memory_kind = COTUNE_MEMORY_CUDA;
  EXPECT_EQ(handles.Prepare(), COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.List(), COTUNE_UNSUPPORTED);
  handles.problem_.memory_kind = COTUNE_MEMORY_HOST;
  ASSERT_EQ(handles.Prepare(), COTUNE_OK);
  handles.launch_.stream.kind = COTUNE_STREAM_CUDA;
  EXPECT_EQ(handles.Launch(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "stream kind 2: this backend needs a host stream");
}

TEST_F(BackendShellTest, PlansOnStreamsHaveNothingToProgress) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(handles.Launch(), COTUNE_OK);
  EXPECT_EQ(handles.Progress(), COTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(handles.message(), HasSubstr("nothing to progress"));
}

TEST_F(BackendShellTest, MemoryIsAnExtensionOfGroupsThatRegisterSome) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_MEMORY_EXTENSION), nullptr);
  EXPECT_EQ(cuda_.get_extension(handles.backend_, "cotune.memory/2"), nullptr);
  const auto* memory = static_cast<const cotune_memory_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_MEMORY_EXTENSION));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->struct_size, sizeof(cotune_memory_v1_t));
  int data = 0;
  EXPECT_EQ(memory->memory_register(handles.group_, &data, 4, 0, &handles.error_), COTUNE_OK);
  EXPECT_EQ(probe.registered, &data);
  memory->memory_unregister(handles.group_, &data);
  EXPECT_EQ(probe.registered, nullptr);
  probe.answer = Fail(COTUNE_UNSUPPORTED, "not this");
  EXPECT_EQ(memory->memory_register(handles.group_, &data, 4, 0, &handles.error_),
            COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.message(), "not this");
}

TEST_F(BackendShellTest, ConnectionsAreAnExtensionOfGroupsThatTellThem) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_CONNECTIONS_EXTENSION), nullptr);
  const auto* connections = static_cast<const cotune_connections_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_CONNECTIONS_EXTENSION));
  ASSERT_NE(connections, nullptr);
  EXPECT_EQ(connections->struct_size, sizeof(cotune_connections_v1_t));
  const auto text_of = [&](int32_t peer, char* text, uint32_t capacity) {
    return connections->connection_text(handles.group_, peer, text, capacity, &handles.error_);
  };
  char text[8] = "xxxxxxx";
  EXPECT_EQ(text_of(1, text, sizeof(text)), COTUNE_OK);
  EXPECT_STREQ(text, "wire/1");
  EXPECT_EQ(text_of(1, text, 4), COTUNE_OK);
  EXPECT_STREQ(text, "wir");
  EXPECT_EQ(text_of(1, text, 0), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(-1, text, sizeof(text)), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(2, text, sizeof(text)), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "the peer is no rank of the group");
}

TEST_F(BackendShellTest, LibrariesAreAnExtensionOfBackendsThatTellThem) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_LIBRARIES_EXTENSION), nullptr);
  const auto* libraries = static_cast<const cotune_libraries_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_LIBRARIES_EXTENSION));
  ASSERT_NE(libraries, nullptr);
  EXPECT_EQ(libraries->struct_size, sizeof(cotune_libraries_v1_t));
  char text[16] = "";
  EXPECT_EQ(libraries->libraries_text(handles.backend_, text, sizeof(text), &handles.error_),
            COTUNE_OK);
  EXPECT_STREQ(text, "libwire 2.1");
  EXPECT_EQ(libraries->libraries_text(handles.backend_, text, 4, &handles.error_), COTUNE_OK);
  EXPECT_STREQ(text, "lib");
}

}  // namespace
}  // namespace cotune::sdk
