// Tests how the adapter translates tables, statuses and lists, with a table of this test's own.
#include "plugins/loader/backend_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/loader/host_services.h"
#include "sync/exchange/local_exchange.h"

// Everything that the table's functions answer; the handle of the backend points to it.
struct cotune_backend_t {
  cotune_status_t status = COTUNE_OK;  // of prepare, launch, progress and group_health
  int32_t failed_rank = -1;
  std::string message;
  std::vector<cotune_choice_t> choices;
  uint32_t list_calls = 0;
  const cotune_host_t* host = nullptr;
  cotune_problem_t problem{};
  cotune_launch_t launch{};
  std::vector<int32_t> job_ranks;
  std::vector<int32_t> host_of_rank;
  const cotune_memory_v1_t* memory = nullptr;  // the extension, if any
  const cotune_connections_v1_t* connections = nullptr;
  const cotune_libraries_v1_t* libraries = nullptr;
  std::vector<std::pair<void*, uint64_t>> registered;
};

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The table is constant and has no context, so the backend that create gives out is set here by the
// test that runs.
cotune_backend_t* next_backend = nullptr;

cotune_backend_t& Of(cotune_group_t* group) { return *reinterpret_cast<cotune_backend_t*>(group); }
cotune_backend_t& Of(cotune_plan_t* plan) { return *reinterpret_cast<cotune_backend_t*>(plan); }

cotune_status_t Answer(const cotune_backend_t& backend, cotune_error_t* error) {
  std::strncpy(error->message, backend.message.c_str(), sizeof(error->message) - 1);
  error->failed_rank = backend.failed_rank;
  return backend.status;
}

constexpr cotune_backend_api_t kTable = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = 0,
    .build_flags = 0,
    .memory_kinds = 1u << COTUNE_MEMORY_HOST,
    .name = "probe",
    .version = "2.1",
    .create =
        [](const cotune_host_t* host, int32_t, cotune_backend_t** backend, cotune_error_t*) {
          next_backend->host = host;
          *backend = next_backend;
          return cotune_status_t{COTUNE_OK};
        },
    .destroy = [](cotune_backend_t*) {},
    .get_extension = [](const cotune_backend_t* backend, const char* id) -> const void* {
      if (std::string_view(id) == "cotune.connections/1") return backend->connections;
      if (std::string_view(id) == "cotune.libraries/1") return backend->libraries;
      return std::string_view(id) == "cotune.memory/1" ? backend->memory : nullptr;
    },
    .list_choices =
        [](const cotune_backend_t* backend, const cotune_problem_t* problem, cotune_choice_t* first,
           uint32_t stride, uint32_t capacity, uint32_t* count, cotune_error_t* error) {
          next_backend->problem = *problem;
          ++next_backend->list_calls;
          if (backend->status != COTUNE_OK) return Answer(*backend, error);
          *count = static_cast<uint32_t>(backend->choices.size());
          for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
            std::memcpy(reinterpret_cast<char*>(first) + i * stride, &backend->choices[i],
                        sizeof(cotune_choice_t));
          }
          return cotune_status_t{COTUNE_OK};
        },
    .group_create =
        [](cotune_backend_t* backend, const cotune_group_params_t* params, cotune_group_t** group,
           cotune_error_t* error) {
          backend->job_ranks.assign(params->job_ranks, params->job_ranks + params->world_size);
          if (params->host_of_rank != nullptr) {
            backend->host_of_rank.assign(params->host_of_rank,
                                         params->host_of_rank + params->world_size);
          }
          *group = reinterpret_cast<cotune_group_t*>(backend);
          return Answer(*backend, error);
        },
    .group_health = [](cotune_group_t* group,
                       cotune_error_t* error) { return Answer(Of(group), error); },
    .group_abort = [](cotune_group_t* group) { Of(group).status = COTUNE_ABORTED; },
    .group_destroy = [](cotune_group_t*) {},
    .prepare =
        [](cotune_group_t* group, const cotune_problem_t* problem, const char*, int64_t,
           cotune_plan_t** plan, cotune_error_t* error) {
          Of(group).problem = *problem;
          *plan = reinterpret_cast<cotune_plan_t*>(group);
          return Answer(Of(group), error);
        },
    .launch =
        [](cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
          Of(plan).launch = *launch;
          return Answer(Of(plan), error);
        },
    .progress = [](cotune_plan_t* plan, int64_t,
                   cotune_error_t* error) { return Answer(Of(plan), error); },
    .plan_destroy = [](cotune_plan_t*) {},
};

cotune_backend_api_t Table() {
  cotune_backend_api_t table = kTable;
  table.build_flags = OwnBuildFlags();
  return table;
}

cotune_choice_t Entry(const std::string& name, uint32_t flags = 0) {
  cotune_choice_t entry{};
  entry.struct_size = sizeof(entry);
  entry.flags = flags;
  entry.cost_us = 2.5;
  entry.workspace_bytes = 64;
  name.copy(entry.name, sizeof(entry.name));
  return entry;
}

class BackendAdapterTest : public ::testing::Test {
 protected:
  BackendAdapterTest() {
    next_backend = &probe_;
    problem_.cls.reduction = Reduction::kMax;
    problem_.cls.dtype = Dtype::kBf16;
    problem_.cls.world_size = 4;
    problem_.cls.ranks_per_node = 2;
    problem_.count = 6;
    problem_.topology_digest = 0xABCD;
    backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value();
  }
  ~BackendAdapterTest() override { next_backend = nullptr; }

  ChoiceList List() {
    return backend_->ListChoices(Program::SingleCollective(problem_.cls).value(), problem_);
  }
  std::unique_ptr<BackendGroup> Group() {
    GroupParameters parameters;
    parameters.name = "g";
    parameters.rank = 1;
    parameters.job_ranks = {7, 5, 9};
    parameters.host_of_rank = {0, 1, 0};
    return backend_->CreateGroup(parameters).value();
  }
  Result<std::unique_ptr<Plan>> Prepare(BackendGroup& group) {
    return group.Prepare(Program::SingleCollective(problem_.cls).value(), problem_,
                         Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  }

  const MonotonicClock clock_;
  std::vector<std::unique_ptr<RankExchange>> exchanges_ = sync::MakeLocalExchanges(1, clock_);
  std::vector<std::string> log_;
  const HostServices services_{*exchanges_[0],
                               clock_,
                               {{"probe.depth", "3"}, {"depth", "4"}, {"other.depth", "5"}},
                               [this](int32_t, const std::string& text) { log_.push_back(text); }};
  const cotune_backend_api_t table_ = Table();
  cotune_backend_t probe_;
  Problem problem_;
  std::unique_ptr<Backend> backend_;
};

TEST(HostServicesTest, ASettingOfAllBackendsIsGivenUnlessABackendHasItsOwn) {
  const MonotonicClock clock;
  const auto exchanges = sync::MakeLocalExchanges(1, clock);
  const HostServices services(*exchanges[0], clock, {{"probe.own", "3"}, {"probe.shared", "4"}},
                              nullptr, {{"shared", "on"}});
  const cotune_host_t& host = services.table();
  EXPECT_STREQ(host.setting(host.context, "other.shared"), "on");
  EXPECT_STREQ(host.setting(host.context, "probe.shared"), "4");
  EXPECT_STREQ(host.setting(host.context, "probe.own"), "3");
  EXPECT_EQ(host.setting(host.context, "other.own"), nullptr);
}

TEST_F(BackendAdapterTest, NameVersionAndProblemArriveUnchanged) {
  EXPECT_EQ(backend_->name(), "probe");
  EXPECT_EQ(backend_->version(), "2.1");
  problem_.cls.in_place = true;
  problem_.cls.buffer_class = BufferClass::kSymmetric;
  List();
  EXPECT_EQ(probe_.problem.struct_size, sizeof(cotune_problem_t));
  EXPECT_EQ(probe_.problem.collective, static_cast<uint32_t>(COTUNE_ALL_REDUCE));
  EXPECT_EQ(probe_.problem.reduction, static_cast<uint32_t>(COTUNE_MAX));
  EXPECT_EQ(probe_.problem.memory_kind, static_cast<uint32_t>(COTUNE_MEMORY_HOST));
  EXPECT_EQ(probe_.problem.dtype.code, COTUNE_DTYPE_BFLOAT);
  EXPECT_EQ(probe_.problem.dtype.bits, 16);
  EXPECT_EQ(probe_.problem.dtype.lanes, 1);
  EXPECT_EQ(probe_.problem.flags,
            static_cast<uint32_t>(COTUNE_PROBLEM_IN_PLACE | COTUNE_PROBLEM_SYMMETRIC));
  EXPECT_EQ(probe_.problem.count, 6u);
  EXPECT_EQ(probe_.problem.bytes, 12u);
  EXPECT_EQ(probe_.problem.world_size, 4);
  EXPECT_EQ(probe_.problem.ranks_per_node, 2);
  EXPECT_EQ(probe_.problem.root, 0);
  EXPECT_EQ(probe_.problem.topology_digest, 0xABCDu);
}

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

TEST_F(BackendAdapterTest, WithoutTheExtensionNoMemoryIsTaken) {
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

TEST_F(BackendAdapterTest, MemoryGoesToTheExtension) {
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

TEST_F(BackendAdapterTest, ConnectionsAreThoseOfTheExtension) {
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

TEST_F(BackendAdapterTest, AConnectionThatIsNotKnownSaysWhy) {
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

TEST_F(BackendAdapterTest, LibrariesAreThoseOfTheExtension) {
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

TEST_F(BackendAdapterTest, ABrokenConnectionsExtensionIsRefused) {
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

TEST_F(BackendAdapterTest, ABrokenExtensionIsRefused) {
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

TEST_F(BackendAdapterTest, EveryDtypeIsSpelledAsInDlpack) {
  const std::map<Dtype, std::pair<int, int>> spelled = {
      {Dtype::kF32, {COTUNE_DTYPE_FLOAT, 32}}, {Dtype::kF64, {COTUNE_DTYPE_FLOAT, 64}},
      {Dtype::kF16, {COTUNE_DTYPE_FLOAT, 16}}, {Dtype::kBf16, {COTUNE_DTYPE_BFLOAT, 16}},
      {Dtype::kI32, {COTUNE_DTYPE_INT, 32}},   {Dtype::kI64, {COTUNE_DTYPE_INT, 64}},
      {Dtype::kU8, {COTUNE_DTYPE_UINT, 8}},
  };
  for (Dtype dtype : AllDtypes()) {
    problem_.cls.dtype = dtype;
    List();
    EXPECT_EQ(probe_.problem.dtype.code, spelled.at(dtype).first) << Name(dtype);
    EXPECT_EQ(probe_.problem.dtype.bits, spelled.at(dtype).second) << Name(dtype);
  }
}

TEST_F(BackendAdapterTest, TheHostShowsABackendItsOwnSettingsOnly) {
  const cotune_host_t& host = *probe_.host;
  EXPECT_STREQ(host.setting(host.context, "depth"), "3");
  EXPECT_EQ(host.setting(host.context, "probe.depth"), nullptr);
  EXPECT_EQ(host.setting(host.context, nullptr), nullptr);
  host.log(host.context, 2, "it is warm");
  EXPECT_THAT(log_, ElementsAre("probe: it is warm"));
  EXPECT_EQ(host.store_put(host.context, "k", "abc", 3), COTUNE_OK);
  char value[4] = {};
  uint64_t size = 0;
  EXPECT_EQ(host.store_get(host.context, "k", value, 2, &size, clock_.now_ns()),
            COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(host.store_get(host.context, "k", value, 3, &size, clock_.now_ns()), COTUNE_OK);
  EXPECT_STREQ(value, "abc");
  EXPECT_EQ(host.store_delete(host.context, "k"), COTUNE_OK);
  EXPECT_EQ(host.store_get(host.context, "k", value, 3, &size, clock_.now_ns()),
            COTUNE_DEADLINE_EXCEEDED);
  EXPECT_EQ(host.store_put(host.context, nullptr, "abc", 3), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(host.store_put(host.context, std::string(256, 'k').c_str(), "abc", 3),
            COTUNE_INVALID_ARGUMENT);
}

TEST_F(BackendAdapterTest, FlagsAndEstimatesOfChoicesAreRead) {
  probe_.choices = {
      Entry("a", COTUNE_CHOICE_CAPTURABLE),
      Entry("b?x=1", COTUNE_CHOICE_DEFAULT | COTUNE_CHOICE_REPRODUCIBLE |
                         COTUNE_CHOICE_COLLECTIVE_PREPARE | 1u << 15),
  };
  probe_.choices[0].cost_us = std::nan("");
  const ChoiceList list = List();
  EXPECT_THAT(list.refusals, IsEmpty());
  ASSERT_EQ(list.choices.size(), 2u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/a");
  EXPECT_TRUE(list.choices[0].is_capturable);
  EXPECT_FALSE(list.choices[0].is_default);
  EXPECT_EQ(list.choices[0].cost_us, -1);
  EXPECT_EQ(list.choices[0].workspace_bytes, 64u);
  EXPECT_EQ(list.choices[1].id.text(), "probe/b?x=1");
  EXPECT_TRUE(list.choices[1].is_default);
  EXPECT_TRUE(list.choices[1].is_reproducible);
  EXPECT_TRUE(list.choices[1].prepare_is_collective);
  EXPECT_FALSE(list.choices[1].is_capturable);
  EXPECT_EQ(list.choices[1].cost_us, 2.5);
}

TEST_F(BackendAdapterTest, APlanIsCapturableWhereItsChoiceIs) {
  probe_.choices = {Entry("a", COTUNE_CHOICE_CAPTURABLE), Entry("b", 0)};
  const auto group = Group();
  const Program program = Program::SingleCollective(problem_.cls).value();
  for (const Choice& choice : List().choices) {
    const auto plan = group->Prepare(program, problem_, choice, 5);
    ASSERT_TRUE(plan) << plan.error().ToText();
    EXPECT_EQ((*plan)->is_capturable(), choice.id.choice_name() == "a");
  }
}

TEST_F(BackendAdapterTest, ALongListIsReadInASecondCall) {
  for (int i = 0; i < 64; ++i) probe_.choices.push_back(Entry("c" + std::to_string(i)));
  EXPECT_EQ(List().choices.size(), 64u);
  EXPECT_EQ(probe_.list_calls, 1u);
  probe_.choices.push_back(Entry("c64"));
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 65u);
  EXPECT_EQ(list.choices[64].id.text(), "probe/c64");
  EXPECT_TRUE(list.choices[0].is_default);
  EXPECT_EQ(probe_.list_calls, 3u);
  for (int i = 65; i < 4096; ++i) probe_.choices.push_back(Entry("c" + std::to_string(i)));
  EXPECT_EQ(List().choices.size(), 4096u);
  probe_.choices.push_back(Entry("one_more"));
  const ChoiceList refused = List();
  EXPECT_THAT(refused.choices, IsEmpty());
  ASSERT_EQ(refused.refusals.size(), 1u);
  EXPECT_EQ(refused.refusals[0].reason, "its plugin lists 4097 choices, 4096 are the most");
}

TEST_F(BackendAdapterTest, EntriesThatBreakTheRulesAreRefusedAlone) {
  probe_.choices = {Entry("a", COTUNE_CHOICE_DEFAULT),
                    Entry("a"),
                    Entry(""),
                    Entry("UPPER"),
                    Entry("b?x"),
                    Entry(std::string(96, 'n')),
                    Entry("short"),
                    Entry("must", 1u << 17),
                    Entry("b", COTUNE_CHOICE_DEFAULT),
                    Entry("no")};
  probe_.choices[6].struct_size = 100;
  probe_.choices[9].status = COTUNE_UNSUPPORTED;
  std::memset(probe_.choices[9].reason, 'r', sizeof(probe_.choices[9].reason));
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/a");
  std::vector<std::string> refused;
  for (const Refusal& refusal : list.refusals) refused.push_back(refusal.choice);
  EXPECT_THAT(refused, ElementsAre("probe/a", "probe", "probe", "probe", "probe", "probe",
                                   "probe/must", "probe/no", "probe/b"));
  EXPECT_EQ(list.refusals[0].reason, "its plugin lists this name twice");
  EXPECT_THAT(list.refusals[1].reason, HasSubstr("without a proper name"));
  EXPECT_THAT(list.refusals[4].reason, HasSubstr("it does not end with NUL"));
  EXPECT_THAT(list.refusals[5].reason, HasSubstr("a choice of 100 bytes, version 1.0 has"));
  EXPECT_THAT(list.refusals[6].reason, HasSubstr("flags 0x20000, which this cotune does not know"));
  EXPECT_EQ(list.refusals[7].reason, std::string(sizeof(probe_.choices[9].reason), 'r'));
  EXPECT_EQ(list.refusals[8].reason, "its plugin marks two defaults, probe/a is the first");
}

// The text, without a NUL where it fills the field.
cotune_choice_t WithNumerics(cotune_choice_t entry, const std::string& text) {
  std::memcpy(entry.numerics, text.data(), std::min(text.size(), sizeof(entry.numerics)));
  return entry;
}

TEST_F(BackendAdapterTest, TheNumericsClassIsReadWhereThePluginHasTheField) {
  probe_.choices = {WithNumerics(Entry("a", COTUNE_CHOICE_DEFAULT), "rank_order_f32"),
                    Entry("unknown"), WithNumerics(Entry("longest"), std::string(31, 'x')),
                    WithNumerics(Entry("older"), "ring.64"), WithNumerics(Entry("cut"), "ring.64")};
  // As plugins of 1.0 and 1.1 write it, and one byte short of the field.
  probe_.choices[3].struct_size = offsetof(cotune_choice_t, numerics);
  probe_.choices[4].struct_size = sizeof(cotune_choice_t) - 1;
  const ChoiceList list = List();
  EXPECT_THAT(list.refusals, IsEmpty());
  std::vector<std::string> classes;
  for (const Choice& choice : list.choices) classes.push_back(choice.numerics);
  EXPECT_THAT(classes, ElementsAre("rank_order_f32", "", std::string(31, 'x'), "", ""));
}

TEST_F(BackendAdapterTest, ABadNumericsClassRefusesItsChoice) {
  probe_.choices = {Entry("good", COTUNE_CHOICE_DEFAULT),
                    WithNumerics(Entry("endless"), std::string(32, 'x')),
                    WithNumerics(Entry("upper"), "Ring"), WithNumerics(Entry("byte"), "ring\n"),
                    WithNumerics(Entry("high"), "ring\xff")};
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/good");
  ASSERT_EQ(list.refusals.size(), 4u);
  EXPECT_EQ(list.refusals[0].choice, "probe/endless");
  EXPECT_EQ(list.refusals[0].reason, "the text of its numerics class does not end with NUL");
  EXPECT_EQ(list.refusals[1].reason,
            "byte 0x52 in the text of its numerics class is none of [a-z0-9_.]");
  EXPECT_THAT(list.refusals[2].reason, HasSubstr("byte 0x0a"));
  EXPECT_THAT(list.refusals[3].reason, HasSubstr("byte 0xff"));
}

TEST_F(BackendAdapterTest, AListThatFailsIsARefusalOfTheBackend) {
  probe_.status = COTUNE_UNSUPPORTED;
  probe_.message = "no such wire";
  EXPECT_EQ(List().refusals.at(0).choice, "probe");
  EXPECT_EQ(List().refusals.at(0).reason, "no such wire");
  probe_.message = "";
  EXPECT_EQ(List().refusals.at(0).reason, "list_choices gave status -2 without a reason");
}

TEST_F(BackendAdapterTest, ProgramsOfMoreThanOneCollectiveAreRefused) {
  const ProblemClass& cls = problem_.cls;
  const Program program = Program::Bind(ProgramGraph::Parse("%x = input f32 [R, 1]\n"
                                                            "%y = all_reduce sum %x\n"
                                                            "%z = all_reduce sum %y\n"
                                                            "return %z\n")
                                            .value(),
                                        {cls.memory, cls.world_size, cls.ranks_per_node})
                              .value();
  const ChoiceList list = backend_->ListChoices(program, problem_);
  EXPECT_THAT(list.choices, IsEmpty());
  EXPECT_THAT(list.refusals.at(0).reason, HasSubstr("fusion extension not offered"));
  const auto group = Group();
  const auto plan =
      group->Prepare(program, problem_, Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

TEST_F(BackendAdapterTest, StatusesBecomeErrorsThatNameJobRanks) {
  const auto group = Group();
  EXPECT_THAT(probe_.job_ranks, ElementsAre(7, 5, 9));
  EXPECT_THAT(probe_.host_of_rank, ElementsAre(0, 1, 0));
  const auto plan = Prepare(*group).value();
  const std::map<cotune_status_t, ErrorCode> codes = {
      {COTUNE_INVALID_ARGUMENT, ErrorCode::kUsage},
      {COTUNE_UNSUPPORTED, ErrorCode::kUnsupported},
      {COTUNE_OUT_OF_RESOURCES, ErrorCode::kEnvironment},
      {COTUNE_DEADLINE_EXCEEDED, ErrorCode::kDeadline},
      {COTUNE_ABORTED, ErrorCode::kAborted},
      {COTUNE_PEER_FAILED, ErrorCode::kRankLost},
      {COTUNE_INTERNAL, ErrorCode::kInternal},
      {-99, ErrorCode::kInternal},
  };
  for (const auto& [status, code] : codes) {
    probe_.status = status;
    probe_.failed_rank = 2;
    probe_.message = "because";
    for (const Error& error : {group->Health().error(), plan->Launch({}).error(),
                               plan->Progress(0).error(), Prepare(*group).error()}) {
      EXPECT_EQ(error.code, code) << status;
      EXPECT_EQ(error.what, "because");
      EXPECT_EQ(error.where, "backend probe");
      EXPECT_THAT(error.ranks, ElementsAre(9)) << status;
    }
    probe_.failed_rank = 3;  // no rank of the group
    EXPECT_THAT(plan->Launch({}).error().ranks, IsEmpty());
    probe_.message = "";
    EXPECT_EQ(plan->Launch({}).error().what, "launch failed without a message");
  }
  probe_.status = COTUNE_IN_PROGRESS;
  EXPECT_FALSE(plan->Progress(0).value());
  probe_.status = COTUNE_OK;
  EXPECT_TRUE(plan->Progress(0).value());
  group->Abort();
  EXPECT_EQ(group->Health().error().code, ErrorCode::kAborted);
}

TEST_F(BackendAdapterTest, LaunchHandsOverBuffersStreamAndDeadline) {
  const auto group = Group();
  const auto plan = Prepare(*group).value();
  char send = 0;
  char recv = 0;
  ASSERT_TRUE(plan->Launch({&send, &recv, nullptr, 77}).has_value());
  EXPECT_EQ(probe_.launch.struct_size, sizeof(cotune_launch_t));
  EXPECT_EQ(probe_.launch.send, &send);
  EXPECT_EQ(probe_.launch.recv, &recv);
  EXPECT_EQ(probe_.launch.stream.kind, static_cast<uint32_t>(COTUNE_STREAM_HOST));
  EXPECT_EQ(probe_.launch.stream.device, -1);
  EXPECT_EQ(probe_.launch.deadline_ns, 77);
}

}  // namespace
}  // namespace cotune
