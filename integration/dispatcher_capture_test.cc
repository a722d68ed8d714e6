// Calls that are captured in CUDA graphs, with a driver that stands in for a GPU and a backend that
// counts launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/twin_recipes.h"
#include "integration/dispatcher.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/nccl/testing/fakes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A backend of one rank. Its choices are "eager", which cannot be captured, and "plain", "other",
// "near" and "wide", which can be. The last two are listed for one count only; prepare takes each
// choice for all counts.
struct Backend {
  uint64_t near_count = 0;        // 0: it is never listed
  uint64_t wide_count = 0;        // likewise
  std::string usual = "plain";    // the default
  bool is_plain_captured = true;  // the flag of "plain"
  std::string refused;            // the choice that prepare refuses
  cotune_status_t refusal = COTUNE_UNSUPPORTED;
  std::map<std::string, int> launches;
  std::map<std::string, int> prepared;  // tries
};
Backend* backend = nullptr;

struct PlanOfChoice {
  std::string name;
};

cotune_status_t ListChoices(const cotune_backend_t*, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t*) {
  std::vector<std::string> names = {"eager", "plain", "other"};
  if (problem->count == backend->near_count) names.emplace_back("near");
  if (problem->count == backend->wide_count) names.emplace_back("wide");
  *count = static_cast<uint32_t>(names.size());
  for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
    const std::string& name = names[i];
    cotune_choice_t choice{};
    choice.struct_size = sizeof(choice);
    choice.cost_us = -1;
    const bool is_captured = name != "eager" && (name != "plain" || backend->is_plain_captured);
    if (is_captured) choice.flags |= COTUNE_CHOICE_CAPTURABLE;
    if (name == backend->usual) choice.flags |= COTUNE_CHOICE_DEFAULT;
    std::snprintf(choice.name, sizeof(choice.name), "%s", name.c_str());
    std::memcpy(reinterpret_cast<std::byte*>(first) + i * stride, &choice, sizeof(choice));
  }
  return COTUNE_OK;
}

cotune_status_t Prepare(cotune_group_t*, const cotune_problem_t*, const char* name, int64_t,
                        cotune_plan_t** plan, cotune_error_t*) {
  ++backend->prepared[name];
  if (name == backend->refused) return backend->refusal;
  *plan = reinterpret_cast<cotune_plan_t*>(new PlanOfChoice{name});
  return COTUNE_OK;
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t*, cotune_error_t*) {
  ++backend->launches[reinterpret_cast<PlanOfChoice*>(plan)->name];
  return COTUNE_OK;
}

const cotune_backend_api_t* Table() {
  static const cotune_backend_api_t table = [] {
    cotune_backend_api_t made{};
    made.struct_size = sizeof(made);
    made.abi_minor = COTUNE_ABI_MINOR;
    made.build_flags = fake::BackendApi()->build_flags;
    made.memory_kinds = 1u << COTUNE_MEMORY_CUDA;
    made.name = "graphs";
    made.version = "1";
    made.create = [](const cotune_host_t*, int32_t, cotune_backend_t** created, cotune_error_t*) {
      *created = reinterpret_cast<cotune_backend_t*>(backend);
      return cotune_status_t{COTUNE_OK};
    };
    made.destroy = [](cotune_backend_t*) {};
    made.get_extension = [](const cotune_backend_t*, const char*) -> const void* {
      return nullptr;
    };
    made.list_choices = ListChoices;
    made.group_create = [](cotune_backend_t* of, const cotune_group_params_t*,
                           cotune_group_t** group, cotune_error_t*) {
      *group = reinterpret_cast<cotune_group_t*>(of);
      return cotune_status_t{COTUNE_OK};
    };
    made.group_health = [](cotune_group_t*, cotune_error_t*) { return cotune_status_t{COTUNE_OK}; };
    made.group_abort = [](cotune_group_t*) {};
    made.group_destroy = [](cotune_group_t*) {};
    made.prepare = Prepare;
    made.launch = Launch;
    made.progress = [](cotune_plan_t*, int64_t, cotune_error_t*) {
      return cotune_status_t{COTUNE_OK};
    };
    made.plan_destroy = [](cotune_plan_t* plan) { delete reinterpret_cast<PlanOfChoice*>(plan); };
    return made;
  }();
  return &table;
}

class Warnings final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    if (event.type == EventType::kLine && event.severity == Severity::kWarning) {
      lines.emplace_back(event.name);
    }
  }
  std::vector<std::string> lines;
};

class DispatcherCaptureTest : public ::testing::Test {
 protected:
  DispatcherCaptureTest() : cuda_(nccl::LoadFakeCuda()) {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    cuda_.is_capturing = false;
    backend = &backend_;
  }
  ~DispatcherCaptureTest() override {
    cuda_.is_capturing = false;
    dispatcher_.reset();
    job_.reset();
    std::filesystem::remove_all(folder_);
  }

  // The choice that runs an all_reduce of so many elements.
  std::string Runs(uint64_t count) {
    backend_.launches.clear();
    Call call = Sum();
    call.count = count;
    EXPECT_EQ(Run(call), "");
    return backend_.launches.empty() ? "" : backend_.launches.begin()->first;
  }

  // A table whose rows name "eager" for the sum, or no table.
  void Join(bool is_tuned) {
    JobOptions options;
    options.context.launcher = "test";
    options.context.job_id = "job";
    options.context.socket_path = folder_ + "/s";
    options.memory = MemoryKind::kCuda;
    options.catalogue.tables = {Table()};
    options.lines = &warnings_;
    options.recipes = recipes_;
    Result<std::unique_ptr<Job>> job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    job_ = std::move(*job);
    dispatcher_ = std::make_unique<Dispatcher>(*job_);
    if (!is_tuned) return;
    const DispatchKey sum =
        DispatchKey::Of(job_->Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum));
    dispatcher_->SetTable(*DispatchTable::Build(
        {DispatchRow{sum, {SizeRange{0, UINT64_MAX, *ChoiceId::Parse("graphs/eager")}}}}));
  }
  Call Sum() {
    Call call;
    call.reduction = Reduction::kSum;
    call.count = 16;
    call.send = &send_;
    call.recv = &recv_;
    return call;
  }
  std::string Run() { return Run(Sum()); }
  std::string Run(const Call& call) {
    const Status ran = dispatcher_->Run(call);
    return ran ? "" : ran.error().ToText();
  }
  // The row of a sum that was measured with 16 elements.
  DispatchRow RowOfSixteen(Reduction reduction, const std::string& winner,
                           const std::vector<std::string>& next_best = {}) {
    const ProblemClass cls = job_->Class(Collective::kAllReduce, Dtype::kF32, reduction);
    std::vector<ChoiceId> ids;
    for (const std::string& each : next_best) ids.push_back(*ChoiceId::Parse("graphs/" + each));
    const std::pair<uint64_t, ChoiceId> winners[] = {{64, *ChoiceId::Parse("graphs/" + winner)}};
    return DispatchRow::Of(DispatchKey::Of(cls), winners, {{64, NextBest(std::move(ids))}});
  }

  nccl::FakeCudaState& cuda_;
  Backend backend_;
  Warnings warnings_;
  std::string folder_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Dispatcher> dispatcher_;
  float send_[16] = {};
  float recv_[16] = {};
  float second_[16] = {};
  std::shared_ptr<const RecipeSource> recipes_;
};

TEST_F(DispatcherCaptureTest, CapturedCallsOfAChoiceThatCannotBeRunTheDefaultWithOneWarning) {
  Join(true);
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1)));
  EXPECT_THAT(warnings_.lines, IsEmpty());
  cuda_.is_capturing = true;
  const auto prepared = backend_.prepared;
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1), Pair("plain", 2)));
  EXPECT_EQ(backend_.prepared, prepared) << "a capture prepares nothing that a call before did";
  EXPECT_THAT(warnings_.lines,
              ElementsAre("graphs/eager cannot be captured in a CUDA graph: captured calls run the "
                          "default, graphs/plain"));
  cuda_.is_capturing = false;
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 2), Pair("plain", 2)));
  const Result<CallExplanation> explanation = dispatcher_->Explain(Sum());
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->is_eager);
  EXPECT_EQ(explanation->choice_in_graphs->text(), "graphs/plain");
}

TEST_F(DispatcherCaptureTest, AForcedChoiceIsCapturedIfItCanBe) {
  Join(true);
  TuningSettings settings = job_->settings();
  settings.force = ForcedChoices::Parse("all_reduce=graphs/other").value();
  job_->set_settings(settings);
  EXPECT_EQ(Run(), "");
  cuda_.is_capturing = true;
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("other", 2)));
  cuda_.is_capturing = false;
  job_->DropPlans();
  settings.force = ForcedChoices::Parse("all_reduce=graphs/eager").value();
  job_->set_settings(settings);
  backend_.launches.clear();
  EXPECT_EQ(Run(), "");
  cuda_.is_capturing = true;
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1), Pair("plain", 1)));
  EXPECT_THAT(warnings_.lines, ElementsAre(HasSubstr("graphs/eager cannot be captured")));
  const Result<CallExplanation> explanation = dispatcher_->Explain(Sum());
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->is_forced);
  EXPECT_EQ(explanation->choice_in_graphs->text(), "graphs/plain");
}

TEST_F(DispatcherCaptureTest, WithoutACapturableDefaultACapturedCallIsRefusedAndTheGroupGoesOn) {
  backend_.is_plain_captured = false;
  Join(true);
  EXPECT_EQ(Run(), "");
  cuda_.is_capturing = true;
  EXPECT_THAT(Run(),
              AllOf(HasSubstr("graphs/eager cannot be captured in a CUDA graph"),
                    HasSubstr("no default stands in for it"), HasSubstr("leave this call out")));
  cuda_.is_capturing = false;
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 2)));
  EXPECT_FALSE(dispatcher_->Explain(Sum())->choice_in_graphs);
}

TEST_F(DispatcherCaptureTest, AChoiceThatCanBeCapturedRunsEverywhere) {
  Join(false);
  EXPECT_EQ(Run(), "");
  cuda_.is_capturing = true;
  EXPECT_EQ(Run(), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("plain", 2)));
  EXPECT_THAT(warnings_.lines, IsEmpty());
  EXPECT_FALSE(dispatcher_->Explain(Sum())->is_eager);
}

TEST_F(DispatcherCaptureTest, AChoiceThatRefusedIsNotTriedAgain) {
  backend_.refused = "plain";
  Join(false);
  const std::string first = Run();
  EXPECT_THAT(first, HasSubstr("prepare failed without a message (backend graphs)"));
  EXPECT_EQ(backend_.prepared["plain"], 1);
  cuda_.is_capturing = true;
  EXPECT_EQ(Run(), first);
  cuda_.is_capturing = false;
  EXPECT_EQ(Run(), first);
  EXPECT_EQ(backend_.prepared["plain"], 1);
}

TEST_F(DispatcherCaptureTest, ADefaultThatIsNotReadyEndsTheGroupOfACapturedCallOnly) {
  backend_.refused = "plain";
  Join(true);
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(Run(), "");
  cuda_.is_capturing = true;
  const std::string captured = Run();
  EXPECT_THAT(captured, HasSubstr("graphs/plain, which captured calls run in the place of "
                                  "graphs/eager, cannot be made ready"));
  cuda_.is_capturing = false;
  EXPECT_EQ(Run(), captured);
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 2)));
}

// A backend lists the number of blocks that fits a size, and runs it at the sizes around it.
TEST_F(DispatcherCaptureTest, AWinnerThatIsListedForItsMeasuredSizeIsCapturedAtOthersToo) {
  backend_.near_count = 16;
  Join(false);
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"other"})}));
  Call call = Sum();
  call.count = 8;
  EXPECT_EQ(Run(call), "");
  cuda_.is_capturing = true;
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("near", 2)));
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->from_table);
  EXPECT_FALSE(explanation->is_eager);
  // Calls in place have no row of their own.
  call.recv = &send_;
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("near", 3)));
  EXPECT_TRUE(dispatcher_->Explain(call)->relative);
  EXPECT_THAT(warnings_.lines, IsEmpty());
}

// As with blocks of a kernel that are enough for one measured size, and not for larger calls.
TEST_F(DispatcherCaptureTest, AWinnerThatIsTooSmallForACallGivesWayToThatOfTheNextSize) {
  backend_.near_count = 8;
  backend_.wide_count = 16;
  Join(false);
  const DispatchKey sum =
      DispatchKey::Of(job_->Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum));
  const auto set_table = [&](uint64_t second_bytes) {
    const std::pair<uint64_t, ChoiceId> winners[] = {
        {32, *ChoiceId::Parse("graphs/near")}, {second_bytes, *ChoiceId::Parse("graphs/wide")}};
    dispatcher_->SetTable(
        *DispatchTable::Build({DispatchRow::Of(sum, winners, {{32, {}}, {second_bytes, {}}})}));
  };
  set_table(64);
  EXPECT_EQ(Runs(4), "near");
  EXPECT_EQ(Runs(8), "near");
  EXPECT_EQ(Runs(9), "wide") << "36 bytes are nearer to 32 than to 64";
  EXPECT_EQ(Runs(12), "wide");
  Call call = Sum();
  call.count = 9;
  Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->from_table);
  EXPECT_EQ(explanation->choice.text(), "graphs/wide");
  EXPECT_EQ(explanation->next_size_bytes, 64u);
  EXPECT_EQ(explanation->first_bytes, 33u);
  EXPECT_EQ(explanation->end_bytes, UINT64_MAX);
  call.count = 8;
  explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->next_size_bytes, 0u);
  EXPECT_EQ(explanation->end_bytes, 46u);
  // The winner of the next size is refused, far above the call, or not needed.
  backend_.refused = "wide";
  EXPECT_EQ(Runs(10), "near");
  backend_.refused = "";
  set_table(4096);
  EXPECT_EQ(Runs(10), "near");
  set_table(64);
  backend_.near_count = 11;
  EXPECT_EQ(Runs(11), "near");
  // Agreed calls run likewise, whatever program they stand in.
  backend_.near_count = 8;
  const auto graph =
      ProgramGraph::Parse("%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n");
  ASSERT_TRUE(dispatcher_->Agree(*graph, std::vector<uint64_t>{7, 9}));
  EXPECT_EQ(Runs(7), "near");
  EXPECT_EQ(Runs(9), "wide");
}

// Without a next size, a choice that is listed for the larger call goes first.
TEST_F(DispatcherCaptureTest, AWinnerThatIsTooSmallForACallGivesWayToAListedNextBest) {
  backend_.near_count = 16;
  backend_.wide_count = 16;
  Join(false);
  dispatcher_->SetTable(
      *DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"wide", "other"})}));
  EXPECT_EQ(Runs(8), "near") << "its blocks are enough for a smaller call";
  EXPECT_EQ(Runs(16), "near");
  EXPECT_EQ(Runs(17), "other");
  Call call = Sum();
  call.count = 17;
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "graphs/other");
  EXPECT_TRUE(explanation->is_next_best);
  EXPECT_EQ(explanation->table_choice_refused,
            "graphs/near: its backend does not list it for a call of this size");
  // It also goes before the winner of the next size, which is further away.
  const DispatchKey sum =
      DispatchKey::Of(job_->Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum));
  const std::pair<uint64_t, ChoiceId> winners[] = {{64, *ChoiceId::Parse("graphs/near")},
                                                   {128, *ChoiceId::Parse("graphs/plain")}};
  const auto set_two_sizes = [&](std::vector<ChoiceId> next_best) {
    dispatcher_->SetTable(*DispatchTable::Build(
        {DispatchRow::Of(sum, winners, {{64, NextBest(std::move(next_best))}, {128, {}}})}));
  };
  set_two_sizes({*ChoiceId::Parse("graphs/other")});
  EXPECT_EQ(Runs(17), "other");
  set_two_sizes({});
  EXPECT_EQ(Runs(17), "plain");
  // If nothing is listed, the winner runs all the same.
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"wide"})}));
  EXPECT_EQ(Runs(17), "near");
  // Agreed calls run likewise.
  dispatcher_->SetTable(
      *DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"wide", "other"})}));
  const auto graph =
      ProgramGraph::Parse("%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n");
  ASSERT_TRUE(dispatcher_->Agree(*graph, std::vector<uint64_t>{8, 17}));
  EXPECT_EQ(Runs(8), "near");
  EXPECT_EQ(Runs(17), "other");
}

// A backend that does not know the name of a choice at this size calls it an invalid argument.
TEST_F(DispatcherCaptureTest, AWinnerWhoseNameIsUnknownAtTheSizeRunsTheNextBest) {
  backend_.near_count = 16;
  backend_.refusal = COTUNE_INVALID_ARGUMENT;
  backend_.refused = "near";
  Join(false);
  Call call = Sum();
  call.count = 8;
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"other"})}));
  EXPECT_EQ(Run(call), "");
  dispatcher_->SetTable(
      *DispatchTable::Build({RowOfSixteen(Reduction::kSum, "eager", {"near", "other"})}));
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1), Pair("other", 1)));
  // The same for a collective that is agreed.
  const auto graph =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%y = all_reduce sum %x\nreturn %y\n");
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"other"})}));
  ASSERT_TRUE(dispatcher_->Agree(*graph, std::vector<uint64_t>{2}));
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1), Pair("other", 2)));
}

TEST_F(DispatcherCaptureTest, WhatTheBackendRefusesOutsideOfItsListRunsTheNextBest) {
  backend_.near_count = 16;
  Join(false);
  Call call = Sum();
  call.count = 8;
  cuda_.is_capturing = true;
  backend_.refused = "near";
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"other"})}));
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("other", 1)));
  EXPECT_TRUE(dispatcher_->Explain(call)->is_next_best);
  // A next best choice is one of the measured size, too, and may be refused likewise.
  dispatcher_->SetTable(
      *DispatchTable::Build({RowOfSixteen(Reduction::kSum, "gone", {"near", "other"})}));
  backend_.refused = "gone";
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("near", 1), Pair("other", 1)));
  call.count = 4;
  backend_.refused = "near";
  dispatcher_->SetTable(*DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near", {"near"})}));
  EXPECT_EQ(Run(call), "");
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("near", 1), Pair("other", 1), Pair("plain", 1)));
}

// The program has no local operations, as there is no backend for them here.
TEST_F(DispatcherCaptureTest, AProgramThatIsNotReadyIsRefusedInACaptureAndTheGroupGoesOn) {
  Join(false);
  const ProgramGraph graph = ProgramGraph::Parse(
                                 "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n"
                                 "%y = all_reduce max %s\nreturn %y\n")
                                 .value();
  const void* const inputs[] = {&send_};
  void* const outputs[] = {&recv_};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  cuda_.is_capturing = true;
  const Status refused = dispatcher_->Run(call);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().ToText(),
              AllOf(HasSubstr("not ready to be captured"), HasSubstr("cotune_program_prepare")));
  EXPECT_THAT(backend_.prepared, IsEmpty());
  cuda_.is_capturing = false;
  EXPECT_TRUE(dispatcher_->Prepare(call));
  cuda_.is_capturing = true;
  const Status ran = dispatcher_->Run(call);
  EXPECT_TRUE(ran) << ran.error().ToText();
  EXPECT_THAT(backend_.launches, ElementsAre(Pair("plain", 2)));
}

// The second sum is the first one again, so that the form "once" has two collectives of three.
TEST_F(DispatcherCaptureTest, AWinnerOfASecondFormIsCapturedIfItCanBe) {
  recipes_ = std::make_shared<TwinRecipes>();
  Join(false);
  const ProgramGraph graph = ProgramGraph::Parse(
                                 "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n"
                                 "%t = all_reduce sum %x\n%u = all_reduce max %t\n"
                                 "return %s, %u\n")
                                 .value();
  const DispatchKey key =
      DispatchKey::Of(Program::Bind(graph, {MemoryKind::kCuda, 1, 1}).value().anchor());
  const void* const inputs[] = {&send_};
  void* const outputs[] = {&recv_, &second_};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  const auto launches = [&](const char* winner, bool is_captured) {
    cuda_.is_capturing = false;
    dispatcher_->SetTable(*DispatchTable::Build(
        {DispatchRow{key, {SizeRange{0, UINT64_MAX, *ChoiceId::Parse(winner)}}}}));
    EXPECT_TRUE(dispatcher_->Prepare(call));
    backend_.launches.clear();
    cuda_.is_capturing = is_captured;
    const Status ran = dispatcher_->Run(call);
    EXPECT_TRUE(ran) << ran.error().ToText();
    return backend_.launches;
  };
  for (const bool is_captured : {false, true}) {
    EXPECT_THAT(launches("graphs/other?via=once", is_captured), ElementsAre(Pair("other", 2)));
    EXPECT_THAT(launches("graphs/other", is_captured), ElementsAre(Pair("other", 3)));
  }
  EXPECT_THAT(launches("graphs/eager?via=once", false), ElementsAre(Pair("eager", 2)));
  EXPECT_THAT(launches("graphs/eager?via=once", true), ElementsAre(Pair("plain", 3)));
}

// Another rank may capture the same collectives as two programs.
TEST_F(DispatcherCaptureTest, ACapturedProgramKeepsTheAgreedChoicesThatCanBeCaptured) {
  Join(false);
  const auto sum =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%y = all_reduce sum %x\nreturn %y\n");
  const auto max =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%y = all_reduce max %x\nreturn %y\n");
  const auto both = ProgramGraph::Parse(
      "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = all_reduce max %s\nreturn %y\n");
  ASSERT_TRUE(sum && max && both);
  const auto row_of = [&](Reduction reduction, const char* id) {
    const ProblemClass cls = job_->Class(Collective::kAllReduce, Dtype::kF32, reduction);
    return DispatchRow{DispatchKey::Of(cls), {SizeRange{0, UINT64_MAX, *ChoiceId::Parse(id)}}};
  };
  dispatcher_->SetTable(*DispatchTable::Build(
      {row_of(Reduction::kSum, "graphs/eager"), row_of(Reduction::kMax, "graphs/other")}));
  const uint64_t rows[] = {4};
  ASSERT_TRUE(dispatcher_->Agree(*sum, rows));
  ASSERT_TRUE(dispatcher_->Agree(*max, rows));
  const void* const inputs[] = {&send_};
  void* const outputs[] = {&recv_};
  const auto launches_of = [&](const std::vector<const ProgramGraph*>& graphs) {
    backend_.launches.clear();
    for (const ProgramGraph* graph : graphs) {
      const Status ran = dispatcher_->Run(
          ProgramCall{.graph = graph, .rows = 4, .inputs = inputs, .outputs = outputs});
      EXPECT_TRUE(ran) << ran.error().ToText();
    }
    return backend_.launches;
  };
  const auto agreed = ElementsAre(Pair("eager", 1), Pair("other", 1));
  EXPECT_THAT(launches_of({&*both}), agreed);
  EXPECT_THAT(launches_of({&*sum, &*max}), agreed);
  cuda_.is_capturing = true;
  const auto captured = ElementsAre(Pair("other", 1), Pair("plain", 1));
  EXPECT_THAT(launches_of({&*both}), captured);
  EXPECT_THAT(
      warnings_.lines,
      ElementsAre("graphs/eager+graphs/other cannot be captured in a CUDA graph: captured "
                  "calls run graphs/plain+graphs/other, with the default of each collective "
                  "whose choice cannot be captured"));
  EXPECT_THAT(launches_of({&*sum, &*max}), captured);
  cuda_.is_capturing = false;
  const Result<CallExplanation> explanation =
      dispatcher_->Explain(ProgramCall{.graph = &*both, .rows = 4});
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "graphs/eager+graphs/other");
  EXPECT_EQ(explanation->choice_in_graphs->text(), "graphs/plain+graphs/other");
}

// A choice that is agreed for rows that were not measured runs alike in each program.
TEST_F(DispatcherCaptureTest, AnAgreedChoiceMayBeListedForItsMeasuredSizeOnly) {
  backend_.near_count = 16;
  const auto sum =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%y = all_reduce sum %x\nreturn %y\n");
  const auto max =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%y = all_reduce max %x\nreturn %y\n");
  const auto both = ProgramGraph::Parse(
      "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = all_reduce max %s\nreturn %y\n");
  ASSERT_TRUE(sum && max && both);
  const void* const inputs[] = {&send_};
  void* const outputs[] = {&recv_};
  const auto run = [&](const ProgramGraph& graph, uint64_t rows) {
    const Status ran = dispatcher_->Run(
        ProgramCall{.graph = &graph, .rows = rows, .inputs = inputs, .outputs = outputs});
    return ran ? "" : ran.error().ToText();
  };
  for (const bool is_at_all_rows : {false, true}) {
    backend_.launches.clear();
    backend_.refused = "";
    dispatcher_.reset();
    job_.reset();
    Join(false);
    dispatcher_->SetTable(*DispatchTable::Build(
        {RowOfSixteen(Reduction::kSum, "near"), RowOfSixteen(Reduction::kMax, "eager")}));
    const std::vector<uint64_t> rows{2, 3};
    const std::span<const uint64_t> agreed =
        is_at_all_rows ? std::span<const uint64_t>() : std::span<const uint64_t>(rows);
    ASSERT_TRUE(dispatcher_->Agree(*sum, agreed));
    ASSERT_TRUE(dispatcher_->Agree(*max, agreed));
    // A capture is no time to find out whether the backend takes it.
    cuda_.is_capturing = true;
    EXPECT_THAT(run(*both, 2), HasSubstr("not ready to be captured"));
    cuda_.is_capturing = false;
    EXPECT_EQ(run(*both, 2), "");
    EXPECT_EQ(run(*sum, 2), "");
    EXPECT_THAT(backend_.launches, ElementsAre(Pair("eager", 1), Pair("near", 2)));
    // Agreements on other programs and new tables come between a first call and its capture.
    ASSERT_TRUE(dispatcher_->Agree(*max, agreed));
    dispatcher_->SetTable(
        *DispatchTable::Build({RowOfSixteen(Reduction::kSum, "near"),
                               RowOfSixteen(Reduction::kMax, "eager", {"other"})}));
    EXPECT_EQ(run(*max, 3), "");
    backend_.launches = {{"eager", 1}, {"near", 2}};
    cuda_.is_capturing = true;
    EXPECT_EQ(run(*both, 2), "");
    EXPECT_EQ(run(*sum, 2), "");
    EXPECT_THAT(backend_.launches,
                ElementsAre(Pair("eager", 1), Pair("near", 4), Pair("plain", 1)));
    cuda_.is_capturing = false;
    backend_.refused = "near";
    EXPECT_EQ(run(*sum, 3), "");
    EXPECT_EQ(run(*both, 3), "");
    EXPECT_THAT(backend_.launches,
                ElementsAre(Pair("eager", 2), Pair("near", 4), Pair("plain", 3)));
  }
}

}  // namespace
}  // namespace cotune
